"""Quantized convolutions and matrix products to loop nests over the processor's dot products.

``sum((a - za) (w - zw))`` over integers, `a` of 8 bits and `w` a constant. Where the differences
``w - zw`` fit into int8, the instruction takes them as they are, and the data as the instruction
wants them, moved by 128 if need be: ``a + s``. What is too much then is the same for every pixel,
as the padding is the zero point as well: ``(za + s) sum(w - zw)``, a number for each output channel
that is known at compile time. Else, or where no instruction for 8 bits is there, the differences
are multiplied as int16, in pairs where the processor can.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, te, tirx

from .. import dialect
from .compute import Window, contraction, padded, round_up, sizes
from .dot_intrinsics import Dot
from .machine import Machine
from .tile import Tile

__all__ = ["dot_legalizations"]

Legalization = Callable[[relax.BlockBuilder, relax.Call], relax.Expr | None]

# Of relax/transform/fuse_ops.cc (OpPatternKind): what follows is fused into the tile.
_OUT_ELEMENTWISE = 4


def dot_legalizations(machine: Machine) -> dict[str, Legalization]:
    """Make the legalizations of the quantized operators that the contraction rules serve.

    Parameters
    ----------
    machine : Machine
        What to tile for.

    Returns
    -------
    dict
        From the operator's name to its legalization, which gives None where a call is of another
        form than it serves.
    """
    return {
        "relax.qnn.conv2d": lambda builder, call: _conv2d(builder, call, machine),
        "relax.qnn.dense": lambda builder, call: _dense(builder, call, machine),
    }


@dataclass(frozen=True)
class _Factors:
    """How the data and the weights are multiplied.

    Attributes
    ----------
    dot : Dot or None
        The instruction; None multiplies int16 one by one.
    move : int
        What is added to the data before they are multiplied.
    fill : int
        What the padding is then.
    dtype : str
        Of the data as they are multiplied.
    weight : NDArray
        The weights less their zero points, output channels first.
    extra : NDArray
        int32, for each output channel: what the sum has to be corrected by.
    """

    dot: Dot | None
    move: int
    fill: int
    dtype: str
    weight: NDArray[Any]
    extra: NDArray[np.int32]

    @classmethod
    def of(cls, call: relax.Call, machine: Machine) -> _Factors | None:
        """Read a call with constant weights and zero points; None where it is of another form."""
        data, *constants = call.args[:4]
        if not all(isinstance(constant, tvm.ir.GenericConst) for constant in constants):
            return None
        weight, zero, weight_zero = (constant.value.numpy() for constant in constants)
        dtype = str(data.ty.dtype)
        if dtype not in ("int8", "uint8") or weight.dtype.itemsize != 1 or zero.size != 1:
            return None
        zero = int(zero.ravel()[0])
        weight_zero = weight_zero.reshape(-1, *[1] * (weight.ndim - 1))
        weight = weight.astype(np.int32) - weight_zero
        low = np.iinfo(dtype).min
        narrow = machine.dot8
        if narrow and low <= zero <= low + 255 and -128 <= weight.min() <= weight.max() <= 127:
            move = np.iinfo(narrow.data).min - low
            fill = zero + move
            sums = weight.sum(axis=tuple(range(1, weight.ndim)), dtype=np.int64)
            extra = (-fill * sums).astype(np.int32)
            return cls(narrow, move, fill, narrow.data, weight.astype(narrow.weight), extra)
        if np.abs(weight).max() > 32767 or abs(zero) > 32767 - 255:
            return None
        return cls(
            machine.dot16,
            *(-zero, 0, "int16"),
            weight.astype("int16"),
            np.zeros(len(weight), np.int32),
        )

    @property
    def depth(self) -> int:
        """Inputs that are multiplied at once."""
        return self.dot.depth if self.dot else 1

    @property
    def bytes(self) -> int:
        """Size of a number as it is multiplied."""
        return int(tvm.DataType(self.dtype).bits) // 8

    def moved(self, data: te.Tensor) -> te.Tensor:
        """Compute the data as they are multiplied."""
        if data.dtype == self.dtype and self.move == 0:
            return data
        if self.move in (128, -128) and self.dtype in ("int8", "uint8"):
            # Modulo 256 that is the other highest bit, and no longer number is needed.
            change = lambda value: tirx.reinterpret(self.dtype, value ^ tirx.const(-128 if data.dtype == "int8" else 128, data.dtype))  # noqa
        else:
            change = lambda value: value.astype(self.dtype) + tirx.const(self.move, self.dtype)  # noqa
        return te.compute(data.shape, lambda *index: change(data(*index)), name="move")

    def packed(self, groups: int, tile: int) -> NDArray[Any]:
        """Pack ``[outputs, *taps, inputs]`` as ``[group, blocks, *taps, steps, tile, depth]``."""
        outputs, *taps, inputs = self.weight.shape
        each, depth = outputs // groups, self.depth
        blocks, steps = -(-each // tile), -(-inputs // depth)
        whole = np.zeros((groups, blocks * tile, *taps, steps * depth), self.weight.dtype)
        whole[:, :each, ..., :inputs] = self.weight.reshape(groups, each, *taps, inputs)
        whole = whole.reshape(groups, blocks, tile, *taps, steps, depth)
        made = np.ascontiguousarray(np.moveaxis(whole, 2, -2))
        return made if self.dot else made[..., 0]

    def reader(self, weight: te.Tensor, tile: int) -> Callable[..., Any]:
        """Make the function that reads packed weights of group ``outer[-1]`` and channel ``o``."""
        if self.dot is None:
            return lambda outer, o, *k: weight(outer[-1], o // tile, *k, o % tile)
        return lambda outer, o, *k: weight(outer[-1], o // tile, *k[:-1], o % tile, k[-1])


def _conv2d(builder: relax.BlockBuilder, call: relax.Call, machine: Machine) -> relax.Expr | None:
    """Legalize ``qnn.conv2d`` in NHWC with OHWI weights."""
    attrs = dialect.attributes(call)
    layouts = attrs["data_layout"], attrs["kernel_layout"], attrs["out_layout"] or "NHWC"
    shape = sizes(call.ty.shape)
    data = call.args[0]
    known = [*shape[1:], *sizes(data.ty.shape)[1:]]
    factors = _Factors.of(call, machine)
    if layouts != ("NHWC", "OHWI", "NHWC") or attrs["out_dtype"] != "int32" or factors is None:
        return None
    if not all(isinstance(size, int) and size for size in known) or not factors.weight.size:
        return None
    groups = attrs["groups"]
    outputs, *taps, inputs = factors.weight.shape
    window = Window(taps, attrs["strides"], attrs["padding"], attrs["dilation"])
    each, depth = outputs // groups, factors.depth
    steps = math.prod(taps) * -(-inputs // depth)
    channels = (groups - 1) * inputs + round_up(inputs, depth)
    apart = channels * window.strides[1] * factors.bytes
    tile = Tile.choose(shape[1], shape[2], each, steps, apart, "int32", machine)

    def conv2d(x: te.Tensor, w: te.Tensor, extra: te.Tensor) -> te.Tensor:
        n, height, width, _ = shape
        rows, columns = round_up(height, tile.rows), round_up(width, tile.columns)
        at = window.at
        x = factors.moved(x)
        if taps == [1, 1] and window.strides != [1, 1]:
            x = window.gather(x, rows, columns, channels, factors.fill)
            at = lambda y, c, *_: (y, c)
        else:
            x = window.pad(x, rows, columns, channels, factors.fill)
        sums = contraction(
            x,
            factors.reader(w, tile.channels),
            read=lambda o, y, c, ky, kx, ki: (o[0], *at(y, c, ky, kx), o[1] * inputs + ki),
            pixels=(n, groups, height, width),
            taps=taps,
            inputs=inputs,
            channels=each,
            tile=tile,
            dtype="int32",
            dot=factors.dot,
        )
        return te.compute(
            shape, lambda b, y, c, o: sums[b, o // each, y, c, o % each] + extra[o], name="crop"
        )

    return builder.call_te(
        conv2d,
        data,
        relax.const(factors.packed(groups, tile.channels)),
        relax.const(factors.extra),
        primfunc_name_hint="qnn_conv2d",
        primfunc_attrs={"op_pattern": _OUT_ELEMENTWISE},
    )


def _dense(builder: relax.BlockBuilder, call: relax.Call, machine: Machine) -> relax.Expr | None:
    """Legalize ``qnn.dense``."""
    return None
