"""The engine's memory: each float value's integers, computed when a quantize asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from ...ir import checks, dialect
from .. import arithmetic
from .quantized_value import (
    INT32,
    NARROW,
    Array,
    NotQuantizable,
    QuantizedValue,
    QuantParams,
    array_of,
    operator,
    require,
    shift,
    with_dtype,
)

# `fixed_point` refuses the multiplier of a requantize above this ratio of its scales.
_SCALES_APART = 2.0**30
# So many steps of a result beyond its operands' reach are more than a left shift in int32 takes.
_STEPS_APART = 2.0**20


def typed(value: relax.Expr, ty: Any) -> relax.Expr:
    """Give an expression its type, if it has none yet."""
    if type(value.ty) is tvm.ir.Type:
        relax.expr._update_type(value, ty)
    return value


class Emitter:
    """Emits the bindings of integer operators: constants, requantizes and clips."""

    def __init__(self, rounding: str) -> None:
        self.rounding = rounding
        self.ties = "ONNX" if rounding == "ONNX" else "None"  # the rounding of every quantize
        self.calls: dict[relax.Var, relax.Call] = {}
        self.bindings: list[relax.Binding] = []
        self.dataflow = True
        self._constants: dict[tuple[str, tuple[int, ...], bytes], relax.Expr] = {}
        # Results by what they are made from (kept alive, because the key has its address).
        self._made: dict[tuple[Any, ...], tuple[QuantizedValue, Any]] = {}

    def quantize(self, value: Any, params: QuantParams) -> Array:
        """Quantize numbers with the reference arithmetic."""
        scale, how = np.float32(params.scale), {"out_dtype": params.dtype, "rounding": self.ties}
        return arithmetic.quantize(np.asarray(value, np.float32), scale, params.zero, **how)

    def constant(self, value: npt.ArrayLike, dtype: str) -> relax.Expr:
        """Return a constant; equal small ones are shared."""
        array = np.array(value, dtype, order="C")
        if array.nbytes > 4096:
            return relax.const(array, dtype)
        key = (dtype, array.shape, array.tobytes())
        return self._constants.setdefault(key, relax.const(array, dtype))

    def scale(self, value: npt.ArrayLike) -> relax.Expr:
        """Return a scale's constant: float64 where it is, else float32."""
        array = np.asarray(value)
        return self.constant(array, "float64" if array.dtype == np.float64 else "float32")

    def params(self, value: QuantizedValue | QuantParams) -> list[relax.Expr]:
        """Return the constants of a scale and a zero point."""
        scale = np.float32(value.scale) if isinstance(value, QuantParams) else value.scale
        return [self.scale(scale), self.constant(value.zero, "int32")]

    def bind(
        self, value: relax.Expr, ty: Any, hint: str, var: relax.Var | None = None
    ) -> relax.Expr:
        """Bind an expression to a variable, a new one unless it is given."""
        if var is None:
            var = (relax.DataflowVar if self.dataflow else relax.Var)(hint, ty)
        self.bindings.append(relax.VarBinding(var, typed(value, ty)))
        if isinstance(value, relax.Call):
            self.calls[var] = value
        return var

    def once(self, value: QuantizedValue, key: Any, make: Callable[[], Any]) -> Any:
        """Return what was made from a value before."""
        if (id(value), key) not in self._made:
            self._made[id(value), key] = value, make()
        return self._made[id(value), key][1]

    def requantize_to(
        self, value: QuantizedValue, params: QuantParams, var: relax.Var | None = None
    ) -> relax.Expr:
        """Return a value's integers with other parameters, clipped as the value says."""
        return self.once(value, params, lambda: self._requantize_to(value, params, var))

    def _requantize_to(
        self, value: QuantizedValue, params: QuantParams, var: relax.Var | None
    ) -> relax.Expr:
        if value.array is not None:
            return self.constant(self.quantize(value.real(), params), params.dtype)
        expr, ty = value.expr, with_dtype(value.expr.ty, params.dtype)
        hint = f"{getattr(expr, 'name', 'c')}_{params.dtype}"
        limits = self._limits(value, params)
        if not value.has(params):
            _check_requantize(value, params)
            attributes = {
                "axis": value.axis,
                "rounding": self.rounding,
                "compute_dtype": value.compute if params.dtype in NARROW else "None",
                "out_dtype": params.dtype,
            }
            operands = [expr, *self.params(value), *self.params(params)]
            made = dialect.call("relax.qnn.requantize", operands, attributes)
            expr = self.bind(made, ty, hint, None if limits else var)
        return self._clip(expr, *limits, hint, var) if limits else expr

    def _limits(self, value: QuantizedValue, params: QuantParams) -> tuple[int, int] | None:
        """Return the limits of a value's clip as integers; None where the dtype has the same."""
        if not value.clipped:
            return None
        low, high = (int(self.quantize(limit, params)) for limit in (value.low, value.high))
        return None if (low, high) == checks.limits(params.dtype) else (low, high)

    def _clip(
        self, expr: relax.Expr, low: int, high: int, hint: str, var: relax.Var | None = None
    ) -> relax.Expr:
        # Relay's reader makes the limits float64.
        return self.bind(relax.op.clip(expr, float(low), float(high)), expr.ty, hint, var)

    def apply_clip(self, value: QuantizedValue) -> QuantizedValue:
        """Clip a value at its own scale."""
        if not value.clipped:
            return value
        found: QuantizedValue = self.once(value, None, lambda: self._apply_clip(value))
        return found

    def _apply_clip(self, value: QuantizedValue) -> QuantizedValue:
        low = max(_integer_limit(value, value.low, value.least, 1), value.least)
        high = min(_integer_limit(value, value.high, value.most, -1), value.most)
        require(low <= high, "its operand is cut to values that its dtype does not have")
        expr, hint = value.expr, f"{getattr(value.expr, 'name', 'c')}_cut"
        if value.narrow and (low, high) != (value.least, value.most):
            expr = self._clip(expr, low, high, hint)
        elif not value.narrow:
            # A limit of int32 is no float32 number; constants of its own dtype are exact.
            ends = (low, value.least, relax.op.maximum), (high, value.most, relax.op.minimum)
            for limit, end, limited in ends:
                if limit != end:
                    made = limited(expr, self.constant(limit, value.dtype))
                    expr = self.bind(made, expr.ty, hint)
        array = None if value.array is None else np.clip(value.array, low, high)
        return replace(value.unclipped(), expr=expr, array=array, least=low, most=high)

    def change_dtype(self, value: QuantizedValue, dtype: str) -> QuantizedValue:
        """Return the same real values in another dtype, exactly: int8 as uint8, or a wider one."""
        if value.dtype == dtype:
            return value
        moved = shift(value.dtype, dtype)
        zero, least, most = value.zero + moved, value.least + moved, value.most + moved
        low, high = checks.limits(dtype)
        require(low <= least and most <= high, f"{dtype} does not hold {value.dtype}'s values")
        require(value.scalar, f"its operand is {value.dtype} by channel beside {dtype}")
        params = QuantParams(float(value.scale), int(zero), dtype)
        bare = replace(value.unclipped(), error=0.0)
        expr = self.once(value, dtype, lambda: self._requantize_to(bare, params, None))
        return replace(value, expr=expr, dtype=dtype, zero=zero, least=least, most=most, array=None)


def _check_requantize(value: QuantizedValue, params: QuantParams) -> None:
    """Refuse scales too far apart, a lost step, and integers beyond int32."""
    apart = np.max(value.scale.astype(np.float64)) / params.scale
    require(apart < _SCALES_APART, "its scale and that of its result are 2**30 apart")
    lost = "roundings before it could be more than half a step of its result"
    require(value.error <= params.scale / 2, lost)
    inside = value.reach / params.scale + abs(params.zero) < INT32[1]
    require(params.dtype != "int32" or inside, "its values could be beyond int32")


def check_scales(values: Sequence[QuantizedValue], params: QuantParams) -> None:
    """Refuse operands whose requantize within an operator would be refused, or wrap."""
    for value in values:
        reach = value.reach / params.scale + abs(params.zero)
        require(reach < _STEPS_APART, "its scales are too far apart")
        lost = "roundings before it could be more than a quarter of its result's step"
        require(value.error <= params.scale / 4, lost)


def _integer_limit(value: QuantizedValue, limit: float, end: int, sign: int) -> int:
    """Return a limit of a clip as an integer; `end` where no value is beyond the limit."""
    if np.isinf(limit):
        return end
    place = np.float64(limit) / value.scale.astype(np.float64) + value.zero
    if np.all(sign * (place - end) <= 0):
        return end
    whole = np.all(place == np.round(place)) and np.all(place == place.flat[0])
    require(whole, f"its operand is cut at {limit}, which is no step of its scale")
    return int(place.flat[0])


class Rule(NamedTuple):
    """How an operator is computed in integers.

    ``natural(site)`` returns the result unrounded: exact sums, or stored integers.
    ``at(site, params)`` returns the result at the parameters of the quantize that reads it; by
    default `natural` is requantized. Both raise `NotQuantizable` where they cannot.
    """

    natural: Callable[[Site], QuantizedValue]
    at: Callable[[Site, QuantParams], QuantizedValue] | None = None


class Context(Emitter):
    """The values of one function."""

    def __init__(
        self, rounding: str, rules: Mapping[str, Rule], reasons: dict[relax.Var, str]
    ) -> None:
        super().__init__(rounding)
        self.rules, self.reasons = rules, reasons
        self.sources: dict[relax.Var, relax.Expr] = {}
        self.numbers: dict[relax.Var, Array] = {}
        self.values: dict[tuple[Any, ...], QuantizedValue | None] = {}

    def known(self, expr: relax.Expr) -> QuantizedValue | None:
        """Return an operand's natural integers if they have been computed."""
        return self.values.get((expr, None)) if isinstance(expr, relax.Var) else None

    def value(self, expr: relax.Expr, params: QuantParams | None = None) -> QuantizedValue:
        """Return an operand's integers: at `params`, or such that a requantize can follow."""
        if not isinstance(expr, relax.Var):
            raise NotQuantizable("its operand is a float constant")
        if (expr, params) not in self.values:
            try:
                self.values[expr, params] = self._computed(expr, params)
            except NotQuantizable as why:
                self.values[expr, params] = None
                self.reasons.setdefault(expr, str(why))
        found = self.values[expr, params]
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
            name = operator(call).removeprefix("relax.")
            raise NotQuantizable(f"{name or 'it'} has no integer form")
        site = Site(self, call, var)
        return rule.at(site, params) if params is not None and rule.at else rule.natural(site)

    def _field(
        self, var: relax.Var, source: relax.TupleGetItem, params: QuantParams | None
    ) -> QuantizedValue:
        whole, index = source.tuple_value, int(source.index)
        fields = self.sources.get(whole)
        if isinstance(fields, relax.Tuple):
            return self.value(fields.fields[index], params)
        value = self.value(whole, params)
        if not isinstance(value.expr.ty, relax.TupleType):
            require(not index, "it is no value of the network")
            return value  # of a batch norm only the first is

        def field() -> QuantizedValue:
            part, ty = relax.TupleGetItem(value.expr, index), with_dtype(var.ty, value.dtype)
            return replace(value, expr=self.bind(part, ty, f"{var.name}_{value.dtype}"))

        found: QuantizedValue = self.once(value, index, field)
        return found

    def operand(self, expr: relax.Expr, params: QuantParams | None = None) -> QuantizedValue:
        """Return `value`; the reason is that of the operator that reads it."""
        try:
            return self.value(expr, params)
        except NotQuantizable:
            raise NotQuantizable(f"its operand {_name(expr)} is not quantized") from None

    def clipped(self, expr: relax.Expr) -> QuantizedValue:
        """Return an operand's natural integers, with no clip left to apply."""
        return self.apply_clip(self.operand(expr))

    def stored(self, expr: relax.Expr) -> QuantizedValue:
        """Return `clipped`, which has to be stored integers with one scale."""
        value = self.clipped(expr)
        maker = operator(self.calls.get(expr)).removeprefix("relax.")
        given = f", which {maker} gives," if maker else ""
        require(value.narrow, f"its operand {_name(expr)}{given} is not quantized before it")
        require(value.scalar, f"its operand {_name(expr)} is quantized by channel")
        return value

    def at(self, expr: relax.Expr, params: QuantParams) -> QuantizedValue:
        """Return an operand's integers with the scale, zero point and dtype of `params`."""
        number = self.number(expr)
        if number is not None:
            made = self.constant(self.quantize(number, params), params.dtype)
            return QuantizedValue.of(made, params)
        value = self.operand(expr, params)
        if value.has(params):
            return value
        made = QuantizedValue.of(self.requantize_to(value, params), params)
        return replace(made, axis=value.axis)

    def number(self, expr: relax.Expr) -> Array | None:
        """Return an operand's value where it is constant, float64."""
        if not isinstance(expr, relax.Var):
            array = array_of(expr)
        else:
            stored = self.known_constant(expr)
            array = self.numbers.get(expr) if stored is None else stored.real()
        return None if array is None else array.astype(np.float64)

    def known_constant(self, expr: relax.Expr) -> QuantizedValue | None:
        """Return the integers of a constant that was quantized; None for anything else."""
        value = self.known(expr)
        return value if value is not None and value.array is not None else None


@dataclass(frozen=True, eq=False)
class Site:
    """An operator of the float network, where it is computed in integers."""

    ctx: Context
    call: relax.Call
    var: relax.Var

    @property
    def name(self) -> str:
        """The operator's name, without ``relax.``."""
        return str(self.call.op.name.removeprefix("relax."))

    def bind(
        self, value: relax.Expr, suffix: str, dtype: str = "int32", ty: Any = None
    ) -> relax.Expr:
        """Bind an expression that has the type of the result, but for the dtype."""
        ty = ty or with_dtype(self.var.ty, dtype)
        return self.ctx.bind(value, ty, f"{self.var.name}_{suffix}")

    def again(self, operands: Sequence[relax.Expr], dtype: str) -> relax.Expr:
        """Bind the float call once more, on integers in place of its first operands."""
        call = self.call
        args = [*operands, *list(call.args)[len(operands) :]]
        made = relax.Call(call.op, args, call.attrs, call.ty_args)
        return self.bind(made, dtype, dtype)

    def call_at(
        self,
        name: str,
        operands: Sequence[relax.Expr],
        attributes: dict[str, Any],
        params: QuantParams,
        dtype: str,
    ) -> QuantizedValue:
        """Bind a call of a quantized operator of another dtype than its result is quantized to."""
        own = QuantParams(params.scale, params.zero + shift(params.dtype, dtype), dtype)
        operands = [*operands, *self.ctx.params(own)]
        made = dialect.call(f"relax.qnn.{name}", operands, attributes)
        value = QuantizedValue.of(self.bind(made, dtype, dtype), own)
        if dtype == params.dtype:
            return value
        return QuantizedValue.of(self.ctx.requantize_to(value, params), params)

    def constant_side(self, ordered: bool) -> tuple[relax.Expr, relax.Expr, Array] | None:
        """Return the computed operand, the constant one, and the constant's value."""
        left, right = self.call.args
        for operand, other in [(left, right)] if ordered else [(left, right), (right, left)]:
            number = self.ctx.number(other)
            if number is not None and self.ctx.number(operand) is None:
                return operand, other, number
        return None


def _name(expr: relax.Expr) -> str:
    return str(expr.name) if isinstance(expr, relax.Var) else "(a constant)"
