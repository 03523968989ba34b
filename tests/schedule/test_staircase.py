"""Requantized straight lines of 8-bit numbers: every number of every channel, and what is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

import tvmlab
from tests.schedule.dot import NARROW, constant, numbers
from tests.schedule.kernels import Case, module, wrong
from tvmlab import qnn
from tvmlab.qnn import arithmetic


@dataclass(frozen=True)
class Norm(Case):
    """A batch normalization in integers, on all numbers of each channel."""

    given = ("data",)
    kernels = "cast"
    rule = ""
    tolerance = 0.0

    channels: int
    dtypes: tuple[str, str] = ("uint8", "uint8")
    zeros: tuple[int, int] = (128, 3)
    layout: str = "NCHW"
    rounding: str = "UPWARD"
    compute: str = "int64"
    step: float = 0.02  # of the result, where the sums' are about 0.01
    seed: int = 0

    def contents(self) -> dict[str, np.ndarray]:
        ends = np.iinfo(self.dtypes[0])
        every = np.arange(ends.min, ends.max + 1).astype(self.dtypes[0]).reshape(16, 16)
        shape = (1, self.channels, 16, 16)
        data = np.broadcast_to(every, shape)
        return {"data": np.ascontiguousarray(np.moveaxis(data, 1, self.layout.index("C")))}

    def _parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights, biases and scales, of each channel."""
        random = np.random.default_rng(self.seed)
        weight = random.choice(np.array([127, -127, 127, 64], "int8"), self.channels)
        bias = random.integers(-20000, 20000, self.channels).astype("int32")
        return weight, bias, (random.random(self.channels) * 2e-4 + 1e-5).astype("float32")

    def relax(self, builder: relax.BlockBuilder, values: dict[str, Any]) -> relax.Expr:
        weight, bias, scale = self._parts()
        axis, along = self.layout.index("C"), [1, 1, 1, 1]
        along[axis] = self.channels
        kernel = "OIHW" if self.layout == "NCHW" else "OHWI"
        one = constant(1.0, "float32")
        sums = qnn.op.conv2d(
            *(values["data"], relax.const(weight.reshape(-1, 1, 1, 1))),
            *(constant(self.zeros[0], "int32"), constant(0, "int32"), one, one),
            *((1, 1), self.channels, (1, 1), (0, 0), (1, 1), self.channels),
            *(self.layout, kernel),
        )
        line = relax.op.add(builder.emit(sums), relax.const(bias.reshape(along)))
        return qnn.op.requantize(
            *(builder.emit(line), relax.const(scale), constant(0, "int32")),
            *(constant(self.step, "float32"), constant(self.zeros[1], "int32")),
            axis=axis,
            rounding=self.rounding,
            compute_dtype=self.compute,
            out_dtype=self.dtypes[1],
        )

    def reference(self) -> np.ndarray:
        weight, bias, scale = self._parts()
        axis, along = self.layout.index("C"), [1, 1, 1, 1]
        along[axis] = self.channels
        x = self.contents()["data"].astype("int64") - self.zeros[0]
        sums = x * weight.astype("int64").reshape(along) + bias.reshape(along)
        return arithmetic.requantize(
            *(sums.astype("int32"), scale, np.int32(0), np.float32(self.step)),
            np.int32(self.zeros[1]),
            axis=axis,
            rounding=self.rounding,
            compute_dtype=self.compute,
            out_dtype=self.dtypes[1],
        )


@st.composite
def norms(draw: st.DrawFn) -> Norm:
    dtypes = draw(st.tuples(st.sampled_from(NARROW), st.sampled_from(NARROW)))
    compute = draw(st.sampled_from(("int64", "int64", "float32")))
    roundings = ("UPWARD", "TONEAREST", "TFLITE" if compute == "int64" else "ONNX")
    return Norm(
        channels=draw(st.integers(2, 40)),
        dtypes=dtypes,
        zeros=(draw(numbers(dtypes[0])), draw(numbers(dtypes[1]))),
        layout=draw(st.sampled_from(("NCHW", "NHWC"))),
        rounding=draw(st.sampled_from(roundings)),
        compute=compute,
        step=draw(st.floats(1e-4, 0.1)),
        seed=draw(st.integers(0, 99)),
    )


@settings(max_examples=3)
@given(cases=st.lists(norms(), min_size=8, max_size=8))
def test_every_number_of_every_channel(cases: list[Norm]) -> None:
    assert not wrong(cases)


def names(case: Case) -> str:
    run = tvmlab.compile(module([case])[0])
    return " ".join(kernel.name for kernel in run.summary().kernels)


def test_a_norm_becomes_a_product_and_a_shift() -> None:
    found = names(Norm(32, layout="NHWC"))
    assert "right_shift" in found
    assert "requantize" not in found
