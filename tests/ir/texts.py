"""Modules to print as Relay text, and what has to hold of the text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from tvmlab.ir.text.printer import astext
from tvmlab.ir.text.reader import fromtext
from tvmlab.qnn import rows as _  # noqa: F401 (fills the table with the quantized operators)

MATRIX = relax.TensorType([2, 4], "float32")


def equal(a: Any, b: Any) -> bool:
    return bool(tvm_ffi.structural_equal(a, b, map_free_vars=True))


def same_again(mod: tvm.IRModule) -> str:
    """Print a module, see that it is read as the same one, and give the text."""
    for types in (False, True):
        text = astext(mod, types=types)
        assert equal(fromtext(text), mod), text
        assert astext(fromtext(text), types=types) == text
    return text


def module(
    build: Callable[..., relax.Expr], *params: relax.Var, dataflow: bool = True
) -> tvm.IRModule:
    """Make a module whose main gives what `build(builder, *params)` does."""
    builder = relax.BlockBuilder()
    with builder.function("main", list(params)):
        if dataflow:
            with builder.dataflow():
                result = builder.emit_output(build(builder, *params))
        else:
            result = build(builder, *params)
        builder.emit_func_output(result)
    return builder.get()


def var(name: str = "x", ty: Any = MATRIX) -> relax.Var:
    return relax.Var(name, ty)


def body(mod: tvm.IRModule, **options: bool) -> list[str]:
    """Print without types, and give the lines of main's body."""
    lines = astext(mod, types=False, **options).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("def @main")) + 1
    return [line.strip() for line in lines[start : lines.index("}", start)]]
