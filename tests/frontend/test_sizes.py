"""Slices and shapes whose sizes are known only at run time, compared with the frameworks."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from tvm import relax, tirx
from tvm.relax import op

import tvmlab
from tests.frontend.test_indices import runtime
from tests.ir.indices import SCHEDULES, Program, agree, exported
from tests.oracles.models import array, model, node, said, value, weight
from tvmlab.errors import CompileError, OutOfRangeError
from tvmlab.ir.indices import CheckIndices

Call = Callable[..., Any]
SIZES = st.integers(0, 8)
NUMBERS = {"zero": 0, "two": 2, "three": 3, "back": -1, "far": 2**31, "end": 2**63 - 1, "axes": 0}
WIDTHS = {"around": [2, 3], "across": [-2, 1], "fewer": [-2, -1]}


def slices(*inputs: str) -> Any:
    return node("Slice", ["x", *inputs], ["t"])


def using(kind: str, *inputs: str, **attributes: Any) -> list[Any]:
    """Slice x to the size of y, and use the slice."""
    return [slices("zero", "m", "axes"), node(kind, inputs, ["o"], **attributes)]


def sized(nodes: list[Any]) -> Any:
    """A model of x and y, in which m is the size of y."""
    names = ["x", "y"]
    if nodes[-1].output[0] == "t":
        nodes = [*nodes, node("Identity", ["t"], ["o"])]
    return model(
        [node("Shape", ["y"], ["m"]), *nodes],
        [value(one, TensorProto.FLOAT, [size]) for one, size in zip(names, "nk", strict=True)],
        [value("o", TensorProto.FLOAT, None)],
        [
            *(weight(one, np.array([number])) for one, number in NUMBERS.items()),
            *(weight(one, np.array(widths)) for one, widths in WIDTHS.items()),
        ],
        opset=18,
    )


#: Any sizes have a result, or none in either.
EXACT: dict[str, list[Any]] = {
    "x[:m]": [slices("zero", "m", "axes")],
    "x[m:]": [slices("m", "far", "axes")],
    "x[m:end]": [slices("m", "end", "axes")],
    "x[3:m]": [slices("three", "m", "axes")],
    "x[:m:2]": [slices("zero", "m", "axes", "two")],
    "x[:m:-1]": [slices("far", "m", "axes", "back")],
    "x[::m]": [slices("zero", "far", "axes", "m")],
    "relu(x[:m])": using("Relu", "t"),
    "x[:m] before x": using("Concat", "t", "x", axis=0),
    "x[:m] @ y": using("MatMul", "t", "y"),
    "x @ y": [node("MatMul", ["x", "y"], ["o"])],
    "x expanded to y": [node("Expand", ["x", "m"], ["o"])],
    "x in a mirror": [node("Pad", ["x", "around"], ["o"], mode="reflect")],
    "x cut, in a mirror": [node("Pad", ["x", "across"], ["o"], mode="reflect")],
    "x with wide edges": [node("Pad", ["x", "around"], ["o"], mode="edge")],
    "x without three": [node("Pad", ["x", "fewer"], ["o"])],
    "the three largest of x": [node("TopK", ["x", "three"], ["o", "places"])],
}
#: The importer has assumed sizes: any other is an error.
ASSUMED: dict[str, list[Any]] = {
    "x[:m] + y": using("Add", "t", "y"),
    "x[:m] * x[:m]": [
        node("Slice", ["x", "zero", "m", "axes"], ["u"]),
        *using("Mul", "t", "u"),
    ],
    "x reshaped to y": [node("Reshape", ["x", "m"], ["o"])],
    "x reshaped to m rows": [
        node("Concat", ["m", "back"], ["s"], axis=0),
        node("Reshape", ["x", "s"], ["o"]),
    ],
    "x * y": [node("Einsum", ["x", "y"], ["o"], equation="i,i->i")],
    "dot(x, y)": [node("Einsum", ["x", "y"], ["o"], equation="i,i")],
}


@functools.cache
def onnx_pair(name: str, schedule: bool) -> tuple[Call, Call]:
    proto = sized({**EXACT, **ASSUMED}[name])
    mod = tvmlab.load(proto, shapes={"x": ("n",), "y": ("k",)})
    return tvmlab.compile(mod, schedule=schedule), runtime(proto)


def counted(size: int) -> np.ndarray:
    return np.arange(1, size + 1, dtype="float32")


@SCHEDULES
@pytest.mark.parametrize("name", EXACT)
@settings(max_examples=30)
@given(n=SIZES, m=SIZES)
def test_sizes_of_other_tensors(name: str, schedule: bool, n: int, m: int) -> None:
    agree(*onnx_pair(name, schedule), counted(n), counted(m))


def right_or_refused(ours: Call, theirs: Call, *inputs: np.ndarray) -> bool:
    """Whether there is a result, which is right; else the error is a clear one."""
    try:
        found = ours(*inputs)
    except OutOfRangeError as refusal:
        said(refusal)
        return False
    wanted = theirs(*inputs)
    assert found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes()
    return True


@SCHEDULES
@pytest.mark.parametrize("name", ASSUMED)
@settings(max_examples=30)
@given(n=st.integers(1, 8), m=SIZES)
def test_sizes_that_the_importer_assumes(name: str, schedule: bool, n: int, m: int) -> None:
    found = right_or_refused(*onnx_pair(name, schedule), counted(n), counted(m))
    # A 0 in a shape stands for the input's own size.
    if name in ("x * y", "dot(x, y)"):
        assert found == (m == n)
    elif "reshaped" in name:
        assert found == (m == n if name.endswith("y") else m > 0 and n % m == 0)
    else:
        assert found == (m <= n)


#: Operators with weights, which are for 4 channels.
WEIGHED: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "Conv": ((2, 4, 3, 3), {}),
    "Conv of groups": ((4, 2, 3, 3), {"group": 2}),
    "Conv of lines": ((2, 4, 3), {}),
    "ConvTranspose": ((4, 2, 3, 3), {}),
    "Gemm": ((4, 3), {}),
}


@functools.cache
def weighed(name: str, schedule: bool) -> tuple[Call, Call]:
    shape, attributes = WEIGHED[name]
    opened = ["n", "c", 5, 5][: len(shape)]
    proto = model(
        [node(name.split()[0], ["x", "w"], ["y"], **attributes)],
        [value("x", TensorProto.FLOAT, opened)],
        [value("y", TensorProto.FLOAT, None)],
        [weight("w", array(*shape))],
    )
    mod = tvmlab.load(proto, shapes={"x": opened})
    return tvmlab.compile(mod, schedule=schedule), runtime(proto)


@SCHEDULES
@pytest.mark.parametrize("name", WEIGHED)
def test_weights_are_for_one_number_of_channels(name: str, schedule: bool) -> None:
    ours, theirs = weighed(name, schedule)
    for channels in (4, 1, 2, 3, 5, 8):
        x = array(2, channels, *(5, 5)[: len(WEIGHED[name][0]) - 2])
        if channels == 4:
            assert np.allclose(ours(x), theirs(x), rtol=1e-4, atol=1e-5)
        else:
            agree(ours, theirs, x)


BY_PYTORCH: dict[str, Call] = {
    "x[:m]": lambda x, y: x[: y.shape[0]],
    "x[m:]": lambda x, y: x[y.shape[0] :],
    "x[-m:]": lambda x, y: x[-y.shape[0] :],
    "x[:-m]": lambda x, y: x[: -y.shape[0]],
    "x[1:m:2]": lambda x, y: x[1 : y.shape[0] : 2],
    "x[2:-2]": lambda x, y: x[2:-2],
    "x[:1] expanded": lambda x, y: x[:1].expand(y.shape[0]),
}


@functools.cache
def pytorch(name: str, schedule: bool) -> tuple[Call, Call]:
    program = Program(BY_PYTORCH[name])
    many = torch.export.Dim.AUTO
    mod = exported(program, counted(7), counted(3), dynamic_shapes={"inputs": ({0: many},) * 2})
    ours = tvmlab.compile(mod, schedule=schedule)
    return ours, lambda *inputs: program(*map(torch.from_numpy, inputs)).numpy()


@SCHEDULES
@pytest.mark.parametrize("name", BY_PYTORCH)
@settings(max_examples=20)
@given(n=st.integers(1, 8), m=st.integers(1, 8))
def test_sizes_in_pytorch(name: str, schedule: bool, n: int, m: int) -> None:
    agree(*pytorch(name, schedule), counted(n), counted(m))


def built(make: Callable[..., relax.Expr]) -> tvm.IRModule:
    """A module of x (n, 3) and y (m,)."""
    builder = relax.BlockBuilder()
    n, m = (tirx.Var(name, "int64") for name in "nm")
    x = relax.Var("x", relax.TensorType((n, 3), "float32"))
    y = relax.Var("y", relax.TensorType((m,), "float32"))
    with builder.function("main", [x, y]):
        builder.emit_func_output(builder.emit(make(x, y, n, m)))
    return builder.get()


SPANS: dict[str, tuple[Call, Call]] = {
    "-m:": (
        lambda x, n, m: op.strided_slice(x, [0], [-m], [n], assume_inbound=True),
        lambda x, m: x[-m:],
    ),
    ":-m, -2:": (
        lambda x, n, m: op.strided_slice(x, [0, 1], [0, -2], [-m, 9], assume_inbound=True),
        lambda x, m: x[:-m, -2:],
    ),
    "m - 3:": (
        lambda x, n, m: op.strided_slice(x, [0], [m - 3], [n], assume_inbound=True),
        lambda x, m: x[m - 3 :],
    ),
    "5:2": (
        lambda x, n, m: op.strided_slice(x, [0], [5], [2]),
        lambda x, m: x[5:2],
    ),
}


@functools.cache
def spanning(name: str, schedule: bool) -> Call:
    mod = built(lambda x, _, n, m: SPANS[name][0](x, n, m))
    return tvmlab.compile(mod, schedule=schedule)


@SCHEDULES
@pytest.mark.parametrize("name", SPANS)
@settings(max_examples=30)
@given(n=SIZES, m=SIZES)
def test_bounds_below_zero(name: str, schedule: bool, n: int, m: int) -> None:
    x = np.arange(3 * n, dtype="float32").reshape(n, 3)
    agree(spanning(name, schedule), lambda x, y: SPANS[name][1](x, len(y)), x, counted(m))


@SCHEDULES
def test_a_scalar_has_one_element(schedule: bool) -> None:
    mod = built(lambda x, y, n, m: op.reshape(relax.const(2.5), [m]))
    ours = tvmlab.compile(mod, schedule=schedule)
    for m in (0, 1, 2):
        x = np.zeros((2, 3), "float32")
        agree(ours, lambda x, y: np.reshape(np.float32(2.5), y.shape), x, counted(m))


@functools.cache
def expanding(shape: tuple[int, ...], rank: int, opened: bool, schedule: bool) -> tuple[Call, Call]:
    names = [f"n{axis}" if opened else size for axis, size in enumerate(shape)]
    proto = model(
        [node("Expand", ["x", "s"], ["y"])],
        [value("x", TensorProto.FLOAT, names), value("s", TensorProto.INT64, [rank])],
        [value("y", TensorProto.FLOAT, None)],
        opset=18,
    )
    mod = tvmlab.load(proto, shapes={"x": names} if opened else None)
    return tvmlab.compile(mod, schedule=schedule), runtime(proto)


@SCHEDULES
@settings(max_examples=60)
@given(
    shape=st.sampled_from([(3, 4), (1, 4), (3, 1), (1,), ()]),
    more=st.integers(0, 1),
    opened=st.booleans(),
    data=st.data(),
)
def test_expand_to_a_shape_at_run_time(
    schedule: bool, shape: tuple[int, ...], more: int, opened: bool, data: st.DataObject
) -> None:
    more = more if shape else 1
    rank = len(shape) + more
    fitting = [st.sampled_from([1, size]) for size in (5,) * more + shape]
    sizes = [st.integers(1, 5) | st.sampled_from([-1, 0]) for _ in range(rank)]
    target = data.draw(st.tuples(*fitting) | st.tuples(*sizes))
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    agree(*expanding(shape, rank, opened, schedule), x, np.array(target, "int64"))


def attention(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    size = (1, -1, 1, 3)
    x, y = (torch.from_numpy(one).reshape(size).transpose(1, 2) for one in (queries, keys))
    found = torch.nn.functional.scaled_dot_product_attention(x, y, y)
    return found.transpose(1, 2).numpy()


def attended(x: relax.Expr, y: relax.Expr, n: Any, m: Any) -> relax.Expr:
    keys = op.reshape(y, [1, tirx.floordiv(m, 3), 1, 3])
    return op.nn.attention(op.reshape(x, [1, n, 1, 3]), keys, op.reshape(y, [1, n, 1, 3]))


def enlarged(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    picture = torch.from_numpy(x).reshape(1, 1, -1, 3)
    return torch.nn.functional.interpolate(picture, (4, 3), mode="bilinear").numpy()


#: What x and y must hold in each, whose errors come from no importer.
BY_HAND: dict[str, tuple[Call, Call, Callable[[int, int], bool]]] = {
    "squeeze": (
        lambda x, y, n, m: op.squeeze(x, [0]),
        lambda x, y: np.squeeze(x, 0),
        lambda n, m: n == 1,
    ),
    "resize": (
        lambda x, y, n, m: op.image.resize2d(op.reshape(x, [1, 1, n, 3]), (4, 3)),
        enlarged,
        lambda n, m: n > 0,
    ),
    "attention": (attended, attention, lambda n, m: m == 3 * n and n > 0),
    "cross entropy": (
        lambda x, y, n, m: op.nn.cross_entropy_with_logits(op.reshape(x, [n * 3]), y),
        lambda x, y: -np.sum(x.ravel() * y),
        lambda n, m: m == 3 * n and n > 0,  # an empty sum is not initialized without a schedule
    ),
}


@SCHEDULES
@pytest.mark.parametrize("name", BY_HAND)
def test_operators_refuse_sizes_that_do_not_fit(name: str, schedule: bool) -> None:
    make, theirs, fits = BY_HAND[name]
    ours = tvmlab.compile(built(make), schedule=schedule)
    for n, m in itertools.product((0, 1, 2, 3), (0, 1, 3, 6, 9)):
        x, y = counted(3 * n).reshape(n, 3), counted(m)
        if fits(n, m):
            assert np.allclose(ours(x, y), theirs(x, y), rtol=1e-5)
        elif n or m:
            with pytest.raises(OutOfRangeError, match="give inputs with"):
                ours(x, y)


def test_known_sizes_that_do_not_fit() -> None:
    for make in (
        lambda x, y, n, m: op.topk(x, 4, 1)[0],
        lambda x, y, n, m: op.nn.pad(x, [0, 0, 3, 0], "reflect"),
        # The result's shape is unknown: the batches may differ.
        lambda x, y, n, m: op.matmul(op.reshape(x, [n, 1, 3]), op.reshape(y, [m // 2, 2, 1])),
    ):
        with pytest.raises(CompileError, match="do not fit"):
            tvmlab.compile(built(make))


def test_a_gpu_checks_no_sizes() -> None:
    mod = built(
        lambda x, y, n, m: op.add(op.strided_slice(x, [0], [0], [m], assume_inbound=True), x)
    )
    with tvm.target.Target("cuda"):
        assert "check_sizes" not in CheckIndices()(mod).script()
