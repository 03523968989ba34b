from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto
from tvm import relax

import tvmlab
from tests.oracles.models import array, convolutional, dense, model, node, said, value
from tvmlab.errors import CompileError, InputError
from tvmlab.runtime.signature import Input, Signature


@pytest.fixture(scope="module")
def executable() -> tvmlab.Executable:
    return tvmlab.compile(tvmlab.load(dense()))


X = array(2, 4)


def test_inputs_by_place_and_by_name(executable: tvmlab.Executable) -> None:
    assert np.array_equal(executable(X), executable(x=X))
    np.testing.assert_allclose(executable(X), X @ array(4, 3), rtol=1e-5)
    assert executable(X).dtype == np.float32


@pytest.mark.parametrize(
    "given",
    [
        np.asfortranarray(X),
        X[::-1].copy()[::-1],
        np.repeat(X, 2, axis=1)[:, ::2],
        np.frombuffer(b"\0" + X.tobytes(), "uint8")[1:].view("float32").reshape(2, 4),
        torch.from_numpy(np.ascontiguousarray(X.T)).T,
        tvm.runtime.tensor(X),
    ],
    ids=["fortran", "reversed", "strided", "unaligned", "torch.T", "tvm"],
)
def test_any_array_will_do(executable: tvmlab.Executable, given: Any) -> None:
    assert np.array_equal(executable(given), executable(X))


@pytest.mark.parametrize(
    ("args", "named", "what"),
    [
        ((), {}, "input 'x' is missing"),
        ((X, X), {}, "2 inputs were passed, expected 1"),
        ((X,), {"x": X}, "input 'x' was passed twice"),
        ((), {"z": X}, "there is no input named 'z'"),
        ((X.T,), {}, "input 'x' has shape (4, 2), not (2, 4)"),
        ((X.astype("float64"),), {}, "input 'x' is of dtype float64, not float32"),
        (([[1.0], [1.0, 2.0]],), {}, "input 'x' cannot be read as an array"),
        ((torch.from_numpy(X).requires_grad_(),), {}, "input 'x' cannot be read as an array"),
    ],
)
def test_inputs_that_do_not_fit(
    executable: tvmlab.Executable, args: tuple[Any, ...], named: dict[str, Any], what: str
) -> None:
    for use in (executable, executable.time):
        with pytest.raises(InputError) as caught:
            use(*args, **named)
        assert what in caught.value.what
        assert caught.value.where == "main(x: float32[2, 4])"
        said(caught.value)


SIZES = st.integers(0, 4)


@given(st.lists(st.sampled_from("nm"), max_size=3), st.data())
def test_bind_holds_equal_names_to_equal_sizes(names: list[str], data: Any) -> None:
    signature = Signature((Input("x", tuple(names), "int8"), Input("y", ("n",), "int8")))
    sizes = [data.draw(SIZES) for _ in names]
    n = data.draw(SIZES)
    found = {(name, size) for name, size in [*zip(names, sizes, strict=True), ("n", n)]}
    consistent = len(found) == len({name for name, _ in found})
    arrays = np.zeros(sizes, "int8"), np.zeros(n, "int8")
    if consistent:
        assert [a.shape for a in signature.bind(arrays, {})] == [tuple(sizes), (n,)]
    else:
        with pytest.raises(InputError):
            signature.bind(arrays, {})


def test_a_parameter_of_unknown_shape_is_refused_when_compiling() -> None:
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=2))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.relu(x)))
    with pytest.raises(CompileError, match="its shape is not known") as caught:
        tvmlab.compile(builder.get())
    assert "tvmlab.load(model, shapes={'x': " in said(caught.value)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (TensorProto.FLOAT16, "float16"),
        (TensorProto.DOUBLE, "float64"),
        (TensorProto.INT8, "int8"),
        (TensorProto.INT32, "int32"),
        (TensorProto.INT64, "int64"),
        (TensorProto.BFLOAT16, "bfloat16"),
    ],
)
def test_dtypes_go_in_and_come_out(kind: int, dtype: str) -> None:
    pytest.importorskip("ml_dtypes", reason="ml_dtypes: NumPy knows no bfloat16 without it")
    proto = model([node("Neg", ["x"], ["y"])], [value("x", kind, [3])], [value("y", kind, [3])])
    result = tvmlab.compile(tvmlab.load(proto))(np.array([1, -2, 3]).astype(dtype))
    assert str(result.dtype) == dtype
    assert result.astype("float64").tolist() == [-1, 2, -3]


def test_results_may_be_nested_and_hold_an_input_or_a_shape() -> None:
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        shape, out = builder.emit(relax.op.shape_of(x)), builder.emit(relax.op.nn.relu(x))
        builder.emit_func_output(relax.Tuple([x, relax.Tuple([out, relax.Tuple([])]), shape]))
    given = array(2, 3)
    same, (relued, nothing), sizes = tvmlab.compile(builder.get())(given)
    assert np.array_equal(same, given)
    assert np.array_equal(relued, np.maximum(given, 0))
    assert nothing == ()
    assert sizes == (2, 3)


@pytest.mark.parametrize("how", ["compiled", "loaded"])
def test_arrays_in_and_out_are_the_callers(how: str, tmp_path: Path) -> None:
    w = relax.const(array(3))
    x = relax.Var("x", relax.TensorType((6,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        out = builder.emit(relax.op.nn.relu(x))
        view = builder.emit(relax.op.reshape(out, (2, 3)))
        # An input, a constant, views of both, and one result more than once.
        same, half = (builder.emit(relax.op.reshape(v, (1, -1))) for v in (x, w))
        builder.emit_func_output(relax.Tuple([x, same, w, half, out, out, view]))
    executable = tvmlab.compile(builder.get())
    if how == "loaded":
        executable = tvmlab.load_executable(executable.save(tmp_path / "views.so"))
    kept = []
    for seed in range(3):
        given = array(6, seed=seed)
        results = executable(given)
        before = given.copy()
        right = [
            *(before, before[None], array(3), array(3)[None]),
            *(np.maximum(before, 0), np.maximum(before, 0), np.maximum(before, 0).reshape(2, 3)),
        ]
        given[:] = 99  # no result changes with it
        for result, expected in zip(results, right, strict=True):
            assert np.array_equal(result, expected)
            result[...] = seed  # nor with another result
        assert (given == 99).all()
        assert all(r.flags.owndata and r.flags.writeable for r in results)
        kept.append(results)
    for seed, results in enumerate(kept):  # nor with a later call
        assert all((result == seed).all() for result in results)


def test_threads_share_an_executable() -> None:
    executable = tvmlab.compile(tvmlab.load(convolutional()))
    inputs = [array(1, 3, 8, 8, seed=i) for i in range(6)]
    wrong: list[object] = []
    start = threading.Barrier(len(inputs))

    def work(x: np.ndarray) -> None:
        start.wait()
        try:
            results = [executable(x) for _ in range(50)]
            wrong.extend(r for r in results if not np.array_equal(r, expected[x.tobytes()]))
        except Exception as error:
            wrong.append(error)

    other = tvmlab.compile(tvmlab.load(convolutional()))
    expected = {x.tobytes(): other(x) for x in inputs}
    # The first call of `executable`, which starts its virtual machine, is one of these.
    workers = [threading.Thread(target=work, args=(x,)) for x in inputs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []
