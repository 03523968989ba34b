"""Asking a module what of it is still computed in floats, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import tvm
from tvm import ir, relax

from ..ir.collector import no_collection
from .transform.demand import leaves, nested
from .transform.fake_quantization import rounding_of
from .transform.reading import DEQUANTIZES, QUANTIZES, operator, spoken
from .transform.rewrite import Rewriter
from .transform.rules import RULES

__all__ = ["FloatOperator", "float_operators"]


class FloatOperator(NamedTuple):
    """An operator that a quantized network computes in floats.

    Attributes
    ----------
    operator : str
        Its name, such as ``"nn.softmax"``.
    binding : str
        The variable of its result.
    reason : str
        Why it is float.
    function : str
        The function it stands in.
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
        If a scale or zero point is none, as the pass raises.
    """
    found = []
    rounding = rounding_of(mod)
    with no_collection():
        for name, function in mod.functions_items():
            if isinstance(function, relax.Function):
                found += _Between(function, name.name_hint, rounding).operators()
    return found


class _Between:
    """The float operators of one function."""

    def __init__(self, function: relax.Function, name: str, rounding: str) -> None:
        self.name = name
        self.bindings = list(_bindings(function.body))
        self.rewriter = Rewriter(rounding)
        after = self.rewriter.function(function)
        self.left = {var for var, value in _bindings(after.body) if operator(value)}

    def operators(self) -> list[FloatOperator]:
        """List them."""
        after = self._after()
        before = self._before()
        return [
            FloatOperator(
                value.op.name.removeprefix("relax."),
                str(var.name),
                self._reason(var, value),
                self.name,
            )
            for var, value in self.bindings
            if isinstance(value, relax.Call)
            and isinstance(value.op, ir.Op)
            and value.op.name not in (*QUANTIZES, *DEQUANTIZES)
            and var in after
            and var in before
        ]

    def _after(self) -> set[relax.Var]:
        """Find the float values that come from a dequantize of what is not constant."""
        found: set[relax.Var] = set()
        for var, value in self.bindings:
            if operator(value) in DEQUANTIZES:
                if not isinstance(value.args[0], tvm.ir.GenericConst):
                    found.add(var)
            elif _is_float(var) and any(read in found for read in _reads(value)):
                found.add(var)
        return found

    def _before(self) -> set[relax.Var]:
        """Find the float values that a quantize comes from."""
        found: set[relax.Var] = set()
        for var, value in reversed(self.bindings):
            if operator(value) in QUANTIZES or (
                var in found and operator(value) not in DEQUANTIZES
            ):
                found.update(read for read in _reads(value) if _is_float(read))
        return found

    def _reason(self, var: relax.Var, value: relax.Call) -> str:
        """Say why an operator is float."""
        if var not in self.left:
            return "it has an integer form: FakeQuantizationToInteger gives it"
        why = self.rewriter.reasons.get(var)
        if why is not None:
            return why
        if value.op.name not in RULES:
            return f"{spoken(value)} has no integer form"
        return "its result goes to an operator that is float"


def _bindings(body: relax.Expr) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """Give the bindings of a body and of the branches and functions in it, in order."""
    if not isinstance(body, relax.SeqExpr):
        return
    for block in body.blocks:
        for binding in block.bindings:
            value = binding.value
            for inner in nested(value):
                yield from _bindings(inner)
            if isinstance(value, relax.Function):
                yield from _bindings(value.body)
            yield binding.var, value


def _reads(value: relax.Expr) -> list[relax.Var]:
    """Give the variables that a value comes from; of an `if`, what its branches give."""
    if isinstance(value, relax.Call):
        parts = [leaf for arg in value.args for leaf in leaves(arg)]
    elif isinstance(value, relax.TupleGetItem):
        parts = [value.tuple_value]
    elif isinstance(value, relax.If):
        parts = [branch.body for branch in nested(value)]
    else:
        parts = list(leaves(value))
    return [part for part in parts if isinstance(part, relax.Var)]


def _is_float(var: relax.Var) -> bool:
    ty = var.ty
    if isinstance(ty, relax.TupleType):
        return any(_floats(field) for field in ty.fields)
    return _floats(ty)


def _floats(ty: ir.Type) -> bool:
    return isinstance(ty, relax.TensorType) and "float" in str(ty.dtype)
