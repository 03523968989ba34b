"""Layers against the operators that they were read from; composite targets and saved files."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from tvm import ir, relax
from tvm.relax import op

import tvmlab
from tests.npu import graphs
from tests.npu.machine_code import Bytes, convolution, regions_of, simulated, upstream
from tests.oracles.models import as_tuple
from tests.qnn.graphs import Network, integers, scale, zero
from tests.qnn.run import run
from tests.runtime.deployed import refused
from tests.runtime.deployed import run as without_python
from tests.short import examples, fresh
from tvmlab import npu
from tvmlab.errors import CompileError
from tvmlab.ir import dialect
from tvmlab.npu import Config, simulator
from tvmlab.npu.isa import Matmul
from tvmlab.npu.program import Kind, Program
from tvmlab.qnn import op as q
from tvmlab.runtime import library
from tvmlab.tuning import Measure, tasks


def equal(found, wanted):
    for one, other in zip(as_tuple(found), as_tuple(wanted), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def compiled(mod: ir.IRModule, config: Config | None = None) -> Program:
    (function,) = regions_of(npu.partition(mod, config))
    return npu.codegen.program(function)


def check(mod: ir.IRModule, *inputs: Any, config: Config | None = None) -> Program:
    kinds = [param.ty for param in mod["main"].params]
    inputs = inputs or tuple(integers(list(map(int, one.shape)), str(one.dtype)) for one in kinds)
    wanted = run(mod, *inputs)[0]
    for parts in (npu.partition(mod, config), *([] if config else [upstream(mod)])):
        assert regions_of(parts)
        equal(simulated(parts, *inputs), wanted)
    return compiled(mod, config)


@pytest.mark.parametrize(("kib", "on_chip"), [(32, True), (2, False)])
def test_values_stay_on_chip_where_they_fit(kib: int, on_chip: bool) -> None:
    made = check(graphs.chain(6), config=Config(sram_bytes=kib << 10))
    assert on_chip == all(one.kind is not Kind.SCRATCH for one in made.tensors)


def test_results_that_are_inputs_or_twice_the_same() -> None:
    for first in (True, False):
        net = Bytes()
        made = net.conv(net.inputs[0]) if first else net.inputs[0]
        again = net.emit(op.reshape(made, (1, 4, 3, 3)))
        program = check(net.module(*[made] * first, again), config=Config(sram_bytes=1000))
        assert program.layers[-1] == "copy"


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_the_longest_sums_are_exact_and_wrap(dtype: str) -> None:
    """5,000 products of the largest magnitude: more than float32 could sum exactly."""
    net = Network(((2, 5000), dtype))
    weights = np.full((16, 5000), -128, np.int8)
    weights[1:, ::3] = 127
    points = zero(0), zero(0), scale(0.1), scale(0.1)
    sums = net.emit(q.dense(net.inputs[0], relax.const(weights), *points, 16))
    bias = relax.const(np.int32([2**31 - 1, -(2**31), *range(14)]))
    biased = dialect.typed_call("relax.relay.nn.bias_add", [sums, bias], {"axis": 1})
    ends = np.int64([[np.iinfo(dtype).min], [np.iinfo(dtype).max]])
    check(net.module(net.emit(biased)), np.repeat(ends, 5000, 1).astype(dtype))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_window_wholly_in_the_padding(layout: str) -> None:
    check(convolution((1, 2, 3, 4), 5, (2, 2), (5, 4, 6, 7), layout))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("pads", [(3, 3, 3, 3), (0, 0, 0, 0), (1, 9, 2, 8)])
def test_lines_of_taps_are_folded_where_channels_are_few(layout: str, pads: Any) -> None:
    how = {"strides": (2, 3), "dilation": (2, 1)}
    mod = convolution((2, 30, 23, 3), 20, (5, 7), pads, layout, **how)
    made = check(mod, config=Config(sram_bytes=4 << 10))
    products = [one for one in made.instructions if isinstance(one, Matmul)]
    assert {(one.kernel_w, one.stride_w, one.channels) for one in products} == {(1, 1, 21)}


def test_a_region_is_compiled_for_the_machine_that_it_was_cut_for() -> None:
    config = Config(sram_bytes=16 << 10, columns=8)
    found = compiled(convolution(), config)
    assert found.config == config
    assert Program.from_bytes(found.to_bytes()) == found
    cut = npu.partition(convolution(), config)
    assert npu.report(found).cycles == npu.report(cut).cycles


def test_the_reason_names_what_is_needed_and_what_there_is() -> None:
    mod = convolution((1, 32, 32, 8), 8, (16, 16))
    assert npu.coverage(npu.partition(mod, Config(sram_bytes=64 << 10))).macs_share == 1
    # One channel of the window, its weights for 16 columns, tables of 8 channels, 8 results.
    need = 16 * 16 + 16 * 16 * 16 + 8 * 4 + 8 + 8
    reason = f"its smallest tile needs {need:,} bytes of SRAM; there are 3,000"
    assert npu.coverage(mod, Config(sram_bytes=3000)).refused[0].reason == reason
    assert compiled(mod, Config(sram_bytes=need)).instructions
    assert npu.coverage(npu.partition(mod, Config(sram_bytes=need - 8))).regions == 0


@pytest.mark.parametrize("side", [7, 28])
def test_the_estimate_is_near_what_the_machine_counts_and_units_overlap(side: int) -> None:
    (row,) = npu.report(npu.partition(convolution((1, side, side, 48), 80))).layers
    assert row.tiling is not None
    assert 0.8 < row.cycles / row.tiling.cycles < 1.25
    program = compiled(convolution((1, 32, 32, 32), 64), Config(sram_bytes=32 << 10))
    counted = simulator.count(program.to_bytes())[0]
    units = [counted[f"{unit}_cycles"] for unit in ("dma", "array", "vector")]
    assert counted["cycles"] < max(units) + 0.3 * (sum(units) - max(units))


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST", "TFLITE"])
@pytest.mark.parametrize("narrow", list(itertools.product([True, False], repeat=3)))
def test_additions_of_int32_as_pytorch_has_them(rounding, narrow):
    rng, shape = np.random.default_rng(1), (2, 3, 4, 4)
    kinds = ["uint8" if one else "int32" for one in narrow[:2]]
    net = Network(*((shape, kind) for kind in kinds))
    sides = [
        net.emit(q.requantize(x, scale(0.02), zero(126), scale(1e-5), zero(0), 1, rounding,
                              "int64", "int32")) if one else x
        for x, one in zip(net.inputs, narrow[:2], strict=True)
    ]  # fmt: skip
    sums = net.emit(op.add(*sides))
    if narrow[2]:
        sums = net.emit(q.requantize(sums, scale(1e-5), zero(0), scale(0.03), zero(141), 0,
                                     rounding, "int64", "uint8"))  # fmt: skip
    small = rng.integers(-(10**6), 10**6, shape).astype("int32")
    inputs = [integers(shape, "uint8") if one else small for one in narrow[:2]]
    check(net.module(sums), *inputs)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("dtype", "taken"), [("int8", 0), ("int8", 37), ("uint8", 0), ("uint8", 37), ("int32", 0)]
)
def test_means(layout, dtype, taken):
    kept = layout == "NCHW"
    shape = 2, 5, 3, 6
    net = Network((shape, dtype))
    x = net.inputs[0]
    if dtype != "int32":
        x = net.emit(op.astype(x, "int32"))
    elif kept:
        x = net.emit(op.maximum(x, relax.const(np.int32(0))))
    axis = [layout.index("W"), layout.index("H")]
    sums = net.emit(op.sum(x, axis, keepdims=kept))
    made = q.requantize(sums, scale(0.01), zero(taken), scale(0.1), zero(5), -1, "ONNX",
                        out_dtype="uint8")  # fmt: skip
    inside = integers(shape, "int8" if dtype == "int32" else dtype)
    check(net.module(net.emit(made)), inside.astype(dtype))


def test_rows_and_images_of_one_pixel():
    for before, after in (((2, 3, 1, 1), (2, 3)), ((2, 1, 1, 3), (2, 3)), ((2, 3), (2, 3, 1, 1))):
        net = Network((before, "int8"))
        mod = net.module(net.emit(op.reshape(net.inputs[0], after)))
        check(mod)


@seed(fresh(6))
@settings(max_examples=examples(700), deadline=None)
@given(number=st.integers(0, 2**32))
def test_random_networks(number):
    choose = random.Random(number)
    drawn, config = graphs.Drawn(choose), graphs.config(choose)
    if choose.random() < 0.3:  # tiles of a pixel; what does not fit stays on the CPU
        memories = {
            "sram_bytes": choose.randrange(700, 6000),
            "accumulators": choose.randrange(7, 300),
        }
        config = Config(
            rows=choose.choice((3, 8)), columns=choose.choice((4, 16)), lanes=5, **memories
        )
    wanted, _ = run(drawn.mod, *drawn.inputs)
    equal(simulated(npu.partition(drawn.mod, config), *drawn.inputs), wanted)


def test_most_of_them_go_to_the_accelerator():
    """Else the test above would compare the CPU with itself."""
    whole, count, tried = 0, 0, examples(200)
    for number in range(tried):
        choose = random.Random(fresh(number))
        drawn, config = graphs.Drawn(choose), graphs.config(choose)
        covered = npu.coverage(npu.partition(drawn.mod, config))
        whole += not covered.refused
        count += covered.regions > 0
    assert count >= 0.95 * tried
    assert whole >= 0.7 * tried


def network():
    net = Bytes()
    one = net.conv(net.inputs[0])
    mod = net.module(net.add(net.turn(one), one))
    return mod, net.rng.integers(0, 256, (1, 4, 3, 3)).astype("uint8")


def test_what_is_left_for_the_processor_is_tuned(tmp_path):
    """Tasks are what the accelerator does not take; the same records serve the composite target."""
    mod, x = network()
    whole, left = ({task.name for task in tasks(mod, each)} for each in (None, "npu"))
    assert len(left) < len(whole)
    assert not any("conv2d" in name for name in left)
    records, measure = tmp_path / "records.jsonl", Measure(repeat=2, timeout=60, build_timeout=60)
    how = {"total_trials": 4, "tuner": "random", "measure": measure, "progress": False}
    report = tvmlab.tune(mod, "npu", records=records, **how)
    assert {task.name for task in report.tasks} == left
    compiled = tvmlab.compile(mod, "npu", records=records)
    assert library.runtimes(compiled.vm_executable) == ["tvmlab_npu"]
    assert (compiled(x) == run(mod, x)[0]).all()


def test_what_the_machine_cannot_take_is_an_error_with_its_reason():
    x = relax.Var("x", relax.TensorType((1, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("part", [x], {"Codegen": "tvmlab_npu", "global_symbol": "part"}):
        builder.emit_func_output(builder.emit(op.nn.softmax(x)))
    y = relax.Var("y", relax.TensorType((1, 4), "float32"))
    with builder.function("main", [y]):
        call = relax.Call(builder.get().get_global_var("part"), [y])
        builder.emit_func_output(builder.emit(call))
    with pytest.raises(CompileError, match=r"no pattern takes nn\.softmax"):
        tvmlab.compile(builder.get())


LOAD = """
import sys
import numpy as np
import tvmlab
assert not any(name.startswith("tvmlab.npu") for name in sys.modules)
compiled = tvmlab.load_executable(sys.argv[1])
np.save(sys.argv[2], compiled(np.load(sys.argv[3])))
print(compiled)
"""


def test_a_saved_file_runs_in_a_fresh_process_and_without_python(tmp_path):
    """The C++ program loads the simulator, then the saved file, and gives the same bits."""
    mod, x = network()
    path, given = tvmlab.compile(mod, "npu, llvm").save(tmp_path / "net.so"), tmp_path / "x.npy"
    np.save(given, x)
    command = [sys.executable, "-c", LOAD, path, tmp_path / "y.npy", given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "for npu, llvm)" in done.stdout
    assert "it uses modules of the kind tvmlab_npu" in refused(path, given)
    how = "--output", tmp_path, "--repeats", 0, "--library", simulator.library()
    done = without_python(path, given, *how)
    assert done.returncode == 0, done.stderr
    for file in ("y.npy", "0.npy"):
        assert (np.load(tmp_path / file) == run(mod, x)[0]).all()
