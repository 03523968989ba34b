"""The checks of notebook 03, Import a ResNet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..runtime.executable import Executable
from ..schedule import Tile
from ..support.extras import need
from .judge import Wrong, asking, call, exercise, of_type, same_shape, same_values, whole

__all__ = ["check_batch", "check_crop", "check_tile_choice"]

CLOSE = 11  # the mean difference, of 255, between two right ways to scale
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
        Pixels of the shorter side when the picture is scaled, and of the square that is cut.
    """
    high = np.ascontiguousarray(photograph.transpose(1, 0, 2))
    for picture, which in ((photograph, ""), (high, " for a picture that is higher than wide")):
        found = call(resize_and_crop, picture.copy())
        cropped = same_shape(found, (side, side, 3), f"the result{which}")
        if not cropped.max() > 1:  # NaN is wrong as well.
            raise Wrong(
                f"the result's values are from {cropped.min():.3g} to {cropped.max():.3g}, "
                "expected 0 to 255 as in the picture"
            )
        right = min(_apart(cropped, cut) for cut in _right(picture, shorter, side))
        wrong, why = min((_apart(cropped, cut), why) for why, cut in _wrong(picture, shorter, side))
        if wrong < min(right, CLOSE):
            raise Wrong(f"{why},{which}" if which else why)
        if not right <= CLOSE:
            raise Wrong(f"it is {right:.0f} of 255 from the middle, on average{which}")
    return "proportions kept, cut from the middle"


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype("float64") - other.astype("float64")).mean())


def _middle(scaled: np.ndarray, side: int) -> np.ndarray:
    """Cut a square out of the middle."""
    top, left = ((size - side) // 2 for size in scaled.shape[:2])
    return scaled[top : top + side, left : left + side]


def _resized(picture: np.ndarray, wide: float, high: float) -> np.ndarray:
    image = need("PIL.Image", extra="models").fromarray(picture)
    return np.asarray(image.resize((round(wide), round(high))))


def _right(picture: np.ndarray, shorter: int, side: int) -> Iterator[np.ndarray]:
    """Yield right cuts: with a smooth filter, and with the nearest pixels."""
    height, width = picture.shape[:2]
    scale = shorter / min(height, width)
    for rounded in (round, int):  # Both are usual for the longer side.
        wide, high = rounded(width * scale), rounded(height * scale)
        yield _middle(_resized(picture, wide, high), side)
        rows, columns = np.arange(high) * height // high, np.arange(wide) * width // wide
        yield _middle(picture[rows][:, columns], side)


def _wrong(picture: np.ndarray, shorter: int, side: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield wrong cuts, each after what is wrong about it."""
    height, width = (size / min(picture.shape[:2]) for size in picture.shape[:2])
    scaled, small = (_resized(picture, width * size, height * size) for size in (shorter, side))
    exchanged = _resized(picture, height * shorter, width * shorter)
    squeezed = "the proportions are not kept: the picture is squeezed into a square"
    yield squeezed, _resized(picture, side, side)
    yield f"{squeezed} before it is cut", _middle(_resized(picture, shorter, shorter), side)
    yield (
        "width and height are exchanged: the size that `resize` takes begins with the width",
        _middle(exchanged, side),
    )
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
    with asking("sixteen does not read pictures"):
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
    rows, columns, channels = (
        whole(getattr(tile, part), f"my_tile.{part}") for part in ("rows", "columns", "channels")
    )
    vectors, left = divmod(channels, LANES)
    if left:
        raise Wrong(f"{channels} channels are no whole number of vectors of {LANES} lanes")
    pixels = rows * columns
    wanted = (pixels + 1) * vectors + 1
    if wanted > REGISTERS:
        raise Wrong(
            f"{rows} x {columns} pixels with {channels} channels: {wanted} "
            f"registers of {LANES} lanes, and there are {REGISTERS}"
        )
    if pixels * vectors < LATENCY:
        raise Wrong(
            f"{pixels * vectors} vectors of sums: with fewer than {LATENCY}, each waits for itself"
        )
    return f"the tile wants {wanted} of the {REGISTERS} registers"
