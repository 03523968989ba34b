"""Networks on the accelerator against the same networks on the CPU, in full size."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from typing import Any

import helpers_npu_graphs as graphs
import helpers_npu_networks as networks
import numpy as np
import tvm
from helpers_models import as_tuple
from helpers_qnn_peers import noise
from referee_networks import pictures
from referee_passes import processor_seconds
from referee_report import Measure, Size, absent, holds, least, most

import tvmlab
from tvmlab import models, npu

EXACT, TARGET = "bit-equal", "npu, llvm"
# Of multiply-accumulates, in percent; and of seconds, for ResNet-50.
COVERED, SECONDS = 99.0, 5.0
FEW, MANY, GROWTH = 1_000, 10_000, 1.3
# Multiply-accumulates a second, in billions, on one core.
SPEED = 5.0


def _compared(name: str, mod: tvm.IRModule, inputs: Iterable[Any]) -> list[Measure]:
    """Run the integers of a network on both, and say what the accelerator takes of it."""
    whole = networks.integers_out(mod)
    cut = npu.partition(whole)
    ours, theirs = tvmlab.compile(cut, TARGET), tvmlab.compile(whole)
    differ = count = 0
    for one in inputs:
        differ += int(np.count_nonzero(np.asarray(ours(one)) != np.asarray(theirs(one))))
        count += 1
    covered = npu.coverage(npu.partition(mod))
    found = EXACT if not differ else f"{differ} numbers differ"
    return [
        holds(f"{name} on the accelerator, {count} inputs", found, EXACT, not differ),
        least(f"{name}: multiply-accumulates offloaded", 100 * covered.macs_share, COVERED, "%"),
        most(f"{name}: regions", covered.regions, 1),
    ]


def digits(size: Size) -> list[Measure]:
    """Run the digits network, quantized three ways, on all held-out digits."""
    x = models.digits().x_test
    x = x[: size.of(len(x))]
    found = []
    for form in ("QDQ", "QOperator", "PT2E"):
        found += _compared(f"digits, {form}", networks.digits(form), (one[None] for one in x))
    return found


def resnet8(size: Size) -> list[Measure]:
    """Run ResNet-8 on 1,000 random inputs."""
    mod = networks.resnet8()
    if mod is None:
        return [absent("ResNet-8 on the accelerator", EXACT)]
    return _compared("ResNet-8", mod, noise(size.of(1000)))


def resnet50(size: Size) -> list[Measure]:
    """Run ResNet-50 v2, quantized three ways, on 3 inputs; measure how long it takes."""
    found = []
    for form in ("QDQ", "QOperator", "PT2E"):
        mod, name = networks.resnet50(form), f"ResNet-50 v2, {form}"
        found += _compared(name, mod, pictures(size.of(3)))
        seconds = processor_seconds(npu.partition, mod)
        found.append(most(f"{name}: partitioned, seconds", seconds, SECONDS))
        cut = npu.partition(mod)
        run = tvmlab.compile(cut, TARGET)
        (picture,) = pictures(1)
        run(picture)
        start = time.perf_counter()
        run(picture)
        seconds = time.perf_counter() - start
        found.append(most(f"{name}: simulated, seconds", seconds, SECONDS))
        rows = npu.report(cut).layers
        macs = sum(one.counters[f"{unit}_macs"] for one in rows for unit in ("array", "vector"))
        found.append(
            least(f"{name}: multiply-accumulates a second", macs / seconds / 1e9, SPEED, " G")
        )
    return found


def drawn(size: Size) -> list[Measure]:
    """Run 500 random networks on random machines, compiled, against the CPU."""
    differ, on_it, count = 0, 0, size.of(500)
    for number in range(count):
        choose = random.Random(number)
        one, config = graphs.Drawn(choose), graphs.config(choose)
        cut = npu.partition(one.mod, config)
        on_it += npu.coverage(cut).regions > 0
        ours = as_tuple(tvmlab.compile(cut, TARGET)(*one.inputs))
        theirs = as_tuple(tvmlab.compile(one.mod)(*one.inputs))
        differ += any(not np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    found = EXACT if not differ else f"{differ} differ"
    name = f"{count} random networks on random machines"
    return [
        holds(name, found, EXACT, not differ),
        least("of them partly or whole on the accelerator", on_it, int(0.9 * count)),
    ]


def linear(size: Size) -> list[Measure]:
    """Partition chains of 1,000 and 10,000 operators."""
    seconds = {
        count: processor_seconds(npu.partition, graphs.chain(count)) for count in (FEW, MANY)
    }
    growth = seconds[MANY] / seconds[FEW] / (MANY / FEW)
    return [
        holds(f"{MANY:,} operators: partitioned", f"{seconds[MANY]:.3g} s", "", None),
        most(f"{MANY:,} operators: seconds an operator over those of {FEW:,}", growth, GROWTH),
    ]
