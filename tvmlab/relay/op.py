"""Relay's operators as Python functions, made from the operator table.

``relay.add``, ``relay.nn.conv2d``, ``relay.qnn.op.requantize``: argument order, names and defaults
are Relay's and come from the table's rows, so there is no code here for any one operator.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from ..errors import RelayError, TvmlabError
from ..ir import gone, operators, table
from ..ir.module import explain, infer_type
from ..qnn.config import requantize_config
from . import pattern_table, weights
from .expr import TupleWrapper, as_expr, const

__all__ = ["function", "get", "namespace"]

# Relay's Python function gives the first of several results.
_FIRST_OF = {"nn.dropout"}
# How many results there are where no type tells.
_RESULTS = {"nn.batch_norm": 3, "nn.dropout": 2}
assert operators.__all__, "the table is filled by importing its rows"
_PACKAGE = __name__.rpartition(".")[0]
_NUMBERS = (bool, int, float, np.generic)


def get(name: str) -> ir.Op:
    """Get Relax's operator for Relay's name, such as ``"nn.relu"``.

    Parameters
    ----------
    name : str
        Relay's name.

    Returns
    -------
    tvm.ir.Op

    Raises
    ------
    RelayError
        There is no such operator here.
    """
    row = table.find(name)
    if row is None:
        raise _unknown(name)
    return ir.Op.get(row.relax)


def function(name: str) -> Callable[..., Any]:
    """Make the Python function of an operator.

    Parameters
    ----------
    name : str
        Relay's name of the operator.

    Returns
    -------
    callable
        It takes Relay's arguments, and gives a typed Relax call, or a `TupleWrapper` of one with
        several results.
    """
    row = table.find(name)
    if row is None:
        raise _unknown(name)
    signature = _signature(row)

    def make(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise RelayError(
                f"{error}", where=f"relay.{name}{signature}", fix=f"see help(relay.{name})"
            ) from error
        bound.apply_defaults()
        return _call(row, bound.arguments)

    make.__name__ = make.__qualname__ = name.rpartition(".")[2]
    make.__module__ = __name__
    make.__doc__ = _document(row)
    make.__signature__ = signature  # type: ignore[attr-defined]
    return make


def _signature(row: table.Operator) -> inspect.Signature:
    """Put a row's operands and attributes into the order of Relay's Python function."""
    defaults = {item.name: item.default for item in row.attributes} | (row.defaults or {})
    names = row.signature or (*row.operands, *(item.name for item in row.attributes))
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters, optional = [], False
    for name in names:
        default = defaults.get(name, table.REQUIRED)
        if default is table.REQUIRED:
            # After an argument with a default, Python takes one without by its name only.
            kind = inspect.Parameter.KEYWORD_ONLY if optional else kind
            parameters.append(inspect.Parameter(name, kind))
        else:
            optional = True
            shown = tuple(default) if isinstance(default, list) else default
            parameters.append(inspect.Parameter(name, kind, default=shown))
    return inspect.Signature(parameters)


def _call(row: table.Operator, given: dict[str, Any]) -> Any:
    """Make a call from what Relay's function was given."""
    named = set(row.defaults or ())
    operands = {
        name: infer_type(_operand(given[name], name in named))
        for name in row.operands
        if name in given and given[name] is not None
    }
    attributes = table.complete_attributes(
        row,
        {name: _attribute(row, name, given[name]) for name in row.by_name if name in given},
        python=True,
    )
    weights.complete(row.name, operands, attributes)
    made = infer_type(_read(row, list(operands.values()), attributes))
    size = len(made.ty.fields) if isinstance(made.ty, ir.TupleType) else _results(row, attributes)
    if row.name in _FIRST_OF:
        return TupleWrapper(made, size or 1)[0]
    mark = row.name.startswith("annotation.")  # what it gives is whatever it was given
    return made if size is None or mark else TupleWrapper(made, size)


def _read(row: table.Operator, operands: list[Any], attributes: dict[str, Any]) -> relax.Expr:
    try:
        return row.to_relax(operands, attributes)
    except RelayError:
        raise
    except Exception as error:  # Relax's functions check their arguments in many ways
        raise RelayError(
            f"these arguments do not make the operator: {_said(error)}",
            where=f"relay.{row.name} of {', '.join(str(one.ty) for one in operands)}, {attributes}",
            fix=f"see help(relay.{row.name})",
        ) from error


def _said(error: Exception) -> str:
    return error.what if isinstance(error, TvmlabError) else explain(error)


def _results(row: table.Operator, attributes: dict[str, Any]) -> int | None:
    """Count the results of a call without a type; None for one."""
    if row.name == "split":
        sections = attributes["indices_or_sections"]
        return sections if isinstance(sections, int) else len(sections) + 1
    return _RESULTS.get(row.name)


def _operand(value: Any, may_be_number: bool) -> relax.Expr:
    if isinstance(value, TupleWrapper):  # Relay's functions take it apart, as any sequence
        value = [value[index] for index in range(len(value))]
    return const(value) if may_be_number and isinstance(value, _NUMBERS) else as_expr(value)


def _attribute(row: table.Operator, name: str, value: Any) -> Any:
    """Convert an argument of Relay's function to what `table.complete_attributes` takes."""
    if isinstance(value, ir.GenericConst):
        value = value.value.numpy().tolist()
    elif isinstance(value, ir.Expr) and not _is_fixed(value):
        raise RelayError(
            f"the attribute {name} of {row.name} is computed by the model",
            where=f"{name}={value}",
            fix="tvmlab carries Relay's operators of fixed attributes only: give numbers",
        )
    if isinstance(value, float) and row.by_name[name].kind in ("float", "number"):
        value = _digits(value)
    if value is None and (row.defaults or {}).get(name) is None:
        default = row.by_name[name].default
        return value if default is table.REQUIRED else default
    if row.by_name[name].kind == "ints" and isinstance(value, (int, np.integer)):
        return [int(value)] * _rank(row.name)  # strides=2 means both directions
    return value


def _is_fixed(value: ir.Expr) -> bool:
    """Return whether an expression is a number, or a shape of such (``checked_type.shape``)."""
    if isinstance(value, relax.ShapeExpr):
        return all(isinstance(size, tirx.IntImm) for size in value.values)
    return isinstance(value, (tirx.IntImm, tirx.FloatImm))


def _digits(value: float) -> float:
    """Return the shortest digits of a number that was read off a float32 constant.

    Relay took attributes that differ by less than 1e-9 for equal, so a pattern's callback that
    reads epsilon from the model made what 1e-5 makes; today's comparison is exact.
    """
    if not abs(value) < 1e30:  # the largest float32, rounded up, would be none
        return value
    single = np.float32(value)
    return float(str(single)) if float(single) == value else value


def _rank(name: str) -> int:
    """Count the spatial dimensions that an operator's name tells: 2 in ``nn.conv2d``."""
    found = re.search(r"([123])d(?![a-z])", name)
    return int(found[1]) if found else 1


def _document(row: table.Operator) -> str:
    """Write help text."""
    lines = [f"Relay's operator ``{row.name}``; today it is ``{row.relax}``.", ""]
    lines += ["Parameters", "----------"]
    lines += [f"{name} : tvm.relax.Expr" for name in row.operands]
    lines += [f"{item.name} : {_WORDS.get(item.kind, item.kind)}" for item in row.attributes]
    return "\n".join([*lines, "", "Returns", "-------", "tvm.relax.Expr or TupleWrapper", ""])


_WORDS = {"ints": "int or list of int", "any": "int or list of int", "number": "int or float"}


def _unknown(name: str) -> RelayError:
    if gone.is_operator(name):
        return gone.error(f"relay.{name}", gone.operator(name))
    near = table.closest(name)
    return RelayError(
        f"tvmlab.relay has no operator {name!r}",
        where=f"relay.op.get({name!r})",
        fix=f"the closest name is {near!r}" if near else "see tvmlab.ir.table.names()",
    )


class Namespace(ModuleType):
    """A module whose names are the operators with one prefix, made when they are asked for."""

    def __init__(self, name: str, prefix: str) -> None:
        super().__init__(name, f"Relay's operators ``{prefix or 'add'}...``.")
        self._prefix = prefix
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        whole = self._prefix + name
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "_make":
            return _Make(self._prefix)
        if table.find(whole) is not None:
            value = function(whole)
            setattr(self, name, value)
            return value
        if any(known.startswith(whole + ".") for known in table.names()):
            return namespace(f"{self.__name__}.{name}", whole + ".")
        # Relay's op.op and op.tensor hold what `op` shows, and so do ours.
        module = self.__name__.removeprefix(f"{_PACKAGE}.")
        gone.raise_gone(module if self._prefix else module.partition(".")[0], name)
        raise gone.of_attribute(_unknown(whole))

    def __dir__(self) -> list[str]:
        rows = [name for name in table.names() if name.startswith(self._prefix)]
        return sorted({name[len(self._prefix) :].partition(".")[0] for name in rows})


class _Make:
    """What lies beneath Relay's functions, ``relay.op._make``: operands, then all attributes."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Callable[..., Any]:
        row = table.find(self._prefix + name)
        if row is None:
            raise gone.of_attribute(_unknown(self._prefix + name))
        names = (*row.operands, *row.by_name)
        return lambda *given: _call(row, dict(zip(names, given, strict=False)))


def namespace(name: str, prefix: str) -> Namespace:
    """Make, or find, the module of the operators that begin with a prefix."""
    found = sys.modules.get(name)
    if isinstance(found, Namespace):
        return found
    made = sys.modules[name] = Namespace(name, prefix)
    return made


def __getattr__(name: str) -> Any:
    """Return ``relay.op.NAME``: an operator, or a module of operators."""
    return getattr(namespace(f"{__name__}.op", ""), name)


def _publish() -> None:
    """Make the modules that code imports by their names, as ``relay.op.annotation``."""
    prefixes = {name.partition(".")[0] for name in table.names() if "." in name}
    for prefix in sorted(prefixes | {"annotation", "image", "nn", "vision"}):
        if prefix != "qnn":
            made = namespace(f"{__name__}.{prefix}", f"{prefix}.")
            sys.modules.setdefault(f"{_PACKAGE}.{prefix}", made)
            globals()[prefix] = made
    for module in ("op", "tensor", "transform", "reduce", "algorithm"):
        globals()[module] = namespace(f"{__name__}.{module}", "")
    globals()["op"].get = get
    for module in ("contrib", "contrib.register"):
        sys.modules[f"{__name__}.{module}"] = pattern_table
    globals()["contrib"] = pattern_table
    # Relay's relay.qnn holds every name of relay.qnn.op, so both are one module here.
    qnn = sys.modules[f"{_PACKAGE}.qnn.op"] = namespace(f"{_PACKAGE}.qnn", "qnn.")
    qnn.__dict__.update(op=qnn, requantize_config=requantize_config)


__path__: list[str] = []
_publish()
