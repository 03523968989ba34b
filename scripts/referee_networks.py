"""Quantized networks against the runtimes of those who quantized them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any, Literal

import helpers_qnn_peers as peers
import numpy as np
from helpers_qnn_judges import OnnxJudge, layer_by_layer
from referee_report import Measure, Size, holds, least, most

import tvmlab
from tvmlab import bench, models
from tvmlab.models.quantized import quantized_onnx
from tvmlab.models.samples import preprocess, sample_image
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

PICTURES = 50
# In percent: the error of the logits, and the digits that both sides take for the same.
ERROR, SAME = 2.0, 99.5
# Classes that are the same, of PICTURES.
CLASSES = 48


def pictures(count: int) -> Iterator[np.ndarray]:
    """Give parts of scikit-learn's two photographs, of several sizes, mirrored and not."""
    photographs = [sample_image(name) for name in ("china", "flower")]
    random = np.random.default_rng(0)
    for i in range(count):
        whole = photographs[i % 2]
        side = int(random.integers(180, 427))
        y, x = (int(random.integers(0, length - side + 1)) for length in whole.shape[:2])
        part = whole[y : y + side, x : x + side]
        yield preprocess(np.ascontiguousarray(part[:, ::-1] if i % 4 > 1 else part))


def digits(size: Size) -> list[Measure]:
    """Run the digits network, quantized three ways, on all held-out digits."""
    found = []
    for form in peers.FORMS:
        one = peers.digits(form)
        name, judge = f"digits, {form}", "PyTorch" if form == "PT2E" else "ONNX Runtime"
        found += [
            _floats(name, one.integer),
            least(f"{name}: the same digit as {judge}", 100 * one.same, SAME, "%"),
            most(f"{name}: accuracy apart from {judge}'s", 100 * one.apart, 0.3, " points"),
        ]
    return found


def _floats(name: str, integer: Any) -> Measure:
    left = [one.operator for one in float_operators(integer)]
    return most(f"{name}: float operators", len(left), 0, operators=left)


def _network(
    model: models.Model, kind: Literal["QDQ", "QOperator"], size: Size, whole: bool
) -> list[Measure]:
    """Quantize a network; run it layer by layer, and from end to end if `whole`."""
    proto = quantized_onnx(model, format=kind)
    mod = tvmlab.load(proto)
    integer = FakeQuantizationToInteger()(mod)
    name, count = f"{model.name}, {kind}", size.of(PICTURES)
    found = [_floats(name, integer)] if kind == "QDQ" else []
    for operator, apart in layer_by_layer(mod, OnnxJudge, proto, pictures(count)).items():
        found.append(
            holds(
                f"{name}: {operator} from ONNX Runtime's inputs",
                f"{apart.steps} step, {100 * apart.share:.2g}%",
                "<= 1 step",
                apart.steps <= 1,
                steps=apart.steps,
                share=apart.share,
                values=apart.values,
            )
        )
    if not whole:
        return found
    ours, theirs = tvmlab.compile(integer), bench.OnnxRuntime(proto)
    errors, same = [], 0
    for picture in pictures(count):
        mine, other = np.asarray(ours(picture)), np.asarray(theirs(picture))
        errors.append(float(100 * np.linalg.norm(mine - other) / np.linalg.norm(other)))
        same += int(mine.argmax() == other.argmax())
    median = statistics.median(errors)
    wanted = CLASSES * count // PICTURES
    return [
        *found,
        most(f"{name}: error of the logits, median", median, ERROR, "%", errors=errors),
        most(f"{name}: error of the logits, greatest", max(errors), ERROR, "%", note=model.note),
        least(f"{name}: the same class, of {count}", same, wanted),
    ]


def mobilenet(size: Size) -> list[Measure]:
    """Hold MobileNetV2, as QDQ, against ONNX Runtime layer by layer."""
    return _network(models.mobilenet_v2(), "QDQ", size, whole=False)


def resnet50_qdq(size: Size) -> list[Measure]:
    """Hold ResNet-50 v2, as QDQ, against ONNX Runtime."""
    return _network(models.resnet50_v2(), "QDQ", size, whole=True)


def resnet50_qoperator(size: Size) -> list[Measure]:
    """Hold ResNet-50 v2, in quantized operators, against ONNX Runtime."""
    return _network(models.resnet50_v2(), "QOperator", size, whole=True)
