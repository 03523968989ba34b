"""The stand-in for MLPerf Tiny's ResNet-8."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

import tvmlab
from tests.oracles.models import real_model
from tvmlab.models.resnet8 import resnet8_tflite


def steps(mod: tvm.IRModule) -> list[tuple[str, str]]:
    """Each operator of a module and the type it gives."""
    bindings = mod["main"].body.blocks[0].bindings
    calls = [one.value for one in bindings if isinstance(one.value, relax.Call)]
    return [(call.op.name, str(call.ty)) for call in calls]


def test_it_has_the_real_ones_operators_and_shapes() -> None:
    ours = steps(tvmlab.load(resnet8_tflite()))
    assert [name for name, _ in ours].count("relax.nn.conv2d") == 9
    assert ours == steps(tvmlab.load(real_model("resnet8_int8.tflite")))


def test_its_numbers_are_seeded_and_spread() -> None:
    assert resnet8_tflite() == resnet8_tflite(seed=0)
    assert resnet8_tflite() != resnet8_tflite(seed=1)
    run = tvmlab.compile(tvmlab.load(resnet8_tflite()))
    rng = np.random.default_rng(0)
    pictures = rng.integers(-128, 128, (20, 1, 32, 32, 3), dtype="int8")
    results = np.concatenate([run(picture) for picture in pictures])
    # Neither all the same nor all at the ends of the range.
    assert len(np.unique(results)) > 20
    assert len(np.unique(results, axis=0)) == len(pictures)
