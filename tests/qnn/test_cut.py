"""A network in pieces computes what the whole one does, and a wrong value shows where it is."""

from __future__ import annotations

import numpy as np
from tvm.relax import op

from tests.qnn.cut import cut, exposed
from tests.qnn.graphs import Network
from tests.qnn.run import run

SHAPE = (1, 2, 3, 4)


def network():
    """A relu, a sum with what went in, and a pad that leaves the scale as it is."""
    net = Network((SHAPE, "int8"))
    x = net.real(net.inputs[0], 0.05, 3)
    relu = net.fake(net.emit(op.nn.relu(x)), 0.04, -128)
    joined = net.fake(net.emit(op.add(relu, x)), 0.08, 5)
    turned = net.emit(op.permute_dims(joined, [0, 1, 3, 2]))
    return net.module(net.real(net.quantized(turned, 0.08, 5), 0.08, 5))


DATA = np.random.default_rng(0).integers(-128, 128, SHAPE).astype("int8")


def test_pieces_are_the_whole_and_a_value_goes_into_the_next_piece_alone() -> None:
    (*values, result), _ = run(exposed(network()).mod, DATA)
    (*pieces, tail), _ = run(cut(network()).mod, DATA, *values)
    for whole, piece in zip((*values, result), (*pieces, tail), strict=True):
        assert np.array_equal(whole, piece)
    other = [values[0] ^ 64, *values[1:]]
    (first, second, third, _), _ = run(cut(network()).mod, DATA, *other)
    assert np.array_equal(first, values[0])
    assert not np.array_equal(second, values[1])
    assert np.array_equal(third, values[2])
