"""From records to compilation: layouts, schedules, and whose word goes first."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule

import tvmlab
from tests.records.records import result
from tvmlab.errors import CompileError, RecordError
from tvmlab.records.entries import Verdict, as_data, target_data
from tvmlab.support.host import host_target
from tvmlab.tuning import Records, tasks
from tvmlab.tuning.extract import Task, Variant


def network(*, relu: bool = True, second: bool = False) -> IRModule:
    """A product by constant weights; then an activation; and the same product alone."""
    build = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((24, 64), "float32"))
    weights = [
        relax.const(np.random.default_rng(seed).standard_normal((64, 64), dtype=np.float32))
        for seed in (1, 2)
    ]
    with build.function("main", [x]):
        with build.dataflow():
            out = build.emit(relax.op.matmul(x, weights[0]))
            if relu:
                out = build.emit(relax.op.nn.relu(out))
            if second:
                out = build.emit(relax.op.matmul(out, weights[1]))
            out = build.emit_output(out)
        build.emit_func_output(out)
    return build.finalize()


def decide(task: Task, variant: Variant, *, trace: bool, target=None) -> Verdict:
    """Decide that a task be scheduled by a variant: by its rule's trace, or by the rule."""
    assert variant.rule is not None
    return Verdict(
        function=tvmlab.tuning.workload_id(task.variants[0].module),
        workload=tvmlab.tuning.workload_id(variant.module),
        task=task.name,
        target=target_data(target or host_target()),
        threads=2,
        rule=1e-3,
        operator=task.operator,
        layout=variant.layout,
        trace=as_data(variant.rule.trace) if trace else None,
        ratios=(0.5, 0.5, 0.5),
    )


def compiled(mod: IRModule, records) -> list[tuple[str, str]]:
    """Compile; give each function's rule and layout. The numbers are those without records."""
    x = np.random.default_rng(0).standard_normal((24, 64), dtype=np.float32)
    made = tvmlab.compile(mod, records=records)
    np.testing.assert_allclose(made(x), tvmlab.compile(mod)(x), rtol=1e-4, atol=1e-4)
    summary = made.summary()
    for kernel in summary.kernels:
        assert (f"weights packed for {kernel.layout}" in str(summary)) == bool(kernel.layout)
    return sorted((kernel.rule, kernel.layout) for kernel in summary.kernels)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.jsonl"


def test_a_layout_and_a_trace_are_applied(path):
    mod = network()
    (task,) = tasks(mod)
    packed = task.variants[1]
    Records(path).append(decide(task, packed, trace=True))
    assert compiled(mod, path) == [("tuned", packed.layout)]
    assert compiled(mod, None) == [("Contraction", "")]
    Records(path).append(decide(task, packed, trace=False))  # the rule schedules the same layout
    assert compiled(mod, path) == [("Contraction", packed.layout)]


def test_a_layout_only_where_all_functions_were_measured_with_it(path):
    """In another network the operator is in an unmeasured function: the rules choose its layout."""
    (task,) = tasks(network())
    packed = task.variants[1]
    records = Records(path)
    records.append(decide(task, packed, trace=True))
    both = network(second=True)
    with pytest.warns(RuntimeWarning, match="has no verdict on any function"):
        assert compiled(both, path) == [("Contraction", "")] * 2
    other = next(each for each in tasks(both) if each.name != task.name)
    assert other.operator == task.operator
    variant = next(each for each in other.variants if each.layout == packed.layout)
    records.append(decide(other, variant, trace=False))
    assert compiled(both, path) == [("Contraction", packed.layout), ("tuned", packed.layout)]


def test_a_trace_that_does_not_apply(path):
    """It is left out with a warning; the rule schedules the function."""
    mod = network()
    (task,) = tasks(mod)
    made = decide(task, task.variants[0], trace=True)
    trace = [[["GetSBlock", [], ["missing", "main"], ["b0"]]], []]
    Records(path).append(Verdict(**{**vars(made), "trace": trace}))
    with pytest.warns(RuntimeWarning, match="is left out"):
        assert compiled(mod, path) == [("Contraction", "")]


def test_records_for_another_target(path):
    """They are refused by name."""
    (task,) = tasks(network())
    other = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64", "num-cores": 2})
    Records(path).append(decide(task, task.variants[0], trace=True, target=other))
    with pytest.raises(RecordError, match="none of 1 tuning records is for this target"):
        tvmlab.compile(network(), records=path)
    with pytest.raises(RecordError, match="no such file"):
        tvmlab.compile(network(), records=path.with_name("missing"))


def test_records_that_know_nothing_say_so(path):
    """Those of another network, or of tuning that was interrupted before anything was decided."""
    mod = network()
    (task,) = tasks(mod)
    records = Records(path)
    records.workload(task.variants[0].module)
    with pytest.warns(RuntimeWarning, match="has no verdict on any function"):
        assert compiled(mod, path) == [("Contraction", "")]
    target = target_data(host_target())
    records.append(result(task.name, target=target))
    with pytest.warns(RuntimeWarning, match="has no verdict on any function"):
        assert compiled(mod, path) == [("Contraction", "")]
    records.append(decide(task, task.variants[0], trace=False))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(mod, path) == [("Contraction", "")]


def test_records_are_for_processors(path):
    Records(path).append(decide(tasks(network())[0], tasks(network())[0].variants[0], trace=False))
    with pytest.raises(CompileError, match="records contain schedules for CPUs"):
        tvmlab.compile(network(), "nvidia/nvidia-a100", records=path)
