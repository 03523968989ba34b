from __future__ import annotations
import math
from typing import Any
import tvm
from tvm import s_tir, tirx
from .machine import Machine

def extent(sch, loop):
    e = sch.get(loop).extent
    return int(e) if isinstance(e, tirx.IntImm) else None

def schedule_contraction(func, machine, *, epilogue=True, force=None):
    sch = s_tir.Schedule(func)
    root = sch.get_sblock("root")
    blocks = sch.get_child_blocks(root)
    names = [sch.get(b).name_hint for b in blocks]
    C = sch.get_sblock("contraction")
    at = names.index("contraction")
    tile = [int(v) for v in sch.get(C).annotations["tvmlab.tile"]]
    sch.unannotate(C, "tvmlab.tile")
    for b in blocks[at + 1 : -1]:
        sch.compute_inline(b)
    final = blocks[-1]
    dtype = str(sch.get(C).writes[0].source.dtype)
    lanes = machine.lanes(dtype)
    n, g, y, x, o, ky, kx, ki = sch.get_loops(C)
    ty, tx, to = tile
    size = lambda l: extent(sch, l)
    yo, yi = sch.split(y, [None, ty]); xo, xi = sch.split(x, [None, tx])
    ob, oi = sch.split(o, [None, to])
    item = tvm.DataType(dtype).bits // 8
    taps = size(ky) * size(kx); inputs = size(ki)
    pixels = ty * tx
    wblock = taps * inputs * to * item
    nob = size(ob)
    group = max(1, min(nob, machine.l2 // wblock)) 
    while nob % group: group -= 1
    obo, obi = sch.split(ob, [None, group])
    chunk = inputs
    direct = pixels >= 10 or wblock <= machine.l1 // 2
    if force: direct = force == 'direct'
    if not direct:
        want = max(1, machine.l1 // 4 // (to * item))
        chunk = max(d for d in range(1, inputs + 1) if inputs % d == 0 and d <= want)
    ko, kc = sch.split(ki, [None, chunk])
    ov, ol = sch.split(oi, [None, lanes])
    if direct:
        sch.reorder(obo, n, g, yo, obi, xo, ky, kx, ko, kc, yi, xi, ov, ol)
        par = sch.fuse(obo, n, g, yo, obi); here = xo
    else:
        ny = size(yo); rb = max(d for d in range(1, ny + 1) if ny % d == 0 and (d == 1 or d * ty * size(xo) * tx * to * item <= machine.l1 // 2))
        yb, yr = sch.split(yo, [None, rb])
        sch.reorder(obo, n, g, yb, obi, ky, kx, ko, yr, xo, kc, yi, xi, ov, ol)
        par = sch.fuse(obo, n, g, yb, obi); here = par
    if epilogue:
        sch.reverse_compute_at(final, here, preserve_unit_loops=True)
    sch.parallel(par)
    sch.vectorize(ol)
    for l in (yi, xi, ov): sch.unroll(l)
    if chunk % 2 == 0 and (direct or pixels * to // lanes <= machine.registers // 2):
        _, kk = sch.split(kc, [None, 2]); sch.unroll(kk)
    first = ky
    if epilogue:
        c = sch.get_loops(final)[-1]
        if size(c) % lanes == 0 and size(c) > lanes:
            v, c = sch.split(c, [None, lanes]); sch.unroll(v)
        if size(c) == lanes: sch.vectorize(c)
    if at:
        for b in blocks[:at]:
            ls = sch.get_loops(b)
            f = sch.fuse(*ls[:2]); sch.parallel(f)
            c = sch.get_loops(b)[-1]
            if size(c) % lanes == 0:
                _, c = sch.split(c, [None, lanes]); sch.vectorize(c)
    sch.decompose_reduction(C, first)
    return sch
