"""The report of `make bench`: settings, tables, the bars of its measures, and README's block."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

#: Above the tables.
SETTINGS = """\
{threads} threads for each candidate. intra_op_num_threads={onnxruntime_threads} for ONNX Runtime,
where 0 is its default, which binds its workers to cores.
This number is set: TVM_NUM_THREADS (by tvmlab), OpenVINO's INFERENCE_NUM_THREADS, PyTorch's
set_num_threads, LiteRT's num_threads. Also set are OpenVINO's PERFORMANCE_HINT=LATENCY and
INFERENCE_PRECISION_HINT=f32, which is for what is not quantized.
All other settings are the runtimes' defaults, so idle threads spin where that is the default.
Each candidate has a process of its own, only one computes at a time, and each round begins with
another one. Every candidate takes and returns NumPy arrays, but convolutions and products, whose
operands are the runtime's own tensors. No section but products tunes anything first."""

#: What a measure has to reach.
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
    "Relay text read: a call of 10,000 / a call of 1,000": ("<=", 1.3),
    "Relay text printed: a call of 10,000 / a call of 1,000": ("<=", 1.3),
    "resnet50_v2 as Relay text: seconds to read": ("<=", 15),
    "resnet50_v2 as Relay text: memory to read it, GB": ("<=", 1.5),
    "candidates measured per minute: ours / MetaSchedule": (">=", 3),
    "a product of 512x512 matrices after 64 candidates: share of BLAS": (">=", 0.9),
    "a product of 1024x1024 matrices after 64 candidates: share of BLAS": (">=", 0.9),
    "resnet50_v2: time when it is profiled / time when it is not": ("<=", 1.05),
    "resnet50_v2: the rows of its profile / the whole, how far from 1": ("<=", 0.05),
    "tvmlab --help: seconds": ("<=", 0.15),
    "resnet50_v2: tvmlab compile / the same by the functions": ("<=", 1.1),
    "resnet50_v2: a call in the C++ program / in Python": ("<=", 1.02),
    "resnet50_v2: seconds from the start of the C++ program to its first result": ("<=", 1.0),
}
#: The measures that README quotes beside the races.
QUOTED = (
    "resnet50_v2: a direct convolution's share of the peak, median",
    "resnet50_v2: a Winograd convolution's effective rate / the peak, median",
    "resnet50_v2: seconds from the model file to the first result",
    "resnet50_v2: memory of the running model / weights",
    "resnet50_v2: time per image, batch 16 / batch 1",
    "resnet50_v2: a call in the C++ program / in Python",
    "resnet50_v2: seconds from the start of the C++ program to its first result",
)
#: The sections whose races README quotes.
RACES = ("networks", "int8", "tflite")
#: The other runtimes that README's table of races shows.
OTHERS = ("ONNX Runtime", "OpenVINO", "PyTorch compiled", "LiteRT")
# The words of README's block, by Sphinx's name of the language.
_WORDS = {
    "en": {
        "made": "Measured at commit `{commit}` on {date}: {cpu} (LLVM: `{mcpu}`), {threads} "
        "threads for each candidate: {onnxruntime}, and set for TVM, OpenVINO, PyTorch and LiteRT. "
        "Versions: {versions}.",
        "default": "ONNX Runtime's default (`intra_op_num_threads=0`)",
        "set": "set for ONNX Runtime (`intra_op_num_threads={}`)",
        "noisy": " Other programs took up to {taken_by_others:.0%} of the machine meanwhile.",
        "races": ("ms per call", "tvmlab / fastest other"),
        "measures": ("measure", "value", "bar"),
        "absent": "not installed",
    },
    "zh_CN": {
        "made": "测量于 {date}，提交 `{commit}`：{cpu}（LLVM：`{mcpu}`），"
        "每个候选 {threads} 个线程：{onnxruntime}，TVM、OpenVINO、PyTorch 和 LiteRT "
        "的线程数由测量程序设定。版本：{versions}。",
        "default": "ONNX Runtime 用其默认值（`intra_op_num_threads=0`）",
        "set": "ONNX Runtime 的由测量程序设定（`intra_op_num_threads={}`）",
        "noisy": "期间其他程序最多占用了机器的 {taken_by_others:.0%}。",
        "races": ("每次调用的毫秒数", "tvmlab / 其余最快者"),
        "measures": ("度量", "值", "标准"),
        "absent": "未安装",
    },
}


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows of one length in columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)


def race_table(title: str, candidates: Mapping[str, Mapping[str, Any]], over: str) -> str:
    """Lay out a race as a table with ratios over a candidate; absent ones have a reason below."""
    rows, absent = [(title, "ms", "spread", f"over {over}", "error")], []
    for name, one in candidates.items():
        if "absent" in one:
            absent.append(f"  {name}: {one['absent']}")
            continue
        texts = f"{one['ms']:.3g}", f"{one['spread']:.0%}", f"{one['over']:.2f}"
        rows.append((f"  {name}", *texts, f"{one['error']:.1e}"))
    return "\n".join([columns(rows), *absent])


def met(measure: str, value: float) -> bool | None:
    """Return whether a value reaches the bar of its measure, None where it has none."""
    if measure not in BARS:
        return None
    sign, bar = BARS[measure]
    return bool({"<=": operator.le, ">=": operator.ge}[sign](value, bar))


def _bar(measure: str) -> str:
    return "{} {:.3g}".format(*BARS[measure]) if measure in BARS else ""


def table(values: Mapping[str, float]) -> str:
    """Lay out measures beside their bars, with a line below on the bars that are missed."""
    words = {True: "yes", False: "missed", None: ""}
    rows = [("measure", "value", "bar", "met?")]
    for measure, value in values.items():
        rows.append((measure, f"{value:.3g}", _bar(measure), words[met(measure, value)]))
    missed = [measure for measure, value in values.items() if met(measure, value) is False]
    unmeasured = len(set(BARS) - set(values))
    text = f"missed: {'; '.join(missed)}" if missed else "no measured bar is missed"
    rest = f"\nnot measured: {unmeasured} of {len(BARS)} bars" if unmeasured else ""
    return f"{columns(rows)}\n\n{text}{rest}"


def quoted(report: Mapping[str, Any]) -> dict[str, Any]:
    """Take from a report of `make bench` what README quotes: the content of docs/bench.json."""
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
        "measures": [{"measure": each, "value": values[each]} for each in QUOTED if each in values],
    }


def block(data: Mapping[str, Any], language: str) -> str:
    """Write README's block of figures, in Markdown, from the content of docs/bench.json."""
    words, fixed = _WORDS[language], data["onnxruntime_threads"]
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    threads = words["set" if fixed else "default"].format(fixed)
    heading = words["made"] + (words["noisy"] if data["taken_by_others"] > 0.05 else "")
    heading = heading.format(**data | {"versions": versions, "onnxruntime": threads})
    present = {name for times in data["races"].values() for name in times}
    others = [name for name in OTHERS if name in present]
    heads = " | ".join((words["races"][0], "tvmlab", *others, words["races"][1]))
    lines = [heading, "", f"| {heads} |", "|---|" + "---:|" * (len(others) + 2)]
    for race, times in data["races"].items():
        ours = times.get("tvmlab int8", times.get("tvmlab"))
        cells = [ours, *(times.get(name, "") for name in others)]
        known = [cell for cell in cells[1:] if isinstance(cell, float)]
        texts = [
            f"{cell:.3g}" if isinstance(cell, float) else cell and words["absent"] for cell in cells
        ]
        ratio = f"{ours / min(known):.2f}" if known else ""
        lines.append(f"| {race} | {' | '.join(texts)} | {ratio} |")
    lines += ["", f"| {' | '.join(words['measures'])} |", "|---|---:|---:|"]
    for row in data["measures"]:
        lines.append(f"| {row['measure']} | {row['value']:.3g} | {_bar(row['measure'])} |")
    return "\n".join(lines)
