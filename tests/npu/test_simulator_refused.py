"""What the simulator refuses: wrong fields, out of bounds, races, memory that holds nothing."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest

from tests.npu import cases
from tvmlab.errors import SimulationError
from tvmlab.npu import simulator
from tvmlab.npu.config import Config
from tvmlab.npu.isa import (
    Add,
    Depthwise,
    Dtype,
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
from tvmlab.npu.program import MAGIC, Dram, Kind, Program

S = 1024  # bytes of SRAM
LOAD = cases.move(Load, 0, 0, S)
SYNC = Sync(0)
U8 = int(Dtype.uint8)
#: Two by two pixels of four channels at 0, weights at 64, a bias at 512.
MATMUL = Matmul(0, 0, 8, 4, U8, 2, 2, 4, 0, 0, 0, 64, 1, 1, 1, 1, 1, 1, 2, 2, 16, 0, 512)
DEPTHWISE = Depthwise(
    *(0, 0, 8, 4, U8, 2, 2, 4, 0, 0, 0, 64, 1, 1, 1, 1, 1, 1, 2, 2, 4, 0, 512),
    int(Dtype.int8),
)
#: Of the sums that those make, to 768.
REQUANTIZE = Requantize(
    *(0, 0, 2, 2, 4, -(2**31), 2**31 - 1, int(Rounding.UPWARD), 600, 700, 1, 0, 0, 255),
    *(768, 8, 4, U8),
)
ADD = Add(
    *(0, 2, 2, 4, 0, 8, 4, U8, 0, int(Rounding.UPWARD), 1 << 30, 0, 100, 8, 4, U8, 0, 0, 0, 0),
    *(0, int(Rounding.TFLITE), 1 << 30, 0, 0, 0, 255, 768, 8, 4, U8),
)
POOL = Pool(
    *(0, int(PoolKind.MAX), 0, 8, 4, U8, 2, 2, 4, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    *(1, 1, 768, 4, 4),
)
SUM = Sum(0, 0, 8, 4, U8, 2, 2, 4, 0, 0, 0, 0)
TENSORS = (
    Dram(Kind.INPUT, Dtype.uint8, (S,)),
    Dram(Kind.SCRATCH, Dtype.uint8, (S,)),
    Dram(Kind.CONSTANTS, Dtype.uint8, (3,)),
)


def program(*instructions, tensors=TENSORS, layers=("layer",), config=None):
    constants = b"abc" if any(t.kind == Kind.CONSTANTS for t in tensors) else b""
    config = config or Config(sram_bytes=S, accumulators=64)
    return Program(config, tensors, layers, instructions, constants).to_bytes()


def refused(*instructions, match, number=None, **rest):
    with pytest.raises(SimulationError, match=match) as caught:
        simulator.module("f", program(*instructions, **rest))
    if number is not None:
        kind = type(instructions[number]).__name__
        assert caught.value.where == f"instruction {number} ({kind})"


WHOLE = {
    Matmul: MATMUL,
    Depthwise: DEPTHWISE,
    Requantize: REQUANTIZE,
    Add: ADD,
    Pool: POOL,
    Sum: SUM,
}


@pytest.mark.parametrize("kind", WHOLE)
def test_the_whole_ones_are_taken(kind):
    before = (LOAD, SYNC, MATMUL, SYNC)
    simulator.count(program(*before, WHOLE[kind]))


SIZES_OF_WINDOWS = (
    *("in_rows", "in_cols", "channels", "kernel_h", "kernel_w", "stride_h", "stride_w"),
    *("dilation_h", "dilation_w", "out_rows", "out_cols", "out_channels"),
)

FIELDS = [
    *((one, "layer", value) for one in (*WHOLE.values(), LOAD, SYNC) for value in (-1, 1)),
    *((LOAD, "tensor", value) for value in (-1, 3)),
    *((LOAD, "element", value) for value in (0, -1, 3, 16)),
    *((LOAD, f"count{i}", value) for i in range(4) for value in (0, -1, 2**31 - 1)),
    *((LOAD, name, -1) for name in ("dram3", "sram3", "dram0", "sram0", "offset", "address")),
    *((LOAD, name, 1) for name in ("offset", "address")),
    *((one, "in_dtype", value) for one in (MATMUL, DEPTHWISE) for value in (-1, 2, 3, 4)),
    *((MATMUL, "pad_value", value) for value in (-1, 256)),
    *((replace(MATMUL, in_dtype=0), "pad_value", value) for value in (-129, 128)),
    *(
        (one, name, value)
        for one in (MATMUL, DEPTHWISE)
        for name in SIZES_OF_WINDOWS
        for value in (0, -1, 2**31 - 1, -(2**31))
    ),
    *((MATMUL, name, -1) for name in ("address", "weights", "sums", "row_stride", "pixel_stride")),
    *((MATMUL, name, S - 3) for name in ("address", "weights", "bias", "sums", "row_stride")),
    *((MATMUL, name, 2**31 - 1) for name in ("row_stride", "pixel_stride", "pad_top", "pad_left")),
    (MATMUL, "bias", -2),
    (MATMUL, "sums", 1),
    *((DEPTHWISE, "weight_dtype", value) for value in (-1, 1, 3)),
    (DEPTHWISE, "out_channels", 5),
    *((REQUANTIZE, name, 0) for name in ("rows", "cols", "channels")),
    *((REQUANTIZE, "rounding", value) for value in (-1, 6)),
    *((REQUANTIZE, "per_channel", value) for value in (-1, 2)),
    *((REQUANTIZE, "out_dtype", value) for value in (-1, 2, 4)),
    *((REQUANTIZE, name, value) for name in ("low", "high") for value in (-1, 256)),
    (replace(REQUANTIZE, sum_high=4), "sum_low", 5),
    *((REQUANTIZE, name, S - 15) for name in ("multipliers", "shifts", "address")),
    *((REQUANTIZE, name, -1) for name in ("multipliers", "shifts", "address", "sums")),
    (REQUANTIZE, "sums", 49),
    *((ADD, name, value) for name in ("lhs_rounding", "rhs_rounding") for value in (-1, 4, 5)),
    *((ADD, "out_rounding", value) for value in (-1, 5)),
    *((ADD, name, value) for name in ("lhs_shift", "out_shift") for value in (-32, 31)),
    (replace(ADD, rhs_rounding=1), "rhs_shift", 31),
    *((ADD, "left_shift", value) for value in (-1, 32)),
    *((ADD, name, 4) for name in ("lhs_dtype", "rhs_dtype", "out_dtype")),
    *((ADD, name, -2) for name in ("lhs_address", "rhs_address", "out_address")),
    *((ADD, name, S - 15) for name in ("lhs_address", "rhs_address", "out_address")),
    (ADD, "low", 256),
    *((POOL, "kind", value) for value in (-1, 5)),
    *((POOL, name, value) for name in ("in_zero", "out_zero") for value in (-1, 256)),
    (POOL, "count_pad", 2),
    *((POOL, name, 2**31 - 1) for name in ("pad_bottom", "pad_right", "kernel_h", "dilation_w")),
    *((replace(POOL, kind=3, shift=4), "shift", value) for value in (0, 42)),
    (replace(POOL, kind=3, shift=4), "multiplier", -1),
    (replace(POOL, kind=3, shift=4), "kernel_h", (1 << 20) + 1),
    (replace(POOL, kind=3, shift=4), "dtype", 3),
    *((POOL, name, S - 3) for name in ("address", "out_address")),
    *((SUM, name, value) for name in ("rows", "channels") for value in (0, 2**31 - 1)),
    *((SUM, "accumulate", value) for value in (-1, 2)),
    (SUM, "sums", 61),
    (SUM, "dtype", 4),
]


@pytest.mark.parametrize(
    ("one", "name", "value"), FIELDS, ids=[f"{type(o).__name__}-{n}-{v}" for o, n, v in FIELDS]
)
def test_fields(one, name, value):
    before = (LOAD, SYNC, MATMUL, SYNC)
    refused(*before, replace(one, **{name: value}), number=4, match=".")


def test_all_enumerations_and_ends_that_fit_are_taken():
    # The counterpart of FIELDS: what lies just inside.
    before = (LOAD, SYNC, MATMUL, SYNC)
    for one, changes in [
        (MATMUL, {"pad_value": 255, "pad_top": -(1 << 24)}),
        (MATMUL, {"in_dtype": 0, "pad_value": -128}),
        (MATMUL, {"out_rows": 1, "sums": 32}),
        (ADD, {"lhs_shift": -31, "out_shift": 30, "left_shift": 31}),
        (POOL, {"kind": 3, "shift": 41, "kernel_h": 1 << 20}),
        (REQUANTIZE, {"low": 255, "sum_low": 2**31 - 1}),
        (ADD, {"out_rounding": 4, "lhs_rounding": 77, "lhs_shift": 99}),
    ]:
        simulator.count(program(*before, replace(one, **changes)))


# ---- memory that holds nothing ----


def test_uninitialized_sram():
    some = cases.move(Load, 0, 0, 15)  # one byte of the data is not there
    rest = cases.move(Load, 0, 16, S - 16, 16)
    refused(some, rest, SYNC, MATMUL, number=3, match="reads the SRAM at 15, where nothing")


def test_what_windows_step_over_may_be_missing():
    # Every second pixel of every second row; the others are not loaded.
    pixels = Load(0, 0, 0, 0, 4, 1, 2, 2, 1, 0, 8, 4, 4, 0, 32, 8, 4)
    rest = cases.move(Load, 0, 64, S - 64)
    matmul = replace(MATMUL, row_stride=16, in_rows=4, in_cols=4, stride_h=2, stride_w=2)
    simulator.count(program(pixels, rest, SYNC, matmul))
    taken = replace(matmul, pad_left=1, kernel_w=2)
    refused(pixels, rest, SYNC, taken, number=3, match="the SRAM at 4, where")


def test_uninitialized_accumulators():
    refused(LOAD, SYNC, REQUANTIZE, number=2, match="reads the accumulators at 0, where nothing")
    more = replace(MATMUL, bias=-1)
    refused(LOAD, SYNC, more, number=2, match="reads the accumulators at 0")
    refused(LOAD, SYNC, replace(SUM, accumulate=1), number=2, match="reads the accumulators at 0")
    simulator.count(program(LOAD, SYNC, MATMUL, more))


def test_uninitialized_tensors():
    take = cases.move(Load, 1, 0, 8, 4)
    refused(LOAD, SYNC, take, number=2, match="reads the tensor at 4, where nothing")
    simulator.count(program(LOAD, SYNC, cases.move(Store, 1, 0, 12), SYNC, take))


@pytest.mark.parametrize("tensor", [0, 2])
def test_inputs_and_constants_stay(tensor):
    refused(LOAD, SYNC, cases.move(Store, tensor, 0, 1), number=2, match="inputs or constants")


def test_outputs_not_written():
    tensors = TENSORS[0], Dram(Kind.OUTPUT, Dtype.int16, (3, 5))
    for count, offset, empty in [(29, 0, 29), (29, 1, 0)]:
        store = cases.move(Store, 1, 0, count, offset)
        refused(LOAD, SYNC, store, tensors=tensors, match=f"byte {empty} of tensor 1, an output")
    simulator.count(program(LOAD, SYNC, cases.move(Store, 1, 0, 30), tensors=tensors))
    refused(tensors=tensors, match="byte 0 of tensor 1")


# ---- races ----


@pytest.mark.parametrize(
    ("instructions", "what"),
    [
        ((LOAD, MATMUL), "reads the SRAM at 0, which the DMA engine writes"),
        ((LOAD, SYNC, MATMUL, cases.move(Load, 0, 3, 1)), "writes the SRAM at 3, which the array"),
        ((LOAD, SYNC, POOL, cases.move(Store, 1, 700, 69)), "at 768, which the vector unit writes"),
        ((LOAD, SYNC, ADD, cases.move(Load, 0, 768, 1)), "at 768, which the vector unit writes"),
        ((LOAD, SYNC, ADD, cases.move(Load, 0, 115, 1)), "at 115, which the vector unit reads"),
        ((LOAD, SYNC, MATMUL, REQUANTIZE), "reads the accumulators at 0, which the array writes"),
        ((LOAD, SYNC, SUM, MATMUL), "writes the accumulators at 0, which the vector unit writes"),
        (
            (LOAD, SYNC, MATMUL, SYNC, REQUANTIZE, replace(MATMUL, out_rows=1)),
            "writes the accumulators at 0, which the vector unit reads",
        ),
    ],
)
def test_races(instructions, what):
    refused(*instructions, match=f"a race: it .*{what}", number=len(instructions) - 1)
    apart = (*instructions[:-1], SYNC, instructions[-1])
    simulator.count(program(*apart))


def test_units_may_read_the_same_and_write_beside_each_other():
    simulator.count(
        program(
            *(LOAD, SYNC, MATMUL, POOL, cases.move(Store, 1, 0, 64)),
            *(cases.move(Load, 0, 772, 4), SYNC, cases.move(Load, 0, 0, S)),
        )
    )


def test_one_unit_is_in_order():
    simulator.count(program(LOAD, cases.move(Store, 1, 0, S), cases.move(Load, 0, 0, S)))
    simulator.count(program(LOAD, SYNC, POOL, replace(POOL, address=768, in_rows=1, in_cols=1)))


# ---- tables, whose contents are data ----


@pytest.mark.parametrize("shift", [-32, 31, 2**31 - 1, -(2**31)])
def test_shifts_of_a_table(shift):
    module = simulator.module("f", program(LOAD, SYNC, MATMUL, SYNC, REQUANTIZE))
    data = np.zeros(S, np.uint8)
    data[704:708] = np.int32([shift]).view(np.uint8)
    with pytest.raises(SimulationError, match=f"a shift in its table is {shift}") as caught:
        module["f"](data)
    assert caught.value.where == "instruction 4 (Requantize)"


# ---- too much ----


def test_work_is_bounded():
    # One number, pooled in windows of 2^29 places.
    wide = replace(POOL, in_rows=1, in_cols=1, channels=1, kernel_h=1 << 15, kernel_w=1 << 14)
    wide = replace(wide, out_rows=2, out_cols=2, out_row_stride=8, out_pixel_stride=1)
    before = (LOAD, SYNC)
    simulator.count(program(*before, wide))
    refused(*before, *[wide] * 8, match="more than 1099511627776 steps", number=3)
    vast = replace(MATMUL, in_rows=1 << 24, in_cols=1 << 24, row_stride=0, pixel_stride=0)
    refused(*before, vast, match="more than 1099511627776 steps", number=2)


# ---- the bytes ----


def signed(body):
    return MAGIC + struct.pack("<I", zlib.crc32(body)) + body


SIZES = struct.pack("<11I", 10, 16, 16, 16, S, 64, 16, 32, 64, 8, 1000)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "no program"),
        (MAGIC[:7], "no program"),
        (MAGIC, "too early"),
        (MAGIC + bytes(4) + SIZES, "checksum"),
        (signed(b""), "too early"),
        (signed(struct.pack("<I", 9) + SIZES[4:]), "9 sizes of a machine"),
        (signed(SIZES[:4] + bytes(4) + SIZES[8:]), "rows is 0"),
        (signed(SIZES + struct.pack("<I", 2**32 - 1)), "too early"),
        (signed(SIZES + struct.pack("<IBBH", 1, 4, 0, 0)), "kind is 4"),
        (signed(SIZES + struct.pack("<IBBH", 1, 1, 4, 0)), "dtype is 4"),
        (signed(SIZES + struct.pack("<IBBHi", 1, 1, 0, 1, 0)), "dimension is 0"),
        (signed(SIZES + struct.pack("<IBBHi", 1, 1, 0, 1, -1)), "dimension is -1"),
        (signed(SIZES + struct.pack("<IBBH2i", 1, 1, 0, 2, 2**20, 2**20)), "more than 1073741824"),
        (signed(SIZES + struct.pack("<IBBH4i", 1, 1, 0, 4, *[2**30] * 4)), "more than"),
        (signed(SIZES + 2 * struct.pack("<I", 0)), "too early"),
        (signed(SIZES + struct.pack("<4Ii", 0, 0, 1, 0, 0)), "opcode 0|goes on|too early"),
        (signed(SIZES + struct.pack("<3Ii", 0, 0, 1, 10)), "unknown opcode 10"),
        (signed(SIZES + struct.pack("<3Ii", 0, 0, 1, 9)), "cut off"),
        (signed(SIZES + struct.pack("<4I", 0, 0, 0, 5)), "too early"),
        (signed(SIZES + struct.pack("<4I", 0, 0, 0, 2) + b"ab"), "2 bytes of constants"),
        (signed(SIZES + bytes(16) + b"more"), "go on after its end"),
        (signed(SIZES + struct.pack("<IH", 0, 0)), "too early"),
    ],
)
def test_bytes(data, what):
    for use in (simulator.count, lambda data: simulator.module("f", data)):
        with pytest.raises(SimulationError, match=what):
            use(data)


@pytest.mark.parametrize(
    "name",
    [
        *(b"\x80", b"a\xc3", b"\xc3a", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80"),
        *(
            b"\xef\xbf\xbf",
            b"\xf0\x8f\xbf\xbf",
            b"\xf4\x90\x80\x80",
            b"\xf5\x80\x80\x80",
            b"\xff",
            b"\xe2\x82",
        ),
        *(
            b"",
            b"a",
            "é€😀\U0010ffff\ud7ff\ue000".encode(),
            b"\xc2\x80",
            b"\xe0\xa0\x80",
            b"\xf0\x90\x80\x80",
        ),
    ],
)
def test_names_are_utf8(name):
    data = signed(SIZES + struct.pack("<2IH", 0, 1, len(name)) + name + bytes(8))
    try:
        name.decode()
    except UnicodeDecodeError:
        with pytest.raises(SimulationError, match="the name of layer 0 is no UTF-8"):
            simulator.count(data)
    else:
        assert len(simulator.count(data)) == 1


def test_two_tensors_of_constants():
    constants = (Dram(Kind.CONSTANTS, Dtype.uint8, (3,)),)
    refused(tensors=2 * constants, match="2 tensors of constants")


def test_checksums_are_those_of_zlib():
    # Through the loader, which refuses any other: lengths around the eight bytes of a step.
    tensors = (Dram(Kind.CONSTANTS, Dtype.uint8, (3,)),)
    for length in range(20):
        simulator.count(program(tensors=tensors, layers=("x" * length,)))
