"""Calls of the operator table with what they have to give, compiled and run all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tests.ir.reference import made
from tvmlab.ir import graph


@dataclass(eq=False)
class Case:
    """One call, and what it has to give: an array, or a tuple of them."""

    name: str
    operands: tuple[Any, ...]
    want: Any
    attributes: dict[str, Any] = field(default_factory=dict)

    def arrays(self) -> list[np.ndarray]:
        """List what the call takes at run time."""
        flat = [y for x in self.operands for y in (x if isinstance(x, list) else [x])]
        return [np.asarray(x, order="C") for x in flat if not isinstance(x, relax.Expr)]

    def read(self, params: Sequence[relax.Var]) -> relax.Expr:
        """Make the call over parameters that stand for `arrays`."""
        left = iter(params)
        operands: list[relax.Expr] = []
        for x in self.operands:
            if isinstance(x, list):
                operands.append(relax.Tuple([next(left) for _ in x]))
            else:
                operands.append(x if isinstance(x, relax.Expr) else next(left))
        return made(self.name, *operands, **self.attributes)


def case(name: str, *operands: Any, want: Any, **attributes: Any) -> Case:
    """Say a call; an operand that is a list stands for a tuple, an expression for itself."""
    return Case(name, operands, want, attributes)


def names(cases: Sequence[Case]) -> list[str]:
    return [f"{i}_{one.name}" for i, one in enumerate(cases)]


def module(cases: Sequence[Case]) -> tvm.IRModule:
    """Make a module whose ``main`` gives a tuple of the results of all cases."""
    params = [
        [
            relax.Var(f"{one.name}_{i}", relax.TensorType(x.shape, str(x.dtype)))
            for i, x in enumerate(one.arrays())
        ]
        for one in cases
    ]
    calls = [one.read(given) for one, given in zip(cases, params, strict=True)]
    flat = [param for given in params for param in given]
    return tvm.IRModule({"main": graph.to_anf(flat, relax.Tuple(calls))})


def inputs(cases: Sequence[Case]) -> list[np.ndarray]:
    return [x for one in cases for x in one.arrays()]


def results(cases: Sequence[Case]) -> list[Any]:
    """Give what all cases give, compiled by TVM alone (so by the rows' legalizations)."""
    found = _RESULTS.get(id(cases))
    if found is None:
        vm = relax.VirtualMachine(tvm.compile(module(cases), "llvm"), tvm.cpu())
        given = vm["main"](*[tvm.runtime.tensor(x) for x in inputs(cases)])
        found = _RESULTS[id(cases)] = [_numpy(part) for part in given]
    return found


def _numpy(part: Any) -> Any:
    return part.numpy() if hasattr(part, "numpy") else tuple(_numpy(field) for field in part)


def agree(one: Case, found: Any) -> None:
    """Assert that a result is the wanted one: floats to rounding, the rest exactly."""
    if isinstance(one.want, tuple):
        assert isinstance(found, tuple)
        assert len(found) == len(one.want)
    pairs = zip(found, one.want, strict=True) if isinstance(found, tuple) else [(found, one.want)]
    for got, want in pairs:
        assert (got.shape, got.dtype) == (np.shape(want), np.asarray(want).dtype)
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=3e-6, atol=3e-6)
        else:
            np.testing.assert_array_equal(got, want)


_RESULTS: dict[int, list[Any]] = {}
