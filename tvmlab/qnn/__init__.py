"""Quantized operators as a Relax dialect, and what one does with them.

`op` builds calls of the operators; importing this package registers them with TVM: their types,
their legalizations, and how a change of layout passes through them. `arithmetic` is what they
compute, in NumPy, and `config` how they round where a module does not say. `transform` has the
passes, and `analysis` says what stays in float.
"""

from importlib import import_module
from types import ModuleType

from . import arithmetic, config, op

__all__ = ["analysis", "arithmetic", "config", "op", "transform"]


def __getattr__(name: str) -> ModuleType:
    # Imported late: these load the pattern matcher, which `import tvmlab` does without.
    if name in ("analysis", "transform"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
