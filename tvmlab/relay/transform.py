"""Relay's passes, each over today's.

Every pass first turns graphs into bindings (`tvmlab.ir.module.normalize`), so that it also takes
a module that was filled by hand, and keeps Relay's name and optimization level: what
``PassContext(opt_level=..., required_pass=..., disabled_pass=...)`` says of it still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import ir, relax
from tvm.ir.transform import ModulePass, Pass, PassContext, PassInfo, Sequential, module_pass

from ..errors import RelayError
from ..ir import dialect, gone, graph, table
from ..ir.batch_norm import FoldBatchNorm
from ..ir.flatten import flat
from ..ir.module import normalize
from ..ir.partition import AnnotateTarget, MergeCompilerRegions, MergeComposite, PartitionGraph
from .function_passes import each, function_pass
from .inference import is_call, one_by_one, unpacked
from .scale_axis import fold_backward, fold_forward

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
    "ForwardFoldScaleAxis",
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


def _made_of(name: str, level: int, *passes: Pass) -> Pass:
    """Make one pass of several of Relax's, with Relay's name and level."""

    def run(mod: ir.IRModule, _: PassContext) -> ir.IRModule:
        mod = normalize(mod)
        for one in passes:
            mod = one(mod)
        return mod

    return _pass(run, name, level)


def _pass(run: Callable[[ir.IRModule, PassContext], ir.IRModule], name: str, level: int) -> Pass:
    """Make a pass of a function on modules."""
    return module_pass(run, opt_level=level, name=name)


def _keeping_public(mod: ir.IRModule, run: Callable[[ir.IRModule], ir.IRModule]) -> ir.IRModule:
    """Run what drops functions without a symbol, as those that ``main`` calls are."""
    bare = [
        var.name_hint
        for var, func in mod.functions.items()
        if isinstance(func, relax.Function) and "global_symbol" not in func.attrs
    ]
    mod = mod.clone()
    for name in bare:
        mod[name] = mod[name].with_attr("global_symbol", name)
    mod = run(mod).clone()
    for name in bare:
        if name in mod:
            mod[name] = mod[name].without_attr("global_symbol")
    return mod


def InferType() -> Pass:
    """Infer all types; here also: turn graphs into bindings."""
    return _made_of("InferType", 0)


def InferTypeLocal(expr: relax.Expr) -> ir.Type:
    """Infer the type of one expression."""
    from ..ir.inference import infer

    return infer(expr).ty


def FoldConstant(fold_qnn: bool = False) -> Pass:
    """Compute what depends on constants only; over `tvm.relax.transform.FoldConstant`.

    Parameters
    ----------
    fold_qnn : bool
        Fold ``qnn`` operators too, as far as they have an arithmetic here.
    """
    return _made_of("FoldConstant", 2, relax.transform.FoldConstant())


def SimplifyInference() -> Pass:
    """Take normalizations apart and drop dropout.

    Batch normalization becomes Relay's ``multiply`` and ``add`` (`tvmlab.relay.inference`); the
    rest is over `tvm.relax.transform.DecomposeOpsForInference`. As in Relay, a use of a dropout's
    mask keeps the dropout.
    """
    decompose = relax.transform.DecomposeOpsForInference()

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

    def run(mod: ir.IRModule, _: PassContext) -> ir.IRModule:
        mod = each(normalize(mod), lambda func: _changed(func, normalization))
        return each(decompose(mod), lambda func: _changed(func, change))

    return _pass(run, "SimplifyInference", 0)


def _changed(
    func: relax.Function, change: Callable[[relax.Expr, relax.Expr], relax.Expr]
) -> relax.Function:
    """Change a function's graph from its leaves up."""
    body = graph.transform(flat(func.body), change)
    return relax.Function(func.params, body, func.ret_ty, attrs=func.attrs)


def DeadCodeElimination(inline_once: bool = False, ignore_impurity: bool = False) -> Pass:
    """Drop what nothing uses; over `tvm.relax.transform.DeadCodeElimination`.

    Parameters
    ----------
    inline_once, ignore_impurity : bool
        Relay's; bindings of Relax are never inlined, and operators of Relay are pure.
    """

    def run(mod: ir.IRModule, _: PassContext) -> ir.IRModule:
        return _keeping_public(normalize(mod), relax.transform.DeadCodeElimination())

    return _pass(run, "DeadCodeElimination", 1)


def RemoveUnusedFunctions(entry_functions: Sequence[str] | None = None) -> Pass:
    """Drop the functions that no entry function calls, ``main`` where none are given."""
    entries = list(entry_functions or ["main"])

    def run(mod: ir.IRModule, _: PassContext) -> ir.IRModule:
        used, todo = set(entries), [name for name in entries if name in mod]
        while todo:
            func = mod[todo.pop()]
            called = (
                relax.analysis.all_global_vars(func) if isinstance(func, relax.Function) else []
            )
            new = {var.name_hint for var in called} - used
            used |= new
            todo += sorted(new)
        kept = {var: func for var, func in mod.functions.items() if var.name_hint in used}
        return ir.IRModule(kept, mod.attrs, mod.global_infos)

    return _pass(run, "RemoveUnusedFunctions", 1)


def EliminateCommonSubexpr(fskip: Callable[[relax.Expr], bool] | None = None) -> Pass:
    """Compute equal expressions once; over `tvm.relax.transform.EliminateCommonSubexpr`.

    Raises
    ------
    RelayError
        There is a function `fskip`, which Relax's pass does not ask.
    """
    if fskip is not None:
        raise RelayError(
            "Relax's pass takes no function that says what to skip",
            where="EliminateCommonSubexpr(fskip=...)",
            fix="leave it out, or write the pass with tvm.relax.PyExprMutator",
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
    for name, (given, fix) in {
        "hard_fail": (hard_fail, "ask tvmlab.qnn.analysis.float_operators what stayed in float"),
        "use_qat": (use_qat, "give every operator's result a quantize, as QDQ files do"),
        "optional_qnn_ops": (optional_qnn_ops, "leave it out: all that have integer forms get one"),
    }.items():
        if given:
            raise RelayError(
                "tvmlab's pass does not have this option of Relay's",
                where=f"FakeQuantizationToInteger({name}={given!r})",
                fix=fix,
            )
    # Not above: what it imports is written with this package.
    from ..qnn import transform

    return _made_of("FakeQuantizationToInteger", 0, transform.FakeQuantizationToInteger())


def FoldScaleAxis() -> Pass:
    """Fold scales of channels into the weights of the layers around them.

    Over `tvmlab.relay.scale_axis`. Here normalizations of constant statistics that are still whole
    are folded too, by `tvmlab.batch_norm.FoldBatchNorm`.
    """
    return _made_of("FoldScaleAxis", 3, FoldBatchNorm(), _BACKWARD, _FORWARD)


def BackwardFoldScaleAxis() -> Pass:
    """Fold scales into the weights of the layers before them."""
    return _BACKWARD


def ForwardFoldScaleAxis() -> Pass:
    """Fold constant scales into the weights of the layers behind them."""
    return _FORWARD


def _scales(name: str, fold: Callable[[relax.Expr], relax.Expr]) -> Pass:
    def change(func: relax.Function) -> relax.Function:
        return relax.Function(func.params, fold(flat(func.body)), func.ret_ty, attrs=func.attrs)

    return _pass(lambda mod, _: each(normalize(mod), change), name, 3)


_BACKWARD = _scales("BackwardFoldScaleAxis", fold_backward)
_FORWARD = _scales("ForwardFoldScaleAxis", fold_forward)


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
        data = layouts[0]
        kernel = layouts[1] if len(layouts) > 1 else "default"
        wanted[row.relax] = [data, _kernel_for(data) if kernel == "default" else kernel]
    return _made_of("ConvertLayout", 3, relax.transform.ConvertLayout(wanted))


def _kernel_for(data: str) -> str:
    """Give the kernel's layout that Relay takes beside a layout of data."""
    return {"NCHW": "OIHW", "NHWC": "HWIO", "HWNC": "HWOI"}.get(data, "OIHW")


def CanonicalizeOps() -> Pass:
    """Say ``nn.bias_add`` with ``expand_dims`` and ``add``."""

    def change(_: relax.Expr, after: relax.Expr) -> relax.Expr:
        if isinstance(after, relax.Call) and isinstance(after.op, ir.Op):
            row = table.find("nn.bias_add")
            expand = dialect.expansion(after.op.name)
            if row is not None and row.relax == after.op.name and expand is not None:
                return expand(list(after.args), dialect.attributes(after))
        return after

    def run(mod: ir.IRModule, _: PassContext) -> ir.IRModule:
        return each(normalize(mod), lambda func: _changed(func, change))

    return _pass(run, "CanonicalizeOps", 3)


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
    raise gone.missing("transform", name, globals())
