"""Regions between annotations, and the passes that merge regions and lift them out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import tvm
import tvm_ffi
from tvm import ir, relax

from ...errors import RelayError
from .. import graph
from ..patterns.rewriter import change_bodies
from .passes import DEFAULT, compiler_end, compiler_of, is_begin, is_end, operands


class Region:
    """A connected part of a graph for one compiler, numbered by its first annotation.

    `inputs` and `outputs` are the annotations at its border; `members` has a bit for the number of
    each region that was merged into it.
    """

    def __init__(self, number: int, begin: relax.Call) -> None:
        self.number, self.compiler = number, compiler_of(begin)
        self.inputs, self.outputs = [begin], list[relax.Call]()
        self.members = 1 << number


class Regions:
    """The regions of one graph (Relay's `src/relay/analysis/annotated_region_set.cc`).

    A `compiler_begin` opens a region; a node merges the regions of its operands, up to a
    `compiler_end`, into one. Raises `RelayError` for inconsistent annotations.
    """

    def __init__(self, body: relax.Expr) -> None:
        self._of: dict[int, Region] = {}
        self._merged: dict[Region, Region] = {}
        count = 0
        for node in graph.post_order(body):
            if is_begin(node):
                self._of[graph.key(node)] = Region(count, node)
                count += 1
            elif is_end(node):
                self._close(node)
            else:
                self._join(node)

    def of(self, node: relax.Expr) -> Region | None:
        """Return the region of a node, or None."""
        region = self._of.get(graph.key(node))
        return None if region is None else self.now(region)

    def now(self, region: Region) -> Region:
        """Return the region that a region was merged into, or the region itself."""
        while (into := self._merged.get(region)) is not None:
            self._merged[region] = self._merged.get(into, into)  # to shorten the chain
            region = into
        return region

    def _close(self, end: relax.Call) -> None:
        region = self.of(end.args[0])
        if region is None or region.compiler != compiler_of(end):
            begun = f"a region of {region.compiler}" if region else "no region"
            what = f"compiler_end of {compiler_of(end)!r} closes {begun}"
            fix = "put compiler_begin of the same compiler on each operand of that region"
            raise RelayError(what, where=_name_of(end.args[0]), fix=fix)
        region.outputs.append(end)
        self._of[graph.key(end)] = region

    def _join(self, node: relax.Expr) -> None:
        found = [self.of(operand) for operand in operands(node) if not is_end(operand)]
        first = next(filter(None, found), None)
        if first is None:
            return
        for region in found:
            if region is None:
                what = f"one operand is in a region of {first.compiler!r}, another is in no region"
                fix = "put compiler_begin on each operand that comes from outside"
                raise RelayError(what, where=_name_of(node), fix=fix)
            if (other := self.now(region)) is not first:
                first.inputs += other.inputs  # annotations between the two stay in the lists
                first.outputs += other.outputs
                self.merge(other, first)
        self._of[graph.key(node)] = first

    def merge(self, source: Region, into: Region) -> None:
        """Merge a region into another, without changing their lists of annotations."""
        source = self.now(source)
        if source is not into:
            into.members |= source.members
            self._merged[source] = into


def _name_of(node: relax.Expr) -> str:
    named = node.op if isinstance(node, relax.Call) else node
    return str(getattr(named, "name", None) or type(named).__name__)


@tvm.transform.module_pass(opt_level=0)
class MergeCompilerRegions:
    """The pass that merges regions, so that there are fewer and larger ones.

    A region is merged with the regions of the same compiler that its inputs come from, unless a
    path between the two leads through a third region, because then neither could run first. Relay's
    `merge_compiler_regions.cc` followed paths through unannotated nodes only for `if`.
    """

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return change_bodies(mod, _merge_regions)


def _merge_regions(body: relax.Expr, _: str) -> relax.Expr:
    """Merge each region with its parents, in the order of the regions' dependences."""
    regions = Regions(body)
    # A set of regions is the bits of one number (`Region.members`), which is fast for long chains.
    barred: dict[Region, int] = {}
    for region in list(_in_order(body, regions)):  # a list, because merging changes the regions
        # The regions with a path to this one through another region, or through nodes in no region.
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

    def change(node: relax.Expr, after: relax.Expr) -> relax.Expr:
        """Remove the two annotations on an edge inside a region."""
        inside = is_begin(node) and is_end(node.args[0])
        joined = inside and regions.of(node) is regions.of(node.args[0])
        return after.args[0].args[0] if joined else after

    return graph.transform(body, change)


def _in_order(body: relax.Expr, regions: Regions) -> Iterator[Region]:
    """Yield the regions that have an output, each after the regions that its inputs come from."""

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
    """List the nearest regions that a node depends on, or the node's own region."""

    def parts(node: relax.Expr) -> list[relax.Expr]:
        return graph.children(node) if regions.of(node) is None else []

    found = map(regions.of, graph.post_order(node, parts))
    return [region for region in found if region is not None]


@tvm.transform.module_pass(opt_level=0)
class PartitionGraph:
    """The pass that moves each region into a global function, and calls the function instead.

    The function's name is ``tvmgen_MODULE_COMPILER_FUNCTION_NUMBER`` and its parameters are named
    ``COMPILER_NUMBER_iINDEX``. It has Relay's attributes ``Compiler``, ``Primitive``, ``Inline``
    and ``global_symbol``, and ``Codegen`` for `relax.transform.RunCodegen`. It returns several
    outputs as a tuple. A global function ``relay.ext.COMPILER.optimize`` gets each function as the
    ``main`` of a module and returns an improved one. The source is Relay's `partition_graph.cc`.

    Parameters
    ----------
    mod_name : str, optional
        MODULE in the names.
    bind_constants : bool
        Whether a region's inputs that are constants, or tuples of constants, become part of the
        function instead of parameters.

    Raises
    ------
    RelayError
        The annotations do not form regions, or a region depends on its own result.
    """

    def __init__(self, mod_name: str | None = "default", bind_constants: bool = True) -> None:
        self.prefix = f"tvmgen_{mod_name}" if mod_name else "tvmgen"
        self.bind_constants = bind_constants

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        taken = {str(var.name_hint) for var in mod.get_global_vars()}
        lifted: dict[ir.GlobalVar, relax.Function] = {}

        def lift(body: relax.Expr, function: str) -> relax.Expr:
            name = f"{self.prefix}_{{}}_{function}"
            work = _Lift(_prepared(body), name, self.bind_constants, taken)
            after = work.run()
            lifted.update(work.lifted)
            return after

        made = change_bodies(mod, lift)
        if lifted:
            made.update(ir.IRModule(lifted))
        return made


def _prepared(body: relax.Expr) -> relax.Expr:
    """Remove the default compiler's annotations, and move those on tuples to the fields."""

    def change(_: relax.Expr, after: relax.Expr) -> relax.Expr:
        if not (is_begin(after) or is_end(after)):
            return after
        data, compiler = after.args[0], compiler_of(after)
        if compiler == DEFAULT:
            return data
        if is_end(after) and isinstance(data, relax.Tuple):
            return relax.Tuple([compiler_end(one, compiler) for one in data.fields])
        return after

    return graph.transform(body, change)


class _Lift:
    def __init__(self, body: relax.Expr, name: str, bind_constants: bool, taken: set[str]) -> None:
        self.body, self.name, self.bind_constants = body, name, bind_constants
        self.lifted: dict[ir.GlobalVar, relax.Function] = {}
        self.taken = taken  # the names used in the module
        self.regions = Regions(body)
        self.done: dict[int, relax.Expr] = {}
        self.params: dict[Region, list[tuple[relax.Var, relax.Expr]]] = {}
        # A region has one parameter per outside expression, even if several edges enter from it.
        self.inputs: dict[tuple[Region, int], relax.Expr] = {}
        self.outputs: dict[Region, dict[int, relax.Expr]] = {}

    def run(self) -> relax.Expr:

        # An end depends on all outputs of its region, so its first end can make the function.
        def needed(node: relax.Expr) -> list[relax.Expr]:
            outputs = self._region(node).outputs if is_end(node) else []
            return [*graph.children(node), *(end.args[0] for end in outputs)]

        for node in graph.post_order(self.body, needed):
            self.done[graph.key(node)] = self._change(node)
        result = self.done[graph.key(self.body)]
        inside = {graph.key(var) for pairs in self.params.values() for var, _ in pairs}
        for node in graph.post_order(result):
            if graph.key(node) in inside:
                what = "a value from inside a compiler's region is used outside"
                fix = "put compiler_end on each result of that region"
                raise RelayError(what, where=f"the region with the parameter {node.name}", fix=fix)
        return result

    def _region(self, node: relax.Expr) -> Region:
        region = self.regions.of(node)
        assert region is not None, "each annotation is in a region"
        return region

    def _new(self, node: relax.Expr) -> relax.Expr:
        if graph.key(node) not in self.done:
            what = "a compiler's region depends on its own result"
            fix = "put compiler_begin and compiler_end so that no path leaves and reenters it"
            raise RelayError(what, where=self.name.format("COMPILER"), fix=fix)
        return self.done[graph.key(node)]

    def _change(self, node: relax.Expr) -> relax.Expr:
        if is_begin(node):
            return self._input(node)
        if is_end(node):
            region = self._region(node)
            if region not in self.outputs:
                self.outputs[region] = self._function(region)
            return self.outputs[region][graph.key(node.args[0])]
        return graph.rebuild(node, [self._new(child) for child in graph.children(node)])

    def _input(self, begin: relax.Call) -> relax.Expr:
        """Return the parameter, or the constant, for an input of a region."""
        region, source = self._region(begin), begin.args[0]
        while is_begin(source) or is_end(source):
            source = source.args[0]
        place = region, graph.key(source)
        if place not in self.inputs:
            self.inputs[place] = value = self._new(begin.args[0])
            parts = value.fields if isinstance(value, relax.Tuple) else [value]
            constant = all(isinstance(part, ir.GenericConst) for part in parts)
            if not (self.bind_constants and constant):
                index = next(i for i, one in enumerate(region.inputs) if one.same_as(begin))
                var = relax.Var(f"{region.compiler}_{region.number}_i{index}", begin.ty)
                self.params.setdefault(region, []).append((var, value))
                self.inputs[place] = var
        return self.inputs[place]

    def _function(self, region: Region) -> dict[int, relax.Expr]:
        """Make a region's function, and return the expression that replaces each of its outputs."""
        outputs = {graph.key(end.args[0]): end.args[0] for end in region.outputs}
        fields = [self._new(output) for output in outputs.values()]
        pairs = self.params.get(region, [])
        body = fields[0] if len(fields) == 1 else relax.Tuple(fields)
        name = f"{self.name.format(region.compiler)}_{region.number}"
        name = re.sub(r"[^0-9A-Za-z_]", "_", name)
        others = (f"{name}_{number}" for number in itertools.count(1))
        name = next(one for one in itertools.chain([name], others) if one not in self.taken)
        self.taken.add(name)
        attrs = {"Compiler": region.compiler, "Codegen": region.compiler, "Primitive": 1}
        function = graph.to_anf([var for var, _ in pairs], body)
        better = tvm_ffi.get_global_func(f"relay.ext.{region.compiler}.optimize", True)
        if better is not None:
            function = better(ir.IRModule({"main": function}))["main"]
        function = function.with_attrs({**attrs, "Inline": 1, "global_symbol": name})
        var = ir.GlobalVar(name)
        relax.expr._update_type(var, function.ty)
        self.lifted[var] = function
        call = graph.typed(relax.Call(var, [value for _, value in pairs]))
        if len(fields) == 1:
            return dict.fromkeys(outputs, call)
        return {key: relax.TupleGetItem(call, i) for i, key in enumerate(outputs)}
