"""Elementary functions by polynomials, against PyTorch's in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm
import tvm_ffi
from tvm import relax, te, tirx

import tvmlab
from tests.oracles.models import array
from tvmlab.schedule.elementary import by_polynomials

# Every 4,095th float32 number, including NaN of many payloads, and numbers of usual size.
ALL = np.arange(0, 2**32, 2**12 - 1, dtype="uint32").view("float32")
SIZES = (0.5, 2.0, 10.0, 110.0)
LINES = [np.linspace(-size, size, 2**18, dtype="float32") for size in SIZES]
X = np.concatenate([ALL, *LINES, np.float32([np.inf, -np.inf, np.nan, 0.0, -0.0])])


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "erf"])
@pytest.mark.filterwarnings("ignore:(invalid|overflow)")
def test_error_in_units_in_the_last_place(name: str) -> None:
    a = te.placeholder(X.shape, "float32")
    function = te.create_prim_func(
        [a, te.compute(X.shape, lambda i: getattr(tirx, name)(a[i]), name="b")]
    )
    schedule = tvm.s_tir.Schedule(by_polynomials(function))
    (loop,) = schedule.get_loops(schedule.get_sblock("b"))
    _, lanes = schedule.split(loop, [None, 8])
    schedule.vectorize(lanes)
    found = tvm.runtime.tensor(np.zeros_like(X))
    tvm.compile(schedule.mod, tvmlab.host_target())["main"](tvm.runtime.tensor(X), found)
    exact = getattr(torch, name)(torch.from_numpy(X).double()).numpy()
    unit = np.spacing(np.abs(exact.astype("float32"))).astype("float64")
    error = np.abs(found.numpy() - exact) / unit
    finite = np.isfinite(exact.astype("float32"))
    print(name, error[finite].max())
    assert error[finite].max() < 2
    np.testing.assert_array_equal(found.numpy()[~finite], exact.astype("float32")[~finite])


def chosen(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    zero, small = relax.const(0.0, "float32"), builder.emit(relax.op.exp(x))
    return relax.op.where(builder.emit(relax.op.less(x, zero)), zero, small)


@pytest.mark.parametrize("width", [3, 11, 32, 37])
def test_a_function_in_a_branch_keeps_nan(width: int) -> None:
    """Softmax has such a branch itself, for small results."""
    x = relax.Var("x", relax.TensorType((4, width), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            parts = [builder.emit(chosen(builder, x)), builder.emit(relax.op.nn.softmax(x))]
            made = builder.emit_output(relax.Tuple(parts))
        builder.emit_func_output(made)
    numbers = array(4, width)
    numbers[1, 2], numbers[2, 1], numbers[3] = np.nan, np.inf, -np.inf
    given = torch.from_numpy(numbers)
    wanted = torch.where(given < 0, 0, given.exp()), given.softmax(1)
    for one, other in zip(tvmlab.compile(builder.get())(numbers), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_compiled_network_calls_no_library() -> None:
    # The last tile of 197 rows has fewer rows, and code of its own.
    x = relax.Var("x", relax.TensorType((197, 64), "float32"))
    weight = relax.const(np.ones((64, 64), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.gelu(relax.op.matmul(relax.op.tanh(x), weight)))
            made = builder.emit_output(relax.op.nn.softmax(relax.op.sigmoid(y)))
        builder.emit_func_output(made)
    text = str(tvmlab.compile(builder.get()).tir())
    assert "T.reinterpret" in text
    assert not [name for name in ("T.exp(", "T.erf(", "T.tanh(", "T.sigmoid(") if name in text]


@pytest.mark.parametrize("width", [5, 32])
def test_a_function_in_a_branch_does_not_read_outside(width: int) -> None:
    """Padding before a function: the index of a padded number is outside of the input."""
    x = te.placeholder((8, width), "float32", name="x")

    def value(i: tirx.Var, j: tirx.Var) -> tirx.PrimExpr:
        inside = tirx.all(i >= 2, i < 10)
        return tirx.if_then_else(inside, tirx.exp(x[i - 2, j]), tirx.const(0, "float32"))

    function = te.create_prim_func([x, te.compute((12, width), value, name="padded")])
    built = tvmlab.compile(function)
    given, found = array(8, width), list[tvm.ir.TensorLoad]()
    np.testing.assert_allclose(built(given)[2:10], np.exp(given), rtol=1e-6)

    def chosen(call: tvm.ir.Call) -> tirx.PrimExpr:
        guarded = call.op.name == "prim.if_then_else"
        return tirx.const(0, "float32") if guarded else call

    for func in built.tir().functions.values():
        rest = tvm_ffi.structural_map(func.body, (tvm.ir.Call, chosen))
        tvm_ffi.structural_walk(rest, (tvm.ir.TensorLoad, found.append))
    assert not [load for load in found if load.source.name == "x"]
