"""How scales are changed where a call leaves it open: Relay's `relay.qnn.op.requantize_config`.

The operators' attributes `rounding` and ``compute_dtype`` are ``"None"`` unless the author chose;
then what stands here holds, for the length of a ``with`` block and in the thread or task that
opened it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from ..errors import InputError

UNSET = "None"
ROUNDINGS = (UNSET, "UPWARD", "TONEAREST", "TFLITE")
COMPUTE_DTYPES = (UNSET, "int64", "float32", "float64")


@dataclass(frozen=True)
class Requantization:
    """A way to bring integers from one scale to another.

    Attributes
    ----------
    rounding : str
        ``"UPWARD"`` (half-way cases towards plus infinity), ``"TONEAREST"`` (away from zero), or
        ``"TFLITE"`` (rounded twice, as the kernels of TensorFlow Lite do).
    compute_dtype : str
        ``"int64"``: a 31-bit multiplier and a shift; ``"float32"``, ``"float64"``: in that dtype.
    """

    rounding: str = "UPWARD"
    compute_dtype: str = "int64"


_DEFAULT = Requantization()
_CURRENT: ContextVar[Requantization] = ContextVar("requantization", default=_DEFAULT)


@contextmanager
def requantize_config(
    *, rounding: str = UNSET, compute_dtype: str = UNSET
) -> Iterator[Requantization]:
    """Choose how scales are changed by calls that do not say it themselves.

    Parameters
    ----------
    rounding : str
        ``"UPWARD"``, ``"TONEAREST"`` or ``"TFLITE"``; ``"None"`` keeps what holds outside.
    compute_dtype : str
        ``"int64"``, ``"float32"`` or ``"float64"``; ``"None"`` keeps what holds outside.

    Yields
    ------
    Requantization
        What holds inside.

    Raises
    ------
    tvmlab.errors.InputError
        If a value is none of these, or ``"TFLITE"`` is joined with a float compute_dtype.

    Notes
    -----
    Relay's `RequantizeConfig` (src/relay/qnn/op/requantize_config.h, TVM 0.18). Its compute_dtype
    was float32 on x86 with SSE4.1 and int64 elsewhere; here it is int64 everywhere, so that results
    do not depend on the machine.
    """
    chosen = resolve("requantize_config", rounding, compute_dtype)
    token = _CURRENT.set(chosen)
    try:
        yield chosen
    finally:
        _CURRENT.reset(token)


def resolve(call: str, rounding: str = UNSET, compute_dtype: str = UNSET) -> Requantization:
    """Put the configuration where a call's attributes are ``"None"``.

    Parameters
    ----------
    call : str
        Who asks, for errors.
    rounding, compute_dtype : str
        The attributes.

    Returns
    -------
    Requantization
        Neither of its values is ``"None"``. TFLite's rounding is in integers, whatever the
        configuration's compute_dtype.

    Raises
    ------
    tvmlab.errors.InputError
        If a value is unknown, or the attributes ask for TFLite's rounding in floats.
    """
    _one_of(call, "rounding", rounding, ROUNDINGS)
    _one_of(call, "compute_dtype", compute_dtype, COMPUTE_DTYPES)
    outside = _CURRENT.get()
    found = outside.rounding if rounding == UNSET else rounding
    if found == "TFLITE":
        if compute_dtype not in (UNSET, "int64"):
            raise InputError(
                f'compute_dtype is "{compute_dtype}"; the rounding "TFLITE" is one of integers',
                where=f"{call}, attribute compute_dtype",
                fix='leave it at "int64", or choose another rounding',
            )
        return Requantization(found, "int64")
    return Requantization(found, outside.compute_dtype if compute_dtype == UNSET else compute_dtype)


def _one_of(call: str, name: str, value: str, allowed: Collection[str]) -> None:
    if value not in allowed:
        raise InputError(
            f'{name} is "{value}"; it has to be one of {", ".join(allowed)}',
            where=f"{call}, attribute {name}",
        )
