"""Bindings of integer operators: constants, requantizes and clips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

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
    shift,
    with_dtype,
)

# `fixed_point` refuses the multiplier of a requantize above this ratio of its scales.
_SCALES_APART = 2.0**30


@dataclass(eq=False)
class Slot:
    """The place of one binding of the original function, and what is emitted before it."""

    order: int
    scope: tuple[int, ...]
    dataflow: bool
    bindings: list[relax.Binding] = field(default_factory=list)

    def sees(self, other: Slot) -> bool:
        """Whether what `other` binds is visible here."""
        return other.order <= self.order and other.scope == self.scope[: len(other.scope)]


def typed(value: relax.Expr, ty: Any) -> relax.Expr:
    """Give an expression its type, if it has none yet."""
    if type(value.ty) is tvm.ir.Type:
        relax.expr._update_type(value, ty)
    return value


class Emitter:
    """Emits bindings into `slot`, that of the operator that is being rewritten."""

    def __init__(self, rounding: str) -> None:
        self.rounding = rounding
        self.ties = "ONNX" if rounding == "ONNX" else "None"  # the rounding of every quantize
        self.slot = Slot(0, (), True)
        self.calls: dict[relax.Var, relax.Call] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], relax.Expr] = {}
        # Results by what they are made from (kept alive, because the key has its address).
        self._made: dict[tuple[Any, ...], tuple[Slot, QuantizedValue, Any]] = {}

    @contextmanager
    def inside(self, slot: Slot) -> Iterator[None]:
        """Emit into another slot."""
        before, self.slot = self.slot, slot
        try:
            yield
        finally:
            self.slot = before

    def quantize(self, value: Any, params: QuantParams) -> Array:
        """Quantize numbers with the reference arithmetic."""
        data, scale = np.asarray(value, np.float32), np.float32(params.scale)
        return arithmetic.quantize(
            data, scale, params.zero, out_dtype=params.dtype, rounding=self.ties
        )

    def constant(self, value: npt.ArrayLike, dtype: str) -> relax.Expr:
        """Return a constant; equal small ones are shared."""
        array = np.array(value, dtype, order="C")
        if array.nbytes > 4096:
            return relax.const(array, dtype)
        key = (dtype, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = relax.const(array, dtype)
        return self._constants[key]

    def scale(self, value: npt.ArrayLike) -> relax.Expr:
        """Return a scale's constant: float64 where it is, else float32."""
        array = np.asarray(value)
        return self.constant(array, "float64" if array.dtype == np.float64 else "float32")

    def zero(self, value: npt.ArrayLike) -> relax.Expr:
        """Return a zero point's constant."""
        return self.constant(value, "int32")

    def params(self, value: QuantizedValue | QuantParams) -> list[relax.Expr]:
        """Return the constants of a scale and a zero point."""
        scale = np.float32(value.scale) if isinstance(value, QuantParams) else value.scale
        return [self.scale(scale), self.zero(value.zero)]

    def bind(
        self, value: relax.Expr, ty: Any, hint: str, var: relax.Var | None = None
    ) -> relax.Expr:
        """Bind an expression to a variable, a new one unless it is given."""
        if var is None:
            var = (relax.DataflowVar if self.slot.dataflow else relax.Var)(hint, ty)
        self.slot.bindings.append(relax.VarBinding(var, typed(value, ty)))
        if isinstance(value, relax.Call):
            self.calls[var] = value
        return var

    def call_at(
        self,
        name: str,
        operands: Sequence[relax.Expr],
        attributes: dict[str, Any],
        var: relax.Var,
        params: QuantParams,
        dtype: str,
    ) -> QuantizedValue:
        """Bind a call of a quantized operator of another dtype than its result is quantized to."""
        own = QuantParams(params.scale, params.zero + shift(params.dtype, dtype), dtype)
        hint, ty = f"{var.name}_{dtype}", with_dtype(var.ty, dtype)
        made = dialect.call(f"relax.qnn.{name}", [*operands, *self.params(own)], attributes)
        value = QuantizedValue.of(self.bind(made, ty, hint), own)
        if dtype == params.dtype:
            return value
        return QuantizedValue.of(self.requantize_to(value, params), params)

    def again(
        self, call: relax.Call, operands: Sequence[relax.Expr], var: relax.Var, dtype: str
    ) -> relax.Expr:
        """Bind a float call once more, on integers in place of its first operands."""
        args = [*operands, *list(call.args)[len(operands) :]]
        made = relax.Call(call.op, args, call.attrs, call.ty_args)
        return self.bind(made, with_dtype(var.ty, dtype), f"{var.name}_{dtype}")

    def _once(self, value: QuantizedValue, key: Any, make: Any) -> Any:
        """Return what was made from a value before, if it is visible here."""
        found = self._made.get((id(value), key))
        if found is None or not self.slot.sees(found[0]):
            found = self._made[id(value), key] = (self.slot, value, make())
        return found[2]

    def requantize_to(
        self, value: QuantizedValue, params: QuantParams, var: relax.Var | None = None
    ) -> relax.Expr:
        """Return a value's integers with other parameters, clipped as the value says."""
        return self._once(value, params, lambda: self._requantize_to(value, params, var))

    def _requantize_to(
        self, value: QuantizedValue, params: QuantParams, var: relax.Var | None
    ) -> relax.Expr:
        if value.array is not None:
            real = value.real(value.array.ndim)
            return self.constant(self.quantize(real, params), params.dtype)
        expr, ty = value.expr, with_dtype(value.expr.ty, params.dtype)
        hint = f"{getattr(expr, 'name', 'c')}_{params.dtype}"
        limits = self._limits(value, params)
        if not value.has(params):
            _check_requantize(value, params)
            operands = [expr, *self.params(value), *self.params(params)]
            attributes = {
                "axis": value.axis,
                "rounding": self.rounding,
                "compute_dtype": value.compute if params.dtype in NARROW else "None",
                "out_dtype": params.dtype,
            }
            made = dialect.call("relax.qnn.requantize", operands, attributes)
            expr = self.bind(made, ty, hint, None if limits else var)
        return self._clip(expr, *limits, hint, var) if limits else expr

    def _limits(self, value: QuantizedValue, params: QuantParams) -> tuple[int, int] | None:
        """Return the limits of a value's clip as integers; None where the dtype has the same.

        Rounding keeps the order of numbers, so that clipping the integers at the rounded limits is
        exactly clipping the real values and rounding them.
        """
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
        found: QuantizedValue = self._once(value, None, lambda: self._apply_clip(value))
        return found

    def _apply_clip(self, value: QuantizedValue) -> QuantizedValue:
        low = max(_integer_limit(value, value.low, value.least, 1), value.least)
        high = min(_integer_limit(value, value.high, value.most, -1), value.most)
        if low > high:
            raise NotQuantizable("its operand is cut to values that its dtype does not have")
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
        if least < low or most > high:
            raise NotQuantizable(f"{dtype} does not hold {value.dtype}'s values")
        if not value.scalar:
            raise NotQuantizable(f"its operand is {value.dtype} by channel beside {dtype}")
        params = QuantParams(float(value.scale), int(zero), dtype)
        bare = replace(value.unclipped(), error=0.0)
        expr = self._once(value, dtype, lambda: self._requantize_to(bare, params, None))
        return replace(value, expr=expr, dtype=dtype, zero=zero, least=least, most=most, array=None)


def _check_requantize(value: QuantizedValue, params: QuantParams) -> None:
    """Refuse scales too far apart, a lost step, and integers beyond int32."""
    if np.max(value.scale.astype(np.float64)) / params.scale >= _SCALES_APART:
        raise NotQuantizable("its scale and that of its result are 2**30 apart")
    if value.error > params.scale / 2:
        raise NotQuantizable("roundings before it could be more than half a step of its result")
    if params.dtype == "int32" and value.reach / params.scale + abs(params.zero) >= INT32[1]:
        raise NotQuantizable("its values could be beyond int32")


def _integer_limit(value: QuantizedValue, limit: float, end: int, sign: int) -> int:
    """Return a limit of a clip as an integer; `end` where no value is beyond the limit."""
    if np.isinf(limit):
        return end
    place = np.float64(limit) / value.scale.astype(np.float64) + value.zero
    if np.all(sign * (place - end) <= 0):
        return end
    if not np.all(place == np.round(place)) or np.any(place != place.flat[0]):
        raise NotQuantizable(f"its operand is cut at {limit}, which is no step of its scale")
    return int(place.flat[0])
