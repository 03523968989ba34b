"""Fold multiplications by one number a channel into the weights before or behind them.

Backward, the scale behind a convolution or a dense layer goes into that layer's weights; forward,
the scale before one goes into its weights too. On the way it passes biases, and limits such as ReLU
if it is positive. The rules are those of Relay's ``src/relay/transforms/fold_scale_axis.cc``. What
is constant NumPy computes at once; Relay leaves it to `FoldConstant`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from tvm import ir, relax, tirx

from ..ir import graph, table
from ..ir.graph import key

__all__ = ["fold_backward", "fold_forward"]

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
_LIMITS = ("nn.relu", "nn.leaky_relu")
_SUMS = ("add", "subtract")
_DEEPEST = 64
"""How many operators a scale passes at most: it is passed on by recursion."""
_SMALLEST = 1e-6
"""Forward, a bias on the way is divided by the scale; a smaller one could make it infinite."""


class Message(NamedTuple):
    """That a scale can be folded: on which axis, and whether it has to be positive."""

    axis: int
    positive: bool = False
    depth: int = 0


def fold_backward(body: relax.Expr) -> relax.Expr:
    """Fold each scale behind a layer into the layer.

    Parameters
    ----------
    body : tvm.relax.Expr
        A graph.

    Returns
    -------
    tvm.relax.Expr
        The graph without the multiplications that could be folded. A layer, bias or limit whose
        result something else uses too keeps the scale behind it.
    """
    uses = _uses(body)
    messages: dict[int, Message] = {}
    kept: list[relax.Expr] = []  # so that no address is given to another node meanwhile

    def message(expr: relax.Expr) -> Message | None:
        # What a fold has made new is used once, by what is made next.
        return messages.get(key(expr)) if uses.get(key(expr), 1) == 1 else None

    def scaled(expr: relax.Expr, scale: relax.Expr) -> relax.Expr:
        """Multiply by a scale what has a message."""
        found = _written(expr)
        assert found is not None
        call, name, values = found
        if name in _CONVOLUTIONS or name == "nn.dense":
            made = [call.args[0], _on_weight(call.args[1], scale, _out_axis(name, values))]
        elif name in _LIMITS:
            made = [scaled(call.args[0], scale), *call.args[1:]]
        else:
            made = [
                scaled(arg, scale) if message(arg) else _multiplied(arg, scale) for arg in call.args
            ]
        new = graph.rebuild(call, made)
        kept.append(new)
        messages[key(new)] = messages[key(expr)]  # it can take another scale
        return new

    def change(before: relax.Expr, after: relax.Expr) -> relax.Expr:
        found = _written(after)
        if found is not None and found[1] == "multiply":
            for data, scale in (found[0].args, found[0].args[::-1]):
                wanted = message(data)
                if wanted and _fits(scale, data, wanted.axis) and _allowed(scale, wanted):
                    after = scaled(data, scale)
                    break
            found = _written(after)
        sent = _backward(found, message) if found is not None else None
        kept.append(after)
        uses[key(after)] = uses[key(before)]
        if sent is not None and sent.depth < _DEEPEST:
            messages[key(after)] = sent
        return after

    return graph.transform(body, change)


def _backward(found: Written, message: Any) -> Message | None:
    """Say whether a call can take a scale of its result."""
    call, name, values = found
    if not _is_float(call):
        return None
    if name in _CONVOLUTIONS:
        simple = _is_simple(call, values)
        layout = values["out_layout"] or values["data_layout"]
        return Message(layout.find("C")) if simple else None
    if name == "nn.dense":
        return Message(call.ty.ndim - 1) if call.args[1].ty.dtype == call.ty.dtype else None
    if name in _LIMITS:
        inner = message(call.args[0])
        return inner and Message(inner.axis, True, inner.depth + 1)
    if name not in _SUMS:
        return None
    left, right = (message(arg) for arg in call.args)
    if left and right:
        same = left.axis == right.axis and call.args[0].ty.ndim == call.args[1].ty.ndim
        deeper = max(left.depth, right.depth) + 1
        return Message(left.axis, left.positive or right.positive, deeper) if same else None
    for inner, data, other in ((left, *call.args), (right, *reversed(call.args))):
        if inner and _fits(other, data, inner.axis):
            return Message(inner.axis, inner.positive, inner.depth + 1)
    return None


def fold_forward(body: relax.Expr) -> relax.Expr:
    """Fold each constant scale before layers into those layers.

    Parameters
    ----------
    body : tvm.relax.Expr
        A graph.

    Returns
    -------
    tvm.relax.Expr
        The graph without the multiplications that could be folded. All that a scale's product is
        used for has to take the scale.
    """
    order = list(graph.post_order(body))
    demands: dict[int, Message | None] = {key(body): None}
    for node in reversed(order):
        found = _written(node)
        asked = _asked(found, demands[key(node)]) if found is not None else {}
        for place, child in enumerate(graph.children(node)):
            wanted = asked.get(place) if found is not None else None
            first = key(child) not in demands
            demands[key(child)] = wanted if first else _both(demands[key(child)], wanted)
    scales: dict[int, relax.Expr] = {}
    done: dict[int, relax.Expr] = {}
    for node in order:
        found = _written(node)
        new = [done[key(child)] for child in graph.children(node)]
        carried = [scales.get(key(child)) for child in graph.children(node)]
        wanted = demands[key(node)]
        if found is not None and any(scale is not None for scale in carried):
            new = _taken(found, new, carried)
            if not _takes(found[1]):
                scales[key(node)] = next(scale for scale in carried if scale is not None)
        elif found is not None and found[1] == "multiply" and wanted is not None:
            for place in (0, 1):
                data, scale = node.args[place], node.args[1 - place]
                if _fits(scale, data, wanted.axis) and _divides(scale) and _allowed(scale, wanted):
                    scales[key(node)], done[key(node)] = scale, new[place]
                    break
        if key(node) not in done:
            done[key(node)] = graph.rebuild(node, new)
    return done[key(body)]


def _asked(found: Written, demand: Message | None) -> dict[int, Message]:
    """Say which operands of a call may come without their scale, by their places."""
    call, name, values = found
    if not _is_float(call):
        return {}
    if name in _CONVOLUTIONS:
        return {0: Message(values["data_layout"].find("C"))} if _is_simple(call, values) else {}
    if name == "nn.dense":
        same = call.args[1].ty.dtype == call.args[0].ty.dtype
        return {0: Message(call.args[0].ty.ndim - 1)} if same else {}
    if demand is None:
        return {}
    if name in _LIMITS:
        return {0: Message(demand.axis, True)}
    if name in _SUMS:
        pairs = enumerate((call.args, call.args[::-1]))
        return {
            place: demand
            for place, (data, other) in pairs
            if data.ty.ndim == call.ty.ndim
            and isinstance(other, ir.GenericConst)
            and _fits(other, data, demand.axis)
        }
    return {}


def _taken(
    found: Written, new: Sequence[relax.Expr], carried: Sequence[relax.Expr | None]
) -> list[relax.Expr]:
    """Give a call's new operands, where some come without their scale."""
    _, name, values = found
    scale = next(scale for scale in carried if scale is not None)
    if _takes(name):
        depthwise = name in _CONVOLUTIONS and values["groups"] > 1
        axis = _out_axis(name, values) if depthwise else _in_axis(name, values)
        return [new[0], _on_weight(new[1], scale, axis)]
    if name in _SUMS:  # (x * s) + b is (x + b / s) * s
        return [
            _divided(one, scale) if mine is None else one
            for one, mine in zip(new, carried, strict=True)
        ]
    return list(new)


def _takes(name: str) -> bool:
    return name in _CONVOLUTIONS or name == "nn.dense"


def _both(one: Message | None, two: Message | None) -> Message | None:
    if one is None or two is None or one.axis != two.axis:
        return None
    return Message(one.axis, one.positive or two.positive)


Written = tuple[relax.Call, str, dict[str, Any]]


def _written(expr: relax.Expr) -> Written | None:
    """Give a call with Relay's name of its operator and attributes."""
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, ir.Op) or not graph.known(expr):
        return None
    if any(not graph.known(arg) for arg in expr.args):
        return None
    found = table.written(expr)
    return None if found is None else (expr, found[0].name, found[2])


def _uses(body: relax.Expr) -> Counter[int]:
    counts: Counter[int] = Counter({key(body): 1})
    for node in graph.post_order(body):
        counts.update(key(child) for child in graph.children(node))
    return counts


def _is_float(call: relax.Call) -> bool:
    types = [call.ty, call.args[0].ty]
    return all(isinstance(one, relax.TensorType) and "float" in str(one.dtype) for one in types)


def _is_simple(call: relax.Call, values: dict[str, Any]) -> bool:
    """Say whether a convolution has plain layouts, all channels or each alone, and one dtype."""
    kernel, weight = values["kernel_layout"], call.args[1]
    shape = _shape(weight)
    layouts = values["data_layout"] + kernel + (values["out_layout"] or "")
    if not layouts.isalpha() or not layouts.isupper() or shape is None:
        return False
    depthwise = shape[kernel.find("I")] == 1 and shape[kernel.find("O")] == values["groups"]
    return (values["groups"] == 1 or depthwise) and bool(weight.ty.dtype == call.ty.dtype)


def _out_axis(name: str, values: dict[str, Any]) -> int:
    return 0 if name == "nn.dense" else int(values["kernel_layout"].find("O"))


def _in_axis(name: str, values: dict[str, Any]) -> int:
    return 1 if name == "nn.dense" else int(values["kernel_layout"].find("I"))


def _shape(expr: relax.Expr) -> list[int] | None:
    """Give a tensor's sizes where all are known."""
    shape = getattr(expr.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    sizes = list(shape.values)
    return [int(size) for size in sizes] if all(isinstance(s, tirx.IntImm) for s in sizes) else None


def _fits(scale: relax.Expr, data: relax.Expr, axis: int) -> bool:
    """Say whether a tensor holds one number for each place on an axis of another."""
    shape, sizes = _shape(scale), getattr(data.ty, "shape", None)
    rank = data.ty.ndim
    if shape is None or not isinstance(sizes, relax.ShapeExpr) or not rank - axis <= len(shape):
        return False
    if len(shape) > rank or str(scale.ty.dtype) != str(data.ty.dtype):
        return False
    whole = [1] * (rank - len(shape)) + shape
    channels = sizes.values[axis]
    alone = all(size == 1 for place, size in enumerate(whole) if place != axis)
    return alone and isinstance(channels, tirx.IntImm) and whole[axis] == int(channels)


def _allowed(scale: relax.Expr, wanted: Message) -> bool:
    """Say whether a scale is positive for certain, where it has to be."""
    if not wanted.positive:
        return True
    return isinstance(scale, ir.GenericConst) and bool((scale.value.numpy() > 0).all())


def _divides(scale: relax.Expr) -> bool:
    if not isinstance(scale, ir.GenericConst):
        return False
    size = np.abs(scale.value.numpy().astype("float64"))
    return bool((np.isfinite(size) & (size > _SMALLEST)).all())


def _on_weight(weight: relax.Expr, scale: relax.Expr, axis: int) -> relax.Expr:
    """Multiply weights by the scale of one of their axes."""
    shape = [1] * weight.ty.ndim
    shape[axis] = int(np.prod(_shape(scale) or [1]))
    if isinstance(scale, ir.GenericConst):
        turned = _const(scale.value.numpy().reshape(shape), scale)
    else:
        turned = graph.typed(relax.op.reshape(scale, shape))
    return _multiplied(weight, turned)


def _multiplied(one: relax.Expr, scale: relax.Expr) -> relax.Expr:
    if isinstance(one, ir.GenericConst) and isinstance(scale, ir.GenericConst):
        return _const(one.value.numpy() * scale.value.numpy(), one)
    return graph.typed(relax.op.multiply(one, scale))


def _divided(one: Any, scale: Any) -> relax.Expr:
    return _const(one.value.numpy() / scale.value.numpy(), one)


def _const(value: np.ndarray, like: relax.Expr) -> relax.Expr:
    return relax.const(value.astype(str(like.ty.dtype)), str(like.ty.dtype))
