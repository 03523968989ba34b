"""Quantized convolutions and matrix products drawn at random, and their sums in NumPy's int64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tvm import relax

from tests.schedule.convolutions import Geometry, geometries, small
from tests.schedule.kernels import Case
from tvmlab import qnn
from tvmlab.qnn import arithmetic

NARROW = ("int8", "uint8")


def full(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Draw from all numbers of a dtype, the least and the largest more often than the others."""
    random, ends = np.random.default_rng(seed), np.iinfo(dtype)
    drawn = random.integers(ends.min, ends.max + 1, shape)
    drawn = np.where(random.random(shape) < 0.1, random.choice([ends.min, ends.max], shape), drawn)
    return drawn.astype(dtype)


def constant(value: Any, dtype: str) -> relax.Expr:
    return relax.const(np.array(value, dtype))


@dataclass(frozen=True)
class Quantized(Case):
    """A sum of products; `dtypes` and `zeros` are of the data and the weight."""

    given = ("data",)
    tolerance = 0.0

    dtypes: tuple[str, str]
    zeros: tuple[int, int | tuple[int, ...]]

    def points(self) -> list[relax.Expr]:
        """Zero points and scales, in the operators' order."""
        return [*(constant(z, "int32") for z in self.zeros), *[constant(0.5, "float32")] * 2]

    def differences(self) -> tuple[np.ndarray, np.ndarray]:
        """What is multiplied; the weight has the channels that its zero points are of in front."""
        values = self.contents()
        points = np.reshape(self.zeros[1], (-1, *[1] * (values["weight"].ndim - 1)))
        return (
            values["data"].astype("int64") - self.zeros[0],
            values["weight"].astype("int64") - points,
        )


@dataclass(frozen=True)
class QuantizedConv(Geometry, Quantized):
    """A convolution in NHWC."""

    relay_depthwise: bool = False  # the weight's last axis is a multiplier

    @property
    def rule(self) -> str:
        if self.groups == 1 or (self.inputs, self.outputs) != (1, 1):
            return "Contraction"
        # One tap where nothing moves is element-wise, whichever rule takes it.
        still = {*self.kernel, *self.strides} == {1} and not any(self.pads)
        return "" if still else "Depthwise"

    def contents(self) -> dict[str, np.ndarray]:
        outputs = self.groups * self.outputs
        shape = (outputs, *self.kernel, self.inputs)
        return {
            "data": full(self.dtypes[0], self.batch, *self.size, self.groups * self.inputs),
            "weight": full(self.dtypes[1], *shape, seed=1),
        }

    def relax(self, builder: relax.BlockBuilder, values: dict[str, Any]) -> relax.Expr:
        weight = self.contents()["weight"]
        if self.relay_depthwise:
            shape = (self.groups, self.outputs, *self.kernel)
            weight = np.ascontiguousarray(weight.reshape(shape).transpose(0, 2, 3, 1))
        return qnn.op.conv2d(
            *(values["data"], relax.const(weight), *self.points(), None, None),
            *(self.strides, self.pads, self.dilation, self.groups, "NHWC", "OHWI"),
        )

    def reference(self) -> np.ndarray:
        x, weight = self.differences()
        top, left, bottom, right = self.pads
        x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
        reach = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)]
        windows = np.lib.stride_tricks.sliding_window_view(x, reach, (1, 2))
        (sy, sx), (dy, dx) = self.strides, self.dilation
        windows = windows[:, ::sy, ::sx, :, ::dy, ::dx]
        made = [
            np.einsum("nyxckl,oklc->nyxo", part, w, optimize=True)
            for part, w in zip(
                np.split(windows, self.groups, 3), np.split(weight, self.groups), strict=True
            )
        ]
        return np.concatenate(made, -1).astype("int32")


class Requantized(QuantizedConv):
    """A convolution with a bias, requantized by channel."""

    @property
    def channels(self) -> int:
        return self.groups * self.outputs

    def relax(self, builder: relax.BlockBuilder, values: dict[str, Any]) -> relax.Expr:
        call = builder.emit(super().relax(builder, values))
        bias = relax.const(np.arange(self.channels, dtype="int32").reshape(1, 1, 1, -1))
        scales = relax.const(np.linspace(1e-4, 1e-3, self.channels, dtype="float32"))
        points = [constant(0, "int32"), constant(0.5, "float32"), constant(3, "int32")]
        return qnn.op.requantize(builder.emit(relax.op.add(call, bias)), scales, *points, axis=3)

    def reference(self) -> np.ndarray:
        sums = super().reference() + np.arange(self.channels, dtype="int32")
        scales = np.linspace(1e-4, 1e-3, self.channels, dtype="float32")
        return arithmetic.requantize(sums, scales, 0, 0.5, 3, axis=3, out_dtype="int8")


@dataclass(frozen=True)
class QuantizedDense(Quantized):
    """A product of a matrix, or of a batch of them, with constant weights."""

    kernels = "dense"
    rule = "Contraction"

    left: tuple[int, ...]
    units: int

    def contents(self) -> dict[str, np.ndarray]:
        return {
            "data": full(self.dtypes[0], *self.left),
            "weight": full(self.dtypes[1], self.units, self.left[-1], seed=1),
        }

    def relax(self, builder: relax.BlockBuilder, values: dict[str, Any]) -> relax.Expr:
        weight = relax.const(self.contents()["weight"])
        return qnn.op.dense(values["data"], weight, *self.points(), None)

    def reference(self) -> np.ndarray:
        x, weight = self.differences()
        return (x @ weight.T).astype("int32")


@dataclass(frozen=True)
class QuantizedBatches(Quantized):
    """Products of two computed matrices, batch by batch."""

    given = ("data", "weight")
    kernels = "batch_matmul"
    rule = "Batches"

    batch: tuple[int, ...]
    sizes: tuple[int, int, int]  # rows, inputs, columns
    turned: bool

    def contents(self) -> dict[str, np.ndarray]:
        rows, inputs, columns = self.sizes
        right = (columns, inputs) if self.turned else (inputs, columns)
        return {
            "data": full(self.dtypes[0], *self.batch, rows, inputs),
            "weight": full(self.dtypes[1], *self.batch, *right, seed=1),
        }

    def relax(self, builder: relax.BlockBuilder, values: dict[str, Any]) -> relax.Expr:
        operands = values["data"], values["weight"], *self.points()
        return qnn.op.batch_matmul(*operands, transpose_b=self.turned)

    def reference(self) -> np.ndarray:
        x, y = (
            one.astype("int64") - zero
            for one, zero in zip(self.contents().values(), self.zeros, strict=True)
        )
        return (x @ (y.swapaxes(-1, -2) if self.turned else y)).astype("int32")


def numbers(dtype: str) -> st.SearchStrategy[int]:
    """A dtype's numbers, its ends more often."""
    ends = np.iinfo(dtype)
    least, most = int(ends.min), int(ends.max)
    return st.one_of(st.sampled_from((least, most)), st.integers(least, most))


@st.composite
def points(draw: st.DrawFn, channels: int) -> dict[str, Any]:
    """Dtypes and zero points: of most weights in the middle of their range, of some elsewhere."""
    dtypes = draw(st.sampled_from(NARROW)), draw(st.sampled_from(NARROW))
    middle = 0 if dtypes[1] == "int8" else 128
    kind = draw(st.sampled_from(("middle", "middle", "any", "by channel")))
    weight: int | tuple[int, ...] = middle
    if kind == "any":
        weight = draw(numbers(dtypes[1]))
    elif kind == "by channel":
        seed = draw(small(9))
        weight = tuple(int(z) for z in full(dtypes[1], channels, seed=seed))
    return {"dtypes": dtypes, "zeros": (draw(numbers(dtypes[0])), weight)}


@st.composite
def quantized_convs(draw: st.DrawFn) -> QuantizedConv:
    sizes = draw(geometries(5, 30))
    groups, outputs = sizes["groups"], sizes["outputs"]
    depthwise = groups > 1 and sizes["inputs"] == 1
    return QuantizedConv(
        **draw(points(groups * outputs)),
        **sizes,
        relay_depthwise=depthwise and draw(st.booleans()),
    )


@st.composite
def quantized_denses(draw: st.DrawFn) -> QuantizedDense:
    batch = draw(st.sampled_from(((), (), (), (1,), (3,), (2, 3))))
    units = draw(small(70))
    return QuantizedDense(
        **draw(points(units)), left=(*batch, draw(small(70)), draw(small(200))), units=units
    )


@st.composite
def quantized_batches(draw: st.DrawFn) -> QuantizedBatches:
    dtypes = draw(st.sampled_from(NARROW)), draw(st.sampled_from(NARROW))
    return QuantizedBatches(
        dtypes=dtypes,
        zeros=(draw(numbers(dtypes[0])), draw(numbers(dtypes[1]))),
        batch=draw(st.sampled_from(((1,), (3,), (2, 3), (1, 2, 2)))),
        sizes=(draw(small(70)), draw(small(70)), draw(small(70))),
        turned=draw(st.booleans()),
    )
