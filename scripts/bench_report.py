"""What `make bench` says: each measure beside the bar it shall reach and the aim beyond it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Bar:
    """What a measure shall reach.

    Attributes
    ----------
    bar : float
        What is enough.
    aim : float or None
        What is hoped for.
    more : bool
        Whether more is better.
    """

    bar: float
    aim: float | None = None
    more: bool = False

    def met(self, value: float) -> str:
        """Say "aim", "bar" or "no"."""
        sign = -1 if self.more else 1
        if self.aim is not None and sign * value <= sign * self.aim:
            return "aim"
        return "bar" if sign * value <= sign * self.bar else "no"


RATIO = "{}: ours / ONNX Runtime"
ERROR = "{}: relative error"
SHARE = "{}: a convolution's share of the peak, median"
COMPILE = "{}: compile time, seconds"
MEMORY = "{}: memory of the running model / weights"
BATCH = "{}: time per image, batch 16 / batch 1"
RELAY_READ = "Relay text, 10,000 calls: seconds to read"
RELAY_PRINT = "Relay text, 10,000 calls: seconds to print"
RELAY_READ_GROWS = "Relay text read: a call of 10,000 / a call of 1,000"
RELAY_PRINT_GROWS = "Relay text printed: a call of 10,000 / a call of 1,000"
RELAY_NETWORK = "{} as Relay text: seconds to read"
RELAY_MEMORY = "{} as Relay text: memory to read it, GB"
QUANTIZED_RATIO = "{} in int8: ours / ONNX Runtime"
QUANTIZED_GAIN = "{}, ours: int8 / float32"
RECORDS = "{}: a function with records / by its rule, at most"
PRODUCT = "a product of {0}x{0} matrices after 64 candidates: share of BLAS"
PROFILE = "{}: time when it is profiled / time when it is not"
COMMAND = "tvmlab --help: seconds"
COMMAND_COMPILES = "{}: tvmlab compile / the same by the functions"
ROWS = "{}: the rows of its profile / the whole, how far from 1"
TUNING = "candidates measured a minute: ours / MetaSchedule"

BARS = {
    RATIO.format("resnet50_v2"): Bar(0.95, 0.8),
    RATIO.format("resnet18_v2"): Bar(1.2, 0.9),
    RATIO.format("mobilenet_v2"): Bar(1.2, 0.9),
    RATIO.format("digits_resnet"): Bar(1.0, 0.7),
    ERROR.format("resnet50_v2"): Bar(1e-4),
    ERROR.format("resnet18_v2"): Bar(1e-4),
    ERROR.format("mobilenet_v2"): Bar(1e-4),
    ERROR.format("digits_resnet"): Bar(1e-4),
    SHARE.format("resnet50_v2"): Bar(0.75, 0.9, more=True),
    COMPILE.format("resnet50_v2"): Bar(20, 8),
    MEMORY.format("resnet50_v2"): Bar(2, 1.4),
    BATCH.format("resnet50_v2"): Bar(1.0, 0.9),
    RELAY_READ: Bar(5),
    RELAY_PRINT: Bar(3),
    RELAY_READ_GROWS: Bar(1.3),
    RELAY_PRINT_GROWS: Bar(1.3),
    RELAY_NETWORK.format("resnet50_v2"): Bar(15),
    RELAY_MEMORY.format("resnet50_v2"): Bar(1.5),
    QUANTIZED_RATIO.format("resnet50_v2"): Bar(0.8, 0.5),
    QUANTIZED_GAIN.format("resnet50_v2"): Bar(0.5),
    PROFILE.format("resnet50_v2"): Bar(1.05, 1.01),
    ROWS.format("resnet50_v2"): Bar(0.05),
    COMMAND: Bar(0.15),
    COMMAND_COMPILES.format("resnet50_v2"): Bar(1.1),
    TUNING: Bar(3, more=True),
    RECORDS.format("resnet50_v2"): Bar(1.02),
    **{PRODUCT.format(size): Bar(0.9, more=True) for size in (512, 1024)},
}


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Lay rows out in columns: the first to the left, the others to the right.

    Parameters
    ----------
    rows : sequence of sequences of str
        All of one length.

    Returns
    -------
    str
        A line a row.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)


def number(value: float | None) -> str:
    """Write a number with three digits, and nothing for None."""
    return "" if value is None else f"{value:.3g}"


def verdicts(values: Mapping[str, float]) -> list[dict[str, Any]]:
    """Put each measure beside its bar.

    Parameters
    ----------
    values : mapping of str to float
        What was measured.

    Returns
    -------
    list of dict
        For each its name ("measure"), "value", "bar", "aim", "more" and "met"; where there is no
        bar, the last four are None.
    """
    rows = []
    for name, value in values.items():
        bar = BARS.get(name)
        told = asdict(bar) if bar else dict.fromkeys(("bar", "aim", "more"))
        rows.append(
            {"measure": name, "value": value} | told | {"met": bar.met(value) if bar else None}
        )
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay the verdicts out as a table, with a line below on the bars that are missed.

    Parameters
    ----------
    rows : sequence of mappings
        What `verdicts` gives.

    Returns
    -------
    str
    """
    lines = [("measure", "value", "bar", "aim", "met?")]
    for row in rows:
        sign = ">= " if row["more"] else "<= "
        bar, aim = (number(row[key]) and sign + number(row[key]) for key in ("bar", "aim"))
        lines.append((row["measure"], number(row["value"]), bar, aim, row["met"] or ""))
    missed = [row["measure"] for row in rows if row["met"] == "no"]
    absent = set(BARS) - {row["measure"] for row in rows}
    text = columns(lines)
    text += f"\n\nmissed: {'; '.join(missed)}" if missed else "\n\nno measured bar is missed"
    return text + (f"\nnot measured: {len(absent)} of {len(BARS)} bars" if absent else "")
