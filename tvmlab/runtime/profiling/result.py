"""A profile: its rows, the whole run, and one run in detail."""

from __future__ import annotations

import os
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..timing import Measurement
from . import flame, views
from .recorder import Event

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Layer", "Profile", "Row"]

# How far off a share can be on a quiet machine, and three times the seconds to watch a call.
_SLACK, _WATCHED = 0.05, 1e-6


@dataclass(frozen=True)
class Row:
    """A function of the compiled network, with all its calls in one run.

    Attributes
    ----------
    name : str
        The function, or `MACHINE` for the virtual machine itself.
    kind : str
        The rule that scheduled it, ``"accelerator"``, ``"virtual machine"``, or ``"other"``.
    calls : int
        Calls per run.
    seconds : float
        The median over the runs. The virtual machine's is what the functions leave; it can be 0.
    share : float
        Of the whole run's time, 0 to 1.
    operations : int or None
        Arithmetic on elements (`tvmlab.schedule.Work`); None if it is unknown, such as for sizes
        that only the run shows.
    dtype : str
        The dtype of most operations, empty without operations.
    bytes : int
        Inputs, weights and outputs of each call, as whole tensors.
    of_peak : float or None
        The share of this machine's operations per second in that dtype; None without operations,
        or if `tvmlab.bench.peak_flops` measures no peak for the dtype.
    of_bandwidth : float or None
        The share of the memory's bytes per second, above 1 if the data was in a cache. None for
        the virtual machine, which reads no tensors.
    tensors : tuple of str
        Dtype and shape of each tensor of the first call, such as ``"float32 1x3x224x224"``;
        outputs come last.
    cycles : int or None
        Cycles of the accelerator's clock; the seconds are then those of its simulator. None for
        functions that run on this processor.
    """

    name: str
    kind: str
    calls: int
    seconds: float
    share: float
    operations: int | None
    dtype: str
    bytes: int
    of_peak: float | None
    of_bandwidth: float | None
    tensors: tuple[str, ...] = ()
    cycles: int | None = None

    @property
    def gflops(self) -> float | None:
        """Billions of operations per second; None if they are unknown."""
        return None if self.operations is None else self.operations / self.seconds / 1e9

    @property
    def gigabytes(self) -> float | None:
        """Billions of bytes per second; None for the virtual machine."""
        return None if self.of_bandwidth is None else self.bytes / self.seconds / 1e9

    @property
    def intensity(self) -> float | None:
        """Operations per byte; None if they are unknown or there are no bytes."""
        return self.operations / self.bytes if self.operations is not None and self.bytes else None


@dataclass(frozen=True)
class Layer:
    """A layer of an accelerator's region.

    Attributes
    ----------
    name : str
        Such as ``"conv2d 3x3 64->128 /2"``.
    cycles : int
        Its cycles, which add up to those of the region.
    """

    name: str
    cycles: int


@dataclass(frozen=True)
class Profile:
    """Where the time of a compiled network goes; print it for a table.

    Attributes
    ----------
    rows : tuple of Row
        The longest first.
    whole : tvmlab.bench.Measurement
        Runs without the clock.
    watched : tvmlab.bench.Measurement
        Runs with the clock, interleaved with the others.
    target : str
        The target that it was compiled for.
    peaks : dict of str to float
        The most operations per second of this machine by dtype.
    bandwidth : float
        The most bytes per second of its memory.
    run : tuple of tvmlab.profiling.recorder.Event
        The watched run with the median time: itself, then its calls in order.
    layers : dict of str to tuple of Layer
        Of the accelerator's regions, by the name of the row.
    clock_mhz : int or None
        The accelerator's clock.
    """

    rows: tuple[Row, ...]
    whole: Measurement
    watched: Measurement
    target: str
    peaks: dict[str, float]
    bandwidth: float
    run: tuple[Event, ...] = field(repr=False)
    layers: dict[str, tuple[Layer, ...]] = field(default_factory=dict, repr=False)
    clock_mhz: int | None = None

    @property
    def seconds(self) -> float:
        """The median time of the runs without the clock."""
        return self.whole.median

    @property
    def overhead(self) -> float:
        """The median share that the clock adds to the time of a run."""
        pairs = zip(self.watched.samples, self.whole.samples, strict=True)
        return statistics.median(watched / plain for watched, plain in pairs) - 1

    @property
    def covered(self) -> float:
        """The sum of the rows over the whole: about 1 on a quiet machine."""
        return sum(row.seconds for row in self.rows) / self.seconds

    @property
    def note(self) -> str | None:
        """A sentence that says that the machine was busy, or None.

        The signs are numbers that contradict each other: a row above the measured peak, rows that
        do not add up to the whole, or an overhead that watching does not explain.
        """
        signs = []
        most = max((row.of_peak for row in self.rows if row.of_peak is not None), default=0.0)
        if most > 1 + _SLACK:
            signs.append(f"a row computes at {most:.0%} of the peak")
        if abs(self.covered - 1) > _SLACK:
            signs.append(f"rows add up to {self.covered:.1%}")
        calls = len(self.run) - 1
        if not -_SLACK < self.overhead < _SLACK + calls * _WATCHED / self.seconds:
            signs.append(f"watching added {self.overhead:+.1%}")
        if not signs:
            return None
        return (
            f"the machine was busy while it was measured: {', '.join(signs)}; measure again when "
            "it is quiet, in Python in a new process, which measures the limits again"
        )

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each row by its name."""
        return {row.name: row.kind for row in self.rows}

    def __str__(self) -> str:
        """Format the rows as a table."""
        return views.text(self)

    def data(self) -> dict[str, Any]:
        """Return everything as plain values for JSON.

        Returns
        -------
        dict
            The attributes and properties by name (operations and bytes per second), and ``rows``:
            a dict each, with the fields of `Row`, ``gflops`` and ``gigabytes``.
        """
        rows = [
            {**asdict(row), "gflops": row.gflops, "gigabytes": row.gigabytes} for row in self.rows
        ]
        return {
            "target": self.target,
            "seconds": self.seconds,
            "samples": list(self.whole.samples),
            "overhead": self.overhead,
            "covered": self.covered,
            "note": self.note,
            "peaks": dict(self.peaks),
            "bandwidth": self.bandwidth,
            "rows": rows,
            "clock_mhz": self.clock_mhz,
            "layers": {
                name: [asdict(layer) for layer in layers] for name, layers in self.layers.items()
            },
        }

    def trace(self, path: str | os.PathLike[str]) -> Path:
        """Write the median run as a file that Perfetto (ui.perfetto.dev) and Chrome open.

        Parameters
        ----------
        path : path
            Where to write; the usual ending is ``.json``. The file appears whole or not at all.

        Returns
        -------
        pathlib.Path
            The file, in Chrome's Trace Event Format.

        Raises
        ------
        TvmlabError
            The file cannot be written.
        """
        return views.trace(self, path)

    def flame(self, path: str | os.PathLike[str]) -> Path:
        """Draw the median run as a flame graph: calls on their callers, as wide as their times.

        Parameters
        ----------
        path : path
            Where to write; the usual ending is ``.svg``. The file appears whole or not at all.

        Returns
        -------
        pathlib.Path
            The file, an SVG picture without scripts, with a tooltip for each frame.

        Raises
        ------
        TvmlabError
            The file cannot be written.
        """
        return flame.write(self, path)

    def bars(self, most: int = 12) -> Figure:
        """Draw the longest rows as bars, and the others as one bar.

        Parameters
        ----------
        most : int
            The number of rows with a bar of their own.

        Returns
        -------
        matplotlib.figure.Figure
        """
        return views.bars(self, most)

    def roofline(self) -> Figure:
        """Draw the rows below the limits of this machine, with a marker for each kind.

        Returns
        -------
        matplotlib.figure.Figure
            The rows of the dtype with the most operations.

        Raises
        ------
        InputError
            No row computes in a dtype whose peak is measured.
        """
        return views.roofline(self)
