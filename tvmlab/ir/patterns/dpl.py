"""Conversion of a Relay pattern to `tvm.relax.dpl`, for passes such as FuseOpsByPattern."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from tvm import ir
from tvm.relax import dpl

from ...errors import RelayError
from .. import table
from . import pattern as p


def to_dpl(pattern: p.DFPattern) -> dpl.DFPattern:
    """Convert a pattern to `tvm.relax.dpl`.

    Parameters
    ----------
    pattern : DFPattern
        The pattern. A part that occurs repeatedly becomes one object in the result.

    Returns
    -------
    tvm.relax.dpl.DFPattern

    Raises
    ------
    RelayError
        If a part of the pattern has no form there, such as `has_attr`; the error names the part.
    """
    done: dict[p.DFPattern, Any] = {}
    for part in p.patterns(pattern):
        make = _MAKERS.get(type(part))
        if make is None:
            raise _no_form(type(part).__name__)
        done[part] = make(part, done)
    return done[pattern]


def _no_form(what: str) -> RelayError:
    fix = "Use the pattern's own match, partition or rewrite: they support all of Relay's patterns."
    return RelayError(f"{what} has no form in relax.dpl.", where="to_dpl", fix=fix)


def _wildcard(pattern: p.WildcardPattern, done: Any) -> Any:
    if pattern.pattern is None:
        return dpl.wildcard()
    if pattern.pattern not in done:
        raise _no_form("A pattern that contains itself")
    return done[pattern.pattern]


def _call(pattern: p.CallPattern, done: Any) -> Any:
    names = sorted(pattern.op.names) if isinstance(pattern.op, p.ExprPattern) else []
    if not names:
        raise _no_form("A call of anything other than a single operator")
    calls = [
        _one(ir.Op.get(relax_name), pattern.args, done)
        for name in names
        for relax_name in table.relax_names(name)
    ]
    return functools.reduce(operator.or_, calls)


def _one(op: ir.Op, args: p.Patterns, done: Any) -> Any:
    """Match a call of Relax's operator, which can have more or fewer operands than Relay's."""
    called = dpl.is_op(str(op.name))
    if args is None:
        return called(varg_default_wildcard=True)
    count = len(args) if op.num_inputs < 0 else int(op.num_inputs)
    for arg in args[count:]:
        if type(arg) not in (p.WildcardPattern, p.ConstantPattern) or arg.parts():
            raise _no_form(f"{type(arg).__name__} for an operand that {op.name} does not have")
    more = [dpl.wildcard() for _ in range(count - len(args))]
    return called(*[done[arg] for arg in args[:count]], *more)


def _tuple(pattern: p.TuplePattern, done: Any) -> Any:
    if pattern.fields is None:
        raise _no_form("is_tuple(None)")
    return dpl.is_tuple([done[field] for field in pattern.fields])


_MAKERS: dict[type, Callable[[Any, Any], Any]] = {
    p.AltPattern: lambda pattern, done: done[pattern.left] | done[pattern.right],
    p.CallPattern: _call,
    p.ConstantPattern: lambda pattern, done: dpl.is_const(),
    p.DataTypePattern: lambda pattern, done: done[pattern.pattern].has_dtype(pattern.dtype),
    p.ExprPattern: lambda pattern, done: dpl.pattern.ExprPattern(pattern.expr),
    p.ShapePattern: lambda pattern, done: done[pattern.pattern].has_shape(pattern.shape),
    p.TupleGetItemPattern: lambda pattern, done: dpl.is_tuple_get_item(
        done[pattern.tuple], None if pattern.index == -1 else pattern.index
    ),
    p.TuplePattern: _tuple,
    p.TypePattern: lambda pattern, done: done[pattern.pattern].has_ty(pattern.type),
    p.VarPattern: lambda pattern, done: dpl.is_var(pattern.name),
    p.WildcardPattern: _wildcard,
}
