"""Quantized operators to kernels, and nothing else."""

from __future__ import annotations

import tvm
from tvm import ir, relax

from ..operator import OPERATORS


@tvm.transform.module_pass(opt_level=0, name="Legalize")
class Legalize:
    """The pass: calls of quantized operators become calls of TIR functions.

    `tvm.relax.transform.LegalizeOps` takes them too, with all other operators; `tvmlab.compile`
    has it, with kernels for the processor at hand. What the requantization of a call leaves open is
    decided here, by `tvmlab.qnn.config.requantize_config`.
    """

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure.

        Raises
        ------
        CompileError
            A scale is not known, or the shape of an operand.
        InputError
            A scale or zero point is none.
        """
        ours = {f"relax.qnn.{name}" for name in OPERATORS}
        every = ir.Op.list_op_names()
        others = [name for name in every if name.startswith("relax.") and name not in ours]
        return relax.transform.LegalizeOps(skip_ops=others)(mod)
