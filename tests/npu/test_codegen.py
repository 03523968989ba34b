"""Code generation: programs against the layers they come from, and the door to Relax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from tvm import relax

from tests.npu import reference
from tests.npu.machine_code import one_convolution
from tests.npu.regions import (
    CONFIGS,
    DTYPES,
    FIXED,
    LAYOUTS,
    SMALL,
    WAYS,
    Builder,
    networks,
    residual,
)
from tests.short import examples
from tvmlab.npu import disassemble, report, simulator
from tvmlab.npu.codegen import program, regions
from tvmlab.npu.codegen.lower import compile_region
from tvmlab.npu.codegen.tiling import fits
from tvmlab.npu.config import Config
from tvmlab.npu.isa import Dtype, Matmul, PoolKind, Rounding
from tvmlab.npu.partition import partition
from tvmlab.npu.program import Kind, Program


def check(builder: Builder, *outputs: str, config: Config | None = None) -> Program:
    """Compile and run; compare."""
    region, config = builder.region(*outputs), config or Config()
    if any(fits(layer, region.values, config) for layer in region.layers):
        reject()
    compiled = Program.from_bytes(compile_region(region, config).to_bytes())
    data = builder.data()
    wanted, found = reference.run(region, data), simulator.simulate(compiled.to_bytes(), data)
    for one, other in zip(wanted, found, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    return compiled


@st.composite
def windows(draw: Callable[..., Any]) -> dict[str, Any]:
    """A window and an image that it fits."""
    kernel, strides, dilation = (draw(st.tuples(SMALL, SMALL)) for _ in range(3))
    pads = draw(st.tuples(*(st.integers(0, 3),) * 4))
    least = [max(1, (kernel[i] - 1) * dilation[i] + 1 - pads[i] - pads[i + 2]) for i in (0, 1)]
    size = [draw(st.integers(low, low + 12)) for low in least]
    return {
        "size": (draw(st.integers(1, 3)), *size, draw(st.integers(1, 40))),
        "window": {"kernel": kernel, "strides": strides, "dilation": dilation, "pads": pads},
    }


@settings(max_examples=examples(150), deadline=None)
@given(
    case=windows(), config=CONFIGS, dtype=DTYPES, layouts=st.tuples(LAYOUTS, LAYOUTS),
    channels=st.integers(1, 50), depthwise=st.booleans(), wide=st.booleans(),
    way=st.sampled_from(WAYS), out=st.sampled_from([None, None, Dtype.int32]),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_convolution(
    case: dict[str, Any], config: Config, dtype: Dtype, layouts: tuple[str, str], channels: int,
    depthwise: bool, wide: bool, way: Rounding, out: Dtype | None, seed: int,
) -> None:  # fmt: skip
    builder = Builder(seed, dtype, layouts[0])
    found = builder.conv(
        builder.input(*case["size"]), channels, **case["window"], depthwise=depthwise,
        wide_weights=wide, way=way, dtype=out, layout=layouts[1],
    )  # fmt: skip
    check(builder, found, config=config)


@settings(max_examples=examples(100), deadline=None)
@given(
    case=windows(), config=CONFIGS, dtype=DTYPES, layouts=st.tuples(LAYOUTS, LAYOUTS),
    kind=st.sampled_from(PoolKind), count_pad=st.booleans(), extra=st.integers(0, 3),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_pool(
    case: dict[str, Any], config: Config, dtype: Dtype, layouts: tuple[str, str], kind: PoolKind,
    count_pad: bool, extra: int, seed: int,
) -> None:  # fmt: skip
    builder = Builder(seed, dtype, layouts[0])
    found = builder.pool(
        builder.input(*case["size"]), kind, **case["window"], count_pad=count_pad, extra=extra,
        layout=layouts[1],
    )  # fmt: skip
    check(builder, found, config=config)


@settings(max_examples=examples(60), deadline=None)
@given(
    size=st.tuples(SMALL, *(st.integers(1, 14),) * 2, st.integers(1, 40)), config=CONFIGS,
    dtype=DTYPES, layouts=st.tuples(LAYOUTS, LAYOUTS), sides=st.integers(1, 2),
    way=st.sampled_from((*FIXED, Rounding.ONNX)), seed=st.integers(0, 99),
)  # fmt: skip
def test_add(
    size: tuple[int, ...], config: Config, dtype: Dtype, layouts: tuple[str, str], sides: int,
    way: Rounding, seed: int,
) -> None:  # fmt: skip
    builder = Builder(seed, dtype, layouts[0])
    sources = [builder.input(*size) for _ in range(sides)]
    check(builder, builder.add(*sources, way=way, layout=layouts[1]), config=config)


@settings(max_examples=examples(60), deadline=None)
@given(
    size=st.tuples(SMALL, *(st.integers(1, 14),) * 2, st.integers(1, 40)), config=CONFIGS,
    dtype=DTYPES, layout=LAYOUTS, way=st.sampled_from(WAYS), seed=st.integers(0, 99),
)  # fmt: skip
def test_mean_and_dense(
    size: tuple[int, ...], config: Config, dtype: Dtype, layout: str, way: Rounding, seed: int
) -> None:
    builder = Builder(seed, dtype, layout)
    mean = builder.mean(builder.input(*size), way)
    row = builder.view(mean, (size[0], size[3]))
    check(builder, builder.conv(row, 11, way=way), mean, config=config)


@settings(max_examples=examples(80), deadline=None)
@given(case=networks(), config=CONFIGS)
def test_network(case: tuple[Builder, list[str]], config: Config) -> None:
    builder, outputs = case
    check(builder, *outputs, config=config)


@pytest.mark.parametrize(("kib", "on_chip"), [(32, True), (6, False)])
def test_values_stay_on_chip_where_they_fit(kib: int, on_chip: bool) -> None:
    builder, out = residual(16)
    compiled = check(builder, out, config=Config(sram_bytes=kib << 10))
    assert on_chip == all(one.kind is not Kind.SCRATCH for one in compiled.tensors)


def test_results_that_are_inputs_or_twice_the_same() -> None:
    builder = Builder(1, layout="NCHW")
    source = builder.input(2, 5, 6, 7)
    found = builder.conv(source, 3)
    compiled = check(builder, source, found, found, source, config=Config(sram_bytes=1000))
    assert compiled.layers[-1] == "copy"


def test_a_region_of_views_alone() -> None:
    builder = Builder(1, layout="NCHW")
    source = builder.input(2, 5, 6, 7)
    check(builder, builder.view(source, (2, 5, 6, 7)))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_window_wholly_in_the_padding(layout: str) -> None:
    builder = Builder(2, layout=layout)
    source = builder.input(1, 2, 3, 4)
    check(builder, builder.conv(source, 5, (2, 2), pads=(5, 4, 6, 7)))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("pads", [(3, 3, 3, 3), (0, 0, 0, 0), (1, 9, 2, 8)])
def test_lines_of_taps_are_folded_where_channels_are_few(
    layout: str, pads: tuple[int, int, int, int]
) -> None:
    builder = Builder(2, Dtype.int8, layout)
    source = builder.input(2, 30, 23, 3)
    found = builder.conv(source, 20, (5, 7), (2, 3), (2, 1), pads)
    compiled = check(builder, found, config=Config(sram_bytes=4 << 10))
    products = [one for one in compiled.instructions if isinstance(one, Matmul)]
    assert {(one.kernel_w, one.stride_w, one.channels) for one in products} == {(1, 1, 21)}


def test_programs_are_reproducible() -> None:
    builder, out = residual(12)
    region = builder.region(out)
    first, second = (compile_region(region, Config(sram_bytes=8192)) for _ in range(2))
    assert first.to_bytes() == second.to_bytes()


@pytest.mark.parametrize("kib", [8, 256])
def test_run_codegen_takes_it(kib: int) -> None:
    """Through upstream's own passes and virtual machine, to the same bits as on the CPU."""
    data = np.random.default_rng(1).integers(-128, 128, (1, 8, 8, 16)).astype("int8")
    cut = partition(one_convolution(), Config(sram_bytes=kib << 10))
    found = []
    for mod in (one_convolution(), relax.transform.RunCodegen()(cut)):
        built = tvm.compile(relax.transform.LegalizeOps()(mod), "llvm")
        machine = relax.VirtualMachine(built, tvm.cpu())
        found.append(machine["main"](tvm.runtime.tensor(data)).numpy())
    np.testing.assert_array_equal(*found)
    assert len(np.unique(found[0])) > 50


def test_a_region_is_compiled_for_the_machine_that_it_was_cut_for() -> None:
    config = Config(sram_bytes=16 << 10, columns=8)
    assert regions(one_convolution()) == {}
    cut = partition(one_convolution(), config)
    (function,) = regions(cut).values()
    found = program(function)
    assert found.config == config
    assert Program.from_bytes(found.to_bytes()) == found
    assert "16x8 array" in disassemble(found)
    assert report(found).cycles == report(cut).cycles
