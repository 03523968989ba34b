"""What profiling found: rows, the whole, and one run to look at closely."""

from __future__ import annotations

import os
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..timing import Measurement
from . import busy, figures, flame, table, trace
from .recorder import Event

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Layer", "Profile", "Row"]


@dataclass(frozen=True)
class Row:
    """A function of the compiled network, all its calls in one run together.

    Attributes
    ----------
    name : str
        The function's: the operators that fusion joined. The virtual machine's own work is the row
        `MACHINE`.
    kind : str
        The rule that scheduled it, ``"accelerator"``, ``"virtual machine"``, or ``"other"``.
    calls : int
        Calls in a run.
    seconds : float
        The median over the runs. It can be 0 for the virtual machine, which has what is left.
    share : float
        Of the whole run's time, 0 to 1.
    operations : int or None
        Arithmetic on elements (`tvmlab.schedule.Work`); None where it is not known, as of functions
        with a size that only the run shows.
    dtype : str
        What most of them are done in, empty for none (`tvmlab.schedule.Work`).
    bytes : int
        Inputs, weights and outputs of each call, as whole tensors.
    of_peak : float or None
        Operations a second over the most that this machine's arithmetic units do in that dtype;
        None where there are no operations, or no loop that measures the most: `tvmlab.bench.
        peak_flops` has float32, float64 and what the processor's dot products multiply.
    of_bandwidth : float or None
        Bytes a second over the most that memory delivers. It can be above 1: caches are quicker.
        None for the virtual machine, which reads no tensors.
    tensors : tuple of str
        Dtype and shape of each tensor that it was given when it was first called, as
        ``"float32 1x3x224x224"``; outputs come last.
    cycles : int or None
        What the accelerator takes by its own clock; None for what runs on this processor. The
        seconds are then those of its simulator.
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
        """Thousand million operations a second; None where they are not known."""
        return None if self.operations is None else self.operations / self.seconds / 1e9

    @property
    def gigabytes(self) -> float | None:
        """Thousand million bytes a second; None for the virtual machine, as `of_bandwidth`."""
        return None if self.of_bandwidth is None else self.bytes / self.seconds / 1e9

    @property
    def intensity(self) -> float | None:
        """Operations a byte; None where they are not known or there are no bytes."""
        return self.operations / self.bytes if self.operations is not None and self.bytes else None


@dataclass(frozen=True)
class Layer:
    """A layer of an accelerator's region.

    Attributes
    ----------
    name : str
        Such as ``"conv2d 3x3 64->128 /2"``.
    cycles : int
        Counted for it; those of a region's layers add up to the region's.
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
        Runs that nobody watched.
    watched : tvmlab.bench.Measurement
        Runs that were, taken in turn with the others.
    target : str
        What it was compiled for.
    peaks : dict of str to float
        Operations a second that this machine does at most, by dtype.
    bandwidth : float
        Bytes a second that its memory delivers at most.
    run : tuple of tvmlab.profiling.recorder.Event
        The watched run whose time is the median: itself, then its calls as they began.
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
        """The whole's time: the median of the runs that nobody watched."""
        return self.whole.median

    @property
    def overhead(self) -> float:
        """What being watched costs: the share that it adds to a run's time, the median."""
        pairs = zip(self.watched.samples, self.whole.samples, strict=True)
        return statistics.median(watched / plain for watched, plain in pairs) - 1

    @property
    def covered(self) -> float:
        """The sum of the rows over the whole: about 1, if nobody disturbed the runs."""
        return sum(row.seconds for row in self.rows) / self.seconds

    @property
    def note(self) -> str | None:
        """What says that the machine was busy meanwhile (`tvmlab.profiling.busy`), or None."""
        return busy.note(self)

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each row by its name."""
        return {row.name: row.kind for row in self.rows}

    def __str__(self) -> str:
        """Lay the rows out as a table."""
        return table.text(self)

    def data(self) -> dict[str, Any]:
        """Give everything as plain values, for JSON.

        Returns
        -------
        dict
            ``seconds`` and ``samples`` of the whole, ``overhead``, ``covered``, ``note``,
            ``target``, ``peaks`` (operations a second by dtype), ``bandwidth`` (bytes a second),
            and ``rows``: a dict each, with the fields of `Row` and with ``gflops`` and
            ``gigabytes`` a second. Of accelerators ``clock_mhz`` and ``layers``.
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
        return trace.write(self, path)

    def flame(self, path: str | os.PathLike[str]) -> Path:
        """Draw the median run as a flame graph: who calls whom, as wide as it is long.

        Parameters
        ----------
        path : path
            Where to write; the usual ending is ``.svg``. The file appears whole or not at all.

        Returns
        -------
        pathlib.Path
            The file, an SVG picture without scripts; a frame's tooltip says its name and its time.

        Raises
        ------
        TvmlabError
            The file cannot be written.
        """
        return flame.write(self, path)

    def bars(self, most: int = 12) -> Figure:
        """Draw the longest rows as bars, and all others as one.

        Parameters
        ----------
        most : int
            How many rows get a bar of their own.

        Returns
        -------
        matplotlib.figure.Figure
        """
        return figures.bars(self, most)

    def roofline(self) -> Figure:
        """Draw the rows under the limits of this machine, a marker for each kind.

        Returns
        -------
        matplotlib.figure.Figure
            With those rows that compute in the dtype that most operations are in.

        Raises
        ------
        InputError
            No row computes in a dtype whose peak is measured.
        """
        return figures.roofline(self)
