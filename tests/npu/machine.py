"""The accelerator's machine in NumPy, as slow and as plain as `tvmlab.npu.isa` puts it."""

from __future__ import annotations

import numpy as np

from tvmlab.npu.isa import Dtype, Load, PoolKind, Rounding, Store
from tvmlab.qnn import fixed_point, frameworks, numbers

FIXED = (Rounding.UPWARD, Rounding.TONEAREST, Rounding.TFLITE)


class Machine:
    """Memories (bytes of SRAM, int32 sums), and what every instruction does to them."""

    def __init__(self, sram, sums, columns):
        self.sram, self.sums, self.columns = sram.copy(), sums.copy(), columns

    def execute(self, instruction, tensor=None):
        """Execute one; `tensor` is the uint8 memory of the DRAM tensor of a transfer."""
        if isinstance(instruction, (Load, Store)):
            self.transfer(instruction, tensor)
        else:
            getattr(self, type(instruction).__name__.lower())(instruction)

    def table(self, address, count, dtype):
        return self.sram[address : address + count * np.dtype(dtype).itemsize].view(dtype)

    def read(self, address, channels, dtype):
        return self.table(address, channels, Dtype(dtype).name).astype(np.int64)

    def write(self, address, pixel, dtype):
        found = pixel.astype(Dtype(dtype).name)
        np.testing.assert_array_equal(found, pixel)  # it fits
        self.sram[address : address + found.nbytes] = found.view(np.uint8)

    def transfer(self, one, tensor):
        for at in np.ndindex(one.count0, one.count1, one.count2, one.count3):
            dram = one.offset + np.dot(at, [one.dram0, one.dram1, one.dram2, one.dram3])
            sram = one.address + np.dot(at, [one.sram0, one.sram1, one.sram2, one.sram3])
            if isinstance(one, Load):
                self.sram[sram : sram + one.element] = tensor[dram : dram + one.element]
            else:
                tensor[dram : dram + one.element] = self.sram[sram : sram + one.element]

    def taps(self, one, y, x, dtype):
        """Yield tap, row, column, and the pixel, or None where it is outside of the tile."""
        for i, j in np.ndindex(one.kernel_h, one.kernel_w):
            row = y * one.stride_h + i * one.dilation_h - one.pad_top
            col = x * one.stride_w + j * one.dilation_w - one.pad_left
            pixel = None
            if 0 <= row < one.in_rows and 0 <= col < one.in_cols:
                at = one.address + row * one.row_stride + col * one.pixel_stride
                pixel = self.read(at, one.channels, dtype)
            yield (i, j), (row, col), pixel

    def convolve(self, one, weights, product):
        place = one.sums
        for y, x in np.ndindex(one.out_rows, one.out_cols):
            if one.bias == -1:
                total = self.sums[place : place + one.out_channels].astype(np.int64)
            else:
                total = self.table(one.bias, one.out_channels, "int32").astype(np.int64)
            for (i, j), _, pixel in self.taps(one, y, x, one.in_dtype):
                if pixel is None:
                    pixel = np.full(one.channels, one.pad_value, np.int64)
                total = total + product(pixel, weights[i, j])
            self.sums[place : place + one.out_channels] = total.astype(np.int32)
            place += one.out_channels

    def matmul(self, one):
        blocks = -(-one.out_channels // self.columns)
        shape = blocks, one.kernel_h, one.kernel_w, one.channels, self.columns
        packed = self.table(one.weights, int(np.prod(shape)), "int8").reshape(shape)
        weights = np.moveaxis(packed, 0, 3).reshape(*shape[1:4], -1)[..., : one.out_channels]
        self.convolve(one, weights.astype(np.int64), lambda pixel, tap: pixel @ tap)

    def depthwise(self, one):
        shape = one.kernel_h, one.kernel_w, one.channels
        weights = self.table(one.weights, int(np.prod(shape)), Dtype(one.weight_dtype).name)
        self.convolve(one, weights.reshape(shape).astype(np.int64), lambda pixel, tap: pixel * tap)

    def requantize(self, one):
        rounding, count = Rounding(one.rounding), one.channels if one.per_channel else 1
        if rounding in FIXED:
            factors = self.table(one.multipliers, count, "int32").astype(np.int64)
            shifts = self.table(one.shifts, count, "int32").astype(np.int64)
        elif rounding != Rounding.NONE:
            kind = "float32" if rounding == Rounding.ONNX else "float64"
            factors = self.table(one.multipliers, count, kind).copy()
        dtype = Dtype(one.out_dtype).name
        place = one.sums
        for y, x in np.ndindex(one.rows, one.cols):
            sums = self.sums[place : place + one.channels].astype(np.int64)
            sums = np.minimum(np.maximum(sums, one.sum_low), one.sum_high)
            if rounding == Rounding.ONNX:
                with np.errstate(all="ignore"):
                    even = np.rint(sums.astype(np.float32) * factors).astype(np.float64)
                found = numbers.saturate(even + one.zero_point, dtype)
            elif rounding == Rounding.TFLITE_FLOAT64:
                with np.errstate(all="ignore"):
                    away = numbers.half_away(sums.astype(np.float64) * factors)
                    found = numbers.saturate(away + np.float64(one.zero_point), dtype)
            else:
                if rounding != Rounding.NONE:
                    sums = fixed_point.multiply(sums, factors, shifts, rounding.name)
                found = sums + one.zero_point
                if dtype == "int32":
                    found = found.astype(np.int32)
            found = np.clip(found.astype(np.int64), one.low, one.high)
            at = one.address + y * one.row_stride + x * one.pixel_stride
            self.write(at, found, one.out_dtype)
            place += one.channels

    def side(self, one, name, at):
        dtype, zero = getattr(one, f"{name}_dtype"), getattr(one, f"{name}_zero")
        x = (self.read(at, one.channels, dtype) - zero) << one.left_shift
        parts = (getattr(one, f"{name}_{part}") for part in ("rounding", "multiplier", "shift"))
        return wrapped(multiplied(x, *parts))

    def add(self, one):
        for y, x in np.ndindex(one.rows, one.cols):
            lhs, rhs, out = (
                getattr(one, f"{name}_address")
                + y * getattr(one, f"{name}_row_stride")
                + x * getattr(one, f"{name}_pixel_stride")
                for name in ("lhs", "rhs", "out")
            )
            both = one.rhs_address != -1
            if one.out_rounding == Rounding.ONNX:
                ratios = bits(one.lhs_multiplier), bits(one.rhs_multiplier)
                sums = bits(one.out_multiplier)
                with np.errstate(all="ignore"):
                    if both:
                        right = self.read(rhs, one.channels, one.rhs_dtype)
                        sums = frameworks.fused(right, ratios[1], sums)
                    left = self.read(lhs, one.channels, one.lhs_dtype)
                    whole = np.rint(frameworks.fused(left, ratios[0], sums))
                found = numbers.saturate(whole, Dtype(one.out_dtype).name)
            else:
                sums = self.side(one, "lhs", lhs)
                if both:
                    sums = wrapped(sums + self.side(one, "rhs", rhs))
                found = multiplied(sums, one.out_rounding, one.out_multiplier, one.out_shift)
                found = found + one.out_zero
                if one.out_dtype == Dtype.int32:
                    found = wrapped(found)
            self.write(out, np.clip(found.astype(np.int64), one.low, one.high), one.out_dtype)

    def pool(self, one):
        dtype = Dtype(one.dtype).name
        for y, x in np.ndindex(one.out_rows, one.out_cols):
            pixels, padded = [], 0
            for _, (row, col), pixel in self.taps(one, y, x, one.dtype):
                padded += row < one.in_rows + one.pad_bottom and col < one.in_cols + one.pad_right
                if pixel is not None:
                    pixels.append(pixel)
            inside = np.array(pixels, np.int64).reshape(-1, one.channels)
            found = self.pooled(one, inside, padded, dtype)
            at = one.out_address + y * one.out_row_stride + x * one.out_pixel_stride
            self.write(at, numbers.saturate(found, dtype), one.dtype)

    def pooled(self, one, inside, padded, dtype):
        if one.kind == PoolKind.MAX:
            return np.max(inside, axis=0, initial=np.iinfo(dtype).min)
        count = padded if one.count_pad else len(inside)
        if one.kind == PoolKind.AVERAGE_ONNX:
            zero, total = np.asarray(one.out_zero), np.zeros(one.channels, np.float32)
            with np.errstate(all="ignore"):
                for pixel in inside - one.in_zero:
                    total = total + frameworks.real(pixel, bits(one.multiplier))
                counts = np.asarray(max(count, 1))
                return frameworks.average(total, counts, bits(one.shift), zero)
        if one.kind == PoolKind.AVERAGE_TFLITE:
            sums = np.sum(inside - one.in_zero, axis=0)
            found = frameworks.average_once(
                sums, np.asarray(max(count, 1)), one.multiplier, one.shift
            )
            return found + one.out_zero
        padding = count - len(inside) if count else 1
        sums = np.sum(inside, axis=0) + padding * one.out_zero
        half = max(count, 1) // 2 if one.kind == PoolKind.AVERAGE_HALF else 0
        return np.sign(sums) * ((np.abs(sums) + half) // max(count, 1))

    def sum(self, one):
        total = np.full(one.channels, one.start, np.int64)
        if one.accumulate:
            total = self.sums[one.sums : one.sums + one.channels].astype(np.int64)
        for y, x in np.ndindex(one.rows, one.cols):
            at = one.address + y * one.row_stride + x * one.pixel_stride
            total = total + np.maximum(self.read(at, one.channels, one.dtype), one.low)
        self.sums[one.sums : one.sums + one.channels] = total.astype(np.int32)


def bits(integer):
    return np.int32(integer).view(np.float32)


def wrapped(x):
    return x.astype(np.int32).astype(np.int64)


def multiplied(x, rounding, multiplier, shift):
    if rounding == Rounding.NONE:
        return x
    parts = np.int64(multiplier), np.int64(shift)
    return fixed_point.multiply(x, *parts, Rounding(rounding).name)
