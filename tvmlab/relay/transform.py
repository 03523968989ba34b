"""Relay's passes on top of Relax passes, with Relay's names and optimization levels.

Every pass first turns graphs into bindings (`tvmlab.ir.module.normalize`), so that it also takes
a module whose functions were added by hand.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import ir, relax
from tvm.ir.transform import ModulePass, Pass, PassContext, PassInfo, Sequential, module_pass
from tvm.relax import op

from ..errors import RelayError
from ..ir import gone, graph
from ..ir.batch_norm import FoldBatchNorm
from ..ir.graph import inline_bindings, is_call
from ..ir.module import infer_type, normal, normalize
from ..ir.partition import AnnotateTarget, MergeCompilerRegions, MergeComposite, PartitionGraph
from ..ir.text.printer import astext
from ..ir.text.reader import fromtext
from ..qnn import transform as quantized
from ..qnn.analysis import float_operators
from . import fake_quantization
from . import op as relay_op
from .expr import refuse
from .fusion import fuse

__path__: list[str] = []  # see gone.ImportFinder
__all__ = ["AnnotateTarget", "MergeCompilerRegions", "MergeComposite", "ModulePass",
           "PartitionGraph", "Pass", "PassContext", "PassInfo", "Sequential",
           "module_pass"]  # fmt: skip


def _made_of(name: str, level: int, *passes: Any) -> Pass:
    """Chain functions on modules into one pass with Relay's name and level."""

    def run(mod: ir.IRModule, _: PassContext) -> ir.IRModule:
        return functools.reduce(lambda mod, one: one(mod), passes, normalize(mod))

    return module_pass(run, opt_level=level, name=name)


def _each(mod: ir.IRModule, change: Callable[[relax.Function], relax.Function]) -> ir.IRModule:
    """Change every Relax function of a module, and turn the results into bindings."""
    made = mod.clone()
    callees = {var.name_hint: (var, func) for var, func in mod.functions.items()}
    for var, func in mod.functions.items():
        # As in Relay, passes leave the regions of an accelerator alone.
        if isinstance(func, relax.Function) and "Compiler" not in (func.attrs or {}):
            made.update_func(var, normal(change(func), callees))
    return made


def function_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
    traceable: bool = False,
) -> Any:
    """Make a pass from ``pass_func(func, mod, ctx)``, which returns the new function.

    For a class, the function is its method ``transform_function``. Without `pass_func`, returns a
    decorator. Raises `RelayError` without `opt_level`, the lowest level at which the pass runs;
    `required` lists the passes that must run before.
    """
    if opt_level is None:
        fix = "pass it: @function_pass(opt_level=0)"
        raise RelayError("the argument opt_level is missing", fix=fix)

    def make(given: Any) -> Any:
        if not inspect.isclass(given):
            return wrap(given, given.__name__)

        @functools.wraps(given, updated=())
        def instance(*args: Any, **kwargs: Any) -> Pass:
            change: Any = given(*args, **kwargs)
            return wrap(change.transform_function, given.__name__)

        return instance

    def wrap(change: Callable[..., relax.Function], own: str) -> Pass:
        def run(mod: ir.IRModule, ctx: PassContext) -> ir.IRModule:
            mod = normalize(mod)
            return _each(mod, lambda func: change(func, mod, ctx))

        return module_pass(run, opt_level, name or own, list(required or []))

    return make(pass_func) if pass_func is not None else make


def InferType() -> Pass:
    """Infer all types, and turn graphs into bindings."""
    return _made_of("InferType", 0)


# Every Relax module already has this form.
ToANormalForm = ToGraphNormalForm = InferType


def FoldConstant(fold_qnn: bool = False) -> Pass:
    """Evaluate expressions of constants, with `tvm.relax.transform.FoldConstant`."""
    return _made_of("FoldConstant", 2, relax.transform.FoldConstant())


def SimplifyInference() -> Pass:
    """Decompose batch normalization and drop dropout.

    As in Relay, batch normalization becomes ``multiply`` and ``add`` of one scale and one shift per
    channel, so that `FoldConstant` and `FoldScaleAxis` keep the ``add``, which pattern tables
    match after a convolution. A dropout whose mask is used is kept.
    """

    def change(_: relax.Expr, after: relax.Expr) -> relax.Expr:
        if isinstance(after, relax.TupleGetItem) and after.index == 0:
            if is_call(after.tuple_value, "relax.nn.dropout"):
                return after.tuple_value.args[0]
            if is_call(after.tuple_value, "relax.nn.batch_norm"):
                return _scaled_and_shifted(after.tuple_value, after)
        return after

    def simplified(func: relax.Function) -> relax.Function:
        body = graph.transform(inline_bindings(func.body), change)
        return relax.Function(func.params, body, func.ret_ty, attrs=func.attrs)

    return _made_of("SimplifyInference", 0, lambda mod: _each(mod, simplified))


def _scaled_and_shifted(call: relax.Call, field: relax.Expr) -> relax.Expr:
    """Expand batch normalization to ``multiply`` and ``add``; not in training or without types."""
    data, gamma, beta, mean, variance = call.args
    attrs, rank = call.attrs, data.ty.ndim
    if attrs.training or rank < 0 or any(not graph.has_type(arg) for arg in call.args):
        return field
    one, epsilon = (relax.const(value, str(data.ty.dtype)) for value in (1.0, float(attrs.epsilon)))
    scale = op.divide(one, op.sqrt(op.add(variance, epsilon)))
    if attrs.scale:
        scale = op.multiply(scale, gamma)
    shift = op.multiply(op.negative(mean), scale)
    if attrs.center:
        shift = op.add(shift, beta)
    if behind := [*range(1, rank - int(attrs.axis) % rank)]:
        scale, shift = op.expand_dims(scale, behind), op.expand_dims(shift, behind)
    return infer_type(op.add(op.multiply(data, scale), shift))


def DeadCodeElimination(inline_once: bool = False, ignore_impurity: bool = False) -> Pass:
    """Drop unused bindings, with `tvm.relax.transform.DeadCodeElimination`."""

    def run(mod: ir.IRModule) -> ir.IRModule:
        names = [var.name_hint for var, f in mod.functions.items() if isinstance(f, relax.Function)]
        return relax.transform.DeadCodeElimination(names)(mod)

    return _made_of("DeadCodeElimination", 1, run)


def EliminateCommonSubexpr(fskip: Callable[[relax.Expr], bool] | None = None) -> Pass:
    """Compute equal expressions once, with `tvm.relax.transform.EliminateCommonSubexpr`."""
    name = "EliminateCommonSubexpr"
    refuse(name, "leave it out, or write the pass with tvm.relax.PyExprMutator", fskip=fskip)
    return _made_of(name, 3, relax.transform.EliminateCommonSubexpr())


def FakeQuantizationToInteger(
    hard_fail: bool = False, use_qat: bool = False, optional_qnn_ops: Sequence[str] | None = None
) -> Pass:
    """Compute the operators between dequantize and quantize in integers.

    Calls `tvmlab.qnn.transform.FakeQuantizationToInteger`, then applies Relay's rules, and those
    that a script registers, to the operators left (`tvmlab.relay.fake_quantization`). Softmax is
    converted only if `optional_qnn_ops` names it. With `hard_fail`, raises `RelayError` for the
    first operator that `tvmlab.qnn.analysis.float_operators` lists.
    """

    def run(mod: ir.IRModule) -> ir.IRModule:
        rules = fake_quantization.rules_for(optional_qnn_ops or ())
        first: Any = quantized.FakeQuantizationToInteger(use_qat=use_qat)
        with fake_quantization.only(rules):
            mod = first(mod)
            if float_operators(mod):
                mod = _each(mod, lambda func: fake_quantization.convert(func, rules))
            for left in float_operators(mod) if hard_fail else ():
                what, where = f"{left.operator} stays in float: {left.reason}", f"relay.{name}"
                raise RelayError(what, where=where, fix="leave out hard_fail")
        return mod

    name = "FakeQuantizationToInteger"
    return _made_of(name, 0, run)


def AnnotateSpans() -> Pass:
    """Set the positions of expressions in the module's text, by writing and reading the text."""
    return _made_of("AnnotateSpans", 0, lambda mod: fromtext(astext(mod)))


def FoldScaleAxis() -> Pass:
    """Fold scales per channel into convolutions, with `tvmlab.ir.batch_norm.FoldBatchNorm`."""
    return _made_of("FoldScaleAxis", 3, FoldBatchNorm())


def ConvertLayout(desired_layouts: Mapping[str, Sequence[str]]) -> Pass:
    """Change the layouts of operators, with `tvm.relax.transform.ConvertLayout`.

    `desired_layouts` maps Relay's operators to the layouts of the data and the kernel, such as
    ``{"nn.conv2d": ["NHWC", "OHWI"]}``; ``"default"`` is Relay's kernel layout. Else `RelayError`.
    """
    wanted = {}
    for name, layouts in desired_layouts.items():
        data, kernel = (*layouts, "default")[:2]
        kernel = _KERNELS.get(data, "OIHW") if kernel == "default" else kernel
        wanted[relay_op.get(name).name] = [data, kernel]
    return _made_of("ConvertLayout", 3, relax.transform.ConvertLayout(wanted))


_KERNELS = {"NHWC": "HWIO", "HWNC": "HWOI"}
"""Relay's default kernel layouts for data layouts other than ``NCHW``."""


def AlterOpLayout() -> Pass:
    """Keep the layouts, because `tvmlab.compile` packs the weights for its schedules itself."""
    return _made_of("AlterOpLayout", 3)


def Inline() -> Pass:
    """Call functions with the attribute ``Inline`` directly, without a name."""

    def run(mod: ir.IRModule) -> ir.IRModule:
        named = {var.name_hint: (var, func) for var, func in mod.functions.items()
                 if func.attrs and "Inline" in func.attrs}  # fmt: skip

        def change(_: relax.Expr, after: relax.Expr) -> relax.Expr:
            callee = after.op if isinstance(after, relax.Call) else None
            if not isinstance(callee, ir.GlobalVar) or callee.name_hint not in named:
                return after
            # Only functions of a module have Relax's attribute beside Relay's.
            return relax.Call(named[callee.name_hint][1].without_attr("Codegen"), after.args)

        def inlined(func: relax.Function) -> relax.Function:
            body = graph.transform(inline_bindings(func.body), change)
            return relax.Function(func.params, body, func.ret_ty, attrs=func.attrs)

        made = _each(mod, inlined)
        kept = {var: func for var, func in made.functions.items() if var.name_hint not in named}
        return ir.IRModule(kept, attrs=made.attrs)

    return _made_of("Inline", 1, run)


def FuseOps(fuse_opt_level: int = -1) -> Pass:
    """Move operators that one kernel can compute into inner functions, with `fusion.fuse`."""

    def run(mod: ir.IRModule) -> ir.IRModule:
        return _each(mod, lambda func: fuse(func, fuse_opt_level))

    return _made_of("FuseOps", 0, run)


def __getattr__(name: str) -> Any:
    raise gone.missing("transform", name, globals())
