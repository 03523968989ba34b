"""TensorFlow Lite models written with FlatBuffers, so that nothing need be downloaded.

LiteRT's package has the classes of the schema (tensorflow/lite/schema/schema.fbs); this module
fills them: tensors first, then the operators that join them.
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
    """An operator of a model; the inputs and outputs are numbers of tensors.

    The code is that of `tflite.BuiltinOperator`. `options` is the table of the schema that holds
    the operator's options, as ``"Conv2DOptions"``, or "", and `values` has that table's fields, as
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

    There is one scale and zero point, or one for each index of `axis`; without any the tensor is
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
    """Write a model as the bytes of a ``.tflite`` file, which `tvmlab.load` takes.

    Raises `InputError` for options or a dtype that the schema does not have.

    Parameters
    ----------
    tensors : mapping
        By name, in order: an array (a float32 constant), the shape of a float32 value, or a
        `Quantized` tensor.
    steps : sequence of Step
        The operators, each after those it reads.
    inputs, outputs : sequence of int
        The tensors that go in and come out, by number; by default the first and the last.
    """
    schema = need("ai_edge_litert.schema_py_generated", extra="tflite")
    builder = need("flatbuffers", extra="tflite").Builder()
    graph = schema.SubGraphT(tensors=[], operators=[])
    graph.inputs, graph.outputs = list(inputs), list(outputs) or [len(tensors) - 1]
    # Buffer 0 is empty: it is that of all computed tensors.
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
    """Look a name of the schema up."""
    if not hasattr(place, name):
        fix = "use a name of TensorFlow Lite's schema"
        raise InputError(f"the schema has no {what} {name!r}", where="write", fix=fix)
    return getattr(place, name)
