"""Passes that compute float operators in integers, quantize constants and remove clips."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from ...errors import InputError
from ...ir import dialect
from ...ir.graph import live, no_collection
from ...ir.patterns import DFPattern, DFPatternCallback, is_constant, is_op, rewrite_functions
from .. import arithmetic, checks
from ..checks import Array
from ..config import ROUNDINGS
from ..operator import NARROW, QUANTIZED
from . import elementwise, products, reading
from .context import Context, Rule
from .elementwise import MOVES, limits, move_constant
from .values import NotQuantizable, QuantizedValue, QuantParams, known, require

#: The attribute of a function in which an importer stores the rounding of its format.
ROUNDING = "qnn.rounding"
#: The integer forms by the operators' names.
RULES: dict[str, Rule] = {**products.RULES, **elementwise.RULES}
# Operators whose result is constant if their first operand is.
_OF_ONE = {*MOVES, "relax.astype", "relax.clip", "relax.nn.relu"}


@tvm.transform.module_pass(opt_level=0, name="FakeQuantizationToInteger")
class FakeQuantizationToInteger:
    """The pass that converts a quantized network from float to integer arithmetic.

    Frontends import a quantized network as float operators between ``R.dequantize`` and
    ``R.quantize``. The pass replaces each operator between them that has an integer form::

        [nn.pad ->] qnn.conv2d -> nn.bias_add -> qnn.requantize [-> clip]

    A relu, relu6 or clip disappears if the dtype of the result has the same limits. The remaining
    ``R.quantize`` and ``R.dequantize`` (at the ends, and around softmax) become
    operators of ``relax.qnn``. Operators without an integer form stay in float, and
    `tvmlab.qnn.analysis.float_operators` lists them with the reasons. The pass processes each block
    of a function separately, and does not change branches of an ``if`` or inner functions.

    Every integer result is within one step of the float result, because only quantizes round;
    biases and unrounded sums are rounded to a checked fraction of a step. An operator that would be
    less exact stays in float. With one of Relay's roundings, additions and averages of windows get
    ``"TFLITE"``, because Relay's additions round both sides first, and its averages truncate.

    A product that is also read as float, or never quantized, is dequantized from its exact sums.

    Parameters
    ----------
    rounding : str, optional
        ``"UPWARD"``, ``"TONEAREST"``, ``"TFLITE"``, ``"ONNX"`` or ``"None"``: the rounding of every
        requantize and product. The default is the function's attribute ``qnn.rounding``, which the
        frontends of TensorFlow Lite and ONNX set, or else ``"None"``, which leaves the rounding to
        `tvmlab.qnn.config`. The pass removes the attribute.

    use_qat : bool
        Also convert functions without a quantize, and dequantize moves of integers, such as a
        reshape, after the move.

    Raises
    ------
    InputError
        If `rounding` has another value, or, when the pass runs, a scale is zero, negative or not
        finite, or a zero point is out of its dtype's range.

    Notes
    -----
    Relay's pass of that name is in src/relay/transforms/fake_quantization_to_integer.cc, TVM 0.18.
    Here each quantize requests its operand's integers, and so do the operators before it.

    A remaining quantize rounds half-way cases away from zero, as in Relay and TFLite, whereas
    ``R.quantize`` of TVM 0.27 rounds them to even.
    """

    def __init__(self, rounding: str | None = None, use_qat: bool = False) -> None:
        self.use_qat = use_qat
        if rounding is not None and rounding not in ROUNDINGS:
            raise InputError(
                f'rounding is "{rounding}"; it must be one of {", ".join(ROUNDINGS)}',
                where="FakeQuantizationToInteger",
            )
        self.rounding = rounding

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        made = {}
        default = rounding_of(mod)
        with no_collection():
            for name, function in mod.functions_items():
                if not isinstance(function, relax.Function):
                    continue
                after = Rewriter(self.rounding or default, self.use_qat).function(function)
                if after.attrs and ROUNDING in after.attrs:
                    after = after.without_attr(ROUNDING)
                if after is not function:
                    made[name] = after
        if not made:
            return mod
        changed = mod.clone()
        changed.update(ir.IRModule(made))
        return changed


def rounding_of(mod: ir.IRModule) -> str:
    """Return the rounding that a module's ``main`` specifies, or ``"None"``."""
    main = {name.name_hint: function for name, function in mod.functions_items()}.get("main")
    return str((getattr(main, "attrs", None) or {}).get(ROUNDING, "None"))


class Rewriter:
    """Rewriter of one function, in which each quantize requests its operand's integers."""

    def __init__(self, rounding: str, use_qat: bool = False) -> None:
        self.rounding, self.use_qat = rounding, use_qat
        self.reasons: dict[relax.Var, str] = {}
        self.aliases: dict[relax.Var, relax.Expr] = {}
        self.changed = False

    def function(self, function: relax.Function) -> relax.Function:
        """Rewrite a function; return the same object if nothing changes."""
        values = (value for _, value in reading.bindings(function.body))
        starts = reading.DEQUANTIZES if self.use_qat else reading.QUANTIZES
        if not any(reading.operator(value) in starts for value in values):
            return function
        with _deep_recursion():
            made = self._body(function.body)
        if not self.changed:
            return function
        kept = (function.ret_ty, function.is_pure, function.attrs, function.span)
        return relax.Function(function.params, made, *kept)

    def _body(self, body: relax.SeqExpr) -> relax.SeqExpr:
        blocks = []
        for block in body.blocks:
            # A later block cannot read the variables emitted in a dataflow block.
            context = self.context = Context(self.rounding, RULES, self.reasons)
            context.dataflow = isinstance(block, relax.DataflowBlock)
            self.aliases.clear()
            for binding in block.bindings:
                last = self._binding(binding)
                if last is not None:
                    context.bindings.append(last)
            blocks.append((context.dataflow, context.bindings))
        if not self.changed:
            return body
        kinds = (relax.BindingBlock, relax.DataflowBlock)
        made = [kinds[dataflow](bindings) for dataflow, bindings in live(blocks, body.body)]
        return reading.typed(relax.SeqExpr(made, body.body), body.ty)

    def _binding(self, binding: relax.Binding) -> relax.Binding | None:
        """Return the replacement of a binding; None if it was already emitted."""
        var, value, context = binding.var, binding.value, self.context
        if not isinstance(binding, relax.VarBinding):
            return binding
        if reading.operator(value):
            context.calls[var] = value
            if value.op.name in reading.DEQUANTIZES:
                return self._dequantize(binding, value)
            if value.op.name in reading.QUANTIZES:
                return self._quantize(binding, value)
            return self._call(binding, value)
        if isinstance(value, tvm.ir.GenericConst):
            context.numbers[var] = value.value.numpy()
        elif isinstance(value, (relax.Var, relax.Tuple, relax.TupleGetItem)):
            context.sources[var] = value
        return binding

    def _call(self, binding: relax.VarBinding, value: relax.Call) -> relax.Binding:
        var, name, context = binding.var, value.op.name, self.context
        first = value.args[0] if value.args else None
        array = self._array(first)
        moved = None if array is None else move_constant(array, value, var)
        if moved is not None:
            context.numbers[var] = moved
        elif name in products.PRODUCTS or (
            name in _OF_ONE and (context.known_constant(first) or self.use_qat)
        ):
            with contextlib.suppress(NotQuantizable):
                read = context.value(var)
                if name in products.PRODUCTS or (self.use_qat and name in MOVES):
                    return self._dequantized(binding, read)
        made = self._renamed(value)
        dtype = str(getattr(var.ty, "dtype", ""))
        if name == "relax.clip" and dtype in NARROW:  # as the importer of TensorFlow Lite writes it
            found, (least, most) = limits(made), checks.limits(dtype)
            made = made.args[0] if found and found[0] <= least and found[1] >= most else made
        if made is value:
            return binding
        self.changed = True
        if isinstance(made, relax.Var):
            self.aliases[var] = made
        return relax.VarBinding(var, made)

    def _dequantized(self, binding: relax.VarBinding, value: QuantizedValue) -> relax.VarBinding:
        """Dequantize integers into the float variable of a binding."""
        self.changed = True
        value = replace(value, scale=value.scale.astype(np.float32))
        operands = [value.expr, *self.context.params(value)]
        axis = -1 if self.use_qat and value.scalar else value.axis  # as Relay's pass sets it
        attributes = {"out_dtype": "float32", "axis": axis}
        made = dialect.call("relax.qnn.dequantize", operands, attributes)
        return relax.VarBinding(binding.var, reading.typed(made, binding.var.ty))

    def _clip_channels(self, data: relax.Expr, read: QuantizedValue) -> relax.Expr:
        """Return integers that already have the scale and zero point of each channel, clipped."""
        context, value = self.context, self.context.value(data)
        own, wanted = ((one.dtype, one.axis, one.scale.tolist(), one.zero.tolist())
                       for one in (value, read))  # fmt: skip
        require(own == wanted, "it is quantized by channel, which requantize cannot do")
        expr, how = value.expr, (0, read.dtype, context.ties)
        for limit, clip in (value.low, relax.op.maximum), (value.high, relax.op.minimum):
            if np.isfinite(limit):
                real = np.full(max(value.scale.size, value.zero.size), limit, np.float32)
                ends = arithmetic.quantize(real, value.scale, value.zero, *how)
                ends = reading.spread(ends, value.axis, int(data.ty.ndim))
                made = clip(expr, context.constant(ends, read.dtype))
                expr = context.bind(made, value.expr.ty, "clipped")
        return expr

    def _array(self, expr: Any) -> Array | None:
        """Return a constant's value of any dtype; None for anything else."""
        if isinstance(expr, relax.Var):
            return self.context.numbers.get(expr)
        return reading.array_of(expr)

    def _renamed(self, value: relax.Call) -> relax.Call:
        args = [self._name(arg) for arg in value.args]
        if all(a.same_as(b) for a, b in zip(args, value.args, strict=True)):
            return value
        made = relax.Call(value.op, args, value.attrs, value.ty_args, value.span)
        return reading.typed(made, value.ty)

    def _name(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Var):
            return self.aliases.get(expr, expr)
        if not isinstance(expr, relax.Tuple) or not self.aliases.keys() & reading.leaves(expr):
            return expr
        return relax.Tuple([self._name(field) for field in expr.fields])

    def _dequantize(self, binding: relax.VarBinding, value: relax.Call) -> relax.Binding:
        var, data, context = binding.var, self._name(value.args[0]), self.context
        kept = relax.VarBinding(var, self._renamed(value))
        array = self._array(data)
        if array is not None and not isinstance(data, tvm.ir.GenericConst):
            data = relax.const(np.ascontiguousarray(array), str(data.ty.dtype))
        try:
            given, out = value.args[0].ty, str(value.attrs["out_dtype"])
            read = _read(value, data, given, str(data.ty.dtype), out)
        except NotQuantizable as why:
            self.reasons.setdefault(var, str(why))
            return kept
        context.values[var, None] = read
        if value.op.name == "relax.qnn.dequantize":
            return kept
        return self._dequantized(binding, read)

    def _quantize(self, binding: relax.VarBinding, value: relax.Call) -> relax.Binding | None:
        var, data, context = binding.var, value.args[0], self.context
        dtype = str(value.attrs["out_dtype"])
        try:
            read = _read(value, var, data.ty, dtype, str(data.ty.dtype))
        except NotQuantizable as why:
            self.reasons.setdefault(data, f"it cannot be quantized: {why}")
            return relax.VarBinding(var, self._renamed(value))
        try:
            array = context.number(data)
            if array is not None:
                real, how = array.astype(np.float32), (read.axis, dtype, context.ties)
                whole = arithmetic.quantize(real, read.scale, read.zero, *how)
                expr = context.constant(whole, dtype)
            elif not read.scalar:
                expr = self._clip_channels(data, read)
            else:
                params = QuantParams(float(read.scale), int(read.zero), dtype)
                expr = context.requantize_to(context.value(data, params), params, var)
        except NotQuantizable as why:
            self.reasons.setdefault(data, str(why))
            if value.op.name == "relax.qnn.quantize":
                return binding
            attributes = {"out_dtype": dtype, "axis": read.axis, "rounding": context.ties}
            made = dialect.call("relax.qnn.quantize", [data, *context.params(read)], attributes)
            self.changed = True
            return relax.VarBinding(var, reading.typed(made, value.ty))
        self.changed = True
        if expr.same_as(var):
            return None
        self.aliases[var] = expr
        return relax.VarBinding(var, expr)


def _read(
    call: relax.Call, data: relax.Expr, ty: relax.TensorType, integers: str, real: str
) -> QuantizedValue:
    """Return `data` with the scale, zero point and axis of a quantize or dequantize."""
    require(integers in QUANTIZED, f"its integers are {integers}")
    require(real == "float32", f"its real values are {real}")
    name, ndim, unknown = call.op.name, int(ty.ndim), "its scale or zero point is not a constant"
    scales, zeros = (known(reading.array_of(arg), unknown) for arg in call.args[1:3])
    axis, count = int(call.attrs["axis"]) % max(ndim, 1), None
    if scales.size > 1 or zeros.size > 1:
        require(ndim >= 0, "it is quantized by channel, and its rank is not known")
        count = reading.channel_count(ty, axis)
    scales = _one(checks.scale(scales, name, "scale", count))
    zeros = _one(checks.zero_point(zeros, name, "zero_point", integers, count))
    array, ends = reading.array_of(data), checks.limits(integers)
    if array is not None and array.size:
        ends = int(array.min()), int(array.max())
    return QuantizedValue(data, integers, scales, zeros, axis, *ends, array=array)


def _one(values: Array) -> Array:
    return values.ravel()[0].reshape(()) if np.all(values == values.flat[0]) else values


@contextlib.contextmanager
def _deep_recursion() -> Iterator[None]:
    """Let a quantize recurse through any number of operators, which needs only Python frames."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 1_000_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


# Passes over quantized operators


class QuantizeConstants(DFPatternCallback):
    """The rewrite that quantizes constant data with a constant scale and zero point."""

    def __init__(self, require_type: bool = False) -> None:
        super().__init__(require_type)
        self.data, self.scale, self.zero_point = is_constant(), is_constant(), is_constant()
        self.pattern = is_op("qnn.quantize")(self.data, self.scale, self.zero_point)

    def callback(
        self, pre: relax.Expr, post: relax.Expr, node_map: dict[DFPattern, list[relax.Expr]]
    ) -> relax.Expr:
        """Return the constant."""
        if post.attrs.get("rounding") == "ONNX":
            return post
        data, scale, zero = (
            node_map[part][0].value.numpy() for part in (self.data, self.scale, self.zero_point)
        )
        axis, dtype = int(post.attrs["axis"]), str(post.attrs["out_dtype"])
        folded = arithmetic.quantize(data, scale, zero, axis, dtype)
        # The operator converts NaN to the largest value, as in Relay; a constant NaN is an error.
        if (holes := np.isnan(data).ravel()).any():
            raise InputError(
                f"element {int(holes.argmax())} of data is NaN, which integers cannot represent",
                where="qnn.quantize, operand data",
            )
        return relax.const(folded, dtype)


@tvm.transform.module_pass(opt_level=0, name="QnnQuantizeConstFold")
class QnnQuantizeConstFold:
    """The pass that turns every ``qnn.quantize`` of three constants into a constant.

    Raises
    ------
    InputError
        If a scale is zero, negative or not finite, a zero point is out of its dtype's range, or the
        data contain NaN.
    """

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return rewrite_functions(mod, QuantizeConstants(True))


class DropClip(DFPatternCallback):
    """The rewrite that removes a clip to the range of the dtype.

    PyTorch's frontend requantizes to int32, clips to 0 and 255, and casts to uint8, which equals a
    requantize to uint8. A wider clip before a cast is kept, because the cast wraps. The cast is
    kept if a requantize to int32 could wrap, because one to uint8 saturates.
    """

    def __init__(self) -> None:
        super().__init__(require_type=True)
        self.requantize = is_op("qnn.requantize")(None)
        self.clip = is_op("clip")(self.requantize)
        self.pattern = is_op("cast")(self.clip) | self.clip

    def callback(
        self, pre: relax.Expr, post: relax.Expr, node_map: dict[DFPattern, list[relax.Expr]]
    ) -> relax.Expr:
        """Return the requantize without its clip, and without the cast."""
        inner, clip = node_map[self.requantize][0], node_map[self.clip][0]
        before, after = str(inner.ty.dtype), str(post.ty.dtype)
        if (found := limits(clip)) is None:
            return post
        low, high = found
        if post.same_as(clip):
            least, most = checks.limits(before)
            return inner if low <= least and high >= most else post
        if before != "int32" or after not in NARROW or (low, high) != checks.limits(after):
            return post
        zero = reading.array_of(inner.args[4])
        if zero is None or not low <= int(zero.ravel()[0]) <= high or not _stays_in_int32(inner):
            return post
        attributes = {**dialect.attributes(inner), "out_dtype": after}
        return dialect.typed_call("relax.qnn.requantize", list(inner.args), attributes)


def _stays_in_int32(requantize: relax.Call) -> bool:
    """Return whether constants prove that no result of a requantize leaves int32."""
    scale, zero, out_scale, out_zero = (reading.array_of(arg) for arg in requantize.args[1:])
    if scale is None or zero is None or out_scale is None or out_zero is None:
        return False
    ends = checks.limits(str(requantize.args[0].ty.dtype))
    far = max(abs(end - int(point)) for end in ends for point in zero.ravel())
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratio = np.max(scale.astype(np.float64)) / np.min(out_scale.astype(np.float64))
    # Add one for the rounding, and a margin for float32 products larger than the real product.
    reach = far * ratio * (1 + 2.0**-20) + np.max(np.abs(out_zero.astype(np.float64))) + 1
    return bool(reach <= checks.limits("int32")[1])


@tvm.transform.module_pass(opt_level=0, name="RemoveClipAfterRequantize")
class RemoveClipAfterRequantize:
    """The pass that removes a clip after a ``qnn.requantize`` whose dtype implies the clip."""

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return rewrite_functions(mod, DropClip())
