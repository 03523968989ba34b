"""Rewriting of a module's bindings where they stand, for passes over whole networks.

`rewrite` turns a function into a graph, looks for matches round after round as Relay does, and
makes bindings of the graph again. Here each binding is rewritten once, in order, so that variables
keep their names, and bindings that no graph can hold (`match_cast`, calls with effects) stay.
"""

from __future__ import annotations

from tvm import ir, relax

from .. import graph
from ..graph import Block, key, live, no_collection
from .pattern import Matcher
from .rewriter import DFPatternCallback, apply_callback
from .view import DominatorTree, View

__all__ = ["rewrite_functions"]


def rewrite_functions(mod: ir.IRModule, rule: DFPatternCallback) -> ir.IRModule:
    """Rewrite every Relax function of a module with a rule, from the parameters to the results.

    The callback returns a call of variables and constants, or one of these. Unlike in `rewrite`, a
    match may use expressions that other matches use, or that are used elsewhere.
    """
    made = {}
    with no_collection():
        for name, function in mod.functions_items():
            if isinstance(function, relax.Function):
                work = _Bindings(rule)
                after = work.function(function)
                if not after.same_as(function):
                    made[name] = after
    if not made:
        return mod
    changed = mod.clone()
    changed.update(ir.IRModule(made))
    return changed


class _Bindings:
    """Rewrites the bindings of a function, and of the functions and branches within it."""

    def __init__(self, rule: DFPatternCallback) -> None:
        self.rule = rule
        self.view = View()
        self.changed = False
        self.graphs: dict[int, relax.Expr] = {}  # by variable: the graph that it is bound to
        self.variables: dict[int, relax.Expr] = {}  # by such a graph: the variable
        self.replaced: dict[int, relax.Expr] = {}  # by variable: what takes its place

    def function(self, function: relax.Function) -> relax.Function:
        body = self.body(function.body)
        if body.same_as(function.body):
            return function
        kept = (function.ret_ty, function.is_pure, function.attrs, function.span)
        return relax.Function(function.params, body, *kept)

    def body(self, body: relax.SeqExpr) -> relax.SeqExpr:
        outer, self.changed = self.changed, False
        blocks: list[Block] = []
        for block in body.blocks:
            local = isinstance(block, relax.DataflowBlock)
            blocks.append((local, [self.binding(binding) for binding in block.bindings]))
            if local:
                # Its variables cannot be read from outside, so that matches end at its borders.
                self.graphs, self.variables = {}, {}
        changed, self.changed = self.changed, outer or self.changed
        if not changed:
            return body
        made = [
            (relax.DataflowBlock if local else relax.BindingBlock)(bindings)
            for local, bindings in live(blocks, body.body)
        ]
        return _typed_as(relax.SeqExpr(made, body.body), body)

    def binding(self, binding: relax.Binding) -> relax.Binding:
        value, var = binding.value, binding.var
        if not isinstance(binding, relax.VarBinding):
            return binding
        if isinstance(value, relax.Function):
            after: relax.Expr = self.function(value)
        elif isinstance(value, relax.If):
            branches = [self.body(one) for one in (value.true_branch, value.false_branch)]
            old = [value.true_branch, value.false_branch]
            same = graph.same_nodes(old, branches)
            after = value if same else _typed_as(relax.If(value.cond, *branches), value)
        else:
            after = self.value(var, value)
            local = isinstance(var, relax.DataflowVar)
            if isinstance(after, ir.GenericConst) or (isinstance(after, relax.Var) and local):
                self.replaced[key(var)] = after
            elif local and not graph.same_type(after.ty, var.ty):
                new = relax.DataflowVar(var.name, after.ty)  # the type says more now
                self.replaced[key(var)] = new
                self.graphs[key(new)] = self.graphs[key(var)]
                self.variables[key(self.graphs[key(var)])] = var = new
        return binding if after.same_as(value) else relax.VarBinding(var, after)

    def value(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Rewrite the value of a binding, together with the values that it reads."""
        parts = graph.children(value)
        parts = [self.replaced.get(key(part), part) for part in parts]
        value = graph.rebuild(value, parts)
        whole = graph.rebuild(value, [self.graphs.get(key(part), part) for part in parts])
        after = self.rewritten(whole)
        self.graphs[key(var)] = after
        if not after.same_as(whole):
            self.changed = True
            value = self.variables.get(key(after), after)
            if value.same_as(after):
                parts = graph.children(after)
                value = graph.rebuild(
                    after, [self.variables.get(key(part), part) for part in parts]
                )
        self.variables.setdefault(key(after), var)
        return value

    def rewritten(self, expr: relax.Expr) -> relax.Expr:
        """Apply the rule to an expression until it does not change the expression."""
        while isinstance(expr, relax.Call):
            matcher = Matcher(DominatorTree(expr, self.view))
            if self.rule.pattern is None or not matcher.match(self.rule.pattern, expr):
                break
            before, expr = expr, apply_callback(self.rule, expr, expr, matcher.found)
            if expr.same_as(before):
                break
        return expr


def _typed_as(made: relax.Expr, expr: relax.Expr) -> relax.Expr:
    if type(made.ty) is ir.Type:
        relax.expr._update_type(made, expr.ty)
    return made
