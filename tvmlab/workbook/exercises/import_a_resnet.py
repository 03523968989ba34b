"""The checks of notebook 03, Import a ResNet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from ...runtime.executable import Executable
from ...schedule import Tile
from ...support.extras import need
from .judge import Wrong, call, exercise, of_type, same_shape, same_values

SMOOTH = 16  # pixels of a side of the blocks whose means are compared
CLOSE = 5  # of 255: right ways to scale differ by 2, and a right cut from a wrong one by 13
BATCH = 16
LANES, REGISTERS = 8, 16  # what AVX2 has for float32
LATENCY = 8  # with fewer sums in progress, each waits for itself


@exercise
def check_crop(
    resize_and_crop: Callable[[np.ndarray], np.ndarray],
    photograph: np.ndarray,
    *,
    shorter: int,
    side: int,
) -> str:
    """Check a function that scales the shorter side and cuts a square out of the middle.

    Parameters
    ----------
    resize_and_crop : callable
        Takes a picture, uint8 of the shape (height, width, 3); returns one of (side, side, 3).
    photograph : np.ndarray
        A picture that is wider than high.
    shorter, side : int
        Pixels of the shorter side when the picture is scaled, and of the square that is cut, a
        multiple of 16.
    """
    high = np.ascontiguousarray(photograph.transpose(1, 0, 2))
    for picture, which in ((photograph, ""), (high, ", for a picture that is higher than wide")):
        found = call(resize_and_crop, picture.copy())
        cropped = same_shape(found, (side, side, 3), f"the result{which.removeprefix(',')}")
        apart, why = min((_apart(cropped, cut), why) for why, cut in _cuts(picture, shorter, side))
        if not apart <= CLOSE:  # NaN is wrong as well.
            raise Wrong(f"it is {apart:.0f} of 255 from a cut of the picture, on average{which}")
        if why:
            raise Wrong(f"{why}{which}")
    return "proportions kept, cut from the middle"


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    """Compare two squares after smoothing them, because there are many right ways to scale."""
    blocks = len(one) // SMOOTH
    apart = (one - other.astype("float64")).reshape(blocks, SMOOTH, blocks, SMOOTH, 3)
    return float(np.abs(apart.mean(axis=(1, 3))).mean())


def _middle(scaled: np.ndarray, side: int) -> np.ndarray:
    """Cut a square out of the middle."""
    top, left = ((size - side) // 2 for size in scaled.shape[:2])
    return scaled[top : top + side, left : left + side]


def _resized(picture: np.ndarray, wide: float, high: float) -> np.ndarray:
    image = need("PIL.Image", extra="models").fromarray(picture)
    return np.asarray(image.resize((round(wide), round(high))))


def _cuts(picture: np.ndarray, shorter: int, side: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the right cut and wrong ones, each after what is wrong about it."""
    height, width = (size / min(picture.shape[:2]) for size in picture.shape[:2])
    scaled, small = (_resized(picture, width * size, height * size) for size in (shorter, side))
    squeezed = "the proportions are not kept: the picture is squeezed into a square"
    swapped = "width and height are exchanged: the size that `resize` takes begins with the width"
    yield "", _middle(scaled, side)
    yield squeezed, _resized(picture, side, side)
    yield f"{squeezed} before it is cut", _middle(_resized(picture, shorter, shorter), side)
    yield swapped, _middle(_resized(picture, height * shorter, width * shorter), side)
    yield "the cut is from the upper left corner", scaled[:side, :side]
    yield f"the shorter side is scaled to {side} pixels, not to {shorter}", _middle(small, side)
    yield "the picture is cut, and was not scaled before", _middle(picture, side)


@exercise
def check_batch(sixteen: Executable, pictures: np.ndarray, classes: np.ndarray) -> str:
    """Check a network that is compiled for sixteen pictures at once.

    Parameters
    ----------
    sixteen : Executable
        The compiled network.
    pictures : np.ndarray
        float32 of the shape (n, 1, 8, 8), at least sixteen.
    classes : np.ndarray
        What the network with an open batch made of them, whole numbers of the shape (n,).
    """
    of_type(sixteen, Executable, "sixteen", "an executable: compile what you load")
    declared, wanted = sixteen.signature.inputs[0].shape, (BATCH, *pictures.shape[1:])
    if declared != wanted:
        loose = [size for size in declared if isinstance(size, str)]
        why = f": {loose[0]} may be any number" if loose else ""
        raise Wrong(f"the executable takes {declared}, expected {wanted}{why}")
    found = np.asarray(sixteen(pictures[:BATCH])).argmax(axis=1)
    same_values(found, classes[:BATCH], "the classes")
    return "sixteen at once, all as before"


@exercise
def check_tile_choice(tile: Tile) -> str:
    """Check a register tile that fits the sixteen registers of AVX2.

    Parameters
    ----------
    tile : Tile
        Pixels and channels whose sums are in registers at the same time.
    """
    of_type(tile, Tile, "my_tile", "a Tile")
    pixels, vectors = tile.rows * tile.columns, math.ceil(tile.channels / LANES)
    wanted = (pixels + 1) * vectors + 1
    if wanted > REGISTERS:
        raise Wrong(
            f"{tile.rows} x {tile.columns} pixels with {tile.channels} channels: {wanted} "
            f"registers of {LANES} lanes, and there are {REGISTERS}"
        )
    if pixels * vectors < LATENCY:
        raise Wrong(
            f"{pixels * vectors} vectors of sums: with fewer than {LATENCY}, each waits for itself"
        )
    return f"the tile wants {wanted} of the {REGISTERS} registers"
