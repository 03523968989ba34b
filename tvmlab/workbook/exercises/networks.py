"""The checks of notebooks 03 Import a ResNet, 04 Import quantized models and 11 Recipes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np
import tvm
from tvm import relax

from ... import models, relay
from ...compiler import compile
from ...frontend import load
from ...qnn.analysis import float_operators
from ...qnn.transform import FakeQuantizationToInteger
from ...runtime.executable import Executable
from ...schedule import Tile
from ...support.extras import need
from .judge import Wrong, call, exercise, of_type, same_shape, same_values, whole

SMOOTH = 16  # pixels of a side of the blocks whose means are compared
CLOSE = 5  # of 255: right ways to scale differ by 2, and a right cut from a wrong one by 13
BATCH = 16
LANES, REGISTERS = 8, 16  # what AVX2 has for float32
LATENCY = 8  # with fewer sums in progress, each waits for itself

RANGES = [(0.0, 2.0), (-1.2, 2.0), (-4.0, 0.0), (0.5, 2.0), (-3.0, -1.0), (-0.7, 2.0)]
LOWEST, HIGHEST = -128, 127  # of an int8
ENOUGH = 1.01  # times the smallest scale, because a rounded zero point costs a part of a step
STEP = 0.05  # how far the mended network's result may be off: its last scale and a little more

DIGITS = (64, 64, 3, 3)  # the largest weights in the network of the digits
PICTURES = [*range(19), 25]  # the last is nowhere as bright as a scan can be
# The larger of the two below; the other has more channels, is the last, and has the larger sum.
FIRST, SECOND = (2, 4, 9, 9), (32, 2, 1, 1)


@exercise
def check_crop(
    resize_and_crop: Callable[[np.ndarray], np.ndarray],
    photograph: np.ndarray,
    *,
    shorter: int,
    side: int,
) -> str:
    """Check a function that scales the shorter side and cuts a square out of the middle.

    `resize_and_crop` takes a picture, uint8 of the shape (height, width, 3), such as `photograph`,
    and returns one of (side, side, 3). `shorter` is the shorter side of the scaled picture in
    pixels, and `side` a multiple of 16.
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


def _cuts(picture: np.ndarray, shorter: int, side: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the right cut and wrong ones, each after what is wrong about it."""
    image = need("PIL.Image", extra="models").fromarray(picture)
    height, width = (size / min(picture.shape[:2]) for size in picture.shape[:2])

    def scaled(size: float) -> np.ndarray:
        return np.asarray(image.resize((round(width * size), round(height * size))))

    def middle(whole: np.ndarray) -> np.ndarray:
        top, left = ((size - side) // 2 for size in whole.shape[:2])
        return whole[top : top + side, left : left + side]

    yield "", middle(scaled(shorter))
    squeezed = "the proportions are not kept: the picture is squeezed into a square"
    yield squeezed, np.asarray(image.resize((side, side)))
    yield "the cut is from the upper left corner", scaled(shorter)[:side, :side]
    scaling = f"the shorter side is scaled to {side} pixels, not to {shorter}"
    yield scaling, middle(scaled(side))
    yield "the picture is cut, and was not scaled before", middle(picture)


@exercise
def check_batch(sixteen: Executable, pictures: np.ndarray, classes: np.ndarray) -> str:
    """Check a network that is compiled for sixteen pictures at once.

    `sixteen` is the compiled network; `pictures` are float32 of the shape (n, 1, 8, 8), and
    `classes` what the network with an open batch made of them, whole numbers of the shape (n,).
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

    `tile` is the pixels and channels whose sums are in registers at the same time.
    """
    of_type(tile, Tile, "my_tile", "a Tile")
    pixels, vectors = tile.rows * tile.columns, math.ceil(tile.channels / LANES)
    wanted = (pixels + 1) * vectors + 1
    if wanted > REGISTERS:
        raise Wrong(
            f"{tile.rows} x {tile.columns} pixels with {tile.channels} channels: {wanted} "
            f"registers of {LANES} lanes, and there are {REGISTERS}"
        )
    if (sums := pixels * vectors) < LATENCY:
        raise Wrong(f"{sums} vectors of sums: with fewer than {LATENCY}, each waits for itself")
    return f"the tile wants {wanted} of the {REGISTERS} registers"


@exercise
def check_choose(choose: Callable[[float, float], Sequence[float]]) -> str:
    """Check a function that chooses the scale and the zero point of an int8.

    `choose` takes the lowest and the highest value and returns the scale and the zero point.
    """
    for low, high in RANGES:
        what = f"for {low} to {high}, "
        scale, zero = map(float, call(choose, low, high))
        if not zero.is_integer():
            raise Wrong(f"{what}the zero point {zero:.6g} is not whole, and so 0.0 not exact")
        if not LOWEST <= zero <= HIGHEST:
            why = "0.0 lies outside of the range"
            raise Wrong(f"{what}the zero point {zero:.0f} is no int8: {why}")
        first, last = scale * (LOWEST - zero), scale * (HIGHEST - zero)
        reach = f"the int8 reach from {first:.2f} to {last:.2f}"
        if first > low + scale / 2 or last < high - scale / 2:
            raise Wrong(f"{what}{reach} only")
        if scale > ENOUGH * (max(high, 0) - min(low, 0)) / (HIGHEST - LOWEST):
            raise Wrong(f"{what}the scale {scale:.5f} is larger than it need be, and {reach}")
    return "zero is exact, and every value has its place"


@exercise
def check_scaled(
    scaled: Callable[[int, float], int], expected: Mapping[tuple[int, float], int]
) -> str:
    """Check a product of an integer and a ratio, by a multiplier and a shift.

    `scaled` takes an integer and a ratio and returns their product, rounded; `expected` has the
    right product of each pair.
    """
    for (total, ratio), wanted in expected.items():
        called = f"scaled({total}, {ratio})"
        given = whole(call(scaled, total, ratio), called)
        exact = total * Fraction(ratio)
        why = f"the product is {float(exact):.10g}"
        if exact.denominator == 2:
            why += ", and a half goes upward"
        elif abs(given - wanted) > 1:
            why += ", and more than a step off: has the multiplier 31 bits?"
        elif wanted != math.floor(exact + Fraction(1, 2)):
            why += ", but the multiplier of 31 bits is not quite the ratio"
        if given != wanted:
            raise Wrong(f"{called} gives {given}, expected {wanted}: {why}")
    return f"the same in all {len(expected)}"


@exercise
def check_mended(text: str) -> str:
    """Check a network that comes out all in integers, with a ReLU and an addition.

    `text` is the network in ONNX's own text form; it takes and returns float32 of the shape (1, 8).
    """
    parser = need("onnx.parser", extra="onnx")
    try:
        proto = parser.parse_model(text)
    except parser.ParseError as error:
        raise Wrong(f"the text is no network: {error.args[0].decode()}") from error
    mended = FakeQuantizationToInteger()(load(proto))  # type: ignore[operator]
    if left := float_operators(mended):
        raise Wrong("; ".join(f"{found.operator} is float: {found.reason}" for found in left))
    sample = np.linspace(-2, 2, 8, dtype="float32")[np.newaxis]
    found = np.asarray(compile(mended)(sample))
    same_values(found, np.maximum(sample, 0) + sample, "the result", tolerance=STEP)
    return "all in integers, and the same results"


@exercise
def check_largest(largest: Callable[[tvm.IRModule], Iterable[int]]) -> str:
    """Check a function that finds the largest weights of a module's convolutions.

    `largest` takes a module and returns a shape of four sizes.
    """
    x = relay.var("x", shape=(1, 4, 9, 9))
    first, second = (relay.const(np.ones(shape, "float32")) for shape in (FIRST, SECOND))
    product = relax.op.nn.conv2d(relax.op.nn.conv2d(x, first), second)
    two = relay.IRModule.from_expr(relay.Function([x], product))
    found, other = (tuple(call(largest, mod)) for mod in (load(models.digits_resnet()), two))
    if math.prod(found) < math.prod(DIGITS):
        raise Wrong(f"the network of the digits has larger weights than {found}")
    if found != DIGITS:
        raise Wrong(f"the network of the digits has no convolution with weights of {found}")
    if other != FIRST:
        raise Wrong(
            f"of weights of the shapes {FIRST} and {SECOND} it gives {other}: count the numbers, "
            "which is the product of the sizes"
        )
    return f"{found} {other}"


@exercise
def check_as_input(
    as_input: Callable[[np.ndarray], np.ndarray],
    *,
    pixels: int,
    scanned: tuple[int, int],
    trained: tuple[int, int],
) -> str:
    """Check a function that makes an input of the digits' network of a scanned picture.

    `as_input` takes a picture, uint8 of the shape (pixels, pixels), and returns the network's
    input. `scanned` and `trained` are the lowest and the highest number of a scanned picture, and
    of those that the network was trained on; both lowest ones are zero.
    """
    run, digits = _network(), models.digits()
    right = 0
    for wanted, answer in zip(digits.x_test[PICTURES], digits.y_test[PICTURES], strict=True):
        scan = (wanted.reshape(pixels, pixels) * scanned[1] / trained[1]).astype("uint8")
        data = call(as_input, scan)
        scores = run(data)
        same_values(data, wanted[np.newaxis], "the input")
        right += int(np.argmax(scores) == answer)
    return f"{right} of {len(PICTURES)} are read"


@functools.cache
def _network() -> Executable:
    """Compile the network once: the check is called for every try."""
    return compile(load(models.digits_resnet()))
