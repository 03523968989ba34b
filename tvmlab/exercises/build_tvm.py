"""The checks of notebook 01, Build TVM."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ToolchainError
from ..support import toolchain
from .arrays import same_values
from .compilers import complaint
from .verdict import NotYet, call, exercise, written

__all__ = ["check_dequantize", "check_round_to_even"]

EXPORT = "TVM_FFI_DLL_EXPORT_TYPED_FUNC"
# What int8 is made of numbers halfway between two integers, and of others, which go to the nearest.
HALVES = {0.5: 0, 1.5: 2, 2.5: 2, -0.5: 0}
OTHERS = {1.0: 1, 0.9: 1, -1.2: -1, 3.4: 3, 1000.0: 127}


@exercise
def check_round_to_even(edit: Callable[[str], str], work: Path) -> str:
    """Check a change of the quantizer's source: halves go to the even neighbour.

    Parameters
    ----------
    edit : callable
        Takes the text of ``quantize.cc`` and returns the new one.
    work : Path
        The notebook's copy of the quantizer, built in its folder ``made``.
    """
    # A new path for every try: a library that is loaded is not loaded again.
    copy = Path(tempfile.mkdtemp(dir=work.parent)) / "even"
    shutil.copytree(work, copy, symlinks=True)  # Objects and their times, too.
    source = copy / "quantize.cc"
    given = source.read_text(encoding="utf-8")
    changed = written(call(edit, given), "what edit returns")
    source.write_text(changed, encoding="utf-8")
    try:
        log = toolchain.run("make BUILD=made", cwd=copy).output
    except ToolchainError as error:
        raise NotYet(f"the compiler refuses it: {complaint(error)}") from error
    quantize = _exported(copy / "made/quantizer.so", "quantize")
    unchanged = "quantize.cc has not changed, and " if changed == given else ""
    for numbers in (HALVES, OTHERS):
        if (rounded := _rounded(quantize, [*numbers])) != (wanted := [*numbers.values()]):
            shown = ", ".join(map(str, numbers))
            raise NotYet(f"{unchanged}{shown} become {rounded}, expected {wanted}")
    return f"make compiled {log.count(' -c ')} object"


def _rounded(quantize: Callable[..., Any], numbers: list[float]) -> list[int]:
    """Quantize numbers to int8, with a scale of one and a zero point of zero."""
    given, found = np.array(numbers, "float32"), np.zeros(len(numbers), "int8")
    scale, zero = np.ones(1, "float32"), np.zeros(1, "int32")
    call(quantize, given, scale, zero, 0, found, returns=False)
    rounded: list[int] = found.tolist()
    return rounded


@exercise
def check_dequantize(source: str, work: Path) -> str:
    """Check the source of an extension that exports `dequantize`.

    Parameters
    ----------
    source : str
        The text of ``dequantize.cc``.
    work : Path
        A folder of the notebook's; what is built stands beside it.
    """
    if EXPORT not in written(source, "dequantize_source"):
        raise NotYet(f"dequantize.cc exports nothing: there is no {EXPORT}")
    folder = Path(tempfile.mkdtemp(dir=work.parent))
    file = folder / "dequantize.cc"
    file.write_text(source, encoding="utf-8")
    try:
        built = toolchain.build_extension([file], name="second", folder=folder)
    except ToolchainError as error:
        raise NotYet(f"the compiler refuses it: {complaint(error)}") from error
    dequantize = _exported(built, "dequantize")
    # The last one less its zero point is no int8. Memory that was used before may hold the answer.
    q, out = np.array([-128, 0, 5, 127], "int8"), np.zeros(4, "float32")
    call(dequantize, q, 0.5, -3, out, returns=False)
    same_values(out, np.array([-62.5, 1.5, 4.0, 65.0], "float32"), "out")
    return "exact"


def _exported(library: Path, name: str) -> Callable[..., Any]:
    """Load the library that a learner's source has become, and take a function from it."""
    import tvm_ffi  # noqa: F401  (the library needs its own)

    try:
        # Otherwise what is missing is looked for when it is called, and the process ends.
        ctypes.CDLL(str(library), mode=os.RTLD_NOW)
    except OSError as error:
        missing = str(error).split(": ")[-1]
        raise NotYet(f"the library calls what is not there: {missing}") from error
    extension = toolchain.load_extension(library)
    try:
        exported: Callable[..., Any] = getattr(extension, name)
    except AttributeError as error:
        raise NotYet(f"the library exports nothing by the name {name}") from error
    return exported
