"""The tuners: what they propose, and what the model learns."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tvm.s_tir import meta_schedule as ms

from tests.tuning.searches import (
    TARGET,
    FakeMeasurer,
    loops,
    matmul,
    metaschedule_spaces,
    metaschedule_task,
    run,
)
from tvmlab.errors import ToolchainError
from tvmlab.tuning.search.context import identity, make_context
from tvmlab.tuning.search.model import find_tuner


@pytest.mark.parametrize("tuner", ["xgb", "ga", "random"])
def test_a_seed_decides_all_candidates(tuner, tmp_path):
    """With times that the kernels decide, whole runs repeat."""
    runs = []
    for place, seed in enumerate((5, 5, 6)):
        path, how = tmp_path / str(place), {"trials": 20, "tuner": tuner, "seed": seed}
        _, measurer = run([metaschedule_task()], path, **how)
        runs.append([identity(kernel) for kernel in measurer.kernels])
    assert runs[0] == runs[1] != runs[2]


def unrolled_time(kernel) -> float:
    """A time that a model can learn: short vectors are slow."""
    lanes = max((extent for kind, extent in loops(kernel) if kind == "VECTORIZED"), default=1)
    return 1e-3 * (1 + abs(np.log2(lanes) - 4))


@pytest.mark.parametrize("tuner", ["xgb", "ga"])
def test_guided_tuners_beat_the_first_draw(tuner, tmp_path):
    """On a smooth problem the last candidates are better than the first, on average."""
    first, last = [], []
    for seed in range(3):
        how = {"trials": 64, "tuner": tuner, "seed": seed}
        measurer = FakeMeasurer(time=unrolled_time)
        report, _ = run([metaschedule_task()], tmp_path / f"{seed}", measurer, **how)
        times = report.tasks[0].times[1:]
        first += times[:16]
        last += times[-16:]
    assert np.mean(last) < 0.8 * np.mean(first)


def test_xgboost_may_be_missing(monkeypatch):
    """The error says what to install; the other tuners do without."""
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ToolchainError, match=r"tvmlab\[tune\]"):
        find_tuner("xgb")
    assert find_tuner("ga").was == "GATuner"


def proposed():
    """Let a random strategy propose its first candidates."""
    module = matmul(64)
    strategy = ms.search_strategy.ReplayTrace()
    context = make_context(module, TARGET, strategy=strategy, seed=3)
    context.pre_tuning(1000, 8, metaschedule_spaces(module, TARGET))
    return list(strategy.generate_measure_candidates())


def test_no_tensor_intrinsics_are_imported_and_nothing_is_logged():
    """A context costs no import of TVM's tensor intrinsics, and its strategy writes no log."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tvmlab.support.importing import leave_pytorch_out\n"
        "leave_pytorch_out()\n"
        "from tests.tuning.test_tuners import proposed\n"
        "assert len(proposed()) == 8\n"
        "print('tvm.s_tir.tensor_intrin' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("False\n", "", 0)


def test_layouts_are_left_alone():
    """No post-processing repacks an input: the kernel has the function's parameters as they are."""
    for one in proposed():
        text = one.sch.mod.script()
        assert "layout_transform" not in text
        assert "a_reindex" not in text
        assert any(kind == "PARALLEL" for kind, _ in loops(one.sch.mod))
