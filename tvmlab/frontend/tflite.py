"""TensorFlow Lite to Relax, through upstream's importer."""

from __future__ import annotations

import warnings

from tvm.ir import IRModule

from ..errors import ModelError, ShapeError, UnsupportedOperatorError
from ..extras import need
from .shapes import Shapes

__all__ = ["import_bytes"]


def import_bytes(data: bytes, shapes: Shapes | None, *, where: str) -> IRModule:
    """Import a TensorFlow Lite model.

    Parameters
    ----------
    data : bytes
        The file's content.
    shapes : mapping, optional
        Must be left out: TensorFlow Lite files say their shapes.
    where : str
        The file, for errors.

    Returns
    -------
    tvm.ir.IRModule
        One function ``main`` in the file's own NHWC layout.

    Raises
    ------
    ModelError, UnsupportedOperatorError, ShapeError
        See `tvmlab.load`.
    """
    if shapes:
        raise ShapeError(
            "a TensorFlow Lite file has its shapes fixed already",
            where=where,
            fix="leave `shapes` out",
        )
    tflite = need("tflite", extra="tflite")
    from tvm.relax.frontend.tflite import from_tflite

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return from_tflite(tflite.Model.GetRootAsModel(data, 0))
    except NotImplementedError as error:  # of which tvm.error.OpNotImplemented is one
        raise UnsupportedOperatorError(
            f"TVM cannot import a TensorFlow Lite operator: {str(error).strip()}",
            where=where,
            fix="convert the model again without it",
        ) from error
    except Exception as error:  # a damaged FlatBuffer fails anywhere: struct, index, assertion
        raise ModelError(
            f"the TensorFlow Lite model is damaged, or TVM's importer failed on it: {error!r}",
            where=where,
            fix="compare its size and checksum with its source, and download it again",
        ) from error
