"""The parts of a graph between marks, and the pass that joins them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import tvm
from tvm import ir, relax

from ...errors import RelayError
from .. import graph
from .annotate import compiler_of, is_begin, is_end, operands
from .functions import change_bodies


@dataclass(eq=False)
class Region:
    """A connected part of a graph that one compiler takes, numbered by the first mark in it.

    `inputs` and `outputs` are the `compiler_begin` and `compiler_end` calls at its border, in
    Relay's order; `members` are the numbers of the regions that it has taken in, as bits.
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

    The source is Relay's `src/relay/analysis/annotated_region_set.cc`. A `compiler_begin` opens a
    region; a node joins the regions of its operands, up to a `compiler_end`, into one. Marks that
    do not fit together raise `RelayError`.
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
    named = node.op if isinstance(node, relax.Call) else node
    return str(getattr(named, "name", None) or type(named).__name__)


@tvm.transform.module_pass(opt_level=0)
class MergeCompilerRegions:
    """The pass: fewer marks, and between them larger regions.

    A region is joined with the regions of the same compiler that its inputs come from, unless a
    path from one to the other leads through a third, because then neither could run first.

    Notes
    -----
    The source is Relay's `src/relay/transforms/merge_compiler_regions.cc`. Relay followed paths
    through unmarked nodes for `if` only, and made regions that need their own results elsewhere.
    """

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return change_bodies(mod, _merge_regions)


def _merge_regions(body: relax.Expr) -> relax.Expr:
    regions = Regions(body)
    _merge(body, regions)

    def change(before: relax.Expr, after: relax.Expr) -> relax.Expr:
        """Drop the two marks on an edge inside of a region."""
        if is_begin(before) and is_end(before.args[0]):
            region = regions.of(before)
            if region is not None and region is regions.of(before.args[0]):
                return after.args[0].args[0]
        return after

    return graph.transform(body, change)


def _merge(body: relax.Expr, regions: Regions) -> None:
    """Visit regions in the order of their dependences, each joined with its parents."""
    # Sets of regions are bits of one number (`Region.members`), so that long chains stay cheap.
    barred: dict[Region, int] = {}
    for region in _in_order(body, regions):
        # The regions from which a way leads here through another region, or nodes in none.
        before = 0
        parents: list[Region] = []
        for begin in region.inputs:
            direct = regions.of(begin.args[0])
            joins = direct is not None and direct.compiler == region.compiler
            for parent in _behind(begin.args[0], regions):
                before |= barred.get(parent, 0) | (0 if joins else parent.members)
            if direct is not None and joins and direct not in parents:
                parents.append(direct)
        for parent in parents:
            if parent is not region and not parent.members & before:
                regions.merge(parent, region)
        barred[region] = before


def _in_order(body: relax.Expr, regions: Regions) -> Iterator[Region]:
    """List the regions that have an output, each after those that its inputs come from."""

    def parts(node: relax.Expr) -> list[relax.Expr]:
        region = regions.of(node) if is_end(node) else None
        inputs = [] if region is None else [begin.args[0] for begin in region.inputs]
        return [*graph.children(node), *inputs]

    done: set[Region] = set()
    for node in graph.post_order(body, parts):
        region = regions.of(node) if is_end(node) else None
        if region is not None and region not in done:
            done.add(region)
            yield region


def _behind(node: relax.Expr, regions: Regions) -> list[Region]:
    """List the nearest regions behind a node, or the node's own."""

    def parts(node: relax.Expr) -> list[relax.Expr]:
        return graph.children(node) if regions.of(node) is None else []

    found = map(regions.of, graph.post_order(node, parts))
    return [region for region in found if region is not None]
