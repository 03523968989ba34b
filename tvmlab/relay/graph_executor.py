"""Relay's graph executor, over Relax's virtual machine.

The source of names and behaviour is Relay's ``python/tvm/contrib/graph_executor.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.runtime.module import BenchmarkResult

from ..errors import InputError, RelayError, TargetError
from ..runtime.executable import Executable
from ..support.host import missing_features
from ..support.target import spelled

__all__ = ["GraphModule", "create"]


def create(graph_json_str: str, libmod: Any, device: Any) -> GraphModule:
    """Make a `GraphModule` of the parts that ``relay.build`` returned.

    Parameters
    ----------
    graph_json_str : str
        The result of ``get_graph_json``; the graph itself is in `libmod`.
    libmod : GraphExecutorFactoryModule
        The result of ``relay.build``, or of its ``get_lib``.
    device : tvm.runtime.Device
        Where to run.
    """
    if not isinstance(graph_json_str, str):
        raise RelayError(
            f"the graph is a {type(graph_json_str).__name__}, not a string",
            where="graph_executor.create",
            fix="give what get_graph_json returned",
        )
    return GraphModule(libmod["default"](device))


class GraphModule:
    """A compiled model on a device: set inputs, run, get outputs.

    ``lib["default"](device)`` makes one, and `GraphModule` returns it as it is.
    """

    device: Any
    _bound: Collection[str]
    _inputs: Sequence[Any]
    _machine: Any
    _main: Callable[..., Any]
    _places: list[Any]
    _outputs: list[Any] | None

    def __new__(cls, module: Any) -> GraphModule:
        """Return the module, which must be one that ``relay.build`` made."""
        if isinstance(module, GraphModule):
            return module
        raise RelayError(
            f"GraphModule runs what relay.build made, not a {type(module).__name__}",
            where="GraphModule(module)",
            fix='give lib["default"](device)',
        )

    @classmethod
    def start(cls, executable: Executable, bound: Collection[str], device: Any) -> GraphModule:
        """Start an executable on a device; `bound` names parameters that became constants."""
        target = executable.target
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
        made = object.__new__(cls)
        made.device, made._bound = device, bound
        made._inputs = executable.signature.inputs
        made._machine = relax.VirtualMachine(executable.vm_executable, device)
        made._main = made._machine["main"]
        made._places = [None] * len(made._inputs)
        made._outputs = None
        return made

    @property
    def module(self) -> GraphModule:
        """The module itself, whose packed functions are its methods."""
        return self

    def set_input(self, key: int | str | None = None, value: Any = None, **params: Any) -> None:
        """Set inputs.

        Parameters
        ----------
        key : int or str, optional
            One input's number or name.
        value : array, optional
            Its value; like Relay, it is converted to the input's dtype.
        **params : array
            Inputs by name. Names of parameters that ``relay.build`` made constants are ignored,
            as Relay does.

        Raises
        ------
        InputError
            There is no such input, or the shape does not fit.
        """
        if key is not None:
            self._set(self._index(key), value)
        for name, array in params.items():
            if self.get_input_index(name) >= 0 or name not in self._bound:
                self._set(self._index(name), array)

    def _set(self, index: int, value: Any) -> None:
        declared = self._inputs[index]
        array = value.numpy() if isinstance(value, tvm.runtime.Tensor) else np.asarray(value)
        fits = array.ndim == len(declared.shape) and all(
            isinstance(wanted, str) or size == wanted
            for size, wanted in zip(array.shape, declared.shape, strict=True)
        )
        if not fits:
            raise InputError(
                f"input {declared.name!r} has shape {array.shape}, not {declared.shape}",
                where=str(declared),
                fix="give it that shape",
            )
        self._place(index, array.shape).copyfrom(array.astype(declared.dtype, copy=False))

    def _index(self, key: int | str) -> int:
        index = self.get_input_index(key)
        if index < 0:
            names = ", ".join(value.name for value in self._inputs)
            raise InputError(
                f"could not find {key!r} in the graph's inputs",
                where=f"its inputs are {names or 'none'}",
                fix="use one of these names",
            )
        return index

    def _place(self, index: int, shape: Sequence[int] | None = None) -> Any:
        """Return the tensor that an input is read from; it holds zeros until it is set."""
        declared, found = self._inputs[index], self._places[index]
        if found is not None and shape in (None, tuple(found.shape)):
            return found
        sizes = declared.shape if shape is None else shape
        if any(isinstance(size, str) for size in sizes):
            raise InputError(
                f"input {declared.name!r} has a size known at run time only, and is not set",
                where=str(declared),
                fix="set it first",
            )
        made = tvm.runtime.tensor(np.zeros(sizes, declared.dtype), self.device)
        self._places[index] = made
        return made

    def set_input_zero_copy(self, key: int | str, value: Any) -> None:
        """Read an input from the caller's tensor, which has the input's device, dtype and shape.

        Raises
        ------
        InputError
            It is no tensor, or has another dtype or shape, or there is no such input.
        """
        index = self._index(key)
        declared = self._inputs[index]
        fits = isinstance(value, tvm.runtime.Tensor) and str(value.dtype) == declared.dtype
        if not fits or tuple(value.shape) != declared.shape:
            raise InputError(
                f"input {declared.name!r} cannot be read from what was given",
                where=str(declared),
                fix="give a tvm.runtime.Tensor of that dtype and shape, on the module's device",
            )
        self._places[index] = value

    def run(self, **input_dict: Any) -> None:
        """Run the model, after setting the inputs given."""
        self.set_input(**input_dict)
        self._outputs = _flat(self._main(*self._arguments()))

    def _arguments(self) -> list[Any]:
        return [self._place(index) for index in range(len(self._inputs))]

    def _results(self) -> list[Any]:
        """Return the outputs of the last run; run first where there was none."""
        if self._outputs is None:
            self.run()
        return self._outputs or []

    def get_num_outputs(self) -> int:
        """Count the outputs; the fields of tuples count each."""
        return len(self._results())

    def get_num_inputs(self) -> int:
        """Count the inputs: the parameters that ``relay.build`` did not make constants."""
        return len(self._inputs)

    def get_input(self, index: int | str, out: Any = None) -> Any:
        """Return an input's tensor, or copy it into `out`."""
        return _copied(self._place(self._index(index)), out)

    def get_input_index(self, name: int | str) -> int:
        """Return an input's number, -1 where there is none of that name."""
        if isinstance(name, (int, np.integer)):
            return int(name) if 0 <= name < len(self._inputs) else -1
        names = [value.name for value in self._inputs]
        return names.index(name) if name in names else -1

    def get_input_info(self) -> tuple[dict[str, tuple[int | str, ...]], dict[str, str]]:
        """Return the inputs' shapes and dtypes, by name."""
        shapes = {value.name: value.shape for value in self._inputs}
        return shapes, {value.name: value.dtype for value in self._inputs}

    def get_output(self, index: int, out: Any = None) -> Any:
        """Return an output of the last run as a tensor, or copy it into `out`.

        Raises
        ------
        InputError
            There is no output of that number.
        """
        outputs = self._results()
        if not 0 <= index < len(outputs):
            raise InputError(
                f"there is no output {index}",
                where=f"the model has {len(outputs)}",
                fix="count them with get_num_outputs",
            )
        return _copied(outputs[index], out)

    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Set inputs from what ``relay.save_param_dict`` made."""
        self.set_input(**dict(tvm.runtime.load_param_dict(bytes(params_bytes)).items()))

    def __getitem__(self, name: str) -> Any:
        """Return one of Relay's packed functions: the method of that name.

        Raises
        ------
        RelayError
            There is no such function.
        """
        if name not in _PACKED:
            raise RelayError(
                f"the module has no packed function {name!r}",
                where=f"module[{name!r}]",
                fix=f"it has {', '.join(_PACKED)}",
            )
        return getattr(self, name)

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
        """Make a function that times ``"run"``, as `tvm.runtime.Module.time_evaluator` does.

        Returns
        -------
        callable
            It returns a `tvm.runtime.module.BenchmarkResult`, in seconds.

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
        evaluate = self._machine.time_evaluator(
            "main",
            dev,
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
        )
        return lambda: evaluate(*self._arguments())

    def benchmark(
        self,
        device: Any,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """Time the model.

        Parameters
        ----------
        device : tvm.runtime.Device
            The module's own.
        func_name : str
            ``"run"``; there is no other here.
        repeat, number : int
            Samples, and runs in a sample.
        min_repeat_ms : int, optional
            The least time of a sample; more runs are made for it.
        limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown : int
            As in `tvm.runtime.Module.time_evaluator`.
        end_to_end : bool
            Count copying the inputs in and the outputs out.
        **kwargs : array
            Inputs, set before.

        Returns
        -------
        tvm.runtime.module.BenchmarkResult
            Seconds: ``mean``, ``median``, ``min``, ``max``, ``std`` and ``results``.
        """
        if end_to_end:
            samples = []
            for _ in range(repeat):
                start = time.perf_counter()
                for _ in range(number):
                    self.run(**kwargs)
                    for output in self._results():
                        output.numpy()
                samples.append((time.perf_counter() - start) / number)
            return BenchmarkResult(samples)
        self.set_input(**kwargs)
        cooldown = {
            "cooldown_interval_ms": cooldown_interval_ms,
            "repeats_to_cooldown": repeats_to_cooldown,
        }
        least = min_repeat_ms or 0
        return self.time_evaluator(func_name, device, number, repeat, least, **cooldown)()


_PACKED = ("get_input", "get_input_index", "get_input_info", "get_num_inputs", "get_num_outputs",
           "get_output", "load_params", "run", "set_input", "set_input_zero_copy")  # fmt: skip


def _copied(tensor: Any, out: Any) -> Any:
    if out is None:
        return tensor
    out.copyfrom(tensor)
    return out


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tvm.runtime.Tensor):
        return [value]
    return [tensor for item in value for tensor in _flat(item)]
