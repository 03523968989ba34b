"""Names that modules of TVM had in Relay's time, in the modules that there still are.

A module of TVM's is asked for a name as ever; only what it has not comes here, by the module's
``__getattr__``. Functions that are still there take what they took then as well.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import tvm
import tvm.contrib
import tvm.driver
import tvm.runtime
import tvm.testing
import tvm_ffi
from tvm import ir, relax

from ... import errors
from ...ir import gone, table
from ...ir.flatten import flat
from ...ir.module import normal, normalize
from .. import transform, ty
from ..analysis import free_vars
from ..build_module import load_module
from ..expr import Function
from . import checks, modules

__all__ = ["comparable", "install", "widened"]

# The whole old name, and what it is today: an object, or the name of one.
NAMES: dict[str, Any] = {
    "tvm.TVMError": RuntimeError,
    "tvm.cl": tvm.opencl,
    "tvm.const": tvm.runtime.const,
    "tvm.context": lambda *args: tvm.device(*args),
    "tvm.convert": tvm.runtime.convert,
    "tvm.error.TVMError": RuntimeError,
    "tvm.gpu": tvm.cuda,
    "tvm.instrument": tvm.ir.instrument,
    "tvm.ir.IncompleteType": ir.Type,
    "tvm.ir.PrimExpr": ir.Expr,
    "tvm.ir.RelayExpr": ir.Expr,
    "tvm.ir.TensorType": ty.TensorType,
    "tvm.ir.TVMError": RuntimeError,
    "tvm.nd": "tvmlab.relay.standin.nd",
    "tvm.register_func": tvm.register_global_func,
    "tvm.runtime.NDArray": tvm.runtime.Tensor,
    "tvm.runtime.TVMError": RuntimeError,
    "tvm.runtime.String": str,
    "tvm.target.create": tvm.target.Target,
    "tvm.target.cuda": lambda *_, **__: tvm.target.Target("cuda"),
    "tvm.testing.device_enabled": tvm.testing.device_enabled,
    "tvm.transform.FunctionPass": transform.FunctionPass,
    "tvm.transform.PrintPass": tvm.transform.PrintIR,
    **{f"tvm.testing.{name}": getattr(checks, name) for name in checks.__all__},
}
# The modules of TVM's that are asked for such names.
ASKED = {
    "tvm": tvm,
    "tvm.contrib": tvm.contrib,
    "tvm.driver": tvm.driver,
    "tvm.error": tvm.error,
    "tvm.ir": tvm.ir,
    "tvm.runtime": tvm.runtime,
    "tvm.target": tvm.target,
    "tvm.te": tvm.te,
    "tvm.testing": tvm.testing,
    "tvm.topi": tvm.topi,
    "tvm.transform": tvm.transform,
}


def install() -> None:
    """Let TVM's modules answer for old names, and its functions take old arguments."""
    for name, module in ASKED.items():
        _ask(name, module)
    ffi = modules.Made("tvm._ffi", (tvm,))
    ffi.base = ffi.function = ffi.registry = modules.Made("tvm._ffi.base", (tvm,))  # type: ignore[attr-defined]
    sys.modules |= {"tvm._ffi": ffi, "tvm._ffi.base": ffi.base}
    for place, name, made in widened():
        setattr(place, name, made)
    # Relay's parser and type inference raised DiagnosticError, a TVMError: so do ours now.
    errors.RelayError.__bases__ = (errors.ModelError, tvm.error.DiagnosticError)


def _ask(old: str, module: ModuleType) -> None:
    """Give a module a ``__getattr__`` for what it has not, after its own."""
    own: Callable[[str], Any] | None = module.__dict__.get("__getattr__")

    def find(name: str) -> Any:
        if own is not None:
            try:
                return own(name)
            except AttributeError:
                pass
        if name.startswith("__"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        whole = f"{old}.{name}"
        if whole not in NAMES:
            return modules.answer(old, name)
        found = NAMES[whole]
        return importlib.import_module(found) if isinstance(found, str) else found

    module.__getattr__ = find  # type: ignore[method-assign]


def widened() -> list[tuple[Any, str, Callable[..., Any]]]:
    """List what takes more than today's: where it is, its name, and the function."""
    get, register, equal = ir.Op.get, ir.register_op_attr, ir.assert_structural_equal
    node = ir.make_node
    load, device, start, target = (
        tvm.runtime.load_module,
        tvm.device,
        tvm.transform.PassContext.__init__,
        tvm.target.Target.__init__,
    )

    def get_op(op_name: str) -> ir.Op:
        row = table.find(op_name)
        return get(op_name if row is None else row.relax)

    def register_op_attr(op_name: str, *args: Any, **kwargs: Any) -> Any:
        row = table.find(op_name)
        return register(op_name if row is None else row.relax, *args, **kwargs)

    def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
        equal(comparable(lhs, map_free_vars), comparable(rhs, map_free_vars), map_free_vars)

    def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
        left, right = (comparable(side, map_free_vars) for side in (lhs, rhs))
        return bool(tvm_ffi.structural_equal(left, right, map_free_vars))

    def structural_hash(node: Any, map_free_vars: bool = False) -> int:
        return int(tvm_ffi.structural_hash(comparable(node), map_free_vars))

    def load_any(path: Any, *args: Any) -> Any:
        try:
            return load_module(path)
        except (errors.TvmlabError, OSError):
            return load(path, *args)

    def pass_context(self: Any, *args: Any, config: Any = None, **kwargs: Any) -> None:
        options = {}
        for name, value in (config or {}).items():
            if not _idle(name):
                options[_option(name)] = value
        start(self, *args, config=options or None, **kwargs)

    def make_device(dev_type: Any = "cpu", dev_id: int | None = None, **given: Any) -> Any:
        if isinstance(dev_type, tvm.target.Target):
            dev_type = dev_type.kind.name
        if isinstance(dev_type, str) and dev_type.startswith("{"):  # what a target prints today
            dev_type = tvm.target.Target(dev_type).kind.name
        if isinstance(dev_type, str):  # a target was a device's name too: "llvm -mcpu=..."
            kind, *rest = dev_type.split()
            dev_type = "cpu" if kind in ("llvm", "c", "stackvm") else " ".join([kind, *rest])
        return device(dev_type, dev_id or 0, **given)

    def make_node(type_key: str, **kwargs: Any) -> Any:
        return node("ir.DictAttrs" if type_key == "DictAttrs" else type_key, **kwargs)

    def make_target(self: Any, spec: Any, host: Any = None, **old: Any) -> None:
        from ...support.target import parse

        if isinstance(spec, str) and " -" in spec:
            spec = parse(spec)
        if isinstance(host, str) and " -" in host:
            host = parse(host)
        target(self, spec, host, **old)

    return [
        (ir, "make_node", make_node),
        (ir.Op, "get", staticmethod(get_op)),
        (ir, "register_op_attr", register_op_attr),
        (ir, "assert_structural_equal", assert_structural_equal),
        (ir, "structural_equal", structural_equal),
        (ir, "structural_hash", structural_hash),
        (tvm, "device", make_device),
        (tvm.runtime, "device", make_device),
        (tvm.runtime, "load_module", load_any),
        (tvm.transform.PassContext, "__init__", pass_context),
        (tvm.target.Target, "__init__", make_target),
    ]


# Options of Relay's that said how, not what: without them the result is the same.
_IDLE = {
    "relay.FuseOps.link_params",
    "relay.FuseOps.max_depth",
    "relay.backend.disable_compile_engine_cache",
    "relay.backend.tir_converter",
    "relay.backend.use_auto_scheduler",
    "relay.backend.use_meta_schedule",
    "relay.backend.use_meta_schedule_dispatch",
    "relay.frontend.fill_span",
    "relay.remove_standalone_reshapes.enable",
}


def _idle(name: str) -> bool:
    """Say whether an option is one that does nothing now, with a warning."""
    if name in _IDLE:
        warnings.warn(f"the option {name!r} of PassContext does nothing today", stacklevel=3)
    return name in _IDLE


def _option(name: str) -> str:
    """Give today's name of an option of `PassContext`."""
    if name.startswith("tir."):
        return f"tirx.{name.removeprefix('tir.')}"
    if name.startswith("relay."):
        raise gone.error(f"PassContext(config={{{name!r}: ...}})", None)
    return name


_GRAPHS = (relax.Call, relax.Tuple, relax.TupleGetItem, relax.If, relax.SeqExpr)


def _is_main(func: relax.Function) -> bool:
    return (func.attrs or {}).get("global_symbol") == "main"


def comparable(node: Any, free: bool = False) -> Any:
    """Bring graphs and bindings to one form; what cannot be stays as it is.

    Parameters
    ----------
    node : object
        What is compared.
    free : bool
        Whether free variables may stand for each other, as parameters do.
    """
    try:
        if isinstance(node, ir.IRModule):
            return normalize(node)
        if isinstance(node, relax.Function):
            made = normal(node)
            # Relay's main had no symbol.
            return made.without_attr("global_symbol") if _is_main(made) else made
        if isinstance(node, _GRAPHS):
            whole = flat(node)
            if free:
                return normal(Function(free_vars(whole), whole))
            return whole
    except errors.RelayError:
        pass
    return node
