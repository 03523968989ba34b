"""Relay's graph executor, over Relax's virtual machine.

The names and the behaviour are those of Relay's ``python/tvm/contrib/graph_executor.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.runtime.module import BenchmarkResult

from ..errors import InputError, RelayError, TargetError
from ..runtime.executable import Executable
from ..support.host import missing_features
from ..support.target import spelled
from .expr import refuse

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
    return GraphModule(libmod["default"](device))


class GraphModule:
    """A compiled model on a device: set inputs, run, get outputs.

    ``lib["default"](device)`` makes one, and `GraphModule` returns it as it is. An input holds
    zeros until it is set.
    """

    device: Any
    _bound: Collection[str]

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
        what = fix = ""
        if device.dlpack_device_type() != tvm.device(kind).dlpack_device_type():
            what = f"the module was compiled for {target.kind.name}, the device is {device}"
            fix = f"run it on tvm.device({kind!r})"
        elif absent := missing_features(target):
            what = f"this machine cannot run the module: it lacks {absent}"
            fix = "build for this machine, with target=None"
        if what:
            raise TargetError(what, where=spelled(target), fix=fix)
        made = object.__new__(cls)
        made.device, made._bound = device, bound
        made._inputs = executable.signature.inputs
        made._machine = relax.VirtualMachine(executable.vm_executable, device)
        made._values = [
            None
            if any(isinstance(size, str) for size in one.shape)
            else tvm.runtime.tensor(np.zeros(one.shape, one.dtype), device)
            for one in made._inputs
        ]
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

    def _set(self, index: int, value: Any, copy: bool = True) -> None:
        declared, is_tensor = self._inputs[index], isinstance(value, tvm.runtime.Tensor)
        shape = value.shape if is_tensor else np.shape(value)
        fits = len(shape) == len(declared.shape) and all(
            isinstance(wanted, str) or size == wanted
            for size, wanted in zip(shape, declared.shape, strict=True)
        )
        if not fits or not (copy or (is_tensor and str(value.dtype) == declared.dtype)):
            what = "a tvm.runtime.Tensor on the module's device" if not copy else "an array"
            raise InputError(
                f"input {declared.name!r} cannot be set to {type(value).__name__} of {shape}",
                where=str(declared),
                fix=f"give {what} of the declared shape and dtype",
            )
        if copy:
            array = value.numpy() if is_tensor else np.asarray(value)
            value = tvm.runtime.tensor(array.astype(declared.dtype, copy=False), self.device)
        self._values[index] = value

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

    def set_input_zero_copy(self, key: int | str, value: Any) -> None:
        """Read an input from the caller's tensor, which has the input's device, dtype and shape.

        Raises
        ------
        InputError
            It is no tensor, or has another dtype or shape, or there is no such input.
        """
        self._set(self._index(key), value, copy=False)

    def run(self, **input_dict: Any) -> None:
        """Run the model, after setting the inputs given."""
        self.set_input(**input_dict)
        self._outputs = _flat(self._machine["main"](*self._arguments()))

    def _arguments(self) -> list[Any]:
        for declared, value in zip(self._inputs, self._values, strict=True):
            if value is None:
                raise InputError(
                    f"input {declared.name!r} has a size known at run time only, and is not set",
                    where=str(declared),
                    fix="set it first",
                )
        return self._values

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
        return _copied(self._arguments()[self._index(index)], out)

    def get_input_index(self, name: int | str) -> int:
        """Return an input's number, -1 where there is none of that name."""
        names = [value.name for value in self._inputs]
        if isinstance(name, (int, np.integer)):
            return int(name) if 0 <= name < len(names) else -1
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
        """Set inputs from the result of ``relay.save_param_dict``."""
        self.set_input(**dict(tvm.runtime.load_param_dict(bytes(params_bytes)).items()))

    def __getitem__(self, name: str) -> Any:
        """Return one of Relay's packed functions: the method of that name.

        Raises
        ------
        RelayError
            There is no such function.
        """
        if name.startswith("_") or not hasattr(self, name):
            raise RelayError(
                f"the module has no packed function {name!r}",
                where=f"module[{name!r}]",
                fix="use a name of GraphModule's methods, such as 'set_input', 'run', 'get_output'",
            )
        return getattr(self, name)

    def time_evaluator(
        self, func_name: str, dev: Any, number: int = 10, repeat: int = 1, **options: Any
    ) -> Callable[..., BenchmarkResult]:
        """Make a function that times ``"run"``.

        Parameters
        ----------
        func_name : str
            ``"run"``; there is no other here.
        dev : tvm.runtime.Device
            The module's own.
        number, repeat, **options
            As in `tvm.relax.VirtualMachine.time_evaluator`, such as `min_repeat_ms`.

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
        given = {name: options[name] for name in _TIMING if options.get(name)}
        evaluate = self._machine.time_evaluator("main", dev, number, repeat, **given)
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
        **kwargs: Any,
    ) -> BenchmarkResult:
        """Time the model, without the copies of its inputs and outputs.

        Parameters
        ----------
        device, func_name, repeat, number, min_repeat_ms : optional
            As in `time_evaluator`.
        limit_zero_time_iterations, end_to_end : optional
            Relay's; the first has no effect, and the second has to be left out.
        **kwargs : array
            Inputs, set before; or another option of `time_evaluator`.

        Returns
        -------
        tvm.runtime.module.BenchmarkResult
            Seconds: ``mean``, ``median``, ``min``, ``max``, ``std`` and ``results``.
        """
        fix = "time set_input, run and get_output with time.perf_counter"
        refuse("GraphModule.benchmark", fix, end_to_end=end_to_end)
        options = {name: kwargs.pop(name) for name in _TIMING if name in kwargs}
        self.set_input(**kwargs)
        options["min_repeat_ms"] = min_repeat_ms
        return self.time_evaluator(func_name, device, number, repeat, **options)()


_TIMING = ("min_repeat_ms", "cooldown_interval_ms", "repeats_to_cooldown")


def _copied(tensor: Any, out: Any) -> Any:
    return tensor if out is None else out.copyfrom(tensor)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tvm.runtime.Tensor):
        return [value]
    return [tensor for item in value for tensor in _flat(item)]
