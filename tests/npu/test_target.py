"""Composite targets, saved files, and the way without Python."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

import tvmlab
from tests.npu.machine_code import Bytes
from tests.qnn.run import run
from tests.runtime.deployed import refused
from tests.runtime.deployed import run as without_python
from tvmlab.errors import CompileError
from tvmlab.npu import simulator
from tvmlab.runtime import library
from tvmlab.tuning import Measure, tasks


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


def test_a_saved_file_runs_in_a_fresh_process(tmp_path):
    mod, x = network()
    path = tvmlab.compile(mod, "npu, llvm").save(tmp_path / "net.so")
    np.save(tmp_path / "x.npy", x)
    command = [sys.executable, "-c", LOAD, path, tmp_path / "y.npy", tmp_path / "x.npy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (np.load(tmp_path / "y.npy") == run(mod, x)[0]).all()
    assert "for npu, llvm)" in done.stdout


def test_the_way_without_python(tmp_path):
    """The C++ program loads the simulator, then the saved file, and gives the same bits."""
    mod, x = network()
    path = tvmlab.compile(mod, "npu, llvm").save(tmp_path / "net.so")
    np.save(tmp_path / "x.npy", x)
    assert "it has parts for tvmlab_npu" in refused(path, tmp_path / "x.npy")
    arguments = [path, tmp_path / "x.npy", "--output", tmp_path, "--repeats", 0]
    done = without_python(*arguments, "--library", simulator.library())
    assert done.returncode == 0, done.stderr
    assert (np.load(tmp_path / "0.npy") == run(mod, x)[0]).all()
