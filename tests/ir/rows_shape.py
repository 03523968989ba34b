"""Examples for the rows that move, pick, sort and approximate elements; see `tests.ir.rows`."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import strategies as st
from tvm import relax

from tests.ir.rows import ALL, FLOATS, NUMBERS, Given, Pool, example, shape_of

EQUATIONS = (
    *("ij,jk->ik", "ij,jk", "bij,bjk->bik", "i,j->ij", "ii->i", "ii", "ij,ij->", "i,ij,j"),
    *("ijk -> kij", "...ij,jk->...ik", "...i,...i"),
)


@example("reshape")
def _reshape(pool: Pool) -> Given:
    data = pool.tensor(ALL)
    shape = shape_of(data)
    flat = math.prod(shape)
    choices = [[flat], [-1], [1, flat], [flat, 1, -1], [-2], [-2, 1], [1, -1]]
    if shape:
        choices += [[0, -1], [0, -2], [-4, 1, -1, -2], [-1, shape[-1]]]
    if len(shape) > 1:
        choices += [[-3, -2], [0, -1, *shape[2:]], list(reversed(shape))]
    return [data], {"newshape": pool.one_of(*choices), "allowzero": False}


@example("reshape_like")
def _reshape_like(pool: Pool) -> Given:
    data = pool.tensor(ALL, least=1)
    shape = shape_of(data)
    if pool.flag():
        return [data, pool.tensor(ALL, [1, math.prod(shape)])], {}
    other = pool.tensor(ALL, [7, 1, shape[0], 7])
    return [data, other], {"lhs_begin": 0, "lhs_end": 1, "rhs_begin": 1, "rhs_end": -1}


@example("transpose")
def _transpose(pool: Pool) -> Given:
    data = pool.tensor(ALL)
    ndim = len(shape_of(data))
    order = list(pool.draw(st.permutations(range(ndim))))
    return [data], {"axes": pool.one_of(None, order, [axis - ndim for axis in order])}


@example("expand_dims")
def _expand_dims(pool: Pool) -> Given:
    data = pool.tensor(ALL, most=3)
    ndim = len(shape_of(data))
    return [data], {"axis": pool.integer(-ndim - 1, ndim), "num_newaxis": pool.integer(0, 2)}


@example("squeeze")
def _squeeze(pool: Pool) -> Given:
    data = pool.tensor(ALL)
    ones = [axis for axis, size in enumerate(shape_of(data)) if size == 1]
    backwards = [axis - len(shape_of(data)) for axis in ones]
    return [data], {"axis": pool.one_of(None, ones, backwards, ones[:1])}


@example("concatenate", "stack")
def _concatenate(pool: Pool) -> Given:
    data = pool.tensor(ALL, least=1, most=3)
    same = [pool.tensor((str(data.ty.dtype),), shape_of(data)) for _ in range(pool.integer(0, 2))]
    return [relax.Tuple([data, *same])], {"axis": pool.axis(len(shape_of(data)))}


@example("split")
def _split(pool: Pool) -> Given:
    data = pool.tensor(ALL, least=1)
    shape = shape_of(data)
    axis = pool.axis(len(shape))
    parts = [n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0]
    where = [place for place in range(1, shape[axis]) if pool.flag()]
    return [data], {"indices_or_sections": pool.one_of(*parts, where), "axis": axis}


@example("strided_slice")
def _strided_slice(pool: Pool) -> Given:
    data = pool.tensor(ALL, least=1)
    shape = shape_of(data)
    some = pool.integer(1, len(shape))
    over = pool.one_of(None, list(range(len(shape)))[-some:])
    sizes = shape[:some] if over is None else shape[-some:]
    begin = [pool.integer(0, size - 1) for size in sizes]
    if pool.integer(0, 3) == 0:
        sizes = [pool.one_of(-1, size - first) for size, first in zip(sizes, begin, strict=True)]
        given = {"begin": begin, "end": sizes, "strides": [1], "slice_mode": "size"}
    elif pool.flag():
        end = [
            pool.one_of(size, 10**6, -1) if f < size - 1 else size
            for f, size in _both(begin, sizes)
        ]
        given = {"begin": begin, "end": end, "strides": pool.one_of(None, [1], [2], [1] * some)}
    else:  # backwards
        given = {"begin": begin, "end": [-(10**6)] * some, "strides": [-1] * some}
    return [data], {**given, "axes": over}


def _both(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    return list(zip(a, b, strict=True))


@example("tile")
def _tile(pool: Pool) -> Given:
    return [pool.tensor(ALL, most=3)], {"reps": [pool.integer(1, 2) for _ in pool.sizes(1, 3)]}


@example("repeat")
def _repeat(pool: Pool) -> Given:
    data = pool.tensor(ALL, least=1)
    axis = pool.one_of(None, pool.axis(len(shape_of(data))))
    return [data], {"repeats": pool.integer(1, 3), "axis": axis}


@example("reverse")
def _reverse(pool: Pool) -> Given:
    data = pool.tensor(ALL, least=1)
    return [data], {"axis": pool.axis(len(shape_of(data)))}


@example("broadcast_to")
def _broadcast_to(pool: Pool) -> Given:
    data = pool.tensor(ALL, most=3)
    shape = [pool.integer(2, 3) if size == 1 else size for size in shape_of(data)]
    return [data], {"shape": [*pool.sizes(0, 1), *shape]}


@example("layout_transform")
def _layout_transform(pool: Pool) -> Given:
    source, target = pool.one_of(*pairwise(("NCHW", "NHWC", "NHWC2c", "NCHW4c", "CHWN", "NCHW")))
    sizes = {"N": 2, "C": 8, "H": 3, "W": 1}
    inner = int(source[4]) if len(source) > 4 else 1
    shape = [sizes[axis] // (inner if axis == "C" else 1) for axis in source[:4]]
    data = pool.tensor(ALL, [*shape, inner] if inner > 1 else shape)
    return [data], {"src_layout": source, "dst_layout": target}


@example("take")
def _take(pool: Pool) -> Given:
    data = pool.tensor(ALL, least=1, most=3)
    axis = pool.one_of(None, pool.axis(len(shape_of(data))))
    indices = pool.tensor(("int32", "int64"), most=2)
    return [data, indices], {"axis": axis, "mode": pool.one_of("clip", "wrap", "fast")}


@example("gather")
def _gather(pool: Pool) -> Given:
    data = pool.tensor(ALL, least=1)
    shape = shape_of(data)
    return [data, pool.tensor(("int32", "int64"), shape)], {"axis": pool.axis(len(shape))}


@example("gather_nd")
def _gather_nd(pool: Pool) -> Given:
    data = pool.tensor(ALL, least=2)
    batch = pool.integer(0, 1)
    picked = pool.integer(1, len(shape_of(data)) - batch)
    lead = shape_of(data)[:batch]
    indices = pool.tensor(("int32", "int64"), [picked, *lead, *pool.sizes(1, 1)])
    return [data, indices], {"batch_dims": batch, "index_rank": pool.one_of(None, picked)}


@example("scatter_elements")
def _scatter_elements(pool: Pool) -> Given:
    data = pool.tensor(FLOATS, least=1)
    shape = shape_of(data)
    indices = pool.tensor(("int64",), shape)
    updates = pool.tensor((str(data.ty.dtype),), shape)
    how = pool.one_of("update", "add", "mul", "mean", "min", "max")
    return [data, indices, updates], {"axis": pool.axis(len(shape)), "reduction": how}


@example("argsort")
def _argsort(pool: Pool) -> Given:
    data = pool.tensor(NUMBERS, least=1)
    kind = pool.one_of("", "int32", "int64", "float32")
    return [data], {"axis": pool.axis(len(shape_of(data))), "is_ascend": pool.flag(), "dtype": kind}


@example("topk")
def _topk(pool: Pool) -> Given:
    data = pool.tensor(NUMBERS, least=1)
    axis = pool.axis(len(shape_of(data)))
    return [data], {
        "k": pool.integer(1, shape_of(data)[axis]),
        "axis": axis,
        "ret_type": pool.one_of("both", "values", "indices"),
        "is_ascend": pool.flag(),
        "dtype": pool.one_of("", "int32", "int64"),
    }


@example("einsum")
def _einsum(pool: Pool) -> Given:
    equation = pool.one_of(*EQUATIONS)
    sizes = {letter: pool.integer(1, 3) for letter in "ijkb"}
    more = pool.sizes(0, 2)
    shapes = []
    for part in equation.replace(" ", "").split("->")[0].split(","):
        lead = more if part.startswith("...") else []
        shapes.append([*lead, *(sizes[letter] for letter in part.strip("."))])
    first = pool.tensor(NUMBERS, shapes[0])
    rest = [pool.tensor((str(first.ty.dtype),), shape) for shape in shapes[1:]]
    return [relax.Tuple([first, *rest])], {"equation": equation}


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
