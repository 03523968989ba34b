"""How operators may be fused: Relay's operator attribute ``TOpPattern``.

Patterns such as "any elementwise operator" ask for it. The numbers are those of TVM's
``include/tvm/relay/op_attr_types.h``, the kinds those that Relay's operators register.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...errors import RelayError

_ELEMENTWISE = """
    abs acos acosh asin asinh atan atanh bitwise_not cast ceil clip copy cos cosh erf exp floor
    isfinite isinf isnan log log10 log2 logical_not negative nn.leaky_relu nn.relu ones_like
    qnn.dequantize qnn.quantize qnn.requantize qnn.tanh round rsqrt sigmoid sign sin sinh sqrt
    tan tanh trunc zeros_like
"""
_BROADCAST = """
    add bitwise_and bitwise_or bitwise_xor broadcast_to divide equal expand_dims floor_divide
    floor_mod greater greater_equal left_shift less less_equal logical_and logical_or
    logical_xor maximum minimum mod multiply nn.bias_add nn.prelu not_equal power right_shift
    subtract where
"""
_INJECTIVE = """
    concatenate gather gather_nd layout_transform nn.batch_flatten nn.depth_to_space nn.pad
    nn.space_to_depth nn.upsampling qnn.concatenate repeat reshape reverse split squeeze stack
    strided_slice take tile transpose
"""
_REDUCTION = "all any argmax argmin max mean min prod sum variance"
_FUSABLE = """
    nn.adaptive_avg_pool2d nn.adaptive_max_pool2d nn.avg_pool2d nn.batch_matmul nn.batch_norm
    nn.conv1d nn.conv2d nn.conv2d_transpose nn.conv3d nn.dense nn.global_avg_pool2d
    nn.global_max_pool2d nn.log_softmax nn.matmul nn.max_pool2d nn.softmax qnn.batch_matmul
"""

_KINDS = {
    name: kind
    for kind, names in enumerate((_ELEMENTWISE, _BROADCAST, _INJECTIVE, _REDUCTION, _FUSABLE))
    for name in names.split()
}


def fusion_kind(names: Iterable[str], attribute: str) -> int | None:
    """Return the ``TOpPattern`` of an operator with these names, from 0 (elementwise) to 4.

    None is returned for an `attribute` that operators do not have, such as a function's.
    """
    if not re.match(r"[TF][A-Z]|target\.", attribute):
        return None
    if attribute != "TOpPattern":
        raise RelayError(
            f"The operator attribute {attribute!r} is not carried.",
            where="has_attr",
            fix='Ask for "TOpPattern", or list the operators: is_op("a") | is_op("b").',
        )
    kinds = {_KINDS.get(name) for name in names}
    if len(kinds) != 1 or None in kinds:
        raise RelayError(
            f"It is not known how {' or '.join(sorted(names))} may be fused (TOpPattern).",
            where="has_attr",
            fix='List the operators that are meant: is_op("a") | is_op("b").',
        )
    return kinds.pop()
