"""What compiling with schedules promises as a whole: steps, summaries, threads, failures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from helpers_convolutions import Conv
from helpers_models import array, as_tuple
from helpers_networks import by_onnxruntime, relative_error
from helpers_schedule import Op, module, wrong
from tvm import relax
from tvm.s_tir import dlight
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvmlab
from tvmlab import models, schedule
from tvmlab.errors import CompileError, PackageError

PLAIN = Conv(1, (9, 11), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 5, 19, ("bias", "relu"))
DEEP = Conv(2, (9, 11), (3, 3), (2, 1), (1, 0, 1, 0), (1, 1), 21, 1, 1, ("bias", "clip"))
GROUPS = Conv(1, (7, 7), (1, 3), (1, 1), (0, 1, 0, 1), (1, 2), 3, 4, 17, ("residual",))
OPEN = Conv(1, (9, 7), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 5, 19, ("bias",), constant=False)


@pytest.fixture(scope="module")
def digits() -> models.Model:
    return models.digits_resnet()


@pytest.mark.parametrize("step", [False, True, *schedule.STEPS])
def test_every_step_gives_the_same_numbers(step: bool | str, digits: models.Model) -> None:
    x = digits.samples(3) if hasattr(digits, "samples") else array(1, 1, 8, 8)
    run = tvmlab.compile(tvmlab.load(digits.onnx()), schedule=step)
    assert relative_error(run(x), by_onnxruntime(digits.onnx(), x)) < 1e-4
    if step in ("fuse", False):
        assert run.summary().unscheduled == run.summary().kernels
    else:
        assert run.summary().unscheduled == ()
    convs = [PLAIN, DEEP, GROUPS, OPEN]
    mod, inputs = module(convs)
    for conv, result in zip(convs, tvmlab.compile(mod, schedule=step)(*inputs), strict=True):
        np.testing.assert_allclose(result, conv.reference(), rtol=1e-4, atol=1e-4)
