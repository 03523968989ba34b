"""Compile a Relax module to an executable, with one function."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.relax.backend.cpu_generic import pipeline as cpu_generic

from .errors import CompileError, TvmlabError
from .frontend.tir import with_main
from .indices import CheckIndices
from .indices.formulas import FoldFormulas
from .ir.batch_norm import FoldBatchNorm
from .ir.constants import fold_constants, fold_others
from .ir.dialect import ExpandOperators
from .runtime.executable import Executable
from .runtime.signature import Signature
from .schedule import PIPELINE, STEPS, Summary, Tally, Tuned, schedule_passes
from .schedule.integer_weights import IntegerWeights
from .schedule.memory import finalize_passes
from .support.target import as_target, spelled, split_target
from .support.wording import telling

if TYPE_CHECKING:
    from .records.file import Records

__all__ = ["build", "compile", "cut", "simplify"]


def compile(
    mod: IRModule | tirx.PrimFunc,
    target: tvm.target.Target | Mapping[str, Any] | str | None = None,
    *,
    records: Records | str | os.PathLike[str] | None = None,
    schedule: bool | str = True,
) -> Executable:
    """Compile a Relax module, or a TIR function.

    Passes fold batch normalization into convolutions, fold constants, and fuse neighbouring
    operators into one loop nest. For a CPU, the rules of `tvmlab.schedule` choose layouts and
    schedule every loop nest. `Executable.summary` lists the rule of each loop nest.

    TVM's ``relu``, ``clip``, ``maximum``, ``minimum`` and ``sign`` of NaN return a number, where
    NumPy, PyTorch and ONNX Runtime return NaN. For NaN, the results of ``sort``, ``topk``,
    ``argmax``, ``argmin`` and max pooling differ as well. Max pooling of a window in which every
    number is negative infinity returns the smallest finite number.

    Weights of a matrix product that are integers with a scale per block of inputs stay integers.
    Up to six rows of inputs are then rounded to 16 bits, with a scale per block of at most 32. For
    random numbers, results differ from float32's by about 2e-5 of the largest one. A block with an
    infinite input, or whose sum overflows, gives NaN.

    Parameters
    ----------
    mod : tvm.ir.IRModule or tvm.tirx.PrimFunc
        A module with a Relax function ``main``; it is left unchanged. It can contain further Relax
        functions, TIR functions and external modules. A TIR function, or a module of one, gets a
        ``main`` that allocates its outputs (`tvmlab.frontend.tir.with_main`).
    target : tvm.target.Target, mapping or str, optional
        The target to compile for, see `tvmlab.target.as_target`; by default, the host. For a
        composite such as ``"npu, llvm"``, `tvmlab.npu.partition` first cuts the module for the
        default machine, unless it is partitioned already; the rest is compiled for the target after
        the comma, or for the host if there is only ``"npu"``.
    records : tvmlab.tuning.Records or path, optional
        Tuning records of `tvmlab.tune`: their schedules for this target replace those of the rules.
        Records need all steps of scheduling.
    schedule : bool or str
        True runs all steps of `tvmlab.schedule.STEPS`; the name of a step stops after it. False
        is the same as upstream's `tvm.compile`, as for targets other than ``llvm``. The last step,
        ``"winograd"``, computes 3x3 convolutions by minimal filtering if a cost model expects
        fewer cycles. Its rounding errors are larger: on random inputs of up to 2,048 channels, a
        result differs from float64's by at most 5e-5 of the largest result in squares of 4x4, and
        5e-6 in squares of 2x2. An infinite input affects a whole square of results, and inputs from
        about 1e36 on overflow. ``"epilogue"`` leaves this step out. Quantized convolutions
        stay exact. They are computed this way where 8-bit numbers are multiplied as 16-bit ones: on
        x86-64 without VNNI, or if the differences of weights and zero points exceed int8.

    Returns
    -------
    Executable
        Call it with arrays.

    Raises
    ------
    TargetError
        The target is unknown.
    CompileError
        There is neither a Relax function ``main`` nor a single TIR function of known outputs, a
        parameter is not a tensor of a known shape, the step is unknown, a pass failed, this TVM
        cannot generate code for the kind of target, or a module with ``if`` would be compiled by
        upstream's passes, whose memory planner can make it crash.
    InputError
        A quantized operator (`tvmlab.qnn`) has an invalid scale or zero point.
    RecordError
        The file of records is missing, cannot be read, or has no records for this target.
    """
    if not isinstance(schedule, bool) and schedule not in STEPS:
        what, fix = f"there is no step {schedule!r} of scheduling", ", ".join(STEPS)
        raise CompileError(what, where="compile(schedule=...)", fix=f"pass True, False or {fix}")
    if schedule not in (True, STEPS[-1]) and records is not None:
        what, where = "records contain schedules of the last step of scheduling", f"{schedule=}"
        raise CompileError(what, where=where, fix="leave schedule out, or records")
    mod = with_main(mod)
    signature = Signature.of(mod["main"])
    made = as_target(split_target(target)[1])
    tally = Tally()
    try:
        mod, made = cut(mod, target)
        _check_branches(mod, made, schedule)
        scheduled, built = build(mod, made, schedule, _recorded(records, made), tally)
    except TvmlabError:
        raise  # the error already has a fix
    except Exception as error:  # passes and code generators raise many classes
        what = f"TVM could not compile the module: {telling(error)}"
        fix = "read TVM's own error above this one: it names the pass that raised it"
        raise CompileError(what, where=f"target {made}", fix=fix) from error
    return Executable(built, made, signature, Summary.of(scheduled), tally.work, tally.tir)


def cut(
    mod: IRModule, target: tvm.target.Target | Mapping[str, Any] | str | None
) -> tuple[IRModule, tvm.target.Target]:
    """Compile the accelerator's regions with its code generator; return the rest's target."""
    partitioner, rest = split_target(target)
    made = as_target(rest)
    with made:
        if partitioner:
            from .npu import partition  # imported here, because most modules need no accelerator

            mod = partition(mod)
        mod = mod.clone()
        # The name that regions are called by, so that passes do not drop the function as unused.
        main = mod["main"].with_attr("global_symbol", "main")
        mod.update_func(mod.get_global_var("main"), main)
        if _has_regions(mod):
            from .ir.partition import LowerRegions
            from .npu import codegen  # noqa: F401 (registers the accelerator's code generator)

            mod = LowerRegions()(mod)
    return mod, made


def build(
    mod: IRModule,
    target: tvm.target.Target,
    schedule: bool | str = True,
    tuned: Tuned | None = None,
    *last: Any,
) -> tuple[IRModule, relax.VMExecutable]:
    """Return a module's scheduled loops and its executable; the passes `last` see the code."""
    with target:
        to_loops, to_code = _passes(target, schedule, tuned)
        scheduled = tvm.transform.Sequential(to_loops)(mod)
        pipeline = tvm.transform.Sequential([*to_code, *last])
        made = relax.build(scheduled, target, relax_pipeline=pipeline, tir_pipeline=PIPELINE)
    return scheduled, made


def _passes(
    target: tvm.target.Target, schedule: bool | str, tuned: Tuned | None
) -> tuple[list[Any], list[Any]]:
    """List the passes from operators to scheduled loops, and from loops to code."""
    if not schedule:
        checks = [ExpandOperators(), CheckIndices()]
        return checks, [relax.pipeline.default_build_pipeline()]
    if target.kind.name != "llvm":
        return _simplifications(None), [relax.get_default_pipeline(target)]
    step = STEPS[-1] if schedule is True else str(schedule)
    packs = STEPS.index(step) >= STEPS.index("pack")
    lower = [*cpu_generic.dataflow_lower_passes(target), *finalize_passes(target)]
    passes = [*_simplifications(target if packs else None), schedule_passes(target, step, tuned)]
    return passes, lower


def _simplifications(packs: tvm.target.Target | None) -> list[Any]:
    """List the passes for inference; integer weights are packed for a CPU, if one is given."""
    return [
        *([IntegerWeights(packs)] if packs else []),
        ExpandOperators(),
        FoldFormulas(),
        CheckIndices(),
        relax.transform.ConvertToDataflow(),  # layouts and fusion need these blocks
        fold_constants(),
        relax.transform.CanonicalizeBindings(),
        FoldBatchNorm(),
        fold_others(),
        relax.transform.DeadCodeElimination(),
    ]


def _check_branches(mod: IRModule, target: tvm.target.Target, schedule: bool | str) -> None:
    """Refuse an `if` where upstream's memory planner runs: the process could crash later."""
    if schedule and target.kind.name == "llvm":
        return
    found: list[relax.If] = []
    tvm_ffi.structural_walk(mod, (relax.If, found.append))
    if found:
        what = "a module with `if` can be compiled only for a CPU, and with schedules"
        where = f"target {spelled(target)}, {schedule=}"
        raise CompileError(what, where=where, fix="compile for a CPU, and leave schedule out")


def _recorded(
    records: Records | str | os.PathLike[str] | None, target: tvm.target.Target
) -> Tuned | None:
    """Find the records to compile with; tuning is imported only if there are records."""
    if records is None:
        return None
    if target.kind.name != "llvm":
        what = f"records contain schedules for CPUs, but the target is of kind {target.kind.name}"
        raise CompileError(what, where=f"target {spelled(target)}", fix="leave the records out")
    from .records.file import Recorded

    return Recorded(records, target)


def _has_regions(mod: IRModule) -> bool:
    """Return whether functions are for another compiler, or are nested in functions."""
    functions = [one for one in mod.functions.values() if isinstance(one, relax.Function)]
    blocks = [block for one in functions for block in one.body.blocks]
    nested = [one for x in blocks for one in x.bindings if isinstance(one.value, relax.Function)]
    return bool(nested) or any(one.attrs and "Codegen" in one.attrs for one in functions)


def simplify(mod: IRModule, packs: tvm.target.Target | None = None) -> IRModule:
    """Rewrite a module for inference, for any target.

    Relay's operators are expanded, integer tensors that depend on sizes alone become formulas,
    indices are checked, batch normalization and constants are folded, and dead bindings are
    removed. If a CPU is given, the integer weights of matrix products are packed for it.
    """
    return tvm.transform.Sequential(_simplifications(packs))(mod)
