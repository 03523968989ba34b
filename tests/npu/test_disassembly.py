"""Programs as text."""

from __future__ import annotations

import re

import numpy as np

from tests.npu.regions import Builder
from tvmlab.npu import isa
from tvmlab.npu.codegen.lower import compile_region
from tvmlab.npu.config import Config
from tvmlab.npu.disassembly import disassemble
from tvmlab.npu.isa import PoolKind, Rounding
from tvmlab.npu.layers import Add, Convolution, Region, Rescale, Side, Value


def tiny() -> Region:
    values = {
        name: Value(name, isa.Dtype.uint8, (1, 4, 4, 2), "NHWC") for name in ("data", "sum", "out")
    }
    rescale = Rescale(
        Rounding.UPWARD, np.array([1 << 30], np.int32), np.array([0], np.int32), 128, 0, 255
    )
    convolution = Convolution(
        "conv2d 3x3 2->2", ("data",), "sum", np.ones((3, 3, 2, 2), np.int8), np.zeros(2, np.int32),
        7, (1, 1), (2, 2), (2, 2, 2, 2), -(1 << 31), (1 << 31) - 1, rescale,
    )  # fmt: skip
    same = Side(0, Rounding.NONE, 0, 0)
    add = Add("add 4x4x2", ("sum", "data"), "out", (same, same), 0, same, 0, 255)
    return Region(("data",), ("out",), values, (convolution, add))


GOLDEN = """\
machine: 16x16 array, 16 lanes, 4,096 bytes of SRAM, 16,384 accumulators
tensor input0: uint8 1x4x4x2
tensor output0: uint8 1x4x4x2
tensor constants: uint8 304
phase 0
  conv2d 3x3 2->2
    dma    load constants+0x0 -> 0x20, 304 of 1 byte
    dma    load input0+0x0 -> 0x0, 4x4x2 of 1 byte
phase 1
  conv2d 3x3 2->2
    array  matmul 0x0 4x4x2 uint8, window 3x3 dilation 2x2 pad 2x2, weights 0x30, bias 0x24 \
-> sums 0 4x4x2
  add 4x4x2
    dma    load input0+0x0 -> 0x150, 16x2 of 1 byte
phase 2
  conv2d 3x3 2->2
    vector requantize sums 0 4x4x2 -> 0xfe0 uint8, UPWARD by one at 0x20 + 128, clip 0..255
  add 4x4x2
    vector add 0xfe0 uint8 + 0x150 uint8, 1x16x2 -> 0x170 uint8, NONE, clip 0..255
phase 3
  add 4x4x2
    dma    store 0x170 -> output0+0x0, 16x2 of 1 byte
"""


def test_a_program_as_text() -> None:
    assert disassemble(compile_region(tiny(), Config(sram_bytes=4096))) == GOLDEN


def test_every_instruction_has_a_line() -> None:
    builder = Builder(1, layout="NCHW")
    value = builder.conv(builder.input(2, 9, 9, 6), 20, (3, 3), (2, 2), pads=(1, 1, 1, 1))
    value = builder.conv(value, 0, (2, 2), depthwise=True)
    value = builder.pool(builder.add(value), PoolKind.AVERAGE, (2, 2), (2, 2))
    value = builder.mean(builder.add(value, value), Rounding.TFLITE)
    program = compile_region(builder.region(value), Config(sram_bytes=1500, accumulators=64))
    text = disassemble(program)
    assert len(re.findall(r"^phase \d+$", text, re.M)) == 1 + sum(
        isinstance(one, isa.Sync) for one in program.instructions
    )
    for kind in isa.INSTRUCTIONS.values():
        if kind is isa.Sync:
            continue
        name = "rescale|add" if kind is isa.Add else kind.__name__.lower()
        lines = re.findall(rf"^    {kind.unit.name.lower():6} (?:{name}) ", text, re.M)
        assert len(lines) == sum(isinstance(one, kind) for one in program.instructions)
        assert lines or kind is isa.Matmul
