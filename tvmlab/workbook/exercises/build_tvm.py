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

from ...support import toolchain
from .judge import Wrong, call, exercise, same_values

EXPORT = "TVM_FFI_DLL_EXPORT_TYPED_FUNC"
# The int8 results of numbers halfway between two integers, and of others.
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
    # Each try has a new path, because a library that is loaded is not loaded again.
    copy = Path(tempfile.mkdtemp(dir=work.parent)) / "even"
    shutil.copytree(work, copy, symlinks=True)
    source = copy / "quantize.cc"
    given = source.read_text(encoding="utf-8")
    text = call(edit, given)
    source.write_text(text, encoding="utf-8")
    log = toolchain.run("make BUILD=made", cwd=copy).output
    quantize = _exported(copy / "made/quantizer.so", "quantize")
    unchanged = "quantize.cc has not changed, and " if text == given else ""
    for expected in (HALVES, OTHERS):
        x, found = np.array([*expected], "float32"), np.zeros(len(expected), "int8")
        call(quantize, x, np.ones(1, "float32"), np.zeros(1, "int32"), 0, found, returns=False)
        if found.tolist() != (wanted := [*expected.values()]):
            shown = ", ".join(map(str, expected))
            raise Wrong(f"{unchanged}{shown} become {found.tolist()}, expected {wanted}")
    return f"make compiled {log.count(' -c ')} object"


@exercise
def check_dequantize(source: str, work: Path) -> str:
    """Check the source of an extension that exports `dequantize`.

    Parameters
    ----------
    source : str
        The text of ``dequantize.cc``.
    work : Path
        A folder of the notebook's; the extension is built beside it.
    """
    if EXPORT not in source:
        raise Wrong(f"dequantize.cc exports nothing: there is no {EXPORT}")
    folder = Path(tempfile.mkdtemp(dir=work.parent))
    file = folder / "dequantize.cc"
    file.write_text(source, encoding="utf-8")
    built = toolchain.build_extension([file], name="second", folder=folder)
    # 127 less the zero point does not fit an int8.
    q, out = np.array([-128, 0, 5, 127], "int8"), np.zeros(4, "float32")
    call(_exported(built, "dequantize"), q, 0.5, -3, out, returns=False)
    same_values(out, np.array([-62.5, 1.5, 4.0, 65.0], "float32"), "out")
    return "exact"


def _exported(library: Path, name: str) -> Callable[..., Any]:
    """Load the library that a learner's source has become, and take a function from it."""
    import tvm_ffi  # noqa: F401  (the library needs its own)

    try:
        # Otherwise the loader looks for a missing function at its call, and ends the process.
        ctypes.CDLL(str(library), mode=os.RTLD_NOW)
    except OSError as error:
        missing = str(error).split(": ")[-1]
        raise Wrong(f"the library calls what is not there: {missing}") from error
    exported = getattr(toolchain.load_extension(library), name, None)
    if exported is None:
        raise Wrong(f"the library exports nothing by the name {name}")
    return exported  # type: ignore[no-any-return]
