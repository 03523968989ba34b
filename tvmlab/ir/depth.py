"""How deep expressions and their types may nest.

Graphs are walked by loops here, but TVM walks types and scopes by recursion, and ends the process
where there are some thousand levels. The limits are those of the text form.
"""

from __future__ import annotations

from collections.abc import Iterable

from tvm import ir, relax

from ..errors import RelayError
from .graph import key

__all__ = [
    *("MAX_TYPE_DEPTH", "MAX_TYPE_PARTS", "check", "check_type"),
    *("too_large", "type_size", "whole"),
]

MAX_TYPE_DEPTH = 64
"""How deep tuple and function types may nest in one another."""
MAX_TYPE_PARTS = 10_000
"""How many parts a type may have, those that it has twice counted twice."""

Size = tuple[int, int]


def check_type(type_: ir.Type) -> None:
    """Refuse a type that nests deeper, or has more parts, than the limits say."""
    _check(type_size(type_, {}))


def check(nodes: Iterable[relax.Expr]) -> None:
    """Refuse tuples and functions whose types would be too large, given parts before the whole."""
    types: dict[int, Size] = {}
    sizes: dict[int, Size] = {}
    for node in nodes:
        if isinstance(node, relax.Tuple):
            size = whole(sizes.get(key(field), (1, 1)) for field in node.fields)
        elif isinstance(node.ty, _NESTED):
            size = type_size(node.ty, types)
        else:
            continue
        if isinstance(node, (relax.Tuple, relax.Function)):
            _check(size)
        sizes[key(node)] = size


def too_large(size: Size) -> bool:
    """Say whether a type's depth or its number of parts is beyond the limits."""
    return size[0] > MAX_TYPE_DEPTH or size[1] > MAX_TYPE_PARTS


def _check(size: Size) -> None:
    if too_large(size):
        raise RelayError(
            f"a type has more than {MAX_TYPE_PARTS} parts or nests deeper than {MAX_TYPE_DEPTH} "
            "levels",
            where="a tuple or function",
            fix="use flat tuples",
        )


def whole(parts: Iterable[Size]) -> Size:
    """Give the size of a type from its parts'."""
    depth, count = 1, 1
    for part in parts:
        depth, count = max(depth, part[0] + 1), count + part[1]
    return depth, count


def type_size(root: ir.Type, known: dict[int, Size]) -> Size:
    """Say how deep a type is and how many parts it has; what is shared is looked at once."""
    stack = [(root, False)]
    while stack:
        type_, ready = stack.pop()
        parts = _parts(type_)
        if ready:
            known[key(type_)] = whole(known[key(part)] for part in parts)
        elif key(type_) not in known:
            stack.append((type_, True))
            stack.extend((part, False) for part in parts)
    return known[key(root)]


def _parts(type_: ir.Type) -> list[ir.Type]:
    if isinstance(type_, relax.TupleType):
        return list(type_.fields)
    if isinstance(type_, relax.FuncType):
        return [*(type_.params or ()), type_.ret]
    return []


_NESTED = (relax.TupleType, relax.FuncType)
