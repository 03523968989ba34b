"""Operands of a call that is legalized: what is known now, and what a kernel has to read.

Scales and zero points that are constants become immediate numbers of the kernel, or where channels
differ tables that it reads; those that are computed at run time are read where they lie.
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
from ..ir.types import plain
from . import checks
from .checks import Array


def _bound(builder: relax.BlockBuilder, expr: relax.Expr) -> relax.Expr:
    """Follow a variable to the value that is bound to it."""
    while isinstance(expr, relax.Var) and (bound := builder.lookup_binding(expr)) is not None:
        expr = bound
    return expr


def known_shape(call: str, name: str, expr: relax.Expr) -> list[Any]:
    """Return the sizes of a tensor: ints, or expressions where they are symbols."""
    shape, dtype = getattr(expr.ty, "shape", None), getattr(expr.ty, "dtype", None)
    if not isinstance(shape, relax.ShapeExpr) or not dtype:
        what = f"the shape or dtype of {name} is not known: {expr.ty}"
        fix = "give the function's parameters shapes and dtypes; a size can be a symbol"
        raise CompileError(what, where=f"{call}, operand {name}", fix=fix)
    return [*map(plain, shape.values)]


class ChannelParam:
    """One integer (or real number) for each channel, or one for all."""

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
        """What a kernel has to be given to read the values; None for an immediate number."""
        if self.expr is not None:
            return self.expr
        assert self.values is not None
        if self.values.ndim == 0:
            return None
        # Without the dtype, 64 bits would become 32.
        return relax.const(self.values.astype(self.dtype), self.dtype)

    def is_all(self, value: int) -> bool:
        """Return whether it is known now to be one number throughout."""
        return self.values is not None and self.values.ndim == 0 and self.values == value

    def read(self, channel: Any) -> tirx.PrimExpr:
        """Return a channel's value, inside of a kernel that `call_te` makes."""
        if self.values is not None and self.values.ndim == 0:
            return tirx.const(self.values.item(), self.dtype)
        if self.tensor is None:  # what has to be read is still being listed
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
    """Make a call of a kernel written in TE that reads some parameters beside its operands."""
    tables = [(row, table) for row in rows if (table := row.table) is not None]

    def bound(*tensors: te.Tensor) -> te.Tensor:
        for (row, _), tensor in zip(tables, tensors[len(operands) :], strict=True):
            row.tensor = tensor
        return compute(*tensors[: len(operands)])

    every = [*operands, *(table for _, table in tables)]
    attributes = {} if pattern is None else {"op_pattern": pattern}
    return builder.call_te(bound, *every, primfunc_name_hint=hint, primfunc_attrs=attributes)


class CallOperands:
    """A call of a quantized operator, for its legalization: operands and attributes by name."""

    def __init__(self, builder: relax.BlockBuilder, call: relax.Call) -> None:
        self.builder, self.call = builder, call
        self.name = call.op.name.removeprefix("relax.")
        self.attributes = dialect.attributes(call)
        self.names = _names(self.name)
        self._args = call.args[:]

    def __getitem__(self, name: str) -> relax.Expr:
        """Return an operand, or a field of one that is a tuple, such as ``"data.0"``."""
        name, _, index = name.partition(".")
        expr = self._args[self.names.index(name)]
        if not index:
            return expr
        whole = _bound(self.builder, expr)
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
        """Return an operand's value where it is constant, else None."""
        expr = _bound(self.builder, self[name])
        return np.asarray(expr.value.numpy()) if isinstance(expr, ir.GenericConst) else None

    def scale(self, name: str, channels: Any = 1, wide: bool = False) -> Array:
        """Return the value of a scale, checked."""
        value = self._known(name)
        return checks.scale(value, self.name, name, _count(channels), wide)

    def zero_point(self, name: str, dtype: str, channels: Any = 1) -> Array:
        """Return the value of a zero point, checked."""
        value = self._known(name)
        return checks.zero_point(value, self.name, name, dtype, _count(channels))

    def zero_row(self, name: str, dtype: str, channels: Any = 1) -> ChannelParam:
        """Return a zero point as int32, known now or at run time."""
        if self.array(name) is None:
            return ChannelParam(expr=self[name], dtype="int32", bounds=checks.limits(dtype))
        return ChannelParam(self.zero_point(name, dtype, channels), dtype="int32")

    def check_scales(self, **channels: Any) -> None:
        """Check the scales that are constants, of a call that does not compute with them."""
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
