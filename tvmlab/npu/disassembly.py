"""A program as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..errors import InputError
from ..support.wording import several
from . import isa
from .isa import Dtype, Instruction, PoolKind, Rounding, Unit
from .program import Kind, Program

__all__ = ["disassemble"]


def disassemble(program: Program) -> str:
    """Write a program as text: the machine, the tensors, then the phases.

    In each phase there are the layers that something is done for, and one instruction a line: its
    unit, what it does, from where to where. Sizes are rows x columns x channels, addresses are
    bytes in SRAM, ``sums`` are accumulators. `tvmlab.errors.InputError` if it is no `Program`.
    """
    if not isinstance(program, Program):
        raise InputError(
            f"disassemble takes a Program, not {type(program).__name__}",
            where="npu.disassemble",
            fix="compile a region of a partitioned module: npu.codegen.program(function)",
        )
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    config = program.config
    yield (
        f"machine: {config.rows}x{config.columns} array, {config.lanes} lanes, "
        f"{config.sram_bytes:,} bytes of SRAM, {config.accumulators:,} accumulators"
    )
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
        data = f"{_image(one)} {Dtype(one.in_dtype).name}, {_window(one)}, weights {one.weights:#x}"
        out = f"sums {one.sums} {_size(one.out_rows, one.out_cols, one.out_channels)}"
        return f"{data} += {out}" if one.bias < 0 else f"{data}, bias {one.bias:#x} -> {out}"
    if isinstance(one, isa.Pool):
        out = f"{one.out_address:#x} {_size(one.out_rows, one.out_cols, one.channels)}"
        return f"{PoolKind(one.kind).name.lower()} {_image(one)}, {_window(one)} -> {out}"
    size = _size(one.rows, one.cols, one.channels)
    if isinstance(one, isa.Sum):
        return f"{one.address:#x} {size}{' +=' if one.accumulate else ' ->'} sums {one.sums}"
    if isinstance(one, isa.Add):
        sides = ((one.lhs_address, one.lhs_dtype), (one.rhs_address, one.rhs_dtype))
        both = " + ".join(f"{at:#x} {Dtype(dtype).name}" for at, dtype in sides if at >= 0)
        return (
            f"{both}, {size} -> {one.out_address:#x} {Dtype(one.out_dtype).name}, "
            f"{Rounding(one.out_rounding).name}, clip {one.low}..{one.high}"
        )
    way = Rounding(one.rounding).name
    if one.rounding != Rounding.NONE:
        way += f" {'by channel' if one.per_channel else 'by one'} at {one.multipliers:#x}"
    return (
        f"sums {one.sums} {size} -> {one.address:#x} {Dtype(one.out_dtype).name}, {way} + "
        f"{one.zero_point}, clip {one.low}..{one.high}"
    )


def _image(one: Instruction) -> str:
    return f"{one.address:#x} {_size(one.in_rows, one.in_cols, one.channels)}"


def _window(one: Instruction) -> str:
    text = f"window {_size(one.kernel_h, one.kernel_w)}"
    for name, pair, usual in (
        ("stride", (one.stride_h, one.stride_w), (1, 1)),
        ("dilation", (one.dilation_h, one.dilation_w), (1, 1)),
        ("pad", (one.pad_top, one.pad_left), (0, 0)),
    ):
        text += f" {name} {_size(*pair)}" if pair != usual else ""
    return text
