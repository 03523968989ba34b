"""A program as text."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import InputError
from ..support.wording import several
from . import isa
from .isa import Dtype, Instruction, PoolKind, Rounding, Unit
from .program import Kind, Program

__all__ = ["disassemble"]


def disassemble(program: Program) -> str:
    """Write a program as text.

    Parameters
    ----------
    program : Program
        Any.

    Returns
    -------
    str
        The machine and the tensors, then the phases; in each the layers that something is done for,
        and one instruction a line: its unit, what it does, from where to where. Sizes are rows x
        columns x channels, addresses are bytes in SRAM, ``sums`` are accumulators.
    """
    if not isinstance(program, Program):
        raise InputError(
            f"disassemble takes a Program, not {type(program).__name__}",
            where="npu.disassemble",
            fix="compile a region of a partitioned module: npu.codegen.program(function)",
        )
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    config, names = program.config, _tensors(program)
    yield (
        f"machine: {config.rows}x{config.columns} array, {config.lanes} lanes, "
        f"{config.sram_bytes:,} bytes of SRAM, {config.accumulators:,} accumulators"
    )
    for name, tensor in zip(names, program.tensors, strict=True):
        yield f"tensor {name}: {tensor.dtype.name} {_size(*tensor.shape)}"
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
        yield f"    {Unit(one.unit).name.lower():6} {_text(one, names)}"


def _tensors(program: Program) -> list[str]:
    """Name tensors by what they are for, counting those of a kind."""
    counts: dict[Kind, int] = {}
    names = []
    for tensor in program.tensors:
        number = counts.get(tensor.kind, 0)
        counts[tensor.kind] = number + 1
        suffix = "" if tensor.kind is Kind.CONSTANTS else str(number)
        names.append(f"{tensor.kind.name.lower()}{suffix}")
    return names


def _size(*sizes: int) -> str:
    return "x".join(map(str, sizes))


def _text(one: Instruction, names: list[str]) -> str:
    match one:
        case isa.Load() | isa.Store():
            return _transfer(one, names[one.tensor])
        case isa.Matmul() | isa.Depthwise():
            return _convolution(one)
        case isa.Requantize():
            return (
                f"requantize sums {one.sums} {_size(one.rows, one.cols, one.channels)} -> "
                f"{one.address:#x} {Dtype(one.out_dtype).name}, {_rescale(one)}"
            )
        case isa.Add():
            return _add(one)
        case isa.Pool():
            out = _size(one.out_rows, one.out_cols, one.channels)
            kind = PoolKind(one.kind).name.lower()
            window = _window(one, (one.pad_top, one.pad_left))
            size = _size(one.in_rows, one.in_cols, one.channels)
            return f"pool {kind} {one.address:#x} {size}, {window} -> {one.out_address:#x} {out}"
        case isa.Sum():
            size, more = _size(one.rows, one.cols, one.channels), " +=" if one.accumulate else " ->"
            return f"sum {one.address:#x} {size}{more} sums {one.sums}"
    raise AssertionError(f"no text for {type(one).__name__}")


def _transfer(one: isa.Load | isa.Store, name: str) -> str:
    counts = [one.count0, one.count1, one.count2, one.count3]
    while len(counts) > 1 and counts[0] == 1:
        counts.pop(0)
    size = f"{_size(*counts)} of {several(one.element, 'byte')}"
    there, here = f"{name}+{one.offset:#x}", f"{one.address:#x}"
    if isinstance(one, isa.Load):
        return f"load {there} -> {here}, {size}"
    return f"store {here} -> {there}, {size}"


def _window(one: isa.Matmul | isa.Depthwise | isa.Pool, pads: tuple[int, int]) -> str:
    text = f"window {_size(one.kernel_h, one.kernel_w)}"
    if (one.stride_h, one.stride_w) != (1, 1):
        text += f" stride {_size(one.stride_h, one.stride_w)}"
    if (one.dilation_h, one.dilation_w) != (1, 1):
        text += f" dilation {_size(one.dilation_h, one.dilation_w)}"
    return text + (f" pad {_size(*pads)}" if pads != (0, 0) else "")


def _convolution(one: isa.Matmul | isa.Depthwise) -> str:
    size = _size(one.in_rows, one.in_cols, one.channels)
    out = _size(one.out_rows, one.out_cols, one.out_channels)
    begin = f"-> sums {one.sums}" if one.bias >= 0 else f"+= sums {one.sums}"
    bias = f", bias {one.bias:#x}" if one.bias >= 0 else ""
    return (
        f"{type(one).__name__.lower()} {one.address:#x} {size} {Dtype(one.in_dtype).name}, "
        f"{_window(one, (one.pad_top, one.pad_left))}, weights {one.weights:#x}{bias} {begin} {out}"
    )


def _rescale(one: isa.Requantize) -> str:
    text = Rounding(one.rounding).name
    if one.rounding != Rounding.NONE:
        text += f" {'by channel' if one.per_channel else 'by one'} at {one.multipliers:#x}"
    return f"{text} + {one.zero_point}, clip {one.low}..{one.high}"


def _add(one: isa.Add) -> str:
    size = _size(one.rows, one.cols, one.channels)
    both = f"{one.lhs_address:#x} {Dtype(one.lhs_dtype).name}"
    if one.rhs_address >= 0:
        both += f" + {one.rhs_address:#x} {Dtype(one.rhs_dtype).name}"
    name = "add" if one.rhs_address >= 0 else "rescale"
    rounding = Rounding(one.out_rounding if one.rhs_address >= 0 else one.lhs_rounding).name
    return (
        f"{name} {both}, {size} -> {one.out_address:#x} {Dtype(one.out_dtype).name}, {rounding}, "
        f"clip {one.low}..{one.high}"
    )
