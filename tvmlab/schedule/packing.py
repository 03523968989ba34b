"""How the weights of matrix products are stored: in float32, or in groups as int8 or int4.

The weights ``[outputs, inputs]`` are stored as ``[blocks, inputs, tile]``, in the order in which
tiles read them, so that one copy serves prompts and single tokens. Integers are packed in words of
32 bits, ``[blocks, words, tile]``: inputs 0, 2, ... of a word are in its lower half and inputs 1,
3, ... in the upper one, so that an instruction for pairs of 16 bits multiplies neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from .machine import Machine
from .prefetch import LINE

__all__ = ["GROUP", "Format", "quantize"]

#: Inputs that share a scale, unless a model's file says otherwise.
GROUP = 32


@dataclass(frozen=True)
class Format:
    """How the weights of matrix products are stored.

    Attributes
    ----------
    kind : str
        ``"float32"``, ``"int8"`` or ``"int4"``.
    machine : Machine
        The processor, which determines the tile.
    group : int
        Inputs that share a scale: 16, or a multiple of 32.
    scale : str
        The dtype of the scales: ``"float32"``, or ``"uint16"`` for the bits of bfloat16.
    zeros : bool
        Whether each group has a zero point of its own.
    """

    kind: str
    machine: Machine
    group: int = GROUP
    scale: str = "uint16"
    zeros: bool = False

    @property
    def tile(self) -> int:
        """Outputs of a block: two vectors."""
        return 2 * self.machine.lanes("float32")

    def blocks(self, outputs: int) -> int:
        """Return the number of blocks that hold a weight."""
        return -(-outputs // self.tile)

    def streams(self, outputs: int) -> int:
        """Return how many blocks the product of a single token reads at once.

        Four streams hide the memory's latency. With vectors of a whole line of the cache, enough
        loads are in flight in one stream, which the processor's prefetcher follows best.
        """
        return 1 if self.machine.lanes("float32") == LINE else math.gcd(self.blocks(outputs), 4)

    @property
    def bits(self) -> int:
        """Bits of a weight, if it is quantized."""
        return 8 if self.kind == "int8" else 4

    @property
    def zero(self) -> int:
        """The zero point of each group that has none of its own: no stored integer has a sign."""
        return int(2 ** (self.bits - 1))

    @property
    def word(self) -> int:
        """Integers in a word of 32 bits."""
        return 32 // self.bits

    def place(self, k: Any) -> Any:
        """Return the first bit of integer `k` of a word."""
        return k % 2 * 16 + k // 2 * self.bits

    @property
    def rows(self) -> int:
        """Tokens of a tile, whose sums stay in registers beside the weights and an input."""
        return max(1, (self.machine.registers - 4) // 2)

    def shapes(self, outputs: int, inputs: int) -> list[tuple[tuple[int, ...], str]]:
        """Return the shapes and dtypes of the arrays that hold a weight."""
        blocks = self.blocks(outputs)
        if self.kind == "float32":
            return [((blocks, inputs, self.tile), "float32")]
        groups = blocks, inputs // self.group, self.tile
        made: list[tuple[tuple[int, ...], str]] = [
            ((blocks, inputs // self.word, self.tile), "int32"),
            (groups, self.scale),
        ]
        return [*made, (groups, "uint8")] if self.zeros else made

    def pack(self, weight: NDArray[np.float32]) -> list[NDArray[Any]]:
        """Return the arrays that hold a weight ``[outputs, inputs]``."""
        blocked = self._blocked(weight)
        if self.kind == "float32":
            return [np.ascontiguousarray(blocked)]
        integers, scales = quantize(blocked, self.bits)
        scales = (scales.view(np.uint32) >> 16).astype(np.uint16)
        return [self._words(integers.astype(np.int32) + self.zero), scales]

    def pack_integers(self, integers: NDArray[Any], *units: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the arrays for integers without a sign, ``[outputs, inputs]``.

        The scales, and the zero points if there are any, are ``[outputs, groups]``.
        """
        packed = self._words(self._blocked(integers))
        return [packed, *(np.ascontiguousarray(self._blocked(unit)) for unit in units)]

    def _blocked(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return ``[blocks, columns, tile]``; the rows that fill the last block are zero."""
        outputs, columns = rows.shape
        whole = np.zeros((self.blocks(outputs) * self.tile, columns), rows.dtype)
        whole[:outputs] = rows
        return whole.reshape(-1, self.tile, columns).transpose(0, 2, 1)

    def _words(self, blocked: NDArray[Any]) -> NDArray[np.int32]:
        """Pack integers without a sign, ``[blocks, inputs, tile]``, in words."""
        packed = np.zeros((len(blocked), blocked.shape[1] // self.word, self.tile), np.uint32)
        for k in range(self.word):
            packed |= blocked[:, k :: self.word].astype(np.uint32) << np.uint32(self.place(k))
        return packed.view(np.int32)


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
        The inputs are not a multiple of `GROUP`.
    """
    blocks, inputs, tile = weight.shape
    if inputs % GROUP:
        what = f"a weight has {inputs} inputs, but quantized weights need a multiple of {GROUP}"
        raise ModelError(what, fix="leave quantize out")
    most = 2 ** (bits - 1) - 1
    groups = weight.reshape(blocks, inputs // GROUP, GROUP, tile)
    scales = np.abs(groups).max(axis=2) / np.float32(most)
    # The upper half of a float32 is a bfloat16, with the same range.
    scales = ((scales.view(np.uint32) + 0xFFFF) & 0xFFFF0000).view(np.float32)
    # A group whose scale would be zero, or too small to divide by, is zero.
    safe = np.where(scales < np.finfo(np.float32).tiny, np.float32(np.inf), scales)
    integers = np.rint(groups / safe[:, :, None]).clip(-most, most).astype(np.int8)
    return integers.reshape(weight.shape), scales
