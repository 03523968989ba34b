"""Types as Relay writes them: ``Tensor[(3), float32]``, ``(int8, int8)``, ``fn (int8) -> int8``."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import ir, relax, tirx


def text(ty: ir.Type | None) -> str | None:
    """Write a type as Relay does.

    Parameters
    ----------
    ty : tvm.ir.Type or None
        The type of a Relax expression.

    Returns
    -------
    str or None
        A tensor without dimensions is its dtype alone, and a dimension that is no number is ``?``.
        None where something is unknown for which Relay has no sign: a dtype, a number of
        dimensions, or all of it.

    Notes
    -----
    It follows `src/relay/printer/relay_text_printer.cc` of TVM 0.18, which has no sign for Relax's
    shapes, numbers and objects either.
    """
    if isinstance(ty, relax.TensorType):
        return _tensor(ty)
    if isinstance(ty, ir.TupleType):
        fields = _all(ty.fields)
        return None if fields is None else tuple_text(fields)
    if isinstance(ty, relax.FuncType) and ty.params is not None:
        params, result = _all(ty.params), text(ty.ret)
        if params is not None and result is not None:
            return f"fn ({', '.join(params)}) -> {result}"
    return None


def tuple_text(parts: Sequence[str]) -> str:
    """Put parts between brackets; one alone gets the comma that makes it a tuple."""
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _tensor(ty: relax.TensorType) -> str | None:
    dtype = "" if ty.dtype is None else str(ty.dtype)
    if dtype in ("", "void") or (ty.shape is None and ty.ndim < 0):
        return None
    if isinstance(ty.shape, relax.ShapeExpr):
        sizes = [
            str(size.value) if isinstance(size, tirx.IntImm) else "?" for size in ty.shape.values
        ]
    else:
        sizes = ["?"] * ty.ndim
    return f"Tensor[({', '.join(sizes)}), {dtype}]" if sizes else dtype


def _all(types: Sequence[ir.Type]) -> list[str] | None:
    texts = [text(ty) for ty in types]
    return None if None in texts else [item for item in texts if item is not None]
