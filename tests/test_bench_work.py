"""What a process of `make bench` measures, called here without a process."""

from __future__ import annotations

import mmap
from pathlib import Path

import bench_work
import numpy as np
import pytest
import torch
from bench_sections import CANDIDATES, missing
from bench_work import Shape

import tvmlab
from tvmlab import models


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


# OpenVINO takes part where it is installed.
FORMS = [
    (form, runtime)
    for form, runtimes in CANDIDATES.items()
    for runtime in runtimes
    if not ("compiled" in runtime or missing(runtime))
]


@pytest.mark.parametrize(("form", "runtime"), FORMS)
def test_every_candidate_takes_and_returns_arrays_and_computes_the_same(
    form: str, runtime: str, files: Path
) -> None:
    source = "float32" if runtime == "tvmlab float32" else form
    path, reference_path = (
        str(files / f"{each}.{'tflite' if 'tflite' in each else 'onnx'}") for each in (source, form)
    )
    about = [
        bench_work.write("digits_resnet", each, file)
        for each, file in ((source, path), (form, reference_path))
    ][-1]
    data = {"name": "digits_resnet", "shape": about["shape"], "dtype": about["dtype"]}
    result = bench_work.ready(runtime, path=path, **data)[0]()
    expected = bench_work.ready(CANDIDATES[form][-1], path=reference_path, **data)[0]()
    assert isinstance(result, np.ndarray)
    assert result.dtype == expected.dtype
    error = np.abs(result.astype(float) - expected).max() / np.abs(expected.astype(float)).max()
    assert error < (1e-4 if form == "float32" else 0.1)


def test_every_network_is_there_with_its_weights(tmp_path: Path) -> None:
    assert set(bench_work.NETWORKS) == set(models.cost.ARCHITECTURES)
    about = bench_work.write("digits_resnet", "float32", str(tmp_path / "model.onnx"), batch=2)
    assert about["shape"] == [2, 1, 8, 8]
    assert about["weight_bytes"] == 4 * models.digits_resnet().parameter_count


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_convolution_is_what_pytorch_computes(groups: int) -> None:
    shape = Shape(9, 4, 8, kernel=3, stride=2, padding=1, groups=groups)
    mod = bench_work.module(**shape.arguments())
    x = np.random.default_rng(2).random((1, 9, 9, 4), dtype=np.float32) - 0.5
    weight, bias = (
        torch.from_numpy(binding.value.args[1].value.numpy())
        for binding in mod["main"].body.blocks[0].bindings[:2]
    )
    expected = torch.relu(
        torch.nn.functional.conv2d(
            torch.from_numpy(x).permute(0, 3, 1, 2),
            weight.permute(0, 3, 1, 2),
            bias.ravel(),
            stride=2,
            padding=1,
            groups=groups,
        )
    ).permute(0, 2, 3, 1)
    np.testing.assert_allclose(tvmlab.compile(mod)(x), expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("stride", "winograd"), [(1, True), (2, False)])
def test_a_convolution_says_whether_it_is_winograd(stride: int, winograd: bool) -> None:
    call, said = bench_work.convolution(**Shape(14, 64, 64, 3, stride, 1, 1).arguments())
    assert said == {"winograd": winograd}
    assert tuple(call().shape) == (1, 14 // stride, 14 // stride, 64)


def test_the_convolutions_of_resnet50() -> None:
    found = bench_work.shapes("resnet50_v2")
    assert sum(times for times, _ in found.values()) == 53
    dense = 2 * 2048 * 1000
    total = sum(times * work for times, work in found.values())
    assert total + dense == models.cost.flops(models.cost.ARCHITECTURES["resnet50_v2"])
    stem = Shape(224, 3, 64, kernel=7, stride=2, padding=3, groups=1)
    assert found[stem] == (1, 2 * 112 * 112 * 64 * 3 * 49)
    assert str(stem).split() == ["224x224", "3", "to", "64", "7x7/2"]


def test_a_depthwise_convolution_says_its_groups() -> None:
    text = [str(shape) for shape in bench_work.shapes("mobilenet_v2")]
    assert any(line.endswith("32 to   32  3x3/1 in 32 groups") for line in text), text


def test_what_a_process_grows_by_is_seen() -> None:
    bench_work.forget_peak()
    before = bench_work.kib("VmHWM")
    # A mapping of its own: memory that malloc is given back, it may keep, as history has it.
    with mmap.mmap(-1, 16 << 20) as held:
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        grown = bench_work.kib("VmHWM") - before
        assert 15 << 10 < grown < 40 << 10
    assert bench_work.kib("VmHWM") - before > 15 << 10  # a peak stays
    bench_work.forget_peak()
    assert bench_work.kib("VmHWM") - before < 12 << 10
    with pytest.raises(OSError, match="VmNothing"):
        bench_work.kib("VmNothing")


def test_candidates_are_measured_all_of_them() -> None:
    assert len({str(module) for module in bench_work.scheduled(8, size=128)}) > 4
    assert bench_work.candidates("tvmlab", 3)["measured"] == 3


def test_relay_text_is_printed_and_read(tmp_path: Path) -> None:
    taken = bench_work.relay_calls(40)
    assert set(taken) == {"printed", "read"}
    model, path = str(tmp_path / "model.onnx"), str(tmp_path / "network.relay")
    bench_work.write("digits_resnet", "float32", model)
    written = bench_work.relay_write(model, path)
    assert written["bytes"] == Path(path).stat().st_size > 400_000
    assert bench_work.relay_read(path)["grown"] >= 0
