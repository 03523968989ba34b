"""Compute integer tensors that depend on sizes alone in one loop nest, by a formula.

Exporters write positions and masks with many operators. The causal mask of `n` tokens, for
example, is made of slices and sums of ``arange(n)`` and gathers from them, and its element
``[i, j]`` is ``j <= i``. If `n` is known, these operators are constants. If it is not, each is a
kernel that runs for every input. `FoldFormulas` reads the formula from the operators' loops.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, te, tirx
from tvm.sym import ProofStrength

from ..ir.graph import bound, is_call, key
from .loops import CONDITIONS, checked_sizes, on_cpu, opaque, plain, same, shape_of, static

__all__ = ["FoldFormulas"]

#: TVM's simplifier assumes that sums of int32 and int64 do not overflow, as its kernels do.
_DTYPES = ("bool", "int32", "int64")
#: Operands of an operator, and uses of axes and sizes in a formula, at most, so that the time to
#: compile stays linear.
_LONGEST = 32
_PAIRS = (tirx.expr.BinaryOpExpr, tirx.expr.CmpExpr, tirx.And, tirx.Or)
_QUOTIENTS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)


class _UnknownError(Exception):
    """An operator has no formula."""


@dataclass(frozen=True)
class _Formula:
    """The elements of a tensor, as a function of axes and sizes."""

    axes: Sequence[tirx.Var]
    shape: Sequence[Any]
    value: Any
    #: Slices that need sizes above zero: the sizes, by how an error names the slice.
    needs: Mapping[str, Sequence[tirx.Var]] = field(default_factory=dict)

    def at(self, place: Sequence[Any]) -> Any:
        """Return the element at a place."""
        return _with(self.value, dict(zip(map(key, self.axes), place, strict=True)))

    def sizes(self) -> dict[int, tirx.Var]:
        """Return the symbolic sizes in the shape and in the value."""
        axes = set(map(key, self.axes))
        used = _symbols([*self.shape, self.value])
        return {name: size for name, size in used.items() if name not in axes}


@tvm.transform.module_pass(opt_level=0)
class FoldFormulas:
    """Replace integer tensors that are computed from sizes alone, by one loop nest each.

    An operator has a formula if all that it reads is proven to lie inside its operands, so that
    `CheckIndices` has nothing to check; or, for a slice, if it does unless a size is zero, which
    the loop nest checks.
    """

    def transform_module(self, mod: ir.IRModule, _: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        folder = _Folder(mod)
        for name, function in mod.functions_items():
            if isinstance(function, relax.Function) and folder.begin(function):
                folder.builder_.update_func(name, folder.visit_expr(function))
        return folder.builder_.get()


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):  # type: ignore[misc]
    """The rewriter: `begin` finds the formulas of a function, the visit writes their loops."""

    def __init__(self, mod: ir.IRModule) -> None:
        super().__init__(mod)
        self.replaced: dict[int, _Formula] = {}
        self.cpu = on_cpu()

    def begin(self, function: relax.Function) -> bool:
        """Find formulas; return whether an operator without a formula needs one of them."""
        self.replaced = {}
        if not relax.analysis.defined_symbolic_vars(function):
            return False
        formulas: dict[int, _Formula] = {}
        bindings = [one for block in function.body.blocks for one in block.bindings]
        maker = relax.BlockBuilder()  # for loops that only `_Reader` sees
        with maker.function("main", []):
            for binding in bindings:
                formula = _formula(binding, formulas, maker)
                if formula is not None:
                    formulas[key(binding.var)] = formula
            maker.emit_func_output(relax.Tuple([]))
        needed = _variables(function.body.body)
        for binding in reversed(bindings):
            name, operands = key(binding.var), _variables(binding.value)
            formula = formulas.get(name)
            if formula is None:
                needed |= operands
            elif name in needed:
                # A scalar has no place that could depend on a check.
                checkable = formula.shape or not formula.needs
                if checkable and formula.sizes() and operands & formulas.keys():
                    self.replaced[name] = formula
                else:
                    needed |= operands
        return bool(self.replaced)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Rewrite one binding, called by TVM's visitor."""
        formula = self.replaced.get(key(binding.var))
        if formula is None:
            super().visit_var_binding_(binding)
            return
        sizes = formula.sizes()

        # The kernel has sizes of its own, and its places depend on the checks' zeros.
        def computed(shape: Sequence[Any], given: Sequence[Any], *flags: te.Tensor) -> te.Tensor:
            own = dict(zip(sizes, given, strict=True))

            def value(*place: Any) -> Any:
                last = [sum((flag(0) for flag in flags), place[-1])] if place else []
                return _with(formula.at([*place[:-1], *last]), own)

            return te.compute(shape, value)

        needs = formula.needs if self.cpu else {}
        flags = [self.checked(where, above) for where, above in needs.items()]
        arguments = [*formula.shape], [*sizes.values()], *flags
        made = self.builder_.call_te(computed, *arguments, primfunc_name_hint="formula")
        made = self.builder_.normalize(made)
        self.builder_.emit_normalized(relax.VarBinding(binding.var, made))

    def checked(self, where: str, sizes: Sequence[tirx.Var]) -> relax.Var:
        """Emit the check that sizes are above zero."""
        conditions = [size > 0 for size in sizes]
        return opaque(self.builder_, checked_sizes, conditions, where, name="check_sizes")


def _variables(expr: relax.Expr) -> set[int]:
    """Return the variables in an expression."""
    found: list[relax.Expr] = []
    relax.analysis.post_order_visit(expr, found.append)
    return {key(one) for one in found if isinstance(one, relax.Var)}


def _formula(
    binding: relax.Binding, formulas: Mapping[int, _Formula], maker: relax.BlockBuilder
) -> _Formula | None:
    """Return the formula of a bound tensor, if all its operands have one."""
    call, ty = binding.value, binding.var.ty
    if not isinstance(binding, relax.VarBinding):
        return None
    if isinstance(call, relax.Var | ir.GenericConst):
        return formulas.get(key(call)) or _constant(call)
    shape = shape_of(ty) if isinstance(ty, relax.TensorType) else None
    if shape is None or str(ty.dtype) not in _DTYPES:
        return None
    if not isinstance(call, relax.Call) or not isinstance(call.op, ir.Op):
        return None
    operands = [one for arg in call.args for one in _parts(arg)]
    tensors = [one for one in operands if isinstance(one.ty, relax.TensorType | relax.TupleType)]
    given = {key(one): formulas.get(key(one)) or _constant(one) for one in tensors}
    if len(tensors) > _LONGEST or any(one is None for one in given.values()):
        return None
    needs: dict[str, Sequence[tirx.Var]] = {}
    for one in given.values():
        needs |= one.needs if one else {}
    more = _above_zero(call, shape)
    for tried in [needs, needs | more] if more else [needs]:
        with contextlib.suppress(_UnknownError):
            return _of_call(call, shape, given, maker, tried)
    return None


def _above_zero(call: relax.Call, shape: Sequence[Any]) -> dict[str, Sequence[tirx.Var]]:
    """Return the open sizes that a slice may need to be above zero."""
    of = shape_of(call.args[0].ty) if is_call(call, "relax.strided_slice") else None
    # Where the result has elements, its own sizes are above zero.
    own = _symbols(list(shape))
    sizes = [size for name, size in _symbols(of or []).items() if name not in own]
    return {f"a slice of {plain(of)} to {plain(shape)}": sizes} if of and sizes else {}


def _parts(expr: relax.Expr) -> list[relax.Expr]:
    return list(expr.fields) if isinstance(expr, relax.Tuple) else [expr]


def _constant(expr: relax.Expr) -> _Formula | None:
    """Return the formula of a constant whose elements are all the same."""
    if not isinstance(expr, ir.GenericConst) or str(expr.ty.dtype) not in _DTYPES:
        return None
    values = expr.value.numpy()
    if not values.size or np.any(values != values.flat[0]):
        return None
    axes = [tirx.Var(f"i{axis}", "int64") for axis in range(values.ndim)]
    value = tirx.const(values.flat[0].item(), str(expr.ty.dtype))
    return _Formula(axes, expr.ty.shape.values, value)


def _of_call(
    call: relax.Call,
    shape: Sequence[Any],
    given: Mapping[int, Any],
    maker: relax.BlockBuilder,
    needs: Mapping[str, Sequence[tirx.Var]],
) -> _Formula:
    """Return the formula of a call's result."""
    if is_call(call, "relax.cumsum"):
        return replace(_running_sum(call, given[key(call.args[0])]), needs=needs)
    name, lower = str(call.op.name), call.op.get_attr("FLegalize")
    conditions = [size >= 0 for size in shape if static(size) is None]
    if name in CONDITIONS:
        shapes = [shape_of(one.ty) for arg in call.args for one in _parts(arg)]
        tensors: list[Any] = [one for one in shapes if one is not None]
        conditions += CONDITIONS[name](call, tensors, list(shape))
    analyzer = _analyzer(_symbols(conditions), [])
    if lower is None or not all(map(analyzer.can_prove, conditions)):
        raise _UnknownError
    try:
        made = _taken(call, maker) if name == "relax.take" else lower(maker, call)
    except Exception as error:  # upstream cannot lower it; our own rules might
        raise _UnknownError from error
    if not is_call(made, "relax.call_tir"):
        raise _UnknownError
    operands = [_operand(one, given, maker) for one in _parts(made.args[1])]
    if any(one is None for one in operands):
        raise _UnknownError
    above = [key(size) for sizes in needs.values() for size in sizes]
    made = _Reader(maker.get()[made.args[0]], operands, shape, above).result()
    return replace(made, shape=shape, needs=needs)


def _taken(call: relax.Call, maker: relax.BlockBuilder) -> relax.Call:
    """Make the loops of a `take`; upstream's print a warning, or clip indices."""
    data, indices = call.args
    if not isinstance(indices.ty, relax.TensorType) or call.attrs.axis is None:
        raise _UnknownError
    first, count = int(call.attrs.axis) % data.ty.ndim, indices.ty.ndim

    def take(values: te.Tensor, places: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            index = places(*at[first : first + count])
            return values(*at[:first], index, *at[first + count :])

        return te.compute([*call.ty.shape.values], element)

    return maker.call_te(take, data, indices)


def _operand(expr: Any, given: Mapping[int, Any], maker: relax.BlockBuilder) -> Any:
    """Return the formula of an operand of the loops, or a number."""
    if ir.is_prim_expr(expr):
        return expr
    item = bound(expr, maker)
    if isinstance(item, relax.TupleGetItem):
        expr = _parts(bound(item.tuple_value, maker))[item.index]
    return given.get(key(expr)) or _constant(expr)


def _running_sum(call: relax.Call, given: _Formula) -> _Formula:
    """Return the sums of numbers that are the same along the axis."""
    axis = call.attrs.axis
    along = None if axis is None else given.axes[int(axis) % len(given.axes)]
    if along is None or key(along) in _symbols(given.value):
        raise _UnknownError
    count = along if call.attrs.exclusive else along + 1
    value = tirx.Cast(str(call.ty.dtype), tirx.Cast("int64", given.value) * count)
    return _Formula(given.axes, given.shape, tvm.sym.Analyzer().simplify(value))


def _symbols(expr: Any) -> dict[int, tirx.Var]:
    """Return the variables in integers."""
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(tvm_ffi.convert(expr), (tirx.Var, found.append))
    return {key(var): var for var in found}


def _with(value: Any, values: Mapping[int, Any]) -> Any:
    """Return an integer with values for some variables."""
    return tvm_ffi.structural_map(value, (tirx.Var, lambda var: values.get(key(var), var)))


def _analyzer(
    sizes: Mapping[int, tirx.Var], shape: Sequence[Any], above: Sequence[int] = ()
) -> tvm.sym.Analyzer:
    """Return an analyzer that knows the ranges of sizes, where a tensor has elements.

    The sizes `above` are above zero.
    """
    analyzer = tvm.sym.Analyzer()
    zero, most = (tirx.const(number, "int64") for number in (0, 1 << 62))
    for name, size in sizes.items():
        without = (analyzer.simplify(_with(one, {name: zero})) for one in shape)
        least = int(name in above or any(static(one) == 0 for one in without))
        analyzer.bind(size, ir.Range(tirx.const(least, "int64"), most))
    return analyzer


class _Reader:
    """A reader of a function whose blocks each compute a tensor element by element."""

    def __init__(
        self,
        func: tirx.PrimFunc,
        operands: Sequence[Any],
        shape: Sequence[Any],
        above: Sequence[int],
    ) -> None:
        self.func, self.formulas, self.above = func, dict[int, _Formula](), above
        self.axes, self.analyzer = set[int](), tvm.sym.Analyzer()
        # `outer` has the sizes of the Relax function, `sizes` what each size of `func` is there.
        self.outer = _symbols(list(shape))
        *params, last = func.params
        pairs = [*zip(last.shape, shape, strict=True)]
        for param, operand in zip(params, operands, strict=True):
            if isinstance(operand, _Formula):
                self.formulas[key(param)] = operand
                self.outer |= operand.sizes()
                pairs += zip(param.shape, operand.shape, strict=True)
            else:
                self.outer |= _symbols(operand)
                pairs.append((param, operand))
        self.sizes = {key(one): size for one, size in pairs if isinstance(one, tirx.Var)}

    def result(self) -> _Formula:
        """Return the formula of the last tensor."""
        blocks: list[s_tir.SBlockRealize] = []
        tvm_ffi.structural_walk(self.func.body, (s_tir.SBlockRealize, blocks.append))
        for realized in blocks:
            block, store = realized.block, realized.block.body
            if not isinstance(store, tirx.BufferStore):
                if block.iter_vars:
                    raise _UnknownError
                continue  # the block around all others
            # A block that computes a scalar has an axis that nothing uses.
            axes = [one.var for one in block.iter_vars] if store.indices else []
            if block.init is not None or not static(realized.predicate):
                raise _UnknownError
            if key(store.buffer) in self.formulas:  # a part of a tensor is written again
                raise _UnknownError
            if len(axes) != len(store.indices) or not all(map(same, axes, store.indices)):
                raise _UnknownError
            formula = self.formula(axes, store.buffer.shape, store.value)
            self.formulas[key(store.buffer)] = formula
        last: _Formula = _known(self.formulas, self.func.params[-1])
        return last

    def formula(self, axes: Sequence[Any], sizes: Sequence[Any], value: Any) -> _Formula:
        """Return the formula of a tensor, where it has elements."""
        self.axes, self.analyzer = set(), _analyzer(self.outer, [], self.above)
        shape = [self.value(size) for size in sizes]
        self.axes = set(map(key, axes))
        self.analyzer = _analyzer(self.outer, shape, self.above)
        for axis, size in zip(axes, shape, strict=True):
            extent = self.analyzer.simplify(size)
            self.analyzer.bind(axis, ir.Range.from_min_extent(tirx.const(0, "int64"), extent))
        return _Formula(axes, shape, _short(self.value(value)))

    def value(self, expr: Any) -> Any:
        """Return an integer without reads of tensors, simplified."""
        return self.analyzer.simplify(self.replaced(expr))

    def replaced(self, expr: Any) -> Any:
        """Return an integer without reads of tensors."""
        if isinstance(expr, tirx.IntImm):
            return expr
        if isinstance(expr, tirx.Var):
            inside = key(expr) in self.axes or key(expr) in self.outer
            return expr if inside else _known(self.sizes, expr)
        if isinstance(expr, ir.TensorLoad):
            return self.read(expr)
        dtype = str(expr.ty.dtype)
        if isinstance(expr, tirx.Cast):
            return _cast(self.value(expr.value), dtype)
        if isinstance(expr, tirx.Not) or (isinstance(expr, tirx.BitwiseNot) and dtype == "bool"):
            return tirx.Not(self.value(expr.a))
        if isinstance(expr, _PAIRS):
            one, other = self.value(expr.a), self.value(expr.b)
            # Both values of a `Select` are computed, so that a divisor must never be 0.
            if isinstance(expr, _QUOTIENTS) and (static(other) or 0) <= 0:
                raise _UnknownError
            return type(expr)(one, other)
        if isinstance(expr, tirx.Select):
            return self.chosen(expr.condition, expr.true_value, expr.false_value)
        if is_call(expr, "prim.if_then_else"):
            return self.chosen(*expr.args)
        raise _UnknownError

    def read(self, load: ir.TensorLoad) -> Any:
        """Return the element that is read, which must lie inside its tensor."""
        formula = _known(self.formulas, load.source)
        place = [self.value(index) for index in load.indices]
        for index, size in zip(place, formula.shape, strict=True):
            if not (self.proves(index >= 0) and self.proves(index < size)):
                raise _UnknownError
        return self.replaced(_short(formula.at(place)))

    def proves(self, condition: Any) -> bool:
        """Return whether a condition is proven, also from the bounds of several variables."""
        return bool(self.analyzer.can_prove(condition, ProofStrength.SYMBOLIC_BOUND))

    def chosen(self, condition: Any, one: Any, other: Any) -> Any:
        """Return one of two values, if it is known which."""
        condition = self.value(condition)
        if static(condition) is not None:
            return self.replaced(one if static(condition) else other)
        otherwise = self.analyzer.simplify(tirx.Not(condition))
        with self.analyzer.constraint_scope(condition):
            one = self.value(one)
        with self.analyzer.constraint_scope(otherwise):
            other = self.value(other)
            if self.proves(tirx.EQ(one, other)):
                return one
        with self.analyzer.constraint_scope(condition):
            if self.proves(tirx.EQ(one, other)):
                return other
        return tirx.Select(condition, one, other)


def _short(value: Any) -> Any:
    """Return a value; `_UnknownError` if it is too long."""
    uses: list[tirx.Var] = []
    tvm_ffi.structural_walk(value, (tirx.Var, uses.append))
    if len(uses) > _LONGEST:
        raise _UnknownError
    return value


def _known(values: Mapping[int, Any], var: tirx.Var) -> Any:
    """Look a variable up."""
    if key(var) not in values:
        raise _UnknownError
    return values[key(var)]


def _cast(value: Any, dtype: str) -> Any:
    """Return a value of another type."""
    of, known = str(value.ty.dtype), static(value)
    if of == dtype:
        return value
    if dtype == "bool":
        return tirx.NE(value, tirx.const(0, of))
    if dtype not in _DTYPES or (known is not None and abs(known) > np.iinfo(dtype).max):
        raise _UnknownError
    return tirx.Cast(dtype, value)
