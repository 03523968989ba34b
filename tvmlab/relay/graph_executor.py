"""Relay's graph executor, over Relax's virtual machine.

The source of names and behaviour is Relay's ``python/tvm/contrib/graph_executor.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.runtime.module import BenchmarkResult

from ..errors import InputError, RelayError, TargetError
from ..ir.signature import Signature
from ..support.target import missing_features, spelled

__all__ = ["GraphModule", "Session", "create"]


def create(graph_json_str: str, libmod: Any, device: Any) -> GraphModule:
    """Make a `GraphModule` of the parts that ``relay.build`` gave.

    Parameters
    ----------
    graph_json_str : str
        What ``get_graph_json`` gave; the graph itself is in `libmod`.
    libmod : GraphExecutorFactoryModule
        What ``relay.build`` gave, or ``get_lib`` of it.
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
    """A model to run: set inputs, run, get outputs.

    Parameters
    ----------
    module : Session
        What ``lib["default"](device)`` gave.
    """

    def __init__(self, module: Session) -> None:
        if not isinstance(module, Session):
            raise RelayError(
                f"GraphModule runs what relay.build made, not a {type(module).__name__}",
                where="GraphModule(module)",
                fix='give lib["default"](device)',
            )
        self.module = module

    def _index(self, key: int | str) -> int:
        index = self.module.index(key)
        if index < 0:
            names = ", ".join(value.name for value in self.module.inputs)
            raise InputError(
                f"could not find {key!r} in the graph's inputs",
                where=f"its inputs are {names or 'none'}",
                fix="use one of these names",
            )
        return index

    def set_input(self, key: int | str | None = None, value: Any = None, **params: Any) -> None:
        """Set inputs.

        Parameters
        ----------
        key : int or str, optional
            One input's number or name.
        value : array, optional
            Its value; like Relay, it is converted to the input's dtype.
        **params : array
            Inputs by name. Names of parameters that ``relay.build`` made constants are left aside,
            as Relay does.

        Raises
        ------
        InputError
            There is no such input, or the shape does not fit.
        """
        given: dict[int | str, Any] = {} if key is None else {key: value}
        given.update(params)
        for name, array in given.items():
            if name != key and self.module.index(name) < 0 and name in self.module.bound:
                continue
            self._set(self._index(name), array)

    def _set(self, index: int, value: Any) -> None:
        declared = self.module.inputs[index]
        if isinstance(value, tvm.runtime.Tensor):
            array = value if str(value.dtype) == declared.dtype else value.numpy()
        else:
            array = np.asarray(value)
        if isinstance(array, np.ndarray) and str(array.dtype) != declared.dtype:
            array = array.astype(numpy_dtype(declared.dtype))
        fits = len(array.shape) == len(declared.shape) and all(
            isinstance(want, str) or size == want
            for size, want in zip(array.shape, declared.shape, strict=True)
        )
        if not fits:
            raise InputError(
                f"input {declared.name!r} has shape {tuple(array.shape)}, not {declared.shape}",
                where=str(declared),
                fix="give it that shape",
            )
        self.module.place(index, array.shape).copyfrom(array)

    def set_input_zero_copy(self, key: int | str, value: Any) -> None:
        """Read an input from a tensor of the caller's, of the device, dtype and shape it has.

        Raises
        ------
        InputError
            It is no tensor, or another dtype or shape, or there is no such input.
        """
        index = self._index(key)
        declared = self.module.inputs[index]
        fits = isinstance(value, tvm.runtime.Tensor) and str(value.dtype) == declared.dtype
        if not fits or tuple(value.shape) != declared.shape:
            raise InputError(
                f"input {declared.name!r} cannot be read from what was given",
                where=str(declared),
                fix="give a tvm.runtime.Tensor of that dtype and shape, on the module's device",
            )
        self.module.share(index, value)

    def run(self, **input_dict: Any) -> None:
        """Run the model, after setting the inputs given."""
        if input_dict:
            self.set_input(**input_dict)
        self.module.run()

    def get_num_outputs(self) -> int:
        """Count the outputs; the fields of tuples count each."""
        return len(self.module.outputs())

    def get_num_inputs(self) -> int:
        """Count the inputs: the parameters that ``relay.build`` did not make constants."""
        return len(self.module.inputs)

    def get_input(self, index: int | str, out: Any = None) -> Any:
        """Give an input's tensor, or copy it into `out`."""
        tensor = self.module.place(self._index(index))
        return tensor if out is None else _copied(tensor, out)

    def get_input_index(self, name: str) -> int:
        """Give an input's number, -1 where there is none of that name."""
        return self.module.index(name)

    def get_input_info(self) -> tuple[dict[str, tuple[int | str, ...]], dict[str, str]]:
        """Give the inputs' shapes and dtypes, by name."""
        shapes = {value.name: value.shape for value in self.module.inputs}
        return shapes, {value.name: value.dtype for value in self.module.inputs}

    def get_output(self, index: int, out: Any = None) -> Any:
        """Give an output of the last run as a tensor, or copy it into `out`.

        Raises
        ------
        InputError
            There are not so many.
        """
        outputs = self.module.outputs()
        if not 0 <= index < len(outputs):
            raise InputError(
                f"there is no output {index}",
                where=f"the model has {len(outputs)}",
                fix="count them with get_num_outputs",
            )
        return outputs[index] if out is None else _copied(outputs[index], out)

    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Set inputs from what ``relay.save_param_dict`` made."""
        self.set_input(**dict(tvm.runtime.load_param_dict(bytes(params_bytes)).items()))

    def __getitem__(self, key: str) -> Any:
        return self.module[key]

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
            return BenchmarkResult([self._end_to_end(number, kwargs) for _ in range(repeat)])
        self.set_input(**kwargs)
        evaluate = self.module.time_evaluator(
            func_name,
            device,
            number,
            repeat,
            min_repeat_ms or 0,
            limit_zero_time_iterations,
            cooldown_interval_ms,
            repeats_to_cooldown,
        )
        return evaluate()

    def _end_to_end(self, number: int, inputs: Mapping[str, Any]) -> float:
        """Time one sample of runs with copies, in seconds a run."""
        start = time.perf_counter()
        for _ in range(number):
            self.run(**inputs)
            for output in self.module.outputs():
                output.numpy()
        return (time.perf_counter() - start) / number


def _copied(tensor: Any, out: Any) -> Any:
    out.copyfrom(tensor)
    return out


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
