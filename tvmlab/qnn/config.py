"""The default rounding of scale changes: Relay's `relay.qnn.op.requantize_config`.

The attributes `rounding` and ``compute_dtype`` of an operator are ``"None"`` by default, which
selects the configuration of the enclosing ``with`` block in the same thread or task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from ..errors import InputError

UNSET = "None"
ROUNDINGS = (UNSET, "UPWARD", "TONEAREST", "TFLITE", "ONNX")
QUANTIZE_ROUNDINGS = (UNSET, "ONNX")
COMPUTE_DTYPES = (UNSET, "int64", "float32", "float64")


@dataclass(frozen=True)
class Requantization:
    """A way to convert integers from one scale to another.

    `rounding` is ``"UPWARD"`` (half-way cases towards plus infinity), ``"TONEAREST"`` (away from
    zero), ``"TFLITE"`` (as the reference kernels of TensorFlow Lite) or ``"ONNX"`` (to even, from
    float32, as ONNX Runtime's kernels on x86). `compute_dtype` is ``"int64"`` for a 31-bit
    multiplier and a shift, ``"float32"`` or ``"float64"``. TFLite's convolutions round twice in
    integers, and its fully connected layers once in float64; ``"ONNX"`` computes in float32 alone.
    """

    rounding: str = "UPWARD"
    compute_dtype: str = "int64"


# The dtypes that the frameworks' kernels compute in, the usual one first.
_FRAMEWORKS = {"TFLITE": ("int64", "float64"), "ONNX": ("float32",)}
_DEFAULT = Requantization()
_CURRENT: ContextVar[Requantization] = ContextVar("requantization", default=_DEFAULT)


@contextmanager
def requantize_config(
    *, rounding: str = UNSET, compute_dtype: str = UNSET
) -> Iterator[Requantization]:
    """Choose the rounding of calls whose attributes do not specify one.

    Parameters
    ----------
    rounding : str
        ``"UPWARD"``, ``"TONEAREST"``, ``"TFLITE"`` or ``"ONNX"``; ``"None"`` keeps the value of
        the enclosing block.
    compute_dtype : str
        ``"int64"``, ``"float32"`` or ``"float64"``; ``"None"`` keeps the enclosing block's value.

    Yields
    ------
    Requantization
        The configuration inside the block.

    Raises
    ------
    tvmlab.errors.InputError
        If a value is not one of these, or the rounding has no such `compute_dtype`.

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
    """Replace attributes of a call that are ``"None"`` by the configuration.

    A framework's rounding implies the framework's `compute_dtype`, unless both were configured.
    """
    one_of(call, "rounding", rounding, ROUNDINGS)
    one_of(call, "compute_dtype", compute_dtype, COMPUTE_DTYPES)
    outside = _CURRENT.get()
    chosen = outside.rounding if rounding == UNSET else rounding
    computed = compute_dtype
    if computed == UNSET:
        kept = chosen == outside.rounding or not {chosen, outside.rounding} & set(_FRAMEWORKS)
        usual = _FRAMEWORKS.get(chosen, (_DEFAULT.compute_dtype,))[0]
        computed = outside.compute_dtype if kept else usual
    if computed not in _FRAMEWORKS.get(chosen, COMPUTE_DTYPES):
        raise InputError(
            f'compute_dtype is "{computed}", but no kernel of "{chosen}" computes in it',
            where=f"{call}, attribute compute_dtype",
            fix=f'leave it at "{_FRAMEWORKS[chosen][0]}", or choose another rounding',
        )
    return Requantization(chosen, computed)


def one_of(call: str, name: str, value: str, allowed: Collection[str]) -> None:
    """Check that an attribute has one of its allowed values."""
    if value not in allowed:
        what = f'{name} is "{value}"; {call} takes {", ".join(allowed)}.'
        raise InputError(what, where=f"{call}, attribute {name}")
