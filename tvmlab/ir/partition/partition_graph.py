"""Lift each region into a global function that its compiler takes."""

from __future__ import annotations

import itertools
import re

import tvm
import tvm_ffi
from tvm import ir, relax

from ...errors import RelayError
from .. import graph
from ..graph import no_collection
from .annotate import DEFAULT, compiler_end, compiler_of, is_begin, is_end
from .functions import attribute, change_bodies
from .regions import Region, Regions


@tvm.transform.module_pass(opt_level=0)
class PartitionGraph:
    """The pass: a global function for each region, and a call of it in the region's place.

    The function's name is ``tvmgen_MODULE_COMPILER_FUNCTION_NUMBER`` and its parameters are named
    ``COMPILER_NUMBER_iINDEX``. It bears Relay's attributes ``Compiler``, ``Primitive``, ``Inline``
    and ``global_symbol``, and ``Codegen`` for `relax.transform.RunCodegen`. Several outputs come
    as a tuple. Marks of the compiler ``"default"`` go. A global function
    ``relay.ext.COMPILER.optimize`` gets each function as ``main`` of a module and returns a better
    one.

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
    The source is Relay's `src/relay/transforms/partition_graph.cc`.
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
        self.mod, self.body, self.name, self.bind_constants = mod, body, name, bind_constants
        regions = Regions(body)
        marks = (node for node in graph.post_order(body) if is_begin(node) or is_end(node))
        self.regions = {graph.key(node): regions.of(node) for node in marks}
        self.done: dict[int, relax.Expr] = {}
        self.params: dict[Region, list[tuple[relax.Var, relax.Expr]]] = {}
        # Within a region, one parameter for each expression outside, however often it comes in.
        self.inputs: dict[tuple[Region, int], relax.Expr] = {}
        self.outputs: dict[Region, dict[int, relax.Expr]] = {}

    def run(self) -> relax.Expr:
        """Lift the functions into the module; return the new graph."""

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
                raise RelayError(
                    "a value from inside of a compiler's part is used outside of it",
                    where=f"the part whose parameter is {node.name}",
                    fix="put compiler_end on each result of that part",
                )
        return result

    def _region(self, node: relax.Expr) -> Region:
        region = self.regions[graph.key(node)]
        assert region is not None, "each mark is in a region"
        return region

    def _new(self, node: relax.Expr) -> relax.Expr:
        """Return what a node has become."""
        if graph.key(node) not in self.done:
            raise RelayError(
                "a compiler's part of the graph needs its own result",
                where=self.name.format("COMPILER"),
                fix="put compiler_begin and compiler_end so that no way leads out and in again",
            )
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
        function = graph.to_anf([var for var, _ in pairs], body)
        better = tvm_ffi.get_global_func(f"relay.ext.{region.compiler}.optimize", True)
        if better is not None:
            function = better(ir.IRModule({"main": function}))["main"]
        plain = f"{self.name.format(region.compiler)}_{region.number}"
        plain = name = re.sub(r"[^0-9A-Za-z_]", "_", plain)
        numbers = itertools.count(1)
        while name in self.mod:
            name = f"{plain}_{next(numbers)}"
        attributes = {"Compiler": region.compiler, "Codegen": region.compiler}
        marks = {"Primitive": 1, "Inline": 1, "global_symbol": name}
        function = function.with_attrs({**attributes, **marks})
        var = ir.GlobalVar(name)
        relax.expr._update_type(var, function.ty)
        self.mod[var] = function
        call = graph.typed(relax.Call(var, [value for _, value in pairs]))
        if len(fields) == 1:
            return dict.fromkeys(outputs, call)
        return {key: relax.TupleGetItem(call, i) for i, key in enumerate(outputs)}
