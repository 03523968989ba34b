"""PyTorch's operators that index: converters in place of those of upstream's importer.

Upstream's converters lose four things. `embedding`, `gather`, `index_select` and `scatter` refuse
indices below zero, which `x[i]` counts from the end. Upstream reads ids of an embedding as int32,
so that a large one becomes another. It takes ``x[:, i, j]`` for an outer product. And it passes the
grid of `grid_sample` with the axis of coordinates last, where Relax has it second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import relax
from tvm.relax import op

from ..errors import UnsupportedOperatorError
from ..ir.indices import not_below_zero
from ..ir.indices.loops import static
from .pt2e import arguments

__all__ = ["CONVERTERS"]

Emit = Callable[[relax.Expr], relax.Var]


def _embedding(given: dict[str, Any], emit: Emit) -> relax.Var:
    return emit(op.take(given["weight"], not_below_zero(given["indices"], emit), 0))


def _index_select(given: dict[str, Any], emit: Emit) -> relax.Var:
    index = not_below_zero(emit(op.reshape(given["index"], [-1])), emit)
    return emit(op.take(given["self"], index, given["dim"]))


def _gather(given: dict[str, Any], emit: Emit) -> relax.Var:
    index = not_below_zero(given["index"], emit)
    return emit(op.gather_elements(given["self"], index, given["dim"]))


def _scatter(given: dict[str, Any], emit: Emit) -> relax.Var:
    data, index = given["self"], given["index"]
    shape = list(index.ty.shape.values)
    if "src" in given:
        source = given["src"]
        if not tvm_ffi.structural_equal(source.ty.shape, index.ty.shape):
            axes = list(range(len(shape)))
            source = emit(op.strided_slice(source, axes, [0] * len(shape), shape))
    else:
        value = relax.const(given["value"], str(data.ty.dtype))
        source = emit(op.broadcast_to(value, shape))
    return emit(op.scatter_elements(data, not_below_zero(index, emit), source, given["dim"]))


def _index(given: dict[str, Any], emit: Emit) -> relax.Var:
    data = given["self"]
    placed = {axis: index for axis, index in enumerate(given["indices"]) if index is not None}
    if any(str(index.ty.dtype) == "bool" for index in placed.values()):
        raise UnsupportedOperatorError(
            "TVM cannot index with a mask: the shape of the result depends on the values",
            where="the exported program, operator aten.index.Tensor",
            fix="use torch.where, or indices",
        )
    axes = list(placed)
    if len(axes) == 1:
        return emit(op.take(data, placed[axes[0]], axes[0]))
    rest = [axis for axis in range(data.ty.ndim) if axis not in placed]
    if axes != list(range(len(axes))):
        data = emit(op.permute_dims(data, [*axes, *rest]))
    made = emit(op.index_tensor(data, [placed[axis] for axis in axes]))
    # The axes of the indices stand where the indexed ones did, or first if others are in between.
    new = made.ty.ndim - len(rest)
    before = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    if not before:
        return made
    order = [*range(new, new + before), *range(new), *range(new + before, made.ty.ndim)]
    return emit(op.permute_dims(made, order))


def _grid_sample(given: dict[str, Any], emit: Emit) -> relax.Var:
    data, aligned = given["input"], bool(given["align_corners"])
    method = ("bilinear", "nearest", "bicubic")[given["interpolation_mode"]]
    padding = ("zeros", "border", "reflection")[given["padding_mode"]]
    if padding == "reflection" and aligned and 1 in [static(n) for n in data.ty.shape.values[2:]]:
        raise UnsupportedOperatorError(
            "TVM divides by zero where it reflects in a picture of one row or column",
            where="the exported program, operator aten.grid_sampler_2d",
            fix="use align_corners=False, or another padding_mode",
        )
    grid = emit(op.permute_dims(given["grid"], [0, 3, 1, 2]))
    return emit(op.image.grid_sample(data, grid, method, "NCHW", padding, aligned))


def _converter(convert: Callable[[dict[str, Any], Emit], relax.Var]) -> Callable[..., relax.Var]:
    def converted(node: Any, importer: Any) -> relax.Var:
        given = {name: importer._retrieve_args(value) for name, value in arguments(node).items()}
        return convert(given, importer.block_builder.emit)

    return converted


#: By the names that upstream's importer looks for.
CONVERTERS = {
    "embedding.default": _converter(_embedding),
    "index_select.default": _converter(_index_select),
    "gather.default": _converter(_gather),
    "scatter.src": _converter(_scatter),
    "scatter.value": _converter(_scatter),
    "index.Tensor": _converter(_index),
    "grid_sampler_2d.default": _converter(_grid_sample),
}
