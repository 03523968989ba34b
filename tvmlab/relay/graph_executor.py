"""Relay's graph executor on top of `tvmlab.Executable`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm.runtime.module import BenchmarkResult

from ..errors import InputError, RelayError
from ..runtime.executable import Executable
from ..runtime.signature import Signature
from .expr import refuse


def create(graph_json_str: str, libmod: Any, device: Any) -> GraphModule:
    """Make a `GraphModule` of a library on a device; the library contains the graph."""
    return GraphModule(libmod["default"](device))


class Started(NamedTuple):
    """Result of ``lib["default"](device)``, for `GraphModule`."""

    executable: Executable
    bound: Collection[str]
    device: Any


class GraphModule:
    """A compiled model on a device: set inputs, run, get outputs.

    `module` is the result of ``lib["default"](device)``. An input is all zeros until it is set.
    """

    def __init__(self, module: Any) -> None:
        self._started: Any = getattr(module, "_started", module)
        if not isinstance(self._started, Started):
            what = f"GraphModule runs a module of relay.build, not a {type(module).__name__}"
            raise RelayError(what, fix='pass lib["default"](device)')
        self._executable, self._bound, self.device = self._started
        self._inputs = self._executable.signature.inputs
        self._outputs: list[Any] | None = None
        self._values: list[Any] = [
            None if any(isinstance(n, str) for n in one.shape) else np.zeros(one.shape, one.dtype)
            for one in self._inputs
        ]

    @property
    def module(self) -> GraphModule:
        """The module itself, because its methods serve as packed functions."""
        return self

    def set_input(self, key: int | str | None = None, value: Any = None, **params: Any) -> None:
        """Set inputs by number or name; as in Relay, values are converted to the input's dtype.

        Inputs in `params` that ``relay.build`` made constants are ignored, as in Relay. Raises
        `InputError` if there is no such input, or if the shape does not fit.
        """
        chosen: dict[Any, Any] = {} if key is None else {key: value}
        chosen |= {name: array for name, array in params.items() if name not in self._bound}
        for name, given in chosen.items():
            dtype = self._inputs[self._index(name)].dtype
            array = given.numpy() if isinstance(given, tvm.runtime.Tensor) else given
            self.set_input_zero_copy(name, np.array(array, dtype))

    def _index(self, key: int | str) -> int:
        names = [value.name for value in self._inputs]
        known: Sequence[Any] = range(len(names)) if isinstance(key, (int, np.integer)) else names
        if key not in known:
            where = f"its inputs are {', '.join(names) or 'none'}"
            raise InputError(f"could not find {key!r} in the graph's inputs", where=where)
        return known.index(key)

    def set_input_zero_copy(self, key: int | str, value: Any) -> None:
        """Read an input from the caller's tensor in each run, without conversion.

        Raises `InputError` if the tensor has another dtype or shape, or if there is no such input.
        """
        index = self._index(key)
        Signature(self._inputs[index : index + 1]).bind((value,), {})
        self._values[index] = value

    def run(self, **input_dict: Any) -> None:
        """Set the inputs in `input_dict`, then run the model."""
        self.set_input(**input_dict)
        found = self._executable(*self._arguments())
        self._outputs = [tvm.runtime.tensor(array, self.device) for array in _flat(found)]

    def _arguments(self) -> list[Any]:
        for declared, value in zip(self._inputs, self._values, strict=True):
            if value is None:
                what = f"input {declared.name!r} has a size known at run time only, and is not set"
                raise InputError(what, where=str(declared), fix="set it first")
        return self._values

    def outputs(self) -> list[Any]:
        """Return all outputs of the last run; run the model first if it has not run."""
        if self._outputs is None:
            self.run()
        return self._outputs or []

    def get_num_outputs(self) -> int:
        """Count the outputs; each field of a tuple is one output."""
        return len(self.outputs())

    def get_num_inputs(self) -> int:
        """Count the inputs: the parameters that ``relay.build`` did not make constants."""
        return len(self._values)

    def get_input(self, index: int | str, out: Any = None) -> Any:
        """Return an input as a tensor, or copy it into `out`."""
        value = self._arguments()[self._index(index)]
        is_tensor = isinstance(value, tvm.runtime.Tensor)
        return _copied(value if is_tensor else tvm.runtime.tensor(value, self.device), out)

    def get_output(self, index: int, out: Any = None) -> Any:
        """Return an output of the last run as a tensor, or copy it into `out`.

        Raises `InputError` if there is no output with that number.
        """
        outputs = self.outputs()
        if not 0 <= index < len(outputs):
            raise InputError(f"there is no output {index}", where=f"the model has {len(outputs)}")
        return _copied(outputs[index], out)

    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Set inputs from the result of ``relay.save_param_dict``."""
        self.set_input(**dict(tvm.runtime.load_param_dict(bytes(params_bytes)).items()))

    def time_evaluator(
        self, func_name: str, dev: Any, number: int = 10, repeat: int = 1, **_: Any
    ) -> Callable[[], BenchmarkResult]:
        """Make a function that times ``"run"`` without the copies of inputs and outputs.

        The returned function takes `repeat` samples of `number` runs, and returns seconds per run.
        Relay's other options have no effect. Raises `RelayError` for another function.
        """
        if func_name != "run":
            what = f"cannot time the packed function {func_name!r} of a module"
            raise RelayError(what, fix="time 'run'")
        time = self._executable.time
        return lambda: BenchmarkResult(
            time(*self._arguments(), repeats=repeat, number=number).samples
        )

    def benchmark(
        self,
        device: Any,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,  # this option and the next have no effect
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """Set the inputs in `kwargs`, then time the model like `time_evaluator`."""
        fix = "measure set_input, run and get_output with time.perf_counter"
        refuse("GraphModule.benchmark", fix, end_to_end=end_to_end)
        self.set_input(**kwargs)
        return self.time_evaluator(func_name, device, number, repeat)()


def _copied(tensor: Any, out: Any) -> Any:
    return tensor if out is None else out.copyfrom(tensor)


def _flat(value: Any) -> list[Any]:
    return [part for item in value for part in _flat(item)] if isinstance(value, tuple) else [value]
