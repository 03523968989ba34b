"""A workbook about Apache TVM, and the small package that it uses.

The data flow: `load` a model into Relax, rewrite it with any pass, `compile` it, call it. Use
`tune` first to compile with measured schedules.

Names are imported on first use, so that the command `tvmlab` starts as fast as Python. The
first name that uses TVM also registers the quantized operators for TVMScript, ``R.qnn.conv2d(...)``
and similar ones. If TVM was imported before, `import tvmlab` registers them.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .support.importing import ROOMS, Alias

if TYPE_CHECKING:
    from . import errors, models, native, plot, schedule, tuning
    from .compiler import compile
    from .frontend import load
    from .measure import bench
    from .measure.layerwise import compare
    from .runtime.executable import Executable, load_executable
    from .support import data, target, toolchain
    from .support.host import host_target
    from .tuning import tune

__version__ = "0.1.0"
__all__ = ["Executable", "bench", "compare", "compile", "data", "errors", "host_target", "load"]
__all__ += ["load_executable", "models", "native", "plot", "schedule", "target", "toolchain"]
__all__ += ["tune", "tuning"]

# The module that defines a name, unless the name is that of a module.
_FROM = dict.fromkeys(("Executable", "load_executable"), "runtime.executable")
_FROM |= {"compile": "compiler", "load": "frontend", "tune": "tuning"}
_FROM |= {"host_target": "support.host", "compare": "measure.layerwise"}
_MODULES = {*__all__, *ROOMS, "lm", "npu", "qnn", "relay"} - _FROM.keys()

sys.meta_path.insert(0, Alias())
if sys.modules.get("tvm"):
    import_module(".ir.dialect", __name__)


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name in _FROM:
        found = getattr(import_module(f".{_FROM[name]}", __name__), name)
    elif name in _MODULES:
        found = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__, *_MODULES})
