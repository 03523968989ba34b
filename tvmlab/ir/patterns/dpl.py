"""A Relay pattern as one of today's, for passes such as FuseOpsByPattern.

`relax.dpl` looks at Relax's own operands and attributes, and has no dominators, branches, lets,
operator attributes or tuples of any length. What has no form there is an error that names it; the
rest matches the same calls.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir
from tvm.relax import dpl

from ...errors import RelayError
from .. import table
from . import pattern as p


def to_dpl(pattern: p.DFPattern) -> dpl.DFPattern:
    """Turn a pattern into one of `tvm.relax.dpl`.

    Parameters
    ----------
    pattern : DFPattern
        The pattern. What is one object in it is one object in the result.

    Returns
    -------
    tvm.relax.dpl.DFPattern

    Raises
    ------
    RelayError
        If a part of it has no form there; the part is named.
    """
    done: dict[p.DFPattern, Any] = {}
    for part in p.patterns(pattern):
        make = _MAKERS.get(type(part))
        if make is None:
            raise _no_form(type(part).__name__)
        done[part] = make(part, done)
    return done[pattern]


def _no_form(what: str) -> RelayError:
    return RelayError(
        f"{what} has no form in relax.dpl.",
        where="to_dpl",
        fix="Use the pattern's own match, partition or rewrite: they take all of Relay's patterns.",
    )


def _wildcard(pattern: p.WildcardPattern, done: Any) -> Any:
    if pattern.pattern is None:
        return dpl.wildcard()
    if pattern.pattern not in done:
        raise _no_form("A pattern that contains itself")
    return done[pattern.pattern]


def _call(pattern: p.CallPattern, done: Any) -> Any:
    names = pattern.op.names if isinstance(pattern.op, p.ExprPattern) else frozenset()
    if pattern.args is None:
        return done[pattern.op](varg_default_wildcard=True)
    if not names:
        for name in {
            name for part in p.patterns(pattern.op) for name in getattr(part, "names", ())
        }:
            if len(forms(name)) > 1 or _surplus(forms(name)[0], len(pattern.args)):
                raise _no_form(f"A choice of operators with {name}, all called with one list")
        return done[pattern.op](*[done[arg] for arg in pattern.args])
    calls = [_one(op, pattern.args, done) for name in sorted(names) for op in forms(name)]
    return functools.reduce(operator.or_, calls)


def forms(name: str) -> list[ir.Op]:
    """List the Relax operators that a Relay operator may have become."""
    return [ir.Op.get(relax_name) for relax_name in table.relax_names(name)]


def _surplus(op: ir.Op, given: int) -> int:
    """Say how many operands Relax has beyond Relay's (below 0: fewer); -1 inputs is any number."""
    return 0 if op.num_inputs < 0 else int(op.num_inputs) - given


def _one(op: ir.Op, args: Sequence[p.DFPattern], done: Any) -> Any:
    surplus = _surplus(op, len(args))
    for arg in args[len(args) + min(surplus, 0) :] if surplus < 0 else []:
        if type(arg) not in (p.WildcardPattern, p.ConstantPattern) or arg.parts():
            raise _no_form(f"{type(arg).__name__} for an operand that {op.name} has not")
    kept = args[: len(args) + min(surplus, 0)]
    more = [dpl.wildcard() for _ in range(max(surplus, 0))]
    return dpl.is_op(str(op.name))(*[done[arg] for arg in kept], *more)


def _tuple(pattern: p.TuplePattern, done: Any) -> Any:
    if pattern.fields is None:
        raise _no_form("is_tuple(None)")
    return dpl.is_tuple([done[field] for field in pattern.fields])


def _attr(pattern: p.AttrPattern, done: Any) -> Any:
    if isinstance(pattern.pattern, p.ExprPattern) and pattern.pattern.names:
        raise _no_form(f"An operator's attribute ({', '.join(pattern.attrs)})")
    call = pattern.pattern
    if not isinstance(call, p.CallPattern) or not isinstance(call.op, p.ExprPattern):
        raise _no_form("has_attr on anything but a call of one operator")
    for name in call.op.names:
        for op in forms(name):
            for attribute in pattern.attrs:
                ours = op.attrs_type_key == "ir.DictAttrs"
                if not ours and (str(op.name), attribute) not in _SAME:
                    raise _no_form(f"The attribute {attribute!r} of {name}")
    return done[call].has_attr(pattern.attrs)


# Attributes that Relax has under the same name with the same values.
_SAME = {
    (f"relax.{name}", attribute)
    for name, attributes in {
        "nn.conv2d": "strides padding dilation groups data_layout kernel_layout",
        "nn.max_pool2d": "strides padding dilation ceil_mode layout",
        "nn.avg_pool2d": "strides padding dilation ceil_mode layout count_include_pad",
        "nn.softmax": "axis",
        "nn.log_softmax": "axis",
        "concat": "axis",
    }.items()
    for attribute in attributes.split()
}

_MAKERS: dict[type, Callable[[Any, Any], Any]] = {
    p.AltPattern: lambda pattern, done: done[pattern.left] | done[pattern.right],
    p.AttrPattern: _attr,
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
