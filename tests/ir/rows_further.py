"""Random calls of the rows in `tvmlab.ir.operators.further`."""

from __future__ import annotations

from tests.ir.rows import FLOATS, NUMBERS, Given, Pool, example, shape_of


@example("sort")
def _sort(pool: Pool) -> Given:
    data = pool.tensor(NUMBERS, least=1)
    return [data], {"axis": pool.axis(len(shape_of(data))), "is_ascend": pool.flag()}


@example("cumprod")
def _cumprod(pool: Pool) -> Given:
    data = pool.tensor(NUMBERS, least=1)
    axis = pool.one_of(None, pool.axis(len(shape_of(data))))
    return [data], {"axis": axis, "dtype": pool.one_of("", "float32"), "exclusive": pool.flag()}


@example("atan2")
def _atan2(pool: Pool) -> Given:
    left = pool.tensor(FLOATS)
    return [left, pool.tensor((str(left.ty.dtype),), pool.broadcastable(shape_of(left)))], {}


@example("slice_like")
def _slice_like(pool: Pool) -> Given:
    data = pool.tensor(NUMBERS, least=1)
    axes = pool.axes(len(shape_of(data)))
    return [data, pool.tensor(NUMBERS, [max(1, size - 1) for size in shape_of(data)])], {
        "axes": axes
    }


@example("cast_like")
def _cast_like(pool: Pool) -> Given:
    return [pool.tensor(NUMBERS), pool.tensor(NUMBERS)], {}


@example("ndarray_size")
def _ndarray_size(pool: Pool) -> Given:
    return [pool.tensor(NUMBERS)], {"dtype": pool.one_of("", "int64")}


@example("nn.mirror_pad")
def _mirror_pad(pool: Pool) -> Given:
    data = pool.tensor(NUMBERS, least=1)
    widths = [[pool.integer(0, size - 1), pool.integer(0, size - 1)] for size in shape_of(data)]
    return [data], {"mode": pool.one_of("SYMMETRIC", "REFLECT"), "pad_width": widths}


@example("fast_exp", "fast_erf", "fast_tanh")
def _fast(pool: Pool) -> Given:
    return [pool.tensor(FLOATS)], {}


@example("nn.fast_softmax")
def _fast_softmax(pool: Pool) -> Given:
    data = pool.tensor(FLOATS, least=1)
    return [data], {"axis": pool.axis(len(shape_of(data)))}
