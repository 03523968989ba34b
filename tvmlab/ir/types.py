"""The known properties of a call's operands, and checks that accept unknown properties."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax, sym, tirx

from ..errors import InputError, ShapeError

_ANALYZER = sym.Analyzer()


@dataclass(frozen=True)
class Tensor:
    """An operand's known properties: an unknown shape is None, an unknown rank -1, a dtype ""."""

    call: str
    name: str
    shape: list[Any] | None
    ndim: int
    dtype: str

    @property
    def where(self) -> str:
        """The operand's place in an error message."""
        return f"{self.call}, operand {self.name}"

    def error(self, what: str, attribute: str = "", fix: str | None = None) -> ShapeError:
        """Make the error for the operand, or for an attribute of the call."""
        where = f"{self.call}, attribute {attribute}" if attribute else self.where
        return ShapeError(what, where=where, fix=fix)

    def rank(self, *allowed: int) -> None:
        """Require one of the allowed numbers of dimensions, if it is known."""
        if self.ndim >= 0 and self.ndim not in allowed:
            wanted = " or ".join(str(n) for n in allowed)
            raise self.error(f"{self.name} has {self.ndim} dimensions; {self.call} takes {wanted}")

    def holds(self, dtypes: Collection[str]) -> None:
        """Require one of several dtypes, if it is known."""
        if self.dtype and self.dtype not in dtypes:
            what = f"{self.name} has dtype {self.dtype}; {self.call} takes {', '.join(dtypes)}"
            raise InputError(what, where=self.where)

    def axis(self, axis: int) -> int:
        """Count an axis from the front, if the number of dimensions is known."""
        if self.ndim < 0:
            return axis
        count = max(self.ndim, 1)  # a scalar has one channel
        if not -count <= axis < count:
            raise self.error(f"axis {axis} is out of range: {self.name} has {self.ndim} dimensions")
        return axis % count

    def size(self, axis: int) -> Any:
        """Return the size along an axis (counted as in `axis`), None if it is unknown."""
        axis = self.axis(axis)
        return None if self.shape is None or not self.shape else self.shape[axis]


def view(call: str, name: str, ty: ir.Type | None) -> Tensor:
    """Return the properties in an operand's type; `InputError` for anything but a tensor's."""
    if isinstance(ty, relax.TensorType):
        shape = ty.shape
        known = isinstance(shape, relax.ShapeExpr)
        sizes = [plain(size) for size in shape.values] if known else None
        return Tensor(call, name, sizes, int(ty.ndim), str(ty.dtype) if ty.dtype else "")
    if ty is None or type(ty) is ir.Type or isinstance(ty, relax.ObjectType):
        return Tensor(call, name, None, -1, "")
    raise InputError(f"{name} is not a tensor: {ty}", where=f"{call}, operand {name}")


def views(call: str, names: Collection[str], types: Collection[ir.Type]) -> list[Tensor]:
    """Return the properties in the types of several operands."""
    return [view(call, name, ty) for name, ty in zip(names, types, strict=True)]


def plain(size: Any) -> Any:
    """Convert a constant size to an int, and simplify any other size."""
    if isinstance(size, int):
        return size
    simple = size if isinstance(size, tirx.IntImm) else _ANALYZER.simplify(size)
    return int(simple.value) if isinstance(simple, tirx.IntImm) else simple


def differ(a: Any, b: Any) -> bool:
    """Return whether two sizes are known to be different numbers."""
    return isinstance(a, int) and isinstance(b, int) and a != b


def result(shape: list[Any] | None, dtype: str, ndim: int = -1) -> relax.TensorType:
    """Make a result's type from its known properties."""
    if shape is None:
        return relax.TensorType(dtype=dtype, ndim=ndim)
    return relax.TensorType([plain(size) for size in shape], dtype)


def broadcast(a: Tensor, b: Tensor) -> list[Any] | None:
    """Broadcast two shapes as NumPy does; None if one is unknown."""
    if a.shape is None or b.shape is None:
        return None
    short, long = sorted((a.shape, b.shape), key=len)
    sizes = []
    for x, y in zip([1] * (len(long) - len(short)) + short, long, strict=True):
        if differ(x, y) and 1 not in (x, y):
            what = f"{a.name} of shape {a.shape} and {b.name} of shape {b.shape} do not broadcast"
            raise b.error(what)
        # A symbolic size beside a number other than 1 must equal this number.
        first = x if isinstance(x, int) else y
        last = y if first is x else x
        sizes.append(last if isinstance(first, int) and first == 1 else first)
    return sizes
