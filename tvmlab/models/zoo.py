"""The networks of the workbook, each with the weights available for it."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Literal

from ..errors import ChecksumError, DataError, InputError
from ..support import data
from ..support.extras import need
from .networks import DIGITS, MOBILENET, RESNET18, RESNET50, Architecture
from .onnx_form import Model, set_batch, to_onnx
from .weights import seeded_parameters

if TYPE_CHECKING:
    from .torch_form import Network

__all__ = ["digits_resnet", "mobilenet_v2", "resnet18_v2", "resnet50_v2", "torch_digits_resnet"]

ZOO_FILE = "resnet50-v2-7.onnx"
_SEEDS = {RESNET50.name: 50, RESNET18.name: 18, MOBILENET.name: 2}
_ZOO = "the ONNX model zoo's resnet50-v2-7.onnx"
_SEEDED = "speed and arithmetic are real, its classes mean nothing."
# Why this process could not get the zoo's file, so that it does not wait for the network again.
_no_zoo = ""


def resnet50_v2(
    weights: Literal["auto", "zoo", "seeded"] = "auto", *, batch: int | None = 1
) -> Model:
    """Return ResNet-50 v2, the network of the model zoo's resnet50-v2-7.onnx.

    Its input "data" is float32 [batch, 3, 224, 224], and its output float32 [batch, 1000] without
    softmax. Raises `DataError` if ``"zoo"`` is requested but not available, `ChecksumError` if the
    downloaded file is another one, and `InputError` if `weights` has another value.

    Parameters
    ----------
    weights : {"auto", "zoo", "seeded"}, optional
        "zoo" is the zoo's file (102 MB, trained on ImageNet), from the cache or the network.
        "seeded" is the same architecture with random weights, offline, the same on every
        machine. "auto" is "zoo" if it is available, else "seeded"; the note explains why.
    batch : int or None, optional
        Images per call; None leaves the number open.
    """
    global _no_zoo
    need("onnx", extra="models")
    import onnx

    if weights not in ("auto", "zoo", "seeded"):
        fix = 'Use "auto", "zoo" or "seeded".'
        raise InputError(f"There are no {weights!r} weights.", where="resnet50_v2", fix=fix)
    if weights == "seeded":
        return _seeded(RESNET50, batch, f" in the architecture of {_ZOO}")
    try:
        path = data.cached(ZOO_FILE) if _no_zoo and weights == "auto" else data.fetch(ZOO_FILE)
    except DataError as error:
        if weights == "zoo" or isinstance(error, ChecksumError):
            raise
        path, _no_zoo = None, error.what.splitlines()[0]
    if path is None:
        why = f"\nThe zoo's file is not downloaded: {_no_zoo}"
        return _seeded(RESNET50, batch, f" in the architecture of {_ZOO}", why)
    proto = onnx.load(path)
    set_batch(proto, batch)
    note = f"Weights: {_ZOO}, trained on ImageNet; its classes are real answers."
    return Model(proto, RESNET50.name, "zoo", note)


def resnet18_v2(*, batch: int | None = 1) -> Model:
    """Return ResNet-18 v2, a smaller `resnet50_v2`, with seeded random weights."""
    return _seeded(RESNET18, batch)


def mobilenet_v2(*, batch: int | None = 1) -> Model:
    """Return MobileNetV2 of width 1.0, with seeded random weights, for `resnet50_v2`'s data."""
    return _seeded(MOBILENET, batch)


def digits_resnet(*, batch: int | None = 1) -> Model:
    """Return the small network for 8x8 images of digits, with its trained weights.

    The input "data" is float32 [batch, 1, 8, 8], as `digits` returns it, and the output float32
    [batch, 10] without softmax. A `batch` of None leaves the number of images open.
    """
    need("onnx", extra="models")
    import onnx

    asset = resources.files("tvmlab").joinpath("assets/digits_resnet.onnx")
    proto = onnx.load_from_string(asset.read_bytes())
    set_batch(proto, batch)
    note = (
        "Weights: trained by `python -m tvmlab.models train-digits` on scikit-learn's "
        "handwritten digits; its classes are real answers."
    )
    return Model(proto, DIGITS.name, "trained", note)


def torch_digits_resnet() -> Network:
    """Return `digits_resnet` as a torch module in evaluation mode, which takes any batch."""
    need("torch", extra="torch")
    from . import torch_form

    return torch_form.of(digits_resnet())


def _seeded(spec: Architecture, batch: int | None, of: str = "", why: str = "") -> Model:
    proto = to_onnx(spec, seeded_parameters(spec, _SEEDS[spec.name]), batch=batch)
    return Model(proto, spec.name, "seeded", f"Weights: seeded random numbers{of}; {_SEEDED}{why}")
