"""Relay text: how fast it is read and printed, and what a network of it takes."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from bench_memory import forget_peak, kib
from tvm import IRModule, relax

SHORT, LONG = 1_000, 10_000


def calls(number: int) -> dict[str, float]:
    """Print and read a function of many calls.

    Parameters
    ----------
    number : int
        How many: convolutions, biases, sums and what makes them positive, in turn.

    Returns
    -------
    dict of str to float
        Seconds: "printed", "read"; and the length of the text in bytes.
    """
    from tvmlab import relay

    shape = (1, 8, 6, 6)
    x = relay.var("x", shape=shape)
    w, b = relay.const(np.zeros((8, 8, 3, 3), np.float32)), relay.const(np.zeros(8, np.float32))
    value = x
    for index in range(number):
        value = [
            lambda v: relay.nn.conv2d(v, w, padding=(1, 1), channels=8, kernel_size=(3, 3)),
            lambda v: relay.nn.bias_add(v, b),
            lambda v: relay.add(v, x),
            relay.nn.relu,
        ][index % 4](value)
    mod = relay.from_expr(relay.Function([x], value))
    del value
    start = time.perf_counter()
    text = relay.astext(mod)
    printed = time.perf_counter()
    again = relay.fromtext(text)
    read = time.perf_counter()
    assert len(_bindings(again)) == number
    return {"printed": printed - start, "read": read - printed, "bytes": len(text)}


def write(name: str, path: str) -> dict[str, float]:
    """Print a network with its weights to a file."""
    from bench_rivals import NETWORKS

    import tvmlab
    from tvmlab import relay

    mod = tvmlab.load(NETWORKS[name][0](1) if name == "resnet50_v2" else NETWORKS[name][0]())
    start = time.perf_counter()
    text = relay.astext(mod)
    seconds = time.perf_counter() - start
    Path(path).write_text(text, encoding="utf-8")
    return {"seconds": seconds, "bytes": len(text)}


def read(path: str) -> dict[str, float]:
    """Read a network from a file, in a process that has read a line before.

    Returns
    -------
    dict of str to float
        "seconds", and "grown": the bytes that the process had more, at most, than before.
    """
    from tvmlab import relay

    relay.fromtext("1 + 1")
    before = kib("VmRSS")
    forget_peak()
    start = time.perf_counter()
    mod = relay.fromtext(Path(path).read_text(encoding="utf-8"))
    seconds = time.perf_counter() - start
    assert _bindings(mod)
    return {"seconds": seconds, "grown": 1024 * (kib("VmHWM") - before)}


def _bindings(mod: IRModule) -> list[relax.Binding]:
    return [binding for block in mod["main"].body.blocks for binding in block.bindings]
