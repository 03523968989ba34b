"""The errors of this package.

Every error that tvmlab raises on purpose says what is wrong, where, and what to do about it. Errors
raised inside TVM, ONNX or a compiler are kept as the `__cause__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tuning.report import Report


__all__ = ["ChecksumError", "CompileError", "DataError", "InputError", "ModelError"]
__all__ += ["OutOfRangeError", "PackageError", "RecordError", "RelayError", "RemoteError"]
__all__ += ["ShapeError", "SimulationError", "TargetError", "ToolchainError", "TuningError"]
__all__ += ["TvmlabError", "UnsupportedOperatorError"]


class TvmlabError(Exception):
    """The base of every error of this package.

    Parameters
    ----------
    what : str
        What is wrong, in one sentence.
    where : str, optional
        The file, operator, input or command concerned.
    fix : str, optional
        What the user can do about it.
    """

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what = what
        self.where = where
        self.fix = fix
        text = (
            what + (f"\n  where: {where}" if where else "") + (f"\n  to do: {fix}" if fix else "")
        )
        super().__init__(text)


class ModelError(TvmlabError):
    """A model file or object cannot be read."""


class UnsupportedOperatorError(ModelError):
    """A model uses an operator that its frontend cannot import."""


class ShapeError(ModelError):
    """A model's input shapes are unknown, or do not agree with those given.

    `shapes` can be passed to `tvmlab.load` for a model with open sizes, which it names; or None.
    """

    shapes: dict[str, tuple[int | str, ...]] | None = None


class RelayError(ModelError):
    """Relay text cannot be parsed, or a module or call has no equivalent in the other language.

    `line` and `column` are the position in the text, counted from 1; None without a text.
    """

    line: int | None = None
    column: int | None = None


class InputError(TvmlabError):
    """A call's inputs do not match the function's: name, count, shape or dtype."""


class OutOfRangeError(InputError, IndexError):
    """An index in a call's inputs is outside the axis that it indexes."""


class TargetError(TvmlabError):
    """A target is unknown, or this machine cannot run code for it."""


class CompileError(TvmlabError):
    """A module could not be compiled."""


class PackageError(TvmlabError):
    """A saved executable is damaged, or was made for another machine or version."""


class SimulationError(TvmlabError):
    """The accelerator's simulator rejects a program, or the program failed while it ran."""


class RemoteError(TvmlabError):
    """A server on another machine does not answer, lost the connection, or failed to run a task."""


class TuningError(TvmlabError):
    """Tuning cannot start, or found nothing; `report` has the results until then, or None."""

    report: Report | None = None


class RecordError(TvmlabError):
    """A file of tuning records cannot be read or written, or was made for another target."""


class DataError(TvmlabError):
    """A download or the cache failed: offline, wrong checksum, read-only folder."""


class ChecksumError(DataError):
    """A download is complete, but its SHA-256 is wrong."""


class ToolchainError(TvmlabError):
    """A compiler or build tool is missing or failed."""
