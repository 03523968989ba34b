"""What can go wrong, in words.

Every error that tvmlab raises on purpose says three things: what is wrong, where, and what to do
about it. Errors raised inside TVM, ONNX or a compiler are kept as the `__cause__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tuning.report import Report

__all__ = [
    "ChecksumError",
    "CompileError",
    "DataError",
    "InputError",
    "ModelError",
    "OutOfRangeError",
    "PackageError",
    "RecordError",
    "RelayError",
    "RemoteError",
    "ShapeError",
    "SimulationError",
    "TargetError",
    "ToolchainError",
    "TuningError",
    "TvmlabError",
    "UnsupportedOperatorError",
]


class TvmlabError(Exception):
    """The base of every error of this package.

    Parameters
    ----------
    what : str
        What is wrong, one sentence.
    where : str, optional
        The file, operator, input or command concerned.
    fix : str, optional
        What the reader can do about it.
    """

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what = what
        self.where = where
        self.fix = fix
        lines = [what]
        if where:
            lines.append(f"  where: {where}")
        if fix:
            lines.append(f"  to do: {fix}")
        super().__init__("\n".join(lines))


class ModelError(TvmlabError):
    """A model file or object cannot be read."""


class UnsupportedOperatorError(ModelError):
    """A model uses an operator that its frontend cannot import."""


class ShapeError(ModelError):
    """A model's input shapes are unknown, or do not agree with those given.

    Attributes
    ----------
    shapes : dict of str to tuple or None
        What to give `tvmlab.load` for a model whose sizes stay open, with a name for each; None
        where that is not what is wrong, or a rank is not known.
    """

    shapes: dict[str, tuple[int | str, ...]] | None = None


class RelayError(ModelError):
    """Relay text cannot be read, or a module or call has no form in the other language.

    Attributes
    ----------
    line, column : int or None
        Where in the text, counted from 1; None where the error does not come from text.
    """

    line: int | None = None
    column: int | None = None


class InputError(TvmlabError):
    """A call's inputs do not fit the function: name, count, shape or dtype."""


class OutOfRangeError(InputError, IndexError):
    """An index in a call's inputs is outside the axis that it indexes."""


class TargetError(TvmlabError):
    """A target is unknown, or cannot run here."""


class CompileError(TvmlabError):
    """A module could not be compiled."""


class PackageError(TvmlabError):
    """A saved executable is damaged, or was made for something else."""


class SimulationError(TvmlabError):
    """The accelerator's simulator refuses a program, or the program failed while it ran."""


class RemoteError(TvmlabError):
    """A server elsewhere is not there, is lost, or failed at what it was to run."""


class TuningError(TvmlabError):
    """Tuning cannot start, or found nothing: no candidate ran, no server answered.

    Attributes
    ----------
    report : tvmlab.tuning.Report or None
        What had come of it until then; None where nothing had begun.
    """

    report: Report | None = None


class RecordError(TvmlabError):
    """A file of tuning records cannot be read or written, or was made for something else."""


class DataError(TvmlabError):
    """A download or the cache failed: offline, wrong checksum, read-only folder."""


class ChecksumError(DataError):
    """A download came whole and is not the file that it should be."""


class ToolchainError(TvmlabError):
    """A compiler or build tool is missing or failed."""
