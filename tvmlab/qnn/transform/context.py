"""Integer values of the float expressions in a block, computed on demand and cached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tvm import relax

from ...ir import dialect
from .. import arithmetic, checks
from ..checks import Array
from ..operator import NARROW
from . import reading
from .values import NotQuantizable, QuantizedValue, QuantParams, known, require, shift


class Rule(NamedTuple):
    """The integer form of an operator.

    ``natural(site)`` returns the result without rounding: exact sums, or stored integers.
    ``at(site, params)`` returns the result at the parameters of the quantize that reads it; by
    default `natural` is requantized. Both raise `NotQuantizable` if there is no integer form.
    """

    natural: Callable[[Site], QuantizedValue]
    at: Callable[[Site, QuantParams], QuantizedValue] | None = None


class Context:
    """The integer values of a function's block, and the bindings of the calls that compute them."""

    def __init__(
        self, rounding: str, rules: Mapping[str, Rule], reasons: dict[relax.Var, str]
    ) -> None:
        self.rounding, self.rules, self.reasons = rounding, rules, reasons
        self.ties = "ONNX" if rounding == "ONNX" else "None"  # the rounding of every quantize
        self.dataflow = True
        self.bindings: list[relax.Binding] = []
        # The calls and other expressions bound to variables, and the values for each parameters.
        self.calls: dict[relax.Var, relax.Call] = {}
        self.sources: dict[relax.Var, relax.Expr] = {}
        self.numbers: dict[relax.Var, Array] = {}
        self.values: dict[tuple[Any, ...], QuantizedValue | None] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], relax.Expr] = {}
        # Results by the value that they come from (kept alive, because the key has its address).
        self._made: dict[tuple[Any, ...], tuple[QuantizedValue, Any]] = {}

    def quantize(self, value: Any, params: QuantParams) -> Array:
        """Quantize numbers with the reference arithmetic."""
        scale, how = np.float32(params.scale), {"out_dtype": params.dtype, "rounding": self.ties}
        return arithmetic.quantize(np.asarray(value, np.float32), scale, params.zero, **how)

    def constant(self, value: npt.ArrayLike, dtype: str) -> relax.Expr:
        """Return a constant; equal ones are shared."""
        array = np.array(value, dtype, order="C")
        key = (dtype, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = relax.const(array, dtype)
        return self._constants[key]

    def params(self, value: QuantizedValue | QuantParams) -> list[relax.Expr]:
        """Return the constants of a scale (float32, or float64 as in `value`) and a zero point."""
        wide = isinstance(value, QuantizedValue) and value.scale.dtype == np.float64
        scale = self.constant(value.scale, "float64" if wide else "float32")
        return [scale, self.constant(value.zero, "int32")]

    def bind(
        self, value: relax.Expr, ty: Any, hint: str, var: relax.Var | None = None
    ) -> relax.Expr:
        """Bind an expression to a new variable, or to `var`."""
        if var is None:
            var = (relax.DataflowVar if self.dataflow else relax.Var)(hint, ty)
        self.bindings.append(relax.VarBinding(var, reading.typed(value, ty)))
        if isinstance(value, relax.Call):
            self.calls[var] = value
        return var

    def once(self, value: QuantizedValue, key: Any, make: Callable[[], Any]) -> Any:
        """Return the result of `make` for a value and a key, which is computed only once."""
        if (id(value), key) not in self._made:
            self._made[id(value), key] = value, make()
        return self._made[id(value), key][1]

    def requantize_to(
        self, value: QuantizedValue, params: QuantParams, var: relax.Var | None = None
    ) -> relax.Expr:
        """Return a value's integers with other parameters, after applying the value's clip."""
        return self.once(value, params, lambda: self._requantize_to(value, params, var))

    def _requantize_to(
        self, value: QuantizedValue, params: QuantParams, var: relax.Var | None
    ) -> relax.Expr:
        if value.array is not None:
            return self.constant(self.quantize(value.real(), params), params.dtype)
        expr, ty = value.expr, reading.with_dtype(value.expr.ty, params.dtype)
        hint = f"{getattr(expr, 'name', 'c')}_{params.dtype}"
        limits = self._limits(value, params)
        if not value.has(params):
            value.check_requantize(params)
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
        """Return the limits of a value's clip as integers; None if the dtype has these limits."""
        if not value.clipped:
            return None
        low, high = (int(self.quantize(limit, params)) for limit in (value.low, value.high))
        return None if (low, high) == checks.limits(params.dtype) else (low, high)

    def _clip(
        self, expr: relax.Expr, low: int, high: int, hint: str, var: relax.Var | None = None
    ) -> relax.Expr:
        # The limits are float64, as in the reader of Relay's text.
        return self.bind(relax.op.clip(expr, float(low), float(high)), expr.ty, hint, var)

    def apply_clip(self, value: QuantizedValue) -> QuantizedValue:
        """Clip a value at its own scale."""
        if not value.clipped:
            return value
        found: QuantizedValue = self.once(value, None, lambda: self._apply_clip(value))
        return found

    def _apply_clip(self, value: QuantizedValue) -> QuantizedValue:
        low = max(value.integer_limit(value.low, value.least, 1), value.least)
        high = min(value.integer_limit(value.high, value.most, -1), value.most)
        require(low <= high, "its operand is clipped to values that its dtype does not have")
        expr, hint = value.expr, f"{getattr(value.expr, 'name', 'c')}_cut"
        if value.narrow and (low, high) != (value.least, value.most):
            expr = self._clip(expr, low, high, hint)
        elif not value.narrow:
            # float32 does not hold a limit of int32; constants of the value's own dtype are exact.
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
        require(value.scalar, f"its operand is {value.dtype} by channel beside {dtype}")
        params = QuantParams(float(value.scale), int(zero), dtype)
        bare = replace(value.unclipped(), error=0.0)
        expr = self.once(value, dtype, lambda: self._requantize_to(bare, params, None))
        return replace(value, expr=expr, dtype=dtype, zero=zero, least=least, most=most, array=None)

    def known(self, expr: relax.Expr) -> QuantizedValue | None:
        """Return an operand's natural integers if they are already computed."""
        return self.values.get((expr, None)) if isinstance(expr, relax.Var) else None

    def value(self, expr: relax.Expr, params: QuantParams | None = None) -> QuantizedValue:
        """Return an operand's integers: at `params`, or natural ones for a requantize to follow."""
        if not isinstance(expr, relax.Var):
            raise NotQuantizable("its operand is a float constant")
        if (expr, params) not in self.values:
            try:
                self.values[expr, params] = self._computed(expr, params)
            except NotQuantizable as why:
                self.values[expr, params] = None
                self.reasons.setdefault(expr, str(why))
        return known(self.values[expr, params], self.reasons.get(expr, ""))

    def _computed(self, var: relax.Var, params: QuantParams | None) -> QuantizedValue:
        source, call = self.sources.get(var), self.calls.get(var)
        if isinstance(source, relax.Var):
            return self.value(source, params)
        if isinstance(source, relax.TupleGetItem):
            return self._field(var, source, params)
        rule = self.rules.get(reading.operator(call))
        if params is not None and (rule is None or rule.at is None):
            return self.value(var)
        name = reading.operator(call).removeprefix("relax.")
        rule, site = known(rule, f"{name or 'it'} has no integer form"), Site(self, call, var)
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
            require(not index, "it is a statistic of a batch normalization")
            return value  # the first result of a batch normalization
        part, ty = relax.TupleGetItem(value.expr, index), reading.with_dtype(var.ty, value.dtype)
        return replace(value, expr=self.bind(part, ty, f"{var.name}_{value.dtype}"))

    def operand(self, expr: relax.Expr, params: QuantParams | None = None) -> QuantizedValue:
        """Return `value`; the reason in an error is about the operator that reads the operand."""
        try:
            return self.value(expr, params)
        except NotQuantizable:
            raise NotQuantizable(f"its operand {_name(expr)} is not quantized") from None

    def clipped(self, expr: relax.Expr) -> QuantizedValue:
        """Return an operand's natural integers, after applying its clip."""
        return self.apply_clip(self.operand(expr))

    def stored(self, expr: relax.Expr) -> QuantizedValue:
        """Return `clipped`; require stored integers with one scale."""
        value = self.clipped(expr)
        require(value.narrow, f"its operand {_name(expr)} is not quantized before the operator")
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
        """Return an operand's value as float64 if it is constant."""
        if not isinstance(expr, relax.Var):
            array = reading.array_of(expr)
        else:
            stored = self.known_constant(expr)
            array = self.numbers.get(expr) if stored is None else stored.real()
        return None if array is None else array.astype(np.float64)

    def known_constant(self, expr: relax.Expr) -> QuantizedValue | None:
        """Return the integers of a quantized constant; None for anything else."""
        value = self.known(expr)
        return value if value is not None and value.array is not None else None


@dataclass(frozen=True, eq=False)
class Site:
    """An operator of the float network that is being computed in integers."""

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
        """Bind an expression with the type of the operator's result, except for the dtype."""
        ty = ty or reading.with_dtype(self.var.ty, dtype)
        return self.ctx.bind(value, ty, f"{self.var.name}_{suffix}")

    def again(self, operands: Sequence[relax.Expr], dtype: str) -> relax.Expr:
        """Bind the float call with integers instead of its first operands."""
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
        """Bind a call of a quantized operator in `dtype`, then requantize to `params`."""
        own = QuantParams(params.scale, params.zero + shift(params.dtype, dtype), dtype)
        operands = [*operands, *self.ctx.params(own)]
        made = dialect.call(f"relax.qnn.{name}", operands, attributes)
        value = QuantizedValue.of(self.bind(made, dtype, dtype), own)
        if dtype == params.dtype:
            return value
        return QuantizedValue.of(self.ctx.requantize_to(value, params), params)


def _name(expr: relax.Expr) -> str:
    return str(expr.name) if isinstance(expr, relax.Var) else "(a constant)"
