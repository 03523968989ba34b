"""A TIR function in a few lines: its loops, and what is computed in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tvm import tirx

__all__ = ["outline"]

_KINDS = {
    tirx.ForKind.SERIAL: "for",
    tirx.ForKind.PARALLEL: "parallel",
    tirx.ForKind.VECTORIZED: "vector",
    tirx.ForKind.UNROLLED: "unroll",
    tirx.ForKind.THREAD_BINDING: "thread",
}
# Spelling that says nothing at this distance.
_SHORT = (
    (r"T\.(?:int|uint|float|bool)\d*\((-?\d+)(?:\.0)?\)", r"\1"),
    (r"T\.(\w)", r"\1"),
    (r"_intermediate\b", ""),
    (r"if_then_else\([^,]*, (.*), (.*)\)", r"\1 or \2"),
    (r"^(\w+) = \1 \+ ", r"\1 += "),
)


def outline(func: tirx.PrimFunc) -> str:
    """Print the loops of a function, a line for each statement.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        Scheduled or not.

    Returns
    -------
    str
        Each line names loops by their kind and extent (those that run once are left out), and
        what is computed in them, without indices. What stands further in, below a line of loops
        alone, shares them. How a sum that still has an initial value in its block begins is not
        shown.
    """
    return "\n".join(_lines(func.body, [], 0))


def _lines(node: Any, loops: list[str], depth: int) -> Iterator[str]:
    """Yield the lines of a statement inside `loops`, which no line has named yet."""
    head = "  " * depth + ", ".join(loops)
    if isinstance(node, tirx.For):
        once = isinstance(node.extent, tirx.IntImm) and int(node.extent) == 1
        own = [] if once else [_loop(node)]
        yield from _lines(node.body, [*loops, *own], depth)
    elif isinstance(node, tirx.SeqStmt):
        if loops:
            yield head
        for part in node.seq:
            yield from _lines(part, [], depth + bool(loops))
    elif isinstance(node, tirx.BufferStore):
        text = str(node).strip().splitlines()[-1]
        while (bare := re.sub(r"\[[^\[\]]*\]", "", text)) != text:
            text = bare
        yield f"{head}: {_shortened(text)}" if loops else f"{head}{_shortened(text)}"
    elif isinstance(node, tirx.Evaluate) and "llvm.prefetch" in str(node):
        yield f"{head}: prefetch" if loops else f"{head}prefetch"
    else:
        inner = getattr(node, "block", getattr(node, "body", None))
        if inner is None:
            yield f"{head}: {type(node).__name__}"
        else:
            yield from _lines(inner, loops, depth)


def _loop(loop: tirx.For) -> str:
    """Name one loop."""
    kind = _KINDS.get(loop.kind, "for")
    return f"{kind} {_shortened(str(loop.extent))}"


def _shortened(text: str) -> str:
    """Drop from an expression's text what says nothing at this distance."""
    for pattern, short in _SHORT:
        text = re.sub(pattern, short, text)
    return text
