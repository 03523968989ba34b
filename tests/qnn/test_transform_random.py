"""Random quantized networks: every step within one of the float one, and compiled bit for bit."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.qnn.cut import check
from tests.qnn.graphs import Drawn
from tests.qnn.run import compiled, run
from tests.short import examples

EACH = 20
ROUNDINGS = ("None", "UPWARD", "TONEAREST", "TFLITE")


def rewritten(seed, drawn, floats=()):
    rounding = ROUNDINGS[seed % len(ROUNDINGS)]
    return check(drawn.mod, *drawn.inputs, rounding=rounding, floats=floats)


# A library of twenty networks takes three seconds, and a seed says all there is to see.
@settings(
    max_examples=examples(15),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=EACH, max_size=EACH, unique=True))
def test_integer_forms_are_right_and_compile_to_the_references_bits(
    tmp_path_factory, seeds: list[int]
) -> None:
    made = []
    for seed in seeds:
        drawn = Drawn(random.Random(seed), steps=2 + seed % 2)
        made.append((seed, rewritten(seed, drawn), drawn.inputs))
    functions = compiled([integer for _, integer, _ in made], tmp_path_factory.mktemp("library"))
    for (seed, integer, inputs), function in zip(made, functions, strict=True):
        want, _ = run(integer, *inputs)
        assert np.array_equal(function(*inputs), want), seed


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32 - 1))
def test_networks_with_gaps_between_their_quantizes_are_right_too(seed: int) -> None:
    """What has no integer form then stays float, and nothing else changes."""
    rewritten(seed, Drawn(random.Random(seed), steps=5, gaps=0.4), floats=None)
