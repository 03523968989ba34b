"""The tuning context, the spaces of MetaSchedule, and the mutator of ours."""

import subprocess
import sys
from pathlib import Path

import pytest
import tvm
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms

from tests.tuning.searches import TARGET, loops, matmul
from tvmlab.errors import TuningError
from tvmlab.tuning.search.context import identity, make_context, metaschedule_spaces


def proposed(seed: int, count: int = 8) -> list[int]:
    """What a random strategy proposes first."""
    module = matmul(64)
    strategy = ms.search_strategy.ReplayTrace()
    context = make_context(module, TARGET, strategy=strategy, seed=seed)
    context.pre_tuning(1000, count, metaschedule_spaces(module, TARGET))
    return [identity(one.sch.mod) for one in strategy.generate_measure_candidates()]


def test_the_seed_decides_what_is_proposed():
    """The same seed gives the same candidates; another seed gives others; 0 is a seed too."""
    assert proposed(0) == proposed(0)
    assert proposed(7) == proposed(7)
    assert proposed(0) != proposed(7)


def test_no_tensor_intrinsics_are_imported_and_nothing_is_logged():
    """A context costs no import of TVM's tensor intrinsics, and its strategy writes no log."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tvmlab.support.importing import leave_pytorch_out\n"
        "leave_pytorch_out()\n"
        "from tests.tuning.test_context import proposed\n"
        "assert len(proposed(1)) == 8\n"
        "print('tvm.s_tir.tensor_intrin' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("False\n", "", 0)


def test_a_target_without_cores_has_spaces_too():
    bare = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
    assert len(metaschedule_spaces(matmul(16), bare)) == len(
        metaschedule_spaces(matmul(16), TARGET)
    )


def test_what_cannot_be_tuned_is_refused():
    """Two functions, a GPU, and seeds out of range."""
    module = matmul(8)
    two = IRModule({"main": module["main"], "other": module["main"]})
    with pytest.raises(TuningError, match="one TIR function"):
        make_context(two, TARGET)
    with pytest.raises(TuningError, match="not for cuda"):
        make_context(module, tvm.target.Target("cuda"))
    for seed in (-1, 2**31):
        with pytest.raises(TuningError, match="seed"):
            make_context(module, TARGET, seed=seed)


def test_layouts_are_left_alone():
    """No post-processing repacks an input: the kernel has the function's parameters as they are."""
    module = matmul(64)
    strategy = ms.search_strategy.ReplayTrace()
    context = make_context(module, TARGET, strategy=strategy, seed=3)
    context.pre_tuning(1000, 8, metaschedule_spaces(module, TARGET))
    for one in strategy.generate_measure_candidates():
        text = one.sch.mod.script()
        assert "layout_transform" not in text
        assert "a_reindex" not in text
        assert any(kind == "PARALLEL" for kind, _ in loops(one.sch.mod))
