"""Products with integer weights of a Relax module, compared with NumPy's in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

import tvmlab
from tvmlab.errors import OutOfRangeError

Module = tvm.ir.IRModule


def made(
    whole: NDArray[Any],
    scale: NDArray[np.float32],
    zero: NDArray[np.float32] | None,
    inputs: tuple[Any, ...],
    rows: bool,
) -> Module:
    """Multiply by weights in blocks: ``[outputs, blocks, block]``, or turned for columns."""
    outputs, blocks, block = whole.shape
    if not rows:
        whole, scale = whole.transpose(1, 2, 0), scale.transpose(1, 2, 0)
        zero = None if zero is None else zero.transpose(1, 2, 0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(inputs, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            wide = builder.emit(op.astype(relax.const(np.ascontiguousarray(whole)), "float32"))
            if zero is not None:
                wide = builder.emit(op.subtract(wide, relax.const(np.ascontiguousarray(zero))))
            real = builder.emit(op.multiply(wide, relax.const(np.ascontiguousarray(scale))))
            size = (outputs, blocks * block) if rows else (blocks * block, outputs)
            weight = builder.emit(op.reshape(real, size))
            weight = builder.emit(op.permute_dims(weight)) if rows else weight
            out = builder.emit_output(op.matmul(x, weight))
        builder.emit_func_output(out)
    return builder.get()


def random(
    seed: int, bits: int, outputs: int, blocks: int, block: int, zeros: str
) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.float32] | None]:
    """Return integers, scales, and zero points for each block, for all blocks, or none."""
    rng = np.random.default_rng(seed)
    low = 0 if zeros != "none" else -(2 ** (bits - 1))
    dtype = "uint8" if zeros != "none" else "int8"
    whole = rng.integers(low, low + 2**bits, (outputs, blocks, block)).astype(dtype)
    scale = rng.uniform(-1, 1, (outputs, blocks, 1)).astype("float32")
    if zeros == "none":
        return whole, scale, None
    many = (outputs, blocks, 1) if zeros == "each" else (1, 1, 1)
    return whole, scale, rng.integers(0, 2**bits, many).astype("float32")


def checked(mod: Module, parts: Any, shape: tuple[int, ...], taken: bool = True) -> None:
    """Compare a module with the product in float64, and check which rule it has."""
    whole, scale, zero = parts
    built = tvmlab.compile(mod)
    rules = {kernel.rule for kernel in built.summary().kernels}
    assert ("IntegerWeights" in rules) == taken
    x = np.random.default_rng(1).standard_normal(shape).astype("float32")
    weight = (whole.astype("float64") - (0 if zero is None else zero)) * scale
    weight = weight.reshape(len(whole), -1)
    # Inputs are rounded to 16 bits: by at most half a step of the largest one of a block.
    sizes = np.abs(x) @ np.abs(weight).T
    most = np.abs(x).max(axis=-1, keepdims=True) @ np.abs(weight).sum(axis=1)[None]
    assert (np.abs(built(x) - x @ weight.T) <= most / 65_000 + 2e-6 * sizes).all()


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    bits=st.sampled_from([2, 3, 4, 8]),
    outputs=st.integers(1, 70),
    blocks=st.integers(1, 5),
    block=st.sampled_from([16, 32, 64, 96]),
    zeros=st.sampled_from(["each", "all", "none"]),
    rows=st.booleans(),
    shape=st.lists(st.integers(1, 9), max_size=2),
)
def test_blocks_of_any_size(
    seed: int,
    bits: int,
    outputs: int,
    blocks: int,
    block: int,
    zeros: str,
    rows: bool,
    shape: list[int],
) -> None:
    parts = random(seed, bits, outputs, blocks, block, zeros)
    inputs = (*shape, blocks * block)
    checked(made(*parts, inputs, rows), parts, inputs)


def test_an_open_number_of_rows() -> None:
    parts, n = random(0, 4, 40, 3, 32, "each"), tvm.tirx.Var("n", "int64")
    mod = made(*parts, (2, n, 96), True)
    for count in (1, 3, 4, 20):
        checked(mod, parts, (2, count, 96))
    assert tvmlab.compile(mod)(np.zeros((2, 0, 96), "float32")).shape == (2, 0, 40)


@pytest.mark.parametrize("case", ["block", "zero", "wide", "scale per row"])
def test_other_weights_become_floats(case: str) -> None:
    """Blocks of 8, zero points that are no bytes, and one scale for a row."""
    whole, scale, zero = random(0, 8, 24, 4, 8 if case == "block" else 32, "each")
    assert zero is not None
    if case == "zero":
        zero = zero + np.float32(0.5)
    elif case == "wide":
        zero = zero - np.float32(300)
    elif case == "scale per row":
        scale = np.ascontiguousarray(scale[:, :1])
    parts = whole, scale, zero
    inputs = (2, whole[0].size)
    checked(made(*parts, inputs, True), parts, inputs, taken=False)


def test_steps_before_packing_have_floats() -> None:
    parts = random(0, 4, 24, 2, 32, "each")
    built = tvmlab.compile(made(*parts, (3, 64), True), schedule="tile")
    assert "IntegerWeights" not in str(built.summary())


def test_products_share_their_weights() -> None:
    whole, scale, _ = random(0, 4, 64, 2, 32, "none")
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((3, 64), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            wide = builder.emit(op.astype(relax.const(whole), "float32"))
            real = builder.emit(op.multiply(wide, relax.const(scale)))
            weight = builder.emit(op.permute_dims(builder.emit(op.reshape(real, (64, 64)))))
            out = builder.emit(op.matmul(builder.emit(op.matmul(x, weight)), weight))
            out = builder.emit_output(out)
        builder.emit_func_output(out)
    built = tvmlab.compile(builder.get())
    assert [kernel.calls for kernel in built.summary().kernels] == [2]
    given = np.random.default_rng(1).standard_normal((3, 64)).astype("float32")
    matrix = (whole * scale.astype("float64")).reshape(64, 64).T
    np.testing.assert_allclose(built(given), given @ matrix @ matrix, rtol=1e-3, atol=1e-2)


def test_an_open_number_of_inputs_is_checked() -> None:
    parts, n = random(0, 4, 24, 2, 32, "each"), tvm.tirx.Var("n", "int64")
    built = tvmlab.compile(made(*parts, (3, n), True))
    with pytest.raises(OutOfRangeError):
        built(np.zeros((3, 32), "float32"))
    checked(made(*parts, (0, 64), True), parts, (0, 64), taken=False)
