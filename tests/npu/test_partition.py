"""Partitioned modules: regions as large as is legal, and equal to those of Relax's passes."""

from __future__ import annotations

import random

import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op

from tests.npu.machine_code import Bytes, called, cut, drawn, regions_of, upstream
from tests.short import fresh
from tvmlab import npu, relay
from tvmlab.errors import CompileError, InputError, RelayError
from tvmlab.ir.patterns import is_constant, is_op, wildcard
from tvmlab.npu import reading
from tvmlab.npu.config import Config
from tvmlab.relay import transform as T


@pytest.mark.parametrize("seeds", [range(at, at + 10) for at in range(0, 80, 10)])
def test_any_graph_is_cut_as_upstream_cuts_it(seeds):
    for seed in seeds:
        choose = random.Random(fresh(seed))
        mod = drawn(choose.choice, choose.randrange(1, 16), choose.randrange(1, 4))
        parts = npu.partition(mod)
        relax.analysis.well_formed(parts)
        ours = cut(parts)
        assert ours.results == cut(mod).results
        assert ours == cut(upstream(mod))


def test_a_region_never_needs_its_own_result_by_way_of_another():
    """Joining two regions makes what came after the one come after the other: upstream forgets."""
    net = Bytes(2)
    first = net.conv(net.inputs[0])
    behind = net.conv(net.turn(first))
    other = net.conv(net.inputs[1])
    turned = net.turn(other)
    both = net.add(other, behind)
    mod = net.module(both, net.add(turned, first))
    with pytest.raises(KeyError):  # it uses a value before there is one
        cut(upstream(mod))
    parts = npu.partition(mod)
    relax.analysis.well_formed(parts)
    assert cut(parts).results == cut(mod).results
    assert len(cut(parts).regions) == 3


def test_the_module_stays_and_is_cut_once_for_one_machine():
    net = Bytes()
    mod = net.module(net.conv(net.inputs[0]))
    mod["main"] = mod["main"].with_attrs({"num_input": 1, "mine": "yes"})
    before = tvm.ir.load_json(tvm.ir.save_json(mod))
    config = Config(sram_bytes=128 << 10)
    parts = npu.partition(mod, config)
    assert tvm_ffi.structural_equal(mod, before)
    assert called(parts["main"], "mine") == "yes"
    (region,) = regions_of(parts)
    assert Config.from_json(called(region, "npu.config")) == config
    assert called(region, "global_symbol") in {var.name_hint for var in parts.get_global_vars()}
    assert npu.partition(parts).same_as(parts)
    assert npu.partition(parts, config).same_as(parts)
    with pytest.raises(InputError, match="for another machine"):
        npu.partition(parts, Config(sram_bytes=1 << 20))
    with pytest.raises(InputError, match="of class dict"):
        npu.coverage(parts, {"rows": 8})


@pytest.mark.parametrize("call", [npu.partition, npu.report, npu.coverage, npu.disassemble])
def test_what_is_no_module(call):
    with pytest.raises(InputError, match="not NoneType"):
        call(None)


def test_independent_layers_keep_the_order_of_the_bindings():
    for pool_first in (True, False):
        net = Bytes()
        steps = (net.pool, net.conv) if pool_first else (net.conv, net.pool)
        first, second = (step(net.inputs[0]) for step in steps)
        mod = net.module(net.add(second, first))
        (region,) = regions_of(npu.partition(mod))
        names = [layer.name.split()[0] for layer in reading.region(region).layers]
        kinds = ["max_pool2d", "conv2d"] if pool_first else ["conv2d", "max_pool2d"]
        assert names == [*kinds, "add"]


def test_sums_that_two_read_stay_whole():
    """One match would hide from the other what both need: the sums alone are taken."""
    net = Bytes()
    sums = net.sums(net.inputs[0])
    mod = net.module(net.requantized(sums), net.emit(op.negative(sums)))
    parts = npu.partition(mod)
    assert cut(parts).results == cut(mod).results
    (region,) = cut(parts).regions
    assert [name for (name, _), _ in region[0]] == ["tvmlab_npu.conv2d"]
    left = [one.operator for one in npu.coverage(parts).refused]
    assert sorted(left) == ["negative", "qnn.requantize"]


def test_branches_are_cut_too():
    text = """def @main(%f: bool, %x: Tensor[(1, 4), int8]) {
      if (%f) { qnn.add(%x, %x, 0.5f, 3, 0.5f, 3, 0.5f, 3) } else { reshape(%x, newshape=[1, 4]) }
    }"""
    parts = npu.partition(relay.fromtext(text))
    relax.analysis.well_formed(parts)
    assert len(regions_of(parts)) == 2
    assert npu.coverage(parts).operators_share == 1


def test_images_in_the_other_order_are_refused():
    net = Bytes()
    nchw = net.conv(net.conv(net.inputs[0]))
    nhwc = net.emit(op.nn.max_pool2d(nchw, (1, 1), layout="NHWC"))
    parts = npu.partition(net.module(nhwc))
    (left,) = npu.coverage(parts).refused
    assert left.operator == "nn.max_pool2d"
    assert "most of the module's NCHW" in left.reason


def test_the_table_serves_the_four_passes_and_the_passes_of_today():
    net = Bytes()
    one = net.conv(net.inputs[0])
    mod, table = net.module(net.add(net.pool(one), one)), npu.pattern_table()
    passes = [T.MergeComposite(table), T.AnnotateTarget("tvmlab_npu")]
    then = T.Sequential([*passes, T.MergeCompilerRegions(), T.PartitionGraph()])(mod)
    assert cut(then) == cut(upstream(mod)) == cut(npu.partition(mod))
    names = {name.removeprefix("tvmlab_npu.") for name, _, _ in table}
    assert names == {*(name for name, _ in reading.READERS.values()), "depthwise_conv2d"}


def test_the_pattern_of_the_source_material_is_read():
    """Its pad leaves the value open, so that it becomes a parameter."""
    net = Bytes()
    padded = net.emit(relax.op.nn.pad(net.inputs[0], [0] * 8, "constant", 7))
    mod = net.module(net.requantized(net.sums(padded)))
    data = is_op("nn.pad")(wildcard(), wildcard()) | wildcard()
    sums = is_op("qnn.conv2d")(data, *[is_constant() for _ in range(5)])
    pattern = is_op("qnn.requantize")(sums, *[is_constant() for _ in range(4)])
    parts = npu.partition(mod, patterns=[("tvmlab_npu.conv2d", pattern, npu.Check(Config()))])
    assert npu.coverage(parts).operators_share == 1


def test_wrong_tables():
    net = Bytes()
    mod = net.module(net.turn(net.inputs[0]))
    with pytest.raises(RelayError, match="a pattern table holds"):
        npu.partition(mod, patterns=[("tvmlab_npu.conv2d",)])
    parts = npu.partition(mod, patterns=[("tvmlab_npu.turn", is_op("transpose")(wildcard()))])
    with pytest.raises(CompileError, match=r"no layer for 'tvmlab_npu\.turn'"):
        npu.report(parts)
    with pytest.raises(InputError, match="NCHW, NHWC"):
        npu.pattern_table(layout="nchw")
