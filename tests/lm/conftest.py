"""Decoders with random weights, compiled once."""

from __future__ import annotations

import pytest

from tests.lm.reference import TINY, random_weights
from tvmlab import lm


@pytest.fixture(scope="package")
def tiny() -> lm.LanguageModel:
    return lm.load(random_weights(TINY), TINY)
