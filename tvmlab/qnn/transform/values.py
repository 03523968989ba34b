"""Integers with a scale and a zero point that represent float values, and checks of such values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from tvm import relax

from .. import checks
from ..checks import Array
from ..fixed_point import INT32
from ..operator import NARROW
from . import reading

T = TypeVar("T")
# `fixed_point` refuses the multiplier of a requantize if the ratio of its scales is larger.
_SCALES_APART = 2.0**30
# If an operand reaches this many steps of the result, a left shift in int32 overflows.
_STEPS_APART = 2.0**20


class NotQuantizable(Exception):
    """An operator has no integer form; `tvmlab.qnn.analysis` reports the message as the reason."""


def require(condition: object, reason: str) -> None:
    """Raise `NotQuantizable` with a reason, unless a condition holds."""
    if not condition:
        raise NotQuantizable(reason)


def known(value: T | None, reason: str) -> T:
    """Return a value that is not None, or raise `NotQuantizable` with a reason."""
    if value is None:
        raise NotQuantizable(reason)
    return value


class QuantParams(NamedTuple):
    """The parameters of a quantize: one float32 scale, one zero point, and a dtype."""

    scale: float
    zero: int
    dtype: str


@dataclass(frozen=True, eq=False)
class QuantizedValue:
    """An integer expression that represents ``clip(scale * (expr - zero), low, high)``."""

    expr: relax.Expr
    dtype: str
    scale: Array
    zero: Array
    axis: int
    least: int
    most: int
    low: float = -math.inf
    high: float = math.inf
    error: float = 0.0
    array: Array | None = None
    compute: str = "None"

    @classmethod
    def of(cls, expr: relax.Expr, params: QuantParams) -> QuantizedValue:
        """Return the value of integers with these parameters."""
        scale, zero = np.asarray(params.scale, np.float32), np.asarray(params.zero, np.int64)
        return cls(expr, params.dtype, scale, zero, 0, *checks.limits(params.dtype))

    @classmethod
    def sums(
        cls, expr: relax.Expr, scale: Array, axis: int, least: int, most: int
    ) -> QuantizedValue:
        """Return the value of int32 sums, whose zero point is 0."""
        return cls(expr, "int32", scale, np.zeros((), np.int64), axis, least, most)

    @property
    def narrow(self) -> bool:
        """Whether these are stored integers rather than int32 sums."""
        return self.dtype in NARROW

    @property
    def scalar(self) -> bool:
        """Whether all channels have one scale and zero point."""
        return self.scale.ndim == 0 and self.zero.ndim == 0

    @property
    def clipped(self) -> bool:
        """Whether a clip has yet to be applied."""
        return self.low != -math.inf or self.high != math.inf

    @property
    def far(self) -> int:
        """The largest distance of an integer from the zero point."""
        return int(max(np.max(np.abs(end - self.zero)) for end in (self.least, self.most)))

    @property
    def reach(self) -> float:
        """The largest absolute real value."""
        far = np.maximum(np.abs(self.least - self.zero), np.abs(self.most - self.zero))
        return float(np.max(far * self.scale.astype(np.float64)))

    def has(self, params: QuantParams) -> bool:
        """Return whether the integers have these parameters."""
        return self.scalar and params == (float(self.scale), int(self.zero), self.dtype)

    def unclipped(self) -> QuantizedValue:
        """Return the value without the clip that has yet to be applied."""
        return replace(self, low=-math.inf, high=math.inf)

    def real(self) -> Array:
        """Return the real values of constant integers, float64."""
        assert self.array is not None
        scale, zero = (
            reading.spread(x, self.axis, self.array.ndim) for x in (self.scale, self.zero)
        )
        values: Array = (self.array.astype(np.float64) - zero) * scale.astype(np.float64)
        return np.clip(values, self.low, self.high) if self.clipped else values

    def check_requantize(self, params: QuantParams) -> None:
        """Refuse scales that differ too much, errors over half a step and integers beyond int32."""
        apart = np.max(self.scale.astype(np.float64)) / params.scale
        require(apart < _SCALES_APART, "its scale is 2**30 times or more that of its result")
        require(self.error <= params.scale / 2, "it can be off by more than half a step")
        inside = self.reach / params.scale + abs(params.zero) < INT32[1]
        require(params.dtype != "int32" or inside, "its values could be beyond int32")

    def check_operand(self, params: QuantParams) -> None:
        """Refuse an operand if requantizing it inside an operator would be refused or wrap."""
        reach = self.reach / params.scale + abs(params.zero)
        require(reach < _STEPS_APART, "its scales differ by too much")
        require(self.error <= params.scale / 4, "it can be off by more than a quarter of a step")

    def integer_limit(self, limit: float, end: int, sign: int) -> int:
        """Return a limit of a clip as an integer, or `end` if no value is beyond the limit."""
        if np.isinf(limit):
            return end
        place = np.float64(limit) / self.scale.astype(np.float64) + self.zero
        if np.all(sign * (place - end) <= 0):
            return end
        whole = np.all(place == np.round(place)) and np.all(place == place.flat[0])
        require(whole, f"its operand is clipped at {limit}, which its scale cannot represent")
        return int(place.flat[0])


def check_sums(least: int, most: int, what: str = "") -> None:
    """Refuse int32 sums that could wrap."""
    inside = least >= INT32[0] and most <= INT32[1]
    require(inside, f"its sums may reach {max(-least, most)}{what}, beyond int32")


def _bits(dtype: str) -> int:
    return np.dtype(dtype).itemsize * 8


def shift(source: str, dtype: str) -> int:
    """Return the offset that preserves the order of integers in another dtype of the same width."""
    if _bits(source) != _bits(dtype):
        return 0
    return checks.limits(dtype)[0] - checks.limits(source)[0]


def common_dtype(dtypes: Sequence[str], result: str) -> str:
    """Choose an operator's dtype: that of its operands if they agree and it is wide enough."""
    widest = max([*dtypes, result], key=_bits)
    if len(set(dtypes)) == 1 and _bits(dtypes[0]) == _bits(widest):
        return dtypes[0]
    return result if _bits(result) == _bits(widest) else widest
