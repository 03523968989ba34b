"""A rule of Relay's pattern language as a pass over bindings.

`tvmlab.relay.dataflow_pattern.rewrite` makes a graph of a whole function, looks for matches round
after round, and makes bindings of it again. A rule that looks at a few operators in a row needs
less: each binding is rewritten once, together with those before it that the pattern can see.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import ir, relax
from tvm_ffi import structural_equal

from ...ir.collector import no_collection
from ...ir.graph import key
from ...ir.patterns import DFPatternCallback, rewrite
from .demand import nested
from .liveness import Block, live

__all__ = ["rewrite_functions"]


def rewrite_functions(
    mod: ir.IRModule, rule: DFPatternCallback, roots: Sequence[str], depth: int
) -> ir.IRModule:
    """Rewrite every function of a module with a rule.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        The module; functions that are not Relax stay as they are.
    rule : DFPatternCallback
        The rule. Its callback is to give a call of variables and constants, or one of these.
    roots : sequence of str
        The operators, by their Relax names, that a match can end in.
    depth : int
        How many operators in a row the pattern sees, the last one included.

    Returns
    -------
    tvm.ir.IRModule
        The same module where nothing changed.
    """
    made = {}
    with no_collection():
        for name, function in mod.functions_items():
            if isinstance(function, relax.Function):
                after = _Functions(rule, roots, depth).function(function)
                if after is not function:
                    made[name] = after
    if not made:
        return mod
    changed = mod.clone()
    changed.update(ir.IRModule(made))
    return changed


class _Functions:
    """Rewrites a function and those within it."""

    def __init__(self, rule: DFPatternCallback, roots: Sequence[str], depth: int) -> None:
        self.rule, self.roots, self.depth = rule, roots, depth
        self.changed = False
        self.values: dict[relax.Var, relax.Call] = {}
        self.same: dict[relax.Var, relax.Expr] = {}

    def function(self, function: relax.Function) -> relax.Function:
        before = function.body
        body = self.body(before)
        if body is before:
            return function
        kept = (function.ret_ty, function.is_pure, function.attrs, function.span)
        return relax.Function(function.params, body, *kept)

    def body(self, body: relax.SeqExpr) -> relax.SeqExpr:
        outer, self.changed = self.changed, False
        blocks: list[Block] = []
        for block in body.blocks:
            found: list[relax.Binding] = []
            for binding in block.bindings:
                found.append(self.binding(binding))
            blocks.append((isinstance(block, relax.DataflowBlock), found))
        mine, self.changed = self.changed, self.changed or outer
        if not mine:
            return body
        made = relax.SeqExpr(
            [
                (relax.DataflowBlock if dataflow else relax.BindingBlock)(bindings)
                for dataflow, bindings in live(blocks, body.body)
            ],
            body.body,
        )
        if type(made.ty) is ir.Type:
            relax.expr._update_type(made, body.ty)
        return made

    def binding(self, binding: relax.Binding) -> relax.Binding:
        value = binding.value
        if not isinstance(binding, relax.VarBinding):
            return binding
        if isinstance(value, relax.If):
            before = list(nested(value))
            branches = [self.body(branch) for branch in before]
            if all(a is b for a, b in zip(branches, before, strict=True)):
                return binding
            made = relax.If(value.cond, *branches, value.span)
            if type(made.ty) is ir.Type:
                relax.expr._update_type(made, value.ty)
            return relax.VarBinding(binding.var, made)
        if isinstance(value, relax.Function):
            after = self.function(value)
            return binding if after is value else relax.VarBinding(binding.var, after)
        if isinstance(value, relax.Call) and isinstance(value.op, ir.Op):
            return self.call(binding, value)
        if isinstance(value, ir.GenericConst):
            self.same[binding.var] = value  # a pattern's constant may stand behind a name
        return binding

    def call(self, binding: relax.VarBinding, value: relax.Call) -> relax.Binding:
        """Rewrite a call with what it reads, as far as the pattern sees."""
        renamed = self.renamed(value)
        after: relax.Expr = renamed
        if value.op.name in self.roots:
            bound: dict[int, relax.Var] = {}
            window = self.window(renamed, self.depth - 1, bound)
            found = rewrite(self.rule, window)
            if not found.same_as(window):
                self.changed = True
                after = _flat(found, bound)
        var = binding.var
        if not isinstance(after, relax.Call):
            self.same[var] = after
        else:
            if isinstance(var, relax.DataflowVar) and not structural_equal(after.ty, var.ty):
                self.same[var] = var = relax.DataflowVar(var.name, after.ty)  # it says more now
            self.values[var] = after
        return binding if after is value else relax.VarBinding(var, after)

    def renamed(self, value: relax.Call) -> relax.Call:
        if not self.same:
            return value
        args = [self.same.get(a, a) if isinstance(a, relax.Var) else a for a in value.args]
        return _again(value, args)

    def window(self, value: relax.Call, depth: int, bound: dict[int, relax.Var]) -> relax.Call:
        """Put into a call what its operands are bound to."""
        if not depth:
            return value
        args = []
        for arg in value.args:
            inner = self.values.get(arg) if isinstance(arg, relax.Var) else None
            if inner is not None:
                made = self.window(inner, depth - 1, bound)
                bound[key(made)] = arg
                arg = made
            args.append(arg)
        return _again(value, args)


def _again(value: relax.Call, args: Sequence[relax.Expr]) -> relax.Call:
    """Make a call of other operands; its type is another one only where one of theirs is."""
    if all(a.same_as(b) for a, b in zip(args, value.args, strict=True)):
        return value
    made = relax.Call(value.op, list(args), value.attrs, value.ty_args, value.span)
    if all(structural_equal(a.ty, b.ty) for a, b in zip(args, value.args, strict=True)):
        relax.expr._update_type(made, value.ty)
        return made
    return relax.BlockBuilder().normalize(made)


def _flat(found: relax.Expr, bound: dict[int, relax.Var]) -> relax.Expr:
    """Put variables back for what a rule left as it was."""
    if key(found) in bound:
        return bound[key(found)]
    if not isinstance(found, relax.Call):
        return found
    return _again(found, [bound.get(key(arg), arg) for arg in found.args])
