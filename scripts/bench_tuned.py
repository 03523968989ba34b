"""Records against rules: each function of a network, and matrix products tuned from nothing."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from bench_rivals import NETWORKS

# Of a duel between the tuned function and the rule's.
ROUNDS = 30
SIZES = (512, 1024)
TRIALS = 64


def layers(name: str) -> list[dict[str, Any]]:
    """Let the shipped schedule of each function of a network meet the rules' one.

    Parameters
    ----------
    name : str
        A network.

    Returns
    -------
    list of dict
        One for each function that has a schedule of its own in the records, or another layout:
        "name", "calls", "rule" (seconds a call) and "ratio" (the median over the rounds of its time
        over the rule's).
    """
    from tvm.ir import IRModule

    import tvmlab
    from tvmlab.schedule import finish
    from tvmlab.schedule.tuned import found_layouts
    from tvmlab.tuning import LocalMeasurer, Measure, tasks
    from tvmlab.tuning.recorded import recorded

    target = tvmlab.host_target()
    found = recorded(None, target)
    if found is None:
        return []
    rows = []
    every = tasks(tvmlab.load(NETWORKS[name][0](batch=1)), target)
    own = {task.name: task.variants[0].module["main"] for task in every}
    layouts = found_layouts(IRModule(own), found)
    measurer = LocalMeasurer(target, Measure())
    try:
        for task in every:
            layout = layouts.get(task.operator, "")
            variant = next((v for v in task.variants if v.layout == layout), task.variants[0])
            tuned = found.schedule(variant.module["main"])
            if (tuned is None and variant is task.variants[0]) or task.variants[0].rule is None:
                continue
            both = [task.variants[0].rule, tuned or variant.rule]
            rule, ours = measurer.duel([finish(sch) for sch in both if sch is not None], ROUNDS)
            ratio = statistics.median(a / b for a, b in zip(ours.times, rule.times, strict=True))
            rows.append(
                {
                    "name": task.name,
                    "calls": task.calls,
                    "rule": statistics.median(rule.times),
                    "ratio": ratio,
                }
            )
    finally:
        measurer.close()
    return rows


def product(size: int) -> dict[str, Any]:
    """Tune a matrix product from nothing, and race it against NumPy's BLAS.

    Parameters
    ----------
    size : int
        Rows and columns.

    Returns
    -------
    dict
        "share": BLAS's time over ours, both with operands in place; "medians", the times;
        "seconds": how long tuning took; "report".
    """
    import tvm
    from tvm import relax

    import tvmlab

    builder = relax.BlockBuilder()
    a, b = (relax.Var(name, relax.TensorType((size, size), "float32")) for name in "ab")
    with builder.function("main", [a, b]):
        with builder.dataflow():
            made = builder.emit_output(relax.op.matmul(a, b))
        builder.emit_func_output(made)
    mod = builder.get()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.jsonl"
        report = tvmlab.tune(mod, records=path, trials=TRIALS, progress=False)
        tuned = tvmlab.compile(mod, records=path)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((size, size)).astype("float32") for _ in range(2))
    np.testing.assert_allclose(tuned(x, y), x @ y, rtol=1e-3, atol=1e-3)
    # The product itself: each finds its operands where it has them, and neither is asked to find
    # room for the result anew in the operating system.
    multiply = relax.VirtualMachine(tuned.vm_executable, tvm.cpu())["main"]
    ours, out = [tvm.runtime.tensor(array) for array in (x, y)], np.empty_like(x)
    race = tvmlab.bench.compare(
        {"tuned": lambda: multiply(*ours), "BLAS": lambda: np.matmul(x, y, out=out)}, repeats=30
    )
    return {
        "share": 1 / race.ratio("tuned", "BLAS"),
        "medians": race.medians,
        "seconds": report.seconds,
        "report": str(report),
    }
