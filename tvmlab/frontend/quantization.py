"""The check of scales and zero points that all importers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ModelError

__all__ = ["check", "wrong"]


def check(
    scale: Any,
    zero: Any,
    dtype: str,
    shape: Sequence[int | None] | None,
    axis: int,
    *,
    where: str,
) -> None:
    """Refuse scales and zero points that no quantizer makes.

    There is one of each, or one for each index of `axis`; a size or the rank of `shape` is None
    where it is not known before the model runs. `where` names the tensor or the operator.
    """
    bad = ~np.isfinite(scale) | (scale <= 0)
    if bad.any():
        raise wrong(f"a scale of {scale[bad].ravel()[0]}, not positive and finite", where)
    info = np.iinfo(dtype)
    bad = (zero < info.min) | (zero > info.max)
    if bad.any():
        raise wrong(f"a zero point of {zero[bad].ravel()[0]}, out of {dtype}'s range", where)
    for name, count in (("scale", scale.size), ("zero point", zero.size)):
        if count == 1 or shape is None:
            continue
        if not -len(shape) <= axis < len(shape):
            raise wrong(f"axis {axis} of a tensor with {len(shape)} dimensions", where)
        if shape[axis] not in (None, count):
            raise wrong(f"{count} {name}s for an axis of {shape[axis]}", where)
    if zero.size not in (1, scale.size):
        raise wrong(f"{scale.size} scales and {zero.size} zero points", where)


def wrong(why: str, where: str) -> ModelError:
    """Make the error that says what is wrong with a quantized model, and where."""
    return ModelError(
        f"the quantization is wrong: {why}", where=where, fix="quantize the model again"
    )
