"""Rewriting one function: each quantize asks for its operand's integers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ...ir import dialect
from ...ir.graph import live
from .. import arithmetic
from . import batch_norm, clip, data_movement, pooling, products, sums, unary
from .context import (
    DEQUANTIZES,
    QUANTIZES,
    Context,
    Rule,
    any_quantize,
    leaves,
    nested,
    read_dequantize,
    read_quantize,
)
from .data_movement import MOVES, move_constant
from .emit import Emitter, Slot, typed
from .integer_operators import Bounds, simplify
from .quantized_value import Array, NotQuantizable, QuantParams, array_of

_MODULES = (batch_norm, clip, data_movement, pooling, products, sums, unary)
#: From an operator's name to how it is computed in integers.
RULES: dict[str, Rule] = {name: rule for part in _MODULES for name, rule in part.RULES.items()}
# Operators whose result is a constant where their first operand is one.
_OF_ONE = {*MOVES, "relax.astype", "relax.clip", "relax.nn.relu"}


@contextlib.contextmanager
def _deep_recursion() -> Iterator[None]:
    """Let a quantize ask through any number of operators: these are Python frames alone."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 1_000_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


class Rewriter:
    """Rewrites a function."""

    def __init__(self, rounding: str) -> None:
        self.emit = Emitter(rounding)
        self.context = Context(self.emit, RULES)
        self.reasons = self.context.reasons
        self.aliases: dict[relax.Var, relax.Expr] = {}
        self.changed = False
        self._bounds = Bounds(self.emit.calls)
        self._count = 0

    def function(self, function: relax.Function) -> relax.Function:
        """Rewrite a function; return the same object where nothing changes."""
        body = function.body
        if not isinstance(body, relax.SeqExpr) or not any_quantize(body):
            return function
        with _deep_recursion():
            made = self._walk(body, ())()
        if not self.changed:
            return function
        kept = (function.ret_ty, function.is_pure, function.attrs, function.span)
        return relax.Function(function.params, made, *kept)

    def _walk(self, body: relax.SeqExpr, scope: tuple[int, ...]) -> Any:
        """Walk a body; return a function that puts it together, for when all has been asked."""
        self._count += 1
        scope, blocks = (*scope, self._count), []
        for block in body.blocks:
            dataflow, found = isinstance(block, relax.DataflowBlock), []
            for binding in block.bindings:
                self._count += 1
                slot = Slot(self._count, scope, dataflow)
                self.context.slots[binding.var] = slot
                with self.emit.inside(slot):
                    found.append((slot, self._binding(binding)))
            blocks.append((dataflow, found))

        def assembled() -> relax.SeqExpr:
            made = []
            for dataflow, found in blocks:
                bindings: list[relax.Binding] = []
                for slot, kept in found:
                    last = kept() if callable(kept) else kept
                    bindings += slot.bindings
                    if last is not None:
                        bindings.append(last)
                made.append((dataflow, bindings))
            if not self.changed:
                return body
            kinds = (relax.BindingBlock, relax.DataflowBlock)
            after = relax.SeqExpr(
                [kinds[flow](bindings) for flow, bindings in live(made, body.body)], body.body
            )
            return typed(after, body.ty)

        return assembled

    def _binding(self, binding: relax.Binding) -> Any:
        """Return what a binding becomes, None if it was emitted; or a function that returns it."""
        var, value, context = binding.var, binding.value, self.context
        if not isinstance(binding, relax.VarBinding):
            return binding
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
            self.emit.calls[var] = value
            if value.op.name in DEQUANTIZES:
                return self._dequantize(binding, value)
            if value.op.name in QUANTIZES:
                return self._quantize(binding, value)
            return self._call(binding, value)
        if isinstance(value, relax.If):
            branches = [self._walk(branch, self.emit.slot.scope) for branch in nested(value)]
            return lambda: self._if(binding, [branch() for branch in branches])
        if isinstance(value, relax.Function):
            return self._closure(binding, value)
        if isinstance(value, tvm.ir.GenericConst):
            context.numbers[var] = value.value.numpy()
        elif isinstance(value, (relax.Var, relax.Tuple, relax.TupleGetItem)):
            context.sources[var] = value
            if value in context.constant:
                context.constant.add(var)
        return binding

    def _call(self, binding: relax.VarBinding, value: relax.Call) -> Any:
        var, name = binding.var, value.op.name
        first = value.args[0] if value.args else None
        array = self._array(first)
        moved = None if array is None else move_constant(array, value, var)
        if moved is not None:
            self.context.numbers[var] = moved
        elif name in _OF_ONE and first in self.context.constant:
            self.context.constant.add(var)
        elif name in products.RULES:
            with contextlib.suppress(NotQuantizable):
                self.context.value(var)
                self.changed = True
                return self._real(binding)
        made = simplify(self.emit, var, self._renamed(value))
        if made is not value:
            self.changed = True
            if isinstance(made, relax.Var):
                self.aliases[var] = made
            return relax.VarBinding(var, made)
        return (lambda: self._biased(binding)) if name == "relax.add" else binding

    def _biased(self, binding: relax.VarBinding) -> relax.Binding:
        """Read a sum that has a bias as float from the same integers, if they are exact."""
        value = self.context.known(binding.var)
        if value is None or value.dtype != "int32" or value.error or value.clipped:
            return binding
        return self._real(binding)

    def _real(self, binding: relax.VarBinding) -> relax.Binding:
        """Compute exact sums once for those who read them as float and as integers."""
        value = self.context.value(binding.var)
        scale = self.emit.scale(value.scale.astype(np.float32))
        operands = [value.expr, scale, self.emit.zero(value.zero)]
        attributes = {"out_dtype": "float32", "axis": value.axis}
        made = dialect.call("relax.qnn.dequantize", operands, attributes)
        return relax.VarBinding(binding.var, typed(made, binding.var.ty))

    def _array(self, expr: Any) -> Array | None:
        """Return a constant's value, of any dtype; None for anything else."""
        return self.context.numbers.get(expr) if isinstance(expr, relax.Var) else array_of(expr)

    def _renamed(self, value: relax.Call) -> relax.Call:
        """Replace the aliases among a call's operands."""
        args = [self._name(arg) for arg in value.args]
        if all(a.same_as(b) for a, b in zip(args, value.args, strict=True)):
            return value
        return typed(relax.Call(value.op, args, value.attrs, value.ty_args, value.span), value.ty)

    def _name(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Var):
            return self.aliases.get(expr, expr)
        if isinstance(expr, relax.Tuple) and any(leaf in self.aliases for leaf in leaves(expr)):
            return relax.Tuple([self._name(field) for field in expr.fields])
        return expr

    def _dequantize(self, binding: relax.VarBinding, value: relax.Call) -> relax.Binding | None:
        var, data = binding.var, self._name(value.args[0])
        kept = relax.VarBinding(var, self._renamed(value))
        array = self._array(data)
        if array is not None and not isinstance(data, tvm.ir.GenericConst):
            data = relax.const(np.ascontiguousarray(array), str(data.ty.dtype))
        try:
            read = read_dequantize(value, data, self._bounds.of(data))
        except NotQuantizable as why:
            self.reasons.setdefault(var, str(why))
            return kept
        self.context.put(var, read)
        if array is not None:
            self.context.constant.add(var)
        if value.op.name == "relax.qnn.dequantize":
            return kept
        self.changed = True
        attributes = {"out_dtype": "float32", "axis": read.axis}
        operands = [data, *self.emit.params(read)]
        made = dialect.call("relax.qnn.dequantize", operands, attributes)
        self.emit.bind(made, value.ty, "", var)
        return None

    def _quantize(self, binding: relax.VarBinding, value: relax.Call) -> relax.Binding | None:
        var, data, expr = binding.var, value.args[0], None
        try:
            scale, zero, axis, dtype = read_quantize(value)
        except NotQuantizable as why:
            self.reasons.setdefault(data, f"it is quantized where {why}")
            return relax.VarBinding(var, self._renamed(value))
        array, ties = self.context.number(data), self.emit.ties
        if array is not None:
            real = array.astype(np.float32)
            made = arithmetic.quantize(real, scale, zero, axis, dtype, ties)
            expr = self.emit.constant(made, dtype)
        elif scale.ndim or zero.ndim:
            by_channel = "it is quantized by channel, which no requantize can do"
            self.reasons.setdefault(data, by_channel)
        else:
            params = QuantParams(float(scale), int(zero), dtype)
            try:
                expr = self.emit.requantize_to(self.context.value(data, params), params, var)
            except NotQuantizable as why:
                self.reasons.setdefault(data, str(why))
        if expr is None and value.op.name == "relax.qnn.quantize":
            return binding
        self.changed = True
        if expr is None:
            operands = [data, self.emit.scale(scale), self.emit.zero(zero)]
            attributes = {"out_dtype": dtype, "axis": axis, "rounding": ties}
            made = dialect.call("relax.qnn.quantize", operands, attributes)
            self.emit.bind(made, value.ty, "", var)
        if expr is None or expr.same_as(var):
            return None
        self.aliases[var] = expr
        return relax.VarBinding(var, expr)

    def _if(self, binding: relax.VarBinding, branches: list[relax.SeqExpr]) -> relax.Binding:
        value = binding.value
        made = relax.If(value.cond, *branches, value.span)
        return relax.VarBinding(binding.var, typed(made, value.ty))

    def _closure(self, binding: relax.VarBinding, value: relax.Function) -> relax.Binding:
        """Rewrite a function within a function, on its own."""
        inner = Rewriter(self.emit.rounding)
        made = inner.function(value)
        self.reasons.update(inner.reasons)
        if made is value:
            return binding
        self.changed = True
        return relax.VarBinding(binding.var, made)
