"""Matrix products with packed weights, in float32 or quantized in groups to int8 or int4.

The weights ``[outputs, inputs]`` are stored as ``[blocks, inputs, tile]``, in the order in which
the tiles of `tvmlab.schedule` read them, so that one copy serves prompts and single tokens. With a
single token, a product is memory-bound: quantized weights are read as they are, and converted to
float32 in registers.
"""

from __future__ import annotations

import itertools
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
from ..schedule.prefetch import LINE, fetch
from ..schedule.tile_size import Tile
from .kernels import fill

__all__ = ["GROUP", "Format", "Linear"]

#: Inputs that share a scale.
GROUP = 32
# Numbers of 4 bits in an int32, and what is added to each, so that it has no sign.
_WORD, _ZERO = 8, 8
# Sums of each output that are computed at once, because an addition takes several cycles.
_SUMS = 2
# How many words of 4 bytes lie between a word and the one that is fetched with it.
_AHEAD = 2048


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
        steps, dtype = (inputs, "int8") if self.kind == "int8" else (inputs // _WORD, "int32")
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
        nibbles = (integers + _ZERO).astype(np.uint32).reshape(blocks, -1, _WORD, self.tile)
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
        tile, words = self.form.tile, self.form.kind == "int4"
        count = _WORD if words else 1
        steps = GROUP // count
        (packed, dtype), scales = self.form.shapes(self.outputs, self.inputs)
        # 8-bit weights are bound by the memory, 4-bit ones by the conversions.
        many, chains = (1, _SUMS) if words else (self._streams, 1)
        with IRBuilder() as builder:
            with T.prim_func(s_tir=True):
                T.func_attr({SCHEDULED: True, "tirx.noalias": True})

                def tensor(name: str, shape: Any, dtype: str = "float32") -> Any:
                    return T.match_buffer(T.arg(name, T.handle()), shape, dtype, layout=None)

                def local() -> Any:
                    return T.alloc_buffer((tile,), "float32", scope="local", layout=None)

                x, weight = tensor("x", (1, self.inputs)), tensor("weight", packed, dtype)
                scale, out = tensor("scale", *scales), tensor("out", (1, self.outputs))
                factors, offset = self._divided(x) if words else (x, None)
                with T.parallel(0, packed[0] // many) as index:
                    blocks = [index * many + stream for stream in range(many)]
                    total = [local() for _ in blocks]
                    part = [[local() for _ in range(chains)] for _ in blocks]
                    for each in total:
                        fill(each, tile, T.float32(0))
                    with T.serial(0, self.inputs // GROUP) as group:
                        for block, sums in zip(blocks, part, strict=True):
                            for each in sums:
                                fill(each, tile, T.float32(0))
                            if offset is not None:
                                fill(sums[0], tile, offset[group])
                                first = (block * packed[1] + group * steps) * tile
                                for place in range(0, steps * tile, LINE):
                                    T.evaluate(fetch(weight[0, 0, first + place + _AHEAD]))
                        for step, place in itertools.product(range(steps), range(count)):
                            at = group * steps + step
                            for block, sums in zip(blocks, part, strict=True):
                                each = sums[step % chains]
                                with T.vectorized(0, tile) as o:
                                    number = weight[block, at, o]
                                    number = _masked(number, place) if words else number
                                    more = factors[0, at * count + place]
                                    more = more * tirx.Cast("float32", number)
                                    T.buffer_store(each, each[o] + more, [o])
                        for block, sums, whole in zip(blocks, part, total, strict=True):
                            with T.vectorized(0, tile) as o:
                                more = sum((each[o] for each in sums[1:]), sums[0][o])
                                more = more * _bfloat(scale[block, group, o])
                                T.buffer_store(whole, whole[o] + more, [o])
                    for block, whole in zip(blocks, total, strict=True):
                        with T.serial(0, tirx.min(tile, self.outputs - block * tile)) as o:
                            T.buffer_store(out, whole[o], [0, block * tile + o])
            return builder.get()

    def _divided(self, x: Any) -> tuple[Any, Any]:
        """Compute the inputs for `_masked` numbers, and the first number of each group's sum.

        The numbers are not shifted to the end of their words: their inputs are divided instead. The
        first number undoes the addition of `_ZERO`.
        """
        factors = T.alloc_buffer((1, self.inputs), "float32", layout=None)
        offset = T.alloc_buffer((self.inputs // GROUP,), "float32", layout=None)
        with T.serial(0, self.inputs // GROUP) as group:
            whole = T.float32(0)
            for k in range(GROUP):
                at, place = group * GROUP + k, k % _WORD
                whole = whole + x[0, at]
                unit = T.float32(1 if place == _WORD - 1 else 2.0 ** (-4 * place))
                T.buffer_store(factors, x[0, at] * unit, [0, at])
            T.buffer_store(offset, whole * T.float32(-_ZERO), [group])
        return factors, offset

    @property
    def _streams(self) -> int:
        """Blocks that a thread reads at once: memory delivers four streams faster than one."""
        return math.gcd(-(-self.outputs // self.form.tile), 4)


def _nibble(word: Any, place: Any) -> Any:
    """Return a number of 4 bits, with its sign, as float32."""
    shift = tirx.Cast("uint32", 4 * place)
    last = tirx.reinterpret("int32", tirx.shift_right(tirx.reinterpret("uint32", word), shift))
    return tirx.Cast("float32", tirx.bitwise_and(last, tirx.const(15, "int32")) - _ZERO)


def _masked(word: Any, place: int) -> Any:
    """Return a number of 4 bits, without a sign, at its place in the word.

    The last one is shifted, because at its place it would be negative.
    """
    if place == _WORD - 1:
        shift = tirx.const(4 * place, "uint32")
        return tirx.reinterpret("int32", tirx.shift_right(tirx.reinterpret("uint32", word), shift))
    return tirx.bitwise_and(word, tirx.const(15 << (4 * place), "int32"))


def _bfloat(bits: Any) -> Any:
    """Return the float32 whose upper half these bits are."""
    return tirx.reinterpret("float32", tirx.Cast("uint32", bits) << 16)
