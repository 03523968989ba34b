"""A compiled region: its instructions, tensors and constants, as bytes and as text.

The bytes are little-endian: the magic number, the CRC-32 of the rest, then five lists, each behind
its length (uint32): `Config`'s fields (int32); tensors as kind and dtype (uint8), number of
dimensions (uint16) and dimensions (int32); names of layers as length (uint16) and UTF-8; words of
instructions (int32); and constants.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Sized
from dataclasses import astuple, dataclass
from enum import IntEnum
from itertools import islice

import numpy as np

from ..errors import InputError, PackageError, TvmlabError
from ..support.wording import several
from . import isa
from .config import Config
from .isa import INSTRUCTIONS, Dtype, Instruction, Rounding, Unit

MAGIC = b"TVMLNPU\x01"


class Kind(IntEnum):
    """The role of a tensor in DRAM: `CONSTANTS`, `INPUT`, `OUTPUT` or `SCRATCH`."""

    CONSTANTS, INPUT, OUTPUT, SCRATCH = range(4)


@dataclass(frozen=True)
class Dram:
    """A contiguous tensor in DRAM; inputs and outputs are the function's parameters."""

    kind: Kind
    dtype: Dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.bytes


@dataclass(frozen=True)
class Program:
    """A compiled region; instructions refer to `tensors` and names of `layers` by number."""

    config: Config
    tensors: tuple[Dram, ...]
    layers: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    constants: bytes

    def to_bytes(self) -> bytes:
        """Serialize the program in the format that the module's docstring describes."""
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
        """Read the output of `to_bytes`; raise `tvmlab.errors.PackageError` for other bytes."""
        try:
            head = len(MAGIC) + 4
            if data[:head] != MAGIC + struct.pack("<I", zlib.crc32(data[head:])):
                raise ValueError("the magic number or the checksum is wrong")
            return _read(io.BytesIO(data[head:]))
        except (struct.error, ValueError, KeyError, TvmlabError) as error:
            what = f"the bytes are damaged, or are not an accelerator program: {error}"
            raise PackageError(what, where="npu.Program.from_bytes") from error


def _count(things: Sized) -> bytes:
    return struct.pack("<I", len(things))


def _read(data: io.BytesIO) -> Program:
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


def disassemble(program: Program) -> str:
    """Return a program as text: the machine, the tensors, then the phases.

    Instructions are listed below the names of their layers. Sizes are rows x columns x channels,
    addresses are bytes in SRAM. Raises `tvmlab.errors.InputError` if it is not a `Program`.
    """
    if not isinstance(program, Program):
        what = f"disassemble takes a Program, not {type(program).__name__}"
        fix = "compile a region of a partitioned module: npu.codegen.program(function)"
        raise InputError(what, where="npu.disassemble", fix=fix)
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    config = program.config
    units = f"{config.rows}x{config.columns} array, {config.lanes} lanes"
    memories = f"{config.sram_bytes:,} bytes of SRAM, {config.accumulators:,} accumulators"
    yield f"machine: {units}, {memories}"
    names, kinds = [], Counter[Kind]()
    for tensor in program.tensors:  # named by what they are for, those of a kind counted
        suffix = "" if tensor.kind is Kind.CONSTANTS else str(kinds[tensor.kind])
        names.append(f"{tensor.kind.name.lower()}{suffix}")
        kinds[tensor.kind] += 1
        yield f"tensor {names[-1]}: {tensor.dtype.name} {_size(*tensor.shape)}"
    phase, layer = 0, -1
    yield "phase 0"
    for one in program.instructions:
        if isinstance(one, isa.Sync):
            phase, layer = phase + 1, -1
            yield f"phase {phase}"
            continue
        if one.layer != layer:
            layer = one.layer
            yield f"  {program.layers[layer]}"
        unit, kind = Unit(one.unit).name.lower(), type(one).__name__.lower()
        yield f"    {unit:6} {kind} {_text(one, names)}"


def _size(*sizes: int) -> str:
    return "x".join(map(str, sizes))


def _text(one: Instruction, names: list[str]) -> str:
    if isinstance(one, (isa.Load, isa.Store)):
        counts = [one.count0, one.count1, one.count2, one.count3]
        while len(counts) > 1 and counts[0] == 1:
            counts.pop(0)
        ends = [f"{names[one.tensor]}+{one.offset:#x}", f"{one.address:#x}"]
        both = " -> ".join(ends if isinstance(one, isa.Load) else reversed(ends))
        return f"{both}, {_size(*counts)} of {several(one.element, 'byte')}"
    if isinstance(one, (isa.Matmul, isa.Depthwise)):
        image = f"{one.address:#x} {_size(one.in_rows, one.in_cols, one.channels)}"
        window = f"window {_size(one.kernel_h, one.kernel_w)}"
        for name, pair, usual in (
            ("stride", (one.stride_h, one.stride_w), (1, 1)),
            ("dilation", (one.dilation_h, one.dilation_w), (1, 1)),
            ("pad", (one.pad_top, one.pad_left), (0, 0)),
        ):
            window += f" {name} {_size(*pair)}" if pair != usual else ""
        data = f"{image} {Dtype(one.in_dtype).name}, {window}, weights {one.weights:#x}"
        out = f"sums {one.sums} {_size(one.out_rows, one.out_cols, one.out_channels)}"
        return f"{data} += {out}" if one.bias < 0 else f"{data}, bias {one.bias:#x} -> {out}"
    if isinstance(one, isa.Requantize):
        way = Rounding(one.rounding).name
        if one.rounding != Rounding.NONE:
            way += f" {'by channel' if one.per_channel else 'by one'} at {one.multipliers:#x}"
        to = f"{one.address:#x} {Dtype(one.out_dtype).name}"
        sums = f"sums {one.sums} {_size(one.rows, one.cols, one.channels)}"
        return f"{sums} -> {to}, {way} + {one.zero_point}, clip {one.low}..{one.high}"
    return ", ".join(f"{name} {getattr(one, name)}" for name in one.names[1:])
