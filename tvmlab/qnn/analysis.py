"""Analyses that list the operators of a quantized module that remain in float, and the reasons."""

from __future__ import annotations

from typing import NamedTuple

from tvm import ir, relax

from ..ir.graph import no_collection
from .transform import reading
from .transform.fake_quantization import RULES, Rewriter, rounding_of

__all__ = ["FloatOperator", "float_operators"]


class FloatOperator(NamedTuple):
    """An operator that a quantized network computes in floats.

    The fields are the operator's name, such as ``"nn.softmax"``, the variable of its result, the
    reason why it is float, and the name of its function.
    """

    operator: str
    binding: str
    reason: str
    function: str


def float_operators(mod: ir.IRModule) -> list[FloatOperator]:
    """List the operators computed in floats between the first quantize and the last dequantize.

    An operator is between them if it depends on a dequantized value other than a constant, and a
    quantize depends on its result, directly or through other float operators.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        A quantized network, before or after `tvmlab.qnn.transform.FakeQuantizationToInteger`.

    Returns
    -------
    list of FloatOperator
        In the order of the bindings. Before the pass, the list contains every operator; the reason
        of an operator that the pass would compute in integers is that it has an integer form.

    Raises
    ------
    InputError
        If a scale or zero point is invalid, as in the pass.
    """
    found = []
    rounding = rounding_of(mod)
    with no_collection():
        for name, function in mod.functions_items():
            if isinstance(function, relax.Function):
                found += _of_function(function, name.name_hint, rounding)
    return found


def _of_function(function: relax.Function, name: str, rounding: str) -> list[FloatOperator]:
    every, rewriter = list(reading.bindings(function.body)), Rewriter(rounding)
    after = rewriter.function(function)
    left = {var for var, value in reading.bindings(after.body) if reading.operator(value)}
    between, found = _between(every), []
    for var, value in every:
        called = reading.operator(value)
        if var not in between or called in ("", *reading.QUANTIZES, *reading.DEQUANTIZES):
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


def _between(every: list[tuple[relax.Var, relax.Expr]]) -> set[relax.Var]:
    """Return the float values that depend on a dequantize and that a quantize depends on.

    A dequantize of a constant, such as a weight, does not count.
    """
    after, before = set[relax.Var](), set[relax.Var]()
    for var, value in every:
        if reading.operator(value) in reading.DEQUANTIZES:
            if not isinstance(value.args[0], ir.GenericConst):
                after.add(var)
        elif _is_float(var.ty) and after.intersection(relax.analysis.free_vars(value)):
            after.add(var)
    for var, value in reversed(every):
        called = reading.operator(value)
        if called in reading.QUANTIZES or (var in before and called not in reading.DEQUANTIZES):
            before.update(read for read in relax.analysis.free_vars(value) if _is_float(read.ty))
    return after & before


def _is_float(ty: ir.Type) -> bool:
    if isinstance(ty, relax.TupleType):
        return any(map(_is_float, ty.fields))
    return isinstance(ty, relax.TensorType) and "float" in str(ty.dtype)
