"""Quantized TensorFlow Lite models of one operator, and LiteRT's reference kernels.

LiteRT's optimized kernels differ from its reference kernels, and those from XNNPACK's: only the
reference kernels define the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tvmlab.models import tflite_form
from tvmlab.models.tflite_form import Quantized, Step

Array = np.ndarray


@dataclass
class Tensor:
    """A tensor of a model: a constant where it has values, and its scales, where it has any."""

    shape: Sequence[int]
    dtype: str
    scales: Sequence[float] = ()
    zeros: Sequence[int] = (0,)
    axis: int = 0
    values: Array | None = None

    @property
    def scale(self) -> np.float32:
        return np.float32(self.scales[0])

    @property
    def zero(self) -> int:
        return int(self.zeros[0])


@dataclass
class Model:
    """One operator: the code, its tensors (inputs, constants, the result), and its options."""

    code: str
    tensors: Sequence[Tensor]
    options: str = ""
    values: dict[str, int] = field(default_factory=dict)


def constant(values: Array, scales: Sequence[float] = (), zeros: Sequence[int] = (0,)) -> Tensor:
    """Make a constant."""
    return Tensor(values.shape, values.dtype.name, scales, zeros, 0, values)


def write(model: Model) -> bytes:
    """Write a model whose last tensor comes out and whose tensors without values go in."""
    import tflite

    last = len(model.tensors) - 1
    tensors = {f"t{number}": _described(tensor) for number, tensor in enumerate(model.tensors)}
    code = getattr(tflite.BuiltinOperator, model.code)
    step = Step(code, range(last), [last], model.options, model.values)
    free = [i for i, tensor in enumerate(model.tensors[:last]) if tensor.values is None]
    return tflite_form.write(tensors, [step], inputs=free)


def _described(tensor: Tensor) -> Quantized:
    content = tuple(tensor.shape) if tensor.values is None else tensor.values
    zeros = np.broadcast_to(tensor.zeros, len(tensor.scales))
    return Quantized(content, tensor.dtype, tensor.scales, zeros.tolist(), tensor.axis)


class Litert:
    """A model in LiteRT's reference kernels, with every tensor kept."""

    def __init__(self, content: bytes) -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        self._interpreter = Interpreter(
            model_content=content,
            experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
            experimental_preserve_all_tensors=True,
        )
        self._interpreter.allocate_tensors()

    def run(self, *inputs: Array) -> Array:
        """Run on inputs in order and give the first result."""
        return self.results(*inputs)[0]

    def results(self, *inputs: Array) -> tuple[Array, ...]:
        """Run on inputs in order and give every result."""
        for detail, value in zip(self._interpreter.get_input_details(), inputs, strict=True):
            self._interpreter.set_tensor(detail["index"], value)
        self._interpreter.invoke()
        details = self._interpreter.get_output_details()
        return tuple(self.tensor(detail["index"]) for detail in details)

    def tensor(self, index: int) -> Array:
        """Give a tensor of the last run."""
        return np.array(self._interpreter.get_tensor(index))


def run(model: Model, *inputs: Array) -> Array:
    """Run a model of one operator."""
    return Litert(write(model)).run(*inputs)


@dataclass
class Layer:
    """An operator of a model that was read: its name, tensors by number, and its options."""

    name: str
    inputs: list[int]
    output: int
    options: Any


def read(content: bytes) -> tuple[list[Tensor], list[Layer]]:
    """Read a model's tensors and operators."""
    import tflite

    model = tflite.Model.GetRootAs(content, 0)
    graph = model.Subgraphs(0)
    kinds = {
        number: name.lower()
        for name, number in vars(tflite.TensorType).items()
        if isinstance(number, int)
    }
    names = {
        number: name
        for name, number in vars(tflite.BuiltinOperator).items()
        if isinstance(number, int)
    }
    tensors = []
    for i in range(graph.TensorsLength()):
        tensor = graph.Tensors(i)
        shape, dtype = list(_list(tensor, "Shape")), kinds[tensor.Type()]
        data = model.Buffers(tensor.Buffer())
        values = None
        if data.DataLength():
            values = np.frombuffer(data.DataAsNumpy().tobytes(), dtype).reshape(shape)
        quantization = tensor.Quantization()
        scales = list(_list(quantization, "Scale")) if quantization else []
        zeros = list(_list(quantization, "ZeroPoint")) if quantization else []
        axis = quantization.QuantizedDimension() if quantization else 0
        tensors.append(Tensor(shape, dtype, scales, zeros, axis, values))
    layers = []
    for i in range(graph.OperatorsLength()):
        operator = graph.Operators(i)
        code = model.OperatorCodes(operator.OpcodeIndex())
        name = names[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]
        layers.append(
            Layer(name, list(_list(operator, "Inputs")), operator.Outputs(0), _options(operator))
        )
    return tensors, layers


def _list(table: Any, name: str) -> Iterator[Any]:
    for i in range(getattr(table, f"{name}Length")()):
        yield getattr(table, name)(i)


def _options(operator: Any) -> Any:
    """Give an operator's options as the table of the schema that they are; None without any."""
    import tflite

    number = operator.BuiltinOptionsType()
    kinds = vars(tflite.BuiltinOptions)
    name = next(name for name, value in kinds.items() if value == number and name[0] != "_")
    if operator.BuiltinOptions() is None or name == "NONE":
        return None
    found = getattr(tflite, name)()
    found.Init(operator.BuiltinOptions().Bytes, operator.BuiltinOptions().Pos)
    return found


def same_padding(
    sizes: Sequence[int], window: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """Give TensorFlow's SAME padding: top, left, bottom, right."""
    totals = [
        max((-(-size // stride) - 1) * stride + (taps - 1) * step + 1 - size, 0)
        for size, taps, stride, step in zip(sizes, window, strides, dilation, strict=True)
    ]
    return [*(total // 2 for total in totals), *(total - total // 2 for total in totals)]
