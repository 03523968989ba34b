"""The accelerator once more, in NumPy and without haste: what a program computes, and its faults.

It is written from `tvmlab.npu.isa` alone, beside the simulator in C++, so that each checks the
other. Bytes are told apart one by one: who wrote them, who read them in this phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvmlab.npu import isa
from tvmlab.npu.isa import Dtype, PoolKind, Rounding, Unit
from tvmlab.npu.program import Kind, Program
from tvmlab.qnn.reference import fixed_point, scaling, tflite

Array = Any


class Fault(Exception):
    """A program does what the machine refuses."""


class Memory:
    """Bytes, which of them are written, and who used them in this phase."""

    def __init__(self, name: str, data: Array, *, known: bool, shared: bool) -> None:
        self.name, self.data, self.shared = name, data, shared
        self.known = np.full(data.size, known)
        self.readers = np.zeros(data.size, np.uint8)
        self.writers = np.zeros(data.size, np.uint8)

    def sync(self) -> None:
        self.readers[:] = 0
        self.writers[:] = 0

    def check(self, places: Array, what: str) -> None:
        if places.size and (places.min() < 0 or places.max() >= self.data.size):
            raise Fault(f"{what} out of bounds of {self.name} ({self.data.size} bytes)")

    def read(self, places: Array, unit: Unit) -> Array:
        self.check(places, "read")
        if not self.known[places].all():
            raise Fault(f"read of uninitialized bytes of {self.name}")
        if self.shared:
            if (self.writers[places] & (255 ^ (1 << unit))).any():
                raise Fault(f"race: {unit.name} reads what is written in {self.name}")
            self.readers[places] |= 1 << unit
        return self.data[places]

    def write(self, places: Array, data: Array, unit: Unit) -> None:
        self.check(places, "write")
        if self.shared:
            if ((self.writers[places] | self.readers[places]) & (255 ^ (1 << unit))).any():
                raise Fault(f"race: {unit.name} writes what is used in {self.name}")
            self.writers[places] |= 1 << unit
        self.known[places] = True
        self.data[places] = data


def places(address: int, steps: Sequence[tuple[int, int]], each: int) -> Array:
    """Give the bytes of numbers: [*counts, each]."""
    found = np.int64(address)
    for count, stride in steps:
        found = np.add.outer(found, np.arange(count, dtype=np.int64) * stride)
    return np.add.outer(found, np.arange(each))


class Machine:
    """A machine that runs one program."""

    def __init__(self, program: Program, inputs: Sequence[Array]) -> None:
        self.program, config = program, program.config
        self.sram = Memory("SRAM", np.zeros(config.sram_bytes, np.uint8), known=False, shared=True)
        sums = np.zeros(4 * config.accumulators, np.uint8)
        self.sums = Memory("the accumulators", sums, known=False, shared=True)
        self.dram, given = [], list(inputs)
        for number, tensor in enumerate(program.tensors):
            name, known = f"tensor {number}", True
            if tensor.kind is Kind.INPUT:
                array = np.ascontiguousarray(given.pop(0))
                assert array.shape == tensor.shape
                assert array.dtype.name == tensor.dtype.name
                data = array.reshape(-1).view(np.uint8).copy()
            elif tensor.kind is Kind.CONSTANTS:
                data = np.frombuffer(program.constants, np.uint8).copy()
            else:
                data, known = np.zeros(tensor.nbytes, np.uint8), False
            self.dram.append(Memory(name, data, known=known, shared=False))

    def run(self) -> list[Array]:
        """Execute all, and give the outputs."""
        for one in self.program.instructions:
            getattr(self, type(one).__name__.lower())(one)
        outputs = []
        for tensor, memory in zip(self.program.tensors, self.dram, strict=True):
            if tensor.kind is Kind.OUTPUT:
                if not memory.known.all():
                    raise Fault("an output is not written everywhere")
                outputs.append(memory.data.view(tensor.dtype.name).reshape(tensor.shape))
        return outputs

    def sync(self, _: isa.Sync) -> None:
        self.sram.sync()
        self.sums.sync()

    def boxes(self, one: Any) -> tuple[Array, Array]:
        counts = [getattr(one, f"count{i}") for i in range(4)]
        assert min(counts) >= 1
        assert one.element in (1, 2, 4, 8)
        sides = []
        for start, name in ((one.offset, "dram"), (one.address, "sram")):
            strides = [getattr(one, f"{name}{i}") for i in range(4)]
            assert min(strides) >= 0
            sides.append(places(start, list(zip(counts, strides, strict=True)), one.element))
        return sides[0], sides[1]

    def load(self, one: isa.Load) -> None:
        source, to = self.boxes(one)
        self.sram.write(to, self.dram[one.tensor].read(source, Unit.DMA), Unit.DMA)

    def store(self, one: isa.Store) -> None:
        assert self.program.tensors[one.tensor].kind in (Kind.OUTPUT, Kind.SCRATCH)
        to, source = self.boxes(one)
        self.dram[one.tensor].write(to, self.sram.read(source, Unit.DMA), Unit.DMA)

    def numbers(self, address: int, steps: list[tuple[int, int]], kind: str, unit: Unit) -> Array:
        found = self.sram.read(places(address, steps, np.dtype(kind).itemsize), unit)
        return np.ascontiguousarray(found).view(kind)[..., 0]

    def view(self, address: int, shape: Any, row: int, pixel: int, dtype: int, unit: Unit) -> Array:
        kind = Dtype(dtype)
        assert min(shape) >= 1
        steps = [(shape[0], row), (shape[1], pixel), (shape[2], kind.bytes)]
        return self.numbers(address, steps, kind.name, unit).astype(np.int64)

    def put(self, address: int, data: Array, row: int, pixel: int, dtype: int) -> None:
        kind = Dtype(dtype)
        steps = [(data.shape[0], row), (data.shape[1], pixel), (data.shape[2], kind.bytes)]
        raw = np.ascontiguousarray(data.astype(kind.name))[..., None].view(np.uint8)
        self.sram.write(places(address, steps, kind.bytes), raw, Unit.VECTOR)

    def windows(self, one: Any, x: Array, fill: int) -> tuple[Array, Array, Array]:
        """Give what taps see, [out_rows, out_cols, taps, channels], and where it is in the tile."""
        rows = np.add.outer(np.arange(one.out_rows) * one.stride_h - one.pad_top,
                            np.arange(one.kernel_h) * one.dilation_h)  # fmt: skip
        cols = np.add.outer(np.arange(one.out_cols) * one.stride_w - one.pad_left,
                            np.arange(one.kernel_w) * one.dilation_w)  # fmt: skip
        y, x_ = rows[:, None, :, None], cols[None, :, None, :]
        y, x_ = np.broadcast_arrays(y, x_)
        inside = (y >= 0) & (y < one.in_rows) & (x_ >= 0) & (x_ < one.in_cols)
        seen = x[np.where(inside, y, 0), np.where(inside, x_, 0)]
        seen = np.where(inside[..., None], seen, fill)
        return seen, inside, np.stack([y, x_])

    def accumulate(self, one: Any, found: Array, unit: Unit) -> None:
        where = places(4 * one.sums, [(found.size, 4)], 4).reshape(*found.shape, 4)
        if one.bias >= 0:
            start = self.numbers(one.bias, [(one.out_channels, 4)], "int32", unit)
        else:
            start = np.ascontiguousarray(self.sums.read(where, unit)).view("int32")[..., 0]
        total = (found + start).astype(np.int32)
        self.sums.write(where, total[..., None].view(np.uint8), unit)

    def matmul(self, one: isa.Matmul) -> None:
        unit, columns = Unit.ARRAY, self.program.config.columns
        size = one.in_rows, one.in_cols, one.channels
        x = self.view(one.address, size, one.row_stride, one.pixel_stride, one.in_dtype, unit)
        seen, _, _ = self.windows(one, x, one.pad_value)
        blocks = -(-one.out_channels // columns)
        shape = blocks, one.kernel_h, one.kernel_w, one.channels, columns
        w = self.numbers(one.weights, [(int(np.prod(shape)), 1)], "int8", unit).reshape(shape)
        w = w.transpose(1, 2, 3, 0, 4).reshape(-1, blocks * columns)[:, : one.out_channels]
        flat = seen.reshape(one.out_rows, one.out_cols, -1)
        # All partial sums are whole numbers below 2**53.
        found = (flat.astype(np.float64) @ w.astype(np.float64)).astype(np.int64)
        self.accumulate(one, found, unit)

    def depthwise(self, one: isa.Depthwise) -> None:
        unit = Unit.VECTOR
        assert one.out_channels == one.channels
        size = one.in_rows, one.in_cols, one.channels
        x = self.view(one.address, size, one.row_stride, one.pixel_stride, one.in_dtype, unit)
        seen, _, _ = self.windows(one, x, one.pad_value)
        kind = Dtype(one.weight_dtype)
        count = one.kernel_h * one.kernel_w * one.channels
        w = self.numbers(one.weights, [(count, kind.bytes)], kind.name, unit).astype(np.int64)
        found = (seen * w.reshape(one.kernel_h, one.kernel_w, one.channels)).sum((2, 3))
        self.accumulate(one, found, unit)

    def requantize(self, one: isa.Requantize) -> None:
        unit, shape = Unit.VECTOR, (one.rows, one.cols, one.channels)
        where = places(4 * one.sums, [(int(np.prod(shape)), 4)], 4)
        x = np.ascontiguousarray(self.sums.read(where, unit)).view("int32").reshape(shape)
        x = np.clip(x.astype(np.int64), one.sum_low, one.sum_high)
        count = one.channels if one.per_channel else 1
        way = Rounding(one.rounding)
        kind = {Rounding.ONNX: "float32", Rounding.TFLITE_FLOAT64: "float64"}.get(way, "int32")
        if way is not Rounding.NONE:
            each = np.dtype(kind).itemsize
            multiplier = self.numbers(one.multipliers, [(count, each)], kind, unit)
            if kind == "int32":
                shift = self.numbers(one.shifts, [(count, 4)], kind, unit)
                x = scaled(x, multiplier, shift, way)
            elif way is Rounding.ONNX:
                x = np.rint(x.astype(np.float32) * multiplier).astype(np.float64)
            else:
                x = scaling.half_away(x.astype(np.float64) * multiplier)
        x = x + one.zero_point
        if kind == "int32" and one.out_dtype == Dtype.int32:
            x = x.astype(np.int32)
        x = np.clip(x, one.low, one.high).astype(np.int64)
        self.put(one.address, x, one.row_stride, one.pixel_stride, one.out_dtype)

    def add(self, one: isa.Add) -> None:
        shape, sides = (one.rows, one.cols, one.channels), []
        names = ["lhs"] + ["rhs"] * (one.rhs_address >= 0)
        for name in names:
            of = {
                key: getattr(one, f"{name}_{key}")
                for key in ("address", "row_stride", "pixel_stride", "dtype", "zero",
                            "rounding", "multiplier", "shift")
            }  # fmt: skip
            view = of["address"], shape, of["row_stride"], of["pixel_stride"], of["dtype"]
            sides.append((self.view(*view, Unit.VECTOR), of))
        if one.out_rounding == Rounding.ONNX:
            ratios = [
                np.array(bits, np.int32).view(np.float32)
                for bits in (one.lhs_multiplier, one.rhs_multiplier, one.out_multiplier)
            ]
            total = np.broadcast_to(ratios[2], shape).astype(np.float32)
            for (x, _), ratio in reversed(list(zip(sides, ratios[:2], strict=False))):
                total = (x.astype(np.float64) * np.float64(ratio) + total).astype(np.float32)
            found = np.rint(total).astype(np.float64)
        else:
            sums = np.zeros(shape, np.int64)
            for x, of in sides:
                x = ((x - of["zero"]) << one.left_shift).astype(np.int32).astype(np.int64)
                x = scaled(x, of["multiplier"], of["shift"], Rounding(of["rounding"]))
                sums = sums + x.astype(np.int32)
            sums = sums.astype(np.int32).astype(np.int64)
            way = Rounding(one.out_rounding)
            found = scaled(sums, one.out_multiplier, one.out_shift, way) + one.out_zero
        found = np.clip(found, one.low, one.high).astype(np.int64)
        self.put(one.out_address, found, one.out_row_stride, one.out_pixel_stride, one.out_dtype)

    def pool(self, one: isa.Pool) -> None:
        unit, kind = Unit.VECTOR, Dtype(one.dtype)
        info = np.iinfo(kind.name)
        size = one.in_rows, one.in_cols, one.channels
        x = self.view(one.address, size, one.row_stride, one.pixel_stride, one.dtype, unit)
        way, lowest = PoolKind(one.kind), int(info.min)
        seen, inside, (y, x_) = self.windows(one, x, lowest if way is PoolKind.MAX else 0)
        if way is PoolKind.MAX:
            found = seen.max((2, 3))
        else:
            below = (y < one.in_rows + one.pad_bottom) & (x_ < one.in_cols + one.pad_right)
            padding = (below & ~inside).sum((2, 3)) if one.count_pad else 0
            counts = (inside.sum((2, 3)) + padding)[..., None]
            empty, counts = counts == 0, np.maximum(counts, 1)
            zero = one.in_zero if way >= PoolKind.AVERAGE_TFLITE else 0
            sums = np.where(inside[..., None], seen - zero, 0).sum((2, 3))
            if way in (PoolKind.AVERAGE, PoolKind.AVERAGE_HALF):
                sums = sums + np.asarray(padding)[..., None] * one.out_zero
                more = counts // 2 if way is PoolKind.AVERAGE_HALF else 0
                found = np.sign(sums) * ((np.abs(sums) + more) // counts)
            elif way is PoolKind.AVERAGE_TFLITE:
                found = tflite.average(sums, counts, one.multiplier, one.shift) + one.out_zero
            else:
                scales = np.array([one.multiplier, one.shift], np.int32).view(np.float32)
                real = np.where(inside[..., None], seen - zero, 0).astype(np.float32) * scales[0]
                total = np.zeros(real.shape[:2] + real.shape[4:], np.float32)
                for tap in np.ndindex(real.shape[2:4]):
                    total = total + real[:, :, tap[0], tap[1]]
                mean = total / counts.astype(np.float32) / scales[1]
                found = np.rint(mean + np.float32(one.out_zero))
            found = np.where(empty, one.out_zero, found)
        found = np.clip(found, info.min, info.max).astype(np.int64)
        self.put(one.out_address, found, one.out_row_stride, one.out_pixel_stride, one.dtype)

    def sum(self, one: isa.Sum) -> None:
        unit, size = Unit.VECTOR, (one.rows, one.cols, one.channels)
        x = self.view(one.address, size, one.row_stride, one.pixel_stride, one.dtype, unit)
        found = np.maximum(x, one.low).sum((0, 1))
        where = places(4 * one.sums, [(one.channels, 4)], 4)
        if one.accumulate:
            start = np.ascontiguousarray(self.sums.read(where, unit)).view("int32")[..., 0]
        else:
            start = np.full(one.channels, one.start)
        total = (found + start).astype(np.int32)
        self.sums.write(where, total[..., None].view(np.uint8), unit)


def scaled(x: Array, multiplier: Array, shift: Array, way: Rounding) -> Array:
    """Multiply in fixed point."""
    if way is Rounding.NONE:
        return x
    parts = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    return fixed_point.multiply(x, *parts, way.name)


def run(program: Program, inputs: Sequence[Array]) -> list[Array]:
    """Run a program.

    Raises
    ------
    Fault
        If the machine would refuse it.
    """
    return Machine(program, inputs).run()
