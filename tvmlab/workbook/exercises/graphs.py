"""The checks of notebooks 03, 04, 05, 06, 10 and 11: models, patterns, rewrites and regions."""

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
from ...qnn.analysis import float_operators
from ...qnn.transform import FakeQuantizationToInteger
from ...runtime.executable import Executable
from ...schedule import Tile
from ...support.extras import need
from . import judge
from .judge import Function, Wrong, call, exercise, require

SMOOTH = 16  # pixels of a side of the blocks whose means are compared
CLOSE = 5  # of 255: right ways to scale differ by 2, and a right cut from a wrong one by 13
LANES, REGISTERS = 8, 16  # what AVX2 has for float32
LATENCY = 8  # with fewer sums in progress, each waits for itself

RANGES = [(0.0, 2.0), (-1.2, 2.0), (-4.0, 0.0), (0.5, 2.0), (-3.0, -1.0), (-0.7, 2.0)]
LOWEST, HIGHEST = -128, 127  # of an int8
ENOUGH = 1.01  # times the smallest scale, because a rounded zero point costs a part of a step
STEP = 0.05  # how far the repaired network's result can be off: its last scale and a little more

DIGITS = (64, 64, 3, 3)  # the largest weights in the network of the digits
PICTURES = [*range(19), 25]  # the last is nowhere as bright as a scan can be
# The larger of the two below; the other has more channels, is the last, and has the larger sum.
FIRST, SECOND = (2, 4, 9, 9), (32, 2, 1, 1)

AROUND = "[[0, 0], [0, 0], [1, 1], [1, 1]]"  # the widths of a pad
GIVEN = (0.25, 0, 0.5, 0, 0.5, 0)  # scale and zero point: of the operands, and of the result
SIZE = 64  # rows and columns of the matrices


@exercise
def check_crop(
    resize_and_crop: Function, photograph: np.ndarray, *, shorter: int, side: int
) -> str:
    """Check `resize_and_crop`, which scales the shorter side and cuts a square out of the middle.

    It takes a picture, uint8 of the shape (height, width, 3), such as `photograph`, and returns one
    of (side, side, 3). `shorter` is the shorter side of the scaled picture.
    """
    high = np.ascontiguousarray(photograph.transpose(1, 0, 2))
    for picture, which in ((photograph, ""), (high, ", for a picture that is higher than wide")):
        found = call(resize_and_crop, picture.copy())
        cropped = judge.same_shape(found, (side, side, 3), f"the result{which.removeprefix(',')}")
        apart, why = min((_apart(cropped, cut), why) for why, cut in _cuts(picture, shorter, side))
        far = f"it is {apart:.0f} of 255 from a cut of the picture, on average{which}"
        require(apart <= CLOSE, far)  # NaN is wrong as well
        require(not why, f"{why}{which}")
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
    yield f"the shorter side is scaled to {side} pixels, not to {shorter}", middle(scaled(side))
    yield "the picture is cut, and was not scaled before", middle(picture)


@exercise
def check_batch(sixteen: Executable, pictures: np.ndarray, classes: np.ndarray) -> str:
    """Check `sixteen`, a network that is compiled for sixteen pictures at once.

    `pictures` are float32 of the shape (n, 1, 8, 8), and `classes` are integers of the shape (n,).
    """
    judge.of_type(sixteen, Executable, "sixteen", "an executable: compile what you load")
    declared, wanted = sixteen.signature.inputs[0].shape, (16, *pictures.shape[1:])
    loose = [f": {size} can be any number" for size in declared if isinstance(size, str)]
    why = f"the executable takes {declared}, expected {wanted}{''.join(loose[:1])}"
    require(declared == wanted, why)
    found = np.asarray(sixteen(pictures[:16])).argmax(axis=1)
    judge.same_values(found, classes[:16], "the classes")
    return "sixteen at once, all as before"


@exercise
def check_tile_choice(tile: Tile) -> str:
    """Check `tile`, a register tile that fits the sixteen registers of AVX2."""
    judge.of_type(tile, Tile, "my_tile", "a Tile")
    pixels, vectors = tile.rows * tile.columns, math.ceil(tile.channels / LANES)
    wanted, sums = (pixels + 1) * vectors + 1, pixels * vectors
    size = f"{tile.rows} x {tile.columns} pixels with {tile.channels} channels"
    have = f"{wanted} registers of {LANES} lanes, and there are {REGISTERS}"
    require(wanted <= REGISTERS, f"{size}: {have}")
    few = f"{sums} vectors of sums: with fewer than {LATENCY}, each waits for itself"
    require(sums >= LATENCY, few)
    return f"the tile wants {wanted} of the {REGISTERS} registers"


@exercise
def check_choose(choose: Function) -> str:
    """Check `choose`, which chooses the scale and the zero point of an int8.

    It takes the lowest and the highest value.
    """
    for low, high in RANGES:
        what = f"for {low} to {high}, the"
        scale, zero = map(float, call(choose, low, high))
        exact = f"{what} zero point {zero:.6g} is not whole, and so 0.0 not exact"
        require(zero.is_integer(), exact)
        fits = f"{what} zero point {zero:.0f} is no int8: 0.0 lies outside of the range"
        require(LOWEST <= zero <= HIGHEST, fits)
        first, last = scale * (LOWEST - zero), scale * (HIGHEST - zero)
        reach = f"the int8 reach from {first:.2f} to {last:.2f}"
        reached = first <= low + scale / 2 and last >= high - scale / 2
        require(reached, f"{what.removesuffix('the')}{reach} only")
        smallest = (max(high, 0) - min(low, 0)) / (HIGHEST - LOWEST)
        larger = f"{what} scale {scale:.5f} is larger than it need be, and {reach}"
        require(scale <= ENOUGH * smallest, larger)
    return "zero is exact, and every value has its place"


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
    return f"the same in all {len(expected)}"


@exercise
def check_mended(text: str) -> str:
    """Check `text`, a network in ONNX's text form that comes out all in integers.

    It takes and returns float32 of the shape (1, 8).
    """
    parser = need("onnx.parser", extra="onnx")
    try:
        proto = parser.parse_model(text)
    except parser.ParseError as error:
        raise Wrong(f"the text is no network: {error.args[0].decode()}") from error
    mended = FakeQuantizationToInteger()(load(proto))  # type: ignore[operator]
    left = float_operators(mended)
    require(not left, "; ".join(f"{found.operator} is float: {found.reason}" for found in left))
    sample = np.linspace(-2, 2, 8, dtype="float32")[np.newaxis]
    found = np.asarray(compile(mended)(sample))
    judge.same_values(found, np.maximum(sample, 0) + sample, "the result", tolerance=STEP)
    return "all in integers, and the same results"


@exercise
def check_largest(largest: Function) -> str:
    """Check `largest`, which finds the shape of the largest convolution weights of a module."""
    x = relay.var("x", shape=(1, 4, 9, 9))
    first, second = (relay.const(np.ones(shape, "float32")) for shape in (FIRST, SECOND))
    product = relax.op.nn.conv2d(relax.op.nn.conv2d(x, first), second)
    two = relay.IRModule.from_expr(relay.Function([x], product))
    found, other = (tuple(call(largest, mod)) for mod in (load(models.digits_resnet()), two))
    smaller = f"the network of the digits has larger weights than {found}"
    require(math.prod(found) >= math.prod(DIGITS), smaller)
    none = f"the network of the digits has no convolution with weights of {found}"
    require(found == DIGITS, none)
    counted = f"of weights of the shapes {FIRST} and {SECOND} it gives {other}: count the numbers"
    require(other == FIRST, f"{counted}, which is the product of the sizes")
    return f"{found} {other}"


@exercise
def check_as_input(
    as_input: Function, *, pixels: int, scanned: tuple[int, int], trained: tuple[int, int]
) -> str:
    """Check `as_input`, which makes an input of the digits' network of a scanned picture.

    It takes uint8 of the shape (pixels, pixels). `scanned` and `trained` are the lowest and the
    highest number of a scan, and of what the network was trained on; both lowest ones are zero.
    """
    run, digits = _network(), models.digits()
    right = 0
    for wanted, answer in zip(digits.x_test[PICTURES], digits.y_test[PICTURES], strict=True):
        scan = (wanted.reshape(pixels, pixels) * scanned[1] / trained[1]).astype("uint8")
        data = call(as_input, scan)
        scores = run(data)
        judge.same_values(data, wanted[np.newaxis], "the input")
        right += int(np.argmax(scores) == answer)
    return f"{right} of {len(PICTURES)} are read"


@functools.cache
def _network() -> Executable:
    """Compile the network once: the check is called for every try."""
    return compile(load(models.digits_resnet()))


@exercise
def check_pad_stops(
    broken: Function, best: Function, padded: tvm.IRModule, bare: tvm.IRModule
) -> str:
    """Check `broken`, whose pattern takes a convolution without a pad, and stops at a pad.

    `best` is the notebook's function: it says how far a pattern's best attempt came in a module.
    `padded` and `bare` are the convolution with a pad, and without.
    """
    pattern = judge.relay_pattern(broken, "broken")
    at, where = (_stops(best(pattern, mod)[1]) for mod in (padded, bare))
    taken, found = (pattern.match(mod["main"].body) for mod in (padded, bare))
    require(not taken, "it takes the form from TFLite, and so a convolution with a pad")
    why = "its operators are there, so count their operands, and look at its last one"
    why = f"there it stops at {where}" if where else why
    require(found, f"it does not take the convolution without a pad: {why}")
    require(at == "nn.pad", f"it stops at {at or 'no call'}, expected nn.pad")
    return "it stops at the pad, and only there"


def _stops(reached: dict[relax.Expr, str]) -> str:
    """List the operators at which the pattern's best attempt stops."""
    stops = [one for one, kind in reached.items() if "stops" in kind]
    names = [one.op.name for one in stops if isinstance(one, relax.Call)]
    return ", ".join(name.removeprefix("relax.") for name in names)


@exercise
def check_drop_requantize(drop_requantize: Function, chain: tvm.IRModule) -> str:
    """Check `drop_requantize`, a pass that takes out a requantize that changes nothing.

    `chain` is the notebook's example: four requantizes, the first of which changes nothing.
    """
    found = judge.changed(drop_requantize, chain, "drop_requantize")
    gone = 4 - relay.analysis.list_op_freqs(found).get("qnn.requantize", 0)
    why = f"{gone} are gone, and only one of the four changes neither scale nor zero point nor type"
    few = {0: "all four are left", 1: "one is gone, and the module is not what is left"}
    left = [(0.5, 3, 0.5, 3, "uint8"), (0.5, 3, 0.5, 4, "uint8"), (0.5, 4, 0.25, 4, "uint8")]
    _same(found, _requantizes((1, 4), "int8", left), few.get(gone, why))
    # The first and the last of these change nothing.
    left = [(0.25, 7, 0.125, 7, "uint8"), (0.125, 7, 0.125, 7, "int8")]
    steps = [(0.25, 7, 0.25, 7, "uint8"), *left, (0.125, 7, 0.125, 7, "int8")]
    given, wanted = (_requantizes((2, 3), "uint8", some) for some in (steps, left))
    why = "the example is right, and another chain is not: compare the scale, the zero point and "
    why += "the type of each, whatever they are"
    _same(judge.changed(drop_requantize, given, "drop_requantize"), wanted, why)
    return "what changes nothing is gone, and the other three are left"


@exercise
def check_fold_pad(fold_pad: Function, padded: tvm.IRModule, bare: tvm.IRModule) -> str:
    """Check `fold_pad`, a pass that folds a pad into the quantized convolution behind it.

    `padded` is the notebook's convolution with a pad, and `bare` what it must become.
    """
    value, mirrored = _padded(AROUND, value="0f"), _padded(AROUND, mode="reflect")
    askew = _padded("[[0, 0], [0, 0], [1, 0], [2, 1]]", padding="[2, 0, 0, 0]")
    more = _padded("[[0, 1], [0, 0], [0, 0], [0, 0]]")
    sides = "a pad of another width on each side goes to the wrong sides, or the convolution's own "
    sides += "padding is lost"
    mirrors = "a pad that mirrors the picture has to stay: a convolution's own padding puts one "
    mirrors += "value"
    for given, wanted, why in (
        (padded, bare, "the pad is gone, and the result is another convolution"),
        (value, value, "a pad with another value than the zero point has to stay"),
        (askew, _padded("", padding="[3, 2, 0, 1]"), sides),
        (more, more, "a pad of the batch has to stay"),
        (mirrored, mirrored, mirrors),
    ):
        found = judge.changed(fold_pad, given, "fold_pad")
        there = given is not wanted and "nn.pad" in relay.analysis.list_op_freqs(found)
        _same(found, wanted, "the pad is there" if there else why)
    return "the convolution pads by itself, on every side as much as the pad did"


def _requantizes(
    shape: tuple[int, ...], dtype: str, steps: Sequence[tuple[float, int, float, int, str]]
) -> tvm.IRModule:
    """Make a chain of requantizes: scale and zero point before and after, and the type after."""
    value = x = relay.var("x", shape=shape, dtype=dtype)
    for *numbers, new_dtype in steps:
        value = relay.qnn.op.requantize(value, *map(relay.const, numbers), out_dtype=new_dtype)
    return relay.IRModule.from_expr(relay.Function([x], value))


def _padded(
    width: str, *, value: str = "7f", mode: str = "constant", padding: str = "[0, 0, 0, 0]"
) -> tvm.IRModule:
    """Make a convolution whose input has the zero point 7, behind a pad if it has a width."""
    pad = f'nn.pad(%x, {value}, pad_width={width}, pad_mode="{mode}")' if width else "%x"
    text = f"""#[version = "0.0.5"]
def @main(%x: Tensor[(1, 1, 8, 8), uint8], %w: Tensor[(1, 1, 3, 3), int8]) {{
  qnn.conv2d({pad}, %w, 7, 0, 0.5f, 0.25f, padding={padding}, channels=1, kernel_size=[3, 3], \
out_dtype="int32")
}}
"""
    return relay.fromtext(text, {"w": np.ones((1, 1, 3, 3), "int8")})


def _same(found: tvm.IRModule, wanted: tvm.IRModule, why: str) -> None:
    """Compare two modules as Relay's text, in which names and order of variables do not count."""
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
        require(not floats, "it takes an addition of floats, expected qnn.add")
        why = "it does not take a quantized addition: qnn.add of two tensors, and of six constants "
        raise Wrong(f"{why}that need not be equal")
    for place in range(len(GIVEN)):
        what, dtype = ("zero point", "int32") if place % 2 else ("scale", "float32")
        unknown = relay.var("unknown", shape=(), dtype=dtype)
        taken = pattern.match(add(x, y, *given[:place], unknown, *given[place + 1 :]))
        require(not taken, f"it takes a {what} that is not known when the network is compiled")
    taken = pattern.match(relay.qnn.op.mul(x, y, *given))
    require(not taken, "it takes a quantized multiplication as well, expected qnn.add alone")
    entry: Any = ("tvmlab_npu.add", pattern)
    parts = npu.partition(network, patterns=[*table, entry])
    count = len(regions(parts))
    require(count == 1, f"the network is in {count} regions, expected one")
    moved = sum(row.moved for row in npu.report(parts).layers)
    return f"one region, {moved:,} bytes moved"


@exercise
def check_bill(by_hand: Function, run: Function, wanted: np.ndarray, once: int) -> str:
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
        raise Wrong(f"the machine refuses it: {error.what}") from error
    judge.same_values(sums, wanted, "the sums")
    bill = f"{moved:,} bytes moved in {cycles:,} cycles"
    again = f"{bill}; {once:,} bytes would do: which tensor is loaded again?"
    require(moved <= once, again)
    return bill


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
        "a tanh behind the layer": relax.op.tanh(layer),
        "a ReLU of anything": relax.op.nn.relu(a),
        "a sum without a product": relax.op.add(a, b),
        "a convolution with a bias": relax.op.add(relax.op.nn.conv2d(picture, filters), c),
        "a second ReLU": relax.op.nn.relu(relax.op.nn.relu(layer)),
    }
    missed = [what for what, graph in takes.items() if not pattern.match(graph)]
    why = f"it does not take {' nor '.join(missed)}: weights and bias can be anything"
    require(not missed, why)
    taken = [what for what, graph in leaves.items() if pattern.match(graph)]
    require(not taken, f"it takes too much: {', '.join(taken)}")
    return "a dense layer with its bias, and nothing else"


@exercise
def check_drop_one(simplified: Function) -> str:
    """Check `simplified`, which takes multiplications by one out of a function of Relax."""
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
    why = "more is gone than what multiplies by one"
    if products > 1:
        why = f"{products} multiplications are left, expected the doubling alone"
    shown = judge.difference(*(mod["main"].script() for mod in plain))
    require(structural_equal(*plain), f"{why}\n{shown}")
    return "what multiplies by one is gone, the doubling is not"
