"""The checks of notebook 06, Partition for an accelerator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm

from ... import npu, relay
from ...errors import TvmlabError
from ...ir.patterns import DFPattern
from ...npu.codegen import regions
from ...npu.isa import Instruction
from .judge import Wrong, call, exercise, relay_pattern, same_values

GIVEN = (0.25, 0, 0.5, 0, 0.5, 0)  # scale and zero point: of the operands, and of the result


@exercise
def check_addition_pattern(
    addition: Callable[[], DFPattern], network: tvm.IRModule, table: Sequence[Any]
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
    pattern = relay_pattern(addition, "addition")
    add, given = relay.qnn.op.add, [relay.const(value) for value in GIVEN]
    x, y = (relay.var(name, shape=(1, 4), dtype="int8") for name in "xy")
    if not pattern.match(add(x, y, *given)):
        if pattern.match(relay.add(relay.var("x", shape=(1, 4)), relay.const(1.0))):
            raise Wrong("it takes an addition of floats, expected qnn.add")
        if pattern.match(add(x, relay.const(np.zeros((1, 4), "int8")), *given)):
            raise Wrong("it takes a constant that is added to a tensor, expected two tensors")
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
