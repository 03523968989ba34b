"""The functions that are tuned: their names in a file, and their text."""

from __future__ import annotations

import hashlib

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import IRModule

from ..errors import RecordError

__all__ = ["normalized", "to_text", "workload_id"]

# What a schedule depends on; the others say which pass has seen the function.
_KEPT = ("s_tir", "tirx.noalias", "layout_free_buffers")


def normalized(given: tirx.PrimFunc | IRModule) -> IRModule:
    """Give a function the name ``main`` and leave out the attributes that are not its own.

    Parameters
    ----------
    given : tvm.tirx.PrimFunc or tvm.ir.IRModule
        A function without a schedule, or a module of one.

    Returns
    -------
    tvm.ir.IRModule
        One function ``main``.

    Raises
    ------
    RecordError
        The module has no function, or several.
    """
    if isinstance(given, IRModule):
        functions = list(given.functions.values())
        if len(functions) != 1 or not isinstance(functions[0], tirx.PrimFunc):
            raise RecordError(
                f"a workload is one TIR function; the module has {len(functions)} functions",
                where=", ".join(var.name_hint for var in given.get_global_vars()) or None,
                fix="take the functions of the module one by one",
            )
        given = functions[0]
    func: tirx.PrimFunc = given
    for name in [] if func.attrs is None else list(func.attrs.keys()):
        if name not in _KEPT:
            func = func.without_attr(name)
    return IRModule({"main": func.with_attr("global_symbol", "main")})


def workload_id(given: tirx.PrimFunc | IRModule) -> str:
    """Name a function by what it computes.

    Parameters
    ----------
    given : tvm.tirx.PrimFunc or tvm.ir.IRModule
        A function without a schedule, or a module of one.

    Returns
    -------
    str
        32 hexadecimal digits: TVM's structural hash, which leaves out the names of variables and
        buffers and is the same in every process, and a hash of the names of the blocks, by which a
        trace finds them. Neither the function's name nor its attributes matter.

    Raises
    ------
    RecordError
        The module has no function, or several.
    """
    module = normalized(given)
    func = module["main"]
    names: list[str] = []
    kinds = ((s_tir.SBlock, lambda block: names.append(str(block.name_hint))),)
    tvm_ffi.structural_walk(func.body, kinds)
    blocks = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    return f"{tvm_ffi.structural_hash(module):016x}{blocks}"


def to_text(module: IRModule) -> str:
    """Write a module as TVM's JSON graph."""
    return str(tvm.ir.save_json(module))
