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
    """Return the pass, to run after `VMShapeLower`, whose sizes do not change once computed."""

    @relax.transform.function_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def run(func: relax.Function, mod: tvm.ir.IRModule, ctx: Any) -> relax.Function:
        first: dict[tuple[int, ...], relax.Var] = {}
        same: dict[int, relax.Var] = {}
        blocks = []
        for block in func.body.blocks:
            kept = []
            for binding in block.bindings:
                call = binding.value
                makes = isinstance(call, relax.Call) and isinstance(call.op, relax.ExternFunc)
                if makes and call.op.global_symbol == _MAKE:
                    _, *sizes = call.args  # a function has one heap of sizes
                    what = tuple(int(size) for size in sizes)
                    if what in first:
                        same[key(binding.var)] = first[what]
                        continue
                    first[what] = binding.var
                kept.append(binding)
            blocks.append(relax.BindingBlock(kept))  # `ToNonDataflow` ran before
        if not same:
            return func
        body = tvm_ffi.structural_map(
            relax.SeqExpr(blocks, func.body.body), (ir.Var, lambda var: same.get(key(var), var))
        )
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)

    return run
