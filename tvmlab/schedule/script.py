"""Write TIR functions with the builder that TVMScript's parser uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .apply import SCHEDULED

__all__ = ["allocate", "fill", "function", "tensor"]


def allocate(*shape: int, dtype: str = "float32") -> Any:
    """Allocate a thread's own buffer.

    `schedule.lowered` keeps small buffers of the global scope on the stack, so that LLVM can keep
    them in registers. Buffers of the local scope would be allocated again in each iteration.
    """
    return T.alloc_buffer(shape, dtype, layout=None)


def fill(buffer: Any, value: Any) -> None:
    """Set all numbers of a buffer of one dimension."""
    with T.vectorized(0, buffer.shape[0]) as i:
        T.buffer_store(buffer, value, [i])


def tensor(name: str, shape: tuple[Any, ...], dtype: str = "float32", **options: Any) -> Any:
    """Declare a parameter that is a tensor."""
    return T.match_buffer(T.arg(name, T.handle()), shape, dtype, layout=None, **options)


def function(body: Callable[[], None]) -> tirx.PrimFunc:
    """Return a function whose parameters and loops `body` writes."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_attr({SCHEDULED: True, "tirx.noalias": True})
            body()
        return builder.get()
