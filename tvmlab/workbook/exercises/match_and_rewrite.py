"""The checks of notebook 05, Match and rewrite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ... import relay
from .judge import Wrong, changed, difference, exercise, relay_pattern

Best = Callable[..., tuple[list[relax.Expr], dict[relax.Expr, str], list[str]]]
Pass = Callable[[tvm.IRModule], tvm.IRModule]
AROUND = "[[0, 0], [0, 0], [1, 1], [1, 1]]"  # the widths of a pad


@exercise
def check_pad_stops(
    broken: Callable[[], Any], best: Best, padded: tvm.IRModule, bare: tvm.IRModule
) -> str:
    """Check a pattern that takes a convolution without a pad, and stops at a pad.

    Parameters
    ----------
    broken : callable
        Returns the pattern.
    best : callable
        The notebook's function: takes a pattern and a module, and returns the expressions of the
        module, how far the pattern's best attempt came at each, and why it stopped.
    padded, bare : tvm.IRModule
        The convolution with a pad, and without.
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
    calls = [
        one for one, kind in reached.items() if isinstance(one, relax.Call) and "stops" in kind
    ]
    return ", ".join(one.op.name.removeprefix("relax.") for one in calls)


@exercise
def check_drop_requantize(drop_requantize: Pass, chain: tvm.IRModule) -> str:
    """Check a pass that takes out a requantize that changes nothing.

    Parameters
    ----------
    drop_requantize : callable
        Takes a module and returns the new one.
    chain : tvm.IRModule
        The notebook's example: four requantizes, the first of which changes nothing.
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
    steps = [
        (0.25, 7, 0.25, 7, "uint8"),
        (0.25, 7, 0.125, 7, "uint8"),
        (0.125, 7, 0.125, 7, "int8"),
        (0.125, 7, 0.125, 7, "int8"),
    ]
    given, wanted = (_requantizes((2, 3), "uint8", some) for some in (steps, steps[1:3]))
    _same(
        changed(drop_requantize, given, "drop_requantize"),
        wanted,
        "the example is right, and another chain is not: compare the scale, the zero point and "
        "the type of each, whatever they are",
    )
    return "what changes nothing is gone, and the other three are left"


@exercise
def check_fold_pad(fold_pad: Pass, padded: tvm.IRModule, bare: tvm.IRModule) -> str:
    """Check a pass that folds a pad into the quantized convolution behind it.

    Parameters
    ----------
    fold_pad : callable
        Takes a module and returns the new one.
    padded, bare : tvm.IRModule
        The notebook's convolution with a pad, and what it must become.
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
        given = [relay.const(number) for number in numbers]
        value = relay.qnn.op.requantize(value, *given, out_dtype=new_dtype)
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
