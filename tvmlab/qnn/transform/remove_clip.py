"""A clip after ``qnn.requantize`` that the result's dtype makes anyway."""

from __future__ import annotations

import tvm
from tvm import ir, relax

from ... import dialect
from ...relay.dataflow_pattern import DFPattern, DFPatternCallback, is_op
from .. import checks
from .cuts import limits
from .form import NoForm, array_of
from .rewriting import rewrite_functions

__all__ = ["DropClip", "RemoveClipAfterRequantize"]

_BYTES = ("int8", "uint8", "int16")


class DropClip(DFPatternCallback):
    """The rule: leave out a clip whose range is that of the dtype.

    PyTorch's frontend requantizes to int32, clips to 0 and 255, and casts to uint8: a requantize to
    uint8, which saturates. A clip of a requantize that keeps all its dtype's values does nothing.
    A narrower clip stays, and a wider one before a cast too, for the cast wraps what it lets pass.

    Notes
    -----
    A requantize to int32 wraps what is beyond int32 (Relay's does), where one to uint8 saturates;
    no sum that was scaled down to a byte gets there.
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
        try:
            low, high = limits(clip)
        except NoForm:
            return post
        if post.same_as(clip):
            least, most = checks.limits(before)
            return inner if low <= least and high >= most else post
        if before != "int32" or after not in _BYTES or (low, high) != checks.limits(after):
            return post
        zero = array_of(inner.args[4])
        if zero is None or not low <= int(zero.ravel()[0]) <= high:
            return post
        attributes = {**dialect.attributes(inner), "out_dtype": after}
        return dialect.typed_call("relax.qnn.requantize", list(inner.args), attributes)


@tvm.transform.module_pass(opt_level=0, name="RemoveClipAfterRequantize")
class RemoveClipAfterRequantize:
    """The pass: no clip after a ``qnn.requantize`` that its dtype makes anyway."""

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return rewrite_functions(mod, DropClip(), ["relax.clip", "relax.astype"], depth=3)
