"""Relay's passes, each over today's.

Every pass first turns graphs into bindings (`tvmlab.ir.module.normalize`), so that it also takes
a module that was filled by hand, and keeps Relay's name and optimization level: what
``PassContext(opt_level=..., required_pass=..., disabled_pass=...)`` says of it still holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import ir, relax
from tvm.ir.transform import ModulePass, Pass, PassContext, PassInfo, Sequential, module_pass

from ..errors import RelayError
from ..ir import dialect, gone, graph, table
from ..ir.batch_norm import FoldBatchNorm
from ..ir.graph import inline_bindings, is_call
from ..ir.module import infer_type, normalize
from ..ir.partition import AnnotateTarget, MergeCompilerRegions, MergeComposite, PartitionGraph
from ..qnn import transform as quantized
from .function_passes import each, function_pass
from .inference import one_by_one, unpacked
from .kinds import refuse

__path__: list[str] = []  # see gone.ImportFinder
__all__ = [
    "AnnotateTarget",
    "BackwardFoldScaleAxis",
    "CanonicalizeOps",
    "ConvertLayout",
    "DeadCodeElimination",
    "EliminateCommonSubexpr",
    "FakeQuantizationToInteger",
    "FoldConstant",
    "FoldScaleAxis",
    "FuseOps",
    "InferType",
    "InferTypeLocal",
    "MergeCompilerRegions",
    "MergeComposite",
    "ModulePass",
    "PartitionGraph",
    "Pass",
    "PassContext",
    "PassInfo",
    "RemoveUnusedFunctions",
    "Sequential",
    "SimplifyInference",
    "ToANormalForm",
    "ToGraphNormalForm",
    "function_pass",
    "module_pass",
]


def _made_of(name: str, level: int, *passes: Any) -> Pass:
    """Chain functions of modules into one pass with Relay's name and level."""

    def run(mod: ir.IRModule, _: PassContext) -> ir.IRModule:
        return functools.reduce(lambda mod, one: one(mod), passes, normalize(mod))

    return module_pass(run, opt_level=level, name=name)


def InferType() -> Pass:
    """Infer all types, and turn graphs into bindings."""
    return _made_of("InferType", 0)


def InferTypeLocal(expr: relax.Expr) -> ir.Type:
    """Infer the type of one expression."""
    return infer_type(expr).ty


def FoldConstant(fold_qnn: bool = False) -> Pass:
    """Compute what depends on constants only; over `tvm.relax.transform.FoldConstant`.

    Parameters
    ----------
    fold_qnn : bool
        Fold ``qnn`` operators too, as far as they have an arithmetic here.
    """
    return _made_of("FoldConstant", 2, relax.transform.FoldConstant())


def SimplifyInference() -> Pass:
    """Decompose normalizations and drop dropout.

    Batch normalization becomes Relay's ``multiply`` and ``add`` (`tvmlab.relay.inference`); the
    rest is over `tvm.relax.transform.DecomposeOpsForInference`. As in Relay, a use of a dropout's
    mask keeps the dropout.
    """

    def change(_: relax.Expr, after: relax.Expr) -> relax.Expr:
        if isinstance(after, relax.TupleGetItem):
            whole = after.tuple_value
            if isinstance(whole, relax.Tuple):
                return whole.fields[after.index]
            if after.index == 0 and is_call(whole, "relax.nn.dropout"):
                return whole.args[0]
        return one_by_one(after) if is_call(after, "relax.expand_dims") else after

    def normalization(_: relax.Expr, after: relax.Expr) -> relax.Expr:
        if isinstance(after, relax.TupleGetItem) and after.index == 0:
            whole = after.tuple_value
            made = unpacked(whole) if is_call(whole, "relax.nn.batch_norm") else None
            return after if made is None else made
        return after

    decompose = relax.transform.DecomposeOpsForInference()
    return _made_of("SimplifyInference", 0, _each(normalization), decompose, _each(change))


def _each(
    change: Callable[[relax.Expr, relax.Expr], relax.Expr],
) -> Callable[[ir.IRModule], ir.IRModule]:
    """Change the graph of each function from its leaves up."""

    def changed(func: relax.Function) -> relax.Function:
        body = graph.transform(inline_bindings(func.body), change)
        return relax.Function(func.params, body, func.ret_ty, attrs=func.attrs)

    return lambda mod: each(mod, changed)


def DeadCodeElimination(inline_once: bool = False, ignore_impurity: bool = False) -> Pass:
    """Drop what nothing uses; over `tvm.relax.transform.DeadCodeElimination`.

    Parameters
    ----------
    inline_once, ignore_impurity : bool
        Relay's; bindings of Relax are never inlined, and operators of Relay are pure.
    """

    def run(mod: ir.IRModule) -> ir.IRModule:
        names = [var.name_hint for var, f in mod.functions.items() if isinstance(f, relax.Function)]
        return relax.transform.DeadCodeElimination(names)(mod)

    return _made_of("DeadCodeElimination", 1, run)


def RemoveUnusedFunctions(entry_functions: Sequence[str] | None = None) -> Pass:
    """Drop the functions that no entry function calls, ``main`` where none are given."""

    def run(mod: ir.IRModule) -> ir.IRModule:
        todo, used = list(entry_functions or ["main"]), set()
        while todo:
            used.add(name := todo.pop())
            if name in mod and isinstance(mod[name], relax.Function):
                called = relax.analysis.all_global_vars(mod[name])
                todo += {var.name_hint for var in called} - used
        kept = {var: func for var, func in mod.functions.items() if var.name_hint in used}
        return ir.IRModule(kept, mod.attrs, mod.global_infos)

    return _made_of("RemoveUnusedFunctions", 1, run)


def EliminateCommonSubexpr(fskip: Callable[[relax.Expr], bool] | None = None) -> Pass:
    """Compute equal expressions once; over `tvm.relax.transform.EliminateCommonSubexpr`.

    Raises
    ------
    RelayError
        There is a function `fskip`, which Relax's pass does not ask.
    """
    refuse(
        "EliminateCommonSubexpr",
        "leave it out, or write the pass with tvm.relax.PyExprMutator",
        fskip=fskip,
    )
    return _made_of("EliminateCommonSubexpr", 3, relax.transform.EliminateCommonSubexpr())


def FakeQuantizationToInteger(
    hard_fail: bool = False,
    use_qat: bool = False,
    optional_qnn_ops: Sequence[str] | None = None,
) -> Pass:
    """Compute in integers what stands between dequantize and quantize.

    Over `tvmlab.qnn.transform.FakeQuantizationToInteger`, which says how to choose the rounding.

    Parameters
    ----------
    hard_fail, use_qat, optional_qnn_ops : bool, bool, sequence of str
        Relay's; at their defaults only.

    Raises
    ------
    RelayError
        One of the options is set.
    """
    name = "FakeQuantizationToInteger"
    fix = "ask tvmlab.qnn.analysis.float_operators what stayed in float"
    refuse(name, fix, hard_fail=hard_fail)
    refuse(name, "give every operator's result a quantize, as QDQ files do", use_qat=use_qat)
    fix = "leave it out: all that have integer forms get one"
    refuse(name, fix, optional_qnn_ops=optional_qnn_ops)
    return _made_of("FakeQuantizationToInteger", 0, quantized.FakeQuantizationToInteger())


def FoldScaleAxis() -> Pass:
    """Fold multiplications by one number per channel into the convolution before them.

    Over `tvmlab.ir.batch_norm.FoldBatchNorm`, which also folds whole batch normalizations.
    """
    return _made_of("FoldScaleAxis", 3, FoldBatchNorm())


def BackwardFoldScaleAxis() -> Pass:
    """Fold scales as `FoldScaleAxis`, which knows no other direction."""
    return _made_of("BackwardFoldScaleAxis", 3, FoldBatchNorm())


def ConvertLayout(desired_layouts: Mapping[str, Sequence[str]]) -> Pass:
    """Change the layouts of operators; over `tvm.relax.transform.ConvertLayout`.

    Parameters
    ----------
    desired_layouts : mapping of str to sequence of str
        By Relay's operator, the data's and the kernel's layout:
        ``{"nn.conv2d": ["NHWC", "OHWI"]}``; ``"default"`` is the kernel's that Relay takes.

    Raises
    ------
    RelayError
        Relay has no such operator.
    """
    wanted = {}
    for name, layouts in desired_layouts.items():
        row = table.find(name)
        if row is None:
            raise RelayError(
                f"there is no operator {name!r} to lay out",
                where="ConvertLayout",
                fix="give Relay's names, such as 'nn.conv2d'",
            )
        data, kernel = (*layouts, "default")[:2]
        wanted[row.relax] = [data, _KERNELS.get(data, "OIHW") if kernel == "default" else kernel]
    return _made_of("ConvertLayout", 3, relax.transform.ConvertLayout(wanted))


_KERNELS = {"NHWC": "HWIO", "HWNC": "HWOI"}
"""The layouts of kernels that Relay takes beside layouts of data other than ``NCHW``."""


def CanonicalizeOps() -> Pass:
    """Replace ``nn.bias_add`` with ``expand_dims`` and ``add``."""

    def change(_: relax.Expr, after: relax.Expr) -> relax.Expr:
        expand = dialect.expansion("relax.relay.nn.bias_add")
        if expand is None or not is_call(after, "relax.relay.nn.bias_add"):
            return after
        return expand(list(after.args), dialect.attributes(after))

    return _made_of("CanonicalizeOps", 3, _each(change))


def FuseOps(fuse_opt_level: int = -1) -> Pass:
    """Make groups of operators one function each.

    Over `tvm.relax.transform.LegalizeOps`, ``AnnotateTIROpPattern`` and ``FuseOps``: what is fused
    is TIR, not Relay's operators.
    """
    level = {} if fuse_opt_level < 0 else {"fuse_opt_level": fuse_opt_level}
    return _made_of(
        "FuseOps",
        0,
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(**level),
    )


def ToANormalForm() -> Pass:
    """Bind every call to a variable: the form that every Relax module has."""
    return _made_of("ToANormalForm", 1)


def ToGraphNormalForm() -> Pass:
    """Undo `ToANormalForm`: in Relax, bindings are how a graph is written."""
    return _made_of("ToGraphNormalForm", 1)


FunctionPass = ModulePass


def __getattr__(name: str) -> Any:
    raise gone.missing("transform", name, __all__)
