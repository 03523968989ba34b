"""The pass that checks indices, on modules made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

import tvmlab
from tests.indices.modules import Program, X, agree, exported, taking
from tests.oracles.models import quickly
from tests.runtime.deployed import refused
from tvmlab.compiler import simplify
from tvmlab.errors import CompileError, OutOfRangeError
from tvmlab.indices import CheckIndices, NormalizeIndices


@pytest.mark.parametrize("mode", ["fast", "clip", "wrap"])
def test_an_axis_without_elements_has_nothing_to_take(mode: str) -> None:
    ours = tvmlab.compile(taking(mode, tvm.tirx.Var("n", "int64")))
    agree(ours, lambda x, i: np.take(x, i, 0, mode="wrap"), X[0], np.array([4, 0]))
    with pytest.raises(OutOfRangeError):
        ours(np.zeros((0, 4), "float32"), np.array([4, 0]))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "uint64"])
def test_indices_of_other_types(dtype: str) -> None:
    ours = tvmlab.compile(taking(dtype=dtype))
    info = np.iinfo(dtype)
    for last in (0, 4, 5, 127, max(info.min, -1), max(info.min, -6), info.max):
        indices = np.array([0, last], dtype)
        agree(ours, lambda x, i: np.take(x, [int(one) for one in i], 0), X[0], indices)


def test_checked_indices_are_checked_for_another_axis() -> None:
    mod = simplify(taking())
    builder = relax.BlockBuilder(mod)
    x = relax.Var("x", relax.TensorType((3, 4), "float32"))
    i = relax.Var("i", relax.TensorType((2,), "int64"))
    with builder.function("other", [x, i]):
        check = mod.get_global_var("check_indices")
        checked = builder.emit(relax.call_tir(check, [i], i.ty))
        builder.emit_func_output(builder.emit(relax.op.take(x, checked, 0)))
    mod = builder.get()
    mod["main"] = mod["other"].with_attr("global_symbol", "main")
    del mod["other"]
    ours = tvmlab.compile(mod)
    assert np.array_equal(ours(X[0, :3], np.array([2, 0])), X[0, [2, 0]])
    with pytest.raises(OutOfRangeError, match="from -3 to 2"):
        ours(X[0, :3], np.array([3, 0]))


def test_what_fits_in_no_way_is_no_module() -> None:
    mod = exported(Program(lambda x: x[:, -1]), X)
    assert tvm_ffi.structural_equal(NormalizeIndices()(mod), mod)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((5, 4), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.take(x, relax.const([5]), 0)))
    with pytest.raises(CompileError, match="the index 5 is out of range"):
        tvmlab.compile(builder.get())


def test_a_gpu_clips() -> None:
    with tvm.target.Target("cuda"):
        mod = CheckIndices()(taking())
    assert "assert" not in mod.script()
    (found,) = quickly(mod, X[0], np.array([-1, 10**9]))
    assert np.array_equal(found, X[0][[4, 4]])


def test_a_saved_program_in_cpp_refuses(tmp_path: Path) -> None:
    package = tvmlab.compile(taking()).save(tmp_path / "taking.so")
    loaded = tvmlab.load_executable(package)
    agree(loaded, lambda x, i: np.take(x, i, 0), X[0], np.array([-1, 5]))
    agree(loaded, lambda x, i: np.take(x, i, 0), X[0], np.array([-1, 4]))
    np.save(tmp_path / "x.npy", X[0])
    np.save(tmp_path / "i.npy", np.array([0, 5]))
    assert "an index is out of range" in refused(package, tmp_path / "x.npy", tmp_path / "i.npy")
