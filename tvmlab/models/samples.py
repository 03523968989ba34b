"""Data to run the models on: digits, a photograph, class names."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..support.extras import need
from .weights import permutation

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Digits", "digits", "imagenet_labels", "preprocess", "sample_image"]

_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_STD = np.array([0.229, 0.224, 0.225], np.float32)


class Digits(NamedTuple):
    """Handwritten digits, split for training and for testing.

    Images are float32 [n, 1, 8, 8], 0 for paper to 1 for ink, and labels int64 [n], 0 to 9.
    """

    x_train: npt.NDArray[np.float32]
    y_train: npt.NDArray[np.int64]
    x_test: npt.NDArray[np.float32]
    y_test: npt.NDArray[np.int64]


def digits() -> Digits:
    """Split scikit-learn's 1797 handwritten digits, offline: 1347 to train with, 450 to test with.

    A quarter of each digit's images, drawn with a fixed seed, is held out: `digits_resnet` was
    not trained on them.
    """
    need("sklearn", extra="models")
    from sklearn.datasets import load_digits

    source: Any = load_digits()
    pictures = (source.images / 16.0).astype(np.float32)[:, None, :, :]
    labels = source.target.astype(np.int64)
    held_out = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        members = np.flatnonzero(labels == digit)
        order = permutation(np.random.PCG64([8, digit]), len(members))
        held_out[members[order[: round(len(members) / 4)]]] = True
    return Digits(pictures[~held_out], labels[~held_out], pictures[held_out], labels[held_out])


def sample_image(name: Literal["china", "flower"] = "china") -> npt.NDArray[np.uint8]:
    """Load a photograph that scikit-learn contains, offline: a temple in Beijing, or a dahlia.

    Returns uint8 [427, 640, 3] in RGB order. Raises `InputError` for another name.
    """
    if name not in ("china", "flower"):
        raise InputError(f"There is no photograph {name!r}.", fix='Use "china" or "flower".')
    need("sklearn", extra="models")
    need("PIL", extra="models")
    from sklearn.datasets import load_sample_image

    picture: npt.NDArray[np.uint8] = load_sample_image(f"{name}.jpg")
    return picture.copy()


def preprocess(image: npt.NDArray[np.uint8] | Image.Image) -> npt.NDArray[np.float32]:
    """Preprocess a photograph for the ImageNet networks.

    The image is uint8 [height, width, 3], or a Pillow image with up to 8 bits per channel, which
    is rotated by its EXIF orientation; others raise `InputError`. It is resized to 224x224,
    without keeping its proportions, and normalized by ImageNet's mean and standard deviation per
    channel. Returns float32 [1, 3, 224, 224].
    """
    need("PIL", extra="models")
    from PIL import Image, ImageOps

    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            what = f"The image is {image.dtype}{list(image.shape)}, not uint8[height, width, 3]."
            raise InputError(what, fix="Pass three channels of 0 to 255, the channel axis last.")
        image = Image.fromarray(image)
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):  # Pillow's conversion would clip them at 255
        what = f"The image has more than 8 bits per channel (Pillow's mode {image.mode})."
        raise InputError(what, fix="Scale it to 0 ... 255, and save it with 8 bits per channel.")
    small = image.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
    picture = np.asarray(small, dtype=np.float32) / np.float32(255)
    picture = (picture - _MEAN) / _STD
    return np.ascontiguousarray(picture.transpose(2, 0, 1)[None])


@cache
def imagenet_labels() -> tuple[str, ...]:
    """List the names of ImageNet's 1000 classes by WordNet, in the order of a model's outputs."""
    text = resources.files("tvmlab").joinpath("assets/imagenet_labels.txt").read_text("utf-8")
    return tuple(text.splitlines())
