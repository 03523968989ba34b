"""Passes over quantized operators: constants are quantized, and clips dropped."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import ir, relax

from ...errors import InputError
from ...ir import checks, dialect
from ...ir.patterns import DFPattern, DFPatternCallback, is_constant, is_op, rewrite_functions
from .. import arithmetic
from .context import array_of
from .elementwise import limits

# A product in float32 is at most so much larger than the real one.
_FLOATS = 1 + 2.0**-20
_BYTES = ("int8", "uint8", "int16")


class QuantizeConstants(DFPatternCallback):
    """The rule: quantize constant data with a constant scale and zero point now."""

    def __init__(self, require_type: bool = False) -> None:
        super().__init__(require_type)
        self.data, self.scale, self.zero_point = is_constant(), is_constant(), is_constant()
        self.pattern = is_op("qnn.quantize")(self.data, self.scale, self.zero_point)

    def callback(
        self, pre: relax.Expr, post: relax.Expr, node_map: dict[DFPattern, list[relax.Expr]]
    ) -> relax.Expr:
        """Give the constant."""
        if post.attrs.get("rounding") == "ONNX":
            return post
        data, scale, zero = (
            node_map[part][0].value.numpy() for part in (self.data, self.scale, self.zero_point)
        )
        axis, dtype = int(post.attrs["axis"]), str(post.attrs["out_dtype"])
        folded = arithmetic.quantize(data, scale, zero, axis, dtype)
        # The operator takes NaN for the largest value, as Relay's did; in a constant it is damage.
        if (holes := np.isnan(data).ravel()).any():
            raise InputError(
                f"element {int(holes.argmax())} of data is NaN, which no integer stands for",
                where="qnn.quantize, operand data",
            )
        return relax.const(folded, dtype)


@tvm.transform.module_pass(opt_level=0, name="QnnQuantizeConstFold")
class QnnQuantizeConstFold:
    """The pass: every ``qnn.quantize`` of three constants becomes a constant.

    Raises
    ------
    InputError
        If a scale is zero, negative or not finite, a zero point is out of its dtype's range, or the
        data hold NaN.
    """

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return rewrite_functions(mod, QuantizeConstants(True))


class DropClip(DFPatternCallback):
    """The rule: leave out a clip whose range is that of the dtype.

    PyTorch's frontend requantizes to int32, clips to 0 and 255, and casts to uint8: a requantize to
    uint8, which saturates. A wider clip before a cast stays, because the cast wraps.

    A requantize to int32 wraps what is beyond int32 (Relay's does), where one to uint8 saturates.
    So the cast goes only where the scales and zero points are constants that show that nothing gets
    there; scaling down, as from sums to bytes, nothing does.
    """

    def __init__(self) -> None:
        super().__init__(require_type=True)
        self.requantize = is_op("qnn.requantize")(None)
        self.clip = is_op("clip")(self.requantize)
        self.pattern = is_op("cast")(self.clip) | self.clip

    def callback(
        self, pre: relax.Expr, post: relax.Expr, node_map: dict[DFPattern, list[relax.Expr]]
    ) -> relax.Expr:
        """Give the requantize without its clip, and without the cast."""
        inner, clip = node_map[self.requantize][0], node_map[self.clip][0]
        before, after = str(inner.ty.dtype), str(post.ty.dtype)
        if (found := limits(clip)) is None:
            return post
        low, high = found
        if post.same_as(clip):
            least, most = checks.limits(before)
            return inner if low <= least and high >= most else post
        if before != "int32" or after not in _BYTES or (low, high) != checks.limits(after):
            return post
        zero = array_of(inner.args[4])
        if zero is None or not low <= int(zero.ravel()[0]) <= high or not _stays_in_int32(inner):
            return post
        attributes = {**dialect.attributes(inner), "out_dtype": after}
        return dialect.typed_call("relax.qnn.requantize", list(inner.args), attributes)


def _stays_in_int32(requantize: relax.Call) -> bool:
    """Say whether constants show that no result of a requantize is beyond int32."""
    scale, zero, out_scale, out_zero = (array_of(arg) for arg in requantize.args[1:])
    if scale is None or zero is None or out_scale is None or out_zero is None:
        return False
    ends = checks.limits(str(requantize.args[0].ty.dtype))
    far = max(abs(end - int(point)) for end in ends for point in zero.ravel())
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratio = np.max(scale.astype(np.float64)) / np.min(out_scale.astype(np.float64))
    # One for the rounding, and a float32's own share where it is computed in that.
    reach = far * ratio * _FLOATS + np.max(np.abs(out_zero.astype(np.float64))) + 1
    return bool(reach <= checks.limits("int32")[1])


@tvm.transform.module_pass(opt_level=0, name="RemoveClipAfterRequantize")
class RemoveClipAfterRequantize:
    """The pass: no clip after a ``qnn.requantize`` that its dtype makes anyway."""

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return rewrite_functions(mod, DropClip())
