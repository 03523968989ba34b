"""Integer networks drawn at random, in the operators that the accelerator takes."""

from __future__ import annotations

import random

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from tests.qnn.graphs import LIMITS, Network, scale, zero
from tvmlab.ir import dialect, operators
from tvmlab.npu.config import Config
from tvmlab.qnn import op as qnn

assert operators.__all__, "bias_add is registered by importing the rows"

#: The roundings, and the dtypes that a requantize computes in.
WAYS = {"UPWARD": ["int64"], "TONEAREST": ["int64"], "TFLITE": ["int64", "float64"]}
WAYS |= {"ONNX": ["float32"], "None": ["None"]}


def config(choose: random.Random) -> Config:
    return Config(
        rows=choose.choice((4, 8, 16, 32)),
        columns=choose.choice((4, 8, 16, 32)),
        lanes=choose.choice((4, 16, 24)),
        sram_bytes=choose.choice((8, 12, 16, 24, 32, 64, 256)) << 10,
        accumulators=choose.choice((512, 1024, 4096, 16384)),
        dma_bytes_per_cycle=choose.choice((4, 16, 32)),
        dma_burst_bytes=choose.choice((1, 32, 64)),
    )


class Drawn:
    """A network drawn at random, `mod`, and the `inputs` of its ``main``."""

    def __init__(self, choose: random.Random, steps: int = 3):
        self.choose = choose
        self.rng = np.random.default_rng(choose.randrange(2**32))
        self.layout = choose.choice(("NCHW", "NHWC"))
        self.kind = choose.choice(("int8", "uint8"))
        self.rounding = choose.choice(sorted(WAYS))
        channels = choose.choice((1, 3, 16, choose.randrange(1, 41)))
        size = choose.randrange(1, 15), choose.randrange(1, 15)
        shape = self.shaped(choose.choice((1, 1, 2)), *size, channels)
        self.net = Network((shape, self.kind))
        self.values = [(self.net.inputs[0], *self.parameters())]
        for _ in range(choose.randrange(1, steps + 1)):
            step = choose.choice(_STEPS)
            made = getattr(self, step)(*choose.choice([v for v in self.values if v[1]][-2:]))
            self.values.append(made)
        if choose.random() < 0.4 and self.values[-1][1]:
            self.values.append(self.head(*self.values[-1]))
        results = [self.values[-1][0]]
        if choose.random() < 0.2 and len(self.values) > 2:
            results.append(self.values[-2][0])
        self.mod = self.net.module(*dict.fromkeys(results))
        low, high = LIMITS[self.kind]
        self.inputs = [self.rng.integers(low, high + 1, shape).astype(self.kind)]

    def shaped(self, n, h, w, c):
        return (n, c, h, w) if self.layout == "NCHW" else (n, h, w, c)

    def sizes(self, x):
        found = dict(zip(self.layout, (int(size) for size in x.ty.shape), strict=True))
        return tuple(found[axis] for axis in "NHWC")

    @property
    def axis(self):
        return self.layout.index("C")

    def parameters(self):
        low, high = LIMITS[self.kind]
        middle = (low + high + 1) // 2
        z = self.choose.choice((middle, low, high, self.choose.randrange(low, high + 1)))
        return float(np.float32(self.choose.uniform(0.01, 0.2))), z

    def pads(self, most):
        return [self.choose.randrange(0, most + 1) for _ in range(4)]

    def window(self, x, most):
        _, h, w, _ = self.sizes(x)
        while True:
            taps = [self.choose.choice((1, 2, 3, most)) for _ in range(2)]
            dilation = [self.choose.choice((1, 1, 2)) for _ in range(2)]
            pads = self.choose.choice(([0] * 4, self.pads(2)))
            reach = [(tap - 1) * step + 1 for tap, step in zip(taps, dilation, strict=True)]
            room = h + pads[0] + pads[2], w + pads[1] + pads[3]
            if all(a <= b for a, b in zip(reach, room, strict=True)):
                strides = [self.choose.choice((1, 1, 2, 3)) for _ in range(2)]
                return taps, strides, dilation, pads

    def conv2d(self, x, s, z):
        channels = self.sizes(x)[3]
        taps, strides, dilation, pads = self.window(x, 5)
        depthwise = self.choose.random() < 0.3
        made = channels if depthwise else self.choose.choice((1, 16, self.choose.randrange(1, 50)))
        wide = depthwise and self.choose.random() < 0.4
        low, high, dtype = (-32767, 32767, "int16") if wide else (-120, 120, "int8")
        weight_zero = 0 if wide else self.choose.choice((0, 0, 0, 3, -2))
        outer = 1 if depthwise else channels
        kernel = self.rng.integers(low, high + 1, (made, outer, *taps)).astype(dtype)
        padding = pads
        if any(pads) and self.choose.random() < 0.5:
            top, left, bottom, right = pads
            around = self.shaped((0, 0), (top, bottom), (left, right), (0, 0))
            widths = [side for pair in around for side in pair]
            x, padding = self.net.emit(op.nn.pad(x, widths, "constant", float(z))), [0] * 4
        kernel_layout = "OIHW"
        if self.layout == "NHWC":
            kernel, kernel_layout = kernel.transpose(2, 3, 1, 0).copy(), "HWIO"
            if depthwise:
                kernel, kernel_layout = kernel.transpose(0, 1, 3, 2).copy(), "HWOI"
        each = self.choose.random() < 0.6
        ws = self.rng.uniform(0.002, 0.02, made if each else ()).astype("float32")
        if wide:
            ws = (ws / 256).astype("float32")
        sums = qnn.conv2d(
            x, relax.const(kernel), zero(z), zero(weight_zero), scale(s), scale(ws),
            tuple(taps), made, strides, padding, dilation, made if depthwise else 1,
            self.layout, kernel_layout,
        )  # fmt: skip
        return self.finished(self.net.emit(sums), s, ws, made, self.axis)

    def finished(self, sums, s, ws, channels, axis):
        if self.choose.random() < 0.7:
            bias = self.rng.integers(-(2**12), 2**12, channels).astype("int32")
            operands = [sums, relax.const(bias)]
            sums = self.net.emit(
                dialect.typed_call("relax.relay.nn.bias_add", operands, {"axis": axis})
            )
        if self.choose.random() < 0.2:
            sums = self.net.emit(op.maximum(sums, relax.const(np.int32(0))))
        if self.choose.random() < 0.05:
            return sums, None, None
        out_scale, z = self.parameters()
        sums_scale = (np.float32(s) * ws).astype("float32")
        off = 37 if self.choose.random() < 0.03 else 0  # then the sums alone are taken
        computed = self.choose.choice(WAYS[self.rounding])
        made = qnn.requantize(
            sums, scale(sums_scale), zero(off), scale(out_scale * 4), zero(z), axis,
            self.rounding, computed, self.kind,
        )  # fmt: skip
        made = self.net.emit(made)
        if self.choose.random() < 0.2:
            low, high = LIMITS[self.kind]
            low, high = sorted(self.choose.randrange(low, high + 1) for _ in range(2))
            made = self.net.emit(op.clip(made, low, high))
        return made, out_scale * 4, z

    def add(self, x, s, z):
        same = [v for v in self.values if v[1] and list(v[0].ty.shape) == list(x.ty.shape)]
        y, other, other_zero = self.choose.choice(same)
        out, out_zero = self.parameters()
        made = qnn.add(
            x, y, scale(s), zero(z), scale(other), zero(other_zero), scale(out * 2),
            zero(out_zero), rounding=self.rounding,
        )  # fmt: skip
        return self.net.emit(made), out * 2, out_zero

    def max_pool(self, x, s, z):
        taps, strides, dilation, pads = self.window(x, 3)
        pads = [min(p, tap // 2) for p, tap in zip(pads, taps * 2, strict=True)]
        _, h, w, _ = self.sizes(x)
        ceil_mode = self.choose.random() < 0.3
        if (taps[0] - 1) * dilation[0] + 1 > h or (taps[1] - 1) * dilation[1] + 1 > w:
            return self.conv2d(x, s, z)
        made = op.nn.max_pool2d(
            x, tuple(taps), tuple(strides), tuple(pads), tuple(dilation), ceil_mode, False,
            self.layout,
        )  # fmt: skip
        return self.net.emit(made), s, z

    def avg_pool(self, x, s, z):
        taps, strides, dilation, pads = self.window(x, 3)
        out, out_zero = self.choose.choice(((s, z), self.parameters()))
        made = qnn.avg_pool2d(
            x, scale(s), zero(z), scale(out), zero(out_zero), taps, strides, pads, dilation,
            self.choose.random() < 0.3, self.choose.random() < 0.5, self.layout,
            rounding=self.rounding,
        )  # fmt: skip
        return self.net.emit(made), out, out_zero

    def head(self, x, s, z):
        n, h, w, channels = self.sizes(x)
        axes = [self.layout.index("H"), self.layout.index("W")]
        wide = self.net.emit(op.astype(x, "int32"))
        sums = self.net.emit(op.sum(wide, axes, keepdims=True))
        out, out_zero = self.parameters()
        mean = qnn.requantize(
            sums, scale(s / (h * w)), zero(z * h * w), scale(out), zero(out_zero), self.axis,
            self.rounding, out_dtype=self.kind,
        )  # fmt: skip
        flat = self.net.emit(op.reshape(self.net.emit(mean), (n, channels)))
        units = self.choose.randrange(1, 40)
        weight = self.rng.integers(-127, 128, (units, channels)).astype("int8")
        ws = self.rng.uniform(0.002, 0.02, units).astype("float32")
        sums = qnn.dense(
            flat, relax.const(weight), zero(out_zero), zero(0), scale(out), scale(ws), units
        )
        return self.finished(self.net.emit(sums), out, ws, units, 1)


_STEPS = ("conv2d", "conv2d", "conv2d", "add", "max_pool", "avg_pool")


def chain(count: int) -> tvm.IRModule:
    """Make residual blocks of quantized convolutions, `count` operators in all."""
    net, rng = Network(((1, 8, 8, 16), "int8")), np.random.default_rng(0)
    x, one = net.inputs[0], 0.5
    for _ in range(count // 3):
        kernel = relax.const(rng.integers(-127, 128, (1, 1, 16, 16)).astype("int8"))
        sums = qnn.conv2d(
            x, kernel, zero(0), zero(0), scale(one), scale(one), (1, 1), 16,
            data_layout="NHWC", kernel_layout="HWIO",
        )  # fmt: skip
        made = qnn.requantize(
            net.emit(sums), scale(0.25), zero(0), scale(one), zero(0), 3, out_dtype="int8"
        )
        sides = [scale(one), zero(0)] * 3
        x = net.emit(qnn.add(net.emit(made), x, *sides))
    return net.module(x)
