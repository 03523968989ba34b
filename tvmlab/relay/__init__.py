"""The text format, names and passes of Relay on top of Relax.

Names are those of ``tvm.relay``; the objects that they make are Relax objects. Everything but
the operators is imported on its first use.
"""

from __future__ import annotations

import importlib
import sys
import typing

from ..ir import gone, table
from ..qnn import rows as _  # noqa: F401 (fills the table with the quantized operators)
from . import aliases, expr, op, target

_SOURCES = {
    ".": """analysis build_module dataflow_pattern expr expr_functor frontend graph_executor
        module op testing transform vm""",
    ".build_module": "build create_executor load_module",
    ".expr": """Call Constant Expr FuncType Function GlobalVar If Let Op TensorType Tuple
        TupleGetItem TupleType TupleWrapper Type Var const scalar_type var""",
    ".expr_functor": "ExprFunctor ExprMutator ExprVisitor",
    ".graph_executor": "GraphModule",
    ".module": "IRModule bind from_expr parse parse_expr",
    ".transform": "ModulePass Pass PassContext PassInfo Sequential function_pass module_pass",
    "..ir.text.printer": "astext",
    "..ir.text.reader": "fromtext",
    "tvm.runtime": "load_param_dict save_param_dict",
}
# The names with the modules that define them, and their names there.
_NAMES = {
    **{name: (source, name) for source, names in _SOURCES.items() for name in names.split()},
    "Any": (".expr", "Any_"),
    "build_config": (".transform", "PassContext"),
}
__all__ = [*_NAMES]

aliases.add_aliases()
sys.meta_path.append(gone.ImportFinder())
# In Relay these names were in separate modules.
ty = sys.modules[f"{__name__}.ty"] = expr
function = sys.modules[f"{__name__}.function"] = expr
backend = sys.modules[f"{__name__}.backend"] = target


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> typing.Any:
    """Return a name of the table, or an operator, or raise the error for a removed name."""
    found: typing.Any
    if name in _NAMES:
        source, there = _NAMES[name]
        if source == ".":
            return importlib.import_module(f".{name}", __name__)
        found = getattr(importlib.import_module(source, __name__), there)
    elif f"{__name__}.{name}" in sys.modules:  # operators: nn, qnn, image
        found = sys.modules[f"{__name__}.{name}"]
    else:
        gone.raise_gone("", name)
        try:
            found = getattr(op, name)
        except gone.RelayNameError as error:
            if gone.is_operator(name):
                raise
            raise gone.missing("", name, {*__all__, *table.names()}) from error
    globals()[name] = found
    return found
