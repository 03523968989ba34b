"""Relay's ``FuseOps``: operators that one kernel can compute become a primitive function."""

from __future__ import annotations

import tvm_ffi
from tvm import ir, relax, tirx

from ..errors import RelayError
from ..ir import graph, table
from ..ir.graph import key
from ..ir.operators.common import need_dims
from ..ir.patterns.view import fusion_kind

# Values of TOpPattern; an opaque operator never fuses.
_ELEMENTWISE, _BROADCAST, _OPAQUE = 0, 1, 8


def fuse(func: relax.Function, level: int) -> relax.Function:
    """Move the operators of a function into inner functions with the attribute ``Primitive``.

    Which operators belong together is the result of `tvm.relax.transform.FuseOps` for Relay's
    ``TOpPattern`` of each operator. As in Relay, an operator that fuses with no other has a
    primitive function for itself, and a constant with dimensions is a parameter.
    """
    root = graph.inline_bindings(func.body)
    nodes = list(graph.post_order(root))
    done: dict[int, relax.Expr] = {}
    groups = _groups(func, nodes, level)
    for number, node in enumerate(nodes):
        group, parts = groups.get(number, ()), [key(one) for one in graph.children(node)]
        if number == max(group, default=None):
            done[key(node)] = _primitive(node, {key(nodes[one]) for one in group}, done)
        elif not group and all(part in done for part in parts):  # not between two of a group
            done[key(node)] = graph.rebuild(node, [done[part] for part in parts])
    return graph.function(list(func.params), done[key(root)], func.attrs)


def _primitive(root: relax.Expr, group: set[int], done: dict[int, relax.Expr]) -> relax.Expr:
    """Return the call of a new function with the operators of a group."""
    params: list[relax.Var] = []
    inputs: list[relax.Expr] = []
    inner: dict[int, relax.Expr] = {}

    def is_inside(expr: relax.Expr) -> bool:
        if isinstance(expr, relax.TupleGetItem):
            return is_inside(expr.tuple_value)
        is_single = not isinstance(expr.ty, relax.TensorType) or expr.ty.ndim == 0
        return key(expr) in group or (is_single and not isinstance(expr, (relax.Var, relax.Call)))

    def moved(expr: relax.Expr) -> relax.Expr:
        if key(expr) not in inner and is_inside(expr):
            inner[key(expr)] = graph.rebuild(expr, [moved(one) for one in graph.children(expr)])
        elif key(expr) not in inner:
            inputs.append(done[key(expr)])
            params.append(relax.Var(f"p{len(params)}", expr.ty))
            inner[key(expr)] = params[-1]
        return inner[key(expr)]

    body = moved(root)
    made = graph.function(params, body, {"Primitive": 1})
    return graph.typed(relax.Call(made, inputs))


def _groups(func: relax.Function, nodes: list[relax.Expr], level: int) -> dict[int, set[int]]:
    """Return the group of each operator by its number; calls of empty kernels are fused."""
    builder, values = relax.BlockBuilder(), dict[int, relax.Expr]()
    with builder.function("main", list(func.params)):
        with builder.dataflow():
            for number, node in enumerate(nodes):
                parts = [values[key(one)] for one in graph.children(node)]
                if isinstance(node, (relax.Call, relax.If)):
                    empty = tirx.PrimFunc([], tirx.Evaluate(0)).with_attr("number", number)
                    empty = empty.with_attr("op_pattern", _kind(node))
                    kernel = builder.add_func(empty, f"kernel_{number}")  # equal ones are one
                    tensors = [tensor for part in parts for tensor in _tensors(part)]
                    outputs = getattr(node.ty, "fields", [node.ty])
                    for one in outputs:
                        need_dims(one, "FuseOps' result")
                    value = builder.emit(relax.call_tir(kernel, tensors, list(outputs)))
                else:
                    value = graph.rebuild(node, parts)
                    value = builder.emit(value) if isinstance(value, relax.TupleGetItem) else value
                values[key(node)] = value
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    groups = {
        number: {number}
        for number, node in enumerate(nodes)
        if isinstance(node, relax.Call) and isinstance(node.op, ir.Op)
    }
    for var, made in relax.transform.FuseOps(level)(builder.get()).functions.items():
        if isinstance(made, relax.Function) and var.name_hint != "main":
            calls = [one.value for block in made.body.blocks for one in block.bindings]
            group = {
                int(call.args[0].name_hint.split("_")[1])
                for call in calls
                if graph.is_call(call, "relax.call_tir")
            }
            groups.update(dict.fromkeys(group, group))
    return groups


def _kind(node: relax.Expr) -> int:
    """Return Relay's ``TOpPattern`` of a call; an operator whose pattern is unknown never fuses."""
    found = table.written(node) if isinstance(node, relax.Call) else None
    try:
        kind = fusion_kind([found[0].name], "TOpPattern") if found else None
    except RelayError:
        kind = None
    if kind == _BROADCAST and all(
        tvm_ffi.structural_equal(arg.ty.shape, node.ty.shape)
        for arg in graph.children(node)
        if not isinstance(arg, (relax.Var, ir.GenericConst))
    ):
        return _ELEMENTWISE  # as in Relay, where only what is computed before it is not broadcast
    return _OPAQUE if kind is None else kind


def _tensors(value: relax.Expr) -> list[relax.Expr]:
    """List the tensors of an operand; a shape, for example, has none."""
    if isinstance(value, relax.Tuple):
        return [tensor for field in value.fields for tensor in _tensors(field)]
    return [value] if isinstance(value.ty, relax.TensorType) else []
