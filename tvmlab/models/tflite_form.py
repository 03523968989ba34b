"""TensorFlow Lite models written with FlatBuffers, so that nothing need be downloaded.

The `tflite` package is the schema's own builders (tensorflow/lite/schema/schema.fbs); this module
puts them together: tensors first, then the operators that join them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..support.extras import need

__all__ = ["Content", "Quantized", "Step", "write"]


@dataclass
class Step:
    """An operator of a model.

    Attributes
    ----------
    code : int
        Of `tflite.BuiltinOperator`.
    inputs, outputs : sequence of int
        Its tensors by number.
    options : str
        The table of the schema that holds its options, as ``"Conv2DOptions"``; "" for none.
    values : dict
        That table's fields, by their names in the schema written in one word each, as
        ``{"StrideW": 2, "FusedActivationFunction": 1}`` for ``stride_w`` and
        ``fused_activation_function``. A list becomes a vector.
    """

    code: int
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass
class Quantized:
    """A quantized tensor.

    Attributes
    ----------
    content : ndarray or tuple of int
        An array, which becomes a constant, or the shape of a value.
    dtype : str
        As ``"int8"``.
    scale, zero_point : sequence
        One, or one for each index of `axis`; without any the tensor is not quantized.
    axis : int
        The channels' axis.
    """

    content: NDArray[Any] | tuple[int, ...]
    dtype: str = "int8"
    scale: Sequence[float] = ()
    zero_point: Sequence[int] = ()
    axis: int = 0


Content = NDArray[Any] | tuple[int, ...] | Quantized


def write(
    tensors: Mapping[str, Content],
    steps: Sequence[Step],
    *,
    inputs: Sequence[int] = (0,),
    outputs: Sequence[int] = (),
) -> bytes:
    """Write a model.

    Parameters
    ----------
    tensors : mapping
        By name, in order: an array (a float32 constant), the shape of a float32 value, or a
        `Quantized` tensor.
    steps : sequence of Step
        The operators, each after those it reads.
    inputs : sequence of int
        The tensors that go in, by number.
    outputs : sequence of int
        The tensors that come out, by number; without any the last tensor does.

    Returns
    -------
    bytes
        A ``.tflite`` file, which `tvmlab.load` takes.

    Raises
    ------
    InputError
        If a step has options, or a tensor a dtype, that the schema does not know.
    ToolchainError
        If the `tflite` package is not installed.
    """
    tflite = need("tflite", extra="tflite")
    import flatbuffers

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
        known = {name: _named(tflite, f"{kind}Add", name, f"field of {kind}") for name in fields}
        getattr(tflite, f"{kind}Start")(builder)
        for name, value in fields.items():
            known[name](builder, value)
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
        kind = _named(tflite.TensorType, "", described.dtype.upper(), "dtype")
        values.append(table("Tensor", Shape=shape, Type=kind, Buffer=buffer, Name=text, **more))

    codes, operators = [], []
    for number, step in enumerate(steps):
        code = {"DeprecatedBuiltinCode": min(step.code, 127), "BuiltinCode": step.code}
        codes.append(table("OperatorCode", **code, Version=1))
        fields: dict[str, Any] = {"Inputs": list(step.inputs), "Outputs": list(step.outputs)}
        if step.options:
            kind = _named(tflite.BuiltinOptions, "", step.options, "table of options")
            options = table(step.options, **step.values)
            fields |= {"BuiltinOptionsType": kind, "BuiltinOptions": options}
        operators.append(table("Operator", OpcodeIndex=number, **fields))
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


def _named(place: Any, prefix: str, name: str, what: str) -> Any:
    """Look a name of the schema up."""
    found = getattr(place, f"{prefix}{name}", None)
    if found is None:
        raise InputError(
            f"the schema has no {what} {name!r}", where="write", fix="use a name of `tflite`"
        )
    return found
