"""Quantized operators: each definition yields the call, the type, the reference and the kernel.

A definition is a function of numbers (`tvmlab.qnn.numbers`). Its parameters are the operator's
operands (annotated `Operand`) and attributes, in the order of Relay's Python function; its
docstring is the documentation. `tvmlab.qnn.rows` adds the operators to the table of Relay's text.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx

from ..ir import dialect
from ..ir.types import Tensor, broadcast, result, views
from . import checks
from .checks import Array, expression, parameter
from .config import COMPUTE_DTYPES, ROUNDINGS, one_of
from .layout import Layout, elementwise
from .numbers import Arrays, Kernel, Number, cast
from .operands import CallOperands, ChannelParam, call_te, known_shape

Operand = Any
"""The annotation of a definition's operands: a tensor, a scale or a zero point."""
Shape = Callable[[dict[str, Tensor], dict[str, Any]], tuple[list[Any] | None, int, Any]]
Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]

NARROW = ("int8", "uint8", "int16")
QUANTIZED = (*NARROW, "int32")
FLOATS = ("float32", "float16")
OPERATORS: dict[str, Operator] = {}
"""The quantized operators by name."""

_RAISES = """Raises
------
tvmlab.errors.InputError, tvmlab.errors.ShapeError
    If an operand's dtype, shape or value, or an attribute, is invalid; the error names it."""
# Kinds of fusion in relax/transform/fuse_ops.cc (OpPatternKind): a kernel with a table reads the
# table anywhere, but one number of the data. (0, element-wise, counts as not set.)
_BROADCAST = 1


@dataclass(frozen=True)
class Operator:
    """A row: the definition of an operator, and the properties that its parameters do not imply.

    ``define(numbers, **operands, **attributes)`` computes the result. Operands that end in
    ``scale`` or ``zero_point`` belong to the tensor that their name begins with, to the result
    (``output``), or to the first tensor.
    """

    name: str
    define: Callable[..., Any]
    dtypes: Sequence[str] = QUANTIZED
    # Maps a tensor that can have scales per channel to the attribute that names their axis.
    axes: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # Defaults in Relay's operator that differ from its function's; ... for a required attribute.
    relay: Mapping[str, Any] = field(default_factory=dict)
    # The attributes in the order in which Relay prints them, if it is another order.
    printed: Sequence[str] = ()
    # Scales and zero points that can be computed at run time, and scales that can be float64.
    at_run_time: Sequence[str] = ()
    wide: Sequence[str] = ()
    # Returns the result's shape and rank from operands and attributes, and the number of channels
    # of the second tensor. Without this function, tensors are broadcast.
    shape: Shape | None = None
    kept: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    # These replace the type inference, the legalization and the layout inference.
    infer_type: dialect.Infer | None = None
    kernel: Legalize | None = None
    layout: Layout | None = elementwise
    # Whether kernels look up the reference's results in a table.
    tabulated: bool = False
    # Returns a shorter expression than the definition's, or None.
    short: Callable[..., Callable[..., tirx.PrimExpr] | None] | None = None

    @functools.cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The operands and attributes by name, in the order of the call."""
        _, *rest = inspect.signature(self.define).parameters.values()
        return {p.name: p for p in rest}

    @functools.cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands."""
        return tuple(n for n, p in self.parameters.items() if p.annotation == "Operand")

    @functools.cached_property
    def tensors(self) -> tuple[str, ...]:
        """The operands that are neither scales nor zero points."""
        ends = ("scale", "zero_point", "scales", "zero_points")
        return tuple(name for name in self.operands if not name.endswith(ends))

    @functools.cached_property
    def attributes(self) -> dict[str, inspect.Parameter]:
        """The attributes by name, in the order in which Relay prints them."""
        names = self.printed or [n for n in self.parameters if n not in self.operands]
        return {name: self.parameters[name] for name in names}

    def owner(self, name: str) -> str:
        """Return the tensor that a scale or zero point belongs to, or ``"output"``."""
        prefix = name.removesuffix("scale").removesuffix("zero_point").removesuffix("_")
        if prefix == "kernel":
            return self.tensors[1]
        return prefix if prefix in (*self.tensors, "output") else self.tensors[0]

    def axis(self, name: str, a: Mapping[str, Any]) -> int | None:
        """Return the axis along which a scale or zero point can differ."""
        attribute = self.axes.get(self.owner(name))
        return None if attribute is None else a[attribute]

    def infer(self, types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
        """Check the operands' types and the attributes, and return the type of the result."""
        if self.infer_type is not None:
            return self.infer_type(types, a)
        call = f"qnn.{self.name}"
        seen = dict(zip(self.operands, views(call, self.operands, types), strict=True))
        choices = {"rounding": ROUNDINGS, "compute_dtype": COMPUTE_DTYPES, **self.choices}
        for name in self.attributes:
            if name in choices:
                one_of(call, name, a.get(name, "None"), choices[name])
        first, *rest = (seen[name] for name in self.tensors)
        first.holds(self.dtypes)
        for other in rest:
            same = first.dtype and self.shape is None
            other.holds((first.dtype,) if same else self.dtypes)
        if "axis" in a:
            first.axis(a["axis"])
        channels: Any = 1
        if self.shape is not None:
            shape, ndim, channels = self.shape(seen, a)
        else:
            shape = broadcast(first, rest[0]) if rest else first.shape
            ndims = [seen[name].ndim for name in self.tensors]
            ndim = max(ndims) if min(ndims) >= 0 else -1
        for name in self.operands:
            if name in self.tensors:
                continue
            owner, axis = self.owner(name), self.axis(name, a)
            count = channels if owner in self.tensors[1:] else 1
            if axis is not None:
                count = seen.get(owner, first).size(axis)
            kind = "int32" if name.endswith("zero_point") else "float32"
            parameter(seen[name], (kind, "float64") if name in self.wide else kind, count, axis)
        dtypes = (a.get("out_dtype"), first.dtype, *(other.dtype for other in rest))
        return result(shape, next(filter(None, dtypes), ""), ndim)

    def bind(
        self, given: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Separate operands from attributes in the arguments of a call."""
        bound = inspect.Signature([*self.parameters.values()]).bind(*given, **named)
        bound.apply_defaults()
        values = bound.arguments
        attributes = {n: _plain(values[n], p) for n, p in self.attributes.items()}
        attributes = attributes if self.kept is None else self.kept(attributes)
        return [values[n] for n in self.operands], attributes

    def call(self, *given: Any, **named: Any) -> relax.Call:
        """Make a typed call in Relax, and check its constant scales and zero points."""
        (operands, a), short = self.bind(given, named), f"qnn.{self.name}"
        for i, (name, value) in enumerate(zip(self.operands, operands, strict=True)):
            if isinstance(value, (list, tuple)):
                fields = [expression(short, f"{name}.{j}", one) for j, one in enumerate(value)]
                operands[i] = relax.Tuple(fields)
            operands[i] = expression(short, name, operands[i])
        made = dialect.typed_call(f"relax.{short}", operands, a)
        values = dict(zip(self.operands, operands, strict=True))
        for name, value in values.items():
            if name in self.tensors or not isinstance(value, ir.GenericConst):
                continue
            if "zero_point" in name:
                tensor = values.get(self.owner(name), made)
                dtype = stored(str(getattr(tensor.ty, "dtype", None) or "int32"))
                checks.zero_point(value.value.numpy(), short, name, dtype, None)
            else:
                checks.scale(value.value.numpy(), short, name, None, wide=True)
        return made

    def reference(self, *given: Any, **named: Any) -> Array:
        """Compute the result in NumPy."""
        operands, a = self.bind(given, named)
        values = dict(zip(self.operands, operands, strict=True))
        for name in self.tensors:
            values[name] = _each(_array, values[name])
        for name in self.operands:
            if name not in self.tensors:
                values[name] = self.check(name, values, a)
        ty = self.infer([_type(name, values[name]) for name in self.operands], a)
        numbers = Arrays(
            str(ty.dtype),
            {name: values[name] for name in self.tensors},
            {tensor: a[attribute] for tensor, attribute in self.axes.items()},
        )
        for name in self.tensors:
            values[name] = _each(_wide, values[name])
        with np.errstate(all="ignore"):
            return np.asarray(self.define(numbers, **values, **a)).astype(numbers.dtype)

    def check(self, name: str, values: Mapping[str, Any], a: Mapping[str, Any]) -> Any:
        """Check a scale or zero point of the reference, or a list of them."""
        call, value, owner = f"qnn.{self.name}", values[name], self.owner(name)
        first = values[self.tensors[0]]
        tensor = values.get(owner, first)
        dtype = stored((tensor[0] if isinstance(tensor, list) else tensor).dtype.name)
        if owner == "output" and a.get("out_dtype"):
            dtype = str(a["out_dtype"])

        def check(one: Any, label: str, channels: int | None = None) -> Array:
            if "zero_point" in name:
                return checks.zero_point(one, call, label, dtype, channels)
            return checks.scale(one, call, label, channels, name in self.wide)

        if name.endswith("s") and isinstance(value, list | tuple):
            return [check(one, f"{name}.{i}", 1) for i, one in enumerate(value)]
        return check(value, name)

    def legalize(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        """Make the kernel of a call."""
        if self.kernel is not None:
            return self.kernel(builder, call)
        given, a = CallOperands(builder, call), dialect.attributes(call)
        shape = known_shape(f"qnn.{self.name}", self.tensors[0], call)
        known = self.known(given, str(call.ty.dtype))
        if self.tabulated:
            return self.looked_up(given, known)
        sizes = {name: given.shape(name) for name in self.tensors}
        short = self.short(self, given, known) if self.short else None
        numbers = Kernel(str(call.ty.dtype))

        def body(tensors: Sequence[te.Tensor], index: Sequence[Any]) -> tirx.PrimExpr:
            numbers.again()
            read = {}
            for name, tensor in zip(self.tensors, tensors, strict=True):
                place, axis = _place(index, sizes[name], shape), a.get(self.axes.get(name, ""), -1)
                numbers.channels[name] = place[axis] if place else 0
                read[name] = _number(tensor(*place), given.dtype(name))
            if short is not None:
                return short(*(x.expr for x in read.values()))
            return cast(self.define(numbers, **read, **known, **a), numbers.dtype).expr

        def compute(*tensors: te.Tensor) -> te.Tensor:
            return te.compute(shape, lambda *index: body(tensors, index), name=hint)

        hint = self.name if self.name.endswith("quantize") else f"qnn_{self.name}"
        # Build the body once to collect the tables that it reads: they are arguments of the kernel.
        placeholders = [te.placeholder(sizes[n], given.dtype(n)) for n in self.tensors]
        body(placeholders, [tirx.Var("i", "int64") for _ in shape])
        operands = [given[name] for name in self.tensors]
        return call_te(builder, compute, operands, numbers.rows, hint)

    def known(self, given: CallOperands, dtype: str) -> dict[str, Any]:
        """Return the checked scales and zero points of a call; see `at_run_time`."""
        known: dict[str, Array | ChannelParam] = {}
        for name in self.operands:
            if name in self.tensors:
                continue
            owner, axis = self.owner(name), self.axis(name, given.attributes)
            tensor = self.tensors[0] if owner == "output" else owner
            kind = stored(dtype if owner == "output" else given.dtype(owner))
            zero = name.endswith("zero_point")
            if name in self.at_run_time and given.array(name) is None:
                bounds = checks.limits(kind) if zero else (0, 0)
                read = "int32" if zero else "float32"
                known[name] = ChannelParam(expr=given[name], dtype=read, bounds=bounds)
                continue
            count = 1 if axis is None else given.channels(tensor, axis)
            known[name] = (
                given.zero_point(name, kind, count) if zero
                else given.scale(name, count, wide=name in self.wide)
            )  # fmt: skip
        return known

    def looked_up(self, given: CallOperands, known: Mapping[str, Any]) -> relax.Expr:
        """Call a kernel that looks up the reference's results in a table."""
        dtype, shape = given.dtype("x"), given.shape("x")
        low, high = checks.limits(dtype)
        every = np.arange(low, high + 1).astype(dtype)
        results = self.reference(x=every, **known, **given.attributes)

        def look_up(x: te.Tensor, table: te.Tensor) -> te.Tensor:
            return te.compute(shape, lambda *i: table(x(*i).astype("int32") - low), name="look_up")

        operands = [given["x"], relax.const(results, dtype)]
        return call_te(given.builder, look_up, operands, [], f"qnn_{self.name}", _BROADCAST)


def operator(**row: Any) -> Callable[[Callable[..., Any]], Operator]:
    """Make a row from a definition, and register the operator with TVM; see `Operator`."""

    def add(define: Callable[..., Any]) -> Operator:
        made = Operator(row.pop("name", define.__name__.strip("_")), define, **row)
        OPERATORS[made.name] = made
        registered = dialect.register(f"relax.qnn.{made.name}", made.operands, made.infer)
        registered.set_attr("FLegalize", made.legalize)
        if made.layout is not None:
            registered.set_attr("FRelaxInferLayout", made.layout)
        return made

    return add


@functools.cache
def function(name: str, kind: str, module: str) -> Callable[..., Any]:
    """Return an operator's ``"call"`` or ``"reference"``, with its name and documentation."""
    if name not in OPERATORS:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    row = OPERATORS[name]
    method = getattr(row, kind)

    def made(*given: Any, **named: Any) -> Any:
        return method(*given, **named)

    made.__name__, made.__qualname__, made.__module__ = name, name, module
    made.__signature__ = inspect.Signature([*row.parameters.values()])  # type: ignore[attr-defined]
    text, notes, rest = inspect.cleandoc(str(row.define.__doc__)).partition("\n\nNotes\n")
    made.__doc__ = f"{text}\n\n{_RAISES}{notes}{rest}"
    return made


def stored(dtype: str) -> str:
    """Return the dtype in which a tensor's integers are computed: int64 is reduced to int32."""
    return "int32" if dtype == "int64" else dtype


def _plain(value: Any, attribute: inspect.Parameter) -> Any:
    """Convert an attribute to float if it is declared so, and a tuple to a list."""
    if attribute.annotation == "float":
        return float(value)
    return list(value) if isinstance(value, tuple) else value


def _array(value: Any) -> Array:
    found = np.asarray(value)
    return found.astype(np.float32) if found.dtype == np.float64 else found


def _type(name: str, value: Any) -> ir.Type:
    if isinstance(value, list):
        return relax.TupleType([_type(name, one) for one in value])
    dtype = "int32" if "zero_point" in name else value.dtype.name
    return relax.TensorType(value.shape, dtype)


def _each(change: Callable[[Any], Array], value: Any) -> Any:
    return [*map(change, value)] if isinstance(value, list | tuple) else change(value)


def _wide(value: Array) -> Array:
    """Widen integers to int64, where they cannot wrap; int64 is reduced to its lower 32 bits."""
    if value.dtype.kind == "f":
        return value
    return value.astype(stored(value.dtype.name)).astype(np.int64)


def _number(x: tirx.PrimExpr, dtype: str) -> Number:
    if dtype.startswith("float"):
        return Number(x)
    return Number(x.astype(stored(dtype)), checks.limits(stored(dtype)))


def _place(index: Sequence[Any], own: Sequence[Any], whole: Sequence[Any]) -> list[Any]:
    """Return the index in a tensor for an index in the shape that it is broadcast to.

    Without broadcasting the index stays the same, so that `FuseOps` sees an element-wise operator.
    """
    last, over = index[len(index) - len(own) :], whole[len(index) - len(own) :]
    return [
        0 if isinstance(size, int) and size == 1 and size != other else i
        for i, size, other in zip(last, own, over, strict=True)
    ]
