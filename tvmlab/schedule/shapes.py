"""Make each shape of open sizes once per call of a function, except in branches.

Upstream's `VMShapeLower` makes the shape of every tensor when the tensor is allocated, although
most tensors of a network share a few shapes.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax

from ..ir.graph import key

__all__ = ["shared_shapes"]

_MAKE = "vm.builtin.make_shape"


def shared_shapes() -> tvm.transform.Pass:
    """Return the pass. It runs after `VMShapeLower`, which computes each size only once."""

    @relax.transform.function_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def run(func: relax.Function, mod: tvm.ir.IRModule, ctx: Any) -> relax.Function:
        first: dict[tuple[int, ...], relax.Var] = {}
        same: dict[int, relax.Var] = {}
        blocks = []
        for block in func.body.blocks:
            kept = []
            for binding in block.bindings:
                sizes = _sizes(binding.value)
                if sizes in first:
                    same[key(binding.var)] = first[sizes]
                    continue
                kept.append(binding)
                if sizes is not None:
                    first[sizes] = binding.var
            blocks.append(relax.BindingBlock(kept))  # `ToNonDataflow` ran before
        if not same:
            return func
        body = tvm_ffi.structural_map(
            relax.SeqExpr(blocks, func.body.body), (ir.Var, lambda var: same.get(key(var), var))
        )
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)

    return run


def _sizes(value: relax.Expr) -> tuple[int, ...] | None:
    """Return the sizes of a shape as encoded for the VM; None for other values."""
    makes = isinstance(value, relax.Call) and isinstance(value.op, relax.ExternFunc)
    if not makes or value.op.global_symbol != _MAKE:
        return None
    _, *sizes = value.args  # a function has one heap of sizes
    return tuple(int(size) for size in sizes)
