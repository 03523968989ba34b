"""The time of each pass on modules of 10,000 operators, and per operator on 1,000.

The passes that partition run one after the other, with the accelerator's patterns but without its
checks, which read each layer as the code generator does: their time is not the pass's.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from tests.npu.graphs import chain
from tests.qnn.graphs import Network, scale, zero
from tvmlab import native, npu
from tvmlab.ir.partition import AnnotateTarget, MergeCompilerRegions, MergeComposite, PartitionGraph
from tvmlab.qnn import op as qnn
from tvmlab.qnn.transform import (
    FakeQuantizationToInteger,
    QnnQuantizeConstFold,
    RemoveClipAfterRequantize,
)

FEW, MANY = 1_000, 10_000
SECONDS, GROWTH = 5.0, 1.3
SHAPE = (1, 8, 4, 4)


def fake(count: int) -> tvm.IRModule:
    """Make a network of `count` operators as ONNX has it: each value quantized, a residual sum."""
    net, random = Network((SHAPE, "int8")), np.random.default_rng(0)
    x, made = net.inputs[0], 0
    while made < count:
        real = net.real(x, 0.05, 3)
        weight = random.integers(-127, 128, (8, 8, 1, 1)).astype("int8")
        scales = np.linspace(0.01, 0.02, 8).astype("float32")
        sums = net.emit(op.nn.conv2d(real, net.weight(weight, scales, np.zeros(8))))
        bias = relax.const(random.normal(size=(1, 8, 1, 1)).astype("float32"))
        relu = net.emit(op.nn.relu(net.emit(op.add(sums, bias))))
        x = net.quantized(net.emit(op.add(real, net.fake(relu, 0.05, 3))), 0.05, 3)
        made += 9
    return net.module(x)


def eager(count: int) -> tvm.IRModule:
    """Make a network of `count` operators as PyTorch has it: quantized weights, clips and casts."""
    net, random = Network((SHAPE, "uint8")), np.random.default_rng(0)
    x, made = net.inputs[0], 0
    one, other, both = scale(0.05), scale(0.01), scale(0.0005)
    while made < count:
        weight = relax.const(random.normal(size=(8, 8, 1, 1)).astype("float32"))
        weight = net.emit(qnn.quantize(weight, other, zero(0), 0, "int8"))
        sums = net.emit(qnn.conv2d(x, weight, zero(3), zero(0), one, other, (1, 1), 8))
        bias = relax.const(random.normal(size=8).astype("float32"))
        bias = net.emit(qnn.quantize(bias, both, zero(0), 0, "int32"))
        sums = net.emit(op.add(sums, net.emit(op.reshape(bias, (1, 8, 1, 1)))))
        whole = net.emit(qnn.requantize(sums, both, zero(0), one, zero(3), 1, out_dtype="int32"))
        x = net.emit(op.astype(net.emit(op.clip(whole, 0.0, 255.0)), "uint8"))
        made += 8
    return net.module(x)


def processor_seconds(rewrite: Callable[[Any], Any], mod: tvm.IRModule) -> float:
    """Return the processor time of a pass: the best of three, which no other program disturbed."""
    seconds = []
    gc.collect()
    gc.freeze()  # the garbage collector does not walk through the module again and again
    for _ in range(3):
        gc.collect()
        start = time.process_time()
        rewrite(mod)
        seconds.append(time.process_time() - start)
    gc.unfreeze()
    return min(seconds)


PARTITION = (
    MergeComposite([(name, pattern) for name, pattern, _ in npu.pattern_table()]),
    AnnotateTarget("tvmlab_npu"),
    MergeCompilerRegions(),
    PartitionGraph(),
)


def after(passes: Sequence[Any]) -> Callable[[int], tvm.IRModule]:
    """Make the network that the first passes of `PARTITION` leave."""
    return lambda count: tvm.transform.Sequential(passes)(chain(count))


@pytest.mark.parametrize(
    ("make", "rewrite"),
    [
        pytest.param(fake, FakeQuantizationToInteger(), id="FakeQuantizationToInteger"),
        pytest.param(eager, QnnQuantizeConstFold(), id="QnnQuantizeConstFold"),
        pytest.param(eager, lambda mod: native.qnn_quantize_const_fold()(mod), id="in C++"),
        pytest.param(eager, RemoveClipAfterRequantize(), id="RemoveClipAfterRequantize"),
        *(
            pytest.param(after(PARTITION[:place]), one, id=str(one.info.name))
            for place, one in enumerate(PARTITION)
        ),
    ],
)
def test_a_pass_takes_seconds_and_grows_with_the_operators(
    make: Callable[[int], tvm.IRModule],
    rewrite: Callable[[Any], Any],
    record_property: Callable[[str, object], None],
) -> None:
    few, many = (processor_seconds(rewrite, make(count)) for count in (FEW, MANY))
    record_property("seconds", (few, many))
    assert many <= SECONDS
    assert many / few * FEW / MANY <= GROWTH
