"""The sections of `make bench`: each measures one thing, prints it, and returns its figures."""

from __future__ import annotations

import importlib.util
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bench_report as report_
import bench_work
import numpy as np
from bench_process import Child, ChildError, children, race
from bench_report import columns, race_table

from tvmlab import bench, deploy
from tvmlab.models.cost import ARCHITECTURES, flops

#: The candidates of each form of model; the last is the one that the ratios and errors are over.
CANDIDATES = {
    "float32": ("tvmlab", "PyTorch compiled", "PyTorch eager", "OpenVINO", "ONNX Runtime"),
    "int8": ("tvmlab int8", "tvmlab float32", "OpenVINO", "ONNX Runtime"),
    "tflite int8": ("tvmlab int8", "OpenVINO", "LiteRT"),
}
#: What a candidate needs: a module, and the extra that installs it.
NEEDS = {
    "PyTorch compiled": ("torch", "torch"),
    "PyTorch eager": ("torch", "torch"),
    "OpenVINO": ("openvino", "rivals"),
    "ONNX Runtime": ("onnxruntime", "peers"),
    "LiteRT": ("ai_edge_litert", "tflite"),
}
BATCH_SIZE = 16
CONVOLUTION_SECONDS = 0.01
# A compile time that is measured again, and how often: the slower, the less it is worth it.
_SOON, _COMPILATIONS = 15.0, 3
PRODUCTS = (512, 1024)
TUNED = 64
# Starts of the command, and the seconds that the C++ program or Python runs before the other does.
_STARTS, _TURN = 11, 1 / 3
# What `tvmlab compile` does, and nothing else.
_FUNCTIONS = """
import sys, tvmlab
mod = tvmlab.load(getattr(tvmlab.models, sys.argv[1])())
tvmlab.compile(mod).save(sys.argv[2])
"""
_PYTHON = """
import sys, numpy as np, tvmlab
run = tvmlab.load_executable(sys.argv[1])
print(run.time(np.load(sys.argv[2]), repeats=int(sys.argv[3]), number=1).median * 1e3)
"""


@dataclass
class Effort:
    """How long to measure: the rounds of a race, or fewer where they would exceed the budget."""

    rounds: int = 15
    budget: float = 30.0  # seconds

    @property
    def quick(self) -> bool:
        """Whether this is to see that it runs."""
        return self.rounds <= QUICK.rounds


QUICK = Effort(rounds=3, budget=10.0)


@dataclass
class Found:
    """What a section found: measures by their names in the report, everything else, the peak."""

    values: dict[str, float] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    peak: float = 0.0  # the fastest run of the peak loop, in operations per second


def missing(candidate: str) -> str:
    """Say why a candidate cannot take part, and how to install it; empty where it can."""
    module, extra = NEEDS.get(candidate, ("", ""))
    if not module or importlib.util.find_spec(module):
        return ""
    return f"not installed (pip install 'tvmlab[{extra}]')"


def opened(
    crowd: dict[str, Child], name: str, form: str, folder: str, batch: int = 1
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Get a model ready in every process.

    Returns what the model is, what each candidate says, and why some cannot run it.
    """
    path = {each: str(Path(folder) / f"{name}-{each}-{batch}") for each in (form, "float32")}
    path = {each: f"{one}.{'tflite' if 'tflite' in each else 'onnx'}" for each, one in path.items()}
    said, failed = {}, {}
    with children(["the writer of models"]) as writers:
        (writer,) = writers.values()
        about = writer.do("write", name=name, form=form, path=path[form], batch=batch)
        if form == "int8":  # our own float32 races too
            writer.do("write", name=name, form="float32", path=path["float32"], batch=batch)
    data = {"shape": about["shape"], "dtype": about["dtype"]}
    for order, (candidate, child) in enumerate(crowd.items()):
        file = path["float32" if candidate == "tvmlab float32" else form]
        key = f"batch {batch}"
        child.ask("ready", key=key, runtime=candidate, name=name, path=file, **data)
        if order == 0:  # ours comes first, and compiles alone: its time is reported
            said[candidate] = child.answer()
    for order, (candidate, child) in enumerate(list(crowd.items())):
        if order:
            try:
                said[candidate] = child.answer()
            except ChildError as error:
                # Without the reference there is nothing to measure.
                if candidate == CANDIDATES[form][-1] or candidate.startswith("tvmlab"):
                    raise
                failed[candidate] = f"cannot run it: {error.what.splitlines()[0]}"
                crowd.pop(candidate).close()
    return about, said, failed


def raced(name: str, form: str, effort: Effort) -> Found:
    """Race the candidates on a model of a form: a section for each form."""
    over = CANDIDATES[form][-1]
    absent = {each: why for each in CANDIDATES[form] if (why := missing(each))}
    present = [each for each in CANDIDATES[form] if each not in absent]
    with tempfile.TemporaryDirectory() as folder, children(present) as crowd:
        _, said, failed = opened(crowd, name, form, folder)
        runners = {candidate: (child, "batch 1") for candidate, child in crowd.items()}
        ours, peak = next(iter(crowd)), 0.0
        work = flops(ARCHITECTURES[name]) if form == "float32" else 0
        if work:
            loop = crowd[ours].do("peak", key="peak")["flops"]
            runners["peak"] = (crowd[ours], "peak")
        found = race(runners, rounds=effort.rounds, budget=effort.budget)
    expected = np.array(said[over]["output"])
    candidates: dict[str, dict[str, Any]] = {}
    for each in CANDIDATES[form]:
        if each not in said:
            candidates[each] = {"absent": absent.get(each) or failed[each]}
            continue
        error = np.abs(np.array(said[each]["output"]) - expected).max() / np.abs(expected).max()
        candidates[each] = timed(found, each, over) | {
            "error": float(error),
            "ready_seconds": said[each]["ready_seconds"],
        }
        if work:
            seconds = candidates[each]["median_seconds"]
            share = work / loop * found.ratio("peak", each)
            candidates[each] |= {"flops": work / seconds, "of_peak": share}
            peak = loop / min(found.runs["peak"].samples)
    print(race_table(f"{name}, {form}", candidates, over), flush=True)
    label = name if form == "float32" else f"{name} {form}"
    others = [each for each in said if not each.startswith("tvmlab")]
    values = {report_.RATIO.format(label, each): found.ratio(ours, each) for each in others}
    values[report_.ERROR.format(label)] = candidates[ours]["error"]
    if form == "int8":
        values[report_.GAIN.format(name)] = found.ratio("tvmlab int8", "tvmlab float32")
    return Found(values, {"race": f"{name}, {form}", "candidates": candidates}, peak)


def timed(found: bench.Comparison, name: str, over: str) -> dict[str, Any]:
    """Return the figures of one candidate of a race."""
    run = found.runs[name]
    figures = {"median_seconds": run.median, "spread": run.spread, "samples": run.samples}
    return figures | {"over": found.ratio(name, over)}


def networks(name: str, effort: Effort) -> Found:
    """Race a network in float32."""
    return raced(name, "float32", effort)


def int8(name: str, effort: Effort) -> Found:
    """Race a network that ONNX Runtime's quantizer made int8: static QDQ, a scale per channel."""
    return raced(name, "int8", effort)


def tflite(_name: str, effort: Effort) -> Found:
    """Race MLPerf Tiny's ResNet-8 as an int8 TensorFlow Lite file, with seeded weights."""
    return raced("resnet8", "tflite int8", effort)


def convolutions(name: str, effort: Effort) -> Found:
    """Measure each convolution of a network on its own, beside the machine's peak.

    A direct convolution executes the operations that define it, so their rate is a share of the
    peak. Winograd executes fewer, so the same rate can exceed the peak; a separate row reports it.
    """
    rows, peak = [], 0.0
    lines = [(f"{name}, a convolution", "times", "us", "spread", "GFLOP/s", "of the peak", "")]
    with children(["tvmlab"]) as crowd:
        child = crowd["tvmlab"]
        loop = child.do("peak", key="peak")["flops"]
        for shape, (times, work) in bench_work.shapes(name).items():
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
            one = timed(found, "convolution", "peak")
            one["of_peak"] = work / loop * found.ratio("peak", "convolution")
            peak = max(peak, loop / min(found.runs["peak"].samples))
            rows.append(shape.arguments() | {"times": times, "work": work} | said | one)
            lines.append(
                (
                    f"  {shape}",
                    f"{times}",
                    f"{1e6 * one['median_seconds']:.0f}",
                    f"{one['spread']:.0%}",
                    f"{work / one['median_seconds'] / 1e9:.0f}",
                    f"{one['of_peak']:.0%}",
                    "Winograd, effective" if said["winograd"] else "direct",
                )
            )
    print(columns(lines), flush=True)
    return Found(shares(name, rows), {"rows": rows}, peak)


def shares(name: str, rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Judge direct convolutions by their share of the peak, and Winograd's by a measure apart."""
    values = {}
    for measure, winograd in ((report_.SHARE, False), (report_.WINOGRAD, True)):
        found = [
            row["of_peak"]
            for row in rows
            for _ in range(row["times"] * (row["winograd"] is winograd))
        ]
        if found:
            values[measure.format(name)] = statistics.median(found)
    return values


def compilation(name: str, effort: Effort) -> Found:
    """Compile a network in fresh processes."""
    seconds: list[float] = []
    while not seconds or (seconds[0] < _SOON and len(seconds) < min(_COMPILATIONS, effort.rounds)):
        with tempfile.TemporaryDirectory() as folder, children(["tvmlab"]) as crowd:
            _, said, _ = opened(crowd, name, "float32", folder)
            seconds.append(said["tvmlab"]["ready_seconds"])
    print(f"{name} gives its first result after {', '.join(f'{each:.1f}' for each in seconds)} s")
    return Found({report_.COMPILE.format(name): statistics.median(seconds)}, {"seconds": seconds})


def memory(name: str, _effort: Effort) -> Found:
    """Measure what a process grows by that loads a network and runs it."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "network.tar")
        with children(["tvmlab"]) as crowd:
            about, _, _ = opened(crowd, name, "float32", folder)
            crowd["tvmlab"].do("save", key="batch 1", path=path)
        with children(["a loaded network"]) as crowd:
            (child,) = crowd.values()
            grown = child.do("memory", path=path, shape=about["shape"], calls=3)
    weights = about["weight_bytes"]
    told = ", ".join(f"{when} {size / 2**20:.0f} MiB" for when, size in grown.items())
    print(f"{name} has {weights / 2**20:.1f} MiB of weights; it takes, {told}", flush=True)
    figures = {"weight_bytes": weights, "bytes": grown}
    return Found({report_.MEMORY.format(name): grown["running"] / weights}, figures)


def batch(name: str, effort: Effort) -> Found:
    """Measure what an image costs in a batch, over what it costs alone."""
    runners = {}
    with tempfile.TemporaryDirectory() as folder, children(["tvmlab", "ONNX Runtime"]) as crowd:
        for size in (1, BATCH_SIZE):
            opened(crowd, name, "float32", folder, size)
            for candidate, child in crowd.items():
                runners[f"{candidate}, batch {size}"] = (child, f"batch {size}")
        found = race(runners, rounds=effort.rounds, budget=effort.budget)
        ratios = {
            each: found.ratio(f"{each}, batch {BATCH_SIZE}", f"{each}, batch 1") / BATCH_SIZE
            for each in crowd
        }
    told = ", ".join(f"{candidate} {ratio:.2f}" for candidate, ratio in ratios.items())
    print(f"{name}, time per image at batch {BATCH_SIZE} over batch 1: {told}", flush=True)
    return Found({report_.BATCH.format(name): ratios["tvmlab"]}, {"ratios": ratios})


def relay(name: str, effort: Effort) -> Found:
    """Print and read Relay text: calls, and a network with its weights."""
    runs: dict[str, dict[int, list[float]]] = {}
    with children(["tvmlab"]) as crowd:
        child = crowd["tvmlab"]
        child.do("relay_calls", number=100)  # the grammar is compiled here
        for _ in range(min(5, effort.rounds)):
            for number in (1_000, 10_000):
                for step, seconds in child.do("relay_calls", number=number).items():
                    runs.setdefault(step, {}).setdefault(number, []).append(seconds)
    medians = {
        step: {number: statistics.median(some) for number, some in by_number.items()}
        for step, by_number in runs.items()
    }
    grows = {step: found[10_000] / found[1_000] / 10 for step, found in medians.items()}
    with tempfile.TemporaryDirectory() as folder:
        model, path = (str(Path(folder) / file) for file in ("network.onnx", "network.relay"))
        with children(["tvmlab"]) as crowd:
            crowd["tvmlab"].do("write", name=name, form="float32", path=model)
            written = crowd["tvmlab"].do("relay_write", model=model, path=path)
        with children(["tvmlab"]) as crowd:
            read = crowd["tvmlab"].do("relay_read", path=path)
    size, seconds = written["bytes"] / 1e6, written["seconds"]
    print(f"{name} as Relay text: {size:.0f} MB, printed in {seconds:.1f} s", flush=True)
    values = {
        report_.RELAY_READ: medians["read"][10_000],
        report_.RELAY_PRINT: medians["printed"][10_000],
        report_.RELAY_READ_GROWS: grows["read"],
        report_.RELAY_PRINT_GROWS: grows["printed"],
        report_.RELAY_NETWORK.format(name): read["seconds"],
        report_.RELAY_MEMORY.format(name): read["grown"] / 1e9,
    }
    return Found(values, {"calls": runs, "written": written, "read": read})


def tuning(_name: str, effort: Effort) -> Found:
    """Compile and measure candidates of a matrix product, by us and by MetaSchedule's defaults."""
    count = TUNED // (4 if effort.quick else 1)
    said: dict[str, dict[str, float]] = {}
    for runtime in ("tvmlab", "MetaSchedule"):
        with children([runtime]) as crowd:
            said[runtime] = crowd[runtime].do("candidates", runtime=runtime, number=count)
        one = said[runtime]
        print(f"{runtime}: {one['measured']} of {count} in {one['seconds']:.1f} s", flush=True)
    if said["MetaSchedule"]["limit"] != bench_work.UPSTREAM_SECONDS:
        print(f"  MetaSchedule needed a time limit of {said['MetaSchedule']['limit']:g} s")
    rates = {runtime: 60 * one["measured"] / one["seconds"] for runtime, one in said.items()}
    ratio = rates["tvmlab"] / max(rates["MetaSchedule"], 1e-9)
    return Found({report_.TUNING: ratio}, {"rates": rates, "said": said})


def products(_name: str, effort: Effort) -> Found:
    """Tune matrix products from nothing, and race them against NumPy's BLAS."""
    values, figures = {}, {}
    for size in PRODUCTS:
        with children(["tvmlab", "NumPy's BLAS"]) as crowd:
            said = {
                each: child.do("product", key="product", runtime=each, size=size)
                for each, child in crowd.items()
            }
            runners = {each: (child, "product") for each, child in crowd.items()}
            found = race(runners, rounds=2 * effort.rounds, budget=effort.budget)
        share = values[report_.PRODUCT.format(size)] = found.ratio("NumPy's BLAS", "tvmlab")
        figures[str(size)] = {"medians": found.medians, **said["tvmlab"]}
        seconds = said["tvmlab"]["seconds"]
        print(
            f"{size}x{size}: tuned in {seconds:.0f} s to {share:.2f} of BLAS; each runtime has its"
        )
        print("  operands as its own tensors, in place", flush=True)
    return Found(values, figures)


def profiling(name: str, effort: Effort) -> Found:
    """Profile a network: what that costs, and whether its rows are the whole."""
    with tempfile.TemporaryDirectory() as folder, children(["tvmlab"]) as crowd:
        about, _, _ = opened(crowd, name, "float32", folder)
        how = {"key": "batch 1", "shape": about["shape"], "repeats": 2 * effort.rounds}
        said = crowd["tvmlab"].do("profile", **how)
    print(said["table"], flush=True)
    values = {
        report_.PROFILE.format(name): 1 + said["overhead"],
        report_.ROWS.format(name): abs(said["covered"] - 1),
    }
    return Found(values, said["data"])


def command(name: str, effort: Effort) -> Found:
    """Start the command, and compile a network by it and by the functions, alternately."""
    starts = [_seconds([sys.executable, "-m", "tvmlab", "--help"]) for _ in range(_STARTS)]
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "network.tar")
        ours = [sys.executable, "-m", "tvmlab", "compile", name, "-o", path]
        functions = [sys.executable, "-c", _FUNCTIONS, name, path]
        for _ in range(min(3, effort.rounds)):
            ratios.append(_seconds(ours) / _seconds(functions))
    values = {
        report_.COMMAND: statistics.median(starts),
        report_.COMMAND_COMPILES.format(name): statistics.median(ratios),
    }
    return Found(values, {"start_seconds": starts, "ratios": ratios})


def _seconds(line: Sequence[str | Path]) -> float:
    start = time.perf_counter()
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def deployment(name: str, effort: Effort) -> Found:
    """Run a package in the C++ program and in Python, alternately, a third of a second each.

    The process that does not run is stopped, so that both meet the same moments of the machine. A
    call that a stop falls into is one of ten, which a median leaves out.
    """
    rounds, repeats = (2, 5) if effort.quick else (9, 300)
    with tempfile.TemporaryDirectory() as folder, children(["tvmlab"]) as crowd:
        about, _, _ = opened(crowd, name, "float32", folder)
        package, x = (str(Path(folder) / file) for file in ("network.tar", "x.npy"))
        crowd["tvmlab"].do("save", key="batch 1", path=package)
        crowd["tvmlab"].close()
        np.save(x, np.random.default_rng(0).random(about["shape"], "f"))
        program = str(deploy.program())
        lines = [
            [program, package, x, "--repeats", str(repeats)],
            [sys.executable, "-c", _PYTHON, package, x, str(repeats)],
        ]
        pairs = []
        for _ in range(rounds):
            cpp, python = alternated(lines)
            (milliseconds,) = re.findall(r"^([\d.]+) ms a call", cpp, re.MULTILINE)
            pairs.append((float(milliseconds), float(python)))
        starts = [_seconds([program, package, x, "--repeats", "0"]) for _ in range(rounds)]
    values = {
        report_.DEPLOY.format(name): statistics.median(cpp / python for cpp, python in pairs),
        report_.DEPLOY_STARTS.format(name): statistics.median(starts),
    }
    return Found(values, {"milliseconds": pairs, "start_seconds": starts})


def alternated(lines: Sequence[Sequence[str]]) -> list[str]:
    """Run several programs of which one at a time is not stopped; return what they wrote."""
    started = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for line in lines]
    for process in started:
        process.send_signal(signal.SIGSTOP)
    try:
        while running := [process for process in started if process.poll() is None]:
            for process in running:
                process.send_signal(signal.SIGCONT)
                time.sleep(_TURN)
                process.send_signal(signal.SIGSTOP)
    finally:  # Interrupted: none stays behind stopped.
        for process in started:
            process.kill()
    written = [process.communicate()[0] for process in started]
    for process in started:
        if process.returncode != 0:
            raise ChildError(f"{process.args} ended with {process.returncode}")
    return written


#: The sections in their order. The first two run over every network, the others over one.
SECTIONS: dict[str, Callable[[str, Effort], Found]] = {
    "networks": networks,
    "int8": int8,
    "tflite": tflite,
    "convolutions": convolutions,
    "compile": compilation,
    "memory": memory,
    "batch": batch,
    "relay": relay,
    "tuning": tuning,
    "products": products,
    "profiling": profiling,
    "command": command,
    "deploy": deployment,
}
