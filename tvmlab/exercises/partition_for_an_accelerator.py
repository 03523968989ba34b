"""The checks of notebook 06, Partition for an accelerator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from .. import npu, relay
from ..errors import TvmlabError
from ..npu.codegen import regions
from ..npu.patterns import Entry
from ..relay.dataflow_pattern import DFPattern
from .arrays import same_values
from .verdict import NotYet, call, exercise, of_type

__all__ = ["check_addition_pattern", "check_bill"]


@exercise
def check_addition_pattern(
    addition: Callable[[], DFPattern], network: tvm.IRModule, table: Sequence[Entry]
) -> str:
    """Check the pattern of a quantized addition, alone and in a network.

    Parameters
    ----------
    addition : callable
        Returns the pattern.
    network : tvm.IRModule
        A quantized network with additions.
    table : sequence of tuple
        A pattern table of `npu`, without one for additions.
    """
    pattern = of_type(call(addition), DFPattern, "addition()", "a pattern")
    known = relay.const(0.25)
    if not pattern.match(_sum(known)):
        if pattern.match(relay.add(relay.var("x", shape=(1, 4)), relay.const(1.0))):
            raise NotYet("it takes an addition of floats, expected qnn.add")
        if pattern.match(_sum(known, relay.const(np.zeros((1, 4), "int8")))):
            raise NotYet("it takes a constant that is added to a tensor, expected two tensors")
        raise NotYet(
            "it does not take a quantized addition: qnn.add of two tensors, and of six constants "
            "that need not be equal"
        )
    if pattern.match(_sum(relay.var("scale", shape=()))):
        raise NotYet("it takes a scale that is not known when the network is compiled")
    entries: list[Any] = [*table, ("tvmlab_npu.add", pattern)]
    parts = npu.partition(network, patterns=entries)
    count = len(regions(parts))
    if count > 1:
        raise NotYet(f"the network is in {count} regions, expected one")
    moved = sum(row.moved for row in npu.report(parts).layers)
    return f"one region, {moved:,} bytes moved"


def _sum(scale: relax.Expr, other: relax.Expr | None = None) -> relax.Expr:
    """Add two tensors, or what is given to one; the scale of the first is given."""
    x, y = (relay.var(name, shape=(1, 4), dtype="int8") for name in "xy")
    half, zero = relay.const(0.5), relay.const(0)
    second = y if other is None else other
    return relay.qnn.op.add(x, second, scale, zero, half, zero, half, zero)


@exercise
def check_bill(
    by_hand: Callable[[], Sequence[Any]],
    judge: Callable[[Sequence[Any]], tuple[np.ndarray, int, int]],
    wanted: np.ndarray,
    once: int,
) -> str:
    """Check a layer by hand that moves every byte once.

    Parameters
    ----------
    by_hand : callable
        Returns the layer's instructions.
    judge : callable
        The notebook's: runs instructions; returns the sums, the bytes moved, and the cycles.
    wanted : np.ndarray
        The right sums, int32 of the shape (64, 64).
    once : int
        The bytes of all tensors.
    """
    try:
        sums, moved, cycles = judge(call(by_hand))
    except TvmlabError as error:
        raise NotYet(f"the machine refuses it: {error.what}") from error
    same_values(sums, wanted, "the sums")
    if moved > once:
        raise NotYet(
            f"{moved:,} bytes moved in {cycles:,} cycles; {once:,} bytes would do: which tensor is "
            "loaded again?"
        )
    return f"{moved:,} bytes moved in {cycles:,} cycles"
