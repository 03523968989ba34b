"""Compute exp, sigmoid, tanh, erf, squares and cubes of float32 in ways that LLVM can vectorize.

TVM lowers these functions to calls of the C library, one number at a time. The polynomials are
minimax fits. A result differs from the exact one by less than 2 units in the last place. NaN gives
NaN, and infinities give the limits.

Values that are used several times are stored in local buffers, which LLVM keeps in registers. With
`tirx.Let`, whose values TVM's code generator substitutes while it simplifies, the time to compile
``tanh(sigmoid(x))`` would be hours. A vectorized loop becomes one loop for each of these values,
because TVM does not vectorize a buffer that is allocated in such a loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, Expr

from .rebuild import block_with, loop_with, replaced

__all__ = ["by_polynomials", "stores"]

# Beyond these bounds, the exponential of a float32 number is zero or infinite.
_LOWEST, _HIGHEST = -104.0, 89.0
# Adding this number rounds a small float32 to an integer, which is then in its lowest bits.
_ROUND = 1.5 * 2**23
# ln 2 in two parts: the product of the first one with an integer of 8 bits is exact.
_LN2 = 0.693145751953125, 1.4286068203094173e-06

# A power of 2 that makes the smallest results of exp normal.
_SHIFT = 64

_Coefficients = tuple[float, ...]
# Conditions, and whether they are true or false.
_Conditions = tuple[tuple[Expr, bool], ...]
# Coefficients from the highest to the lowest: (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2,
_EXP: _Coefficients = (
    0.0013814173871651292,
    0.008368921466171741,
    0.04166840761899948,
    0.1666651964187622,
)
_EXP += (0.4999999403953552,)
# (tanh(x) / x - 1) / x^2 in x^2 for |x| <= 0.625,
_TANH: _Coefficients = (
    -0.005717045161873102,
    0.02065058797597885,
    -0.05374349653720856,
    0.13331490755081177,
)
_TANH += (-0.3333328366279602,)
# erf(x) / x - 1 in x^2 for |x| <= 0.921,
_ERF: _Coefficients = (
    8.403460378758609e-05,
    -0.0008151126094162464,
    0.00520183052867651,
    -0.026859747245907784,
)
_ERF += (0.11283702403306961, -0.37612634897232056, 0.128379225730896)
# and log(1 - erf(x)) for larger x.
_ERFC: _Coefficients = (
    -2.0828521883231588e-05,
    0.00043139251647517085,
    -0.004156250040978193,
    0.02508060447871685,
)
_ERFC += (-0.10822036862373352, -0.6334008574485779, -1.1294883489608765, 0.0001692038495093584)
_SMALL_TANH, _SMALL_ERF = 0.625, 0.921
# From these numbers on, the results round to 1.
_LARGE_TANH, _LARGE_ERF = 10.0, 4.0


def _number(value: float) -> Expr:
    return tirx.const(value, "float32")


class _Names:
    """Local buffers for the values that expressions use several times, one number per lane."""

    def __init__(self, lanes: int, lane: Any) -> None:
        self.lanes, self.lane = lanes, lane
        self.buffers: list[Any] = []
        self.stores: list[tirx.Stmt] = []
        self._results: dict[int, list[tuple[Any, Expr, Expr]]] = {}

    def once(self, expand: Any, x: Expr) -> Expr:
        """Expand a function of a value once, however often an expression computes it."""
        same = self._results.setdefault(tvm_ffi.structural_hash(x), [])
        for known, value, result in same:
            if known is expand and tvm_ffi.structural_equal(value, x):
                return result
        result = expand(self, self(x))
        same.append((expand, x, result))
        return result

    def __call__(self, value: Expr) -> Expr:
        """Store a value, and return the expression that reads it."""
        buffer = tirx.decl_buffer((self.lanes,), str(value.ty.dtype), "v")
        self.buffers.append(buffer)
        self.stores.append(tirx.BufferStore(buffer, value, [self.lane]))
        return tirx.BufferLoad(buffer, [self.lane])


def _polynomial(x: Expr, coefficients: _Coefficients) -> Expr:
    value = _number(coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + _number(coefficient)
    return value


def _power(n: Expr, more: int = 0) -> Expr:
    """Return 2^(n + more), whose bits are an exponent alone. Only the lowest 9 bits of n count."""
    exponent = tirx.shift_left(n, tirx.const(23, "int32")) + tirx.const(127 + more << 23, "int32")
    return tirx.reinterpret("float32", exponent)


def _exp_parts(name: _Names, x: Expr) -> tuple[Expr, Expr]:
    """Return exp(r), and n in the lowest 9 bits of an integer, where r = x - n ln 2."""
    x = name(x)
    rounded = name(x * _number(math.log2(math.e)) + _number(_ROUND))
    whole = name(rounded - _number(_ROUND))
    exact, rest = name(x - whole * _number(_LN2[0])), name(whole * _number(-_LN2[1]))
    r = name(exact + rest)
    significand = _number(1) + (exact + (rest + r * r * _polynomial(r, _EXP)))
    return significand, tirx.reinterpret("int32", rounded)


def _near_exp(name: _Names, x: Expr) -> Expr:
    """Return exp(x), where x is far from the bounds."""
    significand, n = _exp_parts(name, x)
    return significand * _power(n)


def _exp(name: _Names, x: Expr) -> Expr:
    # Comparisons with NaN are false, so NaN stays.
    x = name(tirx.Select(x < _number(_LOWEST), _number(_LOWEST), x))
    x = tirx.Select(x > _number(_HIGHEST), _number(_HIGHEST), x)
    significand, n = _exp_parts(name, x)
    # In two steps, because 2^n alone can be too small, or too large, for a normal number.
    n = name(n - tirx.reinterpret("int32", _number(_ROUND)))
    half = name(tirx.shift_right(n, tirx.const(1, "int32")))
    return significand * _power(half) * _power(n - half)


def _sigmoid(name: _Names, x: Expr) -> Expr:
    """Return e / (1 + e) or 1 / (1 + e), where e = exp(-|x|)."""
    far = name(-tirx.abs(x))
    far = tirx.Select(far < _number(_LOWEST), _number(_LOWEST), far)
    significand, n = _exp_parts(name, far)
    # The smallest results are not normal.
    e = name(significand * _power(n, _SHIFT) * _number(2.0**-_SHIFT))
    below = name(_number(1) + e)
    ratio = name(tirx.Select(x > _number(0), _number(1), e) / below)
    return ratio - ratio * (e - (below - _number(1)))  # what rounding took from `below`


def _tanh(name: _Names, x: Expr) -> Expr:
    size = name(tirx.abs(x))
    clipped = tirx.Select(size > _number(_LARGE_TANH), _number(_LARGE_TANH), size)
    e = name(_near_exp(name, _number(-2) * clipped))
    large = (_number(1) - e) / (_number(1) + e)
    square = name(x * x)
    small = x + x * (square * _polynomial(square, _TANH))
    signed = tirx.Select(x < _number(0), -large, large)
    return tirx.Select(size < _number(_SMALL_TANH), small, signed)


def _erf(name: _Names, x: Expr) -> Expr:
    size = name(tirx.abs(x))
    size = name(tirx.Select(size > _number(_LARGE_ERF), _number(_LARGE_ERF), size))
    large = _number(1) - _near_exp(name, _polynomial(size, _ERFC))
    square = name(x * x)
    small = x + x * _polynomial(square, _ERF)
    signed = tirx.Select(x < _number(0), -large, large)
    return tirx.Select(size < _number(_SMALL_ERF), small, signed)


def _square(name: _Names, x: Expr) -> Expr:
    return x * x


def _cube(name: _Names, x: Expr) -> Expr:
    return x * x * x


_POWERS = {2.0: _square, 3.0: _cube}
_EXPANSIONS = {"tirx.exp": _exp, "tirx.sigmoid": _sigmoid, "tirx.tanh": _tanh, "tirx.erf": _erf}


def _expanded(expr: Expr, name: _Names, conditions: _Conditions = ()) -> Expr:
    """Expand the functions in an expression that is computed where all `conditions` hold."""
    if isinstance(expr, (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)):
        return type(expr)(*(_expanded(side, name, conditions) for side in (expr.a, expr.b)))
    if isinstance(expr, tirx.Cast):
        return tirx.Cast(expr.ty.dtype, _expanded(expr.value, name, conditions))
    if isinstance(expr, tirx.Select):
        chosen = expr.condition, expr.true_value, expr.false_value
        # A vector computes both values in any case.
        return tirx.Select(*_branches(chosen, name, conditions, both=name.lanes > 1))
    if not isinstance(expr, Call):
        return expr
    kind = getattr(expr.op, "name", "")
    if kind == "prim.if_then_else":
        return tirx.if_then_else(*_branches(expr.args, name, conditions))
    expand = _EXPANSIONS.get(kind)
    args = [_expanded(arg, name, conditions) for arg in expr.args]
    if kind == "tirx.pow" and isinstance(args[1], tirx.FloatImm):
        expand = _POWERS.get(float(args[1].value))
    if expand is None or str(expr.ty.dtype) != "float32":
        changed = any(not new.same_as(old) for new, old in zip(args, expr.args, strict=True))
        return Call(expr.op, args, expr.attrs, ret_ty=expr.ty) if changed else expr
    x = args[0]
    # Where `x` is not read, its index can be out of bounds. A negated condition would be simplified
    # as if no number were NaN.
    for condition, holds in reversed(conditions):
        sides = (x, _number(0)) if holds else (_number(0), x)
        x = tirx.if_then_else(condition, *sides)
    return name.once(expand, x)


def _branches(
    chosen: Sequence[Expr], name: _Names, outer: _Conditions, *, both: bool = False
) -> list[Expr]:
    """Expand the functions in two values, of which the condition chooses one, or in both."""
    condition, *sides = chosen
    parts = [
        _expanded(side, name, outer if both else (*outer, (condition, holds)))
        for side, holds in zip(sides, (True, False), strict=True)
    ]
    return [condition, *parts]


def _vectors(loop: tirx.For, buffers: list[Any]) -> tirx.Stmt:
    """Expand the functions in a vectorized loop, which becomes one loop per stored value."""
    realize, lane = loop.body, loop.loop_var
    if not isinstance(realize, s_tir.SBlockRealize):
        return loop
    block, needed = realize.block, realize.predicate
    if any(var.same_as(lane) for var in tirx.analysis.undefined_vars(needed)):
        return loop
    if not isinstance(block.body, tirx.BufferStore) or block.init is not None:
        return loop
    places = zip((var.var for var in block.iter_vars), realize.iter_values, strict=True)
    made = stores(replaced(block.body, [*places]), int(loop.extent), lane, buffers)
    if len(made) == 1:
        return loop
    loops = []
    for each in made:
        own = tirx.Var(lane.name, lane.ty)
        body = replaced(each, [(lane, own)])
        loops.append(tirx.For(own, loop.min, loop.extent, loop.kind, body))
    return tirx.IfThenElse(needed, tirx.SeqStmt(loops), None)


def stores(store: tirx.BufferStore, lanes: int, lane: Any, buffers: list[Any]) -> list[tirx.Stmt]:
    """Return the stores of the values that a store needs, and the store itself."""
    name = _Names(lanes, lane)
    value = _expanded(store.value, name)
    buffers.extend(name.buffers)
    return [*name.stores, tirx.BufferStore(store.buffer, value, store.indices)]


def _statement(stmt: tirx.Stmt, buffers: list[Any]) -> tirx.Stmt:
    """Expand the functions in a statement; add the buffers that it then needs."""
    if isinstance(stmt, tirx.SeqStmt):
        return tirx.SeqStmt([_statement(part, buffers) for part in stmt.seq])
    if isinstance(stmt, tirx.IfThenElse):
        cases = [
            None if x is None else _statement(x, buffers) for x in (stmt.then_case, stmt.else_case)
        ]
        return tirx.IfThenElse(stmt.condition, *cases)
    if isinstance(stmt, tirx.BufferStore):
        made = stores(stmt, 1, 0, buffers)
        return stmt if len(made) == 1 else tirx.SeqStmt(made)
    if isinstance(stmt, tirx.For):
        if stmt.kind == tirx.ForKind.VECTORIZED:
            return _vectors(stmt, buffers)
        return loop_with(stmt, _statement(stmt.body, buffers))
    if isinstance(stmt, s_tir.SBlockRealize):
        return s_tir.SBlockRealize(stmt.iter_values, stmt.predicate, _block(stmt.block))
    return stmt


def _block(block: s_tir.SBlock) -> s_tir.SBlock:
    """Expand the functions in a block, which allocates the buffers that it then needs."""
    buffers: list[Any] = []
    body = _statement(block.body, buffers)
    return block_with(block, body, buffers)


def by_polynomials(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Replace calls of the elementary functions in a scheduled TIR function."""
    return func.with_body(_statement(func.body, []))
