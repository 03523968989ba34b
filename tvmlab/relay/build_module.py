"""``relay.build`` and what it gives, over `tvmlab.compile`."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from ..compiler import compile as compile_module
from ..compiler import simplify
from ..errors import CompileError, RelayError
from ..ir.module import normalize
from ..runtime.executable import Executable, load_executable
from .backend import Executor, Runtime
from .expr import Function, as_expr
from .graph_executor import GraphModule, Session
from .module import bind_params_by_name, from_expr
from .target import read

__all__ = [
    "GraphExecutorFactoryModule",
    "bind_params_by_name",
    "build",
    "create_executor",
    "load_module",
    "optimize",
]


class GraphExecutorFactoryModule:
    """What ``relay.build`` gives: ``lib["default"](device)`` starts it.

    Parameters
    ----------
    executable : tvmlab.Executable
        The compiled module.
    name : str
        The name to ask for in brackets.
    params : dict of str to tvm.runtime.Tensor
        The parameters that became constants.
    """

    def __init__(self, executable: Executable, name: str, params: dict[str, Any]) -> None:
        self.executable = executable
        self.libmod_name = name
        self.params = params

    def __getitem__(self, name: str) -> Any:
        """Give the function that starts the module on a device."""
        if name not in (self.libmod_name, "default"):
            raise RelayError(
                f"the library has no function {name!r}",
                where=f"it has {self.libmod_name!r}",
                fix=f"use lib[{self.libmod_name!r}](device)",
            )
        return self._start

    def _start(self, *devices: Any) -> Session:
        given = devices[0] if len(devices) == 1 else list(devices)
        device = given[0] if isinstance(given, (list, tuple)) and len(given) == 1 else given
        if isinstance(device, (list, tuple)):
            raise RelayError(
                f"{len(device)} devices were given", where="lib['default'](...)", fix="give one"
            )
        made = self.executable
        return Session(made.vm_executable, made.target, made.signature, self.params, device)

    def get_params(self) -> dict[str, Any]:
        """Give the parameters that became constants, the tensors themselves."""
        return self.params

    def get_lib(self) -> GraphExecutorFactoryModule:
        """Give the library: in Relax, graph and library are one."""
        return self

    def get_graph_json(self) -> str:
        """Describe the graph in JSON: its inputs, and one function that computes all."""
        inputs = self.executable.signature.inputs
        nodes: list[dict[str, Any]] = [
            {"op": "null", "name": value.name, "inputs": []} for value in inputs
        ]
        nodes.append(
            {"op": "tvm_op", "name": "main", "inputs": [[i, 0, 0] for i in range(len(inputs))]}
        )
        arguments = list(range(len(inputs)))
        return json.dumps({"nodes": nodes, "arg_nodes": arguments, "heads": [[len(inputs), 0, 0]]})

    get_executor_config = get_graph_json

    @property
    def lib(self) -> GraphExecutorFactoryModule:
        """The library; as `get_lib`."""
        return self

    @property
    def graph_json(self) -> str:
        """The graph; as `get_graph_json`."""
        return self.get_graph_json()

    def export_library(
        self, file_name: str | os.PathLike[str], fcompile: Any = None, addons: Any = None, **_: Any
    ) -> Path:
        """Write the library; `load_module` reads it.

        Parameters
        ----------
        file_name : path
            The file, under a name of any ending: a package, as `tvmlab.Executable.save` writes it.
        fcompile, addons : optional
            Relay's compilers; the C++ compiler of the machine links here.

        Raises
        ------
        ToolchainError, PackageError
            See `tvmlab.Executable.save`.
        """
        if addons:
            raise RelayError(
                "object files are not added to a library",
                where="export_library(addons=...)",
                fix="export with lib.executable.vm_executable.export_library",
            )
        return self.executable.write(Path(file_name))

    def __iter__(self) -> Iterator[Any]:
        """Unpack into graph, library and parameters, as code of 2020 does."""
        warnings.warn(
            "legacy graph executor behavior of producing json / lib / params will be removed",
            DeprecationWarning,
            stacklevel=2,
        )
        return iter((self.get_graph_json(), self, self.params))


def load_module(path: str | os.PathLike[str]) -> GraphExecutorFactoryModule:
    """Read what ``export_library`` wrote: the counterpart of ``tvm.runtime.load_module``.

    Raises
    ------
    PackageError, TargetError
        See `tvmlab.load_executable`.
    """
    return GraphExecutorFactoryModule(load_executable(path), "default", {})


def build(
    ir_mod: ir.IRModule | relax.Function,
    target: Any = None,
    target_host: Any = None,
    executor: Executor | None = None,
    runtime: Runtime | None = None,
    workspace_memory_pools: Any = None,
    constant_memory_pools: Any = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
) -> GraphExecutorFactoryModule:
    """Compile a module.

    Parameters
    ----------
    ir_mod : tvm.ir.IRModule or tvm.relax.Function
        What to compile; its ``main`` is what runs.
    target : str, tvm.target.Target or mapping, optional
        See `tvmlab.relay.target.read`: ``"llvm -mcpu=skylake-avx512"`` is welcome.
    target_host : as target, optional
        For devices that have a host.
    executor, runtime : optional
        One of each exists today.
    workspace_memory_pools, constant_memory_pools : optional
        Microcontrollers' memories, which are gone.
    params : mapping of str to tensor, optional
        Parameters of ``main`` to make constants.
    mod_name : str
        The name to ask the result for.

    Returns
    -------
    GraphExecutorFactoryModule

    Raises
    ------
    CompileError, TargetError, RelayError
        It cannot be compiled; see `tvmlab.compile`.

    Notes
    -----
    The optimization level of the `tvm.transform.PassContext` around it counts: 0 is
    ``tvmlab.compile(schedule=False)``, 1 and more are ``schedule=True``.
    """
    if workspace_memory_pools or constant_memory_pools:
        raise RelayError(
            "memory pools are gone with the runtime for microcontrollers",
            where="relay.build",
            fix="leave them out",
        )
    bound = {name: _tensor(value) for name, value in (params or {}).items()}
    mod = _bound(ir_mod, bound)
    level = tvm.transform.PassContext.current().opt_level
    made = compile_module(mod, read(target, target_host), schedule=level > 0)
    return GraphExecutorFactoryModule(made, mod_name, bound)


def _tensor(value: Any) -> Any:
    return value if isinstance(value, tvm.runtime.Tensor) else tvm.runtime.tensor(np.asarray(value))


def _bound(mod: Any, params: Mapping[str, Any]) -> ir.IRModule:
    """Take Relay's two kinds of input; make parameters of ``main`` constants."""
    if isinstance(mod, relax.Function):
        mod = from_expr(mod)
    if not isinstance(mod, ir.IRModule):
        raise CompileError(
            f"relay.build takes a module, not a {type(mod).__name__}",
            fix="make one with IRModule.from_expr",
        )
    mod = normalize(mod)
    if not params or "main" not in mod:
        return mod
    # Relax binds by the variable, and leaves the bindings as they are.
    main = mod["main"]
    values = {var: relax.const(params[var.name]) for var in main.params if var.name in params}
    mod = mod.clone()
    mod["main"] = main.bind_params(values)
    return mod


def optimize(
    mod: ir.IRModule | relax.Function, target: Any = None, params: Mapping[str, Any] | None = None
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Rewrite a module for inference: batch normalization and constants folded.

    Parameters
    ----------
    mod : tvm.ir.IRModule or tvm.relax.Function
        The module.
    target : as in `build`, optional
        Checked; what it means for loops comes with `build`.
    params : mapping of str to tensor, optional
        Parameters to make constants.

    Returns
    -------
    tuple of tvm.ir.IRModule, dict
        The module, and the parameters that are not in it: none.
    """
    read(target)
    return simplify(_bound(mod, {k: _tensor(v) for k, v in (params or {}).items()})), {}


class Evaluator:
    """What ``relay.create_executor`` gives."""

    def __init__(self, mod: ir.IRModule, device: Any, target: Any, params: Any) -> None:
        self._mod, self._device, self._target, self._params = mod, device, target, params

    def evaluate(self, expr: Any = None, binds: Mapping[relax.Var, Any] | None = None) -> Any:
        """Compile an expression, or the module's ``main``.

        Parameters
        ----------
        expr : tvm.relax.Expr, optional
            A function, or what has no free variables.
        binds : mapping of tvm.relax.Var to value, optional
            Values of free variables.

        Returns
        -------
        callable or tensor
            A function's is called with arrays, by place or name, and gives a tensor, or a list of
            them; another expression's value is given at once.
        """
        from .module import as_const, bind

        mod, function = self._mod, True
        if expr is not None and not isinstance(expr, ir.GlobalVar):
            expr = as_expr(expr)
            if binds:
                expr = bind(expr, {var: as_const(value) for var, value in binds.items()})
            function = isinstance(expr, relax.Function)
            whole = expr if function else Function([], expr)
            others = {var: func for var, func in mod.functions.items() if var.name_hint != "main"}
            mod = from_expr(whole, others)
        elif isinstance(expr, ir.GlobalVar):
            mod = from_expr(mod[expr.name_hint].without_attr("global_symbol"), mod.functions)
        library = build(mod, self._target, params=self._params)
        runner = GraphModule(library["default"](self._device))

        def call(*args: Any, **kwargs: Any) -> Any:
            for index, value in enumerate(args):
                runner.set_input(index, value)
            runner.run(**kwargs)
            made = [runner.get_output(index) for index in range(runner.get_num_outputs())]
            return made[0] if len(made) == 1 else made

        return call if function else call()


def create_executor(
    kind: str = "debug",
    mod: ir.IRModule | None = None,
    device: Any = None,
    target: Any = "llvm",
    params: Mapping[str, Any] | None = None,
) -> Evaluator:
    """Make what compiles and runs expressions: ``create_executor(...).evaluate()(x)``.

    Parameters
    ----------
    kind : str
        ``"debug"``, ``"graph"``, ``"vm"`` or ``"aot"``; one machine runs them all.
    mod : tvm.ir.IRModule, optional
        The module; empty where it is left out.
    device : tvm.runtime.Device, optional
        Where to run; the target's own where it is left out.
    target : as in `build`
        What to compile for.
    params : mapping of str to tensor, optional
        Parameters of ``main`` to make constants.

    Raises
    ------
    RelayError
        The kind is unknown.
    """
    if kind not in ("debug", "graph", "vm", "aot"):
        raise RelayError(
            f"unknown execution strategy: {kind}",
            where="relay.create_executor",
            fix="use 'graph' or 'vm'",
        )
    made = read(target)
    if device is None:
        device = tvm.device("cpu" if made.kind.name == "llvm" else made.kind.name)
    return Evaluator(mod if mod is not None else ir.IRModule(), device, made, params)
