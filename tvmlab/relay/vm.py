"""Relay's virtual machine: ``relay.vm.compile`` and ``tvm.runtime.vm``, on top of `relay.build`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir

from ..errors import RelayError
from .build_module import GraphExecutorFactoryModule, build
from .graph_executor import GraphModule


class ADT(list[Any]):
    """The tensors of a result that is a tuple."""

    tag = 0


class Executable:
    """Result of `compile`; bytecode and kernels are one library."""

    def __init__(self, lib: GraphExecutorFactoryModule) -> None:
        self.lib = self.mod = lib

    def save(self) -> tuple[bytearray, GraphExecutorFactoryModule]:
        """Return an empty bytecode, and the library, which has ``export_library``."""
        return bytearray(), self.lib

    @staticmethod
    def load_exec(bytecode: Any, lib: GraphExecutorFactoryModule) -> Executable:
        """Make an executable of the library that ``load_module`` read."""
        return Executable(lib)


def compile(
    mod: ir.IRModule,
    target: Any = None,
    target_host: Any = None,
    params: Mapping[str, Any] | None = None,
) -> Executable:
    """Compile a module with `relay.build`, with its arguments and errors."""
    return Executable(build(mod, target, target_host, params=params))


class VirtualMachine:
    """A compiled module on a device; `run` returns a tensor, or an `ADT` for a tuple."""

    def __init__(self, exe: Executable, device: Any, memory_cfg: Any = None) -> None:
        self.module = GraphModule(exe.lib["default"](device))

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Set the inputs of ``main`` by position or name; `RelayError` for another function."""
        if func_name != "main":
            raise RelayError(f"the machine runs main, not {func_name!r}", fix="call main")
        for index, value in enumerate(args):
            self.module.set_input(index, value)
        self.module.set_input(**kwargs)

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Set the inputs, run ``main``, and return its result."""
        self.set_input(func_name, *args, **kwargs)
        self.module.run()
        found = self.module.outputs()
        return found[0] if len(found) == 1 else ADT(found)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Set the inputs, run ``main``, and return its result."""
        return self.invoke("main", *args, **kwargs)

    def get_outputs(self) -> list[Any]:
        """Return the outputs of the last run."""
        return self.module.outputs()
