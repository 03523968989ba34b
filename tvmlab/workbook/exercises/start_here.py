"""The checks of notebook 00, Start here."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, s_tir

from ...support.wording import several
from .judge import Wrong, assembly, changed, difference, exercise, whole

REGISTER = 512  # bits of a zmm register
FLOAT = 32  # bits
RESULT = 8 * 16  # numbers in the result of each of the three operators


@exercise
def check_wide_vectors(wide: s_tir.Schedule) -> str:
    """Check a schedule whose vectors fill the registers of AVX-512.

    Parameters
    ----------
    wide : s_tir.Schedule
        The notebook's schedule of the fused kernel, with another number of lanes.
    """
    lanes = int(wide.get(wide.get_loops(wide.get_sblock("compute"))[-1]).extent)
    if lanes * FLOAT != REGISTER:
        raise Wrong(
            f"{lanes} lanes of float32 are {lanes * FLOAT} bits, and a register has {REGISTER}"
        )
    code = assembly(wide.mod, "x86-64-v4")
    if not any("vfmadd" in line and "%zmm" in line for line in code):
        raise Wrong("no vfmadd uses a zmm register: is the loop over the lanes vectorized?")
    return "the sums fill zmm registers"


@exercise
def check_fusion(
    pipeline: Callable[[tvm.IRModule], tvm.IRModule], mod: tvm.IRModule, extra_floats: int
) -> str:
    """Check a pipeline that lowers without fusing, and what fusing saves.

    Parameters
    ----------
    pipeline : callable
        A pass: takes a module and returns the new one.
    mod : tvm.IRModule
        The notebook's model: a product, a sum, and a ReLU, each with 8 x 16 results.
    extra_floats : int
        How many more numbers are written without fusing.
    """
    modules = changed(pipeline, mod, "pipeline"), relax.transform.LegalizeOps()(mod)
    texts = [found["main"].script() for found in modules]  # without the kernels themselves
    calls, operators = (text.count("R.call_tir(") for text in texts)
    if calls != operators:
        raise Wrong(
            f"the module calls {several(calls, 'kernel') if calls else 'no kernels'}, one an "
            f"operator would be {operators}\n{difference(*texts)}"
        )
    extra_floats = whole(extra_floats, "extra_floats")
    between = (operators - 1) * RESULT
    hints = {
        operators * RESULT: " counts the final result, too, which the fused kernel writes as well",
        4 * between: " are the bytes: how many numbers are that?",
    }
    if extra_floats != between:
        hint = hints.get(extra_floats, ": count the results of the product and of the sum")
        raise Wrong(f"{extra_floats}{hint}")
    return "two intermediate results stay in registers in the fused, scheduled kernel"
