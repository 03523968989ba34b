"""The package's C++ sources; they are built on first use.

`quantizer` is the constant quantizer, the arithmetic of Relay's `qnn.quantize`, and `const_fold`
is the Relax pass that folds constants with it; both are in one extension. `npu` is the simulator of
the accelerator (`tvmlab.npu.simulator`), `recorder` the clock of the profiler
(`tvmlab.runtime.profiling`), and `deploy` a program that runs packages without Python
(`tvmlab.deploy`).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..support import toolchain

if TYPE_CHECKING:
    import tvm

__all__ = ["CONST_FOLD", "QUANTIZER", "qnn_quantize_const_fold", "quantize"]

#: The folders of the constant quantizer and of the pass.
QUANTIZER = Path(__file__).resolve().parent / "quantizer"
CONST_FOLD = QUANTIZER.with_name("const_fold")


@cache
def _extension() -> Any:
    """Build and load the quantizer and the pass, once."""
    sources = [QUANTIZER / "quantize.cc", QUANTIZER / "module.cc", CONST_FOLD / "pass.cc"]
    return toolchain.load_extension(toolchain.build_extension(sources, name="quantizer"))


def quantize(
    x: ArrayLike,
    scale: ArrayLike,
    zero_point: ArrayLike = 0,
    *,
    axis: int = -1,
    dtype: str = "int8",
) -> NDArray[Any]:
    """Quantize constants as Relay's `qnn.quantize` does, in C++.

    ``saturate(round(x / scale) + zero_point)``, in float32 up to the cast, halves away from zero.

    Parameters
    ----------
    x : array_like of float32
        The values, any shape. Infinities saturate.
    scale, zero_point : array_like of float32, array_like of int32
        One positive, finite scale and one zero point, or one for each index of `axis`.
    axis : int
        The channels' axis; counts from the end if negative.
    dtype : {"int8", "uint8", "int16", "int32"}
        The dtype of the result.

    Returns
    -------
    ndarray of `dtype`
        An array of `x`'s shape.

    Raises
    ------
    ValueError, TypeError
        A shape, a value or a dtype is not as described above, or `x` holds a NaN.
    tvmlab.errors.ToolchainError
        The C++ code cannot be built.
    """
    # Python numbers have no width of their own. Arrays do: their width is checked, not changed.
    scales = np.asarray(scale, None if isinstance(scale, np.ndarray) else np.float32)
    zeros = np.asarray(zero_point)
    if not np.can_cast(zeros.dtype, np.int64):
        raise TypeError(f"zero_point must hold integers, not {zeros.dtype}")
    if zeros.size and not (zeros.min() >= -(2**31) and zeros.max() < 2**31):
        raise ValueError("zero_point must fit into int32")
    given = (x, scales, zeros.astype(np.int32))
    out = np.empty(np.shape(x), dtype)
    # DLPack supports only contiguous, writable arrays.
    plain = (np.require(array, requirements=["C", "W"]) for array in given)
    _extension().quantize(*plain, axis, out)
    return out


def qnn_quantize_const_fold() -> tvm.transform.Pass:
    """Return the C++ pass `QnnQuantizeConstFold`, which is built on first use.

    A ``relax.qnn.quantize`` of three constants, or of variables bound to constants, becomes a
    constant, computed by `quantize`. A quantize of float16 data stays as it is.

    Returns
    -------
    tvm.transform.Pass
        A function pass of opt_level 0. The pass raises `tvmlab.errors.InputError` for constants
        that `quantize` rejects, and for a zero point out of the dtype's range.

    Raises
    ------
    tvmlab.errors.ToolchainError
        There is no C++ compiler, or the cache folder cannot be written.
    """
    from .. import qnn  # noqa: F401  (registers the operator, and the errors' names)

    return _extension().qnn_quantize_const_fold()
