"""The parts of a graph between marks: which node is in which, and what goes in and out."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm import relax

from ...errors import RelayError
from .. import graph
from .annotation import compiler_of, is_begin, is_end, operands


@dataclass(eq=False)
class Region:
    """A connected part of a graph that one compiler takes.

    Its number is that of the first mark in it, counted through the function. `inputs` and `outputs`
    are the `compiler_begin` and `compiler_end` calls at its border, in Relay's order; `members` are
    the numbers of the regions that have become part of it, as bits.
    """

    number: int
    compiler: str
    inputs: list[relax.Call] = field(default_factory=list)
    outputs: list[relax.Call] = field(default_factory=list)
    members: int = field(init=False)

    def __post_init__(self) -> None:
        self.members = 1 << self.number


class Regions:
    """The regions of one graph, which has to stay alive as long as they are asked about it.

    A `compiler_begin` opens a region; a node joins the regions of its operands, up to a
    `compiler_end`, into one. `RelayError` where marks do not fit together.

    Notes
    -----
    The source is Relay's `src/relay/analysis/annotated_region_set.cc`.
    """

    def __init__(self, body: relax.Expr) -> None:
        self._of: dict[int, Region] = {}
        self._merged: dict[Region, Region] = {}
        count = 0
        for node in graph.post_order(body):
            if is_begin(node):
                self._of[graph.key(node)] = Region(count, compiler_of(node), [node])
                count += 1
            elif is_end(node):
                self._close(node)
            else:
                self._join(node)

    def of(self, node: relax.Expr) -> Region | None:
        """Find the region of a node."""
        region = self._of.get(graph.key(node))
        return None if region is None else self.now(region)

    def now(self, region: Region) -> Region:
        """Find the region that a region has become part of, or itself."""
        whole = region
        while whole in self._merged:
            whole = self._merged[whole]
        while region is not whole:
            self._merged[region], region = whole, self._merged[region]
        return whole

    def _close(self, end: relax.Call) -> None:
        region = self.of(end.args[0])
        if region is None or region.compiler != compiler_of(end):
            begun = f"one of {region.compiler}" if region else "no region"
            raise RelayError(
                f"compiler_end of {compiler_of(end)!r} closes {begun}",
                where=_said(end.args[0]),
                fix="put compiler_begin of the same compiler on each operand of that part",
            )
        region.outputs.append(end)
        self._of[graph.key(end)] = region

    def _join(self, node: relax.Expr) -> None:
        inside = [operand for operand in operands(node) if not is_end(operand)]
        found = [self.of(operand) for operand in inside]
        first = next((region for region in found if region is not None), None)
        if first is None:
            return
        for operand, region in zip(inside, found, strict=True):
            if region is None:
                raise RelayError(
                    f"one operand is inside of a part of {first.compiler!r}, another is in none",
                    where=f"{_said(node)}, operand {_said(operand)}",
                    fix="put compiler_begin on each operand that comes from outside",
                )
            self.merge(region, first)
        self._of[graph.key(node)] = first

    def merge(self, source: Region, into: Region) -> None:
        """Make one region of two. Marks between them stay in its lists."""
        source = self.now(source)
        if source is not into:
            into.inputs += source.inputs
            into.outputs += source.outputs
            into.members |= source.members
            self._merged[source] = into


def _said(node: relax.Expr) -> str:
    """Name a node in a message."""
    if isinstance(node, relax.Call):
        return str(getattr(node.op, "name", None) or getattr(node.op, "name_hint", "a function"))
    return str(node.name) if isinstance(node, relax.Var) else type(node).__name__
