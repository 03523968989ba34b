"""Random networks imported from ONNX: each integer on the way is ONNX Runtime's, bit for bit.

ONNX Runtime's optimizations are on: they make integer kernels of what is between the quantizes.
"""

from __future__ import annotations

import numpy as np
import pytest

import tvmlab
from tests.oracles.models import session as onnx_session
from tests.oracles.onnx_qnn import DrawnOnnx, x86
from tests.qnn.graphs import well_typed
from tests.qnn.run import run
from tests.short import fresh
from tvmlab.qnn import arithmetic
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger


@x86
@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("group", range(4))
def test_all_integers_are_onnx_runtimes(kind: str, group: int) -> None:
    for seed in range(8 * group, 8 * group + 8):
        drawn = DrawnOnnx(fresh(seed), kind)
        session = onnx_session(drawn.model)
        want = session.run(None, {"x": drawn.image})
        after = FakeQuantizationToInteger()(tvmlab.load(drawn.model))
        well_typed(after)
        assert not float_operators(after), seed
        got, _ = run(after, drawn.image)
        for one, other, name in zip(got, want, drawn.made_by, strict=True):
            assert np.array_equal(one, other), (seed, name)


def test_an_average_half_way_goes_to_the_even_integer_that_is_stored() -> None:
    x = np.array([1, 2, 4, 3], "uint8").reshape(1, 1, 1, 4)
    given = ([1, 2], [1, 2], [0], [1, 1], False, True, "NCHW")
    for zero, stored in ((0, [2, 4]), (3, [4, 6])):  # the means are 1.5 and 3.5
        found = arithmetic.avg_pool2d(x, 1.0, 0, 1.0, zero, *given, rounding="ONNX")
        assert found.ravel().tolist() == stored
