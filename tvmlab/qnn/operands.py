"""Operands of a call that is being legalized: compile-time values, and parameters to read.

Constant scales and zero points become immediate numbers in the kernel, or tables that it reads if
the channels differ; a kernel reads those computed at run time from their tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import ir, relax, te, tirx

from ..errors import CompileError
from ..ir import dialect
from ..ir.graph import bound
from ..ir.types import plain
from . import checks
from .checks import Array


def known_shape(call: str, name: str, expr: relax.Expr) -> list[Any]:
    """Return the sizes of a tensor: ints, or expressions for symbolic sizes."""
    shape, dtype = getattr(expr.ty, "shape", None), getattr(expr.ty, "dtype", None)
    if not isinstance(shape, relax.ShapeExpr) or not dtype:
        what = f"the shape or dtype of {name} is not known: {expr.ty}"
        fix = "give the function's parameters shapes and dtypes; a size can be symbolic"
        raise CompileError(what, where=f"{call}, operand {name}", fix=fix)
    return [*map(plain, shape.values)]


class ChannelParam:
    """One integer (or real number) for each channel, or one for all channels."""

    def __init__(
        self,
        values: npt.ArrayLike | None = None,
        *,
        expr: relax.Expr | None = None,
        dtype: str,
        bounds: tuple[int, int] = (0, 0),
    ) -> None:
        self.dtype, self.expr, self.bounds = dtype, expr, bounds
        self.tensor: te.Tensor | None = None
        found = None if values is None else np.asarray(values)
        if found is not None and found.size:
            self.bounds = int(found.min()), int(found.max())
            if (found == found.ravel()[0]).all():
                found = found.ravel()[0]  # an immediate number, for one channel or for all
        self.values = found

    @property
    def table(self) -> relax.Expr | None:
        """The operand from which a kernel reads the values; None for an immediate number."""
        if self.expr is not None:
            return self.expr
        assert self.values is not None
        if self.values.ndim == 0:
            return None
        # Without the dtype, TVM would convert 64 bits to 32.
        return relax.const(self.values.astype(self.dtype), self.dtype)

    def is_all(self, value: int) -> bool:
        """Return whether all channels are known at compile time to have this value."""
        return self.values is not None and self.values.ndim == 0 and self.values == value

    def read(self, channel: Any) -> tirx.PrimExpr:
        """Return a channel's value inside a kernel that `call_te` makes."""
        if self.values is not None and self.values.ndim == 0:
            return tirx.const(self.values.item(), self.dtype)
        if self.tensor is None:  # a first pass only collects the parameters
            return tirx.Var("parameter", self.dtype)
        if len(self.tensor.shape) == 0:
            return self.tensor()
        one = isinstance(self.tensor.shape[0], tirx.IntImm) and int(self.tensor.shape[0]) == 1
        return self.tensor(0 if one else channel)


def call_te(
    builder: relax.BlockBuilder,
    compute: Callable[..., te.Tensor],
    operands: Sequence[relax.Expr],
    rows: Sequence[ChannelParam],
    hint: str,
    pattern: int | None = None,
) -> relax.Call:
    """Make a call of a kernel written in TE that reads tables of parameters after its operands."""
    tables = [(row, table) for row in rows if (table := row.table) is not None]

    def bound(*tensors: te.Tensor) -> te.Tensor:
        for (row, _), tensor in zip(tables, tensors[len(operands) :], strict=True):
            row.tensor = tensor
        return compute(*tensors[: len(operands)])

    every = [*operands, *(table for _, table in tables)]
    attributes = {} if pattern is None else {"op_pattern": pattern}
    return builder.call_te(bound, *every, primfunc_name_hint=hint, primfunc_attrs=attributes)


class CallOperands:
    """A call of a quantized operator to legalize: its operands and attributes by name."""

    def __init__(self, builder: relax.BlockBuilder, call: relax.Call) -> None:
        self.builder, self.call = builder, call
        self.name = call.op.name.removeprefix("relax.")
        self.attributes = dialect.attributes(call)
        self.names = _names(self.name)
        self._args = call.args[:]

    def __getitem__(self, name: str) -> relax.Expr:
        """Return an operand, or a field of a tuple operand, such as ``"data.0"``."""
        name, _, index = name.partition(".")
        expr = self._args[self.names.index(name)]
        if not index:
            return expr
        whole = bound(expr, self.builder)
        if isinstance(whole, relax.Tuple):
            return whole.fields[int(index)]
        return self.builder.emit(relax.TupleGetItem(expr, int(index)))

    def shape(self, name: str) -> list[Any]:
        """Return the shape of an operand; see `known_shape`."""
        return known_shape(self.name, name, self[name])

    def dtype(self, name: str) -> str:
        """Return the dtype of an operand."""
        return str(self[name].ty.dtype)

    def array(self, name: str) -> Array | None:
        """Return an operand's value if it is constant, else None."""
        expr = bound(self[name], self.builder)
        return np.asarray(expr.value.numpy()) if isinstance(expr, ir.GenericConst) else None

    def scale(self, name: str, channels: Any = 1, wide: bool = False) -> Array:
        """Return the checked value of a scale."""
        value = self._known(name)
        return checks.scale(value, self.name, name, _count(channels), wide)

    def zero_point(self, name: str, dtype: str, channels: Any = 1) -> Array:
        """Return the checked value of a zero point."""
        value = self._known(name)
        return checks.zero_point(value, self.name, name, dtype, _count(channels))

    def zero_row(self, name: str, dtype: str, channels: Any = 1) -> ChannelParam:
        """Return a zero point as int32, constant or read at run time."""
        if self.array(name) is None:
            return ChannelParam(expr=self[name], dtype="int32", bounds=checks.limits(dtype))
        return ChannelParam(self.zero_point(name, dtype, channels), dtype="int32")

    def check_scales(self, **channels: Any) -> None:
        """Check the constant scales of a call whose kernel does not use them."""
        for name in self.names:
            if name.endswith("_scale") and self.array(name) is not None:
                self.scale(name, channels.get(name, 1))

    def _known(self, name: str) -> Array:
        value = self.array(name)
        if value is None:
            what = f"{name} is not a constant when the model is compiled"
            fix = "bind parameters (tvm.relax.transform.BindParams) and fold constants first"
            raise CompileError(what, where=f"{self.name}, operand {name}", fix=fix)
        return value

    def channels(self, name: str, axis: int) -> Any:
        """Return the size of an operand along an axis; a scalar has one channel."""
        shape = self.shape(name)
        return shape[axis] if shape else 1


@functools.cache
def _names(operator: str) -> list[str]:
    return [str(argument.name) for argument in ir.Op.get(f"relax.{operator}").arguments]


def _count(channels: Any) -> int | None:
    return channels if isinstance(channels, int) else None
