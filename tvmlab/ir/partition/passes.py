"""The passes `MergeComposite`, `AnnotateTarget`, `InlineRegions` and `LowerRegions`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, tirx

from ...errors import RelayError
from .. import dialect, graph, operators, table
from ..operators.elementwise import BEGIN, END
from ..patterns import DFPattern
from ..patterns.rewriter import attribute, change_bodies, cut_graph

assert operators.__all__, "the table of operators is filled by importing its rows"

DEFAULT = "default"  # TVM itself, which compiles the remaining calls


@tvm.transform.module_pass(opt_level=0)
class MergeComposite:
    """The pass that replaces each match of a pattern by a function and a call of it.

    The functions have the attributes ``Composite``, the pattern's name in the table, and
    ``PartitionedFromPattern``, the names of the operators inside.

    Parameters
    ----------
    pattern_table : sequence of tuple
        ``(name, pattern)`` or ``(name, pattern, check)``, tried in this order; ``check`` gets the
        matched expression and returns whether to group it. A name for `AnnotateTarget` starts
        with the compiler's name: ``"npu.conv2d"``.

    Raises
    ------
    RelayError
        An entry of the table has another form.
    """

    def __init__(self, pattern_table: Sequence[Any]) -> None:
        self.table = [_entry(entry) for entry in pattern_table]

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        cuts = [({"Composite": name}, pattern, check) for name, pattern, check in self.table]
        return change_bodies(mod, lambda body, _: cut_graph(cuts, body), functions=True)


def _entry(entry: Any) -> tuple[str, DFPattern, Callable[[relax.Expr], Any]]:
    parts = list(entry) if isinstance(entry, (tuple, list)) else []
    if len(parts) == 2:
        parts.append(lambda extracted: True)
    if len(parts) == 3 and isinstance(parts[1], DFPattern) and callable(parts[2]):
        return str(parts[0]), parts[1], parts[2]
    what = "a pattern table holds (name, pattern) and (name, pattern, check)"
    fix = "make patterns with tvmlab.relay.dataflow_pattern"
    raise RelayError(what, where=f"MergeComposite: {entry!r}"[:200], fix=fix)


def compiler_begin(data: relax.Expr, compiler: str) -> relax.Call:
    """Annotate a tensor or tuple as an input of a compiler's region."""
    return graph.typed(dialect.call(BEGIN, [data], {"compiler": str(compiler)}))


def compiler_end(data: relax.Expr, compiler: str) -> relax.Call:
    """Annotate a tensor or tuple as an output of a compiler's region."""
    return graph.typed(dialect.call(END, [data], {"compiler": str(compiler)}))


def is_begin(expr: relax.Expr) -> bool:
    """Return whether an expression is a `compiler_begin`."""
    return graph.is_call(expr, BEGIN)


def is_end(expr: relax.Expr) -> bool:
    """Return whether an expression is a `compiler_end`."""
    return graph.is_call(expr, END)


def compiler_of(mark: relax.Call) -> str:
    """Return the compiler that an annotation names."""
    return str(mark.attrs["compiler"])


def is_data(expr: relax.Expr) -> bool:
    """Return whether an operand is also an operand in Relay, and not a shape, number or dtype."""
    if isinstance(expr, relax.Tuple):
        return any(map(is_data, expr.fields))
    if isinstance(expr, (tirx.Var, relax.Var)):
        return not isinstance(expr.ty, (ir.PrimType, relax.ShapeType))
    return isinstance(expr, (relax.Call, relax.TupleGetItem, relax.If, ir.GenericConst))


def operands(expr: relax.Expr) -> list[relax.Expr]:
    """List the parts to annotate: a call's operands, a tuple's fields, the parts of an `if`."""
    if isinstance(expr, relax.Call):
        return [arg for arg in expr.args if is_data(arg)]
    return graph.children(expr) if not isinstance(expr, relax.Tuple) or is_data(expr) else []


@tvm.transform.module_pass(opt_level=0)
class AnnotateTarget:
    """The pass that annotates every call that one of the compilers supports.

    A compiler supports an operator whose attribute ``target.COMPILER`` (`tvm.ir.register_op_attr`,
    under Relay's name or Relax's) returns true for the call, and a composite function whose name
    starts with ``COMPILER.``. If several compilers support a call, the first one gets it. Calls
    that no compiler supports are annotated ``"default"``.

    Parameters
    ----------
    targets : str or sequence of str
        The compilers' names, the preferred first.
    include_non_call_ops : bool
        Whether to annotate tuples and tuple fields too, if all their operands have one compiler.

    Notes
    -----
    The source is Relay's `src/relay/transforms/annotate_target.cc`, which moved already annotated
    operands to the front. Functions inside functions are not annotated.
    """

    def __init__(self, targets: str | Sequence[str], include_non_call_ops: bool = True) -> None:
        self.targets = [targets] if isinstance(targets, str) else [str(name) for name in targets]
        self.include_non_call_ops = include_non_call_ops

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""

        def annotate(body: relax.Expr, _: str) -> relax.Expr:
            work = _Annotator(self.targets, self.include_non_call_ops)
            return work.end(graph.transform(body, work.change))

        return change_bodies(mod, annotate)


class _Annotator:
    def __init__(self, targets: Sequence[str], non_calls: bool) -> None:
        self.targets = targets
        self.non_calls = non_calls
        # Keep the expression alive beside its compiler, so that its identity is not reused.
        self.compilers: dict[int, tuple[relax.Expr, str]] = {}

    def change(self, before: relax.Expr, after: relax.Expr) -> relax.Expr:
        """Annotate the operands of one node, whose operands' own operands are already annotated."""
        if is_end(after):
            self.compilers.setdefault(graph.key(after.args[0]), (after.args[0], compiler_of(after)))
        elif isinstance(after, relax.Call) and not is_begin(after):
            first = next(iter(operands(before)), None)
            if first is not None and is_begin(first) and compiler_of(first) != DEFAULT:
                return after
            if self.non_calls or not isinstance(after.op, relax.Var):
                takers = (name for name in self.targets if _supports(name, before))
                return self._mark(after, next(takers, DEFAULT))
            return self._closed(after)
        elif isinstance(after, (relax.Tuple, relax.TupleGetItem)) and is_data(after):
            return self._mark(after, None) if self.non_calls else self._closed(after)
        elif isinstance(after, relax.If):
            return self._closed(after)
        return after

    def _closed(self, expr: relax.Expr) -> relax.Expr:
        return _with(expr, [self.end(operand) for operand in operands(expr)])

    def _mark(self, expr: relax.Expr, compiler: str | None) -> relax.Expr:
        """Annotate all operands for a compiler; None is the compiler that they all come from."""
        sources, plain = [], []
        for operand in operands(expr):
            source = DEFAULT
            if is_begin(operand):
                inner = self.end(operand.args[0])
                source = compiler_of(inner) if is_end(inner) else DEFAULT
                operand = inner if compiler_of(operand) == DEFAULT else operand
            elif graph.key(operand) in self.compilers:
                source = self.compilers[graph.key(operand)][1]
                operand = self.end(operand)
            sources.append(source)
            plain.append(operand)
        taker = compiler or (sources[0] if len(set(sources)) == 1 else DEFAULT)
        marked = [one if is_begin(one) else compiler_begin(one, taker) for one in plain]
        made = _with(expr, marked)
        self.compilers[graph.key(made)] = (made, taker)
        return made

    def end(self, expr: relax.Expr) -> relax.Expr:
        """End the region that computes an expression; one without operands is in no region."""
        if is_end(expr) and compiler_of(expr) == DEFAULT:
            expr = expr.args[0]
        known = self.compilers.get(graph.key(expr))
        if known is None or is_end(expr) or not operands(expr):
            return expr
        made = compiler_end(expr, known[1])
        self.compilers[graph.key(made)] = (made, known[1])
        return made


def _with(expr: relax.Expr, new: Sequence[relax.Expr]) -> relax.Expr:
    """Rebuild an expression with other operands; shapes and numbers are kept."""
    fresh = iter(new)
    if not isinstance(expr, relax.Call):
        return graph.rebuild(expr, list(fresh))
    head = [] if isinstance(expr.op, ir.Op) else [expr.op]
    args = [next(fresh) if is_data(arg) else arg for arg in expr.args]
    return graph.rebuild(expr, [*head, *args])


def _supports(compiler: str, call: relax.Call) -> bool:
    """Return whether a compiler supports a call of a composite function or an operator."""
    if isinstance(call.op, relax.Function):
        return attribute(call.op, "Composite").startswith(f"{compiler}.")
    row, key = table.written(call), f"target.{compiler}"
    plain = call.op.name.removeprefix("relax.") if isinstance(call.op, ir.Op) else ""
    for name in (f"relax.{plain}", row[0].name if row else plain):
        try:
            op = ir.Op.get(name)
        except AttributeError:  # raised by TVM for an unknown operator
            continue
        predicate = op.get_attr(key) if op.has_attr(key) else None
        if predicate is not None and predicate(call):
            return True
    return False


@tvm.transform.module_pass(opt_level=0)
class InlineRegions:
    """The pass that inlines each region without a global function ``relax.ext.COMPILER``.

    Nested functions outside the other regions are also inlined.
    """

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        gone = {
            var.name_hint: function
            for var, function in mod.functions_items()
            if isinstance(function, relax.Function) and not _generated(function)
        }

        def inlined(body: relax.Expr, values: dict[int, relax.Expr]) -> relax.Expr:
            def change(_: relax.Expr, after: relax.Expr) -> relax.Expr:
                after = values.get(graph.key(after), after)
                if isinstance(after, relax.TupleGetItem):
                    whole = after.tuple_value
                    return whole.fields[after.index] if isinstance(whole, relax.Tuple) else after
                callee = after.op if isinstance(after, relax.Call) else None
                if isinstance(callee, ir.GlobalVar):
                    callee = gone.get(callee.name_hint)
                if not isinstance(callee, relax.Function):
                    return after
                bound = dict(zip(map(graph.key, callee.params), after.args, strict=True))
                return inlined(graph.inline_bindings(callee.body), bound)

            return graph.transform(body, change)

        made = change_bodies(mod, lambda body, _: inlined(body, {})).clone()
        for var in made.get_global_vars():
            if var.name_hint in gone:
                del made[var]
        return made


def _generated(function: relax.Function) -> bool:
    """Return whether a function is TVM's own, or a code generator is registered for it."""
    compiler = attribute(function, "Codegen") or attribute(function, "Compiler")
    return not compiler or tvm_ffi.get_global_func(f"relax.ext.{compiler}", True) is not None


def LowerRegions() -> tvm.transform.Pass:
    """Generate code for each region with its compiler, and inline regions without a compiler."""
    return tvm.transform.Sequential([InlineRegions(), relax.transform.RunCodegen()])
