"""Activations to NHWC, weights to OHWI: once, at compile time."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.dpl import is_const, is_op, rewrite_call, wildcard

__all__ = ["channels_last"]


@relax.transform.function_pass(opt_level=0)
class FoldTransposes:
    """Compute transposes of constants in NumPy.

    `FoldConstant` does it as well, by compiling a function for each: seconds for a network.
    """

    def transform_function(
        self, func: relax.Function, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> relax.Function:
        """Rewrite one function, called by TVM's pass infrastructure."""
        constant = is_const()
        pattern = is_op("relax.permute_dims")(constant)

        def rewrite(expr: relax.Expr, found: Any) -> relax.Expr:
            value, axes = found[constant].value.numpy(), expr.attrs.axes
            order = None if axes is None else [int(axis) for axis in axes]
            moved = np.ascontiguousarray(np.transpose(value, order))
            return relax.const(moved, str(expr.ty.dtype))

        return rewrite_call(pattern, rewrite, func)


@tvm.transform.module_pass(opt_level=0)
class RaiseLimits:
    """Turn calls of TIR that limits a tensor by a scalar back into ``maximum`` and ``minimum``.

    Upstream's ONNX frontend imports Clip as TIR, whose layout `ConvertLayout` cannot change. A
    function is taken for what it is if upstream makes the very same one of the operator.
    """

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        for var, func in list(mod.functions_items()):
            if isinstance(func, relax.Function):
                mutator = _RaiseLimits(mod)
                raised = mutator.visit_expr(func)
                if not tvm_ffi.structural_equal(raised, func):
                    mutator.builder_.update_func(var, raised)
                    mod = mutator.builder_.get()
        return relax.transform.DeadCodeElimination()(mod)


@relax.expr_functor.mutator
class _RaiseLimits(relax.PyExprMutator):
    def __init__(self, mod: tvm.ir.IRModule) -> None:
        super().__init__(mod)
        self.mod = mod

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "") != "relax.call_tir" or not isinstance(
            call.args[1], relax.Tuple
        ):
            return call
        function, values = call.args[0], list(call.args[1].fields)
        if len(values) != 2 or values[1].ty.ndim != 0:
            return call
        for name in ("maximum", "minimum"):
            if function.name_hint.rstrip("0123456789_") == name:
                op = getattr(relax.op, name)
                if tvm_ffi.structural_equal(self.mod[function], _as_tir(op, values)):
                    return op(*values)
        return call


def _as_tir(op: Any, values: list[Any]) -> Any:
    """Give the TIR function that upstream makes of an operator."""
    builder = relax.BlockBuilder()
    parameters = [relax.Var(f"x{i}", value.ty) for i, value in enumerate(values)]
    with builder.function("main", parameters):
        builder.emit_func_output(builder.emit(op(*parameters)))
    mod = relax.transform.LegalizeOps()(builder.get())
    return mod[op.__name__] if op.__name__ in {v.name_hint for v in mod.get_global_vars()} else None


@relax.transform.function_pass(opt_level=0)
class SinkTransposes:
    """Move transposes behind limits by a scalar, and join those that meet.

    `ConvertLayout` knows no layout for ``clip``, nor for ``maximum`` and ``minimum`` with a scalar,
    by which ONNX's Clip (a ReLU6) is imported: it would leave two transposes around each.
    """

    def transform_function(
        self, func: relax.Function, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> relax.Function:
        """Rewrite one function, called by TVM's pass infrastructure."""
        x, low, high = wildcard(), wildcard(), wildcard()
        inner = is_op("relax.permute_dims")(x)
        limits = [
            is_op("relax.clip")(inner, low, high),
            *(is_op(f"relax.{name}")(inner, low) for name in ("maximum", "minimum")),
        ]

        def sink(expr: relax.Call, found: Any) -> relax.Expr:
            axes, others = found[inner].attrs.axes, expr.args[1:]
            if any(getattr(other.ty, "ndim", 0) != 0 for other in others):
                return expr
            return relax.op.permute_dims(relax.Call(expr.op, [found[x], *others], expr.attrs), axes)

        def join(expr: relax.Call, found: Any) -> relax.Expr:
            first, second = (_axes(call) for call in (found[inner], expr))
            order = [first[axis] for axis in second]
            if order == sorted(order):
                return found[x]
            return relax.op.permute_dims(found[x], order)

        def drop(expr: relax.Call, found: Any) -> relax.Expr:
            return found[x] if _axes(expr) == sorted(_axes(expr)) else expr

        for limit in (*limits, *limits):  # a maximum of a minimum, and the other way round
            func = rewrite_call(limit, sink, func)
        func = rewrite_call(is_op("relax.permute_dims")(inner), join, func)
        return rewrite_call(inner, drop, func)


def _axes(call: relax.Call) -> list[int]:
    """Read the axes of a transpose; without any, it turns the order round."""
    rank, axes = call.ty.ndim, call.attrs.axes
    return [int(axis) % rank for axis in axes] if axes is not None else [*range(rank)][::-1]


@tvm.transform.module_pass(opt_level=0)
class _ConvertLayout:
    """Convert the layout, or say that upstream's pass cannot: it raises at some operators."""

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        try:
            return relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})(mod)
        except Exception as error:  # checks of TVM's raise several classes
            reason = str(error).strip().splitlines()[-1]
            warnings.warn(
                f"convolutions stay in their layout, and slow: ConvertLayout says {reason}",
                stacklevel=2,
            )
            return mod


def channels_last() -> tvm.transform.Pass:
    """Make the pass: two-dimensional convolutions in NHWC with OHWI weights.

    `ConvertLayout` carries the layout through the operators between them; transposes of
    activations remain at the network's borders and around operators that fix another layout.
    """
    return tvm.transform.Sequential(
        [
            RaiseLimits(),
            _ConvertLayout(),
            relax.transform.CanonicalizeBindings(),
            FoldTransposes(),
            SinkTransposes(),
            relax.transform.DeadCodeElimination(),
        ]
    )
