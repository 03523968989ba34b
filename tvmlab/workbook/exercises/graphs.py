"""The checks of notebooks 03 to 06 and 10 to 12: models, patterns, rewrites and regions."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import dpl
from tvm_ffi import structural_equal

from ... import models, npu, relay
from ...compiler import compile
from ...errors import TvmlabError
from ...frontend import load
from ...npu.codegen import regions
from ...npu.isa import Instruction
from ...runtime.executable import Executable
from ...schedule import Tile
from ...support.extras import need
from . import judge
from .judge import Function, Wrong, call, exercise, require

SMOOTH = 16  # side of the blocks whose means are compared, in pixels
CLOSE = 5  # of 255: correct ways to scale differ by 2, correct and wrong crops by 13
LANES, REGISTERS = 8, 16  # what AVX2 has for float32
LATENCY = 8  # with fewer sums in progress, each addition waits for the previous one

RANGES = [(0.0, 2.0), (-1.2, 2.0), (-4.0, 0.0), (0.5, 2.0), (-3.0, -1.0), (-0.7, 2.0)]
LOWEST, HIGHEST = -128, 127  # of an int8
ENOUGH = 1.01  # times the smallest scale, because a rounded zero point costs a part of a step
STEP = 0.05  # how far the repaired network's result can be off: its last scale and a little more

DIGITS = (64, 64, 3, 3)  # the largest weights in the network of the digits
PICTURES = [*range(19), 25]  # the last one has no pixel of the highest brightness
# The first has more elements; the second has more channels, is the last, and has a larger sum.
FIRST, SECOND = (2, 4, 9, 9), (32, 2, 1, 1)

GIVEN = (0.25, 0, 0.5, 0, 0.5, 0)  # scale and zero point: of the operands, and of the result
SIZE = 64  # rows and columns of the matrices


@exercise
def check_crop(
    resize_and_crop: Function, photograph: np.ndarray, *, shorter: int, side: int
) -> str:
    """Check `resize_and_crop`, which scales the shorter side and cuts a square out of the middle.

    It takes an image, uint8 of the shape (height, width, 3), such as `photograph`, and returns one
    of (side, side, 3). `shorter` is the shorter side of the scaled image.
    """
    high = np.ascontiguousarray(photograph.transpose(1, 0, 2))
    for picture, which in ((photograph, ""), (high, ", for an image that is higher than wide")):
        found = call(resize_and_crop, picture.copy())
        cropped = judge.same_shape(found, (side, side, 3), f"the result{which.removeprefix(',')}")
        apart, why = min((_apart(cropped, cut), why) for why, cut in _cuts(picture, shorter, side))
        far = f"it differs from the expected square by {apart:.0f} of 255 on average{which}"
        require(apart <= CLOSE, far)  # NaN is wrong as well
        require(not why, f"{why}{which}")
    return "the proportions are kept, and the square is cut from the middle"


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    """Compare two squares after smoothing them, because there are many correct ways to scale."""
    blocks = len(one) // SMOOTH
    apart = (one - other.astype("float64")).reshape(blocks, SMOOTH, blocks, SMOOTH, 3)
    return float(np.abs(apart.mean(axis=(1, 3))).mean())


def _cuts(picture: np.ndarray, shorter: int, side: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the correct crop and wrong ones, each after its mistake."""
    image = need("PIL.Image", extra="models").fromarray(picture)
    height, width = (size / min(picture.shape[:2]) for size in picture.shape[:2])

    def scaled(size: float) -> np.ndarray:
        return np.asarray(image.resize((round(width * size), round(height * size))))

    def middle(whole: np.ndarray) -> np.ndarray:
        top, left = ((size - side) // 2 for size in whole.shape[:2])
        return whole[top : top + side, left : left + side]

    yield "", middle(scaled(shorter))
    squeezed = "the proportions are not kept: the image is squeezed into a square"
    yield squeezed, np.asarray(image.resize((side, side)))
    yield "the square is cut from the upper left corner", scaled(shorter)[:side, :side]
    yield f"the shorter side is scaled to {side} pixels, not to {shorter}", middle(scaled(side))
    yield "the image is cut without scaling it first", middle(picture)


@exercise
def check_batch(sixteen: Executable, pictures: np.ndarray, classes: np.ndarray) -> str:
    """Check `sixteen`, a network compiled for a batch of sixteen images.

    `pictures` are float32 of the shape (n, 1, 8, 8), and `classes` are integers of the shape (n,).
    """
    judge.of_type(sixteen, Executable, "sixteen", "an executable: compile what you load")
    declared, wanted = sixteen.signature.inputs[0].shape, (16, *pictures.shape[1:])
    loose = [f": {size} can be any number" for size in declared if isinstance(size, str)]
    why = f"the executable takes {declared}, expected {wanted}{''.join(loose[:1])}"
    require(declared == wanted, why)
    found = np.asarray(sixteen(pictures[:16])).argmax(axis=1)
    judge.same_values(found, classes[:16], "the classes")
    return "sixteen images in one call, and the same classes as before"


@exercise
def check_tile_choice(tile: Tile) -> str:
    """Check `tile`, a register tile that fits the sixteen registers of AVX2."""
    judge.of_type(tile, Tile, "my_tile", "a Tile")
    pixels, vectors = tile.rows * tile.columns, math.ceil(tile.channels / LANES)
    wanted, sums = (pixels + 1) * vectors + 1, pixels * vectors
    size = f"{tile.rows} x {tile.columns} pixels with {tile.channels} channels"
    have = f"it needs {wanted} registers of {LANES} lanes, but there are {REGISTERS}"
    require(wanted <= REGISTERS, f"{size}: {have}")
    few = f"{sums} vectors of sums: with fewer than {LATENCY}, each addition waits for the last"
    require(sums >= LATENCY, few)
    return f"the tile uses {wanted} of the {REGISTERS} registers"


@exercise
def check_choose(choose: Function) -> str:
    """Check `choose`, which chooses the scale and the zero point of an int8.

    It takes the lowest and the highest value.
    """
    for low, high in RANGES:
        what = f"for {low} to {high}, the"
        scale, zero = map(float, call(choose, low, high))
        exact = f"{what} zero point {zero:.6g} is not an integer, so 0.0 is not exact"
        require(zero.is_integer(), exact)
        fits = f"{what} zero point {zero:.0f} does not fit in int8: 0.0 is outside of the range"
        require(LOWEST <= zero <= HIGHEST, fits)
        first, last = scale * (LOWEST - zero), scale * (HIGHEST - zero)
        reach = f"the int8 reach from {first:.2f} to {last:.2f}"
        reached = first <= low + scale / 2 and last >= high - scale / 2
        require(reached, f"{what.removesuffix('the')}{reach} only")
        smallest = (max(high, 0) - min(low, 0)) / (HIGHEST - LOWEST)
        larger = f"{what} scale {scale:.5f} is larger than necessary: {reach}"
        require(scale <= ENOUGH * smallest, larger)
    return "zero is exact, and the range covers all values"


@exercise
def check_scaled(scaled: Function, expected: Mapping[tuple[int, float], int]) -> str:
    """Check `scaled`, the rounded product of an integer and a ratio by a multiplier and a shift.

    `expected` has the right product of each pair.
    """
    for (total, ratio), wanted in expected.items():
        called = f"scaled({total}, {ratio})"
        given = judge.whole(call(scaled, total, ratio), called)
        exact, why = total * Fraction(ratio), ""
        if exact.denominator == 2:
            why = ", and a half goes upward"
        elif abs(given - wanted) > 1:
            why = ", and more than a step off: has the multiplier 31 bits?"
        elif wanted != math.floor(exact + Fraction(1, 2)):
            why = ", but the multiplier of 31 bits is not quite the ratio"
        product = f"the product is {float(exact):.10g}{why}"
        require(given == wanted, f"{called} gives {given}, expected {wanted}: {product}")
    return f"all {len(expected)} products are right"


@exercise
def check_largest(largest: Function) -> str:
    """Check `largest`, which finds the shape of the largest convolution weights of a module."""
    x = relay.var("x", shape=(1, 4, 9, 9))
    first, second = (relay.const(np.ones(shape, "float32")) for shape in (FIRST, SECOND))
    product = relax.op.nn.conv2d(relax.op.nn.conv2d(x, first), second)
    two = relay.IRModule.from_expr(relay.Function([x], product))
    found, other = (tuple(call(largest, mod)) for mod in (load(models.digits_resnet()), two))
    smaller = f"the digits network has larger weights than {found}"
    require(math.prod(found) >= math.prod(DIGITS), smaller)
    none = f"the digits network has no convolution with weights of {found}"
    require(found == DIGITS, none)
    counted = f"for weights of {FIRST} and {SECOND} it returns {other}: compare the element counts"
    require(other == FIRST, f"{counted}, the products of the sizes")
    return f"{found} {other}"


@exercise
def check_as_input(
    as_input: Function, *, pixels: int, scanned: tuple[int, int], trained: tuple[int, int]
) -> str:
    """Check `as_input`, which converts a scanned image to an input of the digits network.

    It takes uint8 of the shape (pixels, pixels). `scanned` and `trained` are the lowest and
    highest values of a scan, and of the training data; both lowest values are zero.
    """
    run, digits = _network(), models.digits()
    right = 0
    for wanted, answer in zip(digits.x_test[PICTURES], digits.y_test[PICTURES], strict=True):
        scan = (wanted.reshape(pixels, pixels) * scanned[1] / trained[1]).astype("uint8")
        data = call(as_input, scan)
        scores = run(data)
        judge.same_values(data, wanted[np.newaxis], "the input")
        right += int(np.argmax(scores) == answer)
    return f"{right} of {len(PICTURES)} digits are recognized"


@functools.cache
def _network() -> Executable:
    """Compile the network once: the check is called for every try."""
    return compile(load(models.digits_resnet()))


@exercise
def check_pad_stops(
    broken: Function, best: Function, padded: tvm.IRModule, bare: tvm.IRModule
) -> str:
    """Check `broken`, whose pattern matches a convolution without a pad, and stops at a pad.

    `best` is the notebook's function: it returns a pattern's best partial match in a module.
    `padded` and `bare` are the convolution with a pad, and without.
    """
    pattern = judge.relay_pattern(broken, "broken")
    at, where = (_stops(best(pattern, mod)[1]) for mod in (padded, bare))
    taken, found = (pattern.match(mod["main"].body) for mod in (padded, bare))
    require(not taken, "the pattern also matches the TFLite form, a convolution with a pad")
    why = "the operators match, so check the number of operands, and the last operator"
    why = f"there it stops at {where}" if where else why
    require(found, f"the pattern does not match the convolution without a pad: {why}")
    require(at == "nn.pad", f"the pattern stops at {at or 'no call'}, expected nn.pad")
    return "the pattern stops at the pad, and only there"


def _stops(reached: dict[relax.Expr, str]) -> str:
    """List the operators at which the pattern's best attempt stops."""
    stops = [one for one, kind in reached.items() if "stops" in kind]
    names = [one.op.name for one in stops if isinstance(one, relax.Call)]
    return ", ".join(name.removeprefix("relax.") for name in names)


@exercise
def check_drop_requantize(drop_requantize: Function, chain: tvm.IRModule) -> str:
    """Check `drop_requantize`, a pass that removes a requantize that changes nothing.

    `chain` is the notebook's example: four requantizes, the first of which changes nothing.
    """
    found = judge.changed(drop_requantize, chain, "drop_requantize")
    gone = 4 - relay.analysis.list_op_freqs(found).get("qnn.requantize", 0)
    why = f"{gone} requantizes are gone, but only one keeps the scale, the zero point and the type"
    few = {0: "all four are left", 1: "one is gone, but the rest of the module has changed"}
    left = [(0.5, 3, 0.5, 3, "uint8"), (0.5, 3, 0.5, 4, "uint8"), (0.5, 4, 0.25, 4, "uint8")]
    _same(found, _requantizes((1, 4), "int8", left), few.get(gone, why))
    # The first and the last of these change nothing.
    left = [(0.25, 7, 0.125, 7, "uint8"), (0.125, 7, 0.125, 7, "int8")]
    steps = [(0.25, 7, 0.25, 7, "uint8"), *left, (0.125, 7, 0.125, 7, "int8")]
    given, wanted = (_requantizes((2, 3), "uint8", some) for some in (steps, left))
    why = "the example is right, but another chain is not: compare the scale, the zero point and "
    why += "the type of every requantize"
    _same(judge.changed(drop_requantize, given, "drop_requantize"), wanted, why)
    return "the requantize that changes nothing is gone, and the other three are left"


def _requantizes(
    shape: tuple[int, ...], dtype: str, steps: Sequence[tuple[float, int, float, int, str]]
) -> tvm.IRModule:
    """Make a chain of requantizes: scale and zero point before and after, and the type after."""
    value = x = relay.var("x", shape=shape, dtype=dtype)
    for *numbers, new_dtype in steps:
        value = relay.qnn.op.requantize(value, *map(relay.const, numbers), out_dtype=new_dtype)
    return relay.IRModule.from_expr(relay.Function([x], value))


def _same(found: tvm.IRModule, wanted: tvm.IRModule, why: str) -> None:
    """Compare two modules as Relay's text, which ignores names and order of variables."""
    # A mutator that removes a call leaves a second name for a value.
    plain = [relax.transform.CanonicalizeBindings()(mod) for mod in (found, wanted)]
    if relay.astext(plain[0]) != relay.astext(plain[1]):
        shown = [relay.astext(mod, show_meta_data=False, types=False) for mod in plain]
        raise Wrong(f"{why}\n{judge.difference(*shown)}")


@exercise
def check_addition_pattern(addition: Function, network: tvm.IRModule, table: Sequence[Any]) -> str:
    """Check `addition`, which returns the pattern of a quantized addition.

    `network` is quantized, with additions; `table` is a pattern table of `npu` without them.
    """
    pattern = judge.relay_pattern(addition, "addition")
    add, given = relay.qnn.op.add, [relay.const(value) for value in GIVEN]
    x, y = (relay.var(name, shape=(1, 4), dtype="int8") for name in "xy")
    if not pattern.match(add(x, y, *given)):
        floats = pattern.match(relay.add(relay.var("x", shape=(1, 4)), relay.const(1.0)))
        require(not floats, "the pattern matches an addition of floats, expected qnn.add")
        why = "the pattern does not match a quantized addition: qnn.add of two tensors and six "
        raise Wrong(f"{why}constants, which can differ")
    for place in range(len(GIVEN)):
        what, dtype = ("zero point", "int32") if place % 2 else ("scale", "float32")
        unknown = relay.var("unknown", shape=(), dtype=dtype)
        taken = pattern.match(add(x, y, *given[:place], unknown, *given[place + 1 :]))
        require(not taken, f"the pattern matches a {what} that is not constant")
    taken = pattern.match(relay.qnn.op.mul(x, y, *given))
    require(not taken, "the pattern also matches a quantized multiplication, expected only qnn.add")
    entry: Any = ("tvmlab_npu.add", pattern)
    parts = npu.partition(network, patterns=[*table, entry])
    count = len(regions(parts))
    require(count == 1, f"the network is in {count} regions, expected one")
    moved = sum(row.moved for row in npu.report(parts).layers)
    return f"one region, {moved:,} bytes moved"


@exercise
def check_bytes_moved(by_hand: Function, run: Function, wanted: np.ndarray, once: int) -> str:
    """Check `by_hand`, which returns the instructions of a layer that moves every byte once.

    `run` is the notebook's `judge`: it returns the sums, the bytes moved, and the cycles. `wanted`
    is the right sums, int32 of the shape (64, 64), and `once` the bytes of all tensors.
    """
    steps = call(by_hand)
    for place, step in enumerate(steps):
        fix = f": call it, {step.__name__}()" if callable(step) else ""
        what = f"item {place} of the list is not an instruction{fix}"
        require(isinstance(step, Instruction), what)
    try:
        sums, moved, cycles = run(steps)
    except TvmlabError as error:
        raise Wrong(f"the machine rejects the program: {error.what}") from error
    judge.same_values(sums, wanted, "the sums")
    cost = f"{moved:,} bytes moved in {cycles:,} cycles"
    again = f"{cost}, but {once:,} bytes are enough: which tensor is loaded twice?"
    require(moved <= once, again)
    return cost


@exercise
def check_dense_pattern(dense_pattern: Function) -> str:
    """Check `dense_pattern`: a dense layer with a bias, which a ReLU may follow."""
    pattern = judge.of_type(call(dense_pattern), dpl.DFPattern, "it", "a pattern of relax.dpl")
    a, b, c = (relay.var(name, shape=(4, 4)) for name in "abc")
    picture, filters = (relay.var(name, shape=(1, 1, 4, 4)) for name in ("picture", "filters"))
    product = relax.op.matmul(a, b)
    layer = relax.op.add(product, c)
    takes = {
        "a dense layer with its bias": layer,
        "a dense layer with its bias and a ReLU": relax.op.nn.relu(layer),
    }
    leaves = {
        "a variable": a,
        "a product without a bias": product,
        "a tanh after the layer": relax.op.tanh(layer),
        "a ReLU of anything": relax.op.nn.relu(a),
        "a sum without a product": relax.op.add(a, b),
        "a convolution with a bias": relax.op.add(relax.op.nn.conv2d(picture, filters), c),
        "a second ReLU": relax.op.nn.relu(relax.op.nn.relu(layer)),
    }
    missed = [what for what, graph in takes.items() if not pattern.match(graph)]
    why = f"the pattern does not match {' or '.join(missed)}: weights and bias can be anything"
    require(not missed, why)
    taken = [what for what, graph in leaves.items() if pattern.match(graph)]
    require(not taken, f"the pattern also matches {', '.join(taken)}")
    return "a dense layer with its bias, and nothing else"


@exercise
def check_drop_one(simplified: Function) -> str:
    """Check `simplified`, which removes multiplications by one from a Relax function."""
    a, ones = relay.var("a", shape=(4, 4)), relay.const(1.0)
    doubled = relay.multiply(a, relay.const(2.0))
    product = relay.multiply(ones, relay.exp(relay.multiply(doubled, ones)))
    given, wanted = (
        relay.IRModule.from_expr(relay.Function([a], value))
        for value in (product, relay.exp(doubled))
    )
    found = tvm.IRModule({"main": call(simplified, given["main"])})
    # A mutator that removes a call leaves a second name for a value.
    plain = [relax.transform.CanonicalizeBindings()(mod) for mod in (found, wanted)]
    products = relay.analysis.list_op_freqs(plain[0]).get("multiply", 0)
    why = "more is gone than the multiplications by one"
    if products > 1:
        why = f"{products} multiplications are left, expected only the doubling"
    shown = judge.difference(*(mod["main"].script() for mod in plain))
    require(structural_equal(*plain), f"{why}\n{shown}")
    return "the multiplications by one are gone, and the doubling is left"


@exercise
def check_mish(convert: Function, model: Any) -> str:
    """Check `convert`, the converter of the operator ``com.example::Mish``.

    `model` makes an ONNX model with one such operator, of inputs of the shape (4, 5). It takes the
    operator's attribute ``beta``.
    """
    x = np.linspace(-6, 6, 20, dtype="float32").reshape(4, 5)
    for beta in (1.0, 2.0):
        mod = load(model(beta), converters={"com.example::Mish": convert})
        found = np.asarray(compile(mod)(x))
        wanted = x * np.tanh(np.log1p(np.exp(beta * x)) / beta)
        judge.same_values(found, wanted, f"the result for beta={beta:g}", tolerance=1e-4)
    return "the operator is imported, and its attribute is used"


@exercise
def check_first_difference(first_difference: Function) -> str:
    """Check `first_difference`, which names the first value that differs from its reference.

    It takes a list of names, and two lists of arrays.
    """
    ones, far, bad = np.ones(4, "float32"), np.full(4, 1.5, "float32"), np.full(4, np.nan)
    noise, spot, names = np.array([1, 1, 1, 1 + 1e-6], "float32"), np.eye(4)[0], ["a", "b", "c"]
    cases = {
        "if all values are equal": ([ones] * 3, [ones] * 3, None),
        "if only rounding errors differ": ([noise] * 3, [ones] * 3, None),
        "for large values with rounding errors": ([1e6 * noise] * 3, [1e6 * ones] * 3, None),
        "if two values differ, the second more": ([ones, far, 9 * far], [ones] * 3, "b"),
        "for small values": ([1e-6 * ones, 1e-6 * far, ones], [1e-6 * ones] * 2 + [ones], "b"),
        "for a rounding error beside a zero": ([spot + 1e-7, ones, ones], [spot, ones, ones], None),
        "if differences cancel": ([ones, ones, ones + spot - spot[::-1]], [ones] * 3, "c"),
        "if a value is NaN": ([ones, bad, bad], [ones] * 3, "b"),
    }
    for what, (have, want, wanted) in cases.items():
        with np.errstate(all="ignore"):
            name = call(first_difference, names, have, want, returns=False)
        require(name == wanted, f"{what}, it returns {name!r}, expected {wanted!r}")
    return "rounding errors are left out, and NaN is found"
