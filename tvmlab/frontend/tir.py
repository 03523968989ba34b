"""Add a Relax ``main`` to a module with one TIR function, so that it compiles like a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import ir, relax, s_tir, sym, tirx
from tvm.ir import IRModule
from tvm.ir.supply import UniqueNameSupply

from ..errors import CompileError
from ..ir.dialect import OUTPUT_NAMES

__all__ = ["with_main"]

_POINTERS = ("tirx.address_of", "tirx.tvm_access_ptr")
_FIX = "write a Relax main that calls it with R.call_tir or R.call_tir_inplace"


def with_main(given: object) -> IRModule:
    """Return a module with a Relax function ``main``.

    A module that has a ``main`` is returned as it is. A TIR function, or the only TIR function of a
    module, gets a ``main`` that allocates its outputs and calls it. The outputs are the buffers
    that the function writes, in loops like those of `tvm.te.create_prim_func`.
    Raises `CompileError` if the outputs cannot be determined, or for any other argument.
    """
    mod = IRModule({"main": given}) if isinstance(given, tirx.PrimFunc) else given
    if not isinstance(mod, IRModule):
        what = f"a tvm.ir.IRModule is needed, not {type(mod).__name__}"
        raise CompileError(what, fix="import the model with tvmlab.load first")
    names = [var.name_hint for var in mod.get_global_vars()]
    if "main" in names and isinstance(mod["main"], relax.Function):
        return mod
    kernels = [var for var, func in mod.functions_items() if isinstance(func, tirx.PrimFunc)]
    if len(kernels) != 1 or len(names) != 1:
        what, where = "the module has no Relax function named main", ", ".join(names)
        fix = "write a Relax main that calls the others, or pass a module of one TIR function"
        raise CompileError(what, where=where or "an empty module", fix=fix)
    return _wrapped(mod, mod[kernels[0]], kernels[0].name_hint)


def _wrapped(mod: IRModule, func: tirx.PrimFunc, name: str) -> IRModule:
    """Return a module whose ``main`` calls a TIR function."""
    scalars = [one.name for one in func.params if not isinstance(one.ty, tirx.BufferType)]
    if scalars:
        raise _error(f"parameter {scalars[0]!r} of the TIR function is not a buffer", name)
    blocks = list(_blocks(func.body, []))
    if _passes_pointers(func):
        raise _error("the TIR function passes pointers to what it calls", name)
    if not all(_is_plain(*one) for one in blocks):
        raise _error("the TIR function has a schedule, or loops unlike create_prim_func's", name)
    buffers = list(func.params)
    written = [_is_output(blocks, buffer, name) for buffer in buffers]
    if not any(written):
        raise _error("the TIR function writes none of its buffers", name)
    order = sorted(range(len(buffers)), key=written.__getitem__)  # call_tir passes outputs last
    first = written.count(False)
    titles, sizes = UniqueNameSupply(), dict[tirx.Var, tirx.Var]()
    title = [titles.fresh_name(buffer.name, add_prefix=False) for buffer in buffers]
    types = [_type(buffers[place], sizes, name) for place in order]
    inputs = [relax.Var(title[place], ty) for place, ty in zip(order[:first], types, strict=False)]
    outputs = types[first:]
    # Relax reads a symbolic size from a dimension that equals it, and does not solve n * 2 for n.
    inner = {size for place in order[:first] for size in buffers[place].shape}
    if free := set(sizes) - inner:
        raise _error(f"no input has the size {min(var.name for var in free)!r}", name)
    params = [func.params[place] for place in order]
    func = tirx.PrimFunc(params, func.body, func.ret_type, func.attrs)
    func = func.without_attr("global_symbol")
    builder = relax.BlockBuilder(IRModule({}, mod.attrs, mod.global_infos))
    kernel = builder.add_func(func, "kernel" if name == "main" else name)
    with builder.function("main", inputs):
        with builder.dataflow():
            called = relax.call_tir(kernel, inputs, outputs if len(outputs) > 1 else outputs[0])
            result = builder.emit_output(called)
        builder.emit_func_output(result)
    made = builder.get()
    names = [title[place] for place in order[first:]]
    made["main"] = made["main"].with_attr(OUTPUT_NAMES, names)
    return made


def _error(what: str, name: str, fix: str = _FIX) -> CompileError:
    return CompileError(what, where=f"the TIR function {name!r}", fix=fix)


def _blocks(node: Any, loops: list[tirx.For]) -> Iterator[tuple[Any, list[tirx.For]]]:
    """Yield the outermost blocks, or statements outside blocks, each with the loops around it."""
    if isinstance(node, tirx.SeqStmt):
        for part in node.seq:
            yield from _blocks(part, loops)
    elif isinstance(node, tirx.For):
        yield from _blocks(node.body, [*loops, node])
    elif isinstance(node, s_tir.SBlockRealize) and node.block.name_hint == "root" and not loops:
        yield from _blocks(node.block.body, loops)
    else:
        yield node, loops


def _is_plain(node: Any, loops: list[tirx.For]) -> bool:
    """Return whether a block has one serial loop for each of its variables, in their order."""
    return (
        isinstance(node, s_tir.SBlockRealize)
        and list(node.iter_values) == [loop.loop_var for loop in loops]
        and isinstance(node.predicate, tirx.IntImm)
        and not node.block.annotations
        and not node.block.match_buffers
        and all(
            loop.kind == tirx.ForKind.SERIAL and not loop.annotations and loop.min == 0
            for loop in loops
        )
    )


def _all(node: Any, kind: Any) -> list[Any]:
    """Return the nodes of one class in a statement."""
    found: list[Any] = []
    tvm_ffi.structural_walk(node, (kind, found.append))
    return found


def _passes_pointers(func: tirx.PrimFunc) -> bool:
    return any(
        (isinstance(call.op, ir.Op) and call.op.name in _POINTERS)
        or any(arg.same_as(buffer) for arg in call.args for buffer in func.params)
        for call in _all(func.body, ir.Call)
    )


def _is_output(blocks: list[tuple[Any, list[tirx.For]]], buffer: tirx.Var, name: str) -> bool:
    """Return whether a buffer is an output; refuse one that is read first or written in part."""
    stores = [store for node, _ in blocks for store in _all(node, tirx.BufferStore)]
    if not any(store.buffer.same_as(buffer) for store in stores):
        return False
    written = False
    for node, loops in blocks:
        if not written and _reads(node.block, buffer):
            raise _error(f"the function may read {buffer.name!r} before it writes it", name)
        written = written or _writes_all(node.block, loops, buffer)
    if not written:
        raise _error(f"the function may leave a part of {buffer.name!r} unwritten", name)
    return True


def _reads(block: s_tir.SBlock, buffer: tirx.Var) -> bool:
    """Return whether a block reads elements of a buffer that no ``init`` of a reduction writes."""
    stores = _all(block.init, tirx.BufferStore) if block.init else []
    sums = [store.indices for store in stores if store.buffer.same_as(buffer)]
    loads = [load for load in _all(block, ir.TensorLoad) if load.source.same_as(buffer)]
    equal = tvm_ffi.structural_equal
    return any(not any(equal(load.indices, one) for one in sums) for load in loads)


def _writes_all(block: s_tir.SBlock, loops: list[tirx.For], buffer: tirx.Var) -> bool:
    """Return whether a block unconditionally stores every element of a buffer."""
    prove = sym.Analyzer().can_prove_equal
    extents = {one.var: loop.extent for one, loop in zip(block.iter_vars, loops, strict=True)}
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


def _type(buffer: tirx.Var, sizes: dict[tirx.Var, tirx.Var], name: str) -> relax.TensorType:
    """Return the Relax type of a buffer, with int64 sizes."""

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
        what = f"{buffer.name!r} has strides or an offset, but tvmlab passes compact arrays"
        raise _error(what, name, "declare the buffer without strides and elem_offset")
    return relax.TensorType([wide(size) for size in buffer.shape], buffer.dtype)
