"""Programs of this package that start without all of it.

`import tvmlab` imports tvm with everything that it finds installed, PyTorch too, and the whole
package. A process that only compiles or runs kernels needs TVM and NumPy alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["command", "environment"]

# Empty packages with the right folders: what the real ones import at their top is not imported.
# tvm-ffi imports PyTorch where it is installed, which takes long; no kernel needs it. Garbage is
# looked for later, and not among what was imported: each fork would have to copy all of that.
_START = """
import gc, importlib, sys, types
gc.disable()
sys.modules["torch"] = None
*packages, module = sys.argv[2].split(".")
for depth in range(len(packages)):
    package = types.ModuleType(".".join(packages[: depth + 1]))
    package.__path__ = ["/".join([sys.argv[1], *packages[1 : depth + 1]])]
    sys.modules[package.__name__] = package
main = importlib.import_module(sys.argv[2]).main
gc.freeze()
gc.enable()
sys.exit(main(sys.argv[3:]))
"""


def command(module: str, *arguments: str) -> list[str]:
    """Give the command that runs a module's ``main(arguments)`` in a process of its own.

    Parameters
    ----------
    module : str
        Such as ``tvmlab.tuning.measuring.worker``. What it imports of this package is imported by
        itself.
    *arguments : str
        A list of them is what ``main`` is called with; what it returns is the exit status.

    Returns
    -------
    list of str
        The program and its arguments.
    """
    folder = str(Path(__file__).resolve().parents[1])
    # -P: what lies in the current folder is not what `import` finds.
    return [sys.executable, "-P", "-c", _START, folder, module, *arguments]


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Give the environment of such a process.

    Parameters
    ----------
    own : mapping of str to str
        Variables to set besides.

    Returns
    -------
    dict of str to str
        This process's, with one thread for NumPy's library: a process that forks should have no
        threads, of which the fork has none.
    """
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**os.environ, **one, **own}
