"""Quantized operators as a Relax dialect, and the passes and analyses for them.

`op` builds calls of the operators. Importing this package registers them with TVM: their types,
legalizations and layout inference. `arithmetic` defines their results in NumPy, and `config` their
rounding for calls without a rounding of their own. `transform` has the passes, and `analysis` lists
the operators that remain in float.
"""

from importlib import import_module
from types import ModuleType

from . import arithmetic, config, op

__all__ = ["analysis", "arithmetic", "config", "op", "transform"]


def __getattr__(name: str) -> ModuleType:
    # Imported on first use, because these modules load the pattern matcher.
    if name in ("analysis", "transform"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
