"""Branches and blocks: what is computed in one is not read in another, which cannot see it."""

from __future__ import annotations

import numpy as np
import pytest
from helpers_qnn_graphs import equal, well_typed
from helpers_qnn_run import run
from tvm.script import ir as I
from tvm.script import relax as R

from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

IMAGE = (1, 3, 6, 6)


def pixels(seed=0):
    return np.random.default_rng(seed).integers(0, 256, IMAGE).astype("uint8")


@I.ir_module
class Branches:
    """Two convolutions, one in each branch, of a value that was cut before them."""

    @R.function
    def main(
        x: R.Tensor((1, 3, 6, 6), "uint8"),
        c: R.Tensor((), "bool"),
        w: R.Tensor((3, 3, 3, 3), "int8"),
    ) -> R.Tensor((1, 3, 4, 4), "uint8"):
        f = R.dequantize(x, R.const(0.5, "float32"), R.const(100, "int32"))
        r = R.nn.relu(f)
        k = R.dequantize(w, R.const(0.01, "float32"), R.const(0, "int32"))
        if c:
            a = R.nn.conv2d(r, k)
            q = R.quantize(a, R.const(0.7, "float32"), R.const(10, "int32"), out_dtype="uint8")
            y = q
        else:
            b = R.nn.conv2d(r, k)
            p = R.quantize(b, R.const(0.9, "float32"), R.const(12, "int32"), out_dtype="uint8")
            y = p
        return y


@pytest.mark.parametrize("chosen", [True, False])
def test_both_branches_cut_for_themselves(chosen):
    after = FakeQuantizationToInteger()(Branches)
    well_typed(after)
    assert not float_operators(after)
    weight = np.random.default_rng(1).integers(-127, 128, (3, 3, 3, 3)).astype("int8")
    got, _ = run(after, pixels(), np.array(chosen), weight)
    want, _ = run(Branches, pixels(), np.array(chosen), weight)
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 1


@I.ir_module
class Blocks:
    """A value cut in one dataflow block and read, cut, in the two blocks after it."""

    @R.function
    def main(x: R.Tensor((1, 3, 6, 6), "uint8")):
        with R.dataflow():
            f = R.dequantize(x, R.const(0.5, "float32"), R.const(100, "int32"))
            r = R.nn.relu(f)
            R.output(r)
        with R.dataflow():
            s = R.add(r, r)
            q = R.quantize(s, R.const(0.9, "float32"), R.const(3, "int32"), out_dtype="uint8")
            R.output(q)
        with R.dataflow():
            m = R.multiply(r, r)
            p = R.quantize(m, R.const(7.0, "float32"), R.const(3, "int32"), out_dtype="uint8")
            R.output(p)
        return (q, p)


def test_blocks_cut_for_themselves():
    after = FakeQuantizationToInteger()(Blocks)
    well_typed(after)
    assert equal(FakeQuantizationToInteger()(after), after)
    assert not float_operators(after)
    for got, want in zip(run(after, pixels())[0], run(Blocks, pixels())[0], strict=True):
        assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
