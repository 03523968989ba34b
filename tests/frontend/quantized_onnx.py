"""Small quantized ONNX models, and how their results are compared with ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvmlab
from tests.oracles.models import by_onnx_runtime, model, node, quickly, said, value, weight
from tvmlab.errors import ModelError

MICROSOFT = "com.microsoft"
KINDS = {
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16,
    "uint16": TensorProto.UINT16,
    "int32": TensorProto.INT32,
    "float32": TensorProto.FLOAT,
}


class Value(NamedTuple):
    """A tensor with its scale and zero point: an input by its shape, or a constant by its values.

    Without a scale it is an operand by itself; with the zero point None that is left out.
    """

    content: Any
    scale: Any = None
    zero: Any = None
    dtype: str = "uint8"


def integers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Numbers of all of a type's range."""
    info = np.iinfo(dtype)
    random = np.random.default_rng([seed, *shape])
    return random.integers(info.min, info.max, shape, dtype, endpoint=True)


def parameters(name: str, scale: Any, zero: Any, dtype: str) -> list[Any]:
    """A scale and a zero point as initializers, ``NAME_s`` and ``NAME_z``."""
    scales = weight(f"{name}_s", np.asarray(scale, "float32"))
    return [scales, weight(f"{name}_z", np.asarray(zero, dtype))]


def operator(
    kind: str,
    operands: dict[str, Value],
    y: Value,
    more: Sequence[Any] = (),
    first: Sequence[Any] = (),
    order: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """Write one operator of several values; its operands come in the order of their names.

    `more` are initializers that other nodes, `first`, read; `order` is of names, ``"y"`` among
    them, where the result's scale does not come last.
    """
    names, parts, inputs = [], [*more], []
    known = {tensor.name for tensor in more} | {name for one in first for name in one.output}
    for name in order or (*operands, "y"):
        one = y if name == "y" else operands[name]
        if name != "y":
            names.append(name)
            if isinstance(one.content, tuple):
                inputs.append(value(name, KINDS[one.dtype], one.content))
            else:
                parts.append(weight(name, one.content))
        if one.scale is None:
            continue
        names += [f"{name}_s", "" if one.zero is None else f"{name}_z"]
        given = parameters(name, one.scale, 0 if one.zero is None else one.zero, one.dtype)
        parts += [tensor for tensor in given if tensor.name not in known]
    domain = "" if kind in ("QLinearConv", "QLinearMatMul", "QuantizeLinear") else MICROSOFT
    made = node(kind, names, ["y"], domain=domain, **attributes)
    out = [value("y", KINDS[y.dtype], y.content)]
    return model([*first, made], inputs, out, parts, domains=[domain] * bool(domain))


def within(
    proto: onnx.ModelProto, *inputs: np.ndarray, steps: float = 1, share: float = 0.02
) -> Any:
    """Compare with ONNX Runtime: integers differ by a step in few places at most."""
    before = proto.SerializeToString()
    mod = tvmlab.load(proto)
    assert proto.SerializeToString() == before, "the user's model is changed"
    close(quickly(mod, *inputs)[0], by_onnx_runtime(proto, *inputs)[0], steps, share)
    return mod


def close(result: np.ndarray, expected: np.ndarray, steps: float, share: float) -> None:
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert len(np.unique(expected)) > 1
    difference = np.abs(result.astype("float64") - expected.astype("float64"))
    assert difference.max() <= steps
    assert (difference > 0).sum() <= max(2, share * difference.size) * bool(steps)


def refused(proto: onnx.ModelProto, kind: type[ModelError], match: str, place: str) -> None:
    with pytest.raises(kind, match=match) as caught:
        tvmlab.load(proto)
    assert type(caught.value) is kind
    assert place in said(caught.value)
