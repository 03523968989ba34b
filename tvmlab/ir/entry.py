"""Add a Relax ``main`` to a module of one TIR function, so that it compiles like a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, relax, s_tir, sym, tirx
from tvm.ir import IRModule, Range
from tvm.ir.supply import UniqueNameSupply

from ..errors import CompileError
from .signature import OUTPUT_NAMES

__all__ = ["with_main"]

_SCHEDULED = "tirx.is_scheduled"  # TVM's name for a function that no rule may change
_POINTERS = ("tirx.address_of", "tirx.tvm_access_ptr")


def with_main(given: object) -> IRModule:
    """Return a module with a Relax function ``main``.

    A module that has one comes back as it is. The only TIR function of a module without one, or a
    TIR function by itself, gets a ``main`` that allocates its outputs and calls it. The outputs are
    the buffers that the function writes; the parameters are the other buffers, with their names.
    A function whose loops differ from those of `tvm.te.create_prim_func` keeps its schedule.

    `CompileError` where the argument is neither, the module has no ``main`` and not exactly one TIR
    function, the outputs of that function cannot be determined, or a buffer has strides.
    """
    mod = IRModule({"main": given}) if isinstance(given, tirx.PrimFunc) else given
    if not isinstance(mod, IRModule):
        raise CompileError(
            f"a tvm.ir.IRModule is needed, not {type(mod).__name__}",
            fix="import the model with tvmlab.load first",
        )
    names = [var.name_hint for var in mod.get_global_vars()]
    if "main" in names and isinstance(mod["main"], relax.Function):
        return mod
    kernels = [var for var, func in mod.functions_items() if isinstance(func, tirx.PrimFunc)]
    if len(kernels) != 1 or len(names) != 1:
        raise CompileError(
            "the module has no Relax function named main",
            where=", ".join(names) or "an empty module",
            fix="give a module of one TIR function, or write a Relax main that calls all of them"
            if len(kernels) > 1
            else "name the function to call main",
        )
    return _wrapped(mod, mod[kernels[0]], kernels[0].name_hint)


def _wrapped(mod: IRModule, func: tirx.PrimFunc, name: str) -> IRModule:
    """Return a module whose ``main`` calls a TIR function."""
    scalars = [one.name for one in func.params if not isinstance(one.ty, tirx.BufferType)]
    if scalars:
        raise _error(f"parameter {scalars[0]!r} of the TIR function is not a buffer", name)
    _check_pointers(func, name)
    units = list(_units(func.body, {}))
    buffers = list(func.params)
    written = [_is_output(func, units, buffer, name) for buffer in buffers]
    if not any(written):
        raise _error("the TIR function writes none of its buffers", name)
    order = sorted(range(len(buffers)), key=written.__getitem__)  # call_tir takes outputs last
    titles = UniqueNameSupply()
    title = [titles.fresh_name(buffer.name, add_prefix=False) for buffer in buffers]
    sizes: dict[tirx.Var, tirx.Var] = {}
    inputs = [
        relax.Var(title[place], _type(buffers[place], sizes, name))
        for place in order
        if not written[place]
    ]
    outputs = [_type(buffers[place], sizes, name) for place in order if written[place]]
    # Relax reads a size from a dimension that is that size, and does not solve n * 2 for n.
    inner = {size for place in order if not written[place] for size in buffers[place].shape}
    if free := set(sizes) - inner:
        raise _error(f"no input has the size {min(var.name for var in free)!r}", name)
    params = [func.params[place] for place in order]
    func = tirx.PrimFunc(params, func.body, func.ret_type, func.attrs)
    func = func.without_attr("global_symbol")
    if not _untouched(units):
        func = func.with_attr(_SCHEDULED, True)
    builder = relax.BlockBuilder(IRModule({}, mod.attrs, mod.global_infos))
    kernel = builder.add_func(func, "kernel" if name == "main" else name)
    with builder.function("main", inputs):
        with builder.dataflow():
            called = relax.call_tir(kernel, inputs, outputs if len(outputs) > 1 else outputs[0])
            result = builder.emit_output(called)
        builder.emit_func_output(result)
    made = builder.get()
    made["main"] = made["main"].with_attr(
        OUTPUT_NAMES, [title[place] for place in order if written[place]]
    )
    return made


def _error(what: str, name: str) -> CompileError:
    return CompileError(
        what,
        where=f"the TIR function {name!r}",
        fix="write a Relax main that calls it with R.call_tir or R.call_tir_inplace",
    )


@dataclass(frozen=True, eq=False)
class _Unit:
    """An outermost block, or a statement outside of blocks, and the loops around it."""

    node: Any
    loops: dict[tirx.Var, tirx.For]


def _units(node: Any, loops: dict[tirx.Var, tirx.For]) -> Iterator[_Unit]:
    """Yield the units of a statement in the order of the program."""
    if isinstance(node, tirx.SeqStmt):
        for part in node.seq:
            yield from _units(part, loops)
    elif isinstance(node, tirx.For):
        yield from _units(node.body, {**loops, node.loop_var: node})
    elif isinstance(node, s_tir.SBlockRealize) and node.block.name_hint == "root" and not loops:
        yield from _units(node.block.body, loops)
    else:
        yield _Unit(node, loops)


def _all(node: Any, kind: Any) -> list[Any]:
    """Return the parts of a statement that are of a kind."""
    found: list[Any] = []
    tvm_ffi.structural_walk(node, (kind, found.append))
    return found


def _check_pointers(func: tirx.PrimFunc, name: str) -> None:
    """Refuse calls that get a pointer, and other names of a buffer's parts."""
    passed = [
        call
        for call in _all(func.body, ir.Call)
        if (isinstance(call.op, ir.Op) and call.op.name in _POINTERS)
        or any(arg.same_as(buffer) for arg in call.args for buffer in func.params)
    ]
    if passed or any(block.match_buffers for block in _all(func.body, s_tir.SBlock)):
        what = "the analysis cannot determine which buffers the function writes"
        raise _error(f"{what}: it passes pointers, or names a part of a buffer", name)


def _is_output(func: tirx.PrimFunc, units: list[_Unit], buffer: tirx.Var, name: str) -> bool:
    """Return whether a buffer is an output; refuse one that is read first or written in part."""
    writers = [
        place
        for place, unit in enumerate(units)
        if any(store.buffer.same_as(buffer) for store in _all(unit.node, tirx.BufferStore))
    ]
    if not writers:
        return False
    for place, unit in enumerate(units):
        if _reads(unit.node, buffer) and not (
            place > writers[0] and _covered(func, unit.node, buffer)
        ):
            raise _error(f"the function may read {buffer.name!r} before it writes it", name)
    if not any(_writes_all(units[place], buffer) for place in writers):
        raise _error(f"the function may leave a part of {buffer.name!r} unwritten", name)
    return True


def _reads(node: Any, buffer: tirx.Var) -> bool:
    """Return whether elements of a buffer are loaded that no ``init`` of a reduction writes."""
    sums: list[Any] = []
    for block in _all(node, s_tir.SBlock):
        stores = _all(block.init, tirx.BufferStore) if block.init else []
        sums += [
            load
            for load in _all(block.body, ir.TensorLoad)
            if any(tvm_ffi.structural_equal(load.indices, store.indices) for store in stores)
        ]
    loads = [load for load in _all(node, ir.TensorLoad) if load.source.same_as(buffer)]
    return any(not any(load.same_as(one) for one in sums) for load in loads)


def _covered(func: tirx.PrimFunc, node: Any, buffer: tirx.Var) -> bool:
    """Return whether earlier blocks wrote everything that a block reads of a buffer."""
    if not isinstance(node, s_tir.SBlockRealize):
        return False
    if not any(region.source.same_as(buffer) for region in node.block.reads):
        return False
    state = s_tir.Schedule(func).state
    return bool(state._get_cached_flags(state.get_sref(node.block)).region_cover)


def _writes_all(unit: _Unit, buffer: tirx.Var) -> bool:
    """Return whether a block has a store, under no condition, to every element of a buffer."""
    if not isinstance(unit.node, s_tir.SBlockRealize):
        return False
    block, prove = unit.node.block, sym.Analyzer().can_prove_equal
    loops = {var: Range.from_min_extent(loop.min, loop.extent) for var, loop in unit.loops.items()}
    places = [Range.from_min_extent(value, 1) for value in unit.node.iter_values]
    bounds = sym.estimate_region_strict_bound(places, loops, unit.node.predicate) if places else []
    if bounds is None:
        return False
    extents = {
        one.var: one.dom.extent
        for one, bound in zip(block.iter_vars, bounds, strict=True)
        if prove(bound.min_value, 0) and prove(bound.max_value + 1, one.dom.extent)
    }
    body = block.body.seq if isinstance(block.body, tirx.SeqStmt) else [block.body]
    return any(
        len(set(store.indices)) == len(buffer.shape)
        and all(
            index in extents and prove(extents[index], size)
            for index, size in zip(store.indices, buffer.shape, strict=True)
        )
        for store in (block.init, *body)
        if isinstance(store, tirx.BufferStore) and store.buffer.same_as(buffer)
    )


def _untouched(units: list[_Unit]) -> bool:
    """Return whether each block has its own loops, one for each of its variables and in order."""
    own = [loop for unit in units for loop in unit.loops]
    return len(own) == len(set(own)) and all(
        isinstance(unit.node, s_tir.SBlockRealize)
        and list(unit.node.iter_values) == list(unit.loops)
        and not unit.node.block.annotations
        and all(
            loop.kind == tirx.ForKind.SERIAL and not loop.annotations
            for loop in unit.loops.values()
        )
        for unit in units
    )


def _type(buffer: tirx.Var, sizes: dict[tirx.Var, tirx.Var], name: str) -> relax.TensorType:
    """Return the type of a buffer in Relax, where sizes are int64."""

    def wide(size: Any) -> Any:
        if isinstance(size, (int, tirx.IntImm)):
            return tirx.IntImm("int64", int(size))
        if isinstance(size, tirx.Var):
            return sizes.setdefault(size, tirx.Var(size.name, "int64"))
        if not isinstance(size, tirx.expr.BinaryOpExpr):
            raise _error(f"the shape of {buffer.name!r} has a size that is not arithmetic", name)
        return type(size)(wide(size.a), wide(size.b))

    offset = buffer.elem_offset
    if buffer.strides or (isinstance(offset, tirx.IntImm) and offset != 0):
        raise CompileError(
            f"{buffer.name!r} has strides or an offset, but tvmlab passes compact arrays",
            where=f"the TIR function {name!r}",
            fix="declare the buffer without strides and elem_offset",
        )
    return relax.TensorType([wide(size) for size in buffer.shape], buffer.dtype)
