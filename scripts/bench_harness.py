"""Shared parts of the sections of `make bench`: processes, model files, comparisons, the report.

The idle threads of a runtime spin for some time before they sleep. The spinning threads of one
candidate would slow down another candidate in the same process or in a process that runs at the
same time. Therefore each candidate has its own process and keeps its runtime's default, and `race`
waits before each turn until all processes are idle.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import json
import math
import multiprocessing
import operator
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple

import numpy as np

import tvmlab
from tvmlab import models
from tvmlab.measure import bench
from tvmlab.measure.bench import Comparison
from tvmlab.support import wording
from tvmlab.support.host import processor_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("apache-tvm", "numpy", "onnxruntime", "openvino", "torch", "ai-edge-litert")
# The share of the processors that other programs can use before a section prints a warning, and
# before the results are too noisy for README.
NOISY, TOO_NOISY = 0.05, 0.2
# A turn lasts at least this long, so that occasional delays affect every turn. The turns of single
# convolutions are short, so that the clock rate cannot drift between them and the peak.
TURN_SECONDS, CONVOLUTION_SECONDS = 0.05, 0.01
# Each turn begins with untimed calls, at least one and for this long, so that the threads are awake
# and the caches are warm, as in a sequence of images.
WARMUP_SECONDS = 0.005
# Seconds per job. The slowest job, `torch.compile`, takes half a minute.
TIMEOUT = 900.0
#: The text above the tables.
SETTINGS = """\
Each candidate uses {threads} threads. ONNX Runtime has intra_op_num_threads={onnxruntime_threads},
where 0 is its default, which binds its workers to cores. The number is set by TVM_NUM_THREADS (by
tvmlab), OpenVINO's INFERENCE_NUM_THREADS, PyTorch's set_num_threads and LiteRT's num_threads.
OpenVINO also has PERFORMANCE_HINT=LATENCY, and INFERENCE_PRECISION_HINT=f32 for operators that are
not quantized. All other settings are the runtimes' defaults, so idle threads spin if that is the
default. Each candidate has its own process, only one process computes at a time, and each round
starts with a different candidate. Every candidate takes and returns NumPy arrays, except in the
sections convolutions and products, whose operands are the runtime's own tensors. Only the section
products tunes its schedules."""

#: The required value of each measure, its bar.
BARS = {
    "resnet50_v2: ours / ONNX Runtime": ("<=", 0.95),
    "resnet18_v2: ours / ONNX Runtime": ("<=", 1.2),
    "mobilenet_v2: ours / ONNX Runtime": ("<=", 1.2),
    "digits_resnet: ours / ONNX Runtime": ("<=", 1.0),
    "resnet50_v2: relative error": ("<=", 1e-4),
    "resnet18_v2: relative error": ("<=", 1e-4),
    "mobilenet_v2: relative error": ("<=", 1e-4),
    "digits_resnet: relative error": ("<=", 1e-4),
    "resnet50_v2 int8: ours / ONNX Runtime": ("<=", 0.8),
    "resnet50_v2, ours: int8 / float32": ("<=", 0.5),
    "resnet50_v2: a direct convolution's share of the peak, median": (">=", 0.75),
    "resnet50_v2: seconds from the model file to the first result": ("<=", 20),
    "resnet50_v2: memory of the running model / weights": ("<=", 2),
    "resnet50_v2: time per image, batch 16 / batch 1": ("<=", 1.0),
    "Relay text, 10,000 calls: seconds to read": ("<=", 5),
    "Relay text, 10,000 calls: seconds to print": ("<=", 3),
    "Relay text: time to read per call, 10,000 calls / 1,000 calls": ("<=", 1.3),
    "Relay text: time to print per call, 10,000 calls / 1,000 calls": ("<=", 1.3),
    "resnet50_v2 as Relay text: seconds to read": ("<=", 15),
    "resnet50_v2 as Relay text: memory to read it, GB": ("<=", 1.5),
    "candidates measured per minute: ours / MetaSchedule": (">=", 3),
    "a 512x512 matrix product tuned with 64 trials: speed / BLAS": (">=", 0.9),
    "a 1024x1024 matrix product tuned with 64 trials: speed / BLAS": (">=", 0.9),
    "resnet50_v2: time with profiling / time without": ("<=", 1.05),
    "resnet50_v2: |sum of the profile's rows / total time - 1|": ("<=", 0.05),
    "tvmlab --help: seconds": ("<=", 0.15),
    "resnet50_v2: tvmlab compile / the same in Python": ("<=", 1.1),
    "resnet50_v2: a call in the C++ program / in Python": ("<=", 1.02),
    "resnet50_v2: seconds from the start of the C++ program to its first result": ("<=", 1.0),
    "lm: a token's weights per second / the memory's bandwidth": (">=", 0.7),
    "lm: time per token, tvmlab / tvmlab int8": (">=", 2.5),
    "lm: time per token, tvmlab / tvmlab int4": (">=", 3.5),
    "lm: time per token, PyTorch / tvmlab": (">=", 1.3),
    "lm: time per token, PyTorch compiled / tvmlab": (">=", 1.3),
    "lm: time per token after 2000 tokens / after 100": ("<=", 1.3),
    "lm: prefill of 128 tokens, tvmlab / ONNX Runtime": ("<=", 1.0),
    "zoo: ours / the faster peer, geometric mean": ("<=", 0.95),
    "zoo: ours / the faster peer, largest": ("<=", 1.25),
    "zoo-int8: ours / the faster peer, geometric mean": ("<=", 0.85),
    "open size / static size, largest": ("<=", 1.15),
}
#: The measures that README quotes in addition to the comparisons.
QUOTED = (
    "resnet50_v2: a direct convolution's share of the peak, median",
    "resnet50_v2: a Winograd convolution's effective rate / the peak, median",
    "resnet50_v2: seconds from the model file to the first result",
    "resnet50_v2: memory of the running model / weights",
    "resnet50_v2: time per image, batch 16 / batch 1",
    "resnet50_v2: a call in the C++ program / in Python",
    "resnet50_v2: seconds from the start of the C++ program to its first result",
)
#: The sections whose comparisons README quotes.
RACES = ("networks", "int8", "tflite")
#: The networks, largest first.
NETWORKS = ("resnet50_v2", "resnet18_v2", "mobilenet_v2", "digits_resnet")
#: This process's functions that `turn` calls, by key.
TURNS: dict[str, Callable[[], float]] = {}


class Process(ProcessPoolExecutor):
    """A process for one candidate. It ends with this process, and its errors contain its name."""

    def __init__(self, name: str) -> None:
        super().__init__(1, multiprocessing.get_context("spawn"), _prepare_child)
        self.name = name
        self.pid: int = self.submit(os.getpid).result()

    def do(self, job: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Run a function in the process and return its result."""
        try:
            return self.submit(job, *arguments, **named).result(TIMEOUT)
        except Exception as error:
            if isinstance(error, TimeoutError):
                os.kill(self.pid, signal.SIGKILL)
            error.add_note(f"in the process of {self.name}, at {job.__name__}")
            raise


def _prepare_child() -> None:
    """Let the kernel end this process with its parent, and set PyTorch's environment."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    parent = multiprocessing.parent_process()
    if parent is None or not parent.is_alive():  # the parent has already ended
        os._exit(1)
    # PyTorch would start a compile process per core, which would outlive a killed parent.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


def settle(*processes: Process, look: float = 0.01, looks: int = 50) -> bool:
    """Wait until the processes use almost no processor time; return False if they never do."""
    # Linux's ids for the clocks of other processes (clock_getcpuclockid). The times in /proc have a
    # resolution of 10 ms, which is too coarse, because a look also takes 10 ms.
    clocks = [(~each.pid << 3) | 2 for each in processes]
    for _ in range(looks):
        before = sum(map(time.clock_gettime, clocks))
        time.sleep(look)
        if sum(map(time.clock_gettime, clocks)) - before < 0.2 * look:
            return True
    return False


def timed(function: Callable[[], object], seconds: float = TURN_SECONDS) -> Callable[[], float]:
    """Return a function that warms up, then times enough calls to fill `seconds`."""
    once = bench.measure(function, repeats=3).median
    warmup, number = math.ceil(WARMUP_SECONDS / once), math.ceil(seconds / once)
    return lambda: bench.measure(function, warmup=warmup, repeats=1, number=number).median


def race(turns: dict[str, Callable[[], float]], rounds: int, *processes: Process) -> Comparison:
    """Interleave turns, which return seconds per call, after one warm-up round.

    Before each turn, wait until the processes are idle.
    """
    wait = partial(settle, *processes) if processes else lambda: True
    bench.interleave(turns, 1, wait)
    return bench.interleave(turns, rounds, wait)


def foreign_seconds() -> float:
    """Return the processor time that other programs and a virtual machine's host have used.

    Linux adds the time of a child to this process when the child has ended.
    """
    fields = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    del fields[3:5]  # idle, and waiting for a disk
    return sum(fields) / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def turn(key: str = "call") -> float:
    """Time one turn of a function in this process."""
    return TURNS[key]()


def output_of(line: Sequence[str]) -> str:
    """Run a program and return its output."""
    return subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout


def seconds_of(line: Sequence[str]) -> float:
    """Run a program and return how long it takes."""
    start = time.perf_counter()
    output_of(line)
    return time.perf_counter() - start


@functools.cache
def folder() -> Path:
    """Return the folder for the files of this run, which is deleted at exit."""
    path = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, path)
    return path


class File(NamedTuple):
    """A model file with the shape and dtype of its input."""

    network: str
    path: str
    shape: list[int]
    dtype: str
    weight_bytes: int

    def input(self) -> np.ndarray:
        """Return a random input."""
        rng = np.random.default_rng(0)
        if self.dtype == "int8":
            return rng.integers(-128, 128, self.shape, "int8")
        if self.dtype == "int64":  # tokens
            return rng.integers(3, 99, self.shape, "int64")
        return rng.random(self.shape, "f")


def network(name: str, batch: int = 1) -> models.Model:
    """Return a network of `NETWORKS` or of the zoo, with seeded weights also for ResNet-50 v2."""
    if name not in NETWORKS:
        import networks
        import torch

        module, inputs = networks.network(name)
        program = torch.onnx.export(module, inputs, dynamo=True, verbose=False, optimize=True)
        return models.Model(program.model_proto, name, "seeded")
    weights = ["seeded"] if name == "resnet50_v2" else []
    return getattr(models, name)(*weights, batch=batch)


def zoo(section: str) -> list[str]:
    """List the networks of a section on the zoo: for int8, those that take photographs."""
    import networks

    images = [name for name, (_, arguments, _) in networks.ZOO.items() if 224 in arguments]
    return images if section == "zoo-int8" else list(networks.ZOO)


def summed_up(section: str, names: list[str], values: Mapping[str, float]) -> dict[str, float]:
    """Return the geometric mean and the largest of the ratios to the faster peer."""
    ratios = {}
    for name in names:
        label = name if section == "zoo" else f"{name} int8"
        peers = [values.get(f"{label}: ours / {peer}") for peer in ("ONNX Runtime", "OpenVINO")]
        if found := [ratio for ratio in peers if ratio]:
            ratios[name] = max(found)
    if not ratios:
        return {}
    worst = max(ratios, key=lambda name: ratios[name])
    print(f"\n{section}: the slowest of {len(ratios)} networks is {worst}", flush=True)
    return {
        f"{section}: ours / the faster peer, geometric mean": geometric_mean(ratios.values()),
        f"{section}: ours / the faster peer, largest": ratios[worst],
    }


def difference(got: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference, relative to the largest expected number."""
    return float(np.abs(got - expected).max() / np.abs(expected).max())


@functools.cache
def written(name: str, form: str = "float32", batch: int = 1) -> File:
    """Write a network as a model file in its own process, which then ends with its threads."""
    path = folder() / f"{name}-{form}-{batch}.{'tflite' if 'tflite' in form else 'onnx'}"
    with Process("the writer of models") as writer:
        return writer.do(write, name, form, batch, path)


def write(name: str, form: str, batch: int, path: Path) -> File:
    """Write a network as a model file in one form, with seeded weights."""
    if form == "tflite int8":
        from tvmlab.models.resnet8 import resnet8_tflite

        path.write_bytes(resnet8_tflite())
        return File(name, str(path), [1, 32, 32, 3], "int8", 0)
    import onnx

    from tvmlab.models.quantized import quantized_onnx

    model = network(name, batch)
    onnx.save(quantized_onnx(model) if form == "int8" else model.proto, path)
    weights = sum(onnx.numpy_helper.to_array(t).nbytes for t in model.proto.graph.initializer)
    dtype = model.proto.graph.input[0].type.tensor_type.elem_type
    name_of = onnx.helper.tensor_dtype_to_np_dtype(dtype).name
    return File(name, str(path), [int(size) for size in model.input_shape], name_of, weights)


def peak_memory(*, forget: bool = False) -> int:
    """Return the peak memory of this process in bytes; `forget` first resets the peak."""
    if forget:
        Path("/proc/self/clear_refs").write_text("5")
    (kib,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(kib)


def machine() -> dict[str, Any]:
    """Return the commit, the processor, the thread counts and the versions.

    This sets the number of threads in the environment, which the child processes inherit.
    """
    installed = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    # Changes of notebooks and prose do not affect the results.
    changed = _git("status", "--porcelain", "--", "tvmlab", "scripts", "pyproject.toml")
    return {
        "commit": _git("rev-parse", "--short", "HEAD") + " with changes" * bool(changed),
        "cpu": processor_name(),
        "mcpu": json.loads(str(tvmlab.host_target())).get("mcpu", ""),
        "threads": bench.peer_threads(),
        "onnxruntime_threads": bench.onnxruntime_threads(),
        "versions": {"Python": platform.python_version()}
        | {name: installed[name] for name in PACKAGES if name in installed},
    }


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def opened(output: Path, quick: bool) -> dict[str, Any]:
    """Start a report with earlier results of the same commit and machine; print its heading."""
    facts = machine() | {"quick": quick}
    old = json.loads(output.read_text()) if output.is_file() else {}
    changed = "changes" in facts["commit"] or any(old.get(name) != facts[name] for name in facts)
    kept = {"values": {}, "races": {}, "noise": {}} if changed else old
    report: dict[str, Any] = kept | facts | {"date": time.strftime("%Y-%m-%d"), "failures": []}
    print(f"{report['cpu']} (LLVM: {report['mcpu']}), commit {report['commit']}")
    print(SETTINGS.format(**report), flush=True)
    return report


def enter(report: dict[str, Any], title: str, section: Callable[[], Mapping[str, Any]]) -> None:
    """Run a section and enter its results in the report."""
    print(f"\n{title}", flush=True)
    before, start = foreign_seconds(), time.perf_counter()
    try:
        found = section()
    except Exception as error:  # the other sections still run
        traceback.print_exc()
        report["failures"].append(f"{title}: {error}")
        return
    seconds = time.perf_counter() - start
    others = max(0.0, (foreign_seconds() - before) / seconds / (os.cpu_count() or 1))
    if others > NOISY:
        print(f"noisy: other programs used {others:.0%} of the processors", flush=True)
    for key, value in found.items():
        kind = "races" if isinstance(value, dict) else "values"
        report[kind][key] = value
    report["noise"][title] = others


def closed(report: Mapping[str, Any], output: Path) -> int:
    """Write a report, print its tables and return the exit status."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"\n{table(report['values'])}\nall results are in {output}")
    for failure in report["failures"]:
        print(f"failed: {failure.splitlines()[0]}")
    return 1 if report["failures"] else 0


def race_figures(
    found: Comparison, outputs: Mapping[str, np.ndarray], over: str
) -> dict[str, dict[str, float]]:
    """Return the time, ratio and error of each candidate, relative to the candidate `over`."""
    expected = outputs[over].astype(float)
    return {
        name: {
            "ms": 1e3 * run.median,
            "spread": run.spread,
            "over": found.ratio(name, over),
            "error": difference(outputs[name], expected),
        }
        for name, run in found.runs.items()
    }


def race_table(title: str, candidates: Mapping[str, Mapping[str, Any]], over: str) -> str:
    """Format a comparison as a table, with the reasons for absent candidates below."""
    rows, absent = list[tuple[str, ...]](), list[str]()
    for name, one in candidates.items():
        if "absent" in one:
            absent.append(f"  {name}: {one['absent']}")
            continue
        texts = f"{one['ms']:.3g}", f"{one['spread']:.0%}", f"{one['over']:.2f}"
        rows.append((f"  {name}", *texts, f"{one['error']:.1e}"))
    head = title, "ms", "spread", f"over {over}", "error"
    return "\n".join([wording.table(head, rows), *absent])


def met(measure: str, value: float) -> bool | None:
    """Return whether a value meets the bar of its measure, or None if it has no bar."""
    if measure not in BARS:
        return None
    sign, bar = BARS[measure]
    return bool({"<=": operator.le, ">=": operator.ge}[sign](value, bar))


def _bar(measure: str) -> str:
    return "{} {:.3g}".format(*BARS[measure]) if measure in BARS else ""


def table(values: Mapping[str, float]) -> str:
    """Format the measures with their bars as a table, with the missed bars in a line below."""
    words = {True: "yes", False: "missed", None: ""}
    rows = []
    for measure, value in values.items():
        rows.append((measure, f"{value:.3g}", _bar(measure), words[met(measure, value)]))
    missed = [measure for measure, value in values.items() if met(measure, value) is False]
    unmeasured = len(set(BARS) - set(values))
    text = f"missed: {'; '.join(missed)}" if missed else "no measured bar is missed"
    rest = f"\nnot measured: {unmeasured} of {len(BARS)} bars" if unmeasured else ""
    return f"{wording.table(('measure', 'value', 'bar', 'met?'), rows)}\n\n{text}{rest}"


def quoted(report: Mapping[str, Any]) -> dict[str, Any]:
    """Extract README's results from a report of `make bench`, as the content of docs/bench.json."""
    facts = ("commit", "date", "cpu", "mcpu", "threads", "onnxruntime_threads", "versions", "quick")
    races = {
        race: {name: one.get("absent") or round(one["ms"], 4) for name, one in candidates.items()}
        for race, candidates in report["races"].items()
    }
    noise = [share for name, share in report["noise"].items() if name.startswith(RACES)]
    values = report["values"]
    return {name: report[name] for name in facts} | {
        "taken_by_others": round(max(noise, default=0.0), 3),
        "races": races,
        "measures": [
            {"measure": each, "value": values[each], "bar": _bar(each)}
            for each in QUOTED
            if each in values
        ],
    }


def quote(source: Path, target: Path) -> bool:
    """Write README's results from a report to a file, unless the report is quick or noisy."""
    data = quoted(json.loads(source.read_text(encoding="utf-8")))
    if data["quick"] or data["taken_by_others"] > TOO_NOISY:
        print("not quoted: the run was quick, or other programs used too much processor time")
        return False
    text = json.dumps(data, indent=1, ensure_ascii=False)
    target.write_text(text + "\n", encoding="utf-8")
    return True
