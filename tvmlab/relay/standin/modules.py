"""Modules of Relay's time: where imports of them lead.

A finder before Python's own answers for modules that today's TVM has not. It never loads a file: it
gives a module of tvmlab's, a module that moved inside TVM, or one whose every name says what became
of it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ...ir import gone
from ...qnn.reference.unary import FUNCTIONS
from .. import ty
from .checks import TempOpAttr

__all__ = ["Made", "answer", "find", "install"]

# By the longest beginning: what comes after it stays. Several are asked in turn.
MOVED: dict[str, tuple[str, ...]] = {
    "tvm.relay": ("tvmlab.relay",),
    "tvm.relay.analysis.analysis": ("tvmlab.relay.analysis",),
    "tvm.relay.backend.executor": ("tvmlab.relay.backend",),
    "tvm.relay.backend.runtime": ("tvmlab.relay.backend",),
    "tvm.relay.op.annotation.annotation": ("tvmlab.relay.op.annotation",),
    "tvm.relay.op.contrib": ("tvmlab.relay.pattern_table",),
    "tvm.relay.op.contrib.register": ("tvmlab.relay.pattern_table",),
    "tvm.relay.op.op": ("tvmlab.relay.op",),
    "tvm.relay.qnn.op.qnn": ("tvmlab.relay.qnn.op",),
    "tvm.relay.transform.transform": ("tvmlab.relay.transform",),
    "tvm.relay.frontend.onnx": ("tvmlab.relay.frontend",),
    "tvm.relay.frontend.pytorch": ("tvmlab.relay.frontend",),
    "tvm.relay.frontend.tflite": ("tvmlab.relay.frontend",),
    "tvm.arith": ("tvm.sym",),
    "tvm.contrib.cc": ("tvm.support.cc",),
    "tvm.contrib.clang": ("tvm.support.clang",),
    "tvm.contrib.emcc": ("tvm.support.emcc",),
    "tvm.contrib.graph_executor": ("tvmlab.relay.graph_executor",),
    "tvm.contrib.graph_runtime": ("tvmlab.relay.graph_executor",),
    "tvm.contrib.ndk": ("tvm.support.ndk",),
    "tvm.contrib.nvcc": ("tvm.support.nvcc",),
    "tvm.contrib.popen_pool": ("tvm.support.popen_pool",),
    "tvm.contrib.tar": ("tvm.support.tar",),
    "tvm.contrib.util": ("tvm.support.utils",),
    "tvm.contrib.utils": ("tvm.support.utils",),
    "tvm.contrib.xcode": ("tvm.support.xcode",),
    "tvm.ir.container": ("tvm.ir",),
    "tvm.meta_schedule": ("tvm.s_tir.meta_schedule",),
    "tvm.nd": ("tvmlab.relay.standin.nd",),
    "tvm.ndarray": ("tvmlab.relay.standin.nd",),
    "tvm.parser": ("tvmlab.relay.standin.parser",),
    "tvm.runtime.ndarray": ("tvmlab.relay.standin.nd",),
    "tvm.script.tir": ("tvm.tirx.script",),
    "tvm.tir": ("tvm.tirx", "tvm.s_tir"),
    "tvm.tir.tensor_intrin": ("tvm.s_tir.tensor_intrin",),
}
# Single names of such modules, where they are elsewhere.
NAMES: dict[str, Any] = {
    "tvm.relay.backend.te_compiler.get": lambda: _cache,
    "tvm.relay.qnn.op.legalizations.hardswish_func": FUNCTIONS["hardswish"],
    "tvm.relay.testing.temp_op_attr.TempOpAttr": TempOpAttr,
    "tvm.tir.Any": ty.Any_,
}
# Modules of which only the names above are left: they become attributes of their packages, because
# old code imports them with `from`.
PARTS = (
    "tvm.relay.backend.te_compiler",
    "tvm.relay.qnn.op.legalizations",
    "tvm.relay.testing.byoc",
    "tvm.relay.testing.temp_op_attr",
    "tvm.relay.transform.fake_quantization_to_integer",
)


class Made(ModuleType):
    """A module of Relay's time whose names are looked up elsewhere.

    Parameters
    ----------
    name : str
        The old name.
    sources : sequence of module
        Where its names are, in the order to ask.
    """

    def __init__(self, name: str, sources: Sequence[ModuleType] = ()) -> None:
        super().__init__(name, f"Stands for {name} of Relay's time.")
        self.__path__: list[str] = []
        self._sources = sources

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for source in self._sources:
            found = getattr(source, name, self)
            if found is not self:
                return found
        return answer(self.__name__, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for one in self._sources for name in dir(one))})


# Today's TVM has no cache of kernels between builds, so clearing it does nothing.
_cache: Made = Made("tvm.relay.backend.te_compiler.TECompiler")
_cache.clear = lambda: None  # type: ignore[attr-defined]


def answer(module: str, name: str) -> Any:
    """Give what a module had in Relay's time and has not today.

    Parameters
    ----------
    module : str
        The old name of the module.
    name : str
        The name that was asked for in it.

    Raises
    ------
    RelayNameError, RelayImportError
        It is gone.
    AttributeError
        There never was such a name, as far as tvmlab knows.
    """
    whole = f"{module}.{name}"
    if whole in NAMES:
        return NAMES[whole]
    if moved(whole) is not None or _holds_gone(whole):
        return importlib.import_module(whole)
    row = gone.find(_short(whole))
    if row is not None:
        raise gone.of_attribute(gone.error(whole, row.today, row.remark), gone=True)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def find(name: str) -> ModuleType | None:
    """Give the module that stands for an old one; None where none does."""
    found = moved(name)
    if found is None and (_holds_gone(name) or gone.find(_short(name)) is not None):
        return Made(name)
    return found


def moved(name: str) -> ModuleType | None:
    """Give the module that has an old one's names; None where there is none."""
    head, rest = name, ""
    while head and head not in MOVED:
        head, _, last = head.rpartition(".")
        rest = f".{last}{rest}"
    sources = [found for base in MOVED.get(head, ()) if (found := _module(base + rest))]
    if len(sources) == 1 and sources[0].__name__.startswith("tvmlab."):
        (only,) = sources
        only.__dict__.setdefault("__path__", [])  # Relay's may have been a package
        return only
    return Made(name, sources) if sources else None


def _short(name: str) -> str:
    """Give the name that the table of gone names has."""
    return name.removeprefix("tvm.") if name.startswith("tvm.relay.") else name


def _holds_gone(name: str) -> bool:
    return any(old.startswith(f"{_short(name)}.") for old in gone.ROWS)


def _module(name: str) -> ModuleType | None:
    """Import a module that may not be there."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        outer, _, last = name.rpartition(".")
        found = getattr(sys.modules.get(outer), "__dict__", {}).get(last)
        return found if isinstance(found, ModuleType) else None


class Finder(MetaPathFinder, Loader):
    """Answers imports of old modules with what stands for them."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Say whether something stands for a module."""
        outer = name.partition(".")[0]
        found = find(name) if outer == "tvm" else None
        if found is None and name.startswith("tvm.relay."):
            raise gone.RelayImportError(
                f"tvmlab does not carry the module {name}",
                where=name,
                fix="take the import out; notebook 10 has what took the place of Relay's names",
            )
        return None if found is None else ModuleSpec(name, self, loader_state=found)

    def exec_module(self, module: ModuleType) -> None:
        """Put what stands for the module in its place."""
        spec = module.__spec__
        assert spec is not None
        sys.modules[spec.name] = spec.loader_state


def install() -> None:
    """Put the finder before Python's own."""
    if not any(isinstance(one, Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, Finder())
    for name in PARTS:
        importlib.import_module(name)
