"""What compiling with schedules promises as a whole: steps, summaries, threads, failures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvmlab
from tests.forked import forked
from tests.oracles.models import array
from tests.oracles.networks import by_onnxruntime, relative_error
from tests.schedule.convolutions import Conv
from tests.schedule.kernels import module
from tests.short import long
from tvmlab import models, schedule
from tvmlab.errors import CompileError, PackageError

PLAIN = Conv(1, (9, 11), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 5, 19, ("bias", "relu"))
DEEP = Conv(2, (9, 11), (3, 3), (2, 1), (1, 0, 1, 0), (1, 1), 21, 1, 1, ("bias", "clip"))
GROUPS = Conv(1, (7, 7), (1, 3), (1, 1), (0, 1, 0, 1), (1, 2), 3, 4, 17, ("residual",))
OPEN = Conv(1, (9, 7), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 5, 19, ("bias",), constant=False)
SQUARES = Conv(1, (13, 14), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 128, 128, ("bias", "relu"))

CONVS = (PLAIN, DEEP, GROUPS, OPEN, SQUARES)
# Enough work that the rules spread each over the threads, in shares that are not even.
THREADED = (
    Conv(1, (29, 31), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 33, 70, ("bias", "relu")),
    Conv(1, (7, 7), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 64, 70, ("residual",)),
    Conv(3, (31, 29), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 67, 1, 1, ("bias", "clip")),
    Conv(2, (17, 19), (5, 3), (1, 1), (2, 1, 2, 1), (1, 1), 5, 9, 11, ("bias", "relu")),
    Conv(2, (17, 19), (5, 3), (1, 1), (2, 1, 2, 1), (1, 1), 1, 40, 41, constant=False),
    Conv(1, (28, 28), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 64, 64, ("bias", "relu")),
)


# Notebook 03 climbs all of them with a whole network.
@pytest.mark.parametrize(
    "step", [False, *(pytest.param(step, marks=long) for step in schedule.STEPS), True]
)
def test_every_step_gives_the_same_numbers(step: bool | str) -> None:
    mod, inputs = module(CONVS)
    run = tvmlab.compile(mod, schedule=step)
    for conv, result in zip(CONVS, run(*inputs), strict=True):
        assert relative_error(result, conv.reference()) < 1e-4
    summary = run.summary()
    assert summary.unscheduled == (summary.kernels if step in (False, "fuse") else ())


@pytest.mark.parametrize("step", ["tiles", None, 1])
def test_an_unknown_step_is_refused(step: Any) -> None:
    with pytest.raises(CompileError, match="there is no step") as caught:
        tvmlab.compile(module([PLAIN])[0], schedule=step)
    assert "epilogue" in str(caught.value)


def test_a_loaded_executable_has_no_summary(tmp_path: Path) -> None:
    run = tvmlab.compile(module([PLAIN])[0])
    loaded = tvmlab.load_executable(run.save(tmp_path / "plain.so"))
    with pytest.raises(PackageError, match="does not record how it was scheduled"):
        loaded.summary()
    with pytest.raises(PackageError, match="use the executable that compile returned"):
        loaded.tir()
    np.testing.assert_array_equal(loaded(*module([PLAIN])[1]), run(*module([PLAIN])[1]))


def test_the_summary_counts_calls_rules_and_transposes() -> None:
    summary = tvmlab.compile(module([PLAIN, DEEP])[0]).summary()
    assert {kernel.name: (kernel.calls, kernel.rule) for kernel in summary.kernels} == {
        "transpose": (1, "ElementWise"),
        "fused_conv2d_add_relu": (1, "Contraction"),
        "transpose1": (1, "ElementWise"),
        "transpose2": (1, "ElementWise"),
        "fused_depthwise_conv2d_add1_tir_clip": (1, "Depthwise"),
        "transpose3": (1, "ElementWise"),
    }
    assert summary.transposes == 4
    assert "transposes left: 4" in str(summary)


def test_a_rule_that_raises_is_named_and_the_model_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("some trouble\nmore about it")

    monkeypatch.setattr(schedule.Contraction, "apply", broken)
    mod, inputs = module([PLAIN, DEEP])
    run = tvmlab.compile(mod)
    for conv, result in zip((PLAIN, DEEP), run(*inputs), strict=True):
        assert relative_error(result, conv.reference()) < 1e-4
    said = {kernel.name: kernel.reason for kernel in run.summary().kernels}
    reason = "Contraction raised: some trouble"
    assert reason in said.values()
    assert all(text in ("", reason) for text in said.values())
    assert reason in str(run.summary())


@I.ir_module
class Own:
    """Functions with blocks, and loops without any. All count in int32: nothing is fused."""

    @T.prim_func(s_tir=True)
    def double(x: T.Buffer((8, 4), "float32"), y: T.Buffer((8, 4), "float32")):
        for i, j in T.grid(8, 4):
            with T.sblock("double"):
                a, b = T.axis.remap("SS", [i, j])
                y[a, b] = x[a, b] * T.float32(2)

    @T.prim_func(s_tir=True)
    def total(x: T.Buffer((8, 4), "float32"), y: T.Buffer((4,), "float32")):
        for j, i in T.grid(4, 8):
            with T.sblock("total"):
                b, a = T.axis.remap("SR", [j, i])
                with T.init():
                    y[b] = T.float32(0)
                y[b] = y[b] + x[a, b]

    @T.prim_func
    def loops(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = x[i] + T.float32(1)

    @R.function
    def main(x: R.Tensor((8, 4), "float32")) -> R.Tensor((4,), "float32"):
        cls = Own
        with R.dataflow():
            a = R.call_tir(cls.double, (x,), out_ty=R.Tensor((8, 4), "float32"))
            b = R.call_tir(cls.total, (a,), out_ty=R.Tensor((4,), "float32"))
            c = R.call_tir(cls.loops, (b,), out_ty=R.Tensor((4,), "float32"))
            R.output(c)
        return c


def test_functions_of_ones_own() -> None:
    x = array(8, 4)
    run = tvmlab.compile(Own)
    np.testing.assert_allclose(run(x), 2 * x.sum(0) + 1, rtol=1e-5)
    kernels = {k.name: (k.rule, k.reason) for k in run.summary().kernels}
    assert kernels == {
        "double": ("ElementWise", ""),
        "total": ("Reduction", ""),
        "loops": ("", "its loops hold no blocks"),
    }


def test_any_batch_runs_with_one_compilation() -> None:
    n = tvm.tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((n, 3, 9, 9), "float32"))
    weight, dense = relax.const(array(19, 3, 3, 3, seed=4)), relax.const(array(19 * 9, 10))
    with builder.function("main", [x]):
        y = builder.emit(relax.op.nn.conv2d(x, weight, padding=(1, 1)))
        y = builder.emit(
            relax.op.nn.relu(builder.emit(relax.op.add(y, relax.const(array(1, 19, 1, 1)))))
        )
        y = builder.emit(relax.op.nn.max_pool2d(y, (3, 3), (3, 3)))
        y = builder.emit(relax.op.reshape(y, (n, 19 * 9)))
        y = builder.emit(relax.op.matmul(y, dense))
        builder.emit_func_output(builder.emit(relax.op.nn.softmax(y)))
    mod = builder.get()
    run, plain = tvmlab.compile(mod), tvmlab.compile(mod, schedule=False)
    assert run.summary().unscheduled == ()
    for batch in (1, 3, 16):
        x_ = array(batch, 3, 9, 9, seed=batch)
        np.testing.assert_allclose(run(x_), plain(x_), rtol=1e-4, atol=1e-6)


def test_one_thread_two_and_more_than_cores_agree_to_the_bit(tmp_path: Path) -> None:
    code = """
import hashlib, os
os.environ["TVM_NUM_THREADS"] = "{threads}"  # read when the first kernel starts
import numpy as np, tvmlab
total = hashlib.sha256()
with np.load("inputs.npz") as inputs:
    for result in tvmlab.load_executable("{threads}.so")(*inputs.values()):
        total.update(result.tobytes())
print(tvmlab.target.runtime_threads(), total.hexdigest())
"""
    mod, inputs = module(THREADED)
    np.savez(tmp_path / "inputs.npz", *inputs)
    said = {}
    for threads in (1, 2, 5):  # Each schedule is one for its number of threads.
        target = {**dict(tvmlab.host_target().export()), "num-cores": threads}
        tvmlab.compile(mod, target).save(tmp_path / f"{threads}.so")
        done = forked(
            "-c",
            code.replace("{threads}", str(threads)),
            folder=tmp_path,
            imported=("tvmlab.runtime.executable",),
        )
        assert done.returncode == 0, done.stderr
        started, said[threads] = done.stdout.split()
        assert int(started) == min(threads, int(started))
    assert len(set(said.values())) == 1


@pytest.mark.parametrize(
    ("network", "batch"),
    [
        (models.digits_resnet, 3),
        (models.mobilenet_v2, 3),
        *(pytest.param(models.resnet18_v2, batch, marks=long) for batch in (1, 3)),
        *(pytest.param(models.resnet50_v2, batch, marks=long) for batch in (1, 3)),
    ],
)
def test_networks_equal_onnx_runtimes(network: Callable[..., models.Model], batch: int) -> None:
    model = network(batch=batch)
    x = array(*model.input_shape)
    run = tvmlab.compile(tvmlab.load(model.proto))
    assert relative_error(run(x), by_onnxruntime(model.proto, x)) < 1e-4
    summary = run.summary()
    assert summary.unscheduled == ()
    assert not any(kernel.reason for kernel in summary.kernels)
    assert summary.transposes <= 2  # at the borders
