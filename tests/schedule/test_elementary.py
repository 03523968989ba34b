"""Elementary functions by polynomials, against PyTorch's in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm
from tvm import relax, te, tirx

import tvmlab
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
