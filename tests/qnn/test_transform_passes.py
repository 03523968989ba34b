"""QnnQuantizeConstFold and RemoveClipAfterRequantize: on Relay's modules, and what they leave."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from tests.qnn.graphs import Network, equal, names, scale, zero
from tests.qnn.run import run
from tvmlab import relay
from tvmlab.errors import InputError
from tvmlab.ir import dialect
from tvmlab.qnn import arithmetic
from tvmlab.qnn import op as qnn
from tvmlab.qnn.transform import QnnQuantizeConstFold, RemoveClipAfterRequantize

REWRITE = Path(__file__).parents[1] / "data" / "relay" / "rewrite"
BOTH = tvm.transform.Sequential([QnnQuantizeConstFold(), RemoveClipAfterRequantize()])
SHAPE = (2, 3, 4)


def read(name):
    return relay.fromtext((REWRITE / f"{name}.relay").read_text())


@pytest.mark.parametrize("frontend", ["torch", "tflite"])
def test_they_make_what_relay_made(frontend):
    before, after = read(f"{frontend}_before"), read(f"{frontend}_after")
    assert equal(BOTH(before)["main"], after["main"])


def test_what_is_in_its_form_is_left_alone():
    before = read("tflite_before")
    assert BOTH(before).same_as(before)


def test_both_frontends_forms_become_one():
    torch, tflite = (BOTH(read(f"{frontend}_before")) for frontend in ("torch", "tflite"))
    assert equal(torch, tflite)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize("each", [False, True])
def test_constants_are_quantized_as_the_operator_does(dtype, each):
    data = np.random.default_rng(0).normal(size=SHAPE).astype("float32")
    data[0, 0] = [0.25, -0.25, 1e9, -1e9]  # half-way, and beyond
    s = np.linspace(0.1, 0.5, 3).astype("float32") if each else np.float32(0.5)
    z = np.arange(3, dtype="int32") if each else np.int32(3)
    net = Network(((1,), "int8"))
    call = qnn.quantize(relax.const(data), relax.const(s), relax.const(z), 1, dtype)
    mod = net.module(net.emit(call))
    after = QnnQuantizeConstFold()(mod)
    assert names(after) == []
    got, _ = run(after, np.zeros(1, "int8"))
    want = arithmetic.quantize(data, s, z, 1, dtype)
    assert got.dtype == want.dtype
    assert np.array_equal(got, want)


def test_what_is_not_constant_is_not_folded():
    net = Network((SHAPE, "float32"), ((), "float32"))
    x, s = net.inputs
    one = net.emit(qnn.quantize(x, scale(0.5), zero(3)))
    other = net.emit(qnn.quantize(relax.const(np.ones(SHAPE, "float32")), s, zero(3)))
    mod = net.module(one, other)
    assert QnnQuantizeConstFold()(mod).same_as(mod)


def test_a_scale_that_is_none_is_refused():
    net = Network(((1,), "int8"))
    # As a module from a file comes: the operator's builder refuses it at once.
    operands = [relax.const(np.ones(3, "float32")), scale(0), zero(3)]
    attributes = {"axis": -1, "out_dtype": "int8", "rounding": "None"}
    mod = net.module(net.emit(dialect.typed_call("relax.qnn.quantize", operands, attributes)))
    with pytest.raises(InputError, match="output_scale"):
        QnnQuantizeConstFold()(mod)


def clipped(low, high, made, cast=None, z=0):
    net = Network((SHAPE, "int32"))
    call = qnn.requantize(net.inputs[0], scale(0.5), zero(0), scale(2.0), zero(z), out_dtype=made)
    x = net.emit(op.clip(net.emit(call), low, high))
    return net.module(x if cast is None else net.emit(op.astype(x, cast)))


@pytest.mark.parametrize(
    ("low", "high", "made", "cast", "left"),
    [
        (0.0, 255.0, "int32", "uint8", ["qnn.requantize"]),
        (-128.0, 127.0, "int32", "int8", ["qnn.requantize"]),
        (0.0, 127.0, "int32", "uint8", ["qnn.requantize", "clip", "astype"]),
        (0.0, 300.0, "int32", "uint8", ["qnn.requantize", "clip", "astype"]),
        (-128.0, 127.0, "int32", "uint8", ["qnn.requantize", "clip", "astype"]),
        (0.0, 255.0, "int32", None, ["qnn.requantize", "clip"]),
        (-128.0, 127.0, "int8", None, ["qnn.requantize"]),
        (-1000.0, 1000.0, "int8", None, ["qnn.requantize"]),
        (-128.0, 126.0, "int8", None, ["qnn.requantize", "clip"]),
        (0.0, 255.0, "uint8", "int8", ["qnn.requantize", "astype"]),
    ],
)
def test_only_a_clip_to_the_dtypes_ends_goes(low, high, made, cast, left):
    mod = clipped(low, high, made, cast)
    after = RemoveClipAfterRequantize()(mod)
    assert names(after) == left
    data = np.random.default_rng(0).integers(-2000, 2000, SHAPE).astype("int32")
    got, want = run(after, data)[0], run(mod, data)[0]
    assert got.dtype == want.dtype
    assert np.array_equal(got, want)


@pytest.mark.parametrize(
    ("kind", "s", "kept"),
    [("int32", 1 / 16, True), ("int32", 1.0, True), ("int32", 1.001, False), ("int8", 2e-7, False)],
)
def test_a_cast_goes_only_where_int32_cannot_wrap(kind, s, kept):
    """Beyond int32 a requantize to int32 wraps, where one to a byte saturates."""
    net = Network(((3,), kind))
    call = qnn.requantize(net.inputs[0], scale(1), zero(0), scale(s), zero(0), out_dtype="int32")
    x = net.emit(op.clip(net.emit(call), 0.0, 255.0))
    mod = net.module(net.emit(op.astype(x, "uint8")))
    after = RemoveClipAfterRequantize()(mod)
    assert ("astype" in names(after)) == kept
    data = np.array([2**27, 2**28, 3] if kind == "int32" else [-128, 127, 3], kind)
    assert np.array_equal(run(after, data)[0], run(mod, data)[0])


def test_a_zero_point_that_the_byte_does_not_have_keeps_the_clip():
    mod = clipped(0.0, 255.0, "int32", "uint8", z=-7)
    assert RemoveClipAfterRequantize()(mod).same_as(mod)


def test_a_clip_after_a_clip_and_one_that_is_read_twice():
    net = Network((SHAPE, "int32"))
    call = qnn.requantize(net.inputs[0], scale(0.5), zero(0), scale(2.0), zero(0), out_dtype="int8")
    first = net.emit(op.clip(net.emit(call), -128.0, 127.0))
    second = net.emit(op.clip(first, -128.0, 127.0))
    narrow = net.emit(op.clip(second, 0.0, 5.0))
    mod = net.module(first, second, narrow)
    assert names(RemoveClipAfterRequantize()(mod)) == ["qnn.requantize", "clip"]
