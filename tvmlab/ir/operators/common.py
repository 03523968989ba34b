"""What rows of the operator table share: reading types, and the plainest kind of row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax, sym, tirx

from ...errors import RelayError
from .. import dialect
from ..table import Attribute, Operator, add, in_script

Operands = Sequence[relax.Expr]
Values = dict[str, Any]
Written = tuple[Operands, Values]
Dims = list[Any]
"""Sizes: integers where they are known, TIR expressions where they are symbols."""


def tensor(given: ir.Type, what: str) -> relax.TensorType | None:
    """Take an operand's type for a tensor's.

    Parameters
    ----------
    given : tvm.ir.Type
        The type, perhaps unknown.
    what : str
        The operator and operand, for the error.

    Returns
    -------
    tvm.relax.TensorType or None
        None where nothing is known of it.

    Raises
    ------
    RelayError
        It is the type of something else: a tuple, a function.
    """
    if given is None or type(given) is ir.Type or isinstance(given, relax.AnyType):
        return None
    if not isinstance(given, relax.TensorType):
        raise RelayError(f"{what} has to be a tensor, not {given}", where=what.split(" ")[0])
    return given


def dims(given: ir.Type, what: str = "the operand") -> Dims | None:
    """Give a tensor's sizes, `int` where one is known, or None where its shape is unknown."""
    found = tensor(given, what)
    if found is None or not isinstance(found.shape, relax.ShapeExpr):
        return None
    return [plain_dim(dim) for dim in found.shape.values]


def rank(given: ir.Type, what: str = "the operand") -> int | None:
    """Give how many axes a tensor has, or None where that is unknown."""
    found = tensor(given, what)
    return None if found is None or found.ndim < 0 else int(found.ndim)


def dtype(given: ir.Type, what: str = "the operand") -> str | None:
    """Give a tensor's dtype, or None where it is unknown."""
    found = tensor(given, what)
    return None if found is None or found.dtype is None else str(found.dtype)


def need_dims(given: ir.Type, what: str) -> Dims:
    """Give a tensor's sizes; `RelayError` where they are unknown."""
    found = dims(given, what)
    if found is None:
        raise RelayError(
            f"the shape of {what} must be known",
            where=what.split(" ")[0],
            fix="give the variable a type: relay.var(name, shape=..., dtype=...)",
        )
    return found


def need_rank(given: ir.Type, what: str) -> int:
    """Give how many axes a tensor has; `RelayError` where that is unknown."""
    found = rank(given, what)
    return len(need_dims(given, what)) if found is None else found


def need_dtype(given: ir.Type, what: str) -> str:
    """Give a tensor's dtype; `RelayError` where it is unknown."""
    found = dtype(given, what)
    if found is None:
        raise RelayError(
            f"the dtype of {what} must be known",
            where=what.split(" ")[0],
            fix="give the variable a type: relay.var(name, shape=..., dtype=...)",
        )
    return found


def plain_dim(dim: Any) -> Any:
    """Turn a size into an `int` where it is one."""
    return int(dim.value) if isinstance(dim, tirx.IntImm) else dim


def simplified(dim: Any) -> Any:
    """Simplify a size made of symbols."""
    return dim if isinstance(dim, int) else plain_dim(sym.Analyzer().simplify(dim))


def same(a: Any, b: Any) -> bool:
    """Say whether two sizes are equal for certain."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(sym.Analyzer().can_prove_equal(a, b))


def made(shape: Dims | None, kind: str | None, ndim: int = -1) -> relax.TensorType:
    """Make a tensor's type of what is known: sizes, dtype, or at least the number of axes."""
    if shape is None:
        return relax.TensorType(None, kind, ndim=ndim)
    sizes = [tirx.IntImm("int64", dim) if isinstance(dim, int) else dim for dim in shape]
    return relax.TensorType(relax.ShapeExpr(sizes), kind)


def like(given: ir.Type, kind: str | None = None) -> relax.TensorType:
    """Make the type of a tensor of another's shape, of its dtype unless one is given."""
    ndim = rank(given)
    return made(dims(given), kind or dtype(given), -1 if ndim is None else ndim)


def axes(given: Sequence[int], ndim: int, what: str) -> list[int]:
    """Count axes from the front; `RelayError` where one is outside ``[-ndim, ndim)``."""
    for axis in given:
        if not -ndim <= axis < ndim:
            raise RelayError(
                f"axis {axis} of {what} is outside its {ndim} dimensions",
                where=what.split(" ")[0],
                fix=f"give an axis from {-ndim} to {ndim - 1}",
            )
    return [axis % ndim for axis in given]


def broadcast(a: Dims, b: Dims, what: str) -> Dims:
    """Give the shape that two shapes broadcast to, as NumPy has it; `RelayError` if none."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    padded = [1] * (len(longer) - len(shorter)) + list(shorter)
    sizes = []
    for left, right in zip(longer, padded, strict=True):
        if same(left, 1):
            sizes.append(right)
        elif same(right, 1) or same(left, right):
            sizes.append(left)
        elif isinstance(left, int) and isinstance(right, int):
            raise RelayError(
                f"the shapes {list(a)} and {list(b)} of {what} do not broadcast",
                where=what.split(" ")[0],
            )
        else:  # a symbol and a size above 1: the symbol has to be that size at run time
            sizes.append(left if isinstance(left, int) else right)
    return sizes


def ints(given: Any) -> list[int] | None:
    """Take an attribute or a shape for a list of integers; None where one is a symbol."""
    if given is None:
        return None
    values = given.values if isinstance(given, relax.ShapeExpr) else given
    found = [plain_dim(value) for value in values]
    return [int(v) for v in found] if all(isinstance(v, int) for v in found) else None


def same_as_relax(
    name: str,
    make: Callable[..., relax.Expr],
    operands: Sequence[str],
    *,
    relax_name: str | None = None,
) -> Operator:
    """Put an operator without attributes into the table that Relax has as well.

    Parameters
    ----------
    name : str
        Relay's name.
    make : callable
        Relax's function: operands to call.
    operands : sequence of str
        Relay's operands.
    relax_name : str, optional
        ``relax.NAME`` unless it is given.
    """

    def read(given: Operands, _: Values) -> relax.Expr:
        return make(*given)

    def write(call: relax.Call) -> Written:
        return list(call.args), {}

    return add(Operator(name, relax_name or f"relax.{name}", tuple(operands), (), read, write))


def two_forms(
    name: str,
    operands: Sequence[str],
    attributes: Sequence[Attribute],
    relax_name: str,
    read: Callable[[Operands, Values], relax.Expr | None],
    write: Callable[[relax.Call], Written | None],
    infer: dialect.Infer,
    expand: dialect.Expand,
    *,
    signature: tuple[str, ...] = (),
    defaults: Values | None = None,
) -> Operator:
    """Put an operator into the table that Relax has as well, but not all of it.

    Parameters
    ----------
    name, operands, attributes, signature, defaults
        As in `tvmlab.ir.table.Operator`.
    relax_name : str
        Relax's own operator.
    read : callable
        ``read(operands, attributes)`` makes Relax's own call, or gives None where that would not
        be the same; then it becomes a call of ours, ``relax.relay.NAME``.
    write : callable
        ``write(call)`` takes Relax's own call apart, as in `tvmlab.ir.table.Operator`.
    infer, expand
        Of ours, as in `tvmlab.ir.dialect.register`.
    """
    ours = f"relax.relay.{name}"
    dialect.register(ours, operands, infer, expand)

    def read_either(given: Operands, values: Values) -> relax.Expr:
        found = read(given, values)
        return dialect.typed_call(ours, given, values) if found is None else found

    def write_either(call: relax.Call) -> Written | None:
        if call.op.name == ours:
            return list(call.args), dialect.attributes(call)
        return write(call)

    row = Operator(
        name,
        relax_name,
        tuple(operands),
        tuple(attributes),
        read_either,
        write_either,
        signature,
        defaults,
        (ours,),
    )
    in_script(row, ours)
    return add(row)


def cumulative(name: str, make: Callable[..., relax.Expr]) -> None:
    """Add a row for sums or products of all values up to each, along an axis or of all values."""

    def read(operands: Operands, a: Values) -> relax.Expr:
        return make(operands[0], a["axis"], a["dtype"] or None, a["exclusive"])

    def write(call: relax.Call) -> Written:
        a = call.attrs
        return list(call.args), {
            "axis": None if a.axis is None else int(a.axis),
            "dtype": str(a.dtype or ""),
            "exclusive": bool(a.exclusive),
        }

    attributes = (
        Attribute("axis", "int", None),
        Attribute("dtype", "str", ""),
        Attribute("exclusive", "bool", False),
    )
    add(Operator(name, f"relax.{name}", ("data",), attributes, read, write))
