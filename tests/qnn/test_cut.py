"""A network in pieces computes what the whole one does, and a wrong value shows where it is."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.relax import op

from tests.oracles.judges import Apart
from tests.qnn.cut import Place, cut, exposed, matched, quantizes
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


def test_the_places_are_the_quantizes_in_order() -> None:
    turned = (*SHAPE[:2], SHAPE[3], SHAPE[2])
    scales = [float(np.float32(scale)) for scale in (0.04, 0.08, 0.08)]
    expected = [
        Place(SHAPE, "int8", scales[0], -128),
        Place(SHAPE, "int8", scales[1], 5),
        Place(turned, "int8", scales[2], 5),
    ]
    assert list(quantizes(network()).values()) == expected
    assert cut(network()).places == expected == exposed(network()).places


def test_pieces_of_its_own_values_are_the_whole() -> None:
    (*values, result), _ = run(exposed(network()).mod, DATA)
    (*pieces, tail), _ = run(cut(network()).mod, DATA, *values)
    for whole, piece in zip((*values, result), (*pieces, tail), strict=True):
        assert np.array_equal(whole, piece)


def test_a_value_goes_into_the_next_piece_alone() -> None:
    (*values, _), _ = run(exposed(network()).mod, DATA)
    other = [values[0] ^ 64, *values[1:]]
    (first, second, third, _), _ = run(cut(network()).mod, DATA, *other)
    assert np.array_equal(first, values[0])
    assert not np.array_equal(second, values[1])
    assert np.array_equal(third, values[2])


def test_places_are_matched_by_what_they_are() -> None:
    one, two = Place((1,), "int8", 0.5, 0), Place((1,), "int8", 0.5, 1)
    assert matched([two, one, one], [one, one, two]) == [2, 0, 1]
    with pytest.raises((KeyError, IndexError)):
        matched([one, one], [one, two])


def test_what_differs_is_counted() -> None:
    apart = Apart()
    apart.add(np.int8([-128, 0, 3]), np.int8([127, 0, 4]))
    apart.add(np.int8([1]), np.int8([1]))
    assert (apart.values, apart.off, apart.steps, apart.share) == (4, 2, 255, 0.5)
