"""Softmax and normalizations: the statistics of a row are computed while it is in the cache.

A row is what one statistic covers: the last axes for softmax, layer and RMS normalization, a group
of channels in NCHW. All steps for a row (maximum or mean, spread, result) follow each other.

In NHWC, instance and group normalization have one statistic for a whole image. The sum and the
spread of each line are computed while it is in the cache, a vector of channels at a time, and then
joined (Chan et al., "Updating formulae and a pairwise algorithm for computing sample variances",
1979), so that an image is read twice and not three times.

The variance is never the mean of squares less the square of the mean, which loses digits if the
mean is large. TVM's own loops compute it in this way for instance and group normalization.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, s_tir, te, tirx
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule

from . import loops
from .compute import round_up, sizes
from .machine import Machine

__all__ = ["ROWS", "Norms", "Rows", "vectorize"]

#: The annotation of this module's blocks. One block of each loop nest says how many of its loops
#: the others share, and how many channels the last of these takes at once. The blocks before and
#: after it have the other marks.
ROWS = "tvmlab.rows"
_BEFORE: dict[str, list[int]] = {ROWS: []}
_AFTER, _ALONE = {ROWS: [-1]}, {ROWS: [0, 1]}
# Of relax/transform/fuse_ops.cc (OpPatternKind): element-wise operators after it are fused.
_OUT_ELEMENTWISE = 4

_Term = Callable[[Sequence[Any], Sequence[Any]], Any]


def _number(value: float) -> Any:
    return tirx.const(value, "float32")


def _tree(join: Callable[[Any, Any], Any], values: Sequence[Any]) -> Any:
    """Join values pairwise, which takes fewer steps than one after the other."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return join(_tree(join, values[:half]), _tree(join, values[half:]))


class Norms:
    """Legalizations of softmax and normalizations of float32; None leaves a call to upstream."""

    def __init__(self, machine: Machine) -> None:
        self.lanes = machine.lanes("float32")

    def named(self) -> dict[str, Callable[..., relax.Expr | None]]:
        """Return the legalizations by operator name."""
        return {
            "relax.nn.softmax": self._softmax,
            "relax.nn.layer_norm": self._layer_norm,
            "relax.nn.rms_norm": self._layer_norm,
            "relax.nn.instance_norm": self._channel_norm,
            "relax.nn.group_norm": self._channel_norm,
        }

    def _softmax(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        """Legalize ``nn.softmax`` over the last axis."""
        shape = _known(call, 0)
        if not shape or int(call.attrs.axis) % len(shape) != len(shape) - 1:
            return None

        def softmax(data: te.Tensor) -> te.Tensor:
            power, share = self.powers(data, shape)
            return te.compute(
                shape,
                lambda *i: power(*i) * share(*i[:-1]),
                name="softmax",
                attrs={ROWS: [len(shape) - 1, 1]},
            )

        return _call(builder, softmax, call, "softmax")

    def powers(
        self, data: te.Tensor, shape: Sequence[Any], guarded: bool = False
    ) -> tuple[te.Tensor, te.Tensor]:
        """Return the two factors of a softmax over the last axis.

        The powers are padded with zeros to whole vectors; a row's share is the reciprocal of
        their sum. If they are guarded, both are zero in a row of negative infinities.
        """
        *rows, size = shape
        open_ = not isinstance(size, int)
        rest = tirx.floormod(size, self.lanes) if open_ else size % self.lanes
        whole, wide = size - rest, round_up(size, self.lanes)
        # Results below this are subnormal, and a product with one takes about a hundred cycles.
        # They are zero instead. Masks that subtract 100 make many of them.
        tiny = float(np.finfo("float32").tiny)
        least: Any = _number(math.log(tiny) if open_ else math.log(size * tiny))
        least = least + tirx.log(tirx.Cast("float32", size)) if open_ else least
        # The last numbers are padded to a vector.
        tail = te.compute(
            [*rows, self.lanes],
            lambda *i: tirx.if_then_else(
                i[-1] < rest, data(*i[:-1], whole + i[-1]), _number(-math.inf)
            ),
            name="tail",
            attrs=_BEFORE,
        )

        if open_:
            vectors = tirx.floordiv(size, self.lanes)
            given = te.compute(
                [*rows, wide],
                lambda *i: tirx.if_then_else(
                    i[-1] // self.lanes < vectors, data(*i), tail(*i[:-1], i[-1] % self.lanes)
                ),
                name="given",
                attrs=_BEFORE,
            )

        def x(row: Sequence[Any], k: Any) -> Any:
            if open_:
                return given(*row, k)
            if not rest:
                return data(*row, k)
            last = tail(*row, k % self.lanes)
            if not whole:
                return last
            # A condition that holds for a whole vector; TVM takes a vector apart for any other.
            vector = k // self.lanes < whole // self.lanes
            return tirx.if_then_else(vector, data(*row, k), last)

        largest = self._reduced(
            lambda row, k: x(row, *k), rows, [wide], "largest", te.max, tirx.max
        )

        def exp(distance: Any) -> Any:
            return tirx.Select(distance < least, _number(0), te.exp(distance))

        def base(row: Sequence[Any]) -> Any:
            lowest = _number(float(np.finfo("float32").min))
            return tirx.max(largest(*row), lowest) if guarded else largest(*row)

        def part(total: Any) -> Any:
            one = _number(1) / total
            # The total is zero if all numbers are masked, or if a row of open length is empty.
            can_be_zero = guarded or open_
            return tirx.Select(total == _number(0), _number(0), one) if can_be_zero else one

        power = te.compute(
            [*rows, wide],
            lambda *i: exp(x(i[:-1], i[-1]) - base(i[:-1])),
            name="power",
            attrs=_BEFORE,
        )
        total = self._reduced(lambda row, k: power(*row, *k), rows, [wide], "total")
        share = te.compute(rows, lambda *row: part(total(*row)), name="share", attrs=_BEFORE)
        return power, share

    def _layer_norm(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        """Legalize ``nn.layer_norm`` and ``nn.rms_norm`` over the last axes."""
        axes, name = call.attrs.axes, call.op.name.removeprefix("relax.nn.")
        shape = _known(call, len(axes))
        if shape is None:
            return None
        rank = len(shape) - len(axes)
        if [int(axis) % len(shape) for axis in axes] != [*range(rank, len(shape))]:
            return None
        return self._by_rows(builder, call, shape, rank, 1, lambda i: i[rank:], name)

    def _channel_norm(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        """Legalize ``nn.instance_norm`` and ``nn.group_norm`` of images."""
        attrs, name = call.attrs, call.op.name.removeprefix("relax.nn.")
        shape = _known(call, call.args[0].ty.ndim - 1)
        if shape is None:
            return None
        channel = int(attrs.channel_axis) % len(shape)
        axes = {int(axis) % len(shape) for axis in attrs.axes}
        if shape[0] == 1:
            axes -= {0}
        if axes != {*range(1, len(shape))} - {channel}:
            return None
        each = shape[channel] // int(attrs.num_groups) if name == "group_norm" else 1
        if channel == 1 and axes:
            return self._by_rows(builder, call, shape, 2, each, lambda i: [i[1]], name)
        if channel == len(shape) - 1 and len(axes) > 1:
            return self._by_lines(builder, call, shape, each, name)
        return None

    def _by_rows(
        self,
        builder: relax.BlockBuilder,
        call: relax.Call,
        shape: Sequence[Any],
        rank: int,
        each: int,
        weight: Callable[[Sequence[Any]], Sequence[Any]],
        name: str,
    ) -> relax.Expr | None:
        """Normalize over all axes from `rank` on, and over `each` places of the axis before."""
        rows = [*shape[: rank - 1], shape[rank - 1] // each if each > 1 else shape[rank - 1]]
        inner = [*([each] if each > 1 else []), *shape[rank:]]
        ratio, epsilon = _number(1 / math.prod(inner)), _number(float(call.attrs.epsilon))

        def norm(x: te.Tensor, scale: te.Tensor, *offset: te.Tensor) -> te.Tensor:
            def read(row: Sequence[Any], k: Sequence[Any]) -> Any:
                return x(*row[:-1], row[-1] * each + k[0], *k[1:]) if each > 1 else x(*row, *k)

            def apart(row: Sequence[Any], value: Any) -> Any:
                return value - total(*row) * ratio if total is not None else value

            def square(row: Sequence[Any], k: Sequence[Any]) -> Any:
                return apart(row, read(row, k)) * apart(row, read(row, k))

            total = None if name == "rms_norm" else self._reduced(read, rows, inner, "total")
            spread = self._reduced(square, rows, inner, "spread")
            factor = te.compute(
                rows,
                lambda *row: tirx.rsqrt(spread(*row) * ratio + epsilon),
                name="factor",
                attrs=_BEFORE,
            )

            def value(*i: Any) -> Any:
                row = [*i[: rank - 1], i[rank - 1] // each if each > 1 else i[rank - 1]]
                made = apart(row, x(*i)) * factor(*row) * scale(*weight(i))
                return made + offset[0](*weight(i)) if offset else made

            return te.compute(shape, value, name="norm", attrs={ROWS: [rank, each]})

        return _call(builder, norm, call, name)

    def _reduced(
        self,
        term: _Term,
        rows: Sequence[Any],
        axes: Sequence[Any],
        name: str,
        reduce: Any = te.sum,
        join: Callable[[Any, Any], Any] = operator.add,
    ) -> te.Tensor:
        """Reduce contiguous rows: to a few vectors first, then to a number."""
        *outer, last = axes
        open_ = not isinstance(last, int)  # a number of whole vectors
        whole, rest = (last // self.lanes, 0) if open_ else divmod(last, self.lanes)
        rank, parts = len(rows), list[tuple[te.Tensor, int]]()

        def part(first: Any, steps: Any, lanes: int, name: str) -> te.Tensor:
            k = [te.reduce_axis((0, size), f"k{i}") for i, size in enumerate([*outer, steps])]

            def value(*i: Any) -> Any:
                place = [*k[:-1], first + k[-1] * lanes + i[rank]]
                return reduce(term(i[:rank], place), axis=k)

            return te.compute([*rows, lanes], value, name=f"{name}_{lanes}", attrs=_BEFORE)

        if open_ or whole:
            vectors = loops.VECTORS if open_ else loops.divisor(whole, loops.VECTORS)
            many = part(0, whole // vectors, vectors * self.lanes, name)
            more = []
            if open_:
                done = whole // vectors * vectors
                more = [part(done * self.lanes, whole - done, self.lanes, name)]
            one = te.compute(
                [*rows, self.lanes],
                lambda *i: _tree(
                    join,
                    [
                        *(many(*i[:-1], v * self.lanes + i[-1]) for v in range(vectors)),
                        *(each(*i) for each in more),
                    ],
                ),
                name=f"{name}_vector",
                attrs=_BEFORE,
            )
            parts.append((one, self.lanes))
        if rest:
            parts.append((part(last - rest, rest, 1, name), 1))
        return te.compute(
            rows,
            lambda *row: _tree(
                join, [found(*row, lane) for found, lanes in parts for lane in range(lanes)]
            ),
            name=name,
            attrs=_BEFORE,
        )

    def _by_lines(
        self,
        builder: relax.BlockBuilder,
        call: relax.Call,
        shape: Sequence[Any],
        each: int,
        name: str,
    ) -> relax.Expr:
        """Normalize images in NHWC, with groups of `each` channels."""
        batch, lines, *inner, channels = shape
        few = math.prod(inner)
        one, all_ = _number(1 / few), _number(1 / (few * lines * each))
        epsilon = _number(float(call.attrs.epsilon))

        def in_lines(term: _Term, name: str, attrs: dict[str, Any]) -> te.Tensor:
            """Sum each line by channel."""
            k = [te.reduce_axis((0, size), f"k{i}") for i, size in enumerate(inner)]
            return te.compute(
                [batch, lines, channels],
                lambda b, y, c: te.sum(term((b, y, c), (b, y, *k, c)), axis=k),
                name=name,
                attrs=attrs,
            )

        def joined(term: Callable[..., Any], name: str) -> te.Tensor:
            """Sum over the lines, and over the channels of a group."""
            y, k = te.reduce_axis((0, lines), "y"), te.reduce_axis((0, each), "k")
            by_channel = te.compute(
                [batch, channels],
                lambda b, c: te.sum(term(b, y, c), axis=y),
                name=f"{name}_channels",
                attrs=_ALONE,
            )
            if each == 1:
                return by_channel
            groups = te.compute(
                [batch, channels // each],
                lambda b, g: te.sum(by_channel(b, g * each + k), axis=k),
                name=f"{name}_groups",
                attrs=_ALONE,
            )
            return te.compute(
                [batch, channels], lambda b, c: groups(b, c // each), name=name, attrs=_ALONE
            )

        def norm(x: te.Tensor, scale: te.Tensor, offset: te.Tensor) -> te.Tensor:
            def square(value: Any) -> Any:
                return value * value

            total = in_lines(lambda row, i: x(*i), "total", {ROWS: [2, 1]})
            spread = in_lines(lambda row, i: square(x(*i) - total(*row) * one), "spread", _AFTER)
            mean = joined(lambda *row: total(*row) * all_, "mean")
            sums = joined(
                lambda b, y, c: (
                    spread(b, y, c) + square(total(b, y, c) * one - mean(b, c)) * _number(few)
                ),
                "sums",
            )
            factor = te.compute(
                [batch, channels],
                lambda b, c: scale(c) * tirx.rsqrt(sums(b, c) * all_ + epsilon),
                name="factor",
                attrs=_ALONE,
            )
            return te.compute(
                shape,
                lambda b, *i: (x(b, *i) - mean(b, i[-1])) * factor(b, i[-1]) + offset(i[-1]),
                name="norm",
                attrs=_ALONE,
            )

        return _call(builder, norm, call, name)


def _known(call: relax.Call, last: int) -> list[Any] | None:
    """Return the shape of float32 data if the sizes of the last axes are known."""
    type_ = call.args[0].ty
    if not isinstance(type_.shape, relax.ShapeExpr) or str(type_.dtype) != "float32":
        return None
    shape = sizes(type_.shape)
    known = all(isinstance(size, int) for size in shape[len(shape) - last :])
    return shape if known and last < len(shape) > 1 and 0 not in shape else None


def _call(
    builder: relax.BlockBuilder,
    compute: Callable[..., te.Tensor],
    call: relax.Call,
    name: str,
) -> relax.Call:
    attrs = {"op_pattern": _OUT_ELEMENTWISE}
    return builder.call_te(compute, *call.args, primfunc_name_hint=name, primfunc_attrs=attrs)


class Rows(CPUScheduleRule):
    """Schedule the loop nests of `Norms`: the blocks of a row follow each other."""

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule a function, or return None if `Norms` did not make it."""
        sch = s_tir.Schedule(func)
        blocks = loops.blocks(sch)
        marks = [sch.get(block).annotations.get(ROWS) for block in blocks]
        own = [i for i, mark in enumerate(marks) if mark is not None]
        if not own:
            return None
        machine = Machine.of(target)
        for i in own:
            sch.unannotate(blocks[i], ROWS)
        last, members = own[-1], list[Any]()
        final, beyond = loops.epilogue(sch, blocks[last:])
        after = [blocks[i] for i in own if [*marks[i]] == _AFTER[ROWS]]
        for i in own:
            if len(marks[i]) == len(_ALONE[ROWS]):
                block, (rank, each) = final if i == last else blocks[i], map(int, marks[i])
                _nest(sch, members, block, after if rank else [], rank, each, machine)
                members = []
            elif blocks[i] not in after:
                members.append(blocks[i])
        if beyond is not None:
            loops.elementwise(sch, beyond, machine)
        return sch


def _nest(
    sch: s_tir.Schedule,
    before: Sequence[Any],
    block: Any,
    after: Sequence[Any],
    rank: int,
    each: int,
    machine: Machine,
) -> None:
    """Compute a block, and those before and after it, under one loop over the rows."""
    work = loops.work(sch, block)
    if not rank and not loops.reduction(sch, block):
        loops.elementwise(sch, block, machine)
        return
    outer = sch.get_loops(block)[: rank or len(loops.spatial(sch, block)) - 1]
    if each > 1:
        outer[-1], _ = sch.split(outer[-1], [None, each])
    row = sch.fuse(*outer)
    loops.parallel(sch, row, work)
    for one in reversed(before):
        sch.compute_at(one, row, preserve_unit_loops=True)
    for one in after:
        sch.reverse_compute_at(one, row, preserve_unit_loops=True)
    for one in (*before, block, *after):
        vectorize(sch, one, machine)


def vectorize(sch: s_tir.Schedule, block: Any, machine: Machine) -> None:
    """Vectorize the last loop of a block, and keep the vectors of a sum in registers."""
    kinds = [var.iter_type == tirx.IterVar.CommReduce for var in sch.get(block).iter_vars]
    lanes = machine.lanes("float32")
    if not any(kinds):
        loops.vectorize_ragged(sch, block, lanes)
        return
    _, *every = sch.get_loops(block)
    reduced, last = every[-sum(kinds) :], every[-sum(kinds) - 1]
    if loops.extent(sch, last) % lanes == 0:
        loops.vector_sums(sch, last, reduced, lanes)
    sch.decompose_reduction(block, reduced[0])
