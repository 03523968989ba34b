"""Programs against the layers they come from: equal bits, and nothing that the machine refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.npu import interpreter, reference
from tests.npu.regions import FIXED, WAYS, Builder
from tests.short import examples
from tvmlab.npu import simulator
from tvmlab.npu.codegen.lower import compile_region
from tvmlab.npu.codegen.tiling import fits
from tvmlab.npu.config import Config
from tvmlab.npu.isa import Dtype, Load, Matmul, PoolKind, Rounding, Store
from tvmlab.npu.layers import Region
from tvmlab.npu.program import Kind, Program

SMALL = st.integers(1, 4)
CONFIGS = st.builds(
    Config,
    rows=st.sampled_from([3, 8, 16]),
    columns=st.sampled_from([4, 16]),
    lanes=st.sampled_from([5, 16]),
    sram_bytes=st.integers(700, 40_000),
    accumulators=st.integers(7, 3000),
)
DTYPES = st.sampled_from([Dtype.int8, Dtype.uint8])
LAYOUTS = st.sampled_from(["NHWC", "NCHW"])


def check(builder: Builder, *outputs: str, config: Config | None = None) -> Program:
    """Compile and run; compare."""
    region, config = builder.region(*outputs), config or Config()
    if any(fits(layer, region.values, config) for layer in region.layers):
        reject()
    program = Program.from_bytes(compile_region(region, config).to_bytes())
    same(region, program, builder.data())
    return program


def same(region: Region, program: Program, data: list[Any]) -> None:
    wanted = reference.run(region, data)
    for found in (interpreter.run(program, data), simulator.simulate(program.to_bytes(), data)):
        for one, other in zip(wanted, found, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


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


@st.composite
def networks(draw: Callable[..., Any]) -> tuple[Builder, list[str]]:
    """A graph of several layers with residuals, several outputs, and values used more than once."""
    builder = Builder(draw(st.integers(0, 99)), draw(DTYPES), draw(LAYOUTS))
    n, side, c = draw(st.integers(1, 3)), draw(st.integers(4, 12)), draw(st.integers(1, 20))
    values = [builder.input(n, side, side, c)]
    if draw(st.booleans()):
        values.append(builder.input(n, side, side, c))
    for _ in range(draw(st.integers(1, 8))):
        source = draw(st.sampled_from(values))
        match draw(st.sampled_from(["3x3", "1x1", "depthwise", "pool", "add", "view", "rescale"])):
            case "3x3":
                stride = draw(st.sampled_from([(1, 1), (2, 2)]))
                one = builder.conv(source, 12, (3, 3), stride, pads=(1, 1, 1, 1))
            case "1x1":
                one = builder.conv(source, draw(st.sampled_from([c, 30])))
            case "depthwise":
                one = builder.conv(source, 0, (3, 3), pads=(1, 1, 1, 1), depthwise=True)
            case "pool":
                one = builder.pool(source, PoolKind.MAX, (3, 3), pads=(1, 1, 1, 1))
            case "add":
                size = builder.values[source].nhwc
                alike = [v for v in values if builder.values[v].nhwc == size]
                one = builder.add(source, draw(st.sampled_from(alike)))
            case "view":
                a, b, d, e = builder.values[source].nhwc
                size = draw(st.sampled_from([(a, d, b, e), (a, d * b, 1, e), (a, b, d * e, 1)]))
                one = builder.view(source, size, draw(LAYOUTS))
            case "rescale":
                one = builder.add(source)
        values.append(one)
    outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    return builder, [*outputs, values[-1]]


@settings(max_examples=examples(80), deadline=None)
@given(case=networks(), config=CONFIGS)
def test_network(case: tuple[Builder, list[str]], config: Config) -> None:
    builder, outputs = case
    check(builder, *outputs, config=config)


def moved(program: Program, kind: Kind) -> int:
    """Count the transfers to and from a kind of tensor."""
    return sum(
        isinstance(one, Load | Store) and program.tensors[one.tensor].kind is kind
        for one in program.instructions
    )


def residual(side: int) -> tuple[Builder, str]:
    builder = Builder(3)
    first = builder.conv(builder.input(1, side, side, 16), 16, (3, 3), pads=(1, 1, 1, 1))
    second = builder.conv(first, 16, (3, 3), pads=(1, 1, 1, 1))
    return builder, builder.add(first, second)


def test_what_fits_stays_on_chip() -> None:
    builder, out = residual(16)
    program = check(builder, out, config=Config(sram_bytes=32 << 10))
    assert not [one for one in program.tensors if one.kind is Kind.SCRATCH]
    assert moved(program, Kind.SCRATCH) == 0


def test_what_does_not_fit_goes_through_dram() -> None:
    builder, out = residual(16)
    program = check(builder, out, config=Config(sram_bytes=6 << 10))
    assert moved(program, Kind.SCRATCH) > 0


def test_a_value_that_is_read_and_a_result_is_stored_once_and_not_loaded() -> None:
    builder = Builder(1)
    first = builder.conv(builder.input(1, 8, 8, 8), 8)
    program = check(builder, first, builder.conv(first, 8))
    number = next(i for i, one in enumerate(program.tensors) if one.kind is Kind.OUTPUT)
    loads = [one for one in program.instructions if isinstance(one, Load)]
    assert all(one.tensor != number for one in loads)


def test_results_that_are_inputs_or_twice_the_same() -> None:
    builder = Builder(1, layout="NCHW")
    source = builder.input(2, 5, 6, 7)
    found = builder.conv(source, 3)
    program = check(builder, source, found, found, source, config=Config(sram_bytes=1000))
    assert program.layers[-1] == "copy"


def test_a_region_of_views_alone() -> None:
    builder = Builder(1, layout="NCHW")
    source = builder.input(2, 5, 6, 7)
    flat = builder.view(source, (2, 210))
    check(builder, builder.view(flat, (2, 6, 5, 7)), flat)


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
    program = check(builder, found, config=Config(sram_bytes=4 << 10))
    products = [one for one in program.instructions if isinstance(one, Matmul)]
    assert {(one.kernel_w, one.stride_w, one.channels) for one in products} == {(1, 1, 21)}


def test_programs_are_reproducible() -> None:
    builder, out = residual(12)
    region = builder.region(out)
    first, second = (compile_region(region, Config(sram_bytes=8192)) for _ in range(2))
    assert first.to_bytes() == second.to_bytes()
