"""Calls of the operator table: made, written back, and run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

import tvmlab.ir.operators  # noqa: F401  fills the table
from tvmlab.ir import graph, table


def var(*shape: Any, dtype: str = "float32", name: str = "x") -> relax.Var:
    """Make a variable of a shape."""
    return relax.Var(name, relax.TensorType(list(shape), dtype))


def unknown(name: str = "x") -> relax.Var:
    """Make a variable of which nothing is known but that it is a tensor."""
    return relax.Var(name, relax.TensorType(dtype="", ndim=-1))


def made(name: str, *operands: relax.Expr, **attributes: Any) -> relax.Call:
    """Make a typed call by a row, as the reader does."""
    row = table.find(name)
    assert row is not None, name
    return graph.typed(row.to_relax(operands, table.complete_attributes(row, attributes)))


def back_and_forth(call: relax.Call) -> dict[str, Any]:
    """Write a call and read it again: it has to be the same one. Gives Relay's attributes."""
    found = table.written(call)
    assert found is not None, call
    row, operands, attributes = found
    assert list(attributes) == [attribute.name for attribute in row.attributes]
    assert attributes == table.complete_attributes(row, attributes)
    again = graph.typed(row.to_relax(operands, attributes))
    assert tvm_ffi.structural_equal(again, call, map_free_vars=True), (again, call)
    second = table.written(again)
    assert second is not None
    assert (second[0], second[2]) == (row, attributes)
    return attributes


def run(call: relax.Call, params: Sequence[relax.Var], *values: np.ndarray) -> Any:
    """Compile and run a call over its parameters."""
    module = tvm.IRModule({"main": graph.to_anf(params, call)})
    machine = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    out = machine["main"](*[tvm.runtime.tensor(value) for value in values])
    if isinstance(out, tvm_ffi.Array):
        return [part.numpy() for part in out]
    return out.numpy()
