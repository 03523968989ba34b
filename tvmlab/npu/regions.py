"""Making the functions of regions, and the calls of them, out of composite functions."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from tvm import ir, relax

from ..ir.graph import key
from ..ir.partition.functions import attribute
from .config import COMPILER, Config
from .merge import Group, groups, variables

__all__ = ["merge_composites"]


def merge_composites(mod: ir.IRModule, before: ir.IRModule, config: Config) -> ir.IRModule:
    """Join the composite functions that a module's functions call into regions.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        With composite functions as global ones, as `relax.transform.FuseOpsByPattern` leaves them,
        constants bound or passed.
    before : tvm.ir.IRModule
        The module as it was before: composite functions that it had already stay.
    config : Config
        The machine, for the regions' attribute.

    Returns
    -------
    tvm.ir.IRModule
        The module that was there before, where there is nothing to join.
    """
    composites = {
        var: function
        for var, function in mod.functions_items()
        if isinstance(function, relax.Function)
        and attribute(function, "Composite").startswith(f"{COMPILER}.")
        and var.name_hint not in before
    }
    if not composites:
        return before
    work = _Merger(mod, composites, config)
    for var, function in mod.functions_items():
        if var not in composites and isinstance(function, relax.Function):
            work.function(var, function)
    return work.made


class _Merger:
    """The work on one module."""

    def __init__(
        self,
        mod: ir.IRModule,
        composites: dict[ir.GlobalVar, relax.Function],
        config: Config,
    ) -> None:
        self.made = mod.clone()
        for var in composites:
            del self.made[var]
        self.composites = {var.name_hint: function for var, function in composites.items()}
        self.attrs = {"Codegen": COMPILER, "npu.config": config.to_json()}
        self.count = 0

    def function(self, var: ir.GlobalVar, function: relax.Function) -> None:
        """Rewrite one function."""
        body = self._body(function.body)
        if not body.same_as(function.body):
            self.made[var] = relax.Function(
                function.params, body, function.ret_ty, bool(function.is_pure), function.attrs
            )

    def _body(self, body: relax.SeqExpr) -> relax.SeqExpr:
        blocks = [self._block(block) for block in body.blocks]
        if all(a.same_as(b) for a, b in zip(blocks, body.blocks, strict=True)):
            return body
        made = relax.SeqExpr(blocks, body.body)
        relax.expr._update_type(made, body.ty)
        return made

    def _block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        bindings = list(block.bindings)
        if any(self._taken(binding.value) for binding in bindings):
            return relax.DataflowBlock(self._joined(bindings))
        made = [self._inside(binding) for binding in bindings]
        if all(a.same_as(b) for a, b in zip(made, bindings, strict=True)):
            return block
        return type(block)(made)

    def _inside(self, binding: relax.Binding) -> relax.Binding:
        """Rewrite the branches of an `if`."""
        value = binding.value
        if not isinstance(value, relax.If):
            return binding
        sides = [value.true_branch, value.false_branch]
        made = [self._body(side) for side in sides]
        if all(a.same_as(b) for a, b in zip(made, sides, strict=True)):
            return binding
        whole = relax.If(value.cond, *made)
        relax.expr._update_type(whole, value.ty)
        return relax.VarBinding(binding.var, whole)

    def _taken(self, value: relax.Expr) -> bool:
        """Say whether a value is a call of a composite function."""
        called = isinstance(value, relax.Call) and isinstance(value.op, ir.GlobalVar)
        return called and value.op.name_hint in self.composites

    def _joined(self, bindings: Sequence[relax.Binding]) -> list[relax.Binding]:
        """Rewrite a block: each region becomes one call, where its results are needed first."""
        found = groups(bindings, self._taken)
        ordered = _in_order(found, bindings)
        own = {key(binding.var): group for group in found for binding in _of(group, bindings)}
        outside: dict[int, bool] = {}
        for group in found:
            for binding in _of(group, bindings):
                for var in variables(binding.value):
                    if own.get(key(var)) is not group:
                        outside[key(var)] = True
        made: list[relax.Binding] = []
        for group in ordered:
            members = _of(group, bindings)
            if not group.bits:
                made += members
                continue
            results = [
                binding.var
                for binding in members
                if key(binding.var) in outside or not isinstance(binding.var, relax.DataflowVar)
            ]
            made += self._call(members, results)
        return made

    def _call(self, members: list[relax.Binding], results: list[relax.Var]) -> list[relax.Binding]:
        """Make a region's function, and bind its results to the variables that they had."""
        if not results:  # unused
            return []
        var, args = self._region(members, results)
        call = relax.Call(var, args)
        relax.expr._update_type(call, var.ty.ret)
        if len(results) == 1:
            return [relax.VarBinding(results[0], call)]
        whole = relax.DataflowVar(f"{var.name_hint}_results", var.ty.ret)
        fields = []
        for i, result in enumerate(results):
            field = relax.TupleGetItem(whole, i)
            fields.append(relax.VarBinding(result, field))
        return [relax.VarBinding(whole, call), *fields]

    def _region(
        self, members: list[relax.Binding], results: list[relax.Var]
    ) -> tuple[ir.GlobalVar, list[relax.Expr]]:
        """Make a region's function; give it and what it is called with."""
        inner: dict[int, relax.Var] = {}
        params: list[relax.Var] = []
        args: list[relax.Expr] = []
        local: dict[str, relax.Var] = {}
        bindings: list[relax.Binding] = []

        def inside(var: relax.Var) -> relax.Var:
            if key(var) not in inner:
                inner[key(var)] = relax.Var(str(var.name), var.ty)
                params.append(inner[key(var)])
                args.append(var)
            return inner[key(var)]

        for binding in members:
            value = binding.value
            if isinstance(value, relax.Var):
                new: relax.Expr = inside(value)
            else:
                function, given = self._composite(value)
                name = value.op.name_hint
                if name not in local or len(given) < len(value.args):
                    local[name] = relax.Var(name, function.ty)
                    bindings.append(relax.VarBinding(local[name], function))
                new = relax.Call(local[name], [inside(arg) for arg in given])
                relax.expr._update_type(new, binding.var.ty)
            var = relax.Var(str(binding.var.name), binding.var.ty)
            inner[key(binding.var)] = var
            bindings.append(relax.VarBinding(var, new))
        out = [inner[key(result)] for result in results]
        result = out[0] if len(out) == 1 else relax.Tuple(out)
        body = relax.SeqExpr([relax.BindingBlock(bindings)], result)
        relax.expr._update_type(body, result.ty)
        name = self._unused()
        attrs = ir.make_node("ir.DictAttrs", **self.attrs, global_symbol=name)
        function = relax.Function(params, body, result.ty, True, attrs)
        var = ir.GlobalVar(name)
        relax.expr._update_type(var, function.ty)
        self.made[var] = function
        return var, args

    def _composite(self, call: relax.Call) -> tuple[relax.Function, list[relax.Expr]]:
        """Give a copy of a composite function with its constants bound, and its other operands."""
        function = self.composites[call.op.name_hint]
        new: dict[int, relax.Expr] = {}
        params, given = [], []
        for param, arg in zip(function.params, call.args, strict=True):
            new[key(param)] = arg
            if not isinstance(arg, ir.GenericConst):
                new[key(param)] = relax.Var(str(param.name), param.ty)
                params.append(new[key(param)])
                given.append(arg)
        name = attribute(function, "Composite")
        return _copy(function, params, new, {"Composite": name}), given

    def _unused(self) -> str:
        """Find a name that no function of the module has."""
        while True:
            name = f"{COMPILER}_{self.count}"
            self.count += 1
            if name not in self.made:
                return name


def _copy(
    function: relax.Function,
    params: list[relax.Var],
    new: dict[int, relax.Expr],
    attrs: dict[str, str],
) -> relax.Function:
    """Write a composite function again over other parameters; the types stay what they are."""
    bindings = []
    for binding in function.body.blocks[0].bindings:
        made = _replaced(binding.value, new)
        var = type(binding.var)(str(binding.var.name), binding.var.ty)
        new[key(binding.var)] = var
        bindings.append(relax.VarBinding(var, made))
    result = new[key(function.body.body)]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], result)
    relax.expr._update_type(body, result.ty)
    made_attrs = ir.make_node("ir.DictAttrs", **attrs)
    return relax.Function(params, body, function.ret_ty, True, made_attrs)


def _replaced(expr: relax.Expr, new: dict[int, relax.Expr]) -> relax.Expr:
    """Put other expressions in the place of variables."""
    if isinstance(expr, relax.Var):
        return new[key(expr)]
    if not isinstance(expr, relax.Call):
        return expr
    args = [_replaced(arg, new) for arg in expr.args]
    made = relax.Call(expr.op, args, expr.attrs, expr.ty_args)
    relax.expr._update_type(made, expr.ty)
    return made


def _of(group: Group, bindings: Sequence[relax.Binding]) -> list[relax.Binding]:
    return [bindings[place] for place in sorted(group.members)]


def _in_order(found: list[Group], bindings: Sequence[relax.Binding]) -> list[Group]:
    """Order groups so that each comes after those that it needs, else as they end."""
    own = {key(binding.var): group for group in found for binding in _of(group, bindings)}
    needs: dict[Group, set[Group]] = {group: set() for group in found}
    for group in found:
        for binding in _of(group, bindings):
            needs[group] |= {own[key(var)] for var in variables(binding.value) if key(var) in own}
        needs[group].discard(group)
    after: dict[Group, list[Group]] = {group: [] for group in found}
    for group, wanted in needs.items():
        for one in wanted:
            after[one].append(group)
    count = {group: len(wanted) for group, wanted in needs.items()}
    last = {group: max(group.members) for group in found}
    by_end = {end: group for group, end in last.items()}
    ready = [last[group] for group in found if not count[group]]
    heapq.heapify(ready)
    ordered = []
    while ready:
        group = by_end[heapq.heappop(ready)]
        ordered.append(group)
        for one in after[group]:
            count[one] -= 1
            if not count[one]:
                heapq.heappush(ready, last[one])
    return ordered
