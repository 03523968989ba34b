"""Branches, blocks and tuples: a value is computed once, where all who read it can see it."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import ir as I
from tvm.script import relax as R

from tests.qnn.graphs import equal, integers, names, well_typed
from tests.qnn.run import run
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

IMAGE = (1, 3, 6, 6)


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


WEIGHT = integers((3, 3, 3, 3), "int8", seed=1)


@pytest.mark.parametrize(
    ("mod", "more"),
    [
        (Branches, (np.array(True), WEIGHT)),
        (Branches, (np.array(False), WEIGHT)),
        (Blocks, ()),
        (Tuples, ()),
        (TupleOfABlock, ()),
    ],
)
def test_a_value_is_computed_where_all_who_read_it_see_it(mod, more):
    after = FakeQuantizationToInteger()(mod)
    well_typed(after)
    assert equal(FakeQuantizationToInteger()(after), after)
    assert not float_operators(after)
    data = integers(IMAGE, "uint8")
    found, wanted = (run(each, data, *more)[0] for each in (after, mod))
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for one, other in pairs:
        assert np.abs(one.astype(int) - other.astype(int)).max() <= 1


def test_a_tuple_made_and_read_is_its_fields():
    after = FakeQuantizationToInteger()(Tuples)
    assert names(after) == ["nn.max_pool2d", "clip", "clip", "qnn.add"]
