"""The engine's memory: each float value's integers, computed when a quantize asks for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import tvm
from tvm import relax

from .emit import Emitter, Slot
from .quantized_value import (
    Array,
    NotQuantizable,
    QuantizedValue,
    QuantParams,
    array_of,
    channel_params,
    with_dtype,
)

QUANTIZES = ("relax.quantize", "relax.qnn.quantize")
DEQUANTIZES = ("relax.dequantize", "relax.qnn.dequantize")
_STORED = ("int8", "uint8", "int16", "int32")
# A value quantized in more ways than these is computed itself, and then requantized.
_MOST_PARAMS = 8


class Rule(NamedTuple):
    """How an operator is computed in integers.

    ``natural(ctx, call, var)`` returns the result unrounded: exact sums, or stored integers.
    ``at(ctx, call, var, params)`` returns the result at the parameters of the quantize that reads
    it; by default `natural` is requantized. Both raise `NotQuantizable` where they cannot.
    """

    natural: Callable[[Context, relax.Call, relax.Var], QuantizedValue]
    at: Callable[[Context, relax.Call, relax.Var, QuantParams], QuantizedValue] | None = None


class Context:
    """The values of one function."""

    def __init__(self, emit: Emitter, rules: Mapping[str, Rule]) -> None:
        self.emit, self.rules, self.calls = emit, rules, emit.calls
        self.rounding = emit.rounding
        self.slots: dict[relax.Var, Slot] = {}
        self.sources: dict[relax.Var, relax.Expr] = {}
        self.numbers: dict[relax.Var, Array] = {}
        self.constant: set[relax.Var] = set()
        self.reasons: dict[relax.Var, str] = {}
        self._values: dict[tuple[Any, ...], QuantizedValue | None] = {}
        self._fields: dict[tuple[relax.Var, int], tuple[QuantizedValue, QuantizedValue]] = {}
        self._asked: dict[relax.Var, int] = {}

    def put(self, var: relax.Var, value: QuantizedValue) -> None:
        """Store what a dequantize reads."""
        self._values[var, None] = value

    def known(self, expr: relax.Expr) -> QuantizedValue | None:
        """Return an operand's natural integers if they have been computed."""
        return self._values.get((expr, None)) if isinstance(expr, relax.Var) else None

    def value(self, expr: relax.Expr, params: QuantParams | None = None) -> QuantizedValue:
        """Return an operand's integers: at `params`, or such that a requantize can follow."""
        if not isinstance(expr, relax.Var):
            raise NotQuantizable("its operand is a float constant")
        if (expr, params) not in self._values:
            if params is not None:
                count = self._asked[expr] = self._asked.get(expr, 0) + 1
                if count > _MOST_PARAMS:
                    return self.value(expr)
            try:
                self._values[expr, params] = self._computed(expr, params)
            except NotQuantizable as why:
                self._values[expr, params] = None
                self.reasons.setdefault(expr, str(why))
        found = self._values[expr, params]
        if found is None:
            raise NotQuantizable(self.reasons[expr])
        return found

    def _computed(self, var: relax.Var, params: QuantParams | None) -> QuantizedValue:
        source, call = self.sources.get(var), self.calls.get(var)
        if isinstance(source, relax.Var):
            return self.value(source, params)
        if isinstance(source, relax.TupleGetItem):
            return self._field(var, source, params)
        rule = self.rules.get(operator(call))
        if params is not None and (rule is None or rule.at is None):
            return self.value(var)
        if rule is None:
            known = "it" if call is None else describe(call)
            raise NotQuantizable(f"{known} has no integer form")
        with self.emit.inside(self.slots[var]):
            if params is None or rule.at is None:
                return rule.natural(self, call, var)
            return rule.at(self, call, var, params)

    def _field(
        self, var: relax.Var, source: relax.TupleGetItem, params: QuantParams | None
    ) -> QuantizedValue:
        whole, index = source.tuple_value, int(source.index)
        while isinstance(self.sources.get(whole), (relax.Var, relax.Tuple)):
            whole = self.sources[whole]
        if isinstance(whole, relax.Tuple):
            return self.value(whole.fields[index], params)
        value = self.value(whole, params)
        if not isinstance(value.expr.ty, relax.TupleType):
            if index:
                raise NotQuantizable("it is no value of the network")
            return value  # of a batch norm only the first is
        if (var, id(value)) not in self._fields:
            part = relax.TupleGetItem(value.expr, index)
            with self.emit.inside(self.slots[var]):
                ty = with_dtype(var.ty, value.dtype)
                expr = self.emit.bind(part, ty, f"{var.name}_{value.dtype}")
            self._fields[var, id(value)] = value, replace(value, expr=expr)
        return self._fields[var, id(value)][1]

    def operand(self, expr: relax.Expr, params: QuantParams | None = None) -> QuantizedValue:
        """Return `value`; the reason is that of the operator that reads it."""
        try:
            return self.value(expr, params)
        except NotQuantizable:
            raise NotQuantizable(f"its operand {_name(expr)} is not quantized") from None

    def clipped(self, expr: relax.Expr) -> QuantizedValue:
        """Return an operand's natural integers, with no clip left to apply."""
        return self.emit.apply_clip(self.operand(expr))

    def stored(self, expr: relax.Expr) -> QuantizedValue:
        """Return `clipped`, which has to be stored integers with one scale."""
        value = self.clipped(expr)
        if not value.narrow:
            name = operator(self.calls.get(expr)).removeprefix("relax.")
            maker = f", which {name} gives," if name else ""
            raise NotQuantizable(f"its operand {_name(expr)}{maker} is not quantized before it")
        if not value.scalar:
            raise NotQuantizable(f"its operand {_name(expr)} is quantized by channel")
        return value

    def at(self, expr: relax.Expr, params: QuantParams) -> QuantizedValue:
        """Return an operand's integers with the scale, zero point and dtype of `params`."""
        number = self.number(expr)
        if number is not None:
            made = self.emit.constant(self.emit.quantize(number, params), params.dtype)
            return QuantizedValue.of(made, params)
        value = self.operand(expr, params)
        if value.has(params):
            return value
        made = QuantizedValue.of(self.emit.requantize_to(value, params), params)
        return replace(made, axis=value.axis)

    def number(self, expr: relax.Expr) -> Array | None:
        """Return an operand's value where it is constant, float64."""
        if not isinstance(expr, relax.Var):
            array = array_of(expr)
        elif (value := self.known_constant(expr)) is not None and value.array is not None:
            return value.real(value.array.ndim)
        else:
            array = self.numbers.get(expr)
        return None if array is None else array.astype(np.float64)

    def constant_side(
        self, call: relax.Call, ordered: bool
    ) -> tuple[relax.Expr, relax.Expr, Array] | None:
        """Return the computed operand of a call, the constant one, and the constant's value."""
        left, right = call.args
        for operand, other in [(left, right)] if ordered else [(left, right), (right, left)]:
            number = self.number(other)
            if number is not None and self.number(operand) is None:
                return operand, other, number
        return None

    def known_constant(self, expr: relax.Expr) -> QuantizedValue | None:
        """Return the integers of a constant that was quantized; None for anything else."""
        if expr not in self.constant:
            return None
        with contextlib.suppress(NotQuantizable):
            value = self.value(expr)
            return value if value.array is not None else None
        return None


def operator(value: relax.Expr | None) -> str:
    """Return the name of the operator that an expression calls; empty where it calls none."""
    if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
        return str(value.op.name)
    return ""


def calls(value: relax.Expr | None, name: str) -> TypeGuard[relax.Call]:
    """Whether an expression calls an operator."""
    return operator(value) == f"relax.{name}"


def leaves(expr: relax.Expr) -> Iterator[relax.Expr]:
    """Yield what a tuple is made of, or the expression itself."""
    if isinstance(expr, relax.Tuple):
        for item in expr.fields:
            yield from leaves(item)
    else:
        yield expr


def describe(call: relax.Call) -> str:
    """Name an operator in a reason; for a kernel's call, the kernel too."""
    name = operator(call).removeprefix("relax.")
    kernel = call.args[0] if call.args else None
    return f"{name} of {kernel.name_hint}" if isinstance(kernel, tvm.ir.GlobalVar) else name


def _name(expr: relax.Expr) -> str:
    return str(expr.name) if isinstance(expr, relax.Var) else "(a constant)"


# Reading quantizes and dequantizes, Relax's and ours


def nested(value: relax.Expr) -> Iterator[relax.SeqExpr]:
    """Yield the branches of an `if`."""
    if isinstance(value, relax.If):
        for branch in (value.true_branch, value.false_branch):
            if isinstance(branch, relax.SeqExpr):
                yield branch


def bindings(body: relax.Expr) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """Yield the bindings of a body and of the branches and functions in it, in order."""
    for block in body.blocks if isinstance(body, relax.SeqExpr) else ():
        for binding in block.bindings:
            value = binding.value
            for inner in [value.body] if isinstance(value, relax.Function) else nested(value):
                yield from bindings(inner)
            yield binding.var, value


def any_quantize(body: relax.Expr) -> bool:
    """Whether a body quantizes anything, in itself, a branch or a function within it."""
    return any(operator(value) in QUANTIZES for _, value in bindings(body))


def _attribute(call: relax.Call, name: str) -> Any:
    ours = call.op.name.startswith("relax.qnn.")
    return call.attrs[name] if ours else getattr(call.attrs, name)


def read_quantize(call: relax.Call) -> tuple[Array, Array, int, str]:
    """Return a quantize's scale, zero point, axis and dtype."""
    ty, dtype = call.args[0].ty, str(_attribute(call, "out_dtype"))
    if dtype not in _STORED:
        raise NotQuantizable(f"it quantizes to {dtype}")
    if str(ty.dtype) != "float32":
        raise NotQuantizable(f"it quantizes {ty.dtype}")
    return *channel_params(call, int(_attribute(call, "axis")), ty, dtype), dtype


def read_dequantize(call: relax.Call, data: relax.Expr, bounds: tuple[int, int]) -> QuantizedValue:
    """Return the integers that a dequantize reads from `data`, its operand as it is now."""
    dtype, out = str(data.ty.dtype), str(_attribute(call, "out_dtype"))
    if dtype not in _STORED:
        raise NotQuantizable(f"it dequantizes {dtype}")
    if out != "float32":
        raise NotQuantizable(f"it dequantizes to {out}")
    params = channel_params(call, int(_attribute(call, "axis")), call.args[0].ty, dtype)
    return QuantizedValue(data, dtype, *params, *bounds, array=array_of(data))
