"""Sizes that a model computes: symbolic sizes from the values of small tensors, with checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ..errors import CompileError

__all__ = ["choose", "computed", "not_too_large"]

#: A function of sizes and of the elements of tensors: integers, and conditions by their words.
Make = Callable[..., tuple[Sequence[Any], Mapping[str, Any]]]


def choose(condition: Any, one: Any, other: Any) -> Any:
    """Return one of two integers of int64."""
    return tirx.Select(condition, *(tirx.const(0, "int64") + value for value in (one, other)))


def not_too_large(sizes: Sequence[Any]) -> Mapping[str, Any]:
    """Return the condition that sizes are not negative, and that their product is at most 2**40."""
    fit = (tirx.all(size >= 0, size <= 2**40) for size in sizes)
    whole = math.prod(tirx.Cast("float64", tirx.max(size, 1)) for size in sizes)
    return {"a size is negative or too large": tirx.all(True, *fit, whole <= 2.0**40)}


def computed(
    builder: relax.BlockBuilder,
    count: int,
    make: Make,
    operands: Sequence[relax.Expr],
    sizes: Sequence[Any],
    where: str,
    fix: str,
) -> list[Any]:
    """Compute `count` integers when the model runs, and return them as symbolic sizes.

    `make` gets `sizes` and a list of the elements of each operand, a vector of a known size. It
    returns the integers, and conditions by the words of the error that a false one raises.
    """

    def kernel(*given: Any) -> te.Tensor:
        *tensors, sizes = given

        def body(inputs: Any, outputs: Any) -> Any:
            with IRBuilder() as block:
                with T.serial(0, 1):
                    lists = [[x.vload([i]) for i in range(int(x.shape[0]))] for x in inputs]
                    made, conditions = make(sizes, *lists)
                    for what, condition in conditions.items():
                        text = str(CompileError(what, where=where, fix=fix))
                        with T.Assert(tirx.all(True, condition), [text], "tvmlab.OutOfRangeError"):
                            pass
                    for i, value in enumerate(made):
                        T.buffer_store(outputs[0], tirx.Cast("int64", value), [i])
                return block.get()

        out = tirx.decl_buffer((count,), "int64", "sizes", layout=None)
        return te.extern([(count,)], tensors, body, "sizes", "int64", out_buffers=[out])

    # The kernel has assertions, which only a CPU runs, so `tvmlab.indices` refuses it on a GPU.
    how = {"primfunc_name_hint": "sizes", "primfunc_attrs": {"tvmlab.cpu": True}}
    tensor = builder.emit_te(kernel, *operands, list(sizes), **how)
    symbols = [tirx.Var(f"size_{i}", "int64") for i in range(count)]
    builder.match_cast(builder.emit(op.tensor_to_shape(tensor)), relax.ShapeType(symbols))
    return symbols
