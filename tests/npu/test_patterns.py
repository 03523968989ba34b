"""The pattern table, as Relay's passes and as Relax's take it."""

from __future__ import annotations

import pytest
from tvm import relax

from tests.npu.machine_code import Bytes, cut
from tests.qnn.graphs import scale, zero
from tvmlab import npu
from tvmlab.errors import CompileError, InputError, RelayError
from tvmlab.ir.patterns import is_constant, is_op, wildcard
from tvmlab.npu.reading import READERS
from tvmlab.qnn import op as q
from tvmlab.relay.transform import (
    AnnotateTarget,
    MergeCompilerRegions,
    MergeComposite,
    PartitionGraph,
    Sequential,
)


def network():
    net = Bytes()
    one = net.conv(net.inputs[0])
    return net.module(net.add(net.pool(one), one))


def test_every_kind_of_layer_that_is_read_has_a_pattern_and_no_other_has():
    names = {name.removeprefix("tvmlab_npu.") for name, _, _ in npu.pattern_table()}
    assert names == {*(name for name, _ in READERS.values()), "depthwise_conv2d"}


def test_the_table_serves_the_four_passes_and_the_passes_of_today():
    mod = network()
    table = npu.pattern_table()
    passes = (MergeComposite(table), AnnotateTarget("tvmlab_npu"))
    then = Sequential([*passes, MergeCompilerRegions(), PartitionGraph()])(mod)
    fused = relax.transform.FuseOpsByPattern(npu.relax_patterns(table), bind_constants=True)(mod)
    now = relax.transform.MergeCompositeFunctions()(fused)
    assert cut(then) == cut(now) == cut(npu.partition(mod))


def test_the_pattern_of_the_source_material_is_read():
    """Its pad leaves the value open, so that it becomes a parameter."""
    net = Bytes()
    padded = net.emit(relax.op.nn.pad(net.inputs[0], [0] * 8, "constant", 7))
    mod = net.module(net.requantized(net.sums(padded)))
    data = is_op("nn.pad")(wildcard(), wildcard()) | wildcard()
    sums = is_op("qnn.conv2d")(data, *[is_constant() for _ in range(5)])
    pattern = is_op("qnn.requantize")(sums, *[is_constant() for _ in range(4)])
    parts = npu.partition(mod, patterns=[("tvmlab_npu.conv2d", pattern, npu.Check(npu.Config()))])
    assert npu.coverage(parts).operators_share == 1


def test_an_entry_that_is_none():
    with pytest.raises(RelayError, match="a pattern table holds"):
        npu.partition(network(), patterns=[("tvmlab_npu.conv2d",)])


def test_a_pattern_that_the_code_generator_has_no_layer_for():
    net = Bytes()
    x = net.inputs[0]
    mod = net.module(net.emit(q.sigmoid(x, scale(0.1), zero(0), scale(1 / 256), zero(0))))
    pattern = is_op("qnn.sigmoid")(wildcard(), *[is_constant() for _ in range(4)])
    table = [("tvmlab_npu.sigmoid", pattern)]
    parts = npu.partition(mod, patterns=table)
    with pytest.raises(CompileError, match=r"no layer for 'tvmlab_npu\.sigmoid'"):
        npu.report(parts)


def test_layouts_by_their_names():
    with pytest.raises(InputError, match="NCHW, NHWC"):
        npu.pattern_table(layout="nchw")
