"""The parts of `make bench`: each measures one thing, prints it, and returns its figures."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench_command
import bench_convolution
import bench_quantized
import bench_report
import bench_tuned
import bench_tuning
import numpy as np
from bench_found import Effort, Found
from bench_race import Child, ChildError, children, race
from bench_report import BATCH, COMPILE, ERROR, MEMORY, RATIO, SHARE, columns
from bench_rivals import NETWORKS, RIVALS

from tvmlab.bench import Comparison
from tvmlab.models.cost import ARCHITECTURES, flops

BATCH_SIZE = 16
CONVOLUTION_SECONDS = 0.01
# A compile time that is measured again, and how often: the slower, the less it is worth it.
_SOON, _COMPILATIONS = 15.0, 3
# A quarter of the candidates will do where there are few rounds.
_FEW = 3


def _open(crowd: dict[str, Child], name: str, batch: int = 1) -> tuple[dict[str, Any], list[str]]:
    """Get a network ready on every rival; what each says, and why some cannot."""
    said, failed = {}, []
    for number, (rival, child) in enumerate(crowd.items()):
        child.ask("network", key=f"batch {batch}", rival=rival, name=name, batch=batch)
        if number == 0:  # ours comes first, and compiles alone: its time is reported
            said[rival] = child.answer()
    for rival in [rival for rival in crowd if rival not in said]:
        try:
            said[rival] = crowd[rival].answer()
        except ChildError as error:
            # PyTorch stands beside; without the other two there is nothing to measure.
            if not rival.startswith("PyTorch"):
                raise
            failed.append(f"{rival}: {error.what}")
            print(f"{rival} cannot run {name}: {error.what.splitlines()[0]}", flush=True)
            crowd.pop(rival).close()
    return said, failed


def _figures(found: Comparison, over: str, work: float = 0.0, loop: float = 0.0) -> dict[str, Any]:
    """Everything about a race, by rival; `work` is the FLOPs of a call, `loop` of the peak's."""
    figures = {}
    for name, run in found.runs.items():
        figures[name] = {
            "median_seconds": run.median,
            "spread": run.spread,
            f"over {over}": found.ratio(name, over),
            "samples": run.samples,
        }
        if work and name != "peak":
            figures[name]["flops"] = work / run.median
            figures[name]["of_peak"] = work / loop * found.ratio("peak", name)
    return figures


def network(name: str, effort: Effort) -> Found:
    """Race the rivals on a network."""
    with children(list(RIVALS)) as crowd:
        said, failed = _open(crowd, name)
        loop = crowd["tvmlab"].do("peak", key="peak")["flops"]
        runners = {rival: (crowd[rival], "batch 1") for rival in crowd}
        runners["peak"] = (crowd["tvmlab"], "peak")
        found = race(runners, rounds=effort.rounds, budget=effort.budget)
    work = flops(ARCHITECTURES[name])
    ours, reference = (np.array(said[rival]["output"]) for rival in ("tvmlab", "ONNX Runtime"))
    error = float(np.abs(ours - reference).max() / np.abs(reference).max())
    figures = _figures(found, "ONNX Runtime", work, loop)
    rows = [(name, "ms", "spread", "over ONNX", "GFLOP/s", "of the peak")]
    for rival, row in figures.items():
        if rival != "peak":
            rows.append(
                (
                    f"  {rival}",
                    f"{1e3 * row['median_seconds']:.3g}",
                    f"{row['spread']:.0%}",
                    f"{row['over ONNX Runtime']:.2f}",
                    f"{row['flops'] / 1e9:.3g}",
                    f"{row['of_peak']:.0%}",
                )
            )
    print(columns(rows), flush=True)
    return Found(
        {
            RATIO.format(name): found.ratio("tvmlab", "ONNX Runtime"),
            ERROR.format(name): error,
        },
        {
            "flops": work,
            "weights": said["tvmlab"]["weights"],
            "compile_seconds": said["tvmlab"]["compile_seconds"],
            "relative_error": error,
            "rivals": figures,
            "failed": failed,
        },
        loop / min(found.runs["peak"].samples),
    )


def convolutions(name: str, effort: Effort) -> Found:
    """Measure each convolution of a network on its own, as a share of the peak.

    A convolution's operations are those it is defined by, as in the table of a network: one that is
    computed with fewer, in Winograd's way, may pass the peak. It is marked, and the shares of the
    others are told beside.
    """
    rows, shares, direct, peak = [], [], [], 0.0
    lines = [(f"{name}, a convolution", "times", "us", "spread", "GFLOP/s", "of the peak")]
    with children(["tvmlab"]) as crowd:
        child = crowd["tvmlab"]
        loop = child.do("peak", key="peak")["flops"]
        for shape, (times, work) in bench_convolution.shapes(name).items():
            said = child.do("convolution", key=str(shape), shape=shape.arguments())
            runners = {"convolution": (child, str(shape)), "peak": (child, "peak")}
            # Many short turns, so that the clock has no time to drift between the two.
            found = race(
                runners,
                rounds=2 * effort.rounds,
                budget=effort.budget / 10,
                turn_seconds=CONVOLUTION_SECONDS,
            )
            child.do("forget", key=str(shape))
            figures = _figures(found, "peak", work, loop)["convolution"]
            shares += [figures["of_peak"]] * times
            direct += [] if said["winograd"] else [figures["of_peak"]] * times
            peak = max(peak, loop / min(found.runs["peak"].samples))
            rows.append(shape.arguments() | {"times": times, "work": work} | said | figures)
            lines.append(
                (
                    f"  {shape}",
                    f"{times}",
                    f"{1e6 * figures['median_seconds']:.0f}",
                    f"{figures['spread']:.0%}",
                    f"{figures['flops'] / 1e9:.0f}",
                    f"{figures['of_peak']:.0%}{' W' if said['winograd'] else ''}",
                )
            )
    print(columns(lines), flush=True)
    median = statistics.median(shares)
    figures = {"median": median, "min": min(shares), "max": max(shares), "rows": rows}
    print(f"  share of the peak: median {median:.1%}, least {min(shares):.0%}", flush=True)
    if 0 < len(direct) < len(shares):
        figures["median_direct"] = statistics.median(direct)
        print(f"  without those in Winograd's way (W): median {figures['median_direct']:.1%}")
    return Found({SHARE.format(name): median}, figures, peak)


def compilation(name: str, effort: Effort) -> Found:
    """Compile a network in fresh processes."""
    seconds: list[float] = []
    while not seconds or (seconds[0] < _SOON and len(seconds) < min(_COMPILATIONS, effort.rounds)):
        with children(["tvmlab"]) as crowd:
            said, _ = _open(crowd, name)
            seconds.append(said["tvmlab"]["compile_seconds"])
    print(f"{name} compiles in {', '.join(f'{each:.1f}' for each in seconds)} s", flush=True)
    median = statistics.median(seconds)
    return Found({COMPILE.format(name): median}, {"seconds": seconds})


def memory(name: str, _effort: Effort) -> Found:
    """Measure what a process grows by that loads a network and runs it."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "network.tar")
        with children(["tvmlab"]) as crowd:
            said, _ = _open(crowd, name)
            crowd["tvmlab"].do("save", key="batch 1", path=path)
        shape = [1, *ARCHITECTURES[name].image]
        with children(["a loaded network"]) as crowd:
            grown = crowd["a loaded network"].do("memory", path=path, shape=shape, calls=3)
    weights = said["tvmlab"]["weight_bytes"]
    ratio = grown["running"] / weights
    told = ", ".join(f"{when} {size / 2**20:.0f} MiB" for when, size in grown.items())
    print(f"{name} has {weights / 2**20:.1f} MiB of weights; it takes, {told}", flush=True)
    figures = {"weight_bytes": weights, "bytes": grown}
    figures["loading_over_weights"] = grown["loading"] / weights
    return Found({MEMORY.format(name): ratio}, figures)


def batch(name: str, effort: Effort) -> Found:
    """Measure what an image costs in a batch, over what it costs alone."""
    with children(["tvmlab", "ONNX Runtime"]) as crowd:
        runners = {}
        for size in (1, BATCH_SIZE):
            _open(crowd, name, size)
            for rival, child in crowd.items():
                runners[f"{rival}, batch {size}"] = (child, f"batch {size}")
        found = race(runners, rounds=effort.rounds, budget=effort.budget)
    ratios = {
        rival: found.ratio(f"{rival}, batch {BATCH_SIZE}", f"{rival}, batch 1") / BATCH_SIZE
        for rival in crowd
    }
    told = ", ".join(f"{rival} {ratio:.2f}" for rival, ratio in ratios.items())
    print(f"{name}, time per image at batch {BATCH_SIZE} over batch 1: {told}", flush=True)
    figures = {"ratios": ratios, "runs": _figures(found, "tvmlab, batch 1")}
    return Found({BATCH.format(name): ratios["tvmlab"]}, figures)


def relay_text(name: str, effort: Effort) -> Found:
    """Print and read Relay text: calls, and a network with its weights."""
    runs: dict[str, dict[str, list[float]]] = {}
    with children(["tvmlab"]) as crowd:
        child = crowd["tvmlab"]
        child.do("relay_calls", number=100)  # the grammar is compiled here
        for _ in range(min(5, effort.rounds)):
            for number in (1_000, 10_000):
                for step, seconds in child.do("relay_calls", number=number).items():
                    runs.setdefault(step, {}).setdefault(str(number), []).append(seconds)
    medians = {
        step: {number: statistics.median(found) for number, found in by_number.items()}
        for step, by_number in runs.items()
    }
    grows = {step: found["10000"] / found["1000"] / 10 for step, found in medians.items()}
    for step in ("read", "printed"):
        told = ", ".join(f"{number} in {found:.2f} s" for number, found in medians[step].items())
        print(f"calls {step} as Relay text: {told}; a call {grows[step]:.2f} times", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "network.relay")
        with children(["tvmlab"]) as crowd:
            written = crowd["tvmlab"].do("relay_write", name=name, path=path)
        with children(["tvmlab"]) as crowd:
            read = crowd["tvmlab"].do("relay_read", path=path)
    print(
        f"{name} as Relay text, {written['bytes'] / 1e6:.0f} MB: printed in "
        f"{written['seconds']:.1f} s, read in {read['seconds']:.1f} s and "
        f"{read['grown'] / 1e9:.2f} GB",
        flush=True,
    )
    return Found(
        {
            bench_report.RELAY_READ: medians["read"]["10000"],
            bench_report.RELAY_PRINT: medians["printed"]["10000"],
            bench_report.RELAY_READ_GROWS: grows["read"],
            bench_report.RELAY_PRINT_GROWS: grows["printed"],
            bench_report.RELAY_NETWORK.format(name): read["seconds"],
            bench_report.RELAY_MEMORY.format(name): read["grown"] / 1e9,
        },
        {"calls": runs, "written": written, "read": read},
    )


def quantized(name: str, effort: Effort) -> Found:
    """Race a network in int8 against ONNX Runtime's int8, and against our own float32."""
    ours, int8, reference = bench_quantized.RIVALS
    with tempfile.TemporaryDirectory() as folder, children(list(bench_quantized.RIVALS)) as crowd:
        path = str(Path(folder) / "network.onnx")
        crowd[reference].do("quantize", name=name, path=path)
        said = {
            rival: child.do("quantized", key="batch 1", rival=rival, name=name, path=path)
            for rival, child in crowd.items()
        }
        runners = {rival: (child, "batch 1") for rival, child in crowd.items()}
        found = race(runners, rounds=effort.rounds, budget=effort.budget)
    figures = _figures(found, reference)
    rows = [(f"{name} quantized", "ms", "spread", "over ONNX", "ready in s")]
    for rival, row in figures.items():
        rows.append(
            (
                f"  {rival}",
                f"{1e3 * row['median_seconds']:.3g}",
                f"{row['spread']:.0%}",
                f"{row[f'over {reference}']:.2f}",
                f"{said[rival]['seconds']:.1f}",
            )
        )
    print(columns(rows), flush=True)
    return Found(
        {
            bench_report.QUANTIZED_RATIO.format(name): found.ratio(int8, reference),
            bench_report.QUANTIZED_GAIN.format(name): found.ratio(int8, ours),
        },
        {"rivals": figures, "ready": said},
    )


def tuning(_name: str, effort: Effort) -> Found:
    """Compile and measure candidates of a matrix product, by us and by MetaSchedule's defaults."""
    number = bench_tuning.CANDIDATES // (1 if effort.rounds > _FEW else 4)
    said: dict[str, dict[str, float]] = {}
    for rival in ("tvmlab", "MetaSchedule"):
        with children([rival]) as crowd:
            said[rival] = crowd[rival].do("tuning", rival=rival, number=number)
    rates = {rival: 60 * one["measured"] / one["seconds"] for rival, one in said.items()}
    ratio = rates["tvmlab"] / max(rates["MetaSchedule"], 1e-9)
    told = ", ".join(
        f"{rival} {said[rival]['measured']} in {said[rival]['seconds']:.1f} s" for rival in said
    )
    print(f"{number} candidates of a matrix product compiled and measured: {told}", flush=True)
    limit = said["MetaSchedule"]["limit"]
    if limit != bench_tuning.UPSTREAM_SECONDS:
        print(f"  with MetaSchedule's own time limit none is ready; it was given {limit:g} s")
    print(f"  {ratio:.1f} times the candidates a minute", flush=True)
    return Found({bench_report.TUNING: ratio}, {"rates": rates, "said": said})


def records(name: str, effort: Effort) -> Found:
    """Let what the shipped records say of a network's functions meet the rules, one by one."""
    with children(["tvmlab"]) as crowd:
        rows = crowd["tvmlab"].do("records", name=name)
    if not rows:
        print(f"{name}: no records ship for this processor and so many threads", flush=True)
        return Found()
    rows.sort(key=lambda row: row["calls"] * row["rule"], reverse=True)
    table = [(f"{name}, by the records", "calls", "rule us", "over the rule")]
    for row in rows:
        said = f"{row['calls']}", f"{1e6 * row['rule']:.0f}", f"{row['ratio']:.2f}"
        table.append((f"  {row['name'][:50]}", *said))
    print(columns(table), flush=True)
    return Found({bench_report.RECORDS.format(name): max(r["ratio"] for r in rows)}, {"rows": rows})


def products(_name: str, effort: Effort) -> Found:
    """Tune matrix products from nothing, and race them against NumPy's BLAS."""
    values, figures = {}, {}
    for size in bench_tuned.SIZES:
        with children(["tvmlab"]) as crowd:
            figures[str(size)] = crowd["tvmlab"].do("product", size=size)
        share = values[bench_report.PRODUCT.format(size)] = figures[str(size)]["share"]
        seconds = figures[str(size)]["seconds"]
        print(f"{size}x{size}: tuned in {seconds:.0f} s to {share:.2f} of BLAS", flush=True)
    return Found(values, figures)


def profiling(name: str, effort: Effort) -> Found:
    """Profile a network: what that costs, and whether its rows are the whole."""
    with children(["tvmlab"]) as crowd:
        _open(crowd, name)
        said = crowd["tvmlab"].do("profile", key="batch 1", name=name, repeats=2 * effort.rounds)
    print(said["table"], flush=True)
    values = {
        bench_report.PROFILE.format(name): 1 + said["overhead"],
        bench_report.ROWS.format(name): abs(said["covered"] - 1),
    }
    return Found(values, said["data"])


#: The sections in their order. The first runs over every network, the others over one.
SECTIONS: dict[str, Callable[[str, Effort], Found]] = {
    "networks": network,
    "convolutions": convolutions,
    "compile": compilation,
    "memory": memory,
    "batch": batch,
    "relay": relay_text,
    "quantized": quantized,
    "tuning": tuning,
    "records": records,
    "products": products,
    "profiling": profiling,
    "command": bench_command.command,
}


def plan(sections: list[str], names: list[str]) -> list[tuple[str, str]]:
    """List what is to be measured: a section and a network each.

    Parameters
    ----------
    sections : list of str
        Some of SECTIONS.
    names : list of str
        Some of NETWORKS; none are all. The sections about a single network take the first of them
        in the order of NETWORKS, which is the largest.

    Returns
    -------
    list of (str, str)
    """
    chosen = [name for name in NETWORKS if name in names or not names]
    steps = []
    for section in SECTIONS:
        if section in sections:
            steps += [(section, name) for name in (chosen if section == "networks" else chosen[:1])]
    return steps
