"""A small function, schedules of it, and results for a record file."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import s_tir
from tvm.script import tirx as T

from tvmlab.records.entries import Result, Verdict, as_data, target_data
from tvmlab.records.file import Records

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
OTHER = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2})
SIZE = 32


@T.prim_func(s_tir=True)
def product(a: T.handle, b: T.handle, c: T.handle) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    A = T.match_buffer(a, (SIZE, SIZE))
    B = T.match_buffer(b, (SIZE, SIZE))
    C = T.match_buffer(c, (SIZE, SIZE))
    D = T.sblock_alloc_buffer((SIZE, SIZE))
    for i, j, k in T.grid(SIZE, SIZE, SIZE):
        with T.sblock("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                D[vi, vj] = T.float32(0)
            D[vi, vj] = D[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(SIZE, SIZE):
        with T.sblock("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.max(D[vi, vj], T.float32(0))


MODULE = tvm.IRModule({"main": product})


def simple() -> s_tir.Schedule:
    """Do what a rule would."""
    sch = s_tir.Schedule(MODULE)
    i, j, _ = sch.get_loops(sch.get_sblock("product"))
    outer, inner = sch.split(i, [None, 8])
    sch.reorder(outer, j, inner)
    sch.parallel(outer)
    sch.vectorize(sch.get_loops(sch.get_sblock("relu"))[-1])
    return sch


def sampled(seed: int) -> s_tir.Schedule:
    """Do what a search would: with samples and most of the instructions that it writes."""
    sch = s_tir.Schedule(MODULE, seed=seed)
    block, relu = sch.get_sblock("product"), sch.get_sblock("relu")
    sch.annotate(block, "meta_schedule.tiling_structure", "SSRSRS")
    i, j, k = sch.get_loops(block)
    i0, i1, i2 = sch.split(i, sch.sample_perfect_tile(i, 3, 16))
    j0, j1, j2 = sch.split(j, sch.sample_perfect_tile(j, 3, 16, decision=[2, 2, 8]))
    k0, k1 = sch.split(k, sch.sample_perfect_tile(k, 2, 16))
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    sch.reverse_compute_at(relu, j1, preserve_unit_loops=True)
    cached = sch.cache_read(block, 0, "global")
    sch.compute_at(cached, k0, preserve_unit_loops=True)
    steps = sch.sample_categorical([0, 16, 64], [0.25, 0.25, 0.5])
    sch.annotate(block, "meta_schedule.unroll_explicit", steps)
    sch.enter_postproc()
    sch.unannotate(block, "meta_schedule.unroll_explicit")
    fused = sch.fuse(i0, j0)
    sch.parallel(fused)
    sch.annotate(fused, "pragma_auto_unroll_max_step", 16)
    sch.vectorize(j2)
    sch.decompose_reduction(block, k0)
    return sch


def split(seed: int) -> s_tir.Schedule:
    """Split the sum, so that its parts can be computed apart."""
    sch = s_tir.Schedule(MODULE, seed=seed)
    *_, k = sch.get_loops(sch.get_sblock("product"))
    _, inner = sch.split(k, sch.sample_perfect_tile(k, 2, 16))
    part = sch.rfactor(inner, 2)
    sch.storage_align(part, 0, -2, 32, 8)
    i, *_ = sch.get_loops(part)
    sch.unroll(sch.add_unit_loop(i))
    return sch


@functools.cache
def traces() -> list[list[Any]]:
    """Give some schedules as data."""
    made = [simple(), *map(sampled, range(1, 5)), split(1)]
    return [as_data(sch.trace) for sch in made]


def result(workload: str = "w", **fields: Any) -> Result:
    """Make a result; what is not said does not matter."""
    known = {
        "task": "product",
        "origin": "search",
        "trace": [[], []],
        "target": target_data(TARGET),
        "threads": 2,
        "times": (1e-3, 1.1e-3, 0.9e-3),
        **fields,
    }
    if known.get("error"):
        known["times"] = ()
    return Result(workload=workload, **known)


def verdict(function: str = "w", **fields: Any) -> Verdict:
    """Decide about a function; what is not said does not matter."""
    known = {
        "workload": function,
        "task": "product",
        "target": target_data(TARGET),
        "threads": 2,
        "rule": 2e-3,
        "operator": "product 32x32",
        "trace": [[], []],
        "ratios": (0.5, 0.4, 0.6),
        **fields,
    }
    return Verdict(function=function, **known)


def fill(path: Path) -> str:
    """Write a file with all kinds of lines; tell the function's name."""
    records = Records(path)
    workload = records.workload(MODULE, "product")
    for i, trace in enumerate(traces()):
        origin = "rule" if i == 0 else "search"
        times = tuple((1 + n / 10) * 1e-3 / (i + 1) for n in range(4))
        answer = (1.5, float("nan"), float("inf"))
        records.append(result(workload, origin=origin, trace=trace, times=times, answer=answer))
    records.append(result(workload, error="it does not compile", trace=traces()[1]))
    records.append(verdict(workload, trace=traces()[2]))
    return workload


def run(module: tvm.IRModule) -> np.ndarray:
    """Compute with some numbers."""
    kernel = tvm.compile(module, target="llvm")
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((SIZE, SIZE), "float32") for _ in range(2))
    arrays = [tvm.runtime.tensor(array) for array in (a, b, np.empty_like(a))]
    kernel["main"](*arrays)
    return arrays[-1].numpy()
