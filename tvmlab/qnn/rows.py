"""Rows for quantized operators: each is one of `tvmlab.qnn.op`'s."""

from __future__ import annotations

from tvm import relax

from ..ir import dialect
from ..ir.operators.common import Operands, Values, Written
from ..ir.operators.conv import CONV2D, CONV2D_TRANSPOSE, TRANSPOSE_SIGNATURE
from ..ir.operators.pool import pool_attributes
from ..ir.table import REQUIRED, Attribute, Operator, add, in_script
from . import elementwise, pooling, products


def _row(
    name: str,
    operands: tuple[str, ...],
    attributes: tuple[Attribute, ...] = (),
    signature: tuple[str, ...] = (),
    defaults: Values | None = None,
) -> None:
    whole = f"relax.qnn.{name}"

    def read(given: Operands, values: Values) -> relax.Expr:
        return dialect.typed_call(whole, given, values)

    def write(call: relax.Call) -> Written:
        return list(call.args), dialect.attributes(call)

    row = Operator(f"qnn.{name}", whole, operands, attributes, read, write, signature, defaults)
    in_script(add(row), whole)


_AXIS = Attribute("axis", "int", -1)
_ROUNDING = Attribute("rounding", "str", "None")
_OUT_DTYPE = Attribute("out_dtype", "str")
_NO_DTYPE = Attribute("out_dtype", "str", "")
_SUMS = {"out_dtype": "int32"}
_CONV2D = ("data", "kernel", *products.OPERANDS[2:])
_LEAKY_RELU = ("x", *pooling.POOL_OPERANDS[1:])

_row(
    "quantize",
    ("data", "output_scale", "output_zero_point"),
    (_OUT_DTYPE, _AXIS, _ROUNDING),
    ("data", "output_scale", "output_zero_point", "axis", "out_dtype", "rounding"),
    {"out_dtype": "int8"},
)
_row(
    "dequantize",
    ("data", "input_scale", "input_zero_point"),
    (_OUT_DTYPE, _AXIS),
    ("data", "input_scale", "input_zero_point", "axis", "out_dtype"),
    {"out_dtype": "float32"},
)
_row(
    "requantize",
    ("data", "input_scale", "input_zero_point", "output_scale", "output_zero_point"),
    (
        _AXIS,
        _ROUNDING,
        Attribute("compute_dtype", "str", "None"),
        _NO_DTYPE,
    ),
    defaults={"out_dtype": "int8"},
)
_row(
    "conv2d",
    _CONV2D,
    CONV2D,
    (
        *_CONV2D,
        "kernel_size",
        "channels",
        *(a.name for a in CONV2D if a.name not in ("kernel_size", "channels")),
    ),
    _SUMS,
)
_row(
    "conv2d_transpose",
    products.OPERANDS,
    CONV2D_TRANSPOSE,
    (*products.OPERANDS, *TRANSPOSE_SIGNATURE),
    _SUMS,
)
_row("dense", products.OPERANDS, (Attribute("units", "int", None), _NO_DTYPE), defaults=_SUMS)
_row(
    "batch_matmul",
    products.BATCH_OPERANDS,
    (
        _NO_DTYPE,
        Attribute("transpose_a", "bool", False),
        Attribute("transpose_b", "bool", False),
    ),
    defaults={"out_dtype": "int32", "transpose_b": True},
)
for _name in elementwise.BINARY:
    _row(
        _name,
        elementwise.BINARY_OPERANDS,
        (Attribute("lhs_axis", "int", -1), Attribute("rhs_axis", "int", -1), _ROUNDING),
    )
for _name in elementwise.UNARY:
    _row(_name, elementwise.UNARY_OPERANDS)
_row("softmax", elementwise.UNARY_OPERANDS, (_AXIS,))
_row(
    "leaky_relu",
    _LEAKY_RELU,
    (Attribute("alpha", "float", 0.25),),
    ("x", "alpha", *_LEAKY_RELU[1:]),
    {"alpha": REQUIRED},
)
_row("concatenate", elementwise.CONCATENATE_OPERANDS, (Attribute("axis", "int", 0),))
_row(
    "avg_pool2d",
    pooling.POOL_OPERANDS,
    (*pool_attributes("HW", average=True), _ROUNDING),
    (
        *pooling.POOL_OPERANDS,
        "pool_size",
        "strides",
        "padding",
        "dilation",
        "ceil_mode",
        "count_include_pad",
        "layout",
        "out_layout",
        "rounding",
    ),
    {"count_include_pad": True, "layout": "NHWC"},
)
