from __future__ import annotations

import itertools
import os
import statistics
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm.script import ir as I
from tvm.script import relax as R

import tvmlab
from tests.oracles.models import array, convolutional, dense
from tvmlab.errors import InputError
from tvmlab.measure import bench
from tvmlab.measure.operators import Row, operators
from tvmlab.runtime import timing


class Clock:
    """A clock that moves only when a function that costs time is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.log: list[str] = []
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(timing, "_settle", lambda: self.log.append("settle"))

    @property
    def calls(self) -> list[str]:
        """The log without the waiting."""
        return [entry for entry in self.log if entry != "settle"]

    def costs(self, name: str, *seconds: float) -> Any:
        """A function whose calls take these seconds; any later call takes the last."""
        costs: Iterator[float] = itertools.chain(seconds, itertools.repeat(seconds[-1]))

        def fn() -> None:
            self.log.append(name)
            self.now += next(costs)

        return fn


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_sample_is_the_mean_of_its_calls_and_the_warm_up_is_none(clock: Clock) -> None:
    run = bench.measure(clock.costs("f", 9, 8, 1, 3, 5, 7), warmup=2, repeats=2, number=2)
    assert run.samples == (2, 6)
    assert clock.calls == ["f"] * 6


def test_each_round_begins_with_another_candidate_and_each_turn_with_a_rest(clock: Clock) -> None:
    candidates = {
        name: clock.costs(name, seconds) for name, seconds in zip("abc", (1, 2, 3), strict=True)
    }
    found = bench.compare(candidates, warmup=1, repeats=4, number=2)
    order = clock.calls[3::2]
    assert ["".join(order[at : at + 3]) for at in range(0, 12, 3)] == ["abc", "bca", "cab", "abc"]
    assert clock.log == [entry for call in "abc" for entry in ("settle", call)] + [
        entry for call in order for entry in ("settle", call, call)
    ]
    assert found.medians == {"a": 1, "b": 2, "c": 3}


def test_every_candidate_gets_the_same_arrays_and_returns_arrays() -> None:
    x, got = np.ones(3, "float32"), []
    peer = bench.Torch(torch.nn.ReLU())
    candidates = {"ours": lambda x: got.append(x) or x, "PyTorch": peer}
    found = bench.compare(candidates, x, repeats=2, number=1)
    assert str(found).splitlines()[0] == "every candidate takes and returns NumPy arrays"
    assert len(got) == 4
    assert all(each is x for each in got)
    with pytest.raises(InputError, match="what tensors returns is a Tensor, not a NumPy array"):
        bench.compare({"ours": lambda x: x, "tensors": torch.from_numpy}, x)
    with pytest.raises(InputError, match="an input is a Tensor, not a NumPy array"):
        bench.compare({"ours": lambda x: x}, tvm.runtime.tensor(x))


TIMES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=20)


@given(TIMES, st.floats(1e-3, 1e3))
def test_the_numbers_of_measurements(samples: list[float], factor: float) -> None:
    run = bench.Measurement(tuple(samples))
    assert run.median == statistics.median(samples)
    low, high = np.percentile(samples, [25, 75])
    assert run.spread == pytest.approx((high - low) / run.median, abs=1e-9)
    assert f"{len(samples)} samples" in str(run)
    scaled = bench.Measurement(tuple(factor * each for each in samples))
    found = bench.Comparison({"a": scaled, "b": run})
    assert found.ratio("a", to="b") == pytest.approx(factor)
    assert found.ratio("a", to="b") * found.ratio("b", to="a") == pytest.approx(1)


# Peers.


def test_onnx_runtime_and_the_executable_agree(tmp_path: Any) -> None:
    proto = convolutional()
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    x = array(1, 3, 8, 8)
    expected = tvmlab.compile(tvmlab.load(proto))(x)
    carried = tvmlab.models.Model(proto, "convolutional", "seeded")
    for given_model in (proto, carried, proto.SerializeToString(), path, str(path)):
        peer = bench.OnnxRuntime(given_model)
        assert peer(x).shape == expected.shape
        np.testing.assert_allclose(peer(x), expected, rtol=1e-4, atol=1e-5)


def test_pytorch_and_the_executable_agree() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5), torch.nn.ReLU())
    peer = bench.Torch(module)
    assert not module.training
    x = array(2, 4)
    program = torch.export.export(module, (torch.from_numpy(x),))
    executable = tvmlab.compile(tvmlab.load(program))
    result = peer(x)
    assert isinstance(result, np.ndarray)
    np.testing.assert_allclose(result, executable(x), rtol=1e-4, atol=1e-6)


def test_threads_are_equal_on_all_sides() -> None:
    cores = int(tvmlab.host_target().attrs["num-cores"])
    assert bench.peer_threads() == cores
    before = torch.get_num_threads()
    try:
        bench.Torch(torch.nn.ReLU())
        assert torch.get_num_threads() == cores
    finally:
        torch.set_num_threads(before)
    started = os.listdir("/proc/self/task")
    session = bench.OnnxRuntime(dense())._session
    workers = set(os.listdir("/proc/self/task")) - set(started)
    assert len(workers) == cores - 1  # the calling thread computes too
    options = bench.OnnxRuntime(dense(), threads=1)._session.get_session_options()
    assert options.intra_op_num_threads == 1
    options = session.get_session_options()
    defaults = onnxruntime.SessionOptions()
    assert options.inter_op_num_threads == defaults.inter_op_num_threads
    with pytest.raises(RuntimeError):  # no entry: idle threads spin, as is the default
        options.get_session_config_entry("session.intra_op.allow_spinning")


@I.ir_module
class Small:
    @R.function
    def other(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        return R.tanh(x)

    @R.function
    def main(
        x: R.Tensor((2, "n"), "float32"), w: R.Tensor((3, 4), "float32"), c: R.Tensor((), "bool")
    ):
        y = R.matmul(w, R.const([1.0, 2.0, 3.0, 4.0]))
        both = (x, w)
        z = both[1]
        s = R.split(z, 2, axis=1)
        t = R.concat((s[0], s[1]), axis=1)
        return (R.add(t, t), y, x)


def test_operators() -> None:
    found = operators(Small)
    assert found.rows[0] == Row("matmul", 1, 12)
    assert {row.operator for row in found.rows} == {"matmul", "split", "concat", "add", "tanh"}
    lines = str(found).splitlines()
    assert lines[0].split() == ["operator", "calls", "multiply-accumulates", "share"]
    assert lines[-1].split() == ["all", "5", "12", "100.0%"]
