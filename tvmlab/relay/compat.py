"""Run scripts of the Relay era unchanged, in the process that calls `install`.

After `install`, an import finder serves the modules that today's TVM lacks, and a
``__getattr__`` in TVM's modules serves the names that they lack. Each old name resolves to tvmlab,
to another place in TVM, or to an error that names the counterpart. Functions that still exist also
take their old arguments, and objects have their old attributes (`tvmlab.relay.aliases`).
"""

from __future__ import annotations

import functools
import importlib
import sys
import unittest
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import tvm
import tvm.contrib
import tvm.driver
import tvm.runtime
import tvm.testing
import tvm_ffi
from tvm import ir, relax

from .. import errors
from ..ir import gone, table
from ..ir.graph import function, has_type, inline_bindings, substitute, transform
from ..ir.module import normal, normalize
from ..support.target import parse
from . import aliases, expr, fake_quantization, vm
from .analysis import as_function
from .build_module import load_module

MOVED: dict[str, tuple[str, ...]] = {
    "tvm.relay": ("tvmlab.relay",),
    "tvm.relay.analysis.analysis": ("tvmlab.relay.analysis",),
    "tvm.relay.backend.executor": ("tvmlab.relay.target",),
    "tvm.relay.backend.runtime": ("tvmlab.relay.target",),
    "tvm.relay.backend.vm": ("tvmlab.relay.vm",),
    "tvm.relay.function": ("tvmlab.relay.expr",),
    "tvm.relay.qnn.transform": ("tvmlab.relay.quantized",),
    "tvm.relay.op.op": ("tvmlab.relay.op",),
    "tvm.relay.transform.transform": ("tvmlab.relay.transform",),
    **{f"tvm.relay.frontend.{name}": ("tvmlab.relay.frontend",)
       for name in ("onnx", "pytorch", "tflite")},
    **{f"tvm.contrib.{name}": (f"tvm.support.{name}",)
       for name in ("cc", "clang", "emcc", "ndk", "nvcc", "popen_pool", "tar", "utils", "xcode")},
    "tvm.arith": ("tvm.sym",),
    "tvm.contrib.graph_executor": ("tvmlab.relay.graph_executor",),
    "tvm.contrib.graph_runtime": ("tvmlab.relay.graph_executor",),
    "tvm.ir.container": ("tvm.ir",),
    "tvm.meta_schedule": ("tvm.s_tir.meta_schedule",),
    "tvm.ndarray": ("tvm.nd",),
    "tvm.parser": ("tvmlab.relay.module",),
    "tvm.runtime.container": ("tvmlab.relay.vm",),
    "tvm.runtime.ndarray": ("tvm.nd",),
    "tvm.script.tir": ("tvm.tirx.script",),
    "tvm.tir": ("tvm.tirx", "tvm.s_tir"),
}  # fmt: skip
"""Today's modules by the longest prefix of the old name; several are searched in order."""

WATCHED = {
    "tvm": tvm,
    **{f"tvm.{name}": getattr(tvm, name)
       for name in ("contrib", "driver", "error", "ir", "runtime", "target", "te", "testing",
                    "topi", "transform")},
}  # fmt: skip
"""TVM's modules that serve names of the Relay era."""

PARTS = ("backend.te_compiler", "testing.byoc", "testing.temp_op_attr",
         "transform.fake_quantization_to_integer")  # fmt: skip
"""Modules of Relay that old scripts import with ``from``, and that have few names today."""


class OldModule(ModuleType):
    """A module or function of the Relay era whose names are looked up in modules of today."""

    def __init__(self, name: str, sources: Sequence[ModuleType] = (), **names: Any) -> None:
        super().__init__(name, f"Replacement for {name} of the Relay era.")
        self.__path__: list[str] = []
        self.__dict__.update(names)
        self._sources = sources

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            for source in self._sources:
                if (found := getattr(source, name, self)) is not self:
                    return found
        return _answer(self.__name__, name)

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refuse the call of a removed function that was imported by its name."""
        module, _dot, name = self.__name__.rpartition(".")
        return _answer(module, name, importing=False)


def _answer(module: str, name: str, importing: bool = True) -> Any:
    """Return a name that a module had in the Relay era, or raise an error with the counterpart."""
    whole = f"{module}.{name}"
    if whole in NAMES:
        return NAMES[whole]
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    if importing and (_moved(whole) is not None or _holds_gone(whole)):
        return importlib.import_module(whole)
    row = gone.find(_short(whole))
    if row is not None:
        raise gone.error(whole, row.today, row.remark)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def _moved(name: str) -> ModuleType | None:
    """Return the module with the names of an old module, or None."""
    head, rest = name, ""
    while head and head not in MOVED:
        head, _, last = head.rpartition(".")
        rest = f".{last}{rest}"
    sources = [found for base in MOVED.get(head, ()) if (found := _module(base + rest))]
    if len(sources) == 1 and sources[0].__name__.startswith("tvmlab."):
        sources[0].__dict__.setdefault("__path__", [])  # Relay's module can be a package
        return sources[0]
    return OldModule(name, sources) if sources else None


def _short(name: str) -> str:
    """Return the name as the table of removed names writes it."""
    return name.removeprefix("tvm.") if name.startswith("tvm.relay.") else name


def _holds_gone(name: str) -> bool:
    return any(old.startswith(f"{_short(name)}.") for old in gone.ROWS)


def _module(name: str) -> ModuleType | None:
    """Import a module, or return None if it does not exist."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and not f"{name}.".startswith(f"{error.name}."):
            raise
        outer, _, last = name.rpartition(".")
        found = getattr(sys.modules.get(outer), "__dict__", {}).get(last)
        return found if isinstance(found, ModuleType) else None


class Finder(MetaPathFinder, Loader):
    """Import finder and loader for the modules of the Relay era."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of the replacement for a module, or None if there is no replacement."""
        if name.partition(".")[0] != "tvm":
            return None
        found = _moved(name)
        if found is None and (_holds_gone(name) or gone.find(_short(name)) is not None):
            found = OldModule(name)
        return None if found is None else ModuleSpec(name, self, loader_state=found)

    def exec_module(self, module: ModuleType) -> None:
        """Replace the new module by the one that `find_spec` found."""
        assert module.__spec__ is not None
        sys.modules[module.__spec__.name] = module.__spec__.loader_state


def install() -> None:
    """Serve old imports and names, and let TVM take old arguments, for the rest of this process."""
    if any(isinstance(one, Finder) for one in sys.meta_path):
        return
    sys.meta_path.insert(0, Finder())
    sys.modules["tvm.nd"] = _nd
    sys.modules["tvm._ffi"] = OldModule("tvm._ffi", (tvm,))
    for name in PARTS:
        importlib.import_module(f"tvm.relay.{name}")
    for name, module in WATCHED.items():
        # None of these modules has a ``__getattr__`` of its own.
        module.__getattr__ = functools.partial(_answer, name)  # type: ignore[method-assign]
    tvm.runtime.vm.Executable = vm.Executable
    tvm.runtime.vm.VirtualMachine = _Machine
    for place, name, made in _widened():
        setattr(place, name, made)
    # Relay's parser and type inference raised DiagnosticError, a TVMError, and so does tvmlab now.
    errors.RelayError.__bases__ = (errors.ModelError, tvm.error.DiagnosticError)
    aliases.install()


class _Machine(tvm.runtime.vm.VirtualMachine):  # type: ignore[misc]
    """Today's machine for today's executables, and `vm.VirtualMachine` for Relay's."""

    def __new__(cls, exe: Any, *args: Any, **kwargs: Any) -> Any:
        is_old = isinstance(exe, vm.Executable)
        return vm.VirtualMachine(exe, *args, **kwargs) if is_old else super().__new__(cls)


_nd = OldModule("tvm.nd", (tvm.runtime,), NDArray=tvm.runtime.Tensor, array=tvm.runtime.tensor)
# Today's TVM has no cache of kernels between builds, so clearing it does nothing.
_cache = OldModule("tvm.relay.backend.te_compiler.TECompiler", clear=lambda: None)
_needs_gpu = unittest.skipUnless(tvm.cuda().exist, "there is no GPU")

NAMES: dict[str, Any] = {
    **{f"tvm{part}.TVMError": RuntimeError for part in ("", ".error", ".ir", ".runtime")},
    "tvm.const": tvm.runtime.const,
    "tvm.convert": tvm.runtime.convert,
    "tvm.gpu": tvm.cuda,
    "tvm.instrument": tvm.ir.instrument,
    "tvm.ir.IncompleteType": ir.Type,
    "tvm.ir.PrimExpr": ir.Expr,
    "tvm.ir.RelayExpr": ir.Expr,
    "tvm.ir.TensorAffineType": fake_quantization.TensorAffineType,
    "tvm.ir.TensorType": expr.TensorType,
    "tvm.nd": _nd,
    "tvm.register_func": tvm.register_global_func,
    "tvm.relay.backend.te_compiler.get": lambda: _cache,
    "tvm.runtime.NDArray": tvm.runtime.Tensor,
    "tvm.runtime.String": str,
    "tvm.target.create": tvm.target.Target,
    "tvm.testing.requires_cuda": _needs_gpu,
    "tvm.testing.requires_gpu": _needs_gpu,
    "tvm.testing.requires_llvm": lambda test: test,
    "tvm.testing.uses_gpu": lambda test: test,
    "tvm.tir.Any": expr.Any_,
}
"""Single old names and their replacements."""


def _relax_name(name: str) -> str:
    row = table.find(name)
    return name if row is None else row.relax


def _widened() -> list[tuple[Any, str, Callable[..., Any]]]:
    """List functions that take more arguments than today's: the owner, the name, the function."""
    get, register, equal = ir.Op.get, ir.register_op_attr, ir.assert_structural_equal
    node, load, device = ir.make_node, tvm.runtime.load_module, tvm.device
    start, target = tvm.transform.PassContext.__init__, tvm.target.Target.__init__

    def comparing(compare: Callable[..., Any]) -> Callable[..., Any]:
        return lambda lhs, rhs, map_free_vars=False: compare(
            *(_comparable(side, map_free_vars) for side in (lhs, rhs)), map_free_vars
        )

    def load_any(path: Any, *args: Any) -> Any:
        try:
            return load_module(path)
        except (errors.TvmlabError, OSError):
            return load(path, *args)

    def pass_context(self: Any, *args: Any, config: Any = None, **kwargs: Any) -> None:
        # Relay's other options do not change the result, so they are dropped.
        kept = {}
        for name, value in (config or {}).items():
            if name.startswith("relay.ext."):
                raise gone.error(f"PassContext(config={{{name!r}: ...}})", None)
            if not name.startswith("relay."):
                kept[f"tirx.{name[4:]}" if name.startswith("tir.") else name] = value
        start(self, *args, config=kept or None, **kwargs)

    def make_device(dev_type: Any = "cpu", dev_id: int | None = None, **given: Any) -> Any:
        if isinstance(dev_type, str) and dev_type.startswith("{"):  # the text of a target today
            dev_type = tvm.target.Target(dev_type)
        if isinstance(dev_type, tvm.target.Target):
            dev_type = dev_type.kind.name
        if isinstance(dev_type, str):  # a target was also a device name: "llvm -mcpu=..."
            kind, *rest = dev_type.split()
            dev_type = "cpu" if kind in ("llvm", "c", "stackvm") else " ".join([kind, *rest])
        return device(dev_type, dev_id or 0, **given)

    def register_attr(op_name: str, attr_key: str, *args: Any, **kwargs: Any) -> Any:
        if attr_key.endswith("FakeQuantizationToInteger"):
            optional = attr_key.startswith("FTVMOptional")
            return fake_quantization.register(op_name, *args, optional=optional, **kwargs)
        if attr_key.startswith("FTVM"):
            remark = "with the attribute FLegalize, for a lowering"
            what = f"register_op_attr({op_name!r}, {attr_key!r})"
            raise gone.error(what, "tvm.ir.register_op_attr", remark)
        return register(_relax_name(op_name), attr_key, *args, **kwargs)

    def make_node(key: str, **kwargs: Any) -> Any:
        try:
            return node("ir.DictAttrs" if key == "DictAttrs" else key, **kwargs)
        except RuntimeError as error:
            if "Cannot find type" not in str(error):
                raise
            raise gone.error(f"make_node({key!r})", 'make_node("ir.DictAttrs")') from error

    def read(one: Any) -> Any:
        return parse(one) if isinstance(one, str) and " -" in one else one

    def make_target(self: Any, *given: Any, **named: Any) -> None:
        target(self, *map(read, given), **{name: read(one) for name, one in named.items()})

    return [
        (ir, "make_node", make_node),
        (ir.Op, "get", staticmethod(lambda op_name: get(_relax_name(op_name)))),
        (ir, "register_op_attr", register_attr),
        (ir, "assert_structural_equal", comparing(equal)),
        (ir, "structural_equal", comparing(tvm_ffi.structural_equal)),
        (tvm, "device", make_device),
        (tvm.runtime, "device", make_device),
        (tvm.runtime, "load_module", load_any),
        (tvm.transform.PassContext, "__init__", pass_context),
        (tvm.target.Target, "__init__", make_target),
    ]  # fmt: skip


def _with_passed_types(_: Any, after: Any) -> Any:
    """Give the parameters of a called function the types of the arguments, as inference does."""
    func = after.op if isinstance(after, relax.Call) else None
    if not isinstance(func, relax.Function):
        return after
    params = [
        relax.Var(param.name, arg.ty) if has_type(arg) and not has_type(param) else param
        for param, arg in zip(func.params, after.args, strict=True)
    ]
    body = substitute(func.body, dict(zip(func.params, params, strict=True)))
    return relax.Call(function(params, body, func.attrs), list(after.args))


_GRAPHS = (relax.Call, relax.Tuple, relax.TupleGetItem, relax.If, relax.SeqExpr)


def _comparable(node: Any, free: bool = False) -> Any:
    """Normalize graphs and bindings to compare; with `free`, free variables become parameters."""
    try:
        if isinstance(node, ir.IRModule):
            return normalize(node)
        if isinstance(node, relax.Function):
            made = normal(node)
            is_main = (made.attrs or {}).get("global_symbol") == "main"  # Relay's has no symbol
            return made.without_attr("global_symbol") if is_main else made
        if isinstance(node, _GRAPHS):
            whole = inline_bindings(node)
            return normal(as_function(whole)) if free else transform(whole, _with_passed_types)
    except errors.RelayError:
        pass
    return node
