"""Small graphs to cut: Relax operators on graphs, marks, and modules of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax

from tvmlab.ir import graph
from tvmlab.ir.partition import compiler_begin, compiler_end

SHAPE = (10, 10)
LEVEL = itertools.count(11)
"""TVM takes an attribute again at another level only."""


def var(name: str, shape: tuple[int, ...] = SHAPE, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))


def variables(names: str) -> list[relax.Var]:
    return [var(name) for name in names.split()]


def op(name: str, *operands: Any, **attributes: Any) -> relax.Call:
    """Call an operator of `tvm.relax.op`, typed, by its name with dots."""
    function: Any = relax.op
    for part in name.split("."):
        function = getattr(function, part)
    return graph.typed(function(*operands, **attributes))


def begin(compiler: str, *operands: relax.Expr) -> list[relax.Call]:
    return [compiler_begin(operand, compiler) for operand in operands]


def marked(compiler: str, name: str, *operands: Any, **attributes: Any) -> relax.Call:
    """Call an operator between marks of its own."""
    inside = [one if is_tuple(one) else compiler_begin(one, compiler) for one in operands]
    return compiler_end(op(name, *inside, **attributes), compiler)


def is_tuple(expr: relax.Expr) -> bool:
    return isinstance(expr, (relax.Tuple, tuple, list))


def module(params: list[relax.Var], body: relax.Expr, **functions: relax.Function) -> ir.IRModule:
    main = graph.to_anf(params, body, {"global_symbol": "main"})
    return ir.IRModule({"main": main, **functions})


def called(function: relax.Function, *args: relax.Expr) -> relax.Call:
    return graph.typed(relax.Call(function, list(args)))


def composite(name: str, params: list[relax.Var], body: relax.Expr) -> relax.Function:
    return graph.to_anf(params, body, {"Composite": name})


class Region:
    """A function that partitioning is to leave."""

    def __init__(
        self, compiler: str, number: int, params: list[relax.Var], body: relax.Expr
    ) -> None:
        self.name = f"tvmgen_default_{compiler}_main_{number}"
        attrs = {"Compiler": compiler, "Codegen": compiler, "Primitive": 1, "Inline": 1}
        self.function = graph.to_anf(params, body, {**attrs, "global_symbol": self.name})
        self.var = ir.GlobalVar(self.name)
        relax.expr._update_type(self.var, self.function.ty)

    def __call__(self, *args: relax.Expr) -> relax.Call:
        return graph.typed(relax.Call(self.var, list(args)))


def partitioned(params: list[relax.Var], body: relax.Expr, *regions: Region) -> ir.IRModule:
    functions = {one.var: one.function for one in regions}
    main = graph.to_anf(params, body, {"global_symbol": "main"})
    return ir.IRModule({ir.GlobalVar("main"): main, **functions})


def same(one: ir.IRModule, other: ir.IRModule) -> None:
    """Check that two modules are the same, and that Relax takes and prints them."""
    tvm.ir.assert_structural_equal(one, other, map_free_vars=True)
    relax.analysis.well_formed(one)
    assert "def main" in one.script()


def names(mod: ir.IRModule) -> set[str]:
    """List the regions' names without what they have in common."""
    prefix = "tvmgen_default_"
    found = (str(one.name_hint) for one in mod.get_global_vars())
    return {name.removeprefix(prefix) for name in found if name.startswith(prefix)}


def supports(compiler: str, *operators: str) -> str:
    """Register, under Relay's names, which operators a compiler takes."""
    for name in operators:
        ir.register_op_attr(name, f"target.{compiler}", lambda call: True, level=next(LEVEL))
    return compiler


def run(mod: ir.IRModule, *arrays: np.ndarray) -> list[np.ndarray]:
    """Run a module with upstream's build."""
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    found = machine["main"](*(tvm.runtime.tensor(one) for one in arrays))
    return [one.numpy() for one in (found if isinstance(found, tvm_ffi.Array) else [found])]
