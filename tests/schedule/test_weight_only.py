"""Products with quantized weights, compared with NumPy's in float64."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tvmlab.schedule.lowered import PIPELINE
from tvmlab.schedule.machine import DOTS, Machine
from tvmlab.schedule.packing import GROUP, Format, quantize
from tvmlab.schedule.weight_only import Quantized
from tvmlab.support.host import host_target

HOST = Machine.of(host_target())
_SSE2 = next(dot for dot in DOTS if "sse2" in dot.llvm)
# The host with and without its instruction, and the vectors of SSE and of Arm.
MACHINES = {
    "host": HOST,
    "arithmetic": replace(HOST, dot16=None),
    "sse": replace(HOST, vector_bytes=16, dot16=HOST.dot16 and _SSE2),
    "arm": replace(HOST, vector_bytes=16, registers=32, dot16=None),
    # A cache that holds the floats of 32 inputs, so that the weights are converted in parts.
    "small cache": replace(HOST, l2=1),
}
INPUTS = 96


class Compiled:
    """Both products of a format, and the weights that they stand for."""

    def __init__(self, form: Format, blocks: int) -> None:
        self.form, outputs = form, blocks * form.tile - 3
        made, target = Quantized(form, outputs, INPUTS), host_target()
        functions = {"one": made.product(1), "any": made.product()}
        named = {key: f.with_attr("global_symbol", key) for key, f in functions.items()}
        with target:
            self._built = tvm.tirx.build(tvm.IRModule(named), target=target, pipeline=PIPELINE)
        arrays, self.weight = (of_integers if form.zeros else of_floats)(form, outputs)
        self._packed = [tvm.runtime.tensor(array) for array in arrays]

    def __call__(self, name: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
        out = tvm.runtime.tensor(np.full((len(x), self.weight.shape[1]), 7, np.float32))
        self._built[name](tvm.runtime.tensor(x), *self._packed, out)
        return out.numpy()  # type: ignore[no-any-return]


def of_floats(form: Format, outputs: int) -> tuple[list[NDArray[Any]], NDArray[np.float64]]:
    """Quantize random weights; return the arrays, and what they stand for."""
    weight = np.random.default_rng(0).standard_normal((outputs, INPUTS)).astype(np.float32)
    integers, scales = quantize(np.ascontiguousarray(weight.T)[None], form.bits)
    groups = integers[0].reshape(-1, GROUP, outputs) * scales[0][:, None].astype(np.float64)
    return form.pack(weight), groups.reshape(INPUTS, outputs)


def of_integers(form: Format, outputs: int) -> tuple[list[NDArray[Any]], NDArray[np.float64]]:
    """Pack random integers, scales and zero points; return the arrays, and what they stand for."""
    rng, groups = np.random.default_rng(0), (outputs, INPUTS // form.group)
    integers = rng.integers(0, 2**form.bits, (outputs, INPUTS), dtype=np.uint8)
    scales = rng.standard_normal(groups).astype(np.float32)
    zeros = rng.integers(0, 2**form.bits, groups, dtype=np.uint8)
    scale, zero = (one.astype(np.float64).repeat(form.group, axis=1) for one in (scales, zeros))
    return form.pack_integers(integers, scales, zeros), ((integers - zero) * scale).T


# Without vectors of 64 bytes, eight blocks are read in four streams at once.
CASES = {
    f"{kind}, {name}, {blocks} blocks": (Format(kind, machine), blocks)
    for kind in ("int8", "int4")
    for name, machine in MACHINES.items()
    for blocks in (3, 8)
} | {
    f"{kind} in blocks of {group}, {name}": (Format(kind, machine, group, "float32", True), 3)
    for kind, group in itertools.product(("int8", "int4"), (16, 96))
    for name, machine in MACHINES.items()
}


@pytest.fixture(scope="module", params=CASES)
def product(request: pytest.FixtureRequest) -> Any:
    return Compiled(*CASES[request.param])


def inputs(seed: int, spread: float, rows: int = 1) -> NDArray[np.float32]:
    """Return numbers whose sizes differ by about `e ** spread`."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(spread * rng.standard_normal((rows, INPUTS)))
    return (sizes * rng.standard_normal((rows, INPUTS))).astype(np.float32)


def rounded(x: NDArray[np.float32], step: int) -> NDArray[np.float64]:
    """Round inputs to 16 bits, with one scale for `step` inputs."""
    groups = x.reshape(len(x), -1, step)
    largest = np.abs(groups).max(axis=2, keepdims=True)
    integers = np.rint(groups * (np.float32(32_767) / largest)).astype(np.float64)
    return (integers * (largest / np.float32(32_767))).reshape(x.shape)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), spread=st.floats(0, 8), rows=st.integers(1, 20))
def test_few_tokens_are_rounded_to_16_bits(
    product: Compiled, seed: int, spread: float, rows: int
) -> None:
    x = inputs(seed, spread, rows)
    step = min(product.form.group, 32)
    wanted = (rounded(x, step) if rows <= 6 else x) @ product.weight
    sizes = np.abs(x) @ np.abs(product.weight)
    for name in ["one", "any"] if rows == 1 else ["any"]:
        assert (np.abs(product(name, x) - wanted) <= 2e-6 * sizes).all()


@pytest.mark.parametrize(("name", "rows"), [("one", 1), ("any", 2), ("any", 9)])
def test_numbers_that_are_zero_tiny_or_not_finite(product: Compiled, name: str, rows: int) -> None:
    for size in (0, 1e-42, 1e-35):
        got = product(name, np.full((rows, INPUTS), size, np.float32))
        np.testing.assert_allclose(got, 0, atol=1e-28)
    for wrong in (np.nan, np.inf, -np.inf):
        x = inputs(0, 1, rows)
        x[-1, 40] = wrong
        got = product(name, x)
        assert not np.isfinite(got[-1, product.weight[40] != 0]).any()
        assert np.isfinite(got[:-1]).all()
