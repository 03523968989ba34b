"""The records that ship with the package: whole, for these networks, and right."""

from __future__ import annotations

from functools import cache
from importlib import resources

import numpy as np
import pytest
import tvm
from helpers_short import long

import tvmlab
from tvmlab.compiler import cut, simplify
from tvmlab.schedule import fused_passes
from tvmlab.schedule.tuned import found_layouts
from tvmlab.target import missing_features
from tvmlab.tuning import Records, tasks, workload_id
from tvmlab.tuning.recorded import Recorded, shipped

PROCESSORS = ("x86-64-v3", "x86-64-v4")
NETWORKS = {"digits_resnet": (1, 1, 8, 8), "resnet50_v2": (1, 3, 224, 224)}


def generic(processor: str, threads: int = 2) -> tvm.target.Target:
    return tvm.target.Target({"kind": "llvm", "mcpu": processor, "num-cores": threads})


@cache
def network(name: str) -> tvm.IRModule:
    return tvmlab.load(getattr(tvmlab.models, name)())


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_file_that_ships_is_small_and_holds_for_its_processor(processor):
    path = resources.files("tvmlab") / "assets" / f"{processor}.jsonl"
    with resources.as_file(path) as file:
        assert file.stat().st_size < 200_000
        records = Records(file)
    records.check(generic(processor))  # an error, or a warning, for what holds for another
    assert len(records) == 0
    assert len(records.verdicts) == len({one.function for one in records.verdicts}) > 40
    for verdict in records.verdicts:
        assert verdict.target["mcpu"] == processor
        assert verdict.ratio <= 1.02
        assert verdict.stays or verdict.ratios


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_function_of_the_networks_was_decided_on(processor, name):
    """Where the rules change, the functions are others: then the records have to be made anew."""
    target = generic(processor)
    ((records, _),) = shipped(target)
    for task in tasks(network(name), target, layouts=False):
        verdict = records.verdict(workload_id(task.variants[0].module), target)
        assert verdict is not None, f"{task.name}: make records"
        assert verdict.operator == task.operator


@pytest.mark.parametrize(
    ("name", "processor"),
    [
        *(("digits_resnet", processor) for processor in PROCESSORS),
        *(pytest.param("resnet50_v2", processor, marks=long) for processor in PROCESSORS),
    ],
)
def test_the_networks_compute_what_they_did(processor, name):
    """Compiled with the records, the same up to rounding; and what was decided is applied."""
    target = generic(processor)
    if missing := missing_features(target):
        pytest.skip(f"this processor lacks {missing}")
    ((records, _),) = shipped(target)
    found = Recorded([(records, target)])
    mod, _ = cut(network(name), target)
    with target:
        layouts = found_layouts(fused_passes(target)(simplify(mod)), found)
    decided = {one.operator: one.layout for one in records.verdicts if one.layout}
    assert layouts.items() <= decided.items()
    plain, tuned = (tvmlab.compile(network(name), target, records=each) for each in (False, None))
    changed = sum(kernel.rule == "tuned" for kernel in tuned.summary().kernels)
    assert changed + len(layouts) > 0
    x = np.random.default_rng(5).standard_normal(NETWORKS[name], dtype=np.float32)
    before, after = plain(x), tuned(x)
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4 * np.abs(before).max())


@pytest.mark.parametrize(
    ("given", "processor"),
    [
        ({"mcpu": "znver4"}, "x86-64-v4"),
        ({"mcpu": "skylake-avx512"}, "x86-64-v4"),
        ({"mcpu": "haswell"}, "x86-64-v3"),
        ({"mcpu": "znver2"}, "x86-64-v3"),
        ({"mcpu": "x86-64-v2"}, None),
        ({"mcpu": "cortex-a72", "mtriple": "aarch64-linux-gnu"}, None),
    ],
)
def test_which_records_a_processor_takes(given, processor):
    target = tvm.target.Target({"kind": "llvm", "num-cores": 2, **given})
    found = [records.path.stem for records, _ in shipped(target)]
    assert found == ([processor] if processor else [])


def test_a_named_step_is_the_rules_alone():
    """Who asks for a step of the rules by its name gets what the notebooks explain."""
    target = generic("x86-64-v3")
    by_name = tvmlab.compile(network("digits_resnet"), target, schedule="winograd")
    assert all(kernel.rule != "tuned" for kernel in by_name.summary().kernels)
