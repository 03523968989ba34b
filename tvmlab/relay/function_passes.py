"""Passes over one function at a time."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax
from tvm.ir.transform import Pass, PassContext, module_pass

from ..errors import RelayError
from ..ir.module import normal, normalize

__all__ = ["each", "function_pass"]


def each(mod: ir.IRModule, change: Callable[[relax.Function], relax.Function]) -> ir.IRModule:
    """Change every Relax function of a module; give one of bindings."""
    made = mod.clone()
    callees = {var.name_hint: (var, func) for var, func in mod.functions.items()}
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function):
            made.update_func(var, normal(change(func), callees))
    return made


def function_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
    traceable: bool = False,
) -> Any:
    """Make a pass of a function on functions, or of a class with ``transform_function``.

    Parameters
    ----------
    pass_func : callable or class, optional
        ``pass_func(func, mod, ctx)`` gives the new function, a graph or bindings; a class has it as
        its method ``transform_function``. Left out, a decorator is returned.
    opt_level : int
        From which optimization level on it runs.
    name : str, optional
        Its name; the function's or class's own where it is left out.
    required : sequence of str, optional
        Passes that have to run before it.

    Returns
    -------
    Pass, a class whose instances are passes, or a decorator

    Raises
    ------
    RelayError
        There is no `opt_level`.
    """
    if opt_level is None:
        raise RelayError(
            "a pass has an optimization level",
            where="function_pass",
            fix="give it: @function_pass(opt_level=0)",
        )

    def make(given: Any) -> Any:
        if not inspect.isclass(given):
            return wrap(given, given.__name__)

        @functools.wraps(given, updated=())
        def instance(*args: Any, **kwargs: Any) -> Pass:
            change: Any = given(*args, **kwargs)
            return wrap(change.transform_function, given.__name__)

        return instance

    def wrap(change: Callable[..., relax.Function], own: str) -> Pass:
        def run(mod: ir.IRModule, ctx: PassContext) -> ir.IRModule:
            mod = normalize(mod)
            return each(mod, lambda func: change(func, mod, ctx))

        return module_pass(
            run, opt_level=opt_level, name=name or own, required=list(required or [])
        )

    return make(pass_func) if pass_func is not None else make
