"""Branches and blocks, where what is computed in one is not read in another; and tuples."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import ir as I
from tvm.script import relax as R

from tests.qnn.graphs import equal, names, well_typed
from tests.qnn.run import run
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
    """A value cut in one dataflow block and read, cut, in another and between them."""

    @R.function
    def main(x: R.Tensor((1, 3, 6, 6), "uint8")):
        with R.dataflow():
            f = R.dequantize(x, R.const(0.5, "float32"), R.const(100, "int32"))
            r = R.nn.relu(f)
            R.output(r, f)
        s = R.add(r, r)
        q = R.quantize(s, R.const(0.9, "float32"), R.const(3, "int32"), out_dtype="uint8")
        with R.dataflow():
            m = R.multiply(r, r)
            p = R.quantize(m, R.const(7.0, "float32"), R.const(3, "int32"), out_dtype="uint8")
            n = R.subtract(r, f)
            o = R.quantize(n, R.const(0.9, "float32"), R.const(3, "int32"), out_dtype="uint8")
            R.output(p, o)
        return (q, p, o)


def test_blocks_cut_for_themselves():
    after = FakeQuantizationToInteger()(Blocks)
    well_typed(after)
    assert equal(FakeQuantizationToInteger()(after), after)
    assert not float_operators(after)
    for got, want in zip(run(after, pixels())[0], run(Blocks, pixels())[0], strict=True):
        assert np.abs(got.astype(int) - want.astype(int)).max() <= 1


@I.ir_module
class Tuples:
    """PyTorch's max pool, which upstream's importer gives a second result; and another tuple."""

    @R.function
    def main(x: R.Tensor((1, 3, 6, 6), "uint8")):
        with R.dataflow():
            f = R.dequantize(x, R.const(0.5, "float32"), R.const(100, "int32"))
            y = R.nn.max_pool2d(f, pool_size=[2, 2], strides=[2, 2])
            both = (y, R.zeros_like(y))
            z = both[0]
            other = (R.nn.relu(z), R.clip(z, -2, 3))
            s = R.add(other[0], other[1])
            q = R.quantize(s, R.const(0.4, "float32"), R.const(9, "int32"), out_dtype="uint8")
            R.output(q)
        return q


def test_fields_of_a_tuple_are_what_it_was_made_of():
    after = FakeQuantizationToInteger()(Tuples)
    well_typed(after)
    assert equal(FakeQuantizationToInteger()(after), after)
    assert not float_operators(after)
    assert names(after) == ["nn.max_pool2d", "clip", "clip", "qnn.add"]
    got, want = run(after, pixels())[0], run(Tuples, pixels())[0]
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 1


@I.ir_module
class TupleOfABlock:
    """A tuple that leaves a dataflow block, whose fields do not."""

    @R.function
    def main(x: R.Tensor((1, 3, 6, 6), "uint8")):
        with R.dataflow():
            f = R.dequantize(x, R.const(0.5, "float32"), R.const(100, "int32"))
            r = R.nn.relu(f)
            both = (r, f)
            R.output(both)
        s = R.add(both[0], both[1])
        return R.quantize(s, R.const(0.9, "float32"), R.const(3, "int32"), out_dtype="uint8")


def test_fields_that_a_block_does_not_give_out_are_not_read_behind_it():
    after = FakeQuantizationToInteger()(TupleOfABlock)
    well_typed(after)
    assert [one.operator for one in float_operators(after)] == ["nn.relu", "add"]
    got, want = run(after, pixels())[0], run(TupleOfABlock, pixels())[0]
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
