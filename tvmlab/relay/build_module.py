"""``relay.build`` and its result, implemented with `tvmlab.compile`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm import ir, relax

from ..compiler import compile as compile_module
from ..errors import CompileError, RelayError, TargetError
from ..ir.module import normalize
from ..runtime.executable import Executable, load_executable
from ..support.target import spelled
from .expr import Function, as_expr, refuse
from .graph_executor import GraphModule, Started
from .module import bind_params_by_name, from_expr
from .quantized import legalize
from .target import Executor, Runtime, read

__all__ = ["bind_params_by_name", "build", "create_executor", "load_module"]


class GraphExecutorFactoryModule:
    """Result of ``relay.build``: ``lib["default"](device)`` starts its `tvmlab.Executable`."""

    def __init__(self, executable: Executable, name: str, params: dict[str, Any]) -> None:
        self.executable, self.libmod_name, self.params = executable, name, params

    def __getitem__(self, name: str) -> Any:
        """Return the function that starts the module on a device."""
        if name not in (self.libmod_name, "default"):
            fix = f"use lib[{self.libmod_name!r}](device)"
            raise RelayError(f"the library has no function {name!r}", fix=fix)
        return self._start

    def _start(self, *devices: Any) -> Started:
        if len(devices) == 1 and isinstance(devices[0], (list, tuple)):
            (devices,) = devices
        if len(devices) != 1:
            raise RelayError(f"{len(devices)} devices were passed", fix="pass one")
        target, (device,) = self.executable.target, devices
        kind = "cpu" if target.kind.name == "llvm" else target.kind.name
        if device.dlpack_device_type() != tvm.device(kind).dlpack_device_type():
            raise TargetError(
                f"the module was compiled for {target.kind.name}, but the device is {device}",
                where=spelled(target),
                fix=f"run it on tvm.device({kind!r})",
            )
        return Started(self.executable, self.params, device)

    graph_json = property(lambda self: self.get_graph_json())
    lib = property(lambda self: self)

    def get_params(self) -> dict[str, Any]:
        """Return the parameters that became constants, as the tensors themselves."""
        return self.params

    def get_lib(self) -> GraphExecutorFactoryModule:
        """Return the library itself, because in Relax graph and library are one object."""
        return self

    def get_graph_json(self) -> str:
        """Return the graph in JSON: the inputs, and one function that computes the result."""
        names = [*(value.name for value in self.executable.signature.inputs), "main"]
        return json.dumps({"nodes": [{"name": name} for name in names]})

    def export_library(
        self, file_name: str | os.PathLike[str], fcompile: Any = None, addons: Any = None, **_: Any
    ) -> Path:
        """Write the library to a file of any name; `load_module` reads it.

        Raises the errors of `tvmlab.Executable.save`; leave `addons` out.
        """
        fix = "export with lib.executable.vm_executable.export_library"
        refuse("export_library", fix, addons=addons)
        return self.executable.write(Path(file_name))

    def __iter__(self) -> Iterator[Any]:
        """Unpack into graph, library and parameters, as scripts of 2020 do."""
        return iter((self.get_graph_json(), self, self.params))


def load_module(path: str | os.PathLike[str]) -> GraphExecutorFactoryModule:
    """Read a file that ``export_library`` wrote, with the errors of `tvmlab.load_executable`."""
    return GraphExecutorFactoryModule(load_executable(path), "default", {})


def build(
    ir_mod: ir.IRModule | relax.Function,
    target: Any = None,
    target_host: Any = None,
    executor: Executor | None = None,
    runtime: Runtime | None = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
    **options: Any,
) -> GraphExecutorFactoryModule:
    """Compile a module, scheduled if the `tvm.transform.PassContext` has an ``opt_level`` above 0.

    Raises the errors of `tvmlab.compile`, and `RelayError` for other options of Relay's.

    Parameters
    ----------
    ir_mod : tvm.ir.IRModule or tvm.relax.Function
        The module or function to compile; its ``main`` is the entry point.
    target, target_host : str, tvm.target.Target or mapping, optional
        As `tvmlab.relay.target.read` takes them, such as ``"llvm -mcpu=skylake-avx512"``.
    params : mapping of str to tensor, optional
        Parameters of ``main`` to make constants.
    mod_name : str
        The key of the compiled model in the result: ``lib[mod_name](device)``.
    """
    refuse("build", **options)
    mod, bound = _bound(ir_mod, params)
    mod = legalize(mod)
    level = tvm.transform.PassContext.current().opt_level
    made = compile_module(mod, read(target, target_host), schedule=level > 0)
    return GraphExecutorFactoryModule(made, mod_name, bound)


def _bound(mod: Any, params: Mapping[str, Any] | None) -> tuple[ir.IRModule, dict[str, Any]]:
    """Bind parameters of ``main`` to constants; return the module and the parameters as tensors."""
    if isinstance(mod, relax.Function):
        mod = from_expr(mod)
    if not isinstance(mod, ir.IRModule):
        what = f"relay.build takes a module, not a {type(mod).__name__}"
        raise CompileError(what, fix="make one with IRModule.from_expr")
    mod = normalize(mod)
    tensors = {
        name: value if isinstance(value, tvm.runtime.Tensor) else tvm.runtime.tensor(value)
        for name, value in (params or {}).items()
    }
    if tensors and "main" in mod:
        names = {param.name for param in mod["main"].params}
        known = {name: tensor for name, tensor in tensors.items() if name in names}
        mod = relax.transform.BindParams("main", known)(mod)
    return mod, tensors


class Evaluator:
    """Result of ``relay.create_executor``."""

    def __init__(self, mod: ir.IRModule, device: Any, target: Any, params: Any) -> None:
        self._mod, self._device, self._target, self._params = mod, device, target, params

    def evaluate(self, expr: Any = None) -> Any:
        """Compile a function, an expression without free variables, or the module's ``main``.

        A function becomes a callable that takes arrays by position or name, and returns a tensor or
        a list of tensors. Any other expression is evaluated to its value.
        """
        mod, function = self._mod, True
        if isinstance(expr, ir.GlobalVar):
            mod = from_expr(mod[expr.name_hint].without_attr("global_symbol"), mod.functions)
        elif expr is not None:
            expr = as_expr(expr)
            function = isinstance(expr, relax.Function)
            others = {var: func for var, func in mod.functions.items() if var.name_hint != "main"}
            mod = from_expr(expr if function else Function([], expr), others)
        runner = GraphModule(build(mod, self._target, params=self._params)["default"](self._device))

        def call(*args: Any, **kwargs: Any) -> Any:
            for index, value in enumerate(args):
                runner.set_input(index, value)
            runner.run(**kwargs)
            made = runner.outputs()
            return made[0] if len(made) == 1 else made

        return call if function else call()


def create_executor(
    kind: str = "debug",
    mod: ir.IRModule | None = None,
    device: Any = None,
    target: Any = "llvm",
    params: Mapping[str, Any] | None = None,
) -> Evaluator:
    """Make an object that compiles and runs expressions: ``create_executor(...).evaluate()(x)``.

    The kind is ``"debug"``, ``"graph"``, ``"vm"`` or ``"aot"``, else `RelayError`; all kinds run on
    Relax's virtual machine. The other arguments are those of `build`; the defaults are an empty
    module and the target's device.
    """
    if kind not in ("debug", "graph", "vm", "aot"):
        raise RelayError(f"unknown execution strategy: {kind}", fix="use 'graph' or 'vm'")
    made = read(target)
    if device is None:
        device = tvm.device("cpu" if made.kind.name == "llvm" else made.kind.name)
    return Evaluator(ir.IRModule() if mod is None else mod, device, made, params)
