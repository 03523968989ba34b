"""A compiled module on a device, with the functions that Relay's runtime modules had."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.runtime.module import BenchmarkResult

from ..errors import InputError, RelayError, TargetError
from ..ir.signature import Signature
from ..support.target import missing_features, spelled

__all__ = ["Session", "numpy_dtype"]


class Session:
    """A compiled module on a device: what ``lib["default"](device)`` gives.

    Parameters
    ----------
    built : tvm.relax.VMExecutable or tvm.runtime.Module
        What to run.
    target : tvm.target.Target
        What it was compiled for.
    signature : Signature
        What ``main`` takes.
    bound : collection of str
        Parameters that the build made constants.
    device : tvm.runtime.Device
        Where to run.
    """

    def __init__(
        self,
        built: Any,
        target: tvm.target.Target,
        signature: Signature,
        bound: Mapping[str, Any],
        device: Any,
    ) -> None:
        kind = "cpu" if target.kind.name == "llvm" else target.kind.name
        if device.dlpack_device_type() != tvm.device(kind).dlpack_device_type():
            raise TargetError(
                f"the module was compiled for {target.kind.name}, the device is {device}",
                where=spelled(target),
                fix=f"run it on tvm.device({kind!r})",
            )
        if absent := missing_features(target):
            raise TargetError(
                f"this machine cannot run the module: it lacks {absent}",
                where=spelled(target),
                fix="build for this machine, with target=None",
            )
        self.device = device
        self.bound = bound
        self.inputs = signature.inputs
        self.machine = relax.VirtualMachine(built, device)
        self._main = self.machine["main"]
        self._places: list[Any] = [None] * len(self.inputs)
        self._outputs: list[Any] | None = None

    def index(self, key: int | str) -> int:
        """Find an input by its name or number; -1 where there is none."""
        if isinstance(key, (int, np.integer)):
            return int(key) if 0 <= key < len(self.inputs) else -1
        names = [value.name for value in self.inputs]
        return names.index(key) if key in names else -1

    def place(self, index: int, shape: Sequence[int] | None = None) -> Any:
        """Give the tensor that an input is read from; it holds zeros until it is set."""
        declared = self.inputs[index]
        found = self._places[index]
        if found is None or (shape is not None and tuple(found.shape) != tuple(shape)):
            sizes = [size for size in shape or declared.shape if not isinstance(size, str)]
            if shape is None and len(sizes) != len(declared.shape):
                raise InputError(
                    f"input {declared.name!r} has a size known at run time only, and is not set",
                    where=str(declared),
                    fix="set it first",
                )
            zeros = np.zeros(sizes, numpy_dtype(declared.dtype))
            found = self._places[index] = tvm.runtime.tensor(zeros, self.device)
        return found

    def share(self, index: int, tensor: Any) -> None:
        """Read an input from a tensor of the caller's."""
        self._places[index] = tensor

    def arguments(self) -> list[Any]:
        """Give what ``main`` is called with."""
        return [self.place(index) for index in range(len(self.inputs))]

    def run(self) -> None:
        """Run ``main`` on what the inputs hold."""
        self._outputs = _flat(self._main(*self.arguments()))

    def outputs(self) -> list[Any]:
        """Give what the last run made, tuples in one row; run first where none was."""
        if self._outputs is None:
            self.run()
        return self._outputs or []

    def time_evaluator(
        self,
        func_name: str,
        dev: Any,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        **_: Any,
    ) -> Callable[..., BenchmarkResult]:
        """Make what times the model on the inputs that are set: ``time_evaluator("run", dev)()``.

        Parameters
        ----------
        func_name : str
            ``"run"``; there is no other here.
        dev : tvm.runtime.Device
            The module's own.
        number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, \
repeats_to_cooldown : int
            As in `tvm.runtime.Module.time_evaluator`.

        Returns
        -------
        callable
            It gives a `tvm.runtime.module.BenchmarkResult`, in seconds.

        Raises
        ------
        RelayError
            It is another function.
        """
        if func_name != "run":
            raise RelayError(
                f"a packed function {func_name!r} of a module is not timed here",
                where=f"time_evaluator({func_name!r}, ...)",
                fix="time 'run'",
            )
        evaluate = self.machine.time_evaluator(
            "main",
            dev,
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
        )
        return lambda: evaluate(*self.arguments())

    def __getitem__(self, name: str) -> Any:
        """Give one of Relay's packed functions: the method of that name of `GraphModule`.

        Raises
        ------
        RelayError
            There is no such method.
        """
        from .graph_executor import GraphModule

        found = getattr(GraphModule(self), name, None) if name in _PACKED else None
        if found is None:
            raise RelayError(
                f"the module has no packed function {name!r}",
                where=f"module[{name!r}]",
                fix=f"it has {', '.join(_PACKED)}",
            )
        return found


_PACKED = ("get_input", "get_input_index", "get_input_info", "get_num_inputs", "get_num_outputs",
           "get_output", "load_params", "run", "set_input", "set_input_zero_copy")  # fmt: skip


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tvm.runtime.Tensor):
        return [value]
    return [tensor for item in value for tensor in _flat(item)]


def numpy_dtype(name: str) -> Any:
    """Give NumPy's dtype of a name, bfloat16 and the float8s too."""
    import ml_dtypes  # gives NumPy bfloat16 and the float8s; TVM needs it too

    return getattr(ml_dtypes, name, None) or np.dtype(name)
