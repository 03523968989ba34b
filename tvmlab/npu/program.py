"""A compiled region: its instructions, tensors and constants, and the bytes they are kept in.

The bytes are little-endian: the magic number, the CRC-32 of all that follows, then

- the number of sizes and the sizes of the machine (int32), in the order of `Config`'s fields;
- the number of tensors, and for each its kind and dtype (one byte each), its number of dimensions
  (two bytes) and its dimensions (int32);
- the number of layers, and for each the length of its name (two bytes) and the name in UTF-8;
- the number of words and the words of the instructions (int32);
- the number of bytes of the constants, and those bytes.

Numbers of things are uint32. The simulator (`tvmlab/native/npu`) reads the same.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sized
from dataclasses import astuple, dataclass, fields
from enum import IntEnum

import numpy as np

from ..errors import PackageError, TvmlabError
from .config import Config
from .isa import INSTRUCTIONS, Dtype, Instruction

__all__ = ["MAGIC", "Dram", "Kind", "Program"]

MAGIC = b"TVMLNPU\x01"


class Kind(IntEnum):
    """What a tensor in DRAM is for: `CONSTANTS`, `INPUT`, `OUTPUT` or `SCRATCH`."""

    CONSTANTS = 0
    INPUT = 1
    OUTPUT = 2
    SCRATCH = 3


@dataclass(frozen=True)
class Dram:
    """A tensor in DRAM.

    Attributes
    ----------
    kind : Kind
        Inputs and outputs are the function's parameters, in the order of the table; constants (one
        tensor at most, of uint8) come with the program; scratch has no contents at first.
    dtype : Dtype
        Of its numbers.
    shape : tuple of int
        Its size; it is contiguous.
    """

    kind: Kind
    dtype: Dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * self.dtype.bytes


@dataclass(frozen=True)
class Program:
    """A region, compiled.

    Attributes
    ----------
    config : Config
        The machine that it was compiled for.
    tensors : tuple of Dram
        The tensors, by number.
    layers : tuple of str
        The layers' names, by number.
    instructions : tuple of Instruction
        What is executed, in this order.
    constants : bytes
        The contents of the tensor of kind `CONSTANTS`.
    """

    config: Config
    tensors: tuple[Dram, ...]
    layers: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    constants: bytes

    def to_bytes(self) -> bytes:
        """Write the program.

        Returns
        -------
        bytes
            What the module's text describes, and `from_bytes` reads.
        """
        words = np.array([w for one in self.instructions for w in one.words()], "<i4")
        sizes = astuple(self.config)
        parts = [_count(sizes), struct.pack(f"<{len(sizes)}i", *sizes), _count(self.tensors)]
        for tensor in self.tensors:
            head = struct.pack("<BBH", tensor.kind, tensor.dtype, len(tensor.shape))
            parts += [head, struct.pack(f"<{len(tensor.shape)}i", *tensor.shape)]
        parts.append(_count(self.layers))
        for name in self.layers:
            text = name.encode()
            parts += [struct.pack("<H", len(text)), text]
        parts += [_count(words), words.tobytes(), _count(self.constants), self.constants]
        body = b"".join(parts)
        return MAGIC + struct.pack("<I", zlib.crc32(body)) + body

    @classmethod
    def from_bytes(cls, data: bytes) -> Program:
        """Read a program.

        Parameters
        ----------
        data : bytes
            What `to_bytes` wrote.

        Returns
        -------
        Program

        Raises
        ------
        tvmlab.errors.PackageError
            If the bytes are no program, or are damaged.
        """
        try:
            return _Reader(data).program()
        except (struct.error, ValueError, KeyError, TvmlabError) as error:
            raise PackageError(
                f"these bytes are no program of the accelerator, or are damaged: {error}",
                where="npu.Program.from_bytes",
            ) from error


def _count(things: Sized) -> bytes:
    return struct.pack("<I", len(things))


class _Reader:
    """A place in the bytes."""

    def __init__(self, data: bytes) -> None:
        if data[: len(MAGIC)] != MAGIC:
            raise ValueError("they do not begin with the magic number")
        self.data, self.at = data, len(MAGIC)
        (crc,) = self.take("<I")
        if zlib.crc32(data[self.at :]) != crc:
            raise ValueError("the checksum is wrong")

    def take(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return found

    def raw(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise ValueError("they end too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def count(self) -> int:
        return self.take("<I")[0]

    def program(self) -> Program:
        count = self.count()
        if count != len(fields(Config)):
            raise ValueError(f"they have {count} sizes of a machine")
        config = Config(*self.take(f"<{count}i"))
        tensors = []
        for _ in range(self.count()):
            kind, dtype, ndim = self.take("<BBH")
            tensors.append(Dram(Kind(kind), Dtype(dtype), self.take(f"<{ndim}i")))
        layers = [self.raw(self.take("<H")[0]).decode() for _ in range(self.count())]
        words = np.frombuffer(self.raw(4 * self.count()), "<i4").tolist()
        instructions = []
        at = 0
        while at < len(words):
            form = INSTRUCTIONS[words[at]]
            inside, at = words[at + 1 : at + 1 + len(form.names)], at + 1 + len(form.names)
            if len(inside) != len(form.names):
                raise ValueError("the last instruction is cut off")
            instructions.append(form(*inside))
        constants = self.raw(self.count())
        if self.at != len(self.data):
            raise ValueError("they go on after the end")
        return Program(config, tuple(tensors), tuple(layers), tuple(instructions), constants)
