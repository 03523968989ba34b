"""What `make bench` says: its settings, each measure beside its bar, and the block of README."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

#: Above the tables. ``onnxruntime`` is one of the texts below.
SETTINGS = """\
{threads} threads for each candidate.
{onnxruntime}
This number is set: TVM_NUM_THREADS (by tvmlab), OpenVINO's INFERENCE_NUM_THREADS, PyTorch's
set_num_threads, LiteRT's num_threads. Also set are OpenVINO's PERFORMANCE_HINT=LATENCY and
INFERENCE_PRECISION_HINT=f32, which is for what is not quantized.
All other settings are the runtimes' defaults, so idle threads spin where that is the default.
Each candidate has a process of its own, only one computes at a time, and each round begins with
another one. Every candidate takes and returns NumPy arrays. No section but products tunes anything
first."""
_ONNXRUNTIME = {
    True: "ONNX Runtime has its default, intra_op_num_threads=0, which binds its workers to cores.",
    False: "ONNX Runtime would take another number by default: intra_op_num_threads={} is set.",
}


def settings(threads: int, onnxruntime: int) -> str:
    """Say which settings of the runtimes are set, and which are their defaults.

    Parameters
    ----------
    threads : int
        Threads of each candidate.
    onnxruntime : int
        ONNX Runtime's ``intra_op_num_threads``; 0 is its default.
    """
    said = _ONNXRUNTIME[onnxruntime == 0].format(onnxruntime)
    return SETTINGS.format(threads=threads, onnxruntime=said)


@dataclass(frozen=True)
class Bar:
    """What a measure has to reach: the bar is enough, the aim is hoped for."""

    bar: float
    aim: float | None = None
    more: bool = False  # whether more is better

    def met(self, value: float) -> str:
        """Say "aim", "bar" or "no"."""
        sign = -1 if self.more else 1
        if self.aim is not None and sign * value <= sign * self.aim:
            return "aim"
        return "bar" if sign * value <= sign * self.bar else "no"


# The names of measures. The first three are of each network, in float32 or in int8.
RATIO = "{}: ours / {}"
ERROR = "{}: relative error"
GAIN = "{}, ours: int8 / float32"
SHARE = "{}: a direct convolution's share of the peak, median"
WINOGRAD = "{}: a Winograd convolution's effective rate / the peak, median"
COMPILE = "{}: seconds from the model file to the first result"
MEMORY = "{}: memory of the running model / weights"
BATCH = "{}: time per image, batch 16 / batch 1"
RELAY_READ = "Relay text, 10,000 calls: seconds to read"
RELAY_PRINT = "Relay text, 10,000 calls: seconds to print"
RELAY_READ_GROWS = "Relay text read: a call of 10,000 / a call of 1,000"
RELAY_PRINT_GROWS = "Relay text printed: a call of 10,000 / a call of 1,000"
RELAY_NETWORK = "{} as Relay text: seconds to read"
RELAY_MEMORY = "{} as Relay text: memory to read it, GB"
PRODUCT = "a product of {0}x{0} matrices after 64 candidates: share of BLAS"
PROFILE = "{}: time when it is profiled / time when it is not"
ROWS = "{}: the rows of its profile / the whole, how far from 1"
COMMAND = "tvmlab --help: seconds"
COMMAND_COMPILES = "{}: tvmlab compile / the same by the functions"
TUNING = "candidates measured per minute: ours / MetaSchedule"
DEPLOY = "{}: a call in the C++ program / in Python"
DEPLOY_STARTS = "{}: seconds from the start of the C++ program to its first result"

_LARGEST = "resnet50_v2"
BARS = {
    RATIO.format("resnet50_v2", "ONNX Runtime"): Bar(0.95, 0.8),
    RATIO.format("resnet18_v2", "ONNX Runtime"): Bar(1.2, 0.9),
    RATIO.format("mobilenet_v2", "ONNX Runtime"): Bar(1.2, 0.9),
    RATIO.format("digits_resnet", "ONNX Runtime"): Bar(1.0, 0.7),
    ERROR.format("resnet50_v2"): Bar(1e-4),
    ERROR.format("resnet18_v2"): Bar(1e-4),
    ERROR.format("mobilenet_v2"): Bar(1e-4),
    ERROR.format("digits_resnet"): Bar(1e-4),
    RATIO.format("resnet50_v2 int8", "ONNX Runtime"): Bar(0.8, 0.5),
    GAIN.format(_LARGEST): Bar(0.5),
    SHARE.format(_LARGEST): Bar(0.75, 0.9, more=True),
    COMPILE.format(_LARGEST): Bar(20, 8),
    MEMORY.format(_LARGEST): Bar(2, 1.4),
    BATCH.format(_LARGEST): Bar(1.0, 0.9),
    RELAY_READ: Bar(5),
    RELAY_PRINT: Bar(3),
    RELAY_READ_GROWS: Bar(1.3),
    RELAY_PRINT_GROWS: Bar(1.3),
    RELAY_NETWORK.format(_LARGEST): Bar(15),
    RELAY_MEMORY.format(_LARGEST): Bar(1.5),
    TUNING: Bar(3, more=True),
    **{PRODUCT.format(size): Bar(0.9, more=True) for size in (512, 1024)},
    PROFILE.format(_LARGEST): Bar(1.05, 1.01),
    ROWS.format(_LARGEST): Bar(0.05),
    COMMAND: Bar(0.15),
    COMMAND_COMPILES.format(_LARGEST): Bar(1.1),
    DEPLOY.format(_LARGEST): Bar(1.02),
    DEPLOY_STARTS.format(_LARGEST): Bar(1.0),
}

#: The columns of README's table of races, by the candidates that they show; the first is ours.
COLUMNS = {
    "tvmlab": ("tvmlab int8", "tvmlab"),
    "ONNX Runtime": ("ONNX Runtime",),
    "OpenVINO": ("OpenVINO",),
    "PyTorch compiled": ("PyTorch compiled",),
    "LiteRT": ("LiteRT",),
}
#: The measures that README quotes beside the races.
QUOTED = tuple(
    text.format(_LARGEST)
    for text in (SHARE, WINOGRAD, COMPILE, MEMORY, BATCH, DEPLOY, DEPLOY_STARTS)
)
# What README's block says around its figures, by Sphinx's name of the language.
_WORDS = {
    "en": {
        "made": "Measured at commit `{commit}` on {date}: {cpu} (LLVM: `{mcpu}`), {threads} "
        "threads for each candidate: {onnxruntime}, and set for TVM, OpenVINO, PyTorch and LiteRT. "
        "Versions: {versions}.",
        "default": "ONNX Runtime's default (`intra_op_num_threads=0`)",
        "set": "set for ONNX Runtime (`intra_op_num_threads={}`)",
        "noisy": "Other programs took up to {noise:.0%} of the machine meanwhile.",
        "quick": "This was a quick run of few rounds.",
        "races": ("ms per call", "tvmlab / fastest other"),
        "measures": ("measure", "value", "bar"),
        "absent": "not installed",
        "nothing": "*No run on a quiet machine is quoted yet.*",
    },
    "zh_CN": {
        "made": "测量于 {date}，提交 `{commit}`：{cpu}（LLVM：`{mcpu}`），"
        "每个候选 {threads} 个线程：{onnxruntime}，TVM、OpenVINO、PyTorch 和 LiteRT "
        "的线程数由测量程序设定。版本：{versions}。",
        "default": "ONNX Runtime 用其默认值（`intra_op_num_threads=0`）",
        "set": "ONNX Runtime 的由测量程序设定（`intra_op_num_threads={}`）",
        "noisy": "期间其他程序最多占用了机器的 {noise:.0%}。",
        "quick": "这是一次轮数很少的快速测量。",
        "races": ("每次调用的毫秒数", "tvmlab / 其余最快者"),
        "measures": ("度量", "值", "标准"),
        "absent": "未安装",
        "nothing": "*这里还没有引用安静机器上的测量。*",
    },
}


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Lay rows of one length out in columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)


def number(value: float | None) -> str:
    """Write a number with three digits, and nothing for None."""
    return "" if value is None else f"{value:.3g}"


# Of the operations that define a network: Winograd, which some runtimes use, executes fewer.
_EFFECTIVE = ("effective GFLOP/s", "over the peak")


def race_table(title: str, candidates: Mapping[str, Mapping[str, Any]], over: str) -> str:
    """Lay a race out as a table: a candidate that is absent says why.

    Parameters
    ----------
    title : str
        What raced.
    candidates : mapping of str to mapping
        For each candidate either "absent", a reason, or the figures of `bench.raced`.
    over : str
        The candidate that the ratios are over.
    """
    rows = [(title, "ms", "spread", f"over {over}", "error", "ready in s", *_EFFECTIVE)]
    absent = []
    for name, one in candidates.items():
        if "absent" in one:
            absent.append(f"  {name}: {one['absent']}")
            continue
        rate, share = one.get("flops"), one.get("of_peak")
        rows.append(
            (
                f"  {name}",
                f"{1e3 * one['median_seconds']:.3g}",
                f"{one['spread']:.0%}",
                f"{one['over']:.2f}",
                f"{one['error']:.1e}",
                f"{one['ready_seconds']:.1f}",
                f"{rate / 1e9:.3g}" if rate else "",
                f"{share:.0%}" if share else "",
            )
        )
    return "\n".join([columns(rows), *absent])


def verdicts(values: Mapping[str, float]) -> list[dict[str, Any]]:
    """Put each measure beside its bar; without one "bar", "aim", "more" and "met" are None."""
    rows = []
    for name, value in values.items():
        bar = BARS.get(name)
        told = asdict(bar) if bar else dict.fromkeys(("bar", "aim", "more"))
        rows.append(
            {"measure": name, "value": value} | told | {"met": bar.met(value) if bar else None}
        )
    return rows


def _limit(row: Mapping[str, Any], key: str = "bar") -> str:
    sign = ">= " if row["more"] else "<= "
    return number(row[key]) and sign + number(row[key])


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay the verdicts out as a table, with a line below on the bars that are missed."""
    lines = [("measure", "value", "bar", "aim", "met?")]
    for row in rows:
        bar, aim = _limit(row), _limit(row, "aim")
        lines.append((row["measure"], number(row["value"]), bar, aim, row["met"] or ""))
    missed = [row["measure"] for row in rows if row["met"] == "no"]
    absent = set(BARS) - {row["measure"] for row in rows}
    text = columns(lines)
    text += f"\n\nmissed: {'; '.join(missed)}" if missed else "\n\nno measured bar is missed"
    return text + (f"\nnot measured: {len(absent)} of {len(BARS)} bars" if absent else "")


def quoted(report: Mapping[str, Any]) -> dict[str, Any]:
    """Take from a report of `make bench` what README quotes: the content of docs/bench.json."""
    facts = ("commit", "date", "cpu", "mcpu", "threads", "onnxruntime_threads", "versions", "quick")
    races, noise = {}, 0.0
    for section in ("networks", "int8", "tflite"):
        for found in report["sections"].get(section, {}).values():
            noise = max(noise, found["taken_by_others"])
            races[found["race"]] = {
                candidate: one.get("absent") or round(1e3 * one["median_seconds"], 4)
                for candidate, one in found["candidates"].items()
            }
    rows = verdicts({name: value for name, value in report["values"].items() if name in QUOTED})
    return {name: report[name] for name in facts} | {
        "taken_by_others": round(noise, 3),
        "races": races,
        "measures": rows,
    }


def block(data: Mapping[str, Any], language: str) -> str:
    """Write README's block of figures, in Markdown, from the content of docs/bench.json."""
    words = _WORDS[language]
    if not data:
        return words["nothing"]
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    number_set = data["onnxruntime_threads"]
    told = words["set" if number_set else "default"].format(number_set)
    said = words["made"].format(**data | {"versions": versions, "onnxruntime": told})
    join = " " if language == "en" else ""
    if data["taken_by_others"] > 0.05:
        said += join + words["noisy"].format(noise=data["taken_by_others"])
    if data["quick"]:
        said += join + words["quick"]
    raced = {one for times in data["races"].values() for one in times}
    shown_columns = {name: some for name, some in COLUMNS.items() if raced & {*some}}
    heads = " | ".join((words["races"][0], *shown_columns, words["races"][1]))
    lines = [said, "", f"| {heads} |", "|---|" + "---:|" * (len(shown_columns) + 1)]
    for name, times in data["races"].items():
        shown = [
            next((times[one] for one in candidates if one in times), "")
            for candidates in shown_columns.values()
        ]
        ours, *others = shown
        known = [other for other in others if isinstance(other, float)]
        cells = [
            number(one) if isinstance(one, float) else one and words["absent"] for one in shown
        ]
        ratio = f"{ours / min(known):.2f}" if known else ""
        lines.append(f"| {name} | {' | '.join(cells)} | {ratio} |")
    if data["measures"]:
        lines += ["", f"| {' | '.join(words['measures'])} |", "|---|---:|---:|"]
    for row in data["measures"]:
        lines.append(f"| {row['measure']} | {number(row['value'])} | {_limit(row)} |")
    return "\n".join(lines)
