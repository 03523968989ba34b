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

from .. import toolchain
from ..errors import ToolchainError
from .arrays import same_values
from .compilers import complaint
from .verdict import NotYet, call, exercise, of_type

__all__ = ["check_dequantize", "check_round_to_even"]

EXPORT = "TVM_FFI_DLL_EXPORT_TYPED_FUNC"


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
    text = source.read_text(encoding="utf-8")
    changed = of_type(call(edit, text), str, "what edit returns", "the new text")
    source.write_text(changed, encoding="utf-8")
    try:
        log = toolchain.run("make BUILD=made", cwd=copy).output
    except ToolchainError as error:
        raise NotYet(f"the compiler refuses it: {complaint(error)}") from error
    quantize = _exported(copy / "made/quantizer.so", "quantize")
    halves = np.array([0.5, 1.5, 2.5, -0.5], "float32")
    found, scale, zero = np.empty(halves.shape, "int8"), np.ones(1, "float32"), np.zeros(1, "int32")
    call(quantize, halves, scale, zero, 0, found, returns=False)
    if (wanted := [0, 2, 2, 0]) != (rounded := found.tolist()):
        unchanged = "quantize.cc has not changed, and " if changed == text else ""
        raise NotYet(f"{unchanged}0.5, 1.5, 2.5, -0.5 become {rounded}, expected {wanted}")
    return f"make compiled {log.count(' -c ')} object"


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
    if EXPORT not in of_type(source, str, "dequantize_source", "a text"):
        raise NotYet(f"dequantize.cc exports nothing: there is no {EXPORT}")
    folder = Path(tempfile.mkdtemp(dir=work.parent))
    file = folder / "dequantize.cc"
    file.write_text(source, encoding="utf-8")
    try:
        built = toolchain.build_extension([file], name="second", folder=folder)
    except ToolchainError as error:
        raise NotYet(f"the compiler refuses it: {complaint(error)}") from error
    dequantize = _exported(built, "dequantize")
    q, out = np.array([-128, 0, 5], "int8"), np.empty(3, "float32")
    call(dequantize, q, 0.5, -3, out, returns=False)
    same_values(out, np.array([-62.5, 1.5, 4.0], "float32"), "out")
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
