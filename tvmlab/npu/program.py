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

import io
import math
import struct
import zlib
from collections.abc import Sized
from dataclasses import astuple, dataclass
from enum import IntEnum
from itertools import islice

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
    """A contiguous tensor in DRAM.

    Inputs and outputs are the function's parameters, in the order of the table; constants (one
    tensor at most, of uint8) come with the program; scratch has no contents at first.
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
    """A region, compiled for a machine.

    `tensors` and `layers` (their names) are told by number, `instructions` executed in this order;
    `constants` are the contents of the tensor of kind `CONSTANTS`.
    """

    config: Config
    tensors: tuple[Dram, ...]
    layers: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    constants: bytes

    def to_bytes(self) -> bytes:
        """Write the program in the form that the module's text describes."""
        words = np.array([w for one in self.instructions for w in one.words()], "<i4")
        sizes = astuple(self.config)
        parts = [_count(sizes), struct.pack(f"<{len(sizes)}i", *sizes), _count(self.tensors)]
        for tensor in self.tensors:
            head = struct.pack("<BBH", tensor.kind, tensor.dtype, len(tensor.shape))
            parts += [head, struct.pack(f"<{len(tensor.shape)}i", *tensor.shape)]
        parts.append(_count(self.layers))
        for text in (name.encode() for name in self.layers):
            parts += [struct.pack("<H", len(text)), text]
        parts += [_count(words), words.tobytes(), _count(self.constants), self.constants]
        body = b"".join(parts)
        return MAGIC + struct.pack("<I", zlib.crc32(body)) + body

    @classmethod
    def from_bytes(cls, data: bytes) -> Program:
        """Read what `to_bytes` wrote.

        Raises
        ------
        tvmlab.errors.PackageError
            If the bytes are no program, or are damaged.
        """
        try:
            head = len(MAGIC) + 4
            if data[:head] != MAGIC + struct.pack("<I", zlib.crc32(data[head:])):
                raise ValueError("the magic number or the checksum is wrong")
            return _read(io.BytesIO(data[head:]))
        except (struct.error, ValueError, KeyError, TvmlabError) as error:
            raise PackageError(
                f"these bytes are no program of the accelerator, or are damaged: {error}",
                where="npu.Program.from_bytes",
            ) from error


def _count(things: Sized) -> bytes:
    return struct.pack("<I", len(things))


def _read(data: io.BytesIO) -> Program:
    """Read the body of a program; the checksum says that it is whole."""

    def take(form: str) -> tuple[int, ...]:
        return struct.unpack(form, data.read(struct.calcsize(form)))

    def count() -> int:
        return take("<I")[0]

    config = Config(*take(f"<{count()}i"))
    tensors = []
    for _ in range(count()):
        kind, dtype, ndim = take("<BBH")
        tensors.append(Dram(Kind(kind), Dtype(dtype), take(f"<{ndim}i")))
    layers = tuple(data.read(take("<H")[0]).decode() for _ in range(count()))
    words = iter(np.frombuffer(data.read(4 * count()), "<i4").tolist())
    instructions = []
    for opcode in words:
        form = INSTRUCTIONS[opcode]
        instructions.append(form(*islice(words, len(form.names))))
    constants = data.read(count())
    return Program(config, tuple(tensors), layers, tuple(instructions), constants)
