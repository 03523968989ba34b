"""The pass that checks indices, on modules made by hand, and gradients compared with PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
import tvm_ffi
from tvm import relax

import tvmlab
from tests.ir.indices import EXTREMES, SHAPE, Program, X, agree, exported, taking
from tests.oracles.models import array, quickly
from tests.runtime.deployed import refused
from tvmlab.compiler import simplify
from tvmlab.errors import CompileError, OutOfRangeError
from tvmlab.ir.indices import CheckIndices, NormalizeIndices

# Gradients


def test_the_gradient_of_take() -> None:
    for axis in (0, 1, -1, -3):
        builder = relax.BlockBuilder()
        count = 6
        shape = [*SHAPE]
        shape[axis] = count
        x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
        i = relax.Var("i", relax.TensorType((count,), "int64"))
        g = relax.Var("g", relax.TensorType(shape, "float32"))
        with builder.function("main", [g, x, i]):
            made = builder.emit(relax.op.grad.take_backward(g, x, i, axis))
            builder.emit_func_output(made)
        ours = tvmlab.compile(builder.get())
        size, grad = SHAPE[axis], array(*shape)
        index = np.array([0, size - 1, -1, -size, 1, 1])
        data = torch.zeros(SHAPE, requires_grad=True)
        data.movedim(axis, 0)[torch.from_numpy(index)].movedim(0, axis).backward(
            torch.from_numpy(grad)
        )
        assert np.allclose(ours(grad, X, index), data.grad)
        for outside in (size, -size - 1, *EXTREMES):
            index[2] = outside
            with pytest.raises(OutOfRangeError, match=f"from -{size} to {size - 1}"):
                ours(grad, X, index)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize(
    "shape", [(3, 5, 4), *(pytest.param(one, marks=pytest.mark.full) for one in ((3, 5), (5,)))]
)
@pytest.mark.parametrize("ignore", [-100, 2, 10**9])
def test_the_gradient_of_nll_loss(
    ignore: int, shape: tuple[int, ...], reduction: str, weighted: bool
) -> None:
    x, w = array(*shape), np.abs(array(5))
    by = shape[:1] + shape[2:] if len(shape) > 1 else ()
    i = np.asarray(np.arange(np.prod(by, dtype=int)).reshape(by) % 5)
    i.flat[-1] = ignore if by else 3
    data = torch.tensor(x, requires_grad=True)
    loss = torch.nn.functional.nll_loss(
        data,
        torch.from_numpy(i),
        torch.from_numpy(w) if weighted else None,
        ignore_index=ignore,
        reduction=reduction,
    )
    grad = np.asarray(array(*by) if reduction == "none" else 1.5, "float32")
    loss.backward(torch.from_numpy(grad))
    first = i.flat[0]
    builder = relax.BlockBuilder()
    given = {"g": grad, "x": x, "i": i, **({"w": w} if weighted else {})}
    params = [relax.Var(n, relax.TensorType(a.shape, str(a.dtype))) for n, a in given.items()]
    with builder.function("main", params):
        made = relax.op.grad.nll_loss_backward(*params, reduction=reduction, ignore_index=ignore)
        builder.emit_func_output(builder.emit(made))
    for mod in (builder.get(), simplify(builder.get())):
        ours = tvmlab.compile(mod)
        i.flat[0] = first
        assert np.allclose(ours(*given.values()), data.grad, rtol=1e-5)
        for outside in (5, -1, *EXTREMES):
            i.flat[0] = outside
            if outside != ignore:
                with pytest.raises(OutOfRangeError):
                    ours(*given.values())


# The pass itself, and where the check goes


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
