"""Slices and shapes whose sizes are known only at run time.

Upstream's importers assume that a slice with a symbolic bound lies inside its tensor, and that a
tensor has the size that another operator needs. Here the bounds of a slice are clamped, as ONNX
does, and the other assumptions become assertions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import tvm
from tvm import ir, relax, te, tirx
from tvm.relax import op

from .fitting import FITTING, equal
from .loops import checked_sizes, plain, same, static

if TYPE_CHECKING:
    from .rewriter import Rewriter

__all__ = ["SIZED", "Sizes", "divided", "fitted", "sized"]

_MOST = 1 << 62
#: Operators of several tensors whose inferred shape is unknown where the operands may not fit.
_BROADCASTING = {f"relax.{name}" for name in (*vars(op.binary), "where")}
#: Operators whose errors tell the shape of the result.
_TOLD = ("reshape", "pad", "topk")
#: Operators that can have sizes that do not fit although all are known.
_UNCHECKED = ("relax.nn.pad", "relax.topk")
_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)


class Sizes:
    """What is known about the symbolic sizes of a function.

    Parameters
    ----------
    function : tvm.relax.Function
        The sizes of its parameters, and those that ``match_cast`` reads from tensors, are never
        negative.
    """

    def __init__(self, function: relax.Function) -> None:
        self.analyzer = tvm.sym.Analyzer()
        self._uses: Counter[Any] = Counter()
        known: set[Any] = set()

        def look(expr: Any) -> None:
            if isinstance(expr, relax.Call):
                self._uses.update(_written(expr))
            elif isinstance(expr, relax.SeqExpr):
                for block in expr.blocks:
                    for binding in block.bindings:
                        if isinstance(binding, relax.MatchCast):
                            known.update(_dimensions(binding.ty))

        relax.analysis.post_order_visit(function, look)
        for parameter in function.params:
            known.update(_dimensions(parameter.ty))
        zero, most = (tirx.const(number, "int64") for number in (0, _MOST))
        for size in known:
            self.analyzer.bind(size, ir.Range.from_min_extent(zero, most))

    def proves(self, condition: Any) -> bool:
        """Return whether a condition always holds."""
        return bool(self.analyzer.can_prove(condition))

    def elsewhere(self, call: relax.Call, sizes: Sequence[Any]) -> bool:
        """Return whether calls other than this one were built with the variables of sizes."""
        own = _written(call)
        return any(self._uses[one] > (one in own) for size in sizes for one in _variables(size))


def sized(call: relax.Call) -> bool:
    """Return whether a function of `SIZED` has anything to do for a call."""
    name = getattr(call.op, "name", "")
    if name not in SIZED:
        return False
    known = [one.ty for one in (call, *call.args)]
    return (
        name in _UNCHECKED
        or getattr(call.attrs, "assume_inbound", False)
        or any(relax.analysis.tir_vars_in_type(ty) for ty in known)
    )


def _dimensions(ty: Any) -> Iterator[Any]:
    """Yield the variables that are sizes of tensors."""
    if isinstance(ty, relax.TupleType):
        for field in ty.fields:
            yield from _dimensions(field)
    elif isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr):
        yield from (size for size in ty.shape.values if isinstance(size, tirx.Var))


def _variables(size: Any) -> set[Any]:
    return set() if isinstance(size, int) else set(tirx.analysis.undefined_vars(size))


def _written(call: relax.Call) -> set[Any]:
    """Return the size variables in the arguments of a call, apart from the types of tensors."""
    found: set[Any] = set()

    def look(expr: Any) -> None:
        if isinstance(expr, relax.Tuple):
            for field in expr.fields:
                look(field)
        elif isinstance(expr, relax.ShapeExpr):
            for value in expr.values:
                found.update(_variables(value))
        elif ir.is_prim_expr(expr):
            found.update(_variables(expr))

    for expr in (*call.args, *call.ty_args):
        look(expr)
        look(getattr(expr, "shape", None))
    return found


def _shape(ty: Any) -> list[Any] | None:
    known = isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr)
    return list(ty.shape.values) if known else None


def _tensors(types: Sequence[Any]) -> Iterator[Any]:
    for ty in types:
        if isinstance(ty, relax.TupleType):
            yield from _tensors(ty.fields)
        elif isinstance(ty, relax.TensorType):
            yield ty


def divided(rewriter: Rewriter, shape: relax.ShapeExpr) -> relax.ShapeExpr:
    """Return a shape that can be computed: a divisor of 0 would end the process."""
    values = [_divided(rewriter, value) for value in shape.values]
    same = all(old.same_as(new) for old, new in zip(shape.values, values, strict=True))
    return shape if same else relax.ShapeExpr(values)


def _divided(rewriter: Rewriter, size: Any) -> Any:
    if not isinstance(size, (*_DIVISIONS, tirx.Add, tirx.Sub, tirx.Mul, tirx.Min, tirx.Max)):
        return size
    one, other = (_divided(rewriter, part) for part in (size.a, size.b))
    if isinstance(size, _DIVISIONS) and not rewriter.sizes.proves(other > 0):
        other = tirx.max(other, tirx.const(1, "int64"))
    same = one.same_as(size.a) and other.same_as(size.b)
    return size if same else type(size)(one, other)


def fitted(rewriter: Rewriter, call: relax.Call) -> relax.Call:
    """Return a call of operands whose sizes can be others than those that it was written for.

    An operator that has a shape for any sizes keeps the operands. Otherwise an assertion says that
    they have the sizes that were assumed.
    """
    args = [rewriter.visit_expr(one) for one in call.args]
    types = [one.ty for one in args]
    pairs = list(zip(call.args, args, strict=True))
    if all(same(old.ty, new.ty) for old, new in pairs):
        return rewriter.visit_expr_post_order(call)
    name = getattr(call.op, "name", "") if isinstance(call.op, ir.Op) else "relax.call"
    alone = len(list(_tensors(types))) == 1 and not name.startswith("relax.call")
    if alone or name in _BROADCASTING or name in SIZED:
        try:
            made = rewriter.builder_.normalize(relax.Call(call.op, args, call.attrs, call.ty_args))
        except (TypeError, ValueError, tvm.error.InternalError):
            made = None
        if made is not None and _as_known(call.ty, made.ty):
            return made
    where = f"an operand of {name.removeprefix('relax.')}"
    args = [_restored(rewriter, old, new, where) for old, new in pairs]
    return relax.Call(call.op, args, call.attrs, call.ty_args)


def _as_known(old: Any, new: Any) -> bool:
    """Return whether every shape that was known is known now."""
    before, now = list(_tensors([old])), list(_tensors([new]))
    return len(before) == len(now) and all(
        _shape(a) is None or _shape(b) is not None for a, b in zip(before, now, strict=True)
    )


def _restored(rewriter: Rewriter, old: relax.Expr, new: relax.Expr, where: str) -> relax.Expr:
    if same(old.ty, new.ty):
        return new
    if isinstance(old, relax.Tuple) and isinstance(new, relax.Tuple):
        fields = zip(old.fields, new.fields, strict=True)
        return relax.Tuple([_restored(rewriter, *pair, where) for pair in fields])
    assumed, found = _shape(old.ty), _shape(new.ty)
    if assumed is None or found is None:
        return new
    return _asserted(rewriter, new, assumed, where)


def _asserted(
    rewriter: Rewriter, value: relax.Expr, assumed: Sequence[Any], where: str
) -> relax.Expr:
    """Return a tensor with the sizes assumed, and assert that these are its sizes."""
    found = _shape(value.ty)
    assert found is not None
    wanted = [equal(a, b) for a, b in zip(found, assumed, strict=True)]
    flag = _checked(rewriter, wanted, f"{where} of shape {plain(assumed)}")
    if flag is None:
        return value

    return _copied(rewriter, value, flag, assumed)


def _copied(
    rewriter: Rewriter, value: relax.Expr, flag: relax.Expr, sizes: Sequence[Any]
) -> relax.Expr:
    """Return a copy of a tensor, of the sizes given, that depends on a check."""

    def copy(values: te.Tensor, flag: te.Tensor, sizes: Sequence[Any]) -> te.Tensor:
        return te.compute(sizes, lambda *at: values(*_within(rewriter, at, flag, values.shape)))

    return _emitted(rewriter, copy, value, flag, list(sizes))


def _within(rewriter: Rewriter, at: Sequence[Any], flag: te.Tensor, sizes: Any) -> list[Any]:
    """Return places that depend on the check, or clipped ones on a GPU, which checks nothing."""
    if rewriter.cpu:
        return [*at[:-1], at[-1] + flag(0)]
    return [
        tirx.max(tirx.min(one, size - 1), tirx.const(0, "int64"))
        for one, size in zip(at, sizes, strict=True)
    ]


def _emitted(rewriter: Rewriter, make: Callable[..., te.Tensor], *args: Any) -> relax.Expr:
    made = rewriter.builder_.call_te(make, *args, primfunc_name_hint="sized")
    return rewriter.builder_.emit(made)


def _checked(rewriter: Rewriter, conditions: Sequence[Any], where: str) -> relax.Expr | None:
    """Emit an assertion of what is not known to hold: one zero, or None where all is known."""
    unknown = [one for one in conditions if not rewriter.sizes.proves(one)]
    if not unknown:
        return None
    if any(rewriter.sizes.proves(tirx.Not(one)) for one in unknown):
        raise rewriter.refused("shapes do not fit", where, "correct the operands' shapes")
    if not rewriter.cpu:  # which would store the zero from the host
        return relax.const([0], "int64")
    made = rewriter.builder_.call_te(
        checked_sizes, unknown, where, primfunc_name_hint="check_sizes"
    )
    return rewriter.builder_.emit(made)


def _strided_slice(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    """Clamp the bounds of a slice to its axes."""
    data, *given = call.args
    sizes = _shape(data.ty)
    if sizes is None or not rewriter.check or not all(isinstance(x, relax.Tuple) for x in given):
        return call
    lists = [list(one.fields) for one in given]
    axes, begins, ends = ([int(axis) % len(sizes) for axis in lists[0]], *lists[1:3])
    strides = lists[3] if len(lists) > 3 else [tirx.const(1, "int64")] * len(axes)
    numbers = [*begins, *ends, *strides, *(sizes[axis] for axis in axes)]
    if not call.attrs.assume_inbound and None not in map(static, numbers):
        return call
    if not all((static(stride) or 0) > 0 for stride in strides):
        if not rewriter.cpu:
            return call
        made = _dynamic(rewriter, data, sizes, axes, (begins, ends, strides))
    else:
        simple = rewriter.sizes.analyzer.simplify
        bounds = [
            list(map(simple, _clamped(begin, end, sizes[axis])))
            for axis, begin, end in zip(axes, begins, ends, strict=True)
        ]
        begins, ends = (list(one) for one in zip(*bounds, strict=True))
        inside = None in map(static, (*begins, *ends))
        made = op.strided_slice(data, axes, begins, ends, strides, assume_inbound=inside)
    made = rewriter.builder_.normalize(made)
    assumed = _shape(call.ty)
    if assumed is None or not (rewriter.strict or rewriter.sizes.elsewhere(call, assumed)):
        return made
    return _asserted(rewriter, rewriter.builder_.emit(made), assumed, f"a slice of {plain(sizes)}")


def _clamped(begin: Any, end: Any, size: Any) -> tuple[Any, Any]:
    zero = tirx.const(0, "int64")
    begin, end, size = (zero + one for one in (begin, end, size))
    begin, end = (tirx.if_then_else(one < 0, one + size, one) for one in (begin, end))
    begin, end = (tirx.min(tirx.max(one, zero), size) for one in (begin, end))
    return begin, tirx.max(begin, end)


def _dynamic(
    rewriter: Rewriter, data: relax.Expr, sizes: Sequence[Any], axes: Sequence[int], bounds: Any
) -> relax.Expr:
    """Return a slice with steps below zero or symbolic ones: its bounds are in tensors."""
    tensors = []
    for whole, given in zip(([0] * len(sizes), sizes, [1] * len(sizes)), bounds, strict=True):
        values = list(whole)
        for axis, number in zip(axes, given, strict=True):
            values[axis] = number
        tensors.append(rewriter.builder_.emit(op.shape_to_tensor(relax.ShapeExpr(values))))
    call = op.dynamic_strided_slice(data, *tensors)
    return rewriter.operators["relax.dynamic_strided_slice"](rewriter, call)


def _broadcast_to(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    """Broadcast as ONNX does: a size of 1 takes any other, on either side."""
    data = call.args[0]
    sizes, target = _shape(data.ty), _shape(call.ty)
    if sizes is None or target is None or not rewriter.check:
        return call
    if target and not sizes:  # no place in a scalar could depend on the check
        data, sizes = rewriter.builder_.emit(op.reshape(data, [1])), [tirx.const(1, "int64")]
    ones = len(target) - len(sizes)
    conditions, whole = [], target[:ones]
    for size, wanted in zip(sizes, target[ones:], strict=True):
        if static(size) == 1 or rewriter.sizes.proves(equal(size, wanted)):
            whole.append(wanted)
        else:
            conditions.append(tirx.any(equal(size, wanted), equal(size, 1), equal(wanted, 1)))
            either = tirx.Select(equal(size, 1), wanted, size)
            whole.append(rewriter.sizes.analyzer.simplify(either))
    conditions += [wanted >= 0 for wanted in target]
    where = f"broadcast_to of {plain(sizes)} to {plain(target)}"
    flag = _checked(rewriter, conditions, where)
    if flag is None:
        return call

    def spread(values: te.Tensor, flag: te.Tensor, whole: Sequence[Any]) -> te.Tensor:
        def pick(*at: Any) -> Any:
            places = [
                one if static(size) not in (1, None) else tirx.Select(equal(size, 1), 0 * one, one)
                for one, size in zip(at[ones:], values.shape, strict=True)
            ]
            return values(*_within(rewriter, places, flag, values.shape))

        return te.compute(whole, pick)

    made = _emitted(rewriter, spread, data, flag, whole)
    if rewriter.strict or rewriter.sizes.elsewhere(call, target):
        return _asserted(rewriter, made, target, where)
    return made


def _fitting(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    """Check that sizes fit an operator, and let its first tensor depend on the check."""
    given = rewriter.value(call.args[0])
    several = isinstance(given, relax.Tuple)
    tensors = list(given.fields) if several else [call.args[0]]
    tensors += [one for one in call.args[1:] if isinstance(one.ty, relax.TensorType)]
    known = [shape for one in tensors if (shape := _shape(one.ty)) is not None]
    made = next((shape for ty in _tensors([call.ty]) if (shape := _shape(ty)) is not None), None)
    if not rewriter.check or len(known) < len(tensors):
        return call
    name = call.op.name.removeprefix("relax.").removeprefix("nn.")
    where = f"{name} of {' and '.join(map(plain, known))}"
    if name in _TOLD and made is not None:
        where += f" to {plain(made)}"
    flag = _checked(rewriter, FITTING[call.op.name](call, known, made), where)
    if flag is None:
        return call
    first, *others = tensors
    if not known[0]:  # no place in a scalar could depend on the check
        first = rewriter.builder_.emit(op.reshape(first, [1]))
    if rewriter.cpu:  # a GPU checks nothing
        first = _copied(rewriter, first, flag, first.ty.shape)
    if several:
        return relax.Call(call.op, [relax.Tuple([first, *others])], call.attrs)
    return relax.Call(call.op, [first, *call.args[1:]], call.attrs)


SIZED: dict[str, Callable[[Any, relax.Call], relax.Expr]] = {
    "relax.strided_slice": _strided_slice,
    "relax.broadcast_to": _broadcast_to,
    **dict.fromkeys(FITTING, _fitting),
}
