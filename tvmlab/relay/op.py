"""Relay's operators as Python functions, made from the rows of the operator table."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from ..errors import RelayError, TvmlabError
from ..ir import gone, graph, operators, table
from ..ir.module import explain, infer_type
from ..qnn.config import requantize_config
from .expr import Any_, TupleWrapper, as_expr, const

# The number of results of calls without a type.
_RESULTS = {"nn.batch_norm": 3, "nn.dropout": 2}
assert operators.__all__, "the table is filled by importing its rows"
_PACKAGE = __name__.rpartition(".")[0]
_NUMBERS = (bool, int, float, np.generic)


def get(name: str) -> ir.Op:
    """Return the Relax operator for a Relay name, such as ``"nn.relu"``, or raise `RelayError`."""
    return ir.Op.get(_row(name).relax)


def _row(name: str) -> table.Operator:
    row = table.find(name)
    if row is None:
        raise _unknown(name)
    return row


def function(name: str) -> Callable[..., Any]:
    """Make the Python function of an operator by its Relay name, with Relay's arguments.

    The function returns a Relax call, or a `TupleWrapper` for a call with several results.
    """
    row = _row(name)
    signature = _signature(row)

    def make(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise RelayError(str(error), where=f"relay.{name}{signature}") from error
        bound.apply_defaults()
        return _call(row, bound.arguments)

    make.__name__ = make.__qualname__ = name.rpartition(".")[2]
    make.__module__ = __name__
    make.__doc__ = f"Relay's operator ``{name}``; today it is ``{row.relax}``."
    make.__signature__ = signature  # type: ignore[attr-defined]
    return make


def _signature(row: table.Operator) -> inspect.Signature:
    """Order a row's operands and attributes as Relay's Python function does."""
    defaults = {item.name: item.default for item in row.attributes} | (row.defaults or {})
    names = row.signature or (*row.operands, *(item.name for item in row.attributes))
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters, optional = [], False
    for name in names:
        default = defaults.get(name, table.REQUIRED)
        if default is table.REQUIRED:
            # In Python, a required argument after an optional one is keyword-only.
            kind = inspect.Parameter.KEYWORD_ONLY if optional else kind
            parameters.append(inspect.Parameter(name, kind))
        else:
            optional = True
            shown = tuple(default) if isinstance(default, list) else default
            parameters.append(inspect.Parameter(name, kind, default=shown))
    return inspect.Signature(parameters)


def _call(row: table.Operator, given: dict[str, Any]) -> Any:
    """Make a call from the arguments of Relay's function."""
    operands = {
        name: infer_type(_operand(given[name], name in (row.defaults or ())))
        for name in row.operands
        if given.get(name) is not None
    }
    values = {name: _attribute(row, name, given[name]) for name in row.by_name if name in given}
    attributes = table.complete_attributes(row, values, python=True)
    _ignore_axes(operands, attributes)
    _repeat_by_multiplier(row.name, operands, attributes)
    _infer_weight_types(row.name, operands, attributes)
    made = infer_type(_read(row, list(operands.values()), attributes))
    size = len(made.ty.fields) if isinstance(made.ty, ir.TupleType) else _results(row, attributes)
    if row.name == "nn.dropout":  # Relay's function returns only the first result
        return TupleWrapper(made, size or 1)[0]
    annotation = row.name.startswith("annotation.")  # such a call returns its argument
    return made if size is None or annotation else TupleWrapper(made, size)


def _ignore_axes(operands: Mapping[str, relax.Expr], attributes: dict[str, Any]) -> None:
    """Ignore an axis beyond a side of ``qnn.add`` with one scale and zero point, as Relay did."""
    for side in ("lhs", "rhs") if "lhs_axis" in attributes else ():
        ranks = [
            getattr(operands[f"{side}{part}"].ty, "ndim", -1)
            for part in ("", "_scale", "_zero_point")
        ]
        if ranks[1:] == [0, 0] and 0 <= ranks[0] <= attributes[f"{side}_axis"]:
            attributes[f"{side}_axis"] = -1


def _repeat_by_multiplier(
    name: str, operands: dict[str, relax.Expr], attributes: Mapping[str, Any]
) -> None:
    """Repeat what Relay's depthwise convolution has per input channel for each output channel."""
    if name != "qnn.conv2d" or not all(graph.has_type(one) for one in operands.values()):
        return
    groups, layout = attributes["groups"], attributes["kernel_layout"]
    kernel = dict(zip(layout, operands["kernel"].ty.shape, strict=False))
    channels = operands["data"].ty.shape[attributes["data_layout"].index("C")]
    multiplier = int(kernel["I"])
    if groups == 1 or not groups == int(channels) == int(kernel["O"]) or multiplier == 1:
        return
    for part in ("kernel_scale", "kernel_zero_point"):
        value = operands[part]
        if value.ty.ndim == 1 and int(value.ty.shape[0]) == groups:
            operands[part] = infer_type(relax.op.repeat(value, multiplier, 0))


def _read(row: table.Operator, operands: list[Any], attributes: dict[str, Any]) -> relax.Expr:
    try:
        return row.to_relax(operands, attributes)
    except RelayError:
        raise
    except Exception as error:  # Relax's functions check their arguments in many ways
        what = error.what if isinstance(error, TvmlabError) else explain(error)
        raise RelayError(
            f"the operator does not take these arguments: {what}",
            where=f"relay.{row.name} of {', '.join(str(one.ty) for one in operands)}, {attributes}",
        ) from error


def _results(row: table.Operator, attributes: dict[str, Any]) -> int | None:
    """Count the results of a call without a type; None for a single result."""
    if row.name == "split":
        sections = attributes["indices_or_sections"]
        return sections if isinstance(sections, int) else len(sections) + 1
    return _RESULTS.get(row.name)


def _operand(value: Any, can_be_number: bool) -> relax.Expr:
    if isinstance(value, TupleWrapper):  # unpacked, as Relay unpacks any sequence
        value = [value[index] for index in range(len(value))]
    return const(value) if can_be_number and isinstance(value, _NUMBERS) else as_expr(value)


def _attribute(row: table.Operator, name: str, value: Any) -> Any:
    """Convert an argument of Relay's function for `table.complete_attributes`."""
    if isinstance(value, ir.GenericConst):
        value = value.value.numpy().tolist()
    elif isinstance(value, ir.Expr) and not _is_fixed(value):
        what = f"the attribute {name} of {row.name} is computed by the model"
        raise RelayError(what, where=f"{name}={value}", fix="give numbers")
    kind, default = row.by_name[name].kind, row.by_name[name].default
    if isinstance(value, float) and kind in ("float", "number"):
        return _digits(value)
    if value is None and (row.defaults or {}).get(name) is None:
        return None if default is table.REQUIRED else default
    if kind == "ints" and isinstance(value, (int, np.integer)):
        found = re.search(r"([123])d(?![a-z])", row.name)  # spatial dimensions: 2 in nn.conv2d
        return [int(value)] * (int(found[1]) if found else 1)  # strides=2 means both directions
    return value


def _is_fixed(value: ir.Expr) -> bool:
    """Return whether an expression is a number, or a shape of numbers (``checked_type.shape``)."""
    if isinstance(value, relax.ShapeExpr):
        return all(isinstance(size, tirx.IntImm) for size in value.values)
    return isinstance(value, (tirx.IntImm, tirx.FloatImm))


def _digits(value: float) -> float:
    """Return the shortest digits of a float32, because today's comparisons of attributes are exact.

    A pattern's callback that copies epsilon from the model then makes the same call as 1e-5.
    """
    if not abs(value) < 1e30:  # the largest float32, rounded up, would overflow
        return value
    single = np.float32(value)
    return float(str(single)) if float(single) == value else value


# Operands that are vectors as long as the axis of the data.
_VECTORS = {
    "nn.bias_add": ("bias",),
    "nn.batch_norm": ("gamma", "beta", "moving_mean", "moving_var"),
}
# The kernel axis whose size is divided by the number of groups.
_KERNELS = {"nn.conv1d": "I", "nn.conv2d": "I", "nn.conv3d": "I", "nn.conv2d_transpose": "O"}


def _infer_weight_types(
    name: str, operands: Mapping[str, relax.Expr], attributes: dict[str, Any]
) -> None:
    """Infer the types of variables without one that are operands, as Relay's inference did."""
    if all(graph.has_type(value) for value in operands.values()):
        return
    for key, shape in _weight_shapes(name, operands, attributes).items():
        weight = operands.get(key)
        if isinstance(weight, relax.Var) and not graph.has_type(weight):
            first = next(iter(operands.values()))
            dtype = str(first.ty.dtype) if graph.has_type(first) else "float32"
            relax.expr._update_type(weight, relax.TensorType(shape, dtype))


def _weight_shapes(
    name: str, operands: Mapping[str, relax.Expr], a: dict[str, Any]
) -> dict[str, list[Any]]:
    """Return the shapes of weights; a size that nothing determines is a new variable."""

    def size(axis: int) -> Any:
        shape = getattr(operands["data"].ty, "shape", None)
        return shape[axis] if isinstance(shape, relax.ShapeExpr) else None

    if name in _VECTORS:
        channels = size(a["axis"])
        return {} if channels is None else {vector: [channels] for vector in _VECTORS[name]}
    if name == "nn.dense":
        known = a["units"] is not None and size(-1) is not None
        return {"weight": [a["units"], size(-1)]} if known else {}
    if name not in _KERNELS or a["kernel_size"] is None:
        return {}
    data_layout, layout = a["data_layout"], a["kernel_layout"]
    if not (data_layout + layout).isalpha():  # an axis is split
        return {}
    sizes = {"I": size(data_layout.index("C")), "O": a["channels"]}
    grouped = _KERNELS[name]
    if sizes[grouped] is not None:
        sizes[grouped] //= a["groups"]
    sizes |= zip([axis for axis in layout if axis not in "IO"], a["kernel_size"], strict=False)
    return {"weight": [Any_() if sizes[axis] is None else sizes[axis] for axis in layout]}


def _unknown(name: str) -> RelayError:
    if gone.is_operator(name):
        return gone.error(f"relay.{name}", gone.operator(name))
    near = table.closest(name)
    fix = f"the closest name is {near!r}" if near else "see tvmlab.ir.table.names()"
    return gone.RelayNameError(f"tvmlab.relay has no operator {name!r}", fix=fix)


class Namespace(ModuleType):
    """A module of the operators with one prefix, each made on its first use."""

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
        if whole == "qnn.transform":
            return importlib.import_module(f"{_PACKAGE}.quantized")
        if table.find(whole) is not None:
            value = function(whole)
            setattr(self, name, value)
            return value
        composed = importlib.import_module(f"{_PACKAGE}.composed")
        if (made := whole.replace(".", "_")) in composed.__all__:
            return getattr(composed, made)
        if any(known.startswith(whole + ".") for known in table.names()):
            return namespace(f"{self.__name__}.{name}", whole + ".")
        # Relay's op.op and op.tensor have the names that `op` has, and so do these.
        module = self.__name__.removeprefix(f"{_PACKAGE}.")
        module = module if self._prefix else module.partition(".")[0]
        for place in (module, f"{module}.op"):
            gone.raise_gone(place, name)
        raise _unknown(whole)


class _Make:
    """Relay's low-level functions, ``relay.op._make``: all operands, then all attributes."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Callable[..., Any]:
        row = _row(self._prefix + name)
        names = (*row.operands, *row.by_name)
        return lambda *given: _call(row, dict(zip(names, given, strict=False)))


def namespace(name: str, prefix: str) -> Namespace:
    """Return the module of the operators with a prefix, and make it on the first call."""
    found = sys.modules.get(name)
    if isinstance(found, Namespace):
        return found
    made = sys.modules[name] = Namespace(name, prefix)
    return made


def __getattr__(name: str) -> Any:
    """Return ``relay.op.NAME``: an operator, or a module of operators."""
    return getattr(namespace(f"{__name__}.op", ""), name)


_TABLES: dict[str, Any] = {}


def register_pattern_table(compiler: str, table: Callable[[], Any] | None = None) -> Any:
    """Register a compiler's patterns, the result of ``table()``; without `table`, decorate."""

    def register(made: Callable[[], Any]) -> Callable[[], Any]:
        _TABLES[compiler] = made()
        return made

    return register if table is None else register(table)


def get_pattern_table(compiler: str) -> Any:
    """Return a compiler's pattern table, or None if none is registered.

    Raises `RelayError` for a library whose table was in Relay and is not here.
    """
    if compiler not in _TABLES and (row := gone.ROWS.get(f"relay.op.contrib.{compiler}")):
        raise gone.error(*row)
    return _TABLES.get(compiler)


def _missing_library(name: str) -> Any:
    raise gone.missing("op.contrib", name)


def _publish() -> None:
    """Make the modules that scripts import by name, such as ``relay.op.annotation``."""
    own = sys.modules[__name__].__dict__
    prefixes = {name.partition(".")[0] for name in table.names() if "." in name}
    for prefix in sorted((prefixes | {"annotation", "image", "nn", "vision"}) - {"qnn"}):
        own[prefix] = namespace(f"{__name__}.{prefix}", f"{prefix}.")
        sys.modules.setdefault(f"{_PACKAGE}.{prefix}", own[prefix])
    for module in ("op", "tensor", "transform", "reduce", "algorithm"):
        own[module] = namespace(f"{__name__}.{module}", "")
    own["op"].get = get
    # tvmlab does not have the libraries' own pattern tables of relay.op.contrib.
    own["contrib"] = contrib = ModuleType(f"{__name__}.contrib")
    for function in (register_pattern_table, get_pattern_table):
        setattr(contrib, function.__name__, function)
    names = {"register": contrib, "__path__": [], "__getattr__": _missing_library}
    contrib.__dict__.update(names)
    sys.modules |= {f"{__name__}.contrib": contrib, f"{__name__}.contrib.register": contrib}
    # Relay's relay.qnn has every name of relay.qnn.op, so both are one module here.
    qnn = sys.modules[f"{_PACKAGE}.qnn.op"] = namespace(f"{_PACKAGE}.qnn", "qnn.")
    qnn.__dict__.update(op=qnn, qnn=qnn, requantize_config=requantize_config)


__path__: list[str] = []
_publish()
