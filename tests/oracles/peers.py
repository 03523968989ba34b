"""Quantized networks and inputs for them, as the tests and the referee compare them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tvm

import tvmlab
from tests.oracles.models import by_onnx_runtime
from tests.oracles.networks import by_torch
from tvmlab import models
from tvmlab.models.quantized import quantized_onnx, quantized_torch
from tvmlab.models.samples import preprocess, sample_image
from tvmlab.qnn.transform import FakeQuantizationToInteger

Array = np.ndarray

FORMS = ("QDQ", "QOperator", "PT2E")
# The digits in one call of ours.
_BATCH = 50


def noise(count: int, shape: tuple[int, ...] = (1, 32, 32, 3)) -> Iterator[Array]:
    """Give random int8 inputs."""
    random = np.random.default_rng(0)
    for _ in range(count):
        yield random.integers(-128, 128, shape).astype("int8")


def structured(count: int) -> Iterator[Array]:
    """Pictures of one colour, ramps, chessboards, waves and faint noise, up to the extremes."""
    y, x = np.mgrid[0:32, 0:32]
    random = np.random.default_rng(1)
    for i in range(count):
        made = (
            np.full((32, 32), i % 256 - 128),
            (x * 8 + i) % 256 - 128,
            np.where((x // (1 + i % 7) + y // (1 + i % 5)) % 2, 127, -128),
            127 * np.sin(x * (i % 13) / 5 + y / 3),
            np.clip(random.normal(i % 100 - 50, 5, (32, 32)), -128, 127),
        )[i % 5]
        yield np.repeat(made.astype("int8")[None, :, :, None], 3, axis=3)


def pictures(count: int) -> Iterator[Array]:
    """Give parts of scikit-learn's two photographs, of several sizes, mirrored and not."""
    photographs = [sample_image(name) for name in ("china", "flower")]
    random = np.random.default_rng(0)
    for i in range(count):
        whole = photographs[i % 2]
        side = int(random.integers(180, 427))
        y, x = (int(random.integers(0, length - side + 1)) for length in whole.shape[:2])
        part = whole[y : y + side, x : x + side]
        yield preprocess(np.ascontiguousarray(part[:, ::-1] if i % 4 > 1 else part))


class Digits(NamedTuple):
    """The digits network, quantized, on the held-out digits.

    Attributes
    ----------
    integer : tvm.IRModule
        Its integer form.
    ours, theirs : ndarray
        Logits float32 [450, 10]: compiled, and as the quantizer's own runtime computes them.
    """

    integer: tvm.IRModule
    ours: Array
    theirs: Array

    @property
    def same(self) -> float:
        """The share of digits that both take for the same."""
        return float(np.mean(self.ours.argmax(axis=1) == self.theirs.argmax(axis=1)))

    @property
    def apart(self) -> float:
        """How far the accuracies are apart: ours, theirs, and the float network's."""
        labels, x = models.digits().y_test, models.digits().x_test
        results = (self.ours, self.theirs, by_torch(models.torch_digits_resnet(), x))
        right = [np.mean(logits.argmax(axis=1) == labels) for logits in results]
        return float(max(right) - min(right))


def digits(form: str) -> Digits:
    """Quantize the digits network in one of FORMS, and run it on both sides."""
    x = models.digits().x_test
    if form == "PT2E":
        quantized = quantized_torch(batch=_BATCH)
        theirs, mod = by_torch(quantized.module, x), tvmlab.load(quantized.program)
    else:
        source = models.digits_resnet(batch=None)
        proto = quantized_onnx(source, format="QDQ" if form == "QDQ" else "QOperator")
        (theirs,) = by_onnx_runtime(proto, x)
        mod = tvmlab.load(proto, shapes={"data": (_BATCH, 1, 8, 8)})
    integer = FakeQuantizationToInteger()(mod)
    run = tvmlab.compile(integer)
    parts = [np.asarray(run(x[i : i + _BATCH])) for i in range(0, len(x), _BATCH)]
    return Digits(integer, np.concatenate(parts), theirs)
