"""The outline of a TIR function says its loops and what they compute, and nothing else."""

from __future__ import annotations

from tvm import s_tir, te

from tvmlab.schedule.outline import outline


def matmul(n: int) -> s_tir.Schedule:
    a, b = (te.placeholder((n, n), name=name) for name in "ab")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    d = te.compute((n, n), lambda i, j: c[i, j] + 1, name="d")
    return s_tir.Schedule(te.create_prim_func([a, b, d]))


def test_kinds_of_loops_and_what_is_shared() -> None:
    sch = matmul(8)
    c, d = sch.get_sblock("c"), sch.get_sblock("d")
    i, j = sch.get_loops(d)
    tile, lane = sch.split(j, [None, 4])
    sch.compute_at(c, tile)
    sch.parallel(i)
    sch.vectorize(lane)
    column, k = sch.get_loops(c)[-2:]
    sch.reorder(k, column)
    sch.unroll(k)
    sch.decompose_reduction(c, k)
    assert outline(sch.mod["main"]).splitlines() == [
        "parallel 8, for 2",
        "  for 4: c = 0",
        "  unroll 8, for 4: c += a * b",
        "  vector 4: d = c + 1",
    ]


def test_open_sizes_and_threads_are_named() -> None:
    n = te.var("n", dtype="int64")
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 2, name="b")
    sch = s_tir.Schedule(te.create_prim_func([a, b]))
    block, _ = sch.split(sch.get_loops(sch.get_sblock("b"))[0], [None, 64])
    sch.bind(block, "blockIdx.x")
    assert outline(sch.mod["main"]) == "thread (n + 63) // 64, for 64: b = a * 2"
