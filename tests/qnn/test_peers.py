"""Whole quantized networks in integers, against those who define what comes out of them.

`make referee` does the same in full size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tvmlab
from tests.oracles.models import real_model
from tests.oracles.models import session as onnx_session
from tests.oracles.onnx_qnn import DrawnOnnx, x86
from tests.oracles.peers import digits, noise, structured
from tests.qnn.graphs import well_typed
from tests.qnn.run import run
from tests.short import fresh, long
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

# Where 450 pictures are told the same: at least 99.5%; and right: within 0.3 points.
SAME, CLOSE = 0.995, 0.003


def test_resnet8s_probabilities_are_litert_but_for_a_step() -> None:
    """Softmax is computed in floats, and may round otherwise.

    `tests/contract/test_contract_exact.py` has the bits of all layers before it.
    """
    pytest.importorskip("ai_edge_litert", reason="ai_edge_litert is not installed")
    from tests.oracles.litert import Litert

    content = real_model("resnet8_int8.tflite")
    mod = FakeQuantizationToInteger()(tvmlab.load(content))
    assert not [it for it in float_operators(mod) if "softmax" not in it.operator]
    ours, theirs = tvmlab.compile(mod), Litert(content)
    seen = set()
    for picture in (*noise(100), *structured(100)):
        expected: Any = theirs.run(picture).astype(int)
        found: Any = np.asarray(ours(picture)).astype(int)
        assert abs(found - expected).max() <= 1
        seen.add(int(expected.argmax()))
    assert len(seen) > 3


# The contract has the bits of QOperator on 50 pictures.
@pytest.mark.parametrize("form", ["QDQ", "PT2E", pytest.param("QOperator", marks=long)])
def test_the_digits_network_says_what_its_quantizer_says(form: str) -> None:
    found = digits(form)
    assert not float_operators(found.integer)
    assert found.same >= SAME
    assert found.apart <= CLOSE


# Random networks from ONNX: each integer on the way is ONNX Runtime's, bit for bit


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
