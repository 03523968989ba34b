"""Relay's ``FakeQuantizationToInteger``, with rules for operators that scripts can register.

The rules of `tvmlab.qnn.transform` come first. They leave an operator in float if its integer form
is less exact, has no rule there, or has a script's rule. Then a quantize whose operators all have
a rule here, or one of the script, becomes integers as in Relay, with Relay's rounding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from ..ir import graph, table
from ..ir.module import infer_type
from ..qnn.transform import fake_quantization
from . import op
from .expr import const

Rule = Callable[[Any, Any], Any]
_QUANTIZE, _DEQUANTIZE = "relax.qnn.quantize", "relax.qnn.dequantize"


class TensorAffineType(NamedTuple):
    """The meaning of integers: real values are ``(integers - zero_point) * scale``."""

    scale: Any
    zero_point: Any
    dtype: str
    axis: int = -1


class _TypeMap(dict[Any, TensorAffineType]):
    """The type of each expression; before its rule, an operator has the type of the quantize."""

    root: Any = None  # the operand of the quantize


def register(op_name: str, func: Rule | None = None, level: int = 10, **how: bool) -> Any:
    """Register a rule of a script; with ``optional=True``, one that a pass must name.

    ``func(expr, type_map)`` returns integers and their `TensorAffineType`. The operands of `expr`
    are integers already. The last rule is used, whatever its `level`. Without `func`, returns a
    decorator.
    """
    if func is None:
        return lambda func: register(op_name, func, level, **how)
    (_OPTIONAL if how.get("optional") else _RULES)[op_name] = func
    return func


def rules_for(optional_qnn_ops: Sequence[str]) -> dict[str, Rule]:
    """Return Relay's rules and those of the script, by Relay's names."""
    return {**_RULES, **{name: _OPTIONAL[name] for name in optional_qnn_ops if name in _OPTIONAL}}


def convert(func: relax.Function, rules: Mapping[str, Rule]) -> relax.Function:
    """Apply rules to the operators before each quantize, if all of them have a rule."""

    def change(_: relax.Expr, after: relax.Expr) -> relax.Expr:
        # As in Relay, a rule refuses an operator with any error.
        with contextlib.suppress(Exception):
            return _integers(after, rules) if graph.is_call(after, _QUANTIZE) else after
        return after

    body = graph.transform(graph.inline_bindings(func.body), change)
    return relax.Function(func.params, body, func.ret_ty, attrs=func.attrs)


@contextlib.contextmanager
def only(rules: Mapping[str, Rule]) -> Iterator[None]:
    """Leave out the rules of `tvmlab.qnn.transform` for operators with rules of the script."""
    names = [name for name, rule in rules.items() if rule.__module__ != __name__]
    all_rules = dict(fake_quantization.RULES)
    for row in map(table.find, names):
        fake_quantization.RULES.pop(row.relax if row else "", None)
    try:
        yield
    finally:
        fake_quantization.RULES.update(all_rules)


def _integers(quantize: relax.Call, rules: Mapping[str, Rule]) -> relax.Expr:
    """Apply the rules from the dequantizes up to a quantize."""
    data, scale, zero = quantize.args
    wanted = TensorAffineType(scale, zero, str(quantize.attrs["out_dtype"]))
    types, made = _TypeMap(), dict[int, relax.Expr]()
    for node, parts in graph.walk(data, _parts):
        value = node
        if graph.is_call(node, _DEQUANTIZE):
            value, axis = node.args[0], int(node.attrs["axis"])
            given = TensorAffineType(node.args[1], node.args[2], str(value.ty.dtype), axis)
            if not _equal(types.setdefault(value, given), given):
                raise NotImplementedError("integers have two scales or zero points")
        elif isinstance(node, relax.Call):
            rule, operands = rules[_written(node)[0].name], [made[graph.key(one)] for one in parts]
            call = relax.Call(node.op, operands, node.attrs, node.ty_args)
            relax.expr._update_type(call, node.ty)  # the attributes of Relay need a type
            types[call], types.root = wanted, call if node.same_as(data) else None
            value, type_ = rule(call, types)
            if value.same_as(call):
                value = infer_type(relax.Call(node.op, operands, node.attrs, node.ty_args))
            types[value] = type_
        made[graph.key(node)] = value
    own = types[value]
    if own.dtype == wanted.dtype and _equal(own, wanted):
        return value
    return op.qnn.requantize(value, *own[:2], scale, zero, out_dtype=wanted.dtype, axis=own.axis)


def _parts(node: relax.Expr) -> list[relax.Expr]:
    return [] if graph.is_call(node, _DEQUANTIZE) else graph.children(node)


def _written(call: relax.Call) -> tuple[table.Operator, Sequence[relax.Expr], dict[str, Any]]:
    found = table.written(call)
    assert found is not None, "Relay has no form for the call"
    return found


def _equal(one: TensorAffineType, other: TensorAffineType) -> bool:
    pairs = zip(one[:2], other[:2], strict=True)
    return all(np.allclose(a.value.numpy(), b.value.numpy(), atol=0) for a, b in pairs)


# Relay's rules


def _same(expr: relax.Call, types: _TypeMap) -> tuple[relax.Expr, TensorAffineType]:
    """Compute an operator that moves or compares values from the integers."""
    own = types[expr.args[0]]
    if own.scale.ty.ndim or own.zero_point.ty.ndim:
        raise NotImplementedError("the operand has several scales or zero points")
    return expr, own


def _avg_pool2d(expr: relax.Call, types: _TypeMap) -> tuple[relax.Expr, TensorAffineType]:
    _, operands, values = _written(expr)
    own = types[expr.args[0]]
    out = types[expr] if types.root is expr else own
    made = op.qnn.avg_pool2d(*operands, *own[:2], *out[:2], **values)
    return made, out._replace(dtype=str(made.ty.dtype))


def _conv2d(expr: relax.Call, types: _TypeMap) -> tuple[relax.Expr, TensorAffineType]:
    _, operands, values = _written(expr)
    x, weight = (types[arg] for arg in expr.args)
    del values["out_dtype"]
    pair = (x.zero_point, weight.zero_point, x.scale, weight.scale)
    made = op.qnn.conv2d(*operands, *pair, **values)
    scale = x.scale.value.numpy() * weight.scale.value.numpy()
    axis = (values["out_layout"] or values["data_layout"]).index("C")
    zero = const(np.zeros_like(scale, "int32"))
    return made, TensorAffineType(const(scale), zero, str(made.ty.dtype), axis)


def _binary(name: str) -> Rule:
    def rule(expr: relax.Call, types: _TypeMap) -> tuple[relax.Expr, TensorAffineType]:
        found = [types.get(arg) for arg in expr.args]
        other = next(type_ for type_ in found if type_)
        left, right = own = [type_ or other for type_ in found]
        assert all(isinstance(arg, GenericConst) for arg in expr.args if arg not in types)
        how = {"out_dtype": other.dtype}
        args = [
            arg if type_ else op.qnn.quantize(arg, other.scale, other.zero_point, **how)
            for arg, type_ in zip(expr.args, found, strict=True)
        ]
        out = types[expr] if left.dtype == types[expr].dtype else left
        wide = all(one.dtype == "int32" and _equal(one, out) for one in own)
        if name == "add" and wide and not np.any(out.zero_point.value.numpy()):
            return op.add(*args), left
        pairs = (*left[:2], *right[:2], *out[:2])
        return getattr(op.qnn, name)(*args, *pairs, left.axis, right.axis), out

    return rule


def _softmax(expr: relax.Call, types: _TypeMap) -> tuple[relax.Expr, TensorAffineType]:
    _, (data,), values = _written(expr)
    return op.qnn.softmax(data, *types[data][:2], *types[expr][:2], **values), types[expr]


_MOVES = """reshape squeeze strided_slice transpose expand_dims nn.max_pool2d nn.batch_flatten
    max min image.resize2d"""
_BINARY = {"add": "add", "multiply": "mul", "subtract": "subtract"}
# The rules by Relay's names.
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_MOVES.split(), _same),
    **{"nn.avg_pool2d": _avg_pool2d, "nn.conv2d": _conv2d},
    **{name: _binary(short) for name, short in _BINARY.items()},
}
_OPTIONAL: dict[str, Rule] = {"nn.softmax": _softmax}
