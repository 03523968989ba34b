"""Attention as one loop nest: scores, softmax and sums of the values for a few queries at a time.

Separate functions would write the scores of all heads to memory, where a long sequence has more of
them than a cache holds. Here, a thread computes the scores of a few queries with all keys, their
softmax, and the sum of the values, before it takes the next queries. The results are divided by
the sum of the powers at the end (as in Dao et al., "FlashAttention", 2022), because they are fewer.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, s_tir, sym, te, tirx
from tvm.relax.dpl import is_const, is_op, wildcard
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule

from ..ir.graph import children, is_call
from . import loops
from .compute import TILE, broadcast_index, raveled, round_up, sizes, unraveled
from .machine import Machine
from .norms import ROWS, Norms, vectorize
from .rebuild import block_with, replaced
from .tile_size import OPEN, Tile

__all__ = ["ATTENTION", "Attention", "JoinAttention"]

#: The name of the block that sums the values, and of those before it.
ATTENTION = "attention"
_QUERIES, _KEYS, _VALUES, _SCORES, _MASKED = "queries", "keys", "values", "scores", "masked"
_RESULT = "result"
# Of relax/transform/fuse_ops.cc (OpPatternKind): element-wise operators after it are fused.
_OUT_ELEMENTWISE = 4
# Multiply-adds of the scores below which starting the threads costs more than it saves.
_PARALLEL = 200_000
# Numbers of keys, with padding, below which the same holds for their copy.
_PARALLEL_COPY = 65_536
# Loops around the numbers of a row: over tiles, and over the rows of a tile.
_ROW = 2
# Keys that LLVM can sum in one iteration.
_UNROLLED = 4
# How exporters find rows without any key: by the results, or by the scores.
_NOT_A_NUMBER, _ALL_MASKED = "not a number", "all masked"
# What can follow the scores.
_STEPS: dict[str, Callable[..., Any]] = {
    "relax.add": lambda a, b: a + b,
    "relax.subtract": lambda a, b: a - b,
    "relax.multiply": lambda a, b: a * b,
    "relax.divide": lambda a, b: a / b,
    "relax.maximum": tirx.max,
    "relax.minimum": tirx.min,
    "relax.tanh": tirx.tanh,
    "relax.where": tirx.Select,
}


@dataclass(frozen=True)
class _Match:
    """The operators of an attention."""

    scores: relax.Call
    steps: list[tuple[relax.Call, int]]  # what follows the scores, and which operand they are
    guard: str  # how rows without any key are found, which give zero
    result: relax.Call

    def operands(self) -> list[relax.Expr]:
        """List queries, keys and values, and what the steps read besides the scores."""
        others = [arg for step, own in self.steps for i, arg in enumerate(step.args) if i != own]
        return [*self.scores.args, self.result.args[1], *others]

    def calls(self) -> list[relax.Call]:
        """List the calls in order."""
        return [self.scores, *(step for step, _ in self.steps), self.result]


@tvm.transform.module_pass(opt_level=0)
class JoinAttention:
    """The pass: ``matmul(softmax(f(matmul(q, k))), v)`` to one TIR function."""

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        target = tvm.target.Target.current(allow_none=False)
        machine, scheduled = Machine.of(target), set[str]()

        @relax.expr_functor.mutator
        class Changed(relax.PyExprMutator):  # type: ignore[misc]
            def visit_call_(self, call: relax.Call) -> relax.Expr:
                found = graph.match(call)
                call = self.visit_expr_post_order(call)
                if found is None:
                    return call
                operands = [self.visit_expr(one) for one in found.operands()]
                try:
                    made = _joined(self.builder_, found, operands, machine)
                    if (name := made.args[0].name_hint) not in scheduled:
                        # Without a schedule, one function would be slower than its parts.
                        Attention().apply(self.builder_.get()[made.args[0]], target, False)
                        scheduled.add(name)
                    return made
                except Exception as error:  # TE and schedules raise errors of several classes
                    warnings.warn(f"an attention stays in parts: {error!r}", stacklevel=2)
                    return call

        changed = Changed(mod)
        for var, func in mod.functions_items():
            if not isinstance(func, relax.Function):
                continue
            if not any(func.attrs.get(mark) for mark in ("Primitive", "Codegen")):
                graph = _Graph.of(func)
                changed.builder_.update_func(var, changed.visit_expr(func))
        if not scheduled:
            return mod
        return relax.transform.DeadCodeElimination()(changed.builder_.get())


@dataclass(frozen=True)
class _Graph:
    """The values of variables, and how often they are used."""

    values: dict[Any, relax.Expr]
    uses: Counter[Any]

    @classmethod
    def of(cls, func: relax.Function) -> _Graph:
        found = cls({}, Counter())
        for block in func.body.blocks:
            for binding in block.bindings:
                if isinstance(binding, relax.VarBinding):
                    found.values[binding.var] = binding.value
                found.uses.update(_variables(binding.value))
        found.uses.update(_variables(func.body.body))
        return found

    def value(self, var: relax.Expr, uses: int = 1) -> Any:
        """Return what a variable of float32 numbers is bound to, if nothing else uses it."""
        value = self.values.get(var)
        return value if value is not None and self.uses[var] == uses and _is_float(value) else None

    def behind_reshapes(self, var: relax.Expr, uses: int = 1) -> Any:
        """Return what a variable is bound to, before reshapes that keep the last two axes."""
        value = self.value(var, uses)
        while is_call(value, "relax.reshape"):
            before = value.args[0]
            if not _is_float(before) or not _same(_shape(before)[-2:], _shape(value)[-2:]):
                return None
            value = self.value(before)
        return value

    def match(self, call: relax.Call) -> _Match | None:
        """Find the attention that ends with a call."""
        if not is_call(call, "relax.matmul") or not all(map(_is_float, (call, *call.args))):
            return None
        softmax, guard = self.behind_reshapes(call.args[0]), ""
        if is_call(softmax, "relax.where"):
            softmax, guard = self._guarded(softmax)
        if not is_call(softmax, "relax.nn.softmax"):
            return None
        axis, rank = int(softmax.attrs.axis), softmax.ty.ndim
        scores = self._scores(softmax.args[0], 2 if guard == _ALL_MASKED else 1)
        if axis not in (-1, rank - 1) or scores is None:
            return None
        match = _Match(*scores, guard, call)
        q, k, v, *others = match.operands()
        whole = _shape(call)[:-2]
        # Keys and values that several batches share would be copied for each.
        each = [math.prod(_shape(one)[:-2]) for one in (k, v, match.scores)]
        alike = _same(_shape(call.args[0])[:-2], whole) and _same(each, [math.prod(whole)] * 3)
        known = isinstance(_shape(q)[-1], int) and isinstance(_shape(v)[-1], int)
        # Of a size such as n + 1, TVM proves too little for the schedule.
        plain = all(isinstance(size, int | tirx.Var) for size in _shape(match.scores)[-2:])
        constant = any(isinstance(one, tvm.ir.GenericConst) for one in (k, v))
        fits = alike and known and plain and not constant
        return match if fits and all(map(_is_known, others)) else None

    def _guarded(self, where: relax.Call) -> tuple[Any, str]:
        """Return the softmax whose undefined rows become zero, and how they are found."""
        zero, uses = self.values.get(where.args[1], where.args[1]), 1
        if is_call(zero, "relax.full", "relax.full_like"):
            uses += zero.args[0].same_as(where.args[2])
            zero = zero.args[1]
        softmax = where.args[2]
        if not isinstance(zero, tvm.ir.GenericConst) or zero.value.numpy().any():
            return None, ""
        if not _is_float(softmax) or not _same(_shape(where), _shape(softmax)):
            return None, ""
        if _not_a_number(where.args[0], self.values, softmax):
            return self.value(softmax, uses + 1), _NOT_A_NUMBER
        value = self.value(softmax, uses)
        if value is not None and _all_masked(where.args[0], self.values, value.args[0]):
            return value, _ALL_MASKED
        return None, ""

    def _scores(
        self, var: relax.Expr, uses: int
    ) -> tuple[relax.Call, list[tuple[relax.Call, int]]] | None:
        """Return the product that a softmax reads, and the element-wise operators after it."""
        value = self.behind_reshapes(var, uses)
        if is_call(value, "relax.matmul"):
            return (value, []) if all(map(_is_float, value.args)) else None
        if not is_call(value, *_STEPS):
            return None
        for place, arg in enumerate(value.args):
            if _is_float(arg) and _same(_shape(arg), _shape(value)):
                found = self._scores(arg, 1)
                if found is not None:
                    return found[0], [*found[1], (value, place)]
        return None


def _variables(expr: relax.Expr) -> list[relax.Var]:
    """List the variables that an expression reads, as often as it does."""
    if isinstance(expr, relax.Var):
        return [expr]
    if isinstance(expr, relax.If | relax.Function):
        return 2 * [*relax.analysis.free_vars(expr)]  # it can read them several times
    return [var for part in children(expr) for var in _variables(part)]


def _not_a_number(guard: relax.Expr, values: dict[Any, relax.Expr], softmax: relax.Expr) -> bool:
    """Return whether a condition says which results are NaN, as PyTorch writes to ONNX."""
    guard = values.get(guard, guard)
    return is_call(guard, "relax.isnan") and guard.args[0].same_as(softmax)


def _all_masked(guard: relax.Expr, values: dict[Any, relax.Expr], scores: relax.Expr) -> bool:
    """Return whether a condition says that all scores of a row are minus infinity.

    PyTorch decomposes its own attention to this condition.
    """
    x, number = wildcard(), is_const()
    some = is_op("relax.astype")(is_op("relax.bitwise_not")(is_op("relax.equal")(x, number)))
    largest = is_op("relax.max")(some)
    none = is_op("relax.bitwise_not")(is_op("relax.astype")(largest))
    found = none.extract_matched_expr(values.get(guard, guard), values)
    if found is None or not values.get(found[x], found[x]).same_as(values.get(scores, scores)):
        return False
    attrs, lowest = found[largest].attrs, found[number].value.numpy()
    axes = [int(axis) % scores.ty.ndim for axis in attrs.axis or ()]
    last = axes == [scores.ty.ndim - 1] and bool(attrs.keepdims)
    return last and bool(np.all(np.isneginf(lowest)))


def _shape(expr: relax.Expr) -> list[Any]:
    return sizes(expr.ty.shape)


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether two lists of sizes are provably equal."""
    prove = sym.Analyzer().can_prove_equal
    return len(one) == len(other) and all(map(prove, one, other))


def _is_known(expr: relax.Expr) -> bool:
    """Return whether every size of an operand is a positive integer, or symbolic."""
    kind = expr.ty
    if not isinstance(kind, relax.TensorType) or not isinstance(kind.shape, relax.ShapeExpr):
        return False
    return 0 not in [size for size in _shape(expr) if isinstance(size, int)]


def _is_float(expr: relax.Expr) -> bool:
    """Return whether an operand is float32, with at least two axes."""
    return _is_known(expr) and expr.ty.ndim > 1 and str(expr.ty.dtype) == "float32"


def _joined(
    builder: relax.BlockBuilder, match: _Match, operands: list[relax.Expr], machine: Machine
) -> relax.Call:
    """Compute an attention in one TIR function."""
    lanes, inner = machine.lanes("float32"), _shape(match.scores.args[0])[-1]
    *_, queries, keys = _shape(match.scores)
    numbers = _shape(match.result)[-1]
    # The keys are padded in any case. If their number is unknown, a tile has two vectors.
    height = queries if isinstance(queries, int) else OPEN
    width = keys if isinstance(keys, int) else 2 * lanes
    tile = Tile.choose(1, height, width, inner, 4 * inner, "float32", machine)
    rows, wide, deep = tile.columns, tile.channels, round_up(numbers, lanes)
    narrow = lanes * loops.divisor(deep // lanes, (machine.registers - 2) // (rows + 1))

    def attention(
        q: te.Tensor, k: te.Tensor, v: te.Tensor, others: list[Any], shapes: list[list[Any]]
    ) -> te.Tensor:
        # The same sizes, with the variables of this function.
        outer, *between, results = (sizes(shape[:-2]) for shape in shapes)
        queries, keys = sizes(shapes[0][-2:])
        many, high, far = math.prod(outer), round_up(queries, rows), round_up(keys, wide)
        # The powers beyond the last key are zero, so that the loop over the keys can be longer.
        # LLVM unrolls it, and if a part is left over, it keeps the sums in memory.
        steps = round_up(keys, _UNROLLED) if isinstance(keys, int) else keys

        def at(x: Any, whole: Sequence[Any], batch: Any, *last: Any) -> Any:
            if not isinstance(x, te.Tensor):
                return x
            index = [*(unraveled(batch, whole) if whole else []), *last]
            return x(*broadcast_index(index, sizes(x.shape)))

        def inside(place: Any, size: Any, padded: Any, value: Any) -> Any:
            zero = tirx.const(0, "float32")
            return (
                value if _same([size], [padded]) else tirx.if_then_else(place < size, value, zero)
            )

        given = te.compute(
            [many, high, inner],
            lambda b, r, i: inside(r, queries, high, at(q, outer, b, r, i)),
            name=_QUERIES,
        )
        packed = te.compute(
            [many, far // wide, inner, wide],
            lambda b, t, i, c: inside(t * wide + c, keys, far, at(k, outer, b, i, t * wide + c)),
            name=_KEYS,
        )
        held = te.compute(
            [many, steps, deep],
            lambda b, t, o: inside(
                o, numbers, deep, inside(t, keys, steps, at(v, results, b, t, o))
            ),
            name=_VALUES,
        )
        i = te.reduce_axis((0, inner), "i")
        scores = te.compute(
            [many, high, far],
            lambda b, r, c: te.sum(given(b, r, i) * packed(b, c // wide, i, c % wide), axis=i),
            name=_SCORES,
        )

        def masked(b: Any, r: Any, c: Any) -> Any:
            score, rest = scores(b, r, c), iter(others)
            row = r if _same([queries], [high]) else tirx.min(r, queries - 1)
            for (step, own), whole in zip(match.steps, between, strict=True):
                parts = [
                    score if place == own else at(next(rest), whole, b, row, c)
                    for place in range(len(step.args))
                ]
                score = _STEPS[step.op.name](*parts)
            return score

        # Of an open number of keys, TVM cannot prove that the padded scores hold those of a vector.
        last = scores
        if match.steps or not isinstance(keys, int):
            last = te.compute([many, high, keys], masked, name=_MASKED)
        power, share = Norms(machine).powers(last, [many, high, keys], bool(match.guard))
        if match.guard == _NOT_A_NUMBER:
            power, share = _without_nan(power, share)
        t = te.reduce_axis((0, steps), "t")
        sums = te.compute(
            [many, high, deep],
            lambda b, r, o: te.sum(power(b, r, t) * held(b, t, o), axis=t),
            name=ATTENTION,
            attrs={TILE: [rows, wide, narrow]},
        )

        def result(*place: Any) -> Any:
            *index, r, o = place
            b = raveled(index, results) if results else 0
            # TVM orders the blocks as they are named here, and the schedule needs the shares first.
            return share(b, r) * sums(b, r, o)

        return te.compute([*results, queries, numbers], result, name=_RESULT)

    # Numbers become part of the function.
    operands = [
        tirx.const(one.value.numpy().item(), str(one.ty.dtype))
        if isinstance(one, tvm.ir.GenericConst) and not one.ty.ndim
        else one
        for one in operands
    ]
    q, k, v, *others = operands
    shapes = [[*call.ty.shape] for call in match.calls()]
    attrs = {"op_pattern": _OUT_ELEMENTWISE}
    return builder.call_te(
        attention, q, k, v, others, shapes, primfunc_name_hint="attention", primfunc_attrs=attrs
    )


def _without_nan(power: te.Tensor, share: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """Return the factors of a softmax with zeros in each row that is not a number."""

    def clean(value: te.Tensor, name: str) -> te.Tensor:
        return te.compute(
            value.shape,
            lambda *i: tirx.Select(
                tirx.isnan(share(*i[: share.ndim])), tirx.const(0, "float32"), value(*i)
            ),
            name=name,
            attrs={ROWS: []},
        )

    return clean(power, "clean_power"), clean(share, "clean_share")


class Attention(CPUScheduleRule):
    """Schedule the loop nests of `JoinAttention`: a thread has a few queries at a time."""

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule a function, or return None if `JoinAttention` did not make it."""
        sch = s_tir.Schedule(func)
        blocks = loops.blocks(sch)
        if loops.find(sch, blocks, ATTENTION) is None:
            return None
        machine = Machine.of(target)
        last = next(i for i, block in enumerate(blocks) if sch.get(block).name_hint == _RESULT)
        final, beyond = loops.epilogue(sch, blocks[last:])
        own, softmax = dict[str, Any](), list[Any]()
        for block in blocks[:last]:
            found = sch.get(block)
            if found.name_hint in (_QUERIES, _KEYS, _VALUES, _SCORES, _MASKED, ATTENTION):
                own[str(found.name_hint)] = block
            elif ROWS in found.annotations:
                softmax.append(block)
            else:
                sch.compute_inline(block)
        ends = [
            sch.get(own[name]).writes[0].source.shape[-1]
            for name in (_SCORES, _MASKED if _MASKED in own else _SCORES)
        ]
        padded = not _same(ends[:1], ends[1:])
        rows, wide, narrow = map(int, sch.get(own[ATTENTION]).annotations[TILE])
        sch.unannotate(own[ATTENTION], TILE)
        lanes = machine.lanes("float32")
        loops.elementwise(sch, own[_VALUES], machine)
        _pack(sch, own[_KEYS], machine)
        names = [name for name in (_QUERIES, _SCORES, _MASKED) if name in own]
        mine = [*(own[name] for name in names), *softmax, own[ATTENTION]]
        together = []
        for block in (*mine, final):
            every = sch.get_loops(block)
            place = len(every) - 2 if block is final else 1
            outer, _ = sch.split(every[place], [None, rows])
            together.append(sch.fuse(*every[:place], outer))
        # Tile the sums before the loops are merged: the last tile writes only some of its rows, and
        # after the merge TVM can no longer prove that the other blocks compute all of theirs.
        steps = [
            (own[name], _tiled(sch, own[name], channels, lanes))
            for name, channels in ((_SCORES, wide), (ATTENTION, narrow))
        ]
        work = loops.work(sch, own[_SCORES])
        row = sch.merge(*together)
        loops.parallel(sch, row, work, _PARALLEL)
        one = [*([own[_MASKED]] if _MASKED in own else []), *softmax]
        sch.merge(*(sch.get_loops(block)[1] for block in one))
        for block, step in steps:
            sch.decompose_reduction(block, step)
        loops.vectorize_last(sch, own[_QUERIES], lanes)
        if _MASKED in own:
            loops.vectorize_ragged(sch, own[_MASKED], lanes)
        for block in softmax:
            if len(sch.get_loops(block)) > _ROW:  # else it computes one number per row
                vectorize(sch, block, machine)
        loops.vectorize_ragged(sch, final, lanes)
        if beyond is not None:
            loops.elementwise(sch, beyond, machine)
        return s_tir.Schedule(_without_padding(sch.mod["main"])) if padded else sch


def _without_padding(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Do not write the padded keys, whose scores `masked` does not read."""

    def unpadded(realize: s_tir.SBlockRealize) -> s_tir.SBlockRealize:
        block = realize.block
        value = block.body.value if block.name_hint == _KEYS else None
        if not isinstance(value, tvm.ir.Call) or value.op.name != "prim.if_then_else":
            return realize
        inside, key, _ = value.args
        pairs = zip((var.var for var in block.iter_vars), realize.iter_values, strict=True)
        store = tirx.BufferStore(block.body.buffer, key, block.body.indices)
        predicate = tirx.all(realize.predicate, replaced(inside, [*pairs]))
        return s_tir.SBlockRealize(realize.iter_values, predicate, block_with(block, store))

    changed = tvm_ffi.structural_map(func.body, (s_tir.SBlockRealize, unpadded))
    return func.with_body(changed)


def _pack(sch: s_tir.Schedule, block: Any, machine: Machine) -> None:
    """Copy the keys in the order in which they lie in memory."""
    batch, tiles, number, key = sch.get_loops(block)
    found = sch.get(block)
    last = found.reads[0].region[-1].min
    used: list[tirx.Var] = []
    tvm_ffi.structural_walk(last, (tirx.Var, used.append))
    if not any(var.same_as(found.iter_vars[2].var) for var in used):
        loops.elementwise(sch, block, machine)
        return
    sch.reorder(key, number)
    work = loops.work(sch, block)
    loops.parallel(sch, sch.fuse(batch, tiles), work, _PARALLEL_COPY)


def _tiled(sch: s_tir.Schedule, block: Any, channels: int, lanes: int) -> Any:
    """Sum the rows of a tile and a few vectors in registers; return the loop over the terms."""
    row, channel, k = sch.get_loops(block)[-3:]
    store = sch.cache_write(block, 0, "global")
    tiles, vector, lane = sch.split(channel, [None, channels // lanes, lanes])
    sch.reorder(tiles, k, row, vector, lane)
    sch.reverse_compute_at(store, tiles, preserve_unit_loops=True)
    loops.vectorize_last(sch, store, lanes)
    for loop in (row, vector):
        sch.unroll(loop)
    sch.vectorize(lane)
    return k
