"""Join what one compiler takes into regions as large as they can be."""

from __future__ import annotations

from collections.abc import Iterator

import tvm
from tvm import ir, relax

from .. import graph
from .annotation import is_begin, is_end
from .functions import change_bodies
from .regions import Region, Regions


@tvm.transform.module_pass(opt_level=0)
class MergeCompilerRegions:
    """The pass: fewer marks, and between them larger regions.

    A region is joined with the regions that its inputs come from where they are of the same
    compiler, unless a way from the one to the other leads through a third: then neither could run
    before the other.

    Notes
    -----
    The source is Relay's `src/relay/transforms/merge_compiler_regions.cc`. Relay followed a way
    through unmarked nodes for `if` only, and made regions that need their own results where such a
    way went through a call, a tuple or a projection; here those stay apart.
    """

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return change_bodies(mod, merge_regions)


def merge_regions(body: relax.Expr) -> relax.Expr:
    """Join the regions of a graph."""
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
            behind = list(_behind(begin.args[0], regions)) if direct is None else [direct]
            for parent in behind:
                before |= barred.get(parent, 0)
            if direct is None:
                for parent in behind:
                    before |= parent.members
            elif direct.compiler != region.compiler:
                before |= direct.members
            elif direct not in parents:
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


def _behind(node: relax.Expr, regions: Regions) -> Iterator[Region]:
    """Find the nearest regions behind a node that is in none."""
    seen: set[int] = set()
    stack = [node]
    while stack:
        node = stack.pop()
        region = regions.of(node)
        if region is not None:
            yield region
        elif graph.key(node) not in seen:
            seen.add(graph.key(node))
            stack += graph.children(node)
