"""TensorFlow Lite models, written and read, and LiteRT's reference kernels.

LiteRT's optimized kernels differ from its reference kernels, and those from XNNPACK's: only the
reference kernels define the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.oracles.models import array
from tvmlab.models import tflite_form
from tvmlab.models.tflite_form import Content, Quantized, Step

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


@dataclass
class Parts:
    """What a model is written of: tensors, steps, and the numbers of its inputs and outputs."""

    tensors: dict[str, Content]
    steps: list[Step]
    inputs: list[int] = field(default_factory=lambda: [0])
    outputs: list[int] = field(default_factory=list)

    @property
    def content(self) -> bytes:
        return tflite_form.write(self.tensors, self.steps, inputs=self.inputs, outputs=self.outputs)


def one(kind: str, y: Content, *operands: Content, table: str = "", **options: Any) -> Parts:
    """Write one operator of x0, x1, ...; those without values are inputs.

    The table of options is the operator's own if it has one, or the one that is named.
    """
    import tflite

    named = {"FusedActivationFunction": tflite.ActivationFunctionType, "Padding": tflite.Padding}
    numbers = {
        name: int(getattr(named[name], content)) if isinstance(content, str) else content
        for name, content in options.items()
    }
    own = "".join(map(str.capitalize, kind.split("_"))) + "Options"
    count = len(operands)
    tensors = {f"x{i}": operand for i, operand in enumerate(operands)}
    free = [i for i, x in enumerate(operands) if isinstance(getattr(x, "content", x), tuple)]
    table = table or (own if hasattr(tflite, own) else "")
    code = int(getattr(tflite.BuiltinOperator, kind))
    step = Step(code, [*range(count)], [count], table, numbers)
    return Parts({**tensors, "y": y}, [step], inputs=free)


def together(parts: dict[str, Parts]) -> Parts:
    """One model of many, side by side: all that is compiled at once is compiled faster."""
    made = Parts({}, [], [])
    for name, part in parts.items():
        first = len(made.tensors)
        made.tensors |= {f"{name}.{key}": content for key, content in part.tensors.items()}
        made.steps += [
            replace(
                step,
                inputs=[first + i for i in step.inputs],
                outputs=[first + i for i in step.outputs],
            )
            for step in part.steps
        ]
        made.inputs += [first + i for i in part.inputs]
        made.outputs.append(len(made.tensors) - 1)
    return made


def convolutional(pooling: str = "AVERAGE_POOL_2D") -> bytes:
    """A convolution with bias and ReLU, then average pooling: [1, 8, 8, 2] to [1, 4, 4, 3].

    `pooling` is the name of another operator to put in the place of the pooling's.
    """
    strides = {"Padding": "SAME", "StrideH": 1, "StrideW": 1, "FusedActivationFunction": "RELU"}
    size = {"Padding": "VALID", "FilterHeight": 2, "FilterWidth": 2, "StrideH": 2, "StrideW": 2}
    operands = ((1, 8, 8, 2), array(3, 3, 3, 2), array(3))
    first = one("CONV_2D", (1, 8, 8, 3), *operands, table="Conv2DOptions", **strides)
    second = one(pooling, (1, 4, 4, 3), (1, 8, 8, 3), table="Pool2DOptions", **size)
    joined = together({"convolved": first, "pooled": second})
    joined.steps[1].inputs, joined.inputs, joined.outputs = [3], [0], [5]
    return joined.content


def write(model: Model) -> bytes:
    """Write a model whose last tensor comes out and whose tensors without values go in."""
    *operands, y = map(_described, model.tensors)
    return one(model.code, y, *operands, table=model.options, **model.values).content


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
    """An operator of a model that was read: its name, and tensors by number."""

    name: str
    inputs: list[int]
    output: int


def read(content: bytes) -> tuple[list[Tensor], list[Layer]]:
    """Read a model's tensors and operators."""
    import tflite

    model = tflite.Model.GetRootAs(content, 0)
    graph = model.Subgraphs(0)
    kinds, names = (
        {number: name for name, number in vars(table).items() if isinstance(number, int)}
        for table in (tflite.TensorType, tflite.BuiltinOperator)
    )
    tensors = []
    for tensor in _list(graph, "Tensors"):
        shape, dtype = list(_list(tensor, "Shape")), kinds[tensor.Type()].lower()
        data, values = model.Buffers(tensor.Buffer()), None
        if data.DataLength():
            values = np.frombuffer(data.DataAsNumpy().tobytes(), dtype).reshape(shape)
        quantization = tensor.Quantization()
        scales = list(_list(quantization, "Scale")) if quantization else []
        zeros = list(_list(quantization, "ZeroPoint")) if quantization else []
        axis = quantization.QuantizedDimension() if quantization else 0
        tensors.append(Tensor(shape, dtype, scales, zeros, axis, values))
    layers = []
    for operator in _list(graph, "Operators"):
        code = model.OperatorCodes(operator.OpcodeIndex())
        name = names[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]
        layers.append(Layer(name, list(_list(operator, "Inputs")), operator.Outputs(0)))
    return tensors, layers


def _list(table: Any, name: str) -> Iterator[Any]:
    for i in range(getattr(table, f"{name}Length")()):
        yield getattr(table, name)(i)


def same_padding(
    sizes: Sequence[int], window: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """Give TensorFlow's SAME padding: top, left, bottom, right."""
    totals = [
        max((-(-size // stride) - 1) * stride + (taps - 1) * step + 1 - size, 0)
        for size, taps, stride, step in zip(sizes, window, strides, dilation, strict=True)
    ]
    return [*(total // 2 for total in totals), *(total - total // 2 for total in totals)]
