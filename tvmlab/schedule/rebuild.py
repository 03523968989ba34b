"""Rebuild loops and blocks with other parts: TVM's statements cannot be changed in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

__all__ = ["block_with", "loop_with", "replaced"]


def replaced(expr: Any, pairs: Sequence[tuple[Any, Any]]) -> Any:
    """Substitute values for variables."""

    def value(var: tirx.Var) -> Any:
        return next((known for old, known in pairs if old.same_as(var)), var)

    return tvm_ffi.structural_map(expr, (tirx.Var, value))


def loop_with(
    loop: tirx.For,
    body: tirx.Stmt,
    *,
    without: Sequence[str] = (),
    marks: dict[str, Any] | None = None,
    extent: Any = None,
) -> tirx.For:
    """Return a loop with another body, without some annotations, with others, and of a size."""
    kept = {key: value for key, value in loop.annotations.items() if key not in without}
    size = loop.extent if extent is None else extent
    parts = loop.min, size, loop.kind, body, loop.thread_binding, kept | (marks or {})
    return tirx.For(loop.loop_var, *parts, step=loop.step)


def block_with(
    block: s_tir.SBlock,
    body: tirx.Stmt,
    buffers: Sequence[Any] = (),
    *,
    axes: Sequence[Any] | None = None,
    reads: Sequence[Any] | None = None,
) -> s_tir.SBlock:
    """Return a block with another body, with more buffers in it, and with other axes or reads."""
    return s_tir.SBlock(
        block.iter_vars if axes is None else axes,
        block.reads if reads is None else reads,
        block.writes,
        block.name_hint,
        body,
        block.init,
        [*block.alloc_buffers, *buffers],
        block.match_buffers,
        block.annotations,
    )
