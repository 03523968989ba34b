"""Rewriting one function: a walk backwards for what is asked, and one forwards that answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ...ir import dialect
from .. import arithmetic
from .context import Context
from .demand import Asked, Demands, field_of, leaves, nested
from .emit import Emitter
from .form import Goal, NoForm, array_of, with_dtype
from .integers import Integers
from .liveness import Block, live
from .movement import number
from .ranges import Ranges
from .reading import DEQUANTIZES, QUANTIZES, Quantizes, any_quantize, dequantized, operator, spoken
from .rules import ASKS, PRODUCTS, RULES

__all__ = ["Rewriter"]


class Rewriter:
    """Rewrites a function, and keeps what it found for those who ask why.

    Parameters
    ----------
    rounding : str
        What every requantize, addition and product says.

    Attributes
    ----------
    reasons : dict
        Why a value that is asked for has no integer form, by its variable.
    aliases : dict
        What a variable of integers is the same as, where a quantize had nothing left to do.
    changed : bool
        Whether anything was rewritten.
    """

    def __init__(self, rounding: str) -> None:
        self.emit = Emitter(rounding)
        self.context = Context(self.emit)
        self.reasons: dict[relax.Var, str] = {}
        self.aliases: dict[relax.Var, relax.Expr] = {}
        self.changed = False
        self._rounding = rounding
        self._integers = Integers(self.emit)
        self._asked: dict[relax.Var, Asked] = {}
        self._quantizes = Quantizes()
        self._tuples: dict[relax.Var, relax.Tuple] = {}
        self._ranges = Ranges()

    def function(self, function: relax.Function) -> relax.Function:
        """Rewrite a function; the same object where nothing changes."""
        body = function.body
        if not isinstance(body, relax.SeqExpr):
            return function
        made = self._body(body, top=True)
        if not self.changed:
            return function
        return relax.Function(
            function.params,
            made,
            function.ret_ty,
            function.is_pure,
            function.attrs,
            function.span,
        )

    def _body(self, body: relax.SeqExpr, top: bool = False) -> relax.SeqExpr:
        if top:
            if not any_quantize(body):
                return body
            demands = Demands(self._quantizes.goal, ASKS, PRODUCTS)
            demands.collect(body)
            self._asked = demands.of
        before, outer = self.emit.forget(), (self.emit.bindings, self.emit.dataflow)
        blocks: list[Block] = []
        for block in body.blocks:
            self.emit.dataflow = isinstance(block, relax.DataflowBlock)
            self.emit.bindings = []
            found: list[relax.Binding] = []
            for binding in block.bindings:
                kept = self._binding(binding)
                found += [self._emitted(*pair) for pair in self.emit.bindings]
                self.emit.bindings = []
                if kept is not None:
                    found.append(kept)
            if self.emit.dataflow:
                self._export(block, found)
                self.emit.forget()
                self._tuples.clear()  # their fields may not be visible any more
            blocks.append((self.emit.dataflow, found))
        self.emit.remember(before)
        self.emit.bindings, self.emit.dataflow = outer
        if not self.changed:
            return body
        made = relax.SeqExpr(
            [
                (relax.DataflowBlock if dataflow else relax.BindingBlock)(bindings)
                for dataflow, bindings in live(blocks, body.body)
            ],
            body.body,
        )
        if type(made.ty) is tvm.ir.Type:
            relax.expr._update_type(made, body.ty)
        return made

    def _emitted(self, var: relax.Var, value: relax.Expr) -> relax.VarBinding:
        """Make a binding, and note how far its integers reach, as who reads the module again will.

        Sums are not read again in the same walk.
        """
        if operator(value) and not operator(value).startswith("relax.qnn."):
            self._ranges.note(var, value)
        return relax.VarBinding(var, value)

    def _export(self, block: relax.BindingBlock, found: list[relax.Binding]) -> None:
        """Make the forms of what leaves a dataflow block visible after it."""
        visible: dict[relax.Var, relax.Var] = {}
        for binding in block.bindings:
            if isinstance(binding.var, relax.DataflowVar):
                continue
            forms = self.context.forms.get(binding.var, {})
            for goal, form in forms.items():
                inner = form.expr
                if not isinstance(inner, relax.DataflowVar):
                    continue
                if inner not in visible:
                    visible[inner] = relax.Var(inner.name, inner.ty)
                    found.append(relax.VarBinding(visible[inner], inner))
                forms[goal] = replace(form, expr=visible[inner])

    def _binding(self, binding: relax.Binding) -> relax.Binding | None:
        """Answer what is asked of one binding; give what it becomes, None where it is done."""
        var, value = binding.var, binding.value
        if not isinstance(binding, relax.VarBinding):
            self._note(var, "its shape is checked when it runs")
            return binding
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
            return self._call(binding, value)
        if isinstance(value, relax.If):
            return self._if(binding, value)
        if isinstance(value, relax.Function):
            return self._closure(binding, value)
        if isinstance(value, relax.TupleGetItem):
            self._field(var, value)
        elif isinstance(value, relax.Tuple):
            self._tuples[var] = value
        elif isinstance(value, relax.Var):
            self._same(var, value)
        elif isinstance(value, tvm.ir.GenericConst):
            self._constant(var, value)
        else:
            self._note(var, "it is computed by no operator")
        return binding

    def _same(self, var: relax.Var, value: relax.Expr) -> None:
        """Give a variable the forms of what it is the same as."""
        if isinstance(value, relax.Var):
            for goal, form in self.context.forms.get(value, {}).items():
                self.context.put(var, form, goal)

    def _constant(self, var: relax.Var, value: relax.Expr) -> None:
        array = array_of(value)
        if array is not None:
            self.context.numbers[var] = array

    def _field(self, var: relax.Var, value: relax.TupleGetItem) -> None:
        whole = value.tuple_value
        if isinstance(whole, relax.Var):
            whole = self._tuples.get(whole, whole)
        if isinstance(whole, relax.Tuple):
            self._same(var, field_of(whole, value.index))
            return
        forms = self.context.forms.get(whole, {}) if isinstance(whole, relax.Var) else {}
        for goal, form in list(forms.items()):
            if not isinstance(form.expr.ty, relax.TupleType):
                if value.index == 0:  # of a batch norm only the first is a value of the network
                    self.context.put(var, form, goal)
                continue
            ty = with_dtype(var.ty, form.dtype)
            part = relax.TupleGetItem(form.expr, value.index)
            expr = self.emit.bind(part, ty, f"{var.name}_{form.dtype}")
            self.context.put(var, replace(form, expr=expr), goal)

    def _call(self, binding: relax.VarBinding, value: relax.Call) -> relax.Binding | None:
        var, name = binding.var, value.op.name
        if name in DEQUANTIZES:
            return self._dequantize(binding, value)
        if name in QUANTIZES:
            return self._quantize(binding, value)
        self.context.calls[var] = value
        self._ranges.note(var, value)
        rule, asked = RULES.get(name), self._asked.get(var)
        computed = self._number(name, value, var)
        if not computed and asked is not None:
            if rule is None:
                self._note(var, f"{spoken(value)} has no integer form")
            else:
                try:
                    rule(self.context, value, var, asked)
                except NoForm as why:
                    self.context.forms.pop(var, None)
                    self._note(var, str(why))
        made = self._integers.replacement(var, self._renamed(value))
        if self._exact_sums(name, var):
            made = self._real(var)
        if made is value:
            return binding
        self.changed = True
        if isinstance(made, relax.Var):
            return self._alias(var, made)
        return relax.VarBinding(var, made)

    def _exact_sums(self, name: str, var: relax.Var) -> bool:
        """Say whether an operator has sums that are exact: a product, or one and its own bias."""
        form = self.context.forms.get(var, {}).get(None)
        if form is None or name in PRODUCTS:
            return form is not None
        exact = form.dtype == "int32" and form.array is None and not (form.error or form.cut)
        return name == "relax.add" and exact

    def _real(self, var: relax.Var) -> relax.Call:
        """Give the real value of exact sums, for those who read it unquantized.

        It is the float operator's result, computed once for both.
        """
        form = self.context.forms[var][None]
        operands = [
            form.expr,
            self.emit.scale(form.scale.astype(np.float32)),
            self.emit.zero(form.zero),
        ]
        attributes = {"out_dtype": "float32", "axis": form.axis}
        made = dialect.call("relax.qnn.dequantize", operands, attributes)
        relax.expr._update_type(made, var.ty)
        return made

    def _number(self, name: str, value: relax.Call, var: relax.Var) -> bool:
        """Move a constant now; say whether that is what the call does."""
        if not value.args or name not in RULES:
            return False
        array = self._value(value.args[0])
        found = None if array is None else number(name, array, value, var)
        if found is None:
            return False
        self.context.numbers[var] = found
        return True

    def _value(self, expr: relax.Expr) -> Any:
        """Give a constant's value, of any dtype; None for anything else."""
        return self.context.numbers.get(expr) if isinstance(expr, relax.Var) else array_of(expr)

    def _alias(self, var: relax.Var, expr: relax.Expr) -> relax.Binding:
        """Let a variable stand for another expression, in the calls that follow."""
        self.aliases[var] = expr
        return relax.VarBinding(var, expr)

    def _renamed(self, value: relax.Call) -> relax.Call:
        """Put what variables stand for into a call's operands."""
        if not self.aliases:
            return value
        before = list(value.args)
        args = [self._name(arg) for arg in before]
        if all(a is b for a, b in zip(args, before, strict=True)):
            return value
        made = relax.Call(value.op, args, value.attrs, value.ty_args, value.span)
        relax.expr._update_type(made, value.ty)
        return made

    def _name(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Var):
            return self.aliases.get(expr, expr)
        if isinstance(expr, relax.Tuple) and any(
            leaf in self.aliases for leaf in leaves(expr) if isinstance(leaf, relax.Var)
        ):
            return relax.Tuple([self._name(field) for field in expr.fields])
        return expr

    def _dequantize(self, binding: relax.VarBinding, value: relax.Call) -> relax.Binding | None:
        var, data = binding.var, self._name(value.args[0])
        try:
            form = dequantized(value, data, self._value(data), self._ranges)
        except NoForm as why:
            self._note(var, str(why))
            made = self._renamed(value)
            return binding if made is value else relax.VarBinding(var, made)
        self.context.put(var, form)
        if value.op.name == "relax.qnn.dequantize":
            made = self._renamed(value)
            return binding if made is value else relax.VarBinding(var, made)
        self.changed = True
        operands = [data, self.emit.scale(form.scale), self.emit.zero(form.zero)]
        attributes = {"out_dtype": "float32", "axis": form.axis}
        self.emit.quantized("dequantize", operands, attributes, value.ty, "", var)
        return None

    def _quantize(self, binding: relax.VarBinding, value: relax.Call) -> relax.Binding | None:
        var, data = binding.var, value.args[0]
        try:
            scale, zero, axis, dtype = self._quantizes.read(value)
        except NoForm as why:
            if isinstance(data, relax.Var):
                self._note(data, f"it is quantized where {why}")
            made = self._renamed(value)
            return binding if made is value else relax.VarBinding(var, made)
        expr = self._met(data, scale, zero, axis, dtype, var)
        if expr is not None:
            self.changed = True
            if expr is var or (isinstance(expr, relax.Var) and expr.same_as(var)):
                return None
            return self._alias(var, expr)
        if value.op.name == "relax.qnn.quantize":
            return binding
        self.changed = True
        operands = [data, self.emit.scale(scale), self.emit.zero(zero)]
        attributes = {"out_dtype": dtype, "axis": axis, "rounding": self.emit.ties}
        self.emit.quantized("quantize", operands, attributes, value.ty, "", var)
        return None

    def _met(
        self, data: relax.Expr, scale: Any, zero: Any, axis: int, dtype: str, var: relax.Var
    ) -> relax.Expr | None:
        """Give the integers of a quantize of what has a form, or is constant."""
        array = self.context.number(data)
        if array is not None:
            whole = arithmetic.quantize(
                array.astype(np.float32), scale, zero, axis, dtype, self.emit.ties
            )
            return self.emit.constant(whole, dtype)
        if not isinstance(data, relax.Var):
            return None
        if scale.ndim or zero.ndim:
            self._note(data, "it is quantized by channel, which no requantize can do")
            return None
        forms = self.context.forms.get(data)
        if not forms:
            return None
        goal = Goal(float(scale), int(zero), dtype)
        form = forms.get(goal) or forms.get(None)
        if form is None:
            return None
        try:
            return self.emit.bring(form, goal, var)
        except NoForm as why:
            self._note(data, str(why))
            return None

    def _if(self, binding: relax.VarBinding, value: relax.If) -> relax.Binding:
        self._note(binding.var, "it is the result of a branch")
        before = list(nested(value))
        branches = [self._body(branch) for branch in before]
        if len(branches) != 2 or all(a is b for a, b in zip(branches, before, strict=True)):
            return binding
        made = relax.If(value.cond, *branches, value.span)
        if type(made.ty) is tvm.ir.Type:
            relax.expr._update_type(made, value.ty)
        return relax.VarBinding(binding.var, made)

    def _closure(self, binding: relax.VarBinding, value: relax.Function) -> relax.Binding:
        """Rewrite a function within a function, on its own."""
        inner = Rewriter(self._rounding)
        made = inner.function(value)
        self.reasons.update(inner.reasons)
        if made is value:
            return binding
        self.changed = True
        return relax.VarBinding(binding.var, made)

    def _note(self, var: relax.Var, why: str) -> None:
        self.reasons.setdefault(var, why)
