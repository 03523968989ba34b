"""Asking a module what of it is still computed in floats, and why."""

from __future__ import annotations

from typing import NamedTuple

from tvm import ir, relax

from ..ir.graph import no_collection
from .transform.context import DEQUANTIZES, QUANTIZES, bindings, leaves, operator
from .transform.fake_quantization import RULES, Rewriter, rounding_of

__all__ = ["FloatOperator", "float_operators"]


class FloatOperator(NamedTuple):
    """An operator that a quantized network computes in floats.

    It has the operator's name, such as ``"nn.softmax"``, the variable of its result, the reason why
    it is float, and the name of its function.
    """

    operator: str
    binding: str
    reason: str
    function: str


def float_operators(mod: ir.IRModule) -> list[FloatOperator]:
    """List what is computed in floats between the first quantize and the last dequantize.

    An operator is between if it reads, itself or through other float operators, what was
    dequantized (constants aside), and if a quantize reads its result so.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        A quantized network, before `tvmlab.qnn.transform.FakeQuantizationToInteger` or after.

    Returns
    -------
    list of FloatOperator
        In the order of the bindings. Before the pass these are all, and those that it would compute
        in integers say so.

    Raises
    ------
    InputError
        If a scale or zero point is invalid, as the pass raises.
    """
    found = []
    rounding = rounding_of(mod)
    with no_collection():
        for name, function in mod.functions_items():
            if isinstance(function, relax.Function):
                found += _of_function(function, name.name_hint, rounding)
    return found


def _of_function(function: relax.Function, name: str, rounding: str) -> list[FloatOperator]:
    every, rewriter = list(bindings(function.body)), Rewriter(rounding)
    after = rewriter.function(function)
    left = {var for var, value in bindings(after.body) if operator(value)}
    between, found = _after_dequantize(every) & _before_quantize(every), []
    for var, value in every:
        called = operator(value)
        if var not in between or called in ("", *QUANTIZES, *DEQUANTIZES):
            continue
        called = called.removeprefix("relax.")
        reason = f"{called} has no integer form"
        if f"relax.{called}" in RULES:
            reason = "its result goes to an operator that is float"
        reason = rewriter.reasons.get(var, reason)
        if var not in left:
            reason = "it has an integer form: FakeQuantizationToInteger gives it"
        found.append(FloatOperator(called, str(var.name), reason, name))
    return found


def _after_dequantize(every: list[tuple[relax.Var, relax.Expr]]) -> set[relax.Var]:
    """Find the float values that come from a dequantize of what is not constant."""
    found: set[relax.Var] = set()
    for var, value in every:
        if operator(value) in DEQUANTIZES:
            if not isinstance(value.args[0], ir.GenericConst):
                found.add(var)
        elif _is_float(var.ty) and any(read in found for read in _reads(value)):
            found.add(var)
    return found


def _before_quantize(every: list[tuple[relax.Var, relax.Expr]]) -> set[relax.Var]:
    """Find the float values that a quantize comes from."""
    found: set[relax.Var] = set()
    for var, value in reversed(every):
        called = operator(value)
        if called in QUANTIZES or (var in found and called not in DEQUANTIZES):
            found.update(read for read in _reads(value) if _is_float(read.ty))
    return found


def _reads(value: relax.Expr) -> list[relax.Var]:
    """List the variables that a value comes from."""
    parts = value.args if isinstance(value, relax.Call) else [value]
    if isinstance(value, relax.TupleGetItem):
        parts = [value.tuple_value]
    return [one for part in parts for one in leaves(part) if isinstance(one, relax.Var)]


def _is_float(ty: ir.Type) -> bool:
    if isinstance(ty, relax.TupleType):
        return any(map(_is_float, ty.fields))
    return isinstance(ty, relax.TensorType) and "float" in str(ty.dtype)
