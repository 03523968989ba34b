"""The checks of notebook 05, Match and rewrite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import dpl

from .. import relay
from ..ir.patterns import DFPattern, DFPatternCallback, is_op, rewrite
from .ir import changed, difference, relay_pattern
from .verdict import NotYet, asking, exercise

__all__ = ["check_drop_requantize", "check_fold_pad", "check_pad_stops"]

FIXED = '#[version = "0.0.5"]\n'
# The example of the notebook without the requantize that changes nothing.
DROPPED = """def @main(%x: Tensor[(1, 4), int8]) {
  %0 = qnn.requantize(%x, 0.5f, 3, 0.5f, 3, out_dtype="uint8");
  %1 = qnn.requantize(%0, 0.5f, 3, 0.5f, 4, out_dtype="uint8");
  qnn.requantize(%1, 0.5f, 4, 0.25f, 4, out_dtype="uint8")
}
"""
# Where the backend wants constants: the operands of each operator that it names.
KNOWN = {"qnn.conv2d": range(1, 6), "nn.bias_add": range(1, 2), "qnn.requantize": range(1, 5)}
REQUANTIZES = 4  # in the notebook's example
# Another, of which the first and the last change nothing.
OTHER = """def @main(%x: Tensor[(2, 3), uint8]) {
  %0 = qnn.requantize(%x, 0.25f, 7, 0.25f, 7, out_dtype="uint8");
  %1 = qnn.requantize(%0, 0.25f, 7, 0.125f, 7, out_dtype="uint8");
  %2 = qnn.requantize(%1, 0.125f, 7, 0.125f, 7, out_dtype="int8");
  qnn.requantize(%2, 0.125f, 7, 0.125f, 7, out_dtype="int8")
}
"""
OTHER_DROPPED = """def @main(%x: Tensor[(2, 3), uint8]) {
  %0 = qnn.requantize(%x, 0.25f, 7, 0.125f, 7, out_dtype="uint8");
  qnn.requantize(%0, 0.125f, 7, 0.125f, 7, out_dtype="int8")
}
"""
# A pad with another width on each side, before a convolution that pads already.
ASKEW = """def @main(%x: Tensor[(1, 1, 8, 8), uint8], %w: Tensor[(1, 1, 3, 3), int8]) {
  %0 = nn.pad(%x, 7f, pad_width=[[0, 0], [0, 0], [1, 0], [2, 1]]);
  qnn.conv2d(%0, %w, 7, 0, 0.5f, 0.25f, padding=[2, 0, 0, 0], channels=1, kernel_size=[3, 3], \
out_dtype="int32")
}
"""
FOLDED = """def @main(%x: Tensor[(1, 1, 8, 8), uint8], %w: Tensor[(1, 1, 3, 3), int8]) {
  qnn.conv2d(%x, %w, 7, 0, 0.5f, 0.25f, padding=[3, 2, 0, 1], channels=1, kernel_size=[3, 3], \
out_dtype="int32")
}
"""
# Its borders are what stands beside them, though a value is named that is the zero point.
MIRRORED = """def @main(%x: Tensor[(1, 1, 8, 8), uint8], %w: Tensor[(1, 1, 3, 3), int8]) {
  %0 = nn.pad(%x, 7f, pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]], pad_mode="reflect");
  qnn.conv2d(%0, %w, 7, 0, 0.5f, 0.25f, padding=[0, 0, 0, 0], channels=1, kernel_size=[3, 3], \
out_dtype="int32")
}
"""
# A picture more, with the zero point everywhere: no padding of a convolution does that.
MORE = """def @main(%x: Tensor[(1, 1, 8, 8), uint8], %w: Tensor[(1, 1, 3, 3), int8]) {
  %0 = nn.pad(%x, 7f, pad_width=[[0, 1], [0, 0], [0, 0], [0, 0]]);
  qnn.conv2d(%0, %w, 7, 0, 0.5f, 0.25f, padding=[0, 0, 0, 0], channels=1, kernel_size=[3, 3], \
out_dtype="int32")
}
"""


@exercise
def check_pad_stops(
    broken: Callable[[], Any],
    best: Callable[..., tuple[list[relax.Expr], dict[relax.Expr, str], list[str]]],
    padded: tvm.IRModule,
    bare: tvm.IRModule,
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
    with asking("the pattern cannot be followed"):
        at, where = (_stops(best(pattern, mod)[1]) for mod in (padded, bare))
    if pattern.match(padded["main"].body):
        raise NotYet("it takes the form from TFLite, and so a convolution with a pad")
    if not pattern.match(bare["main"].body):
        why = (
            f"there it stops at {where}"
            if where
            else "its operators are there, so count their operands, and look at its last one"
        )
        raise NotYet(f"it does not take the convolution without a pad: {why}")
    if at != "nn.pad":
        raise NotYet(f"it stops at {at or 'no call'}, expected nn.pad")
    _demands_constants(pattern, bare)
    return "it stops at the pad, and only there"


def _demands_constants(pattern: DFPattern, bare: tvm.IRModule) -> None:
    """See that what the pattern demanded besides the pad it still demands."""
    for operator, operands in KNOWN.items():
        for place in operands:
            if pattern.match(rewrite(_Free(operator, place), bare["main"].body)):
                raise NotYet(
                    f"it stops at the pad, but takes a {operator} whose operand {place} is not "
                    "known when the network is compiled: change what stands in front of the "
                    "convolution, and nothing else"
                )


class _Free(DFPatternCallback):
    """Puts a variable where an operator has a constant."""

    def __init__(self, operator: str, place: int) -> None:
        super().__init__(rewrite_once=True)
        self.pattern = is_op(operator)(None)
        self.place = place

    def callback(self, pre: relax.Expr, post: relax.Expr, node_map: Any) -> relax.Expr:
        operands = list(post.args)
        operands[self.place] = relax.Var("free", operands[self.place].ty)
        return relax.Call(post.op, operands, post.attrs, post.ty_args)


def _stops(reached: dict[relax.Expr, str]) -> str:
    """List the operators at which the pattern's best attempt stops."""
    calls = [
        one for one, kind in reached.items() if isinstance(one, relax.Call) and "stops" in kind
    ]
    return ", ".join(one.op.name.removeprefix("relax.") for one in calls)


@exercise
def check_drop_requantize(
    drop_requantize: Callable[[tvm.IRModule], tvm.IRModule], chain: tvm.IRModule
) -> str:
    """Check a pass that takes out a requantize that changes nothing.

    Parameters
    ----------
    drop_requantize : callable
        Takes a module and returns the new one.
    chain : tvm.IRModule
        The notebook's example: four requantizes, the first of which changes nothing.
    """
    found = _module(drop_requantize, chain)
    wanted = relay.fromtext(FIXED + DROPPED)
    left = relay.analysis.list_op_freqs(found).get("qnn.requantize", 0)
    if left == REQUANTIZES:
        raise NotYet(f"all four are left\n{_shown(found, wanted)}")
    if left < REQUANTIZES - 1:
        gone = REQUANTIZES - left
        raise NotYet(
            f"{gone} are gone, and only one of the four changes neither scale nor zero point nor "
            f"type\n{_shown(found, wanted)}"
        )
    if not _same(found, wanted):
        raise NotYet(f"one is gone, and the module is not what is left\n{_shown(found, wanted)}")
    other, wanted = (relay.fromtext(FIXED + text) for text in (OTHER, OTHER_DROPPED))
    if not _same(found := _module(drop_requantize, other), wanted):
        raise NotYet(
            "the example is right, and another chain is not: compare the scale, the zero point and "
            f"the type of each, whatever they are\n{_shown(found, wanted)}"
        )
    return "what changes nothing is gone, and the other three are left"


@exercise
def check_fold_pad(
    fold_pad: Callable[[tvm.IRModule], tvm.IRModule], padded: tvm.IRModule, bare: tvm.IRModule
) -> str:
    """Check a pass that folds a pad into the quantized convolution behind it.

    Parameters
    ----------
    fold_pad : callable
        Takes a module and returns the new one.
    padded, bare : tvm.IRModule
        The notebook's convolution with a pad, and what it shall become.
    """
    found = _module(fold_pad, padded)
    if "nn.pad" in relay.analysis.list_op_freqs(found):
        raise NotYet(f"the pad is there\n{_shown(found, bare)}")
    if not _same(found, bare):
        raise NotYet(
            f"the pad is gone, and the result is another convolution\n{_shown(found, bare)}"
        )
    other = _with_zeros(padded)
    if not _same(kept := _module(fold_pad, other), other):
        raise NotYet(
            "a pad with another value than the zero point has to stay\n" + _shown(kept, other)
        )
    weights = {"w": np.ones((1, 1, 3, 3), "int8")}
    askew, wanted = (relay.fromtext(FIXED + text, weights) for text in (ASKEW, FOLDED))
    found = _module(fold_pad, askew)
    if "nn.pad" in relay.analysis.list_op_freqs(found):
        raise NotYet(
            "the example is right, and another pad is left: its value is the zero point too, which "
            f"is another one there\n{_shown(found, wanted)}"
        )
    if not _same(found, wanted):
        raise NotYet(
            "a pad of another width on each side goes to the wrong sides, or the convolution's own "
            f"padding is lost\n{_shown(found, wanted)}"
        )
    more = relay.fromtext(FIXED + MORE, weights)
    if not _same(kept := _module(fold_pad, more), more):
        raise NotYet(f"a pad of the batch has to stay\n{_shown(kept, more)}")
    mirrored = relay.fromtext(FIXED + MIRRORED, weights)
    if not _same(kept := _module(fold_pad, mirrored), mirrored):
        raise NotYet(
            "a pad that mirrors the picture has to stay: a convolution's own padding puts one value"
            f"\n{_shown(kept, mirrored)}"
        )
    return "the convolution pads by itself, on every side as much as the pad did"


def _module(change: Callable[[tvm.IRModule], tvm.IRModule], mod: tvm.IRModule) -> tvm.IRModule:
    name = getattr(change, "__name__", "the pass")  # TVM's passes have no name of Python's.
    return changed(change, mod, name)


def _with_zeros(mod: tvm.IRModule) -> tvm.IRModule:
    """Have the module's pad put zeros."""
    x = dpl.wildcard()
    pad = dpl.is_op("relax.nn.pad")(x)

    def zeros(call: relax.Call, found: dict[dpl.DFPattern, relax.Expr]) -> relax.Expr:
        return relax.op.nn.pad(found[x], call.attrs.pad_width, "constant", 0.0)

    return tvm.IRModule({"main": dpl.rewrite_call(pad, zeros, mod["main"])})


def _same(found: tvm.IRModule, wanted: tvm.IRModule) -> bool:
    """Say whether two modules are the same graph: variables and their order do not count."""
    return _printed(found) == _printed(wanted)


def _shown(found: tvm.IRModule, wanted: tvm.IRModule) -> str:
    """Compare two modules as Relay would print them, without types and constants."""
    texts = (_printed(mod, show_meta_data=False, types=False) for mod in (found, wanted))
    return difference(*texts)


def _printed(mod: tvm.IRModule, **options: bool) -> str:
    with asking("the module is none that Relay could print"):
        # What a mutator takes out leaves a second name for a value.
        return relay.astext(relax.transform.CanonicalizeBindings()(mod), **options)
