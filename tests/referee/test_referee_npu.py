"""Networks on the accelerator against the same networks on the CPU, in full size."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import tvm

import tvmlab
from tests.npu import graphs, networks
from tests.oracles.models import as_tuple
from tests.oracles.peers import FORMS, noise, pictures
from tvmlab import models, npu

Size = Callable[[int], int]
TARGET = "npu, llvm"
# Of multiply-accumulates.
COVERED = 0.99
# Of ResNet-50 v2: to partition it and to simulate it, and multiply-accumulates per second.
SECONDS, SPEED = 5.0, 5e9


def compared(mod: tvm.IRModule, inputs: Iterable[Any]) -> None:
    """Compare the integers of a network on both, and the part that the accelerator takes."""
    whole = networks.integers_out(mod)
    ours, theirs = tvmlab.compile(npu.partition(whole), TARGET), tvmlab.compile(whole)
    for one in inputs:
        np.testing.assert_array_equal(ours(one), theirs(one))
    covered = npu.coverage(npu.partition(mod))
    assert covered.macs_share >= COVERED
    assert covered.regions == 1


@pytest.mark.parametrize("form", FORMS)
def test_digits(form: networks.Form, size: Size) -> None:
    x = models.digits().x_test
    compared(networks.digits(form), x[: size(len(x)), None])


def test_resnet8(size: Size) -> None:
    compared(networks.resnet8(), noise(size(1000)))


@pytest.mark.parametrize("form", FORMS)
def test_resnet50(
    form: networks.Form, size: Size, record_property: Callable[[str, object], None]
) -> None:
    mod = networks.resnet50(form)
    compared(mod, pictures(size(3)))
    start = time.process_time()
    cut = npu.partition(mod)
    partitioned = time.process_time() - start
    run, (picture,) = tvmlab.compile(cut, TARGET), pictures(1)
    run(picture)
    start = time.perf_counter()
    run(picture)
    simulated = time.perf_counter() - start
    layers = npu.report(cut).layers
    macs = sum(one.counters[f"{unit}_macs"] for one in layers for unit in ("array", "vector"))
    record_property("seconds", (partitioned, simulated))
    assert partitioned <= SECONDS
    assert simulated <= SECONDS
    assert macs / simulated >= SPEED


def test_random_networks_on_random_machines(size: Size) -> None:
    wrong, taken, count = [], 0, size(500)
    for number in range(count):
        choose = random.Random(number)
        drawn, config = graphs.Drawn(choose), graphs.config(choose)
        cut = npu.partition(drawn.mod, config)
        taken += npu.coverage(cut).regions > 0
        ours = as_tuple(tvmlab.compile(cut, TARGET)(*drawn.inputs))
        theirs = as_tuple(tvmlab.compile(drawn.mod)(*drawn.inputs))
        if any(not np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)):
            wrong.append(number)
    assert wrong == []
    assert taken >= int(0.9 * count)
