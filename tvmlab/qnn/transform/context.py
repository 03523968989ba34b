"""Float values as integers, computed when a quantize asks for them, and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax

from ...ir import checks, dialect
from .. import arithmetic
from ..operator import NARROW

Array = npt.NDArray[Any]
T = TypeVar("T")

QUANTIZES = ("relax.quantize", "relax.qnn.quantize")
DEQUANTIZES = ("relax.dequantize", "relax.qnn.dequantize")
INFINITY = float("inf")
INT32 = checks.limits("int32")
# `fixed_point` refuses the multiplier of a requantize above this ratio of its scales.
_SCALES_APART = 2.0**30
# So many steps of a result beyond its operands' reach are more than a left shift in int32 takes.
_STEPS_APART = 2.0**20


class NotQuantizable(Exception):
    """An operator has no integer form; the message is the reason that the analysis reports."""


def require(condition: object, reason: str) -> None:
    """Leave an operator float, for a reason, unless a condition holds."""
    if not condition:
        raise NotQuantizable(reason)


def known(value: T | None, reason: str) -> T:
    """Return a value that is not None; else leave an operator float, for a reason."""
    if value is None:
        raise NotQuantizable(reason)
    return value


class QuantParams(NamedTuple):
    """The parameters of a quantize: one float32 scale, one zero point, and a dtype."""

    scale: float
    zero: int
    dtype: str


@dataclass(frozen=True, eq=False)
class QuantizedValue:
    """An integer expression for a float value, ``clip(scale * (expr - zero), low, high)``."""

    expr: relax.Expr
    dtype: str
    scale: Array
    zero: Array
    axis: int
    least: int
    most: int
    low: float = -INFINITY
    high: float = INFINITY
    error: float = 0.0
    array: Array | None = None
    compute: str = "None"

    @classmethod
    def of(cls, expr: relax.Expr, params: QuantParams) -> QuantizedValue:
        """Return the value of integers that have these parameters."""
        scale, zero = np.asarray(params.scale, np.float32), np.asarray(params.zero, np.int64)
        return cls(expr, params.dtype, scale, zero, 0, *checks.limits(params.dtype))

    @classmethod
    def sums(
        cls, expr: relax.Expr, scale: Array, axis: int, least: int, most: int
    ) -> QuantizedValue:
        """Return the value of int32 sums, whose zero point is 0."""
        return cls(expr, "int32", scale, np.zeros((), np.int64), axis, least, most)

    @property
    def narrow(self) -> bool:
        """Whether these are stored integers, and not int32 sums."""
        return self.dtype in NARROW

    @property
    def scalar(self) -> bool:
        """Whether all channels have one scale and zero point."""
        return self.scale.ndim == 0 and self.zero.ndim == 0

    @property
    def clipped(self) -> bool:
        """Whether a clip is still to be applied."""
        return self.low != -INFINITY or self.high != INFINITY

    @property
    def far(self) -> int:
        """The largest distance of an integer from the zero point."""
        return int(max(np.max(np.abs(end - self.zero)) for end in (self.least, self.most)))

    @property
    def reach(self) -> float:
        """The largest absolute real value."""
        far = np.maximum(np.abs(self.least - self.zero), np.abs(self.most - self.zero))
        return float(np.max(far * self.scale.astype(np.float64)))

    def has(self, params: QuantParams) -> bool:
        """Whether the integers have these parameters."""
        return self.scalar and params == (float(self.scale), int(self.zero), self.dtype)

    def unclipped(self) -> QuantizedValue:
        """Return the value without the clip that is still to be applied."""
        return replace(self, low=-INFINITY, high=INFINITY)

    def real(self) -> Array:
        """Return the real values of constant integers, float64."""
        assert self.array is not None
        scale, zero = (spread(x, self.axis, self.array.ndim) for x in (self.scale, self.zero))
        values: Array = (self.array.astype(np.float64) - zero) * scale.astype(np.float64)
        return np.clip(values, self.low, self.high) if self.clipped else values


def check_sums(least: int, most: int, what: str = "") -> None:
    """Refuse int32 sums that could wrap."""
    inside = least >= INT32[0] and most <= INT32[1]
    require(inside, f"its sums may reach {max(-least, most)}{what}, beyond int32")


def spread(values: Array, axis: int, ndim: int) -> Array:
    """Reshape one value per channel so that it broadcasts along an axis."""
    if values.ndim == 0:
        return values
    return values.reshape([-1 if i == axis else 1 for i in range(ndim)])


def array_of(expr: Any) -> Array | None:
    """Return a constant's value, None for anything else."""
    return expr.value.numpy() if isinstance(expr, tvm.ir.GenericConst) else None


def sizes(ty: Any) -> list[Any] | None:
    """Return a tensor's sizes, numbers as int; None where the shape is unknown."""
    shape = getattr(ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return [int(n.value) if isinstance(n, tvm.tirx.IntImm) else n for n in shape.values]


def fixed_sizes(ty: Any) -> list[int] | None:
    """Return a tensor's sizes where all of them are numbers."""
    found = sizes(ty)
    return found if found is not None and all(isinstance(n, int) for n in found) else None


def channel_count(ty: Any, axis: int) -> int | None:
    """Return a tensor's size along an axis where it is a number."""
    found = sizes(ty)
    return found[axis] if found and isinstance(found[axis], int) else None


def with_dtype(ty: Any, dtype: str) -> Any:
    """Return a tensor's type, or a tuple's of tensors, with another dtype."""
    if isinstance(ty, relax.TensorType):
        if ty.shape is None:
            return relax.TensorType(dtype=dtype, ndim=ty.ndim, vdevice=ty.vdevice)
        return relax.TensorType(ty.shape, dtype, ty.vdevice)
    return relax.TupleType([with_dtype(field, dtype) for field in ty.fields])


def same_shape(a: Any, b: Any) -> bool:
    """Whether two tensors have the same sizes, known or symbolic."""
    return bool(tvm_ffi.structural_equal(a, with_dtype(b, str(a.dtype))))


def _bits(dtype: str) -> int:
    return np.dtype(dtype).itemsize * 8


def shift(source: str, dtype: str) -> int:
    """Return what is added to integers to keep their order in another dtype of the same width."""
    if _bits(source) != _bits(dtype):
        return 0
    return checks.limits(dtype)[0] - checks.limits(source)[0]


def common_dtype(dtypes: Sequence[str], result: str) -> str:
    """Choose an operator's dtype: that of its operands if they agree and are wide enough."""
    widest = max([*dtypes, result], key=_bits)
    if len(set(dtypes)) == 1 and _bits(dtypes[0]) == _bits(widest):
        return dtypes[0]
    return result if _bits(result) == _bits(widest) else widest


# Reading a function


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
    for item in expr.fields if isinstance(expr, relax.Tuple) else ():
        yield from leaves(item)
    if not isinstance(expr, relax.Tuple):
        yield expr


def bindings(body: relax.SeqExpr) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """Yield the bindings of a body, in order."""
    for block in body.blocks:
        for binding in block.bindings:
            yield binding.var, binding.value


def typed(value: relax.Expr, ty: Any) -> relax.Expr:
    """Give an expression its type, if it has none yet."""
    if type(value.ty) is tvm.ir.Type:
        relax.expr._update_type(value, ty)
    return value


class Rule(NamedTuple):
    """How an operator is computed in integers.

    ``natural(site)`` returns the result unrounded: exact sums, or stored integers.
    ``at(site, params)`` returns the result at the parameters of the quantize that reads it; by
    default `natural` is requantized. Both raise `NotQuantizable` where they cannot.
    """

    natural: Callable[[Site], QuantizedValue]
    at: Callable[[Site, QuantParams], QuantizedValue] | None = None


class Context:
    """The values of a block of a function, and the bindings of the operators that compute them."""

    def __init__(
        self, rounding: str, rules: Mapping[str, Rule], reasons: dict[relax.Var, str]
    ) -> None:
        self.rounding, self.rules, self.reasons = rounding, rules, reasons
        self.ties = "ONNX" if rounding == "ONNX" else "None"  # the rounding of every quantize
        self.dataflow = True
        self.bindings: list[relax.Binding] = []
        # What variables are bound to, and their values at the parameters that were asked for.
        self.calls: dict[relax.Var, relax.Call] = {}
        self.sources: dict[relax.Var, relax.Expr] = {}
        self.numbers: dict[relax.Var, Array] = {}
        self.values: dict[tuple[Any, ...], QuantizedValue | None] = {}
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

    def params(self, value: QuantizedValue | QuantParams) -> list[relax.Expr]:
        """Return the constants of a scale (float64 where it is, else float32) and a zero point."""
        wide = isinstance(value, QuantizedValue) and value.scale.dtype == np.float64
        scale = self.constant(value.scale, "float64" if wide else "float32")
        return [scale, self.constant(value.zero, "int32")]

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
        require(value.scalar, f"its operand is {value.dtype} by channel beside {dtype}")
        params = QuantParams(float(value.scale), int(zero), dtype)
        bare = replace(value.unclipped(), error=0.0)
        expr = self.once(value, dtype, lambda: self._requantize_to(bare, params, None))
        return replace(value, expr=expr, dtype=dtype, zero=zero, least=least, most=most, array=None)

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
        return known(self.values[expr, params], self.reasons.get(expr, ""))

    def _computed(self, var: relax.Var, params: QuantParams | None) -> QuantizedValue:
        source, call = self.sources.get(var), self.calls.get(var)
        if isinstance(source, relax.Var):
            return self.value(source, params)
        if isinstance(source, relax.TupleGetItem):
            return self._field(var, source, params)
        rule = self.rules.get(operator(call))
        if params is not None and (rule is None or rule.at is None):
            return self.value(var)
        name = operator(call).removeprefix("relax.")
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
            require(not index, "it is no value of the network")
            return value  # of a batch norm only the first is
        part, ty = relax.TupleGetItem(value.expr, index), with_dtype(var.ty, value.dtype)
        return replace(value, expr=self.bind(part, ty, f"{var.name}_{value.dtype}"))

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
        require(value.narrow, f"its operand {_name(expr)} is not quantized before it")
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


def _name(expr: relax.Expr) -> str:
    return str(expr.name) if isinstance(expr, relax.Var) else "(a constant)"
