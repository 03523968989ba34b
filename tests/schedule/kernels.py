"""Operators compiled many in one module, so that a test can afford hundreds of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relax

import tvmlab
from tests.oracles.models import array, as_tuple
from tvmlab.schedule import Summary


class Case:
    """One operator, or a few that fusion joins.

    Attributes
    ----------
    kernels : str
        What the names of the functions to look at have in common.
    rule : str
        The rule that must take these; empty if any rule can.
    given : tuple of str
        The arrays that are parameters, not constants.
    tolerance : float
        Of the relative error.
    """

    kernels: str
    rule: str
    given: tuple[str, ...]
    tolerance: float = 1e-5

    def contents(self) -> dict[str, np.ndarray]:
        """Make the arrays, by name."""
        raise NotImplementedError

    def relax(self, builder: relax.BlockBuilder, values: dict[str, Any]) -> relax.Expr:
        """Write the operator in Relax."""
        raise NotImplementedError

    def reference(self) -> np.ndarray:
        """Compute it in PyTorch."""
        raise NotImplementedError


@dataclass(frozen=True)
class Op(Case):
    """An operator of arrays that are named after their places."""

    label: str
    shapes: tuple[tuple[int, ...], ...]
    build: Callable[..., relax.Expr] = field(repr=False)
    peer: Callable[..., torch.Tensor] = field(repr=False)
    rule: str = ""
    kernels: str = ""
    constants: tuple[int, ...] = ()
    dtype: str = "float32"
    tolerance: float = 1e-5

    @property
    def given(self) -> tuple[str, ...]:
        return tuple(f"x{i}" for i in range(len(self.shapes)) if i not in self.constants)

    def contents(self) -> dict[str, np.ndarray]:
        if self.dtype.startswith("int"):
            random = np.random.default_rng(0)
            arrays = [random.integers(-100, 100, shape, self.dtype) for shape in self.shapes]
        else:
            arrays = [array(*s, seed=i, dtype=self.dtype) for i, s in enumerate(self.shapes)]
        return {f"x{i}": content for i, content in enumerate(arrays)}

    def relax(self, builder: relax.BlockBuilder, values: dict[str, Any]) -> relax.Expr:
        return self.build(*values.values())

    def reference(self) -> np.ndarray:
        return self.peer(*(torch.from_numpy(x) for x in self.contents().values())).numpy()


def module(cases: Sequence[Case]) -> tuple[tvm.IRModule, list[np.ndarray]]:
    """Put operators side by side; give the inputs as well."""
    builder = relax.BlockBuilder()
    parameters, inputs, values = [], [], []
    for i, case in enumerate(cases):
        values.append({})
        for name, content in case.contents().items():
            if name in case.given:
                type_ = relax.TensorType(content.shape, str(content.dtype))
                values[i][name] = relax.Var(f"{name}_{i}", type_)
                parameters.append(values[i][name])
                inputs.append(content)
            else:
                values[i][name] = relax.const(content)
    with builder.function("main", parameters):
        with builder.dataflow():
            results = [
                builder.emit_output(case.relax(builder, v))
                for case, v in zip(cases, values, strict=True)
            ]
        builder.emit_func_output(relax.Tuple(results) if len(results) > 1 else results[0])
    return builder.get(), inputs


def wrong(cases: Sequence[Case], **options: Any) -> list[str]:
    """Say what is wrong with each operator; nothing where all is well."""
    try:
        mod, inputs = module(cases)
        run = tvmlab.compile(mod, **options)
        results = as_tuple(run(*inputs))
        troubles = _troubles(cases, run.summary(), results)
    except Exception as error:
        troubles = [repr(error)]
    if not troubles or len(cases) == 1:
        return [f"{case}: {trouble}" for case in cases for trouble in troubles]
    # Which of them it is shows best when each is alone.
    alone = [trouble for case in cases for trouble in wrong([case], **options)]
    return alone or [f"only together: {troubles}"]


def _troubles(cases: Sequence[Case], summary: Summary, results: Sequence[np.ndarray]) -> list[str]:
    troubles = [f"unscheduled: {kernel}" for kernel in summary.unscheduled]
    raised = [kernel for kernel in summary.kernels if kernel.rule and kernel.reason]
    troubles += [f"a rule raised: {kernel}" for kernel in raised]
    for name in {case.kernels for case in cases if case.rule}:
        taken = {kernel.rule for kernel in summary.kernels if name in kernel.name}
        # An empty rule stands for any rule.
        wanted = {case.rule for case in cases if case.kernels == name}
        if not wanted - {""} <= taken or ("" not in wanted and taken != wanted):
            troubles.append(f"{name}: scheduled by {taken}")
    for case, result in zip(cases, results, strict=True):
        expected = case.reference()
        if result.shape != expected.shape or result.dtype.kind != expected.dtype.kind:
            troubles.append(f"{result.dtype}{result.shape}, not {expected.dtype}{expected.shape}")
            continue
        if not case.tolerance:
            if not np.array_equal(result, expected):
                troubles.append(f"{(result != expected).sum()} of {result.size} numbers differ")
            continue
        error = np.abs(result - expected).max() / max(1.0, np.abs(expected).max())
        if not error <= case.tolerance:
            troubles.append(f"relative error {error}")
    return troubles
