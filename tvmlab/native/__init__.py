"""The C++ parts of the package, as sources; they are built on first use.

A library that was built before is loaded only where no other user could have changed it
(`tvmlab.toolchain.build_extension`).

`quantizer` is the constant quantizer: the arithmetic of Relay's `qnn.quantize` in `quantize.cc`,
its border to Python and TVM in `module.cc`.

`const_fold` is a whole Relax pass, `QnnQuantizeConstFold`: pattern, callback and rewrite in
`pass.cc`, one call's arithmetic in `fold.cc`, by the quantizer's `quantize.cc`.

`npu` is the simulator of the accelerator, which `tvmlab.npu.simulator` builds with CMake: the bytes
of a program are read (`program.cc`), verified (`verify.cc`), counted (`timing.cc`) and executed
(`machine.h`, and a file for each kind of instruction); `module.cc` is the border.

`recorder` is the clock beside TVM's virtual machine that `tvmlab.profiling` reads.

`deploy` is a program that runs packages without Python, which `tvmlab.deploy` builds: the package
is read (`package.cc`) and loaded (`network.cc`); arrays are files (`npy.cc`); `main.cc` is the
command. `smallest.cc` is the least of it.
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

__all__ = ["CONST_FOLD", "QUANTIZER", "qnn_quantize_const_fold", "quantize", "quantizer"]

#: The folder of the constant quantizer's sources, Makefile and CMakeLists.txt.
QUANTIZER = Path(__file__).resolve().parent / "quantizer"

#: The folder of the pass's sources, Makefile and CMakeLists.txt.
CONST_FOLD = QUANTIZER.with_name("const_fold")


@cache
def quantizer() -> Any:
    """Build (once) and load the constant quantizer.

    Returns
    -------
    tvm_ffi.Module
        It has one function, `quantize(x, scale, zero_point, axis, out)`, which fills `out`.

    Raises
    ------
    tvmlab.errors.ToolchainError
        If there is no C++ compiler, or the cache folder cannot be written.
    """
    sources = [QUANTIZER / "quantize.cc", QUANTIZER / "module.cc"]
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
    scale : array_like of float32
        One positive, finite value, or one for each index of `axis`.
    zero_point : array_like of int32
        One value, or one for each index of `axis`.
    axis : int
        The channels' axis; counts from the end if negative.
    dtype : {"int8", "uint8", "int32"}
        What to return.

    Returns
    -------
    ndarray of `dtype`
        Of `x`'s shape.

    Raises
    ------
    ValueError
        For an axis out of range, another number of scales or zero points than of channels, a scale
        that is not positive and finite, or a NaN in `x`.
    TypeError
        If `x` or `scale` is not float32, `zero_point` holds no integers, or `dtype` is another.
    tvmlab.errors.ToolchainError
        If the C++ code cannot be built.
    """
    # Python numbers have no width of their own. Arrays have: theirs is checked, not changed.
    scales = np.asarray(scale, None if isinstance(scale, np.ndarray) else np.float32)
    zeros = np.asarray(zero_point)
    if not np.can_cast(zeros.dtype, np.int64):
        raise TypeError(f"zero_point must hold integers, and is {zeros.dtype}")
    if zeros.size and not (zeros.min() >= -(2**31) and zeros.max() < 2**31):
        raise ValueError("zero_point must fit into int32")
    values = np.asarray(x)
    out = np.empty(values.shape, dtype)
    quantizer().quantize(_plain(values), _plain(scales), _plain(zeros.astype(np.int32)), axis, out)
    return out


def qnn_quantize_const_fold() -> tvm.transform.Pass:
    """Build (once), load and make the C++ pass `QnnQuantizeConstFold`.

    A ``relax.qnn.quantize`` of three constants becomes a constant, by the arithmetic of `quantize`;
    float16 data are widened first, and int16 results are int32 ones cut to size. Variables that
    stand for constants count as constants. Where anything was folded, all of those give way to what
    they stand for; only what the function returns keeps its name.

    Returns
    -------
    tvm.transform.Pass
        A function pass of opt_level 0, for every Relax function of a module. It raises
        `tvmlab.errors.InputError`, with the operand's name, for a constant that means nothing: a
        scale that is not positive and finite, a zero point out of the dtype's range, another number
        of them than of channels, an axis out of range, a NaN in the data.

    Raises
    ------
    tvmlab.errors.ToolchainError
        If there is no C++ compiler, or the cache folder cannot be written.

    Notes
    -----
    The source is the customer's pass of the Relay years, a `DFPatternRewrite` in C++. TVM's headers
    are not shipped any more; this one needs those of tvm-ffi only.
    """
    from .. import qnn  # noqa: F401  (registers the operator, and the errors' names)

    return _const_fold().qnn_quantize_const_fold()


@cache
def _const_fold() -> Any:
    """Build and load the pass, once: even to find it built takes a third of a second."""
    sources = [CONST_FOLD / "pass.cc", CONST_FOLD / "fold.cc", QUANTIZER / "quantize.cc"]
    return toolchain.load_extension(toolchain.build_extension(sources, name="const_fold"))


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """The same values in one block of memory that DLPack can hand over: it refuses read-only."""
    return np.require(array, requirements=["C", "W"])
