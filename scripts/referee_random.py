"""Random quantized networks, compiled as any network is, against the NumPy reference."""

from __future__ import annotations

import random

import numpy as np
from helpers_qnn_graphs import Drawn
from helpers_qnn_run import run
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from referee_report import Measure, Size, holds

import tvmlab
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

GRAPHS = 300
ROUNDINGS = ("UPWARD", "TONEAREST", "TFLITE", "ONNX")


def graphs(size: Size) -> list[Measure]:
    """Draw 300 networks; compare each one's integer form, scheduled, with the reference."""
    count = size.of(GRAPHS)
    seen: set[int] = set()
    wrong: list[int] = []

    @settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**32 - 1))
    def draw(seed: int) -> None:
        seen.add(seed)
        drawn = Drawn(random.Random(seed))
        rounding = ROUNDINGS[seed % len(ROUNDINGS)]
        integer = FakeQuantizationToInteger(rounding=rounding)(drawn.mod)
        want, _ = run(integer, *drawn.inputs)
        got = np.asarray(tvmlab.compile(integer)(*drawn.inputs))
        if float_operators(integer) or not np.array_equal(got, want):
            wrong.append(seed)

    draw()
    text = f"{len(seen) - len(wrong)} of {len(seen)}"
    name = f"{count} random integer graphs, compiled, and the reference"
    return [holds(name, text, "bit-exact", not wrong and len(seen) >= 0.9 * count, seeds=wrong)]
