"""TensorFlow Lite models written with FlatBuffers, so that no download is necessary.

LiteRT's package contains the classes of the schema (tensorflow/lite/schema/schema.fbs); this module
fills them: tensors first, then the operators that connect them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..support.extras import need

__all__ = ["Content", "Quantized", "Step", "write"]


@dataclass
class Step:
    """An operator of a model; the inputs and outputs are indices of tensors.

    The code is that of `tflite.BuiltinOperator`. `options` is the name of the schema's options
    table, such as ``"Conv2DOptions"``, or "", and `values` has that table's fields, such as
    ``{"StrideW": 2}`` for ``stride_w``.
    """

    code: int
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass
class Quantized:
    """A quantized tensor: an array, which becomes a constant, or the shape of a value.

    There is one scale and zero point, or one for each index of `axis`; without them the tensor is
    not quantized.
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
    """Serialize a model as the bytes of a ``.tflite`` file, which `tvmlab.load` accepts.

    Raises `InputError` for options or a dtype that are not in the schema.

    Parameters
    ----------
    tensors : mapping
        By name, in order: an array (a float32 constant), the shape of a float32 value, or a
        `Quantized` tensor.
    steps : sequence of Step
        The operators, each after the operators whose results it reads.
    inputs, outputs : sequence of int
        The indices of the model's input and output tensors; by default the first and the last.
    """
    schema = need("ai_edge_litert.schema_py_generated", extra="tflite")
    builder = need("flatbuffers", extra="tflite").Builder()
    graph = schema.SubGraphT(tensors=[], operators=[])
    graph.inputs, graph.outputs = list(inputs), list(outputs) or [len(tensors) - 1]
    # Buffer 0 is empty; all computed tensors use it.
    model = schema.ModelT(
        version=3, operatorCodes=[], subgraphs=[graph], buffers=[schema.BufferT()]
    )
    for name, given in tensors.items():
        described = given if isinstance(given, Quantized) else Quantized(given, "float32")
        content, kind = described.content, described.dtype.upper()
        tensor = schema.TensorT(name=name, type=_named(schema.TensorType, kind, "dtype"))
        tensor.shape = list(np.shape(content) if isinstance(content, np.ndarray) else content)
        if isinstance(content, np.ndarray):
            tensor.buffer = len(model.buffers)
            raw = np.frombuffer(content.astype(described.dtype).tobytes(), "uint8")
            model.buffers.append(schema.BufferT(data=raw))
        if len(described.scale):
            tensor.quantization = schema.QuantizationParametersT(
                scale=np.array(described.scale, "float32"),
                zeroPoint=np.array(described.zero_point, "int64"),
                quantizedDimension=described.axis,
            )
        graph.tensors.append(tensor)
    for number, step in enumerate(steps):
        code = {"deprecatedBuiltinCode": min(step.code, 127), "builtinCode": step.code}
        model.operatorCodes.append(schema.OperatorCodeT(**code))
        operator = schema.OperatorT(number, list(step.inputs), list(step.outputs))
        if step.options:
            kind = _named(schema.BuiltinOptions, step.options, "table of options")
            operator.builtinOptionsType = kind
            operator.builtinOptions = options = getattr(schema, f"{step.options}T")()
            for name, value in step.values.items():
                field = name[:1].lower() + name[1:]
                _named(options, field, f"field of {step.options}")
                setattr(options, field, value)
        graph.operators.append(operator)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _named(place: Any, name: str, what: str) -> Any:
    """Look up a name of the schema."""
    if not hasattr(place, name):
        fix = "use a name of TensorFlow Lite's schema"
        raise InputError(f"the schema has no {what} {name!r}", where="write", fix=fix)
    return getattr(place, name)
