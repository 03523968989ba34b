"""The functions that are tuned: their names in a file, and their text."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import IRModule

from .._telling import telling
from ..errors import RecordError

__all__ = ["from_text", "normalized", "to_text", "workload_id"]

# What a schedule depends on; the others say which pass has seen the function.
_KEPT = ("s_tir", "tirx.noalias", "layout_free_buffers")
# A graph of more objects or of deeper nesting is no function of a network; TVM, which follows the
# nesting by recursion, would overflow its stack.
_MOST_NODES, _DEEPEST = 1_000_000, 1_000


def normalized(given: tirx.PrimFunc | IRModule) -> IRModule:
    """Give a function the name ``main`` and leave out the attributes that are not its own.

    Parameters
    ----------
    given : tvm.tirx.PrimFunc or tvm.ir.IRModule
        A function that nobody has scheduled, or a module of one.

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
        A function that nobody has scheduled, or a module of one.

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


def from_text(text: str, expected: str) -> IRModule:
    """Read a function back, and make sure that it is the one that it should be.

    Parameters
    ----------
    text : str
        What `to_text` wrote.
    expected : str
        The function's `workload_id`.

    Returns
    -------
    tvm.ir.IRModule
        One function ``main``.

    Raises
    ------
    RecordError
        The text is no graph of TVM's, or that of another function.
    """
    trouble = _trouble(text)
    if trouble:
        raise RecordError(f"a workload's text is no graph of TVM's: {trouble}", where=expected)
    try:
        module = tvm.ir.load_json(text)
        found = workload_id(module) if isinstance(module, IRModule) else "no module"
    except Exception as error:  # TVM raises several classes, by what is wrong
        raise RecordError(
            f"TVM cannot read a workload's text: {telling(error)}", where=expected
        ) from error
    if found != expected:
        raise RecordError(f"a workload's text is that of another function: {found}", where=expected)
    return module


def _trouble(text: str) -> str:
    """Say why TVM should not see this text; empty where it may."""
    try:
        graph = json.loads(text)
    except (ValueError, RecursionError) as error:
        return str(error)
    nodes = graph.get("nodes") if isinstance(graph, dict) else None
    if not isinstance(nodes, list) or not 0 < len(nodes) <= _MOST_NODES:
        return "it has no list of nodes"
    if not _is_index(graph.get("root_index"), len(nodes)):
        return "its root is none of its nodes"
    return ""


def _is_index(value: Any, count: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count
