"""Single instructions, drawn at random, and programs around one and around all of them.

The program fills the SRAM and the accumulators from its input, executes the instruction, and stores
all of both to its output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tvmlab.npu import simulator
from tvmlab.npu.config import Config
from tvmlab.npu.isa import (
    Add,
    Depthwise,
    Dtype,
    Instruction,
    Load,
    Matmul,
    Pool,
    PoolKind,
    Requantize,
    Rounding,
    Store,
    Sum,
    Sync,
)
from tvmlab.npu.program import Dram, Kind, Program

#: Bytes of SRAM that an instruction plays in, and accumulators; the rest of the SRAM is for filling
#: and showing the latter.
PLAY, SUMS = 4096, 192
LOW, HIGH = -(2**31), 2**31 - 1


@dataclass
class Case:
    """An instruction and what the memories hold before it."""

    instruction: Instruction
    sram: Any
    sums: Any
    columns: int = 16


def move(kind, tensor, address, count, offset=0):
    return kind(0, tensor, offset, address, 1, 1, 1, 1, count, 0, 0, 0, 1, 0, 0, 0, 1)


def all_sums(address, count):
    none = int(Rounding.NONE)
    return Requantize(
        0, 0, 1, 1, count, LOW, HIGH, none, 0, 0, 0, 0, LOW, HIGH, address, 0, 0, int(Dtype.int32)
    )


def matmul_of_nothing(address, bias, count):
    return Matmul(0, address, 0, 0, 0, 1, 1, 1, 0, 0, 0, address, *[1] * 8, count, 0, bias)


def program(case):
    zeros = -(-SUMS // case.columns) * case.columns
    image = PLAY + 4 * SUMS + zeros
    config = Config(columns=case.columns, sram_bytes=image + 4 * SUMS, accumulators=SUMS)
    tensors = (
        Dram(Kind.INPUT, Dtype.uint8, (image,)),
        Dram(Kind.OUTPUT, Dtype.uint8, (PLAY + 4 * SUMS,)),
    )
    show = all_sums(image, SUMS)
    sync = Sync(0)
    instructions = (
        *(move(Load, 0, 0, image), sync),
        *(matmul_of_nothing(PLAY + 4 * SUMS, PLAY, SUMS), sync),
        *(case.instruction, sync, show, sync),
        *(move(Store, 1, 0, PLAY), move(Store, 1, image, 4 * SUMS, PLAY)),
    )
    return Program(config, tensors, ("layer",), instructions, b"").to_bytes()


def run(case):
    zeros = -(-SUMS // case.columns) * case.columns
    image = np.concatenate([case.sram, case.sums.view(np.uint8), np.zeros(zeros, np.uint8)])
    (found,) = simulator.simulate(program(case), [image])
    return found[:PLAY], found[PLAY:].view(np.int32)


@dataclass
class Space:
    """Draws places in SRAM that do not overlap, in any order and at any alignment."""

    draw: Any
    rng: Any
    sram: Any
    at: int = 0

    def take(self, count):
        self.at += self.draw(st.integers(0, 5))
        start = self.at
        self.at += count
        assert self.at <= PLAY
        return start

    def table(self, numbers):
        numbers = np.asarray(numbers)
        address = self.take(numbers.nbytes)
        self.sram[address : address + numbers.nbytes] = numbers.view(np.uint8)
        return address

    def view(self, rows, cols, channels, dtype):
        pixel = channels * Dtype(dtype).bytes + self.draw(st.sampled_from([0, 0, 1, 6]))
        row = cols * pixel + self.draw(st.sampled_from([0, 0, 3]))
        return self.take(rows * row), row, pixel

    def image(self, rows, cols, channels, dtype):
        address, row, pixel = self.view(rows, cols, channels, dtype)
        info = np.iinfo(Dtype(dtype).name)
        ends = np.array([info.min, info.max, info.min + 1, 0, info.max - 1], info.dtype)
        for y, x in np.ndindex(rows, cols):
            numbers = self.rng.integers(info.min, info.max, channels, info.dtype, endpoint=True)
            some = self.rng.random(channels) < 0.3
            numbers[some] = self.rng.choice(ends, some.sum())
            at = address + y * row + x * pixel
            self.sram[at : at + numbers.nbytes] = numbers.view(np.uint8)
        return address, row, pixel


def integer(draw):
    return draw(st.sampled_from([LOW, HIGH, LOW + 1, 0, -1]) | st.integers(LOW, HIGH))


def begin(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sums = rng.integers(LOW, HIGH, SUMS, np.int32, endpoint=True)
    sums >>= rng.choice([0, 0, 8, 16, 24], SUMS).astype(np.int32)
    some = rng.random(SUMS) < 0.2
    sums[some] = rng.choice(np.array([LOW, HIGH, LOW + 1, HIGH - 1, 0], np.int32), some.sum())
    sram = rng.integers(0, 256, PLAY, np.uint8)
    return rng, sums, sram, Space(draw, rng, sram)


def clip(draw, dtype):
    info = np.iinfo(Dtype(dtype).name)
    if draw(st.booleans()):
        return int(info.min), int(info.max)
    ends = st.integers(int(info.min), int(info.max))
    low, high = sorted([draw(ends), draw(ends)])
    return low, high


def window(draw, most):
    step = st.integers(1, 3)
    kernel = [draw(st.integers(1, most)) for _ in range(2)]
    return kernel, [draw(step), draw(step)], [draw(step), draw(step)]


@st.composite
def convolutions(draw, kind):
    rng, sums, sram, space = begin(draw)
    columns = draw(st.sampled_from([16, 16, 1, 5, 8, 24, 32])) if kind is Matmul else 16
    rows, cols, channels = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 9))
    kernel, strides, dilation = window(draw, 3)
    dtype = draw(st.sampled_from([Dtype.int8, Dtype.uint8]))
    weight = draw(st.sampled_from([Dtype.int8, Dtype.int16])) if kind is Depthwise else Dtype.int8
    outs = draw(st.integers(1, 20)) if kind is Matmul else channels
    most = SUMS // outs
    out_rows = draw(st.integers(1, min(most, 6)))
    out_cols = draw(st.integers(1, min(most // out_rows, 6)))
    address, row, pixel = space.image(rows, cols, channels, dtype)
    lanes = -(-outs // columns) * columns if kind is Matmul else 1
    info = np.iinfo(weight.name)
    count = kernel[0] * kernel[1] * channels * lanes
    weights = rng.integers(info.min, info.max, count, info.dtype, endpoint=True)
    weights[rng.random(count) < 0.3] = info.min
    bias = -1
    if draw(st.booleans()):
        bias = space.table(sums[rng.integers(0, SUMS, outs)])
    pad = int(rng.integers(*((-128, 128) if dtype == Dtype.int8 else (0, 256))))
    pads = draw(st.integers(-1, 3)), draw(st.integers(-1, 3))
    first = draw(st.integers(0, SUMS - out_rows * out_cols * outs))
    fields = [0, address, row, pixel, dtype, rows, cols, channels, *pads, pad]
    fields += [space.table(weights), *kernel, *strides, *dilation]
    fields += [out_rows, out_cols, outs, first, bias]
    one = kind(*fields) if kind is Matmul else kind(*fields, weight)
    return Case(one, sram, sums, columns)


def multiplier(draw):
    magnitude = draw(st.sampled_from([1 << 30, HIGH, 0]) | st.integers(1 << 30, HIGH))
    return draw(st.sampled_from([1, 1, 1, -1])) * magnitude, draw(st.integers(-31, 30))


@st.composite
def requantizes(draw, rounding):
    _, sums, sram, space = begin(draw)
    rows, cols = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    channels = draw(st.integers(1, 20))
    per_channel = draw(st.booleans())
    count = channels if per_channel else 1
    dtype = draw(st.sampled_from([Dtype.int8, Dtype.uint8, Dtype.int32]))
    multipliers = shifts = 0
    if rounding in (Rounding.ONNX, Rounding.TFLITE_FLOAT64):
        kind = np.float32 if rounding == Rounding.ONNX else np.float64
        # Halves come out often where sums are small and the multiplier is a power of two.
        some = st.sampled_from([0.5, 0.25, 2.0**-20, 0.0, -0.5, 1e300, np.inf, np.nan])
        drawn = [draw(some | st.floats(0, 4, width=32)) for _ in range(count)]
        with np.errstate(over="ignore"):
            multipliers = space.table(np.array(drawn, np.float64).astype(kind))
    elif rounding != Rounding.NONE:
        pairs = [multiplier(draw) for _ in range(count)]
        multipliers, shifts = (
            space.table(np.array(part, np.int32)) for part in zip(*pairs, strict=True)
        )
    low, high = sorted([integer(draw), integer(draw)]) if draw(st.booleans()) else (LOW, HIGH)
    zero = draw(st.integers(-128, 255)) if dtype != Dtype.int32 else integer(draw)
    ends = clip(draw, dtype)
    first = draw(st.integers(0, SUMS - rows * cols * channels))
    view = space.view(rows, cols, channels, dtype)
    one = Requantize(
        *(0, first, rows, cols, channels, low, high, rounding, multipliers, shifts),
        *(int(per_channel), zero, *ends, *view, dtype),
    )
    return Case(one, sram, sums)


@st.composite
def adds(draw, out_rounding):
    _, sums, sram, space = begin(draw)
    rows, cols, channels = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 9))
    onnx = out_rounding == Rounding.ONNX

    def factor():
        if not onnx:
            return multiplier(draw)
        ratio = draw(st.floats(0, 2, width=32) | st.sampled_from([0.5, 1e30, np.inf, np.nan]))
        return int(np.float32(ratio).view(np.int32)), 0

    def side():
        dtype = draw(
            st.sampled_from([Dtype.int8, Dtype.uint8, Dtype.uint8, Dtype.int16, Dtype.int32])
        )
        way = Rounding.ONNX if onnx else draw(st.sampled_from(list(Rounding)[:4]))
        image = space.image(rows, cols, channels, dtype)
        zero = draw(st.integers(-128, 255)) if dtype != Dtype.int32 else integer(draw)
        return [*image, dtype, zero, way, *factor()]

    sides = [*side(), *side()]
    if draw(st.integers(0, 3)) == 0:
        sides[8] = -1
    left = draw(st.sampled_from([0, 0, 15, 20, 31]))
    dtype = draw(st.sampled_from([Dtype.int8, Dtype.uint8, Dtype.int16, Dtype.int32]))
    zero = draw(st.integers(-128, 255)) if dtype != Dtype.int32 else integer(draw)
    view = space.view(rows, cols, channels, dtype)
    if sides[3] == dtype and draw(st.booleans()):
        view = sides[:3]  # in place
    last = [out_rounding, *factor(), zero, *clip(draw, dtype), *view, dtype]
    return Case(Add(0, rows, cols, channels, *sides, left, *last), sram, sums)


@st.composite
def pools(draw, kind):
    _, sums, sram, space = begin(draw)
    rows, cols, channels = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    dtypes = [Dtype.int8, Dtype.uint8, Dtype.int16, Dtype.int32]
    dtype = draw(st.sampled_from(dtypes[: 3 if kind == PoolKind.AVERAGE_TFLITE else 4]))
    kernel, strides, dilation = window(draw, 4)
    out_rows, out_cols = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    info = np.iinfo(dtype.name)
    zeros = [draw(st.integers(int(info.min), int(info.max))) for _ in range(2)]
    factor, shift = 0, 0
    if kind == PoolKind.AVERAGE_TFLITE:
        factor = draw(st.integers(1 << 30, HIGH) | st.sampled_from([0, 1 << 30]))
        shift = draw(st.integers(1, 41 if dtype.bytes == 1 else 49))
    elif kind == PoolKind.AVERAGE_ONNX:
        scale = st.floats(0, 4, width=32) | st.sampled_from([0.5, 1.0, np.inf, np.nan])
        factor, shift = (int(np.float32(draw(scale)).view(np.int32)) for _ in range(2))
    pads = [draw(st.integers(-1, 4)) for _ in range(4)]
    image = space.image(rows, cols, channels, dtype)
    one = Pool(
        *(0, kind, *image, dtype, rows, cols, channels, *kernel, *strides, *dilation, *pads),
        *(draw(st.integers(0, 1)), *zeros, factor, shift, out_rows, out_cols),
        *space.view(out_rows, out_cols, channels, dtype),
    )
    return Case(one, sram, sums)


@st.composite
def totals(draw):
    _, sums, sram, space = begin(draw)
    rows, cols, channels = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 9))
    dtype = draw(st.sampled_from(list(Dtype)))
    info = np.iinfo(dtype.name)
    low = draw(st.sampled_from([int(info.min), 0, 7]) | st.integers(LOW, HIGH))
    image = space.image(rows, cols, channels, dtype)
    first = draw(st.integers(0, SUMS - channels))
    accumulate = draw(st.integers(0, 1))
    fields = [*image, dtype, rows, cols, channels, low, integer(draw), accumulate, first]
    return Case(Sum(0, *fields), sram, sums)


#: The input: 6 by 6 pixels of 4 channels. In SRAM from 0; what is made of it from 4096.
INPUT = (6, 6, 4)
TABLES, MADE = 1024, 4096


def small_network():
    u8, s8 = int(Dtype.uint8), int(Dtype.int8)
    rng = np.random.default_rng(5)
    constants, places = b"", {}
    for name, numbers in {
        "weights": rng.integers(-128, 128, (3, 3, 4, 16), np.int8),
        "bias": rng.integers(-999, 999, 16, np.int32),
        "taps": rng.integers(-128, 128, (3, 3, 4), np.int8),
        "multipliers": rng.integers(1 << 30, (1 << 31) - 1, 4, np.int32),
        "shifts": np.full(4, -8, np.int32),
        "floats": rng.uniform(0.001, 0.01, 4).astype(np.float32),
        "doubles": rng.uniform(0.001, 0.01, 1),
    }.items():
        places[name] = TABLES + len(constants)
        constants += numbers.tobytes()
    image = (24, 4, u8, 6, 6, 4, 1, 1, 7)
    window = (3, 3, 1, 1, 1, 1, 6, 6, 4)
    every = (-(2**31), 2**31 - 1)
    side = (24, 4, u8, 3, int(Rounding.TFLITE), 1 << 30, -1)
    floats = int(Rounding.ONNX), places["floats"], 0, 1
    ints = int(Rounding.UPWARD), places["multipliers"], places["shifts"], 1
    double = int(Rounding.TFLITE_FLOAT64), places["doubles"], 0, 0
    instructions = (
        Load(0, 0, 0, 0, 4, 1, 1, 6, 6, 0, 0, 24, 4, 0, 0, 24, 4),
        move(Load, 1, TABLES, len(constants)),
        Sync(0),
        Matmul(0, 0, *image, places["weights"], *window, 0, places["bias"]),
        Depthwise(1, 0, *image, places["taps"], *window, 200, places["bias"], s8),
        Sync(0),
        Requantize(0, 0, 6, 6, 4, *every, *ints, 3, 0, 255, MADE, 24, 4, u8),
        Requantize(1, 200, 6, 6, 4, *every, *floats, 3, 0, 255, MADE + 200, 24, 4, u8),
        Add(
            *(2, 6, 6, 4, MADE, *side, MADE + 200, *side, 20, int(Rounding.TFLITE)),
            *(1 << 30, -18, 3, 0, 255, MADE, 24, 4, u8),
        ),
        Pool(
            *(3, int(PoolKind.AVERAGE_TFLITE), MADE, 24, 4, u8, 6, 6, 4, 3, 3, 2, 2, 1, 1),
            *(1, 1, 1, 1, 0, 3, 5, 1 << 30, 31, 3, 3, MADE + 400, 12, 4),
        ),
        Sum(4, MADE + 400, 12, 4, u8, 3, 3, 4, 0, -27, 0, 400),
        Requantize(4, 400, 1, 1, 4, *every, *double, 3, 0, 255, MADE + 500, 4, 4, u8),
        Sync(4),
        move(Store, 4, MADE + 400, 36),
        move(Load, 4, 0, 36),
        move(Store, 2, MADE + 400, 36),
        move(Store, 3, MADE + 500, 4),
    )
    tensors = (
        Dram(Kind.INPUT, Dtype.uint8, INPUT),
        Dram(Kind.CONSTANTS, Dtype.uint8, (len(constants),)),
        Dram(Kind.OUTPUT, Dtype.uint8, (3, 3, 4)),
        Dram(Kind.OUTPUT, Dtype.uint8, (4,)),
        Dram(Kind.SCRATCH, Dtype.uint8, (36,)),
    )
    layers = ("convolution", "depthwise", "add", "pool", "mean")
    config = Config(sram_bytes=8192, accumulators=512)
    return Program(config, tensors, layers, instructions, constants)
