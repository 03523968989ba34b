"""Add a Relax ``main`` to a module of one TIR function, so that it compiles like a model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
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
_READERS = ("tirx.call_pure_extern", "tirx.call_llvm_pure_intrin", "tirx.prefetch")


def with_main(given: object) -> IRModule:
    """Return a module with a Relax function ``main``.

    A module that has one comes back as it is. The only TIR function of a module without one, or a
    TIR function by itself, gets a ``main`` that allocates its outputs and calls it. The outputs are
    the buffers that the function writes; the parameters are the other buffers, with their names.
    A function whose loops differ from those of `tvm.te.create_prim_func` keeps its schedule.

    Parameters
    ----------
    given : tvm.ir.IRModule or tvm.tirx.PrimFunc
        The module, or the function.

    Returns
    -------
    tvm.ir.IRModule

    Raises
    ------
    CompileError
        The argument is neither, the module has no ``main`` and not exactly one TIR function, or the
        analysis cannot determine the outputs of that function, or a buffer has strides or an offset
        that no compact array has.
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


def _error(what: str, name: str, or_else: str = "") -> CompileError:
    return CompileError(
        what,
        where=f"the TIR function {name!r}",
        fix=f"write a Relax main that calls it with R.call_tir or R.call_tir_inplace{or_else}",
    )


@dataclass(frozen=True, eq=False)
class _Unit:
    """An outermost block, or a statement outside of blocks, and the buffers that it may use."""

    node: Any
    loops: dict[tirx.Var, tirx.For]
    reads: list[tirx.Var]
    writes: list[tirx.Var]

    def touches(self, buffer: tirx.Var) -> bool:
        """Return whether the unit uses a buffer in a way that its reads and writes do not list."""
        stores, calls = _all(self.node, tirx.BufferStore), _all(self.node, ir.Call)
        stored = any(store.buffer.same_as(buffer) for store in stores)
        passed = any(buffer.same_as(one) for call in calls for one in call.args)
        known = _among(buffer, self.writes) or (not stored and _among(buffer, self.reads))
        return (stored or passed) and not known

    def loads(self, buffer: tirx.Var) -> bool:
        """Return whether the unit loads elements of a buffer that it does not declare to read.

        A reduction need not declare the elements that its ``init`` writes.
        """
        if _among(buffer, self.reads):
            return False
        listed: list[Any] = []
        for block in _all(self.node, s_tir.SBlock):
            stores = _all(block.init, tirx.BufferStore) if block.init else []
            places = [one.indices for one in stores if one.buffer.same_as(buffer)]
            for load in _all(block.body, ir.TensorLoad) if places else []:
                if any(tvm_ffi.structural_equal(load.indices, place) for place in places):
                    listed.append(load)
            for inner in _all(block.body, s_tir.SBlock) if places else []:
                if _among(buffer, [one.source for one in inner.reads]):
                    listed += _all(inner.body, ir.TensorLoad)
        names = self.names(buffer)
        found = [one for one in _all(self.node, ir.TensorLoad) if _among(one.source, names)]
        return any(not _among(one, listed) for one in found)

    def names(self, buffer: tirx.Var) -> list[tirx.Var]:
        """Return a buffer and the names that blocks give to a part of it."""
        names = [buffer]
        for block in _all(self.node, s_tir.SBlock):
            names += [one.buffer for one in block.match_buffers if _among(one.source.source, names)]
        return names

    def passes(self, buffer: tirx.Var) -> bool:
        """Return whether a call gets a pointer to a buffer through which it can write."""
        names = self.names(buffer)
        calls = _all(self.node, ir.Call)
        harmless = [arg for call in calls if _only_reads(call) for arg in call.args]
        shown = [arg for call in calls if not _among(call, harmless) for arg in _shown(call)]
        return any(_among(arg, names) for arg in shown)


def _among(one: Any, others: Iterable[Any]) -> bool:
    return any(other.same_as(one) for other in others)


def _is(call: ir.Call, *names: str) -> bool:
    return isinstance(call.op, ir.Op) and call.op.name in names


def _shown(call: ir.Call) -> list[Any]:
    """Return the arguments of a call, and of ``address_of`` the buffer instead of its element."""
    address = _is(call, "tirx.address_of")
    return [arg.source if address and isinstance(arg, ir.TensorLoad) else arg for arg in call.args]


def _only_reads(call: ir.Call) -> bool:
    """Return whether a call cannot write through the pointers among its arguments."""
    if _is(call, "tirx.tvm_access_ptr"):
        return isinstance(mask := call.args[4], tirx.IntImm) and mask == 1
    if _is(call, "tirx.call_llvm_intrin"):
        return "llvm.prefetch" in str(call)
    return _is(call, *_READERS)


def _units(node: Any, loops: dict[tirx.Var, tirx.For]) -> Iterator[_Unit]:
    """Yield the units of a statement in the order of the program."""
    if isinstance(node, tirx.SeqStmt):
        for part in node.seq:
            yield from _units(part, loops)
    elif isinstance(node, tirx.For):
        yield from _units(node.body, {**loops, node.loop_var: node})
    elif isinstance(node, s_tir.SBlockRealize) and node.block.name_hint == "root" and not loops:
        yield from _units(node.block.body, loops)
    elif isinstance(node, s_tir.SBlockRealize):
        reads, writes = node.block.reads, node.block.writes
        yield _Unit(node, loops, [one.source for one in reads], [one.source for one in writes])
    else:
        writes = [node.buffer] if isinstance(node, tirx.BufferStore) else []
        yield _Unit(node, loops, [one.source for one in _all(node, ir.TensorLoad)], writes)


def _all(node: Any, kind: Any) -> list[Any]:
    """Return the parts of a statement that are of a kind."""
    found: list[Any] = []
    tvm_ffi.structural_walk(node, (kind, found.append))
    return found


def _is_output(func: tirx.PrimFunc, units: list[_Unit], buffer: tirx.Var, name: str) -> bool:
    """Return whether a buffer is an output; refuse one that is read first or written in part."""
    reads = [unit for unit in units if _among(buffer, unit.reads)]
    writes = [unit for unit in units if _among(buffer, unit.writes)]
    if any(unit.touches(buffer) or (not writes and unit.passes(buffer)) for unit in units):
        raise _error(
            f"the analysis cannot determine whether the function writes {buffer.name!r}",
            name,
            f'; what a call only reads can be passed as {buffer.name}.access_ptr("r")',
        )
    if not writes:
        return False
    if any(unit.loads(buffer) for unit in units):
        raise _error(f"the function may read {buffer.name!r} before it writes it", name)
    for unit in reads:
        if units.index(unit) <= units.index(writes[0]) or not _covered(func, unit.node):
            raise _error(f"the function may read {buffer.name!r} before it writes it", name)
    if not any(_writes_all(unit, buffer) for unit in writes):
        raise _error(f"the function may leave a part of {buffer.name!r} unwritten", name)
    return True


def _covered(func: tirx.PrimFunc, node: Any) -> bool:
    """Return whether earlier blocks wrote everything that a block reads of their buffers."""
    if not isinstance(node, s_tir.SBlockRealize):
        return False
    state = s_tir.Schedule(func).state
    return bool(state._get_cached_flags(state.get_sref(node.block)).region_cover)


def _writes_all(unit: _Unit, buffer: tirx.Var) -> bool:
    """Return whether one store of a unit certainly writes every element of a buffer."""
    loops = {var: Range.from_min_extent(loop.min, loop.extent) for var, loop in unit.loops.items()}
    prove = sym.Analyzer().can_prove_equal
    for store, region, ranges, predicate in _stores(unit.node, loops, {}, tirx.const(True)):
        if store.buffer.same_as(buffer):
            if not region:  # a scalar
                return True
            found = sym.estimate_region_strict_bound(region, ranges, predicate)
            if found is not None and all(
                prove(part.min_value, 0) and prove(part.max_value + 1, size)
                for part, size in zip(found, buffer.shape, strict=True)
            ):
                return True
    return False


def _stores(
    node: Any, loops: dict[tirx.Var, Range], values: dict[tirx.Var, Any], predicate: Any
) -> Iterator[tuple[tirx.BufferStore, list[Range], dict[tirx.Var, Range], Any]]:
    """Yield the stores that no condition guards, with their regions in terms of the loops."""

    def replaced(expr: Any) -> Any:
        return tvm_ffi.structural_map(expr, (tirx.Var, lambda var: values.get(var, var)))

    if isinstance(node, tirx.SeqStmt):
        for part in node.seq:
            yield from _stores(part, loops, values, predicate)
    elif isinstance(node, tirx.For):
        domain = Range.from_min_extent(replaced(node.min), replaced(node.extent))
        yield from _stores(node.body, {**loops, node.loop_var: domain}, values, predicate)
    elif isinstance(node, s_tir.SBlockRealize):
        bound = [replaced(value) for value in node.iter_values]
        inner = {
            **values,
            **dict(zip((one.var for one in node.block.iter_vars), bound, strict=True)),
        }
        within = tirx.all(predicate, replaced(node.predicate))
        for part in filter(None, (node.block.init, node.block.body)):
            yield from _stores(part, loops, inner, within)
    elif isinstance(node, tirx.BufferStore):
        yield node, [_range(replaced(index)) for index in node.indices], loops, predicate


def _range(index: Any) -> Range:
    if isinstance(index, tirx.Ramp) and isinstance(index.stride, tirx.IntImm) and index.stride == 1:
        return Range.from_min_extent(index.base, index.lanes)
    return Range.from_min_extent(index, 1)


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


def _same(given: Any, needed: Any, buffer: tirx.Var, name: str) -> None:
    """Refuse a stride or an offset that no array of Relax has."""
    if sym.Analyzer().can_prove(tirx.const(0) + given != needed):
        raise CompileError(
            f"{buffer.name!r} has strides or an offset, but tvmlab passes compact arrays",
            where=f"the TIR function {name!r}",
            fix="declare the buffer without strides and elem_offset",
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

    for axis, stride in enumerate(buffer.strides):
        _same(stride, math.prod(buffer.shape[axis + 1 :]), buffer, name)
    _same(buffer.elem_offset, 0, buffer, name)
    return relax.TensorType([wide(size) for size in buffer.shape], buffer.dtype)
