"""Relay lives on: its text, its names and its passes, over today's Relax.

Names are those of ``tvm.relay``; what they make are Relax's objects. What needs an optional package
(``lark`` for text, a model format's own for a frontend) is imported when it is first used.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from ..ir import gone
from ..qnn import rows as _  # noqa: F401 (fills the table with the quantized operators)
from . import aliases, analysis, expr, expr_functor, function, op, transform, ty
from .expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Op,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
    const,
    var,
)
from .expr_functor import ExprFunctor, ExprMutator, ExprVisitor
from .module import IRModule, bind, from_expr
from .transform import (
    ModulePass,
    Pass,
    PassContext,
    PassInfo,
    Sequential,
    function_pass,
    module_pass,
)
from .ty import Any_ as Any
from .ty import FuncType, TensorType, TupleType, Type, is_dynamic, scalar_type

if TYPE_CHECKING:
    import typing

    from ..ir.text.printer import astext
    from ..ir.text.reader import fromtext
    from . import backend, build_module, dataflow_pattern, frontend, graph_executor, testing
    from .build_module import build, create_executor, load_module, optimize
    from .graph_executor import GraphModule

__all__ = [
    "Any",
    "Call",
    "Constant",
    "Expr",
    "ExprFunctor",
    "ExprMutator",
    "ExprVisitor",
    "FuncType",
    "Function",
    "GlobalVar",
    "GraphModule",
    "IRModule",
    "If",
    "Let",
    "Module",
    "ModulePass",
    "Op",
    "Pass",
    "PassContext",
    "PassInfo",
    "Sequential",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "TupleWrapper",
    "Type",
    "Var",
    "analysis",
    "astext",
    "backend",
    "bind",
    "build",
    "build_module",
    "const",
    "create_executor",
    "dataflow_pattern",
    "expr",
    "expr_functor",
    "from_expr",
    "fromtext",
    "frontend",
    "function",
    "function_pass",
    "graph_executor",
    "is_dynamic",
    "load_module",
    "load_param_dict",
    "module_pass",
    "op",
    "optimize",
    "save_param_dict",
    "scalar_type",
    "testing",
    "transform",
    "ty",
    "var",
]

Module = IRModule
aliases.install()

# What is imported when it is asked for, and from where.
_LATER = {
    "build": ".build_module",
    "create_executor": ".build_module",
    "load_module": ".build_module",
    "optimize": ".build_module",
    "GraphModule": ".graph_executor",
    "astext": "..ir.text.printer",
    "fromtext": "..ir.text.reader",
    "parse": ".standin.parser",
    "parse_expr": ".standin.parser",
    "load_param_dict": "",
    "save_param_dict": "",
}
_MODULES = {
    *("backend", "build_module", "dataflow_pattern", "frontend", "graph_executor"),
    "testing",
}


def __getattr__(name: str) -> typing.Any:
    """Find a name that is imported late, an operator, or the error for a name that is gone."""
    if name in _LATER and not _LATER[name]:
        import tvm

        return getattr(tvm.runtime, name)
    if name in _LATER:
        module = importlib.import_module(_LATER[name], __name__)
        found = getattr(module, name)
    elif name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    elif f"{__name__}.{name}" in sys.modules:  # operators: nn, qnn, image
        found = sys.modules[f"{__name__}.{name}"]
    else:
        gone.raise_gone("", name)
        try:
            found = getattr(op, name)
        except gone.RelayNameError as error:
            if gone.is_operator(name):
                raise
            known = {*__all__, *_LATER, *_MODULES, *dir(op.op)}
            raise gone.missing("", name, known) from error
    globals()[name] = found
    return found
