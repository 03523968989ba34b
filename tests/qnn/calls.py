"""Quantized operators: as calls of the dialect, and as the reference computes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

import tvmlab
from tvmlab.qnn import arithmetic, op

Array = np.ndarray


@dataclass
class Case:
    """An operator with its operands.

    Attributes
    ----------
    name : str
        As in `tvmlab.qnn.op`.
    operands : list
        Arrays, or lists of arrays where the operator takes several.
    given : tuple of int
        The operands that are parameters of the function; the others are constants.
    attributes : dict
        What is passed by name.
    within : float
        By how much a result may differ, relative to its magnitude and a step; 0 compares bits.
    """

    name: str
    operands: list[Any]
    given: tuple[int, ...] = (0,)
    attributes: dict[str, Any] = field(default_factory=dict)
    within: float = 0.0

    def parameters(self) -> list[Array]:
        """List the arrays that are given at run time."""
        return [x for i in self.given for x in _listed(self.operands[i])]

    def relax(self, variables: Sequence[relax.Var]) -> relax.Call:
        """Make the call."""
        left, made = list(variables), []
        for i, operand in enumerate(self.operands):
            whole = isinstance(operand, list)
            exprs = [
                left.pop(0) if i in self.given else relax.const(x, str(x.dtype))
                for x in _listed(operand)
            ]
            made.append(exprs if whole else exprs[0])
        return self._called(op, made)

    def expected(self) -> Array:
        """Compute it by the reference."""
        return self._called(arithmetic, list(self.operands))

    def _called(self, functions: Any, operands: list[Any]) -> Any:
        named = dict(self.attributes)
        if "alpha" in named:  # Relay has it in the second place
            operands.insert(1, named.pop("alpha"))
        return getattr(functions, self.name)(*operands, **named)

    def __str__(self) -> str:
        """Say what is needed to find a difference."""
        parts = [
            f"{x.dtype}{list(x.shape)}" + (f"={x.tolist()}" if x.size < 4 else "")
            for operand in self.operands
            for x in _listed(operand)
        ]
        return f"{self.name}({', '.join(parts)}, {self.attributes}), given {self.given}"


def _listed(operand: Any) -> list[Array]:
    return operand if isinstance(operand, list) else [operand]


def module(cases: Sequence[Case]) -> tuple[tvm.IRModule, list[Array]]:
    """Put operators side by side in one function; give its inputs as well."""
    builder, variables, arrays = relax.BlockBuilder(), [], []
    for i, case in enumerate(cases):
        own = case.parameters()
        arrays += own
        variables.append(
            [
                relax.Var(f"x{i}_{j}", relax.TensorType(x.shape, str(x.dtype)))
                for j, x in enumerate(own)
            ]
        )
    with builder.function("main", [var for each in variables for var in each]):
        with builder.dataflow():
            results = [
                builder.emit_output(case.relax(own))
                for case, own in zip(cases, variables, strict=True)
            ]
        builder.emit_func_output(relax.Tuple(results))
    return builder.get(), arrays


def _wrong(found: Array, expected: Array, within: float) -> Array:
    """Say which results differ by more than is allowed."""
    if not within:
        return np.asarray(found != expected)
    real = expected.astype(np.float64)
    return np.asarray(np.abs(found - real) > 1 + within * np.abs(real))


def differences(cases: Sequence[Case], **options: Any) -> list[str]:
    """Compile operators and say which give other bits than the reference."""
    mod, arrays = module(cases)
    found = tvmlab.compile(mod, **options)(*arrays)
    troubles = []
    for case, result in zip(cases, found, strict=True):
        expected = case.expected()
        if (result.dtype, result.shape) != (expected.dtype, expected.shape):
            troubles.append(
                f"{result.dtype}{result.shape}, not {expected.dtype}{expected.shape}: {case}"
            )
        elif (wrong := _wrong(result, expected, case.within)).any():
            troubles.append(
                f"{wrong.sum()} of {wrong.size}: {result[wrong][:3]}, not {expected[wrong][:3]}: "
                f"{case}"
            )
    return troubles
