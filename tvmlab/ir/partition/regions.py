"""The parts of a graph between marks: the pass that joins them, and the one that lifts them out."""

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
    """A connected part of a graph that one compiler takes, numbered by the first mark in it.

    `inputs` and `outputs` are the marks at its border; `members` are the numbers of the regions
    that it has taken in, as bits.
    """

    def __init__(self, number: int, begin: relax.Call) -> None:
        self.number, self.compiler = number, compiler_of(begin)
        self.inputs, self.outputs = [begin], list[relax.Call]()
        self.members = 1 << number


class Regions:
    """The regions of one graph (Relay's `src/relay/analysis/annotated_region_set.cc`).

    A `compiler_begin` opens a region; a node joins the regions of its operands, up to a
    `compiler_end`, into one. `RelayError` where the marks do not fit together.
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
        """Find the region of a node."""
        region = self._of.get(graph.key(node))
        return None if region is None else self.now(region)

    def now(self, region: Region) -> Region:
        """Find the region that a region has become part of, or itself."""
        while (into := self._merged.get(region)) is not None:
            self._merged[region] = self._merged.get(into, into)  # so that chains stay short
            region = into
        return region

    def _close(self, end: relax.Call) -> None:
        region = self.of(end.args[0])
        if region is None or region.compiler != compiler_of(end):
            begun = f"one of {region.compiler}" if region else "no region"
            what = f"compiler_end of {compiler_of(end)!r} closes {begun}"
            fix = "put compiler_begin of the same compiler on each operand of that part"
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
                what = f"one operand is inside of a part of {first.compiler!r}, another is in none"
                fix = "put compiler_begin on each operand that comes from outside"
                raise RelayError(what, where=_name_of(node), fix=fix)
            if (other := self.now(region)) is not first:
                first.inputs += other.inputs  # marks between the two stay in the lists
                first.outputs += other.outputs
                self.merge(other, first)
        self._of[graph.key(node)] = first

    def merge(self, source: Region, into: Region) -> None:
        """Make one region of two, whose lists of marks stay as they are."""
        source = self.now(source)
        if source is not into:
            into.members |= source.members
            self._merged[source] = into


def _name_of(node: relax.Expr) -> str:
    named = node.op if isinstance(node, relax.Call) else node
    return str(getattr(named, "name", None) or type(named).__name__)


@tvm.transform.module_pass(opt_level=0)
class MergeCompilerRegions:
    """The pass: fewer marks, and between them larger regions.

    A region is joined with the regions of the same compiler that its inputs come from, unless a
    path from one to the other leads through a third, because then neither could run first. Relay's
    `merge_compiler_regions.cc` followed paths through unmarked nodes for `if` only.
    """

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return change_bodies(mod, _merge_regions)


def _merge_regions(body: relax.Expr, _: str) -> relax.Expr:
    """Visit regions in the order of their dependences, each joined with its parents."""
    regions = Regions(body)
    # Sets of regions are bits of one number (`Region.members`), so that long chains stay cheap.
    barred: dict[Region, int] = {}
    for region in list(_in_order(body, regions)):  # before any region grows
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

    def change(node: relax.Expr, after: relax.Expr) -> relax.Expr:
        """Drop the two marks on an edge inside of a region."""
        inside = is_begin(node) and is_end(node.args[0])
        joined = inside and regions.of(node) is regions.of(node.args[0])
        return after.args[0].args[0] if joined else after

    return graph.transform(body, change)


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


@tvm.transform.module_pass(opt_level=0)
class PartitionGraph:
    """The pass: a global function for each region, and a call of it in the region's place.

    The function's name is ``tvmgen_MODULE_COMPILER_FUNCTION_NUMBER`` and its parameters are named
    ``COMPILER_NUMBER_iINDEX``. It has Relay's attributes ``Compiler``, ``Primitive``, ``Inline``
    and ``global_symbol``, and ``Codegen`` for `relax.transform.RunCodegen`. Several outputs come
    as a tuple. A global function ``relay.ext.COMPILER.optimize`` gets each function as ``main`` of
    a module and returns a better one. The source is Relay's `partition_graph.cc`.

    Parameters
    ----------
    mod_name : str, optional
        MODULE in the names.
    bind_constants : bool
        Whether a region's inputs that are constants, or tuples of them, become part of it rather
        than parameters.

    Raises
    ------
    RelayError
        The marks are not those of regions, or a region needs its own result.
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
    """Take the default compiler's marks away, and put those on tuples onto their fields."""

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
        self.taken = taken  # the names in the module
        self.regions = Regions(body)
        self.done: dict[int, relax.Expr] = {}
        self.params: dict[Region, list[tuple[relax.Var, relax.Expr]]] = {}
        # Within a region, one parameter for each expression outside, however often it comes in.
        self.inputs: dict[tuple[Region, int], relax.Expr] = {}
        self.outputs: dict[Region, dict[int, relax.Expr]] = {}

    def run(self) -> relax.Expr:

        # An end comes after all outputs of its region, which becomes a function at its first end.
        def needed(node: relax.Expr) -> list[relax.Expr]:
            outputs = self._region(node).outputs if is_end(node) else []
            return [*graph.children(node), *(end.args[0] for end in outputs)]

        for node in graph.post_order(self.body, needed):
            self.done[graph.key(node)] = self._change(node)
        result = self.done[graph.key(self.body)]
        inside = {graph.key(var) for pairs in self.params.values() for var, _ in pairs}
        for node in graph.post_order(result):
            if graph.key(node) in inside:
                what = "a value from inside of a compiler's part is used outside of it"
                fix = "put compiler_end on each result of that part"
                raise RelayError(what, where=f"the part with the parameter {node.name}", fix=fix)
        return result

    def _region(self, node: relax.Expr) -> Region:
        region = self.regions.of(node)
        assert region is not None, "each mark is in a region"
        return region

    def _new(self, node: relax.Expr) -> relax.Expr:
        if graph.key(node) not in self.done:
            what = "a compiler's part of the graph needs its own result"
            fix = "put compiler_begin and compiler_end so that no way leads out and in again"
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
        """Make a parameter of a region, or find the one there is."""
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
        """Make a region's function, and say what stands for each of its outputs."""
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
