"""Lift each region into a global function that its compiler takes."""

from __future__ import annotations

import re

import tvm
import tvm_ffi
from tvm import ir, relax

from ...errors import RelayError
from .. import graph
from ..collector import no_collection
from .annotation import DEFAULT, compiler_end, compiler_of, is_begin, is_end
from .functions import attribute, change_bodies
from .regions import Region, Regions


@tvm.transform.module_pass(opt_level=0)
class PartitionGraph:
    """The pass: a global function for each region, and a call of it in the region's place.

    The function's name is ``tvmgen_MODULE_COMPILER_FUNCTION_NUMBER`` and its parameters'
    ``COMPILER_NUMBER_iINDEX``. It bears Relay's attributes ``Compiler``, ``Primitive``, ``Inline``
    and ``global_symbol``, and ``Codegen``, which says to `relax.transform.RunCodegen` what
    ``Compiler`` said to Relay. Marks of the compiler ``"default"`` go. Where a region has several
    outputs, the function's result is a tuple. A registered global function
    ``relay.ext.COMPILER.optimize`` gets each of the compiler's functions as ``main`` of a module,
    to give back a better one.

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
        The marks are not those of regions (see `tvmlab.ir.partition.regions`), or a region needs
        its own result.

    Notes
    -----
    The source is Relay's `src/relay/transforms/partition_graph.cc`. A function that an earlier run
    lifted keeps its name; Relay put MODULE before it once more.
    """

    def __init__(self, mod_name: str | None = "default", bind_constants: bool = True) -> None:
        self.prefix = f"tvmgen_{mod_name}" if mod_name else "tvmgen"
        self.bind_constants = bind_constants

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        with no_collection():
            made = change_bodies(mod, _prepared)
            for var, function in made.functions_items():
                if isinstance(function, relax.Function) and not attribute(function, "Compiler"):
                    body = graph.inline_bindings(function.body)
                    name = f"{self.prefix}_{{}}_{var.name_hint}"
                    after = _Lift(made, body, name, self.bind_constants).run()
                    if not after.same_as(body):
                        made[var] = graph.to_anf(function.params, after, function.attrs)
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
    """The work on one function."""

    def __init__(self, mod: ir.IRModule, body: relax.Expr, name: str, bind_constants: bool) -> None:
        self.mod = mod
        self.body = body
        self.name = name
        self.bind_constants = bind_constants
        self.regions = Regions(body)
        self.done: dict[int, relax.Expr] = {}
        self.indices: dict[Region, dict[int, int]] = {}
        self.params: dict[Region, list[tuple[relax.Var, relax.Expr]]] = {}
        # Within a region, one parameter for each expression outside, however often it comes in.
        self.inputs: dict[tuple[Region, int], relax.Expr] = {}
        self.outputs: dict[Region, dict[int, relax.Expr]] = {}

    def run(self) -> relax.Expr:
        """Return the new graph; the lifted functions are in the module then.

        Nodes are visited in post-order. An end comes after all outputs of its region, because the
        whole region becomes a function at the first of its ends.
        """
        for node in graph.post_order(self.body, self._needed):
            self.done[graph.key(node)] = self._change(node)
        result = self.done[graph.key(self.body)]
        inside = {graph.key(var) for pairs in self.params.values() for var, _ in pairs}
        for node in graph.post_order(result):
            if graph.key(node) in inside:
                raise RelayError(
                    "a value from inside of a compiler's part is used outside of it",
                    where=f"the part whose parameter is {node.name}",
                    fix="put compiler_end on each result of that part",
                )
        return result

    def _needed(self, node: relax.Expr) -> list[relax.Expr]:
        """List the nodes that come before a node."""
        outputs = self._region(node).outputs if is_end(node) else []
        return [*graph.children(node), *(end.args[0] for end in outputs)]

    def _region(self, node: relax.Expr) -> Region:
        region = self.regions.of(node)
        assert region is not None, "each mark is in a region"
        return region

    def _new(self, node: relax.Expr) -> relax.Expr:
        """Return what a node has become."""
        found = self.done.get(graph.key(node))
        if found is None:
            raise RelayError(
                "a compiler's part of the graph needs its own result",
                where=self.name.format("COMPILER"),
                fix="put compiler_begin and compiler_end so that no way leads out and in again",
            )
        return found

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
        if (region, graph.key(source)) in self.inputs:
            return self.inputs[region, graph.key(source)]
        value = self._new(begin.args[0])
        if self.bind_constants and _constant(value):
            made = value
        else:
            indices = self.indices.get(region)
            if indices is None:
                indices = {graph.key(one): i for i, one in enumerate(region.inputs)}
                self.indices[region] = indices
            index = indices[graph.key(begin)]
            made = relax.Var(f"{region.compiler}_{region.number}_i{index}", begin.ty)
            self.params.setdefault(region, []).append((made, value))
        self.inputs[region, graph.key(source)] = made
        return made

    def _function(self, region: Region) -> dict[int, relax.Expr]:
        """Make a region's function, and say what stands for each of its outputs."""
        outputs = {graph.key(end.args[0]): end.args[0] for end in region.outputs}
        fields = [self._new(output) for output in outputs.values()]
        pairs = self.params.get(region, [])
        function = graph.to_anf(
            [var for var, _ in pairs], fields[0] if len(fields) == 1 else relax.Tuple(fields)
        )
        better = tvm_ffi.get_global_func(f"relay.ext.{region.compiler}.optimize", True)
        if better is not None:
            function = better(ir.IRModule({"main": function}))["main"]
        name = f"{self.name.format(region.compiler)}_{region.number}"
        name = self._unused(re.sub(r"[^0-9A-Za-z_]", "_", name))
        function = function.with_attrs(
            {
                "Compiler": region.compiler,
                "Codegen": region.compiler,
                "Primitive": 1,
                "Inline": 1,
                "global_symbol": name,
            }
        )
        var = ir.GlobalVar(name)
        relax.expr._update_type(var, function.ty)
        self.mod[var] = function
        call = graph.typed(relax.Call(var, [value for _, value in pairs]))
        if len(fields) == 1:
            return dict.fromkeys(outputs, call)
        return {key: relax.TupleGetItem(call, i) for i, key in enumerate(outputs)}

    def _unused(self, name: str) -> str:
        """Find a name that no function of the module has."""
        made, count = name, 0
        while made in self.mod:
            count += 1
            made = f"{name}_{count}"
        return made


def _constant(expr: relax.Expr) -> bool:
    """Say whether an expression is a constant or a tuple of constants."""
    parts = expr.fields if isinstance(expr, relax.Tuple) else [expr]
    return all(isinstance(part, ir.GenericConst) for part in parts)
