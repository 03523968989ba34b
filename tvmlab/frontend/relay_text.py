"""Relay text to Relax: `tvmlab.relay.fromtext` behind the checks that every importer makes."""

from __future__ import annotations

from tvm.ir import IRModule

from ..errors import ModelError, ShapeError
from ..support.extras import need
from .shapes import Shapes

__all__ = ["import_text"]


def import_text(data: bytes, shapes: Shapes | None, *, where: str) -> IRModule:
    """Import a module of Relay text.

    Parameters
    ----------
    data : bytes
        The text in UTF-8.
    shapes : mapping of str to shape, optional
        Refused: Relay text says its shapes itself.
    where : str
        The file, for errors.

    Returns
    -------
    tvm.ir.IRModule

    Raises
    ------
    ModelError, RelayError
        It is no text, or no Relay text.
    ShapeError
        Shapes are given.
    """
    need("lark", extra="relay")
    from ..ir.text.reader import fromtext
    from ..qnn import rows  # noqa: F401 (fills the table with the quantized operators)

    if shapes:
        raise ShapeError(
            "Relay text declares the shapes of its inputs",
            where=where,
            fix="leave shapes out, or change the types in the text",
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(
            f"this starts like Relay text and is none: byte {error.start} is no UTF-8",
            where=where,
            fix="compare its size and checksum with its source",
        ) from error
    return fromtext(text)
