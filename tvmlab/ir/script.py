"""Names for tvmlab's operators in TVMScript, which reads ``R.qnn.conv2d(...)`` as TVM prints it.

TVMScript's reader looks for ``R.NAME`` in the module `tvm.relax.script.parser`, which has TVM's own
operators. This module adds namespaces beside them and replaces nothing of TVM's.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import tvm.relax.script
from tvm import relax

Make = Callable[..., relax.Expr]

# What a script calls R: what the reader takes by itself, and what `tvm.script.relax` is.
_R = (tvm.relax.script.parser, tvm.relax.script)


class Namespace(ModuleType):
    """A part of a name in TVMScript, such as ``R.qnn``; filled by `add`."""

    def __init__(self, name: str, filled_by: str = "") -> None:
        super().__init__(name, f"Operators of tvmlab in TVMScript: {name}.")
        self._filled_by = filled_by

    def __getattr__(self, name: str) -> Any:
        if self._filled_by and not name.startswith("__"):
            importlib.import_module(self._filled_by)
            if name in vars(self):
                return vars(self)[name]
        raise AttributeError(f"TVMScript has no {self.__name__}.{name}")


_SPACES: dict[str, Namespace] = {}


def namespace(name: str, filled_by: str = "") -> Namespace:
    """Make ``R.NAME``, or find it; a name of TVM's own stays what it is.

    The module `filled_by` adds the operators; it is imported when a script names one.
    """
    if name not in _SPACES:
        made = _SPACES[name] = Namespace(f"R.{name}", filled_by)
        for module in _R:
            if not hasattr(module, name):
                setattr(module, name, made)
    return _SPACES[name]


def add(name: str, make: Make) -> None:
    """Let TVMScript write ``R.NAME`` for an operator, such as ``"relax.qnn.requantize"``.

    ``make(*operands, **attributes)`` makes the call.
    """
    _, first, *middle, last = name.split(".")
    space = namespace(first)
    for part in middle:
        space = vars(space).setdefault(part, Namespace(f"{space.__name__}.{part}"))

    def say(*operands: Any, **attributes: Any) -> relax.Expr:
        return make(*map(_expression, operands), **attributes)

    say.__name__ = say.__qualname__ = last
    say.__doc__ = f"Call {name}: its operands in order, its attributes by their names."
    setattr(space, last, say)


def _expression(operand: Any) -> Any:
    """Make a tuple of operands that a script writes in parentheses."""
    if isinstance(operand, (tuple, list)):
        return relax.Tuple([_expression(field) for field in operand])
    return operand
