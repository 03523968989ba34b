"""Take partitioned modules on: to the compilers that are there, or back into the graph."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import ir, relax

from .. import graph
from .functions import attribute, change_bodies


@tvm.transform.module_pass(opt_level=0)
class InlineRegions:
    """The pass: what no code generator takes goes back to where it was cut out.

    A region's function goes where no global function ``relax.ext.COMPILER`` is registered, and
    with it its calls; and so does each nested function that is called, a composite one or one that
    Relay's fusion made, where it is not in a region that stays.

    Notes
    -----
    Relay refused to build such a module. Here it computes the same on TVM's own code.
    """

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        gone = {
            var.name_hint: function
            for var, function in mod.functions_items()
            if isinstance(function, relax.Function) and not _generated(function)
        }

        def change(_: relax.Expr, after: relax.Expr) -> relax.Expr:
            if isinstance(after, relax.TupleGetItem):
                tuple_value = after.tuple_value
                whole = isinstance(tuple_value, relax.Tuple)
                return tuple_value.fields[after.index] if whole else after
            if not isinstance(after, relax.Call):
                return after
            function = after.op
            if isinstance(function, ir.GlobalVar):
                function = gone.get(function.name_hint)
            elif not isinstance(function, relax.Function):
                function = None
            return after if function is None else inlined(function, list(after.args))

        def inlined(function: relax.Function, args: list[relax.Expr]) -> relax.Expr:
            values = {graph.key(p): a for p, a in zip(function.params, args, strict=True)}

            def bind(before: relax.Expr, after: relax.Expr) -> relax.Expr:
                return change(before, values.get(graph.key(after), after))

            return graph.transform(graph.inline_bindings(function.body), bind)

        made = change_bodies(mod, lambda body: graph.transform(body, change))
        for var in mod.get_global_vars():
            if var.name_hint in gone:
                del made[var]
        return made


def _generated(function: relax.Function) -> bool:
    """Say whether a function is TVM's own, or some registered code generator takes it."""
    compiler = attribute(function, "Codegen") or attribute(function, "Compiler")
    return not compiler or tvm_ffi.get_global_func(f"relax.ext.{compiler}", True) is not None


def LowerRegions() -> tvm.transform.Pass:
    """Give each region to its compiler, and those without one to TVM.

    Returns
    -------
    tvm.transform.Pass
        `InlineRegions`, then upstream's `RunCodegen`.
    """
    return tvm.transform.Sequential([InlineRegions(), relax.transform.RunCodegen()])
