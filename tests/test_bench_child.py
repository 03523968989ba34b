"""What a process of `make bench` does, called here without a process."""

from __future__ import annotations

import itertools
import mmap
from pathlib import Path

import bench_child
import bench_convolution
import bench_memory
import bench_rivals
import bench_tuning
import numpy as np
import pytest
import torch
from bench_convolution import Shape

import tvmlab
from tvmlab import models


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("FUNCTIONS", "NUMBERS", "EXECUTABLES"):
        monkeypatch.setattr(bench_child, table, {})


class Clock:
    """A clock that moves when the function under it is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *costs: float) -> None:
        self.now, self.calls = 0.0, 0
        self._costs = itertools.chain(costs, itertools.repeat(costs[-1]))
        monkeypatch.setattr(bench_child.time, "perf_counter", lambda: self.now)
        bench_child.FUNCTIONS["f"] = self.call

    def call(self) -> None:
        self.calls += 1
        self.now += next(self._costs)


@pytest.mark.parametrize(("cost", "calls"), [(1.0, 1), (0.05, 1), (0.03, 2), (1e-3, 50)])
def test_a_turn_is_as_many_calls_as_fill_it(
    cost: float, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, cost)
    answer = bench_child.turn("f", 0.05)
    assert answer == {"seconds": pytest.approx(cost), "calls": calls}
    before = clock.calls
    assert bench_child.turn("f", 0.05)["calls"] == calls  # found once
    warmup = max(1, round(bench_child.WARMUP_SECONDS / cost))
    assert warmup + calls <= clock.calls - before <= warmup + 1 + calls


def test_the_first_call_of_a_turn_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, 100.0, 1.0)
    assert bench_child.turn("f", 0.05) == {"seconds": 1.0, "calls": 1}


def test_a_function_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, 1.0)
    bench_child.turn("f", 0.05)
    bench_child.forget("f")
    assert not bench_child.FUNCTIONS
    assert not bench_child.NUMBERS


def test_the_peak_loop_counts_what_it_does() -> None:
    assert bench_child.peak("p")["flops"] == bench_child.FUNCTIONS["p"].flops  # type: ignore[attr-defined]


@pytest.mark.parametrize("rival", [name for name in bench_rivals.RIVALS if "compiled" not in name])
def test_the_rivals_agree_on_the_digits(rival: str) -> None:
    said = bench_child.network("n", rival, "digits_resnet", batch=2)
    picture = np.random.default_rng(0).random((2, 1, 8, 8), dtype=np.float32)
    expected = bench_rivals.bench.OnnxRuntime(models.digits_resnet(batch=2))(picture)
    np.testing.assert_allclose(said["output"], expected.ravel(), rtol=1e-3, atol=1e-4)
    assert said["weights"] == "trained"
    assert ("n" in bench_child.EXECUTABLES) == (rival == "tvmlab")


def test_every_network_is_there_with_its_weights() -> None:
    assert set(bench_rivals.NETWORKS) == set(models.cost.ARCHITECTURES)
    model = models.digits_resnet()
    stored = sum(len(tensor.raw_data) for tensor in model.proto.graph.initializer)
    assert stored > 0
    assert bench_rivals.weight_bytes(model) == stored == 4 * model.parameter_count


SMALL = Shape(size=9, in_channels=4, out_channels=6, kernel=3, stride=2, padding=1, groups=2)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_convolution_is_what_pytorch_computes(groups: int) -> None:
    shape = Shape(9, 4, 8, kernel=3, stride=2, padding=1, groups=groups)
    mod = bench_convolution.module(**shape.arguments())
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


def test_a_convolution_gets_ready() -> None:
    assert bench_child.convolution("c", SMALL.arguments())["compile_seconds"] > 0
    result = bench_child.FUNCTIONS["c"]()
    assert tuple(result.shape) == (1, 5, 5, 6)  # type: ignore[attr-defined]


def test_the_convolutions_of_resnet50() -> None:
    found = bench_convolution.shapes("resnet50_v2")
    assert sum(times for times, _ in found.values()) == 53
    dense = 2 * 2048 * 1000
    total = sum(times * work for times, work in found.values())
    assert total + dense == models.cost.flops(models.cost.ARCHITECTURES["resnet50_v2"])
    stem = Shape(224, 3, 64, kernel=7, stride=2, padding=3, groups=1)
    assert found[stem] == (1, 2 * 112 * 112 * 64 * 3 * 49)
    assert str(stem).split() == ["224x224", "3", "to", "64", "7x7/2"]


def test_a_depthwise_convolution_says_its_groups() -> None:
    text = [str(shape) for shape in bench_convolution.shapes("mobilenet_v2")]
    assert any(line.endswith("32 to   32  3x3/1 in 32 groups") for line in text), text


def test_what_a_process_grows_by_is_seen() -> None:
    bench_memory.forget_peak()
    before = bench_memory.kib("VmHWM")
    # A mapping of its own: memory that malloc is given back, it may keep, as history has it.
    with mmap.mmap(-1, 16 << 20) as held:
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        grown = bench_memory.kib("VmHWM") - before
        assert 15 << 10 < grown < 40 << 10
    assert bench_memory.kib("VmHWM") - before > 15 << 10  # a peak stays
    bench_memory.forget_peak()
    assert bench_memory.kib("VmHWM") - before < 12 << 10
    with pytest.raises(OSError, match="VmNothing"):
        bench_memory.kib("VmNothing")


def test_candidates_are_measured_all_of_them() -> None:
    texts = {str(module) for module in bench_tuning.candidates(8, size=128)}
    assert len(texts) > 4
    assert bench_child.tuning("tvmlab", 3)["measured"] == 3


def test_relay_text_is_printed_and_read(tmp_path: Path) -> None:
    taken = bench_child.relay_calls(40)
    assert taken["printed"] > 0
    assert taken["read"] > 0
    path = str(tmp_path / "network.relay")
    written = bench_child.relay_write("digits_resnet", path)
    assert written["bytes"] == Path(path).stat().st_size > 400_000
    assert bench_child.relay_read(path)["grown"] >= 0


def test_a_network_is_profiled() -> None:
    bench_child.network("batch 1", "tvmlab", "digits_resnet")
    said = bench_child.profile("batch 1", "digits_resnet", repeats=1)
    assert {"table", "data", "overhead", "covered"} == said.keys()
    assert len(said["data"]["rows"]) > 5
