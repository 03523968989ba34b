"""A small TensorFlow Lite model, written here with FlatBuffers: nothing need be downloaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from helpers_models import array


@dataclass
class Step:
    """An operator: its builtin code, the numbers of its tensors, and how its options are written.

    `options` is the name of a table of the schema, as `Conv2DOptions`, or "" for none; `values` are
    its fields.
    """

    code: int
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass
class Quantized:
    """A quantized tensor: an array, which becomes a constant, or the shape of a value.

    Without scales it is a tensor of `dtype` that is not quantized.
    """

    content: np.ndarray | tuple[int, ...]
    dtype: str = "int8"
    scale: Sequence[float] = ()
    zero_point: Sequence[int] = ()
    axis: int = 0


Content = np.ndarray | tuple[int, ...] | Quantized


def write(
    tensors: Mapping[str, Content],
    steps: Sequence[Step],
    *,
    inputs: Sequence[int] = (0,),
    outputs: Sequence[int] = (),
) -> bytes:
    """Write a model whose `inputs`, tensors by number, go in and whose `outputs` come out.

    Without `outputs` the last tensor does.

    A tensor is an array, which becomes a constant, or the shape of a value; float32 if not said
    otherwise.
    """
    import flatbuffers
    import tflite

    builder = flatbuffers.Builder()

    def vector(offsets: Sequence[int]) -> int:
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())

    def numbers(values: Sequence[int]) -> int:
        return int(builder.CreateNumpyVector(np.array(values, "int32")))

    def table(kind: str, **fields: Any) -> int:
        # A field that is a list becomes a vector, which has to be written before its table.
        fields = {n: numbers(v) if isinstance(v, list) else v for n, v in fields.items()}
        getattr(tflite, f"{kind}Start")(builder)
        for name, value in fields.items():
            getattr(tflite, f"{kind}Add{name}")(builder, value)
        end: Callable[..., int] = getattr(tflite, f"{kind}End")
        return int(end(builder))

    buffers, values = [table("Buffer")], []  # Buffer 0 is empty: that of all that is computed.
    for name, given in tensors.items():
        described = given if isinstance(given, Quantized) else Quantized(given, "float32")
        content, more = described.content, {}
        text, constant = builder.CreateString(name), isinstance(content, np.ndarray)
        shape = numbers(content.shape if isinstance(content, np.ndarray) else content)
        if isinstance(content, np.ndarray):
            raw = np.frombuffer(content.astype(described.dtype).tobytes(), "uint8")
            buffers.append(table("Buffer", Data=builder.CreateNumpyVector(raw)))
        if len(described.scale):
            scale = builder.CreateNumpyVector(np.array(described.scale, "float32"))
            zero = builder.CreateNumpyVector(np.array(described.zero_point, "int64"))
            more["Quantization"] = table(
                "QuantizationParameters",
                Scale=scale,
                ZeroPoint=zero,
                QuantizedDimension=described.axis,
            )
        buffer = len(buffers) - 1 if constant else 0
        kind = getattr(tflite.TensorType, described.dtype.upper())
        values.append(table("Tensor", Shape=shape, Type=kind, Buffer=buffer, Name=text, **more))

    codes, operators = [], []
    for number, step in enumerate(steps):
        codes.append(
            table(
                "OperatorCode",
                DeprecatedBuiltinCode=min(step.code, 127),
                BuiltinCode=step.code,
                Version=1,
            )
        )
        options: dict[str, int] = {}
        if step.options:
            options["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, step.options)
            options["BuiltinOptions"] = table(step.options, **step.values)
        operators.append(
            table(
                "Operator",
                OpcodeIndex=number,
                Inputs=numbers(step.inputs),
                Outputs=numbers(step.outputs),
                **options,
            )
        )
    graph = {
        "Tensors": vector(values),
        "Inputs": numbers(inputs),
        "Outputs": numbers(outputs or [len(values) - 1]),
        "Operators": vector(operators),
    }
    parts = {
        "OperatorCodes": vector(codes),
        "Subgraphs": vector([table("SubGraph", **graph)]),
        "Buffers": vector(buffers),
    }
    builder.Finish(table("Model", Version=3, **parts), file_identifier=b"TFL3")
    return bytes(builder.Output())


def convolutional(pooling: int | None = None) -> bytes:
    """A convolution with bias and ReLU, then average pooling: [1, 8, 8, 2] to [1, 4, 4, 3].

    `pooling` is another operator's code to put in the place of the pooling's.
    """
    import tflite

    operator = tflite.BuiltinOperator
    strides = {"Padding": tflite.Padding.SAME, "StrideH": 1, "StrideW": 1}
    relu = {"FusedActivationFunction": tflite.ActivationFunctionType.RELU}
    window = {"FilterHeight": 2, "FilterWidth": 2, "StrideH": 2, "StrideW": 2}
    tensors: dict[str, np.ndarray | tuple[int, ...]] = {
        "x": (1, 8, 8, 2),
        "weight": array(3, 3, 3, 2),
        "bias": array(3),
        "convolved": (1, 8, 8, 3),
        "y": (1, 4, 4, 3),
    }
    code = operator.AVERAGE_POOL_2D if pooling is None else pooling
    return write(
        tensors,
        [
            Step(operator.CONV_2D, [0, 1, 2], [3], "Conv2DOptions", {**strides, **relu}),
            Step(code, [3], [4], "Pool2DOptions", {"Padding": tflite.Padding.VALID, **window}),
        ],
    )
