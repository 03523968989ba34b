"""MLPerf Tiny's ResNet-8 against LiteRT's reference kernels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from helpers_models import at_hand
from helpers_qnn_cut import exposed
from helpers_qnn_judges import Apart, LitertJudge, layer_by_layer
from helpers_qnn_peers import noise, recorded, structured
from helpers_tflite_replay import OPERATORS, replay
from referee_report import Measure, Size, absent, holds, most

import tvmlab
from tvmlab.errors import DataError
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

FILE = "resnet8_int8.tflite"
EXACT = "bit-equal"
# At most so much of a layer's values may be a step off where the roundings differ, in percent.
SHARE = 0.5
ROUNDINGS = ("TFLITE", "UPWARD", "TONEAREST")


def _content() -> bytes | None:
    """Give the model: from beside the repository, or from the network; None without either."""
    try:
        place = at_hand(FILE) or tvmlab.data.fetch(FILE)
    except DataError:
        return None
    return place.read_bytes()


def _exact(name: str, apart: Apart) -> Measure:
    found = EXACT if not apart.off else f"{apart.off} of {apart.values} differ"
    return holds(name, found, EXACT, not apart.off, values=apart.values, steps=apart.steps)


def _near(name: str, apart: Apart, *, bar: bool = True) -> Measure:
    share = 100 * apart.share
    text, figures = (
        f"{apart.steps} step, {share:.3g}%",
        {"steps": apart.steps, "share": apart.share},
    )
    if not bar:
        return holds(name, text, "", None, **figures)
    met = apart.steps <= 1 and share <= SHARE
    return holds(name, text, f"<= 1 step, {SHARE}%", met, **figures)


def _replayed(tensors: Any, steps: Any, values: Any, rounding: str) -> dict[str, Apart]:
    """Compute layers by the NumPy reference; by kind of operator."""
    kinds: dict[str, Apart] = {}
    for layer in steps:
        if layer.name in OPERATORS:
            mine = replay(layer, tensors, values, rounding)
            kinds.setdefault(layer.name, Apart()).add(mine, values[layer.output])
    return kinds


def layers(size: Size) -> list[Measure]:
    """Compute every layer from LiteRT's own inputs, 200 of them, in three roundings."""
    name = "ResNet-8, {} from LiteRT's inputs, {}"
    content = _content()
    if content is None:
        return [absent(name.format("each layer", "TFLITE"), EXACT)]
    count = size.of(200)
    tensors, steps, values = recorded(content, noise(count))
    found = [
        _exact(name.format(kind, "TFLITE, by reference"), apart)
        for kind, apart in _replayed(tensors, steps, values, "TFLITE").items()
    ]
    mod = tvmlab.load(content)
    for rounding in ROUNDINGS:
        pieces = layer_by_layer(mod, LitertJudge, content, noise(count), rounding)
        for kind, apart in pieces.items():
            said = name.format(kind, f"{rounding}, compiled")
            if kind == "SOFTMAX":
                found.append(most(said, apart.steps, 1, " step"))
            elif rounding == "TFLITE":
                found.append(_exact(said, apart))
            else:
                found.append(_near(said, apart))
    # The pass makes sums and averages TFLite's whatever the rounding. Relay's, to compare:
    for rounding in ("UPWARD", "TONEAREST"):
        for kind, apart in _replayed(tensors, steps, values, rounding).items():
            found.append(
                _near(name.format(kind, f"Relay's own operator, {rounding}"), apart, bar=False)
            )
    return found


def network(size: Size) -> list[Measure]:
    """Run the network, compiled, on 1,000 random and 1,000 structured inputs."""
    name = "ResNet-8 from end to end, {}"
    content = _content()
    if content is None:
        return [absent(name.format("all before softmax"), EXACT)]
    mod = tvmlab.load(content)
    shown = exposed(mod)
    integer = FakeQuantizationToInteger()(mod)
    theirs, all_of_it = LitertJudge(content, shown.places), tvmlab.compile(shown.mod)
    ours = tvmlab.compile(integer)
    before, softmax, fused = Apart(), Apart(), Apart()
    count = size.of(1000)
    for picture in itertools.chain(noise(count), structured(count)):
        *expected, result = theirs(picture)
        *computed, mine = all_of_it(picture)
        for kind, a, b in zip(theirs.kinds, computed, expected, strict=True):
            if kind != "SOFTMAX":
                before.add(a, b)
        softmax.add(mine, result)
        fused.add(np.asarray(ours(picture)), result)
    left = [one.operator for one in float_operators(integer) if one.operator != "nn.softmax"]
    return [
        _exact(name.format("all before softmax"), before),
        most(name.format("softmax"), softmax.steps, 1, " step", share=softmax.share),
        most(name.format("softmax, fused"), fused.steps, 1, " step", share=fused.share),
        most("ResNet-8: float operators but softmax", len(left), 0, operators=left),
    ]
