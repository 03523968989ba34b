"""Compute integer tensors that depend on sizes alone in one loop nest, by a formula.

Exporters write positions and masks with many operators. The causal mask of `n` tokens, for
example, is made of slices and sums of ``arange(n)`` and gathers from them, and its element
``[i, j]`` is ``j <= i``. If `n` is known, these operators are constants. If it is not, each is a
kernel that runs for every input. `FoldFormulas` reads the formula from the operators' loops.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, te, tirx

from ..ir.graph import bound, is_call, key
from .loops import CONDITIONS, shape_of, static

__all__ = ["FoldFormulas"]

#: TVM's simplifier assumes that sums of int32 and int64 do not overflow, as its kernels do. Numbers
#: of int8 are only booleans that PyTorch's exporter combines bit by bit.
_WIDE = ("int32", "int64")
_DTYPES = ("bool", "int8", *_WIDE)
#: Uses of axes and sizes in the longest formula, so that the time to compile stays linear.
_LONGEST = 32
_PAIRS = (tirx.expr.BinaryOpExpr, tirx.expr.CmpExpr, tirx.And, tirx.Or)
_QUOTIENTS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
_OF_BITS = {tirx.BitwiseAnd: tirx.And, tirx.BitwiseOr: tirx.Or}


class _UnknownError(Exception):
    """An operator has no formula."""


@dataclass(frozen=True)
class _Formula:
    """The elements of a tensor, as a function of axes and sizes."""

    axes: Sequence[tirx.Var]
    shape: Sequence[Any]
    value: Any
    #: Whether it depends on a symbolic size, and whether it is computed from other tensors.
    is_open: bool
    is_composed: bool
    #: The sizes that must be at least 1.
    positive: frozenset[int] = frozenset()

    def at(self, place: Sequence[Any]) -> Any:
        """Return the element at a place."""
        return _with(self.value, dict(zip(map(key, self.axes), place, strict=True)))

    def is_whole(self) -> bool:
        """Return whether the tensor has no elements where the formula does not hold."""
        sizes = self.symbols()
        return all(name in sizes and _is_empty(self.shape, sizes[name]) for name in self.positive)

    def symbols(self) -> dict[int, tirx.Var]:
        """Return the sizes in the shape and in the value."""
        axes = set(map(key, self.axes))
        used = _symbols([*self.shape, self.value])
        return {name: size for name, size in used.items() if name not in axes}


@tvm.transform.module_pass(opt_level=0)
class FoldFormulas:
    """Replace integer tensors that are computed from sizes alone, by one loop nest each.

    An operator has a formula if all that it reads is proven to lie inside its operands, so that
    `CheckIndices` would have nothing to check.
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

    def begin(self, function: relax.Function) -> bool:
        """Find formulas; return whether an operator without a formula needs one of them."""
        found: dict[int, _Formula] = {}
        needed: set[int] = set()
        maker = relax.BlockBuilder()  # for loops that only `_Reader` sees
        bindings = [one for block in function.body.blocks for one in block.bindings]
        with maker.function("main", []):
            for binding in bindings:
                formula = _formula(binding, found, maker)
                if formula is None:
                    needed |= _variables(binding.value)
                else:
                    found[key(binding.var)] = formula
            maker.emit_func_output(relax.Tuple([]))
        needed |= _variables(function.body.body)
        self.replaced = {
            name: formula
            for name, formula in found.items()
            if name in needed and formula.is_open and formula.is_composed and formula.is_whole()
        }
        return bool(self.replaced)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Rewrite one binding, called by TVM's visitor."""
        formula = self.replaced.get(key(binding.var))
        if formula is None:
            super().visit_var_binding_(binding)
            return

        sizes, shape = formula.symbols(), [*formula.shape]

        def computed(shape: Sequence[Any], given: Sequence[Any] = ()) -> te.Tensor:
            known = dict(zip(sizes, given, strict=False))
            return te.compute(shape, lambda *place: _with(formula.at(place), known))

        # A kernel reads a size from its result's shape; others are its arguments.
        found = {key(size) for size in shape if isinstance(size, tirx.Var)}
        more = [] if found >= {*sizes} else [[*sizes.values()]]
        made = self.builder_.call_te(computed, shape, *more, primfunc_name_hint="formula")
        made = self.builder_.normalize(made)
        self.builder_.emit_normalized(relax.VarBinding(binding.var, made))


def _variables(expr: relax.Expr) -> set[int]:
    """Return the variables in an expression."""
    found: list[relax.Expr] = []
    relax.analysis.post_order_visit(expr, found.append)
    return {key(one) for one in found if isinstance(one, relax.Var)}


def _formula(
    binding: relax.Binding, found: Mapping[int, _Formula], maker: relax.BlockBuilder
) -> _Formula | None:
    """Return the formula of a bound tensor, if all its operands have one."""
    call, ty = binding.value, binding.var.ty
    if not isinstance(binding, relax.VarBinding):
        return None
    if isinstance(call, relax.Var | ir.GenericConst):
        return found.get(key(call)) or _constant(call)
    shape = shape_of(ty) if isinstance(ty, relax.TensorType) else None
    if shape is None or str(ty.dtype) not in _DTYPES or not isinstance(call, relax.Call):
        return None
    if not isinstance(call.op, ir.Op):
        return None
    tensors = [one for arg in call.args for one in _parts(arg) if shape_of(one.ty) is not None]
    given = {key(one): found.get(key(one)) or _constant(one) for one in tensors}
    operands = [one for one in given.values() if one is not None]
    if len(operands) < len(given):
        return None
    is_open = any(static(size) is None for size in shape) or any(one.is_open for one in operands)
    is_composed = any(key(one) in found for one in tensors)
    positive: frozenset[int] = frozenset().union(*(one.positive for one in operands))
    sizes = {name for one in operands for name in one.symbols()} | {*_symbols(list(shape))}
    for least in (positive, positive | sizes):
        with contextlib.suppress(_UnknownError):
            axes, value = _of_call(call, shape, given, maker, least)
            return _Formula(axes, shape, value, is_open, is_composed, frozenset(least))
    return None


def _parts(expr: relax.Expr) -> list[relax.Expr]:
    return list(expr.fields) if isinstance(expr, relax.Tuple) else [expr]


def _constant(expr: relax.Expr) -> _Formula | None:
    """Return the formula of a constant whose elements are all the same."""
    if not isinstance(expr, ir.GenericConst) or str(expr.ty.dtype) not in _DTYPES:
        return None
    values = np.unique(expr.value.numpy())
    if len(values) != 1:
        return None
    axes = [tirx.Var(f"i{axis}", "int64") for axis in range(expr.ty.ndim)]
    value = tirx.const(values[0].item(), str(expr.ty.dtype))
    return _Formula(axes, expr.ty.shape.values, value, is_open=False, is_composed=False)


def _of_call(
    call: relax.Call,
    shape: Sequence[Any],
    given: Mapping[int, Any],
    maker: relax.BlockBuilder,
    positive: Set[int],
) -> tuple[Sequence[tirx.Var], Any]:
    """Return the axes and the value of a call's result."""
    if is_call(call, "relax.cumsum"):
        return _running_sum(call, given[key(call.args[0])])
    name, lower = str(call.op.name), call.op.get_attr("FLegalize")
    conditions = [size >= 0 for size in shape if static(size) is None]
    if name in CONDITIONS:
        tensors: list[Any] = [shape_of(one.ty) for arg in call.args for one in _parts(arg)]
        shapes = [one for one in tensors if one is not None]
        conditions += CONDITIONS[name](call, shapes, list(shape))
    analyzer = _analyzer(_symbols(conditions), positive)
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
    return _Reader(maker.get()[made.args[0]], operands, shape, positive).result()


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


def _running_sum(call: relax.Call, given: _Formula) -> tuple[Sequence[tirx.Var], Any]:
    """Return the sums of numbers that are the same along the axis."""
    axis = call.attrs.axis
    along = None if axis is None else given.axes[int(axis) % len(given.axes)]
    if along is None or key(along) in _symbols(given.value):
        raise _UnknownError
    count = along if call.attrs.exclusive else along + 1
    value = tirx.Cast(str(call.ty.dtype), tirx.Cast("int64", given.value) * count)
    return given.axes, tvm.sym.Analyzer().simplify(value)


def _symbols(expr: Any) -> dict[int, tirx.Var]:
    """Return the variables in integers."""
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(tvm_ffi.convert(expr), (tirx.Var, found.append))
    return {key(var): var for var in found}


def _with(value: Any, values: Mapping[int, Any]) -> Any:
    """Return an integer with values for some variables."""
    return tvm_ffi.structural_map(value, (tirx.Var, lambda var: values.get(key(var), var)))


def _is_empty(shape: Sequence[Any], size: tirx.Var) -> bool:
    """Return whether a tensor has no elements if a size is 0."""
    zero = {key(size): tirx.const(0, "int64")}
    return any(static(tvm.sym.Analyzer().simplify(_with(one, zero))) == 0 for one in shape)


def _analyzer(sizes: Mapping[int, tirx.Var], positive: Set[int]) -> tvm.sym.Analyzer:
    """Return an analyzer that knows the ranges of sizes."""
    analyzer = tvm.sym.Analyzer()
    for name, size in sizes.items():
        least, most = (tirx.const(number, "int64") for number in (name in positive, 1 << 62))
        analyzer.bind(size, ir.Range(least, most))
    return analyzer


class _Reader:
    """A reader of a function whose blocks each compute a tensor element by element."""

    def __init__(
        self,
        func: tirx.PrimFunc,
        operands: Sequence[Any],
        shape: Sequence[Any],
        positive: Set[int],
    ) -> None:
        self.func, self.positive = func, positive
        self.found: dict[int, _Formula] = {}
        #: The sizes of the Relax function, and what this function's sizes are there.
        self.known = _symbols(list(shape))
        self.sizes: dict[int, Any] = {}
        *params, last = func.params
        pairs = [*zip(last.shape, shape, strict=True)]
        for param, operand in zip(params, operands, strict=True):
            if isinstance(operand, _Formula):
                self.found[key(param)] = operand
                self.known |= operand.symbols()
                pairs += zip(param.shape, operand.shape, strict=True)
            else:
                self.known |= _symbols(operand)
                pairs.append((param, operand))
        self.sizes = {key(one): size for one, size in pairs if isinstance(one, tirx.Var)}
        self.analyzer = _analyzer(self.known, positive)
        self.axes: set[int] = set()

    def result(self) -> tuple[Sequence[tirx.Var], Any]:
        """Return the axes and the value of the last tensor."""
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
            if key(store.buffer) in self.found:  # a part of a tensor is written again
                raise _UnknownError
            if len(axes) != len(store.indices) or not all(map(_same, axes, store.indices)):
                raise _UnknownError
            shape = [self.value(size) for size in store.buffer.shape]
            self.found[key(store.buffer)] = self.formula(axes, shape, store.value)
        last = _known(self.found, self.func.params[-1])
        return last.axes, last.value

    def formula(self, axes: Sequence[Any], shape: Sequence[Any], value: Any) -> _Formula:
        """Return the formula of a tensor, where it has elements."""
        empty = {name for name, size in self.known.items() if _is_empty(shape, size)}
        self.analyzer = _analyzer(self.known, self.positive | empty)
        self.axes = set(map(key, axes))
        for axis, size in zip(axes, shape, strict=True):
            extent = self.analyzer.simplify(size)
            self.analyzer.bind(axis, ir.Range.from_min_extent(tirx.const(0, "int64"), extent))
        made = self.value(value)
        uses: list[tirx.Var] = []
        tvm_ffi.structural_walk(made, (tirx.Var, uses.append))
        if len(uses) > _LONGEST:
            raise _UnknownError
        return _Formula(axes, shape, made, is_open=False, is_composed=False)

    def value(self, expr: Any) -> Any:
        """Return an integer without reads of tensors, simplified."""
        return self.analyzer.simplify(self.replaced(expr))

    def replaced(self, expr: Any) -> Any:
        """Return an integer without reads of tensors."""
        if isinstance(expr, tirx.IntImm):
            return expr
        if isinstance(expr, tirx.Var):
            if key(expr) in self.axes or key(expr) in self.known:
                return expr
            return _known(self.sizes, expr)
        if isinstance(expr, ir.TensorLoad):
            return self.read(expr)
        dtype = str(expr.ty.dtype)
        if isinstance(expr, tirx.Cast):
            return _cast(self.value(expr.value), dtype)
        if isinstance(expr, tirx.Not) or (isinstance(expr, tirx.BitwiseNot) and dtype == "bool"):
            return tirx.Not(self.value(expr.a))
        if isinstance(expr, _PAIRS):
            return self.pair(type(expr), self.value(expr.a), self.value(expr.b))
        if isinstance(expr, tirx.Select):
            return self.chosen(expr.condition, expr.true_value, expr.false_value)
        if is_call(expr, "prim.if_then_else"):
            return self.chosen(*expr.args)
        raise _UnknownError

    def pair(self, kind: Any, one: Any, other: Any) -> Any:
        """Return an operator of two integers."""
        flags = _flag(one), _flag(other)
        if kind in _OF_BITS and all(flag is not None for flag in flags):
            return _cast(_OF_BITS[kind](*flags), str(one.ty.dtype))
        if str(one.ty.dtype) not in ("bool", *_WIDE):
            raise _UnknownError
        if kind in _QUOTIENTS and not self.analyzer.can_prove(other > 0):
            raise _UnknownError
        return kind(one, other)

    def read(self, load: ir.TensorLoad) -> Any:
        """Return the element that is read, which must lie inside its tensor."""
        formula = _known(self.found, load.source)
        place = [self.value(index) for index in load.indices]
        for index, size in zip(place, formula.shape, strict=True):
            if not (self.analyzer.can_prove(index >= 0) and self.analyzer.can_prove(index < size)):
                raise _UnknownError
        return self.replaced(formula.at(place))

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
            if self.analyzer.can_prove(tirx.EQ(one, other)):
                return one
        with self.analyzer.constraint_scope(condition):
            same = self.analyzer.can_prove(tirx.EQ(one, other))
        return other if same else tirx.Select(condition, one, other)


def _known(values: Mapping[int, Any], var: tirx.Var) -> Any:
    """Look a variable up."""
    if key(var) not in values:
        raise _UnknownError
    return values[key(var)]


def _flag(value: Any) -> Any:
    """Return the boolean that a number is; None if it is another number."""
    if str(value.ty.dtype) == "bool":
        return value
    if isinstance(value, tirx.Cast) and str(value.value.ty.dtype) == "bool":
        return value.value
    known = static(value) if str(value.ty.dtype) == "int8" else None
    return tirx.const(bool(known), "bool") if known in (0, 1) else None


def _cast(value: Any, dtype: str) -> Any:
    """Return a value of another type; a boolean stays what it is."""
    flag, of = _flag(value), str(value.ty.dtype)
    if flag is not None:
        return flag if dtype == "bool" else tirx.Cast(dtype, flag)
    if dtype == "bool":
        return tirx.NE(value, tirx.const(0, of))
    known = static(value)
    if dtype not in _WIDE or (known is not None and abs(known) > np.iinfo(dtype).max):
        raise _UnknownError
    return value if dtype == of else tirx.Cast(dtype, value)


def _same(one: Any, other: Any) -> bool:
    return bool(one.same_as(other))
