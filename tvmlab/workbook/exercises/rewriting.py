"""The checks of notebooks 05 Match and rewrite, 06 Partition and 10 Move from Relay to Relax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, s_tir, te
from tvm.relax import dpl
from tvm_ffi import structural_equal

from ... import npu, relay
from ...errors import TvmlabError
from ...ir.patterns import DFPattern
from ...npu.codegen import regions
from ...npu.isa import Instruction
from .judge import Wrong, call, changed, difference, exercise, of_type, relay_pattern, same_values

Best = Callable[..., tuple[list[relax.Expr], dict[relax.Expr, str], list[str]]]
Pass = Callable[[tvm.IRModule], tvm.IRModule]
AROUND = "[[0, 0], [0, 0], [1, 1], [1, 1]]"  # the widths of a pad
GIVEN = (0.25, 0, 0.5, 0, 0.5, 0)  # scale and zero point: of the operands, and of the result
SIZE = 64  # rows and columns of the matrices
HIGH, WIDE = 16, 32  # of a block


@exercise
def check_pad_stops(
    broken: Callable[[], Any], best: Best, padded: tvm.IRModule, bare: tvm.IRModule
) -> str:
    """Check a pattern that takes a convolution without a pad, and stops at a pad.

    `broken` returns the pattern. `best` is the notebook's function: it takes a pattern and a
    module, and returns the expressions of the module, how far the pattern's best attempt came at
    each, and why it stopped. `padded` and `bare` are the convolution with a pad, and without.
    """
    pattern = relay_pattern(broken, "broken")
    at, where = (_stops(best(pattern, mod)[1]) for mod in (padded, bare))
    if pattern.match(padded["main"].body):
        raise Wrong("it takes the form from TFLite, and so a convolution with a pad")
    if not pattern.match(bare["main"].body):
        why = "its operators are there, so count their operands, and look at its last one"
        if where:
            why = f"there it stops at {where}"
        raise Wrong(f"it does not take the convolution without a pad: {why}")
    if at != "nn.pad":
        raise Wrong(f"it stops at {at or 'no call'}, expected nn.pad")
    return "it stops at the pad, and only there"


def _stops(reached: dict[relax.Expr, str]) -> str:
    """List the operators at which the pattern's best attempt stops."""
    stops = [one for one, kind in reached.items() if "stops" in kind]
    names = [one.op.name for one in stops if isinstance(one, relax.Call)]
    return ", ".join(name.removeprefix("relax.") for name in names)


@exercise
def check_drop_requantize(drop_requantize: Pass, chain: tvm.IRModule) -> str:
    """Check a pass that takes out a requantize that changes nothing.

    `drop_requantize` takes a module and returns the new one; `chain` is the notebook's example:
    four requantizes, the first of which changes nothing.
    """
    found = changed(drop_requantize, chain, "drop_requantize")
    gone = 4 - relay.analysis.list_op_freqs(found).get("qnn.requantize", 0)
    why = {0: "all four are left", 1: "one is gone, and the module is not what is left"}
    others = (
        f"{gone} are gone, and only one of the four changes neither scale nor zero point nor type"
    )
    left = [(0.5, 3, 0.5, 3, "uint8"), (0.5, 3, 0.5, 4, "uint8"), (0.5, 4, 0.25, 4, "uint8")]
    _same(found, _requantizes((1, 4), "int8", left), why.get(gone, others))
    # The first and the last of these change nothing.
    left = [(0.25, 7, 0.125, 7, "uint8"), (0.125, 7, 0.125, 7, "int8")]
    steps = [(0.25, 7, 0.25, 7, "uint8"), *left, (0.125, 7, 0.125, 7, "int8")]
    given, wanted = (_requantizes((2, 3), "uint8", some) for some in (steps, left))
    why_other = (
        "the example is right, and another chain is not: compare the scale, the zero point and "
        "the type of each, whatever they are"
    )
    _same(changed(drop_requantize, given, "drop_requantize"), wanted, why_other)
    return "what changes nothing is gone, and the other three are left"


@exercise
def check_fold_pad(fold_pad: Pass, padded: tvm.IRModule, bare: tvm.IRModule) -> str:
    """Check a pass that folds a pad into the quantized convolution behind it.

    `fold_pad` takes a module and returns the new one; `padded` is the notebook's convolution with a
    pad, and `bare` what it must become.
    """
    value = _padded(AROUND, value="0f")
    askew = _padded("[[0, 0], [0, 0], [1, 0], [2, 1]]", padding="[2, 0, 0, 0]")
    more = _padded("[[0, 1], [0, 0], [0, 0], [0, 0]]")
    mirrored = _padded(AROUND, mode="reflect")
    cases = {
        "the pad is gone, and the result is another convolution": (padded, bare),
        "a pad with another value than the zero point has to stay": (value, value),
        "a pad of another width on each side goes to the wrong sides, or the convolution's own "
        "padding is lost": (askew, _padded("", padding="[3, 2, 0, 1]")),
        "a pad of the batch has to stay": (more, more),
        "a pad that mirrors the picture has to stay: a convolution's own padding puts one value": (
            (mirrored, mirrored)
        ),
    }
    for why, (given, wanted) in cases.items():
        found = changed(fold_pad, given, "fold_pad")
        if given is not wanted and "nn.pad" in relay.analysis.list_op_freqs(found):
            why = "the pad is there"
        _same(found, wanted, why)
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
        raise Wrong(f"{why}\n{difference(*shown)}")


@exercise
def check_addition_pattern(
    addition: Callable[[], DFPattern], network: tvm.IRModule, table: Sequence[Any]
) -> str:
    """Check the pattern of a quantized addition, alone and in a network.

    `addition` returns the pattern; `network` is a quantized network with additions, and `table` a
    pattern table of `npu` without one for additions.
    """
    pattern = relay_pattern(addition, "addition")
    add, given = relay.qnn.op.add, [relay.const(value) for value in GIVEN]
    x, y = (relay.var(name, shape=(1, 4), dtype="int8") for name in "xy")
    if not pattern.match(add(x, y, *given)):
        if pattern.match(relay.add(relay.var("x", shape=(1, 4)), relay.const(1.0))):
            raise Wrong("it takes an addition of floats, expected qnn.add")
        raise Wrong(
            "it does not take a quantized addition: qnn.add of two tensors, and of six constants "
            "that need not be equal"
        )
    for place in range(len(GIVEN)):
        what, dtype = ("zero point", "int32") if place % 2 else ("scale", "float32")
        unknown = relay.var("unknown", shape=(), dtype=dtype)
        if pattern.match(add(x, y, *given[:place], unknown, *given[place + 1 :])):
            raise Wrong(f"it takes a {what} that is not known when the network is compiled")
    if pattern.match(relay.qnn.op.mul(x, y, *given)):
        raise Wrong("it takes a quantized multiplication as well, expected qnn.add alone")
    entry: Any = ("tvmlab_npu.add", pattern)
    parts = npu.partition(network, patterns=[*table, entry])
    if (count := len(regions(parts))) != 1:
        raise Wrong(f"the network is in {count} regions, expected one")
    moved = sum(row.moved for row in npu.report(parts).layers)
    return f"one region, {moved:,} bytes moved"


@exercise
def check_bill(
    by_hand: Callable[[], Sequence[Any]],
    judge: Callable[[Sequence[Any]], tuple[np.ndarray, int, int]],
    wanted: np.ndarray,
    once: int,
) -> str:
    """Check a layer by hand that moves every byte once.

    `by_hand` returns the layer's instructions. `judge` is the notebook's function: it runs
    instructions and returns the sums, the bytes moved, and the cycles. `wanted` is the right sums,
    int32 of the shape (64, 64), and `once` the bytes of all tensors.
    """
    steps = call(by_hand)
    for place, step in enumerate(steps):
        if not isinstance(step, Instruction):
            fix = f": call it, {step.__name__}()" if callable(step) else ""
            raise Wrong(f"what stands at {place} in the list is no instruction{fix}")
    try:
        sums, moved, cycles = judge(steps)
    except TvmlabError as error:
        raise Wrong(f"the machine refuses it: {error.what}") from error
    same_values(sums, wanted, "the sums")
    if moved > once:
        raise Wrong(
            f"{moved:,} bytes moved in {cycles:,} cycles; {once:,} bytes would do: which tensor is "
            "loaded again?"
        )
    return f"{moved:,} bytes moved in {cycles:,} cycles"


@exercise
def check_dense_pattern(dense_pattern: Callable[[], dpl.DFPattern]) -> str:
    """Check the pattern of a dense layer with a bias, and a ReLU or none.

    `dense_pattern` returns the pattern.
    """
    pattern = of_type(call(dense_pattern), dpl.DFPattern, "it", "a pattern of relax.dpl")
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
    if missed := [what for what, graph in takes.items() if not pattern.match(graph)]:
        raise Wrong(f"it does not take {' nor '.join(missed)}: weights and bias may be anything")
    if taken := [what for what, graph in leaves.items() if pattern.match(graph)]:
        raise Wrong(f"it takes too much: {', '.join(taken)}")
    return "a dense layer with its bias, and nothing else"


@exercise
def check_drop_one(simplified: Callable[[relax.Function], relax.Function]) -> str:
    """Check a rewrite that takes out multiplications by one.

    `simplified` takes a function of Relax and returns the new one.
    """
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
    if not structural_equal(*plain):
        products = relay.analysis.list_op_freqs(plain[0]).get("multiply", 0)
        why = "more is gone than what multiplies by one"
        if products > 1:
            why = f"{products} multiplications are left, expected the doubling alone"
        raise Wrong(f"{why}\n{difference(*(mod['main'].script() for mod in plain))}")
    return "what multiplies by one is gone, the doubling is not"


@exercise
def check_blocked(blocked: Callable[[s_tir.Schedule], object]) -> str:
    """Check a schedule that blocks and vectorizes a product of two matrices.

    `blocked` changes the schedule that it is given; what it returns does not matter.
    """
    a, b = (te.placeholder((SIZE, SIZE), name=name) for name in "AB")
    axis = te.reduce_axis((0, SIZE), name="k")
    c = te.compute((SIZE, SIZE), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    mine, other = (s_tir.Schedule(te.create_prim_func([a, b, c])) for _ in range(2))
    call(blocked, mine, returns=False)
    i, j, k = other.get_loops(other.get_sblock("C"))
    (i_outer, i_inner), (j_outer, j_inner) = (
        other.split(loop, [None, factor]) for loop, factor in ((i, HIGH), (j, WIDE))
    )
    other.reorder(i_outer, j_outer, k, i_inner, j_inner)
    other.vectorize(j_inner)
    if structural_equal(mine.mod["main"], other.mod["main"]):
        return "blocked and vectorized as the old script did"
    loops, wanted = (
        [sch.get(loop) for loop in sch.get_loops(sch.get_sblock("C"))] for sch in (mine, other)
    )
    lengths, expected = ([int(loop.extent) for loop in each] for each in (loops, wanted))
    why = "it computes in another way"
    if lengths != expected:
        why = f"the loops, from outside, have the lengths {lengths}, expected {expected}"
    elif [loop.kind for loop in loops] != [loop.kind for loop in wanted]:
        why = "the last loop, and no other, should be vectorized"
    raise Wrong(f"{why}\n{difference(*(sch.mod['main'].script() for sch in (mine, other)))}")
