"""Matrix products with packed weights, in float32 or quantized in groups to int8 or int4.

The weights ``[outputs, inputs]`` are stored as ``[blocks, inputs, tile]``, in the order in which
the tiles of `tvmlab.schedule` read them, so that one copy serves prompts and single tokens. With a
single token, a product is memory-bound: quantized weights are read as they are, and converted to
float32 in registers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx
from tvm.relax.frontend import nn
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ..errors import ModelError
from ..schedule.apply import SCHEDULED
from ..schedule.compute import contraction, sizes
from ..schedule.machine import Machine
from ..schedule.tile_size import Tile

__all__ = ["GROUP", "Format", "Linear"]

#: Inputs that share a scale.
GROUP = 32
_WORD = 8  # numbers of 4 bits in an int32


@dataclass(frozen=True)
class Format:
    """How the weights of matrix products are stored.

    Attributes
    ----------
    kind : str
        ``"float32"``, ``"int8"`` or ``"int4"``.
    machine : Machine
        The processor, which determines the tile.
    """

    kind: str
    machine: Machine

    @property
    def tile(self) -> int:
        """Outputs of a block: two vectors."""
        return 2 * self.machine.lanes("float32")

    @property
    def rows(self) -> int:
        """Tokens of a tile: the registers hold their sums, and weights that are dequantized."""
        return max(1, (self.machine.registers - 8) // 2)

    def shapes(self, outputs: int, inputs: int) -> list[tuple[tuple[int, ...], str]]:
        """Return the shapes and dtypes of the arrays that hold a weight."""
        blocks = -(-outputs // self.tile)
        if self.kind == "float32":
            return [((blocks, inputs, self.tile), "float32")]
        steps = inputs if self.kind == "int8" else inputs // _WORD
        dtype = "int8" if self.kind == "int8" else "int32"
        scales = (blocks, inputs // GROUP, self.tile)
        return [((blocks, steps, self.tile), dtype), (scales, "uint16")]

    def pack(self, weight: NDArray[np.float32]) -> list[NDArray[Any]]:
        """Return the arrays that hold a weight ``[outputs, inputs]``."""
        outputs, inputs = weight.shape
        blocks = -(-outputs // self.tile)
        whole = np.zeros((blocks * self.tile, inputs), np.float32)
        whole[:outputs] = weight
        blocked = whole.reshape(blocks, self.tile, inputs).transpose(0, 2, 1)
        if self.kind == "float32":
            return [np.ascontiguousarray(blocked)]
        integers, scales = quantize(blocked, 8 if self.kind == "int8" else 4)
        scales = (scales.view(np.uint32) >> 16).astype(np.uint16)
        if self.kind == "int8":
            return [integers, scales]
        nibbles = (integers & 15).astype(np.uint32).reshape(blocks, -1, _WORD, self.tile)
        shifts = np.arange(0, 4 * _WORD, 4, dtype=np.uint32)[:, None]
        return [np.bitwise_or.reduce(nibbles << shifts, axis=2).view(np.int32), scales]


def quantize(
    weight: NDArray[np.float32], bits: int
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantize ``[blocks, inputs, tile]`` symmetrically, in groups of `GROUP` inputs.

    Returns
    -------
    tuple of numpy.ndarray
        The integers as int8 ``[blocks, inputs, tile]``, from -127 or -7 to 127 or 7, and the scales
        as float32 ``[blocks, inputs / GROUP, tile]``, rounded up to bfloat16.

    Raises
    ------
    ModelError
        The inputs are not a multiple of `GROUP`, or a weight is not finite.
    """
    blocks, inputs, tile = weight.shape
    if inputs % GROUP:
        what = f"a weight has {inputs} inputs, but quantized weights need a multiple of {GROUP}"
        raise ModelError(what, fix="leave quantize out")
    if not np.isfinite(weight).all():
        raise ModelError("a weight is infinite or not a number", fix="train the model again")
    most = 2 ** (bits - 1) - 1
    groups = weight.reshape(blocks, inputs // GROUP, GROUP, tile)
    scales = np.abs(groups).max(axis=2) / np.float32(most)
    # The upper half of a float32 is a bfloat16, with the same range.
    scales = ((scales.view(np.uint32) + 0xFFFF) & 0xFFFF0000).view(np.float32)
    # A group whose scale would be zero, or too small to divide by, is zero.
    safe = np.where(scales < np.finfo(np.float32).tiny, np.float32(np.inf), scales)
    integers = np.rint(groups / safe[:, :, None]).clip(-most, most).astype(np.int8)
    return integers.reshape(weight.shape), scales.astype(np.float32)


class Linear(nn.Module):  # type: ignore[misc]
    """A matrix product ``x @ weight.T`` without a bias, for ``x`` of ``[tokens, inputs]``."""

    def __init__(self, outputs: int, inputs: int, form: Format) -> None:
        super().__init__()
        self.outputs, self.inputs, self.form = outputs, inputs, form
        given = form.shapes(outputs, inputs)
        self.weight = nn.Parameter(*given[0])
        self.scale = nn.Parameter(*given[1]) if len(given) > 1 else None

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """Return ``[tokens, outputs]``."""
        tensors = [x, self.weight, *([] if self.scale is None else [self.scale])]
        if self.scale is not None and x.shape[0] == 1:
            out = nn.Tensor.placeholder((1, self.outputs), "float32")
            return nn.op.tensor_ir_op(self._single(), "quantized_product", tensors, out)
        return nn.op.tensor_expr_op(self._product, "product", tensors)

    def _product(self, x: te.Tensor, weight: te.Tensor, *scale: te.Tensor) -> te.Tensor:
        """Multiply in tiles of several tokens, which `tvmlab.schedule.Contraction` schedules."""
        rows, tile = sizes(x.shape)[0], self.form.tile
        columns, channels = (1, tile * self._streams) if rows == 1 else (self.form.rows, tile)

        def number(_: Any, o: Any, k: Any) -> Any:
            block, lane = o // tile, o % tile
            if self.form.kind == "float32":
                return weight(block, k, lane)
            # The weight comes last, because the schedule takes the last operand for it.
            factor = _bfloat(scale[0](block, k // GROUP, lane))
            if self.form.kind == "int8":
                return factor * weight(block, k, lane).astype("float32")
            return factor * _nibble(weight(block, k // _WORD, lane), k % _WORD)

        sums = contraction(
            x,
            number,
            read=lambda outer, r, _, k: (r, k),
            pixels=(rows, 1),
            taps=(),
            inputs=self.inputs,
            channels=self.outputs,
            tile=Tile(columns, 1, channels),
            dtype="float32",
            operator=f"lm product {self.outputs}x{self.inputs} {self.form.kind}, {rows} rows",
        )
        return te.compute((rows, self.outputs), lambda i, o: sums(i, 0, o), name="crop")

    def _single(self) -> tirx.PrimFunc:
        """Return the product of one token with quantized weights."""
        tile, steps, many = self.form.tile, self.inputs // GROUP, self._streams
        (shape, dtype), scales = self.form.shapes(self.outputs, self.inputs)
        with IRBuilder() as builder:
            with T.prim_func(s_tir=True):
                T.func_attr({SCHEDULED: True, "tirx.noalias": True})

                def tensor(name: str, shape: Any, dtype: str = "float32") -> Any:
                    return T.match_buffer(T.arg(name, T.handle()), shape, dtype, layout=None)

                def clear(buffer: Any) -> None:
                    with T.vectorized(0, tile) as o:
                        T.buffer_store(buffer, tirx.const(0, "float32"), [o])

                x, weight = tensor("x", (1, self.inputs)), tensor("weight", shape, dtype)
                scale, out = tensor("scale", *scales), tensor("out", (1, self.outputs))
                with T.parallel(0, shape[0] // many) as index:
                    total, part = (
                        [
                            T.alloc_buffer((tile,), "float32", scope="local", layout=None)
                            for _ in range(many)
                        ]
                        for _ in range(2)
                    )
                    blocks = [index * many + stream for stream in range(many)]
                    for each in total:
                        clear(each)
                    with T.serial(0, steps) as group:
                        for each in part:
                            clear(each)
                        for k in range(GROUP):
                            for block, sums in zip(blocks, part, strict=True):
                                with T.vectorized(0, tile) as o:
                                    if dtype == "int8":
                                        number = weight[block, group * GROUP + k, o]
                                        value = number.astype("float32")
                                    else:
                                        at = group * (GROUP // _WORD) + k // _WORD
                                        value = _nibble(weight[block, at, o], k % _WORD)
                                    more = x[0, group * GROUP + k] * value
                                    T.buffer_store(sums, sums[o] + more, [o])
                        for block, sums, whole in zip(blocks, part, total, strict=True):
                            with T.vectorized(0, tile) as o:
                                more = sums[o] * _bfloat(scale[block, group, o])
                                T.buffer_store(whole, whole[o] + more, [o])
                    for block, whole in zip(blocks, total, strict=True):
                        with T.serial(0, tirx.min(tile, self.outputs - block * tile)) as o:
                            T.buffer_store(out, whole[o], [0, block * tile + o])
            return builder.get()

    @property
    def _streams(self) -> int:
        """Blocks that a thread reads at once: memory delivers four streams faster than one."""
        return math.gcd(-(-self.outputs // self.form.tile), 4)


def _nibble(word: Any, place: Any) -> Any:
    """Return a number of 4 bits, with its sign, as float32."""
    if isinstance(place, int):
        place = tirx.const(place, "int32")
    left = tirx.Cast("uint32", 4 * (_WORD - 1) - 4 * place)
    # Shifted left as uint32: as int32, TVM compiled it wrong where `place` depends on a loop.
    top = tirx.reinterpret("int32", tirx.shift_left(tirx.reinterpret("uint32", word), left))
    return tirx.Cast("float32", tirx.shift_right(top, tirx.const(28, "int32")))


def _bfloat(bits: Any) -> Any:
    """Return the float32 whose upper half these bits are."""
    return tirx.reinterpret("float32", tirx.Cast("uint32", bits) << 16)
