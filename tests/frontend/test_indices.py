"""Indices below zero and out of range, compared with the frameworks that define them."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from tvm.relax.frontend.onnx import from_onnx

import tvmlab
from tests.ir.indices import (
    SCHEDULES,
    SHAPE,
    Call,
    Program,
    X,
    agree,
    drawn,
    exported,
)
from tests.oracles import litert
from tests.oracles.litert import Litert, Tensor
from tests.oracles.models import array, model, node, quickly, said, value, weight
from tvmlab.errors import ModelError, OutOfRangeError, UnsupportedOperatorError

# PyTorch


CONSTANTS: dict[str, Call] = {
    "last": lambda x: x[:, -1],
    "select": lambda x: x.select(1, -2),
    "list": lambda x: x[:, torch.tensor([-1, 0])],
    "both ends": lambda x: x[-1, ..., -4],
    "pairs": lambda x: x[:, torch.tensor([-1, 0]), torch.tensor([-4, 3])],
}


@SCHEDULES
@pytest.mark.parametrize("name", CONSTANTS)
def test_constant_indices_of_pytorch(name: str, schedule: bool) -> None:
    program = Program(CONSTANTS[name])
    mod = exported(program, X)
    agree(tvmlab.compile(mod, schedule=schedule), lambda x: program(torch.tensor(x)).numpy(), X)
    # The import alone makes them right, so that upstream's own build has them, too.
    assert np.array_equal(quickly(mod, X)[0], program(torch.tensor(X)).numpy())


class LastStep(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm = torch.nn.LSTM(4, 6, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps: torch.Tensor = self.lstm(x)[0]
        return steps[:, -1]


@SCHEDULES
def test_the_last_step_of_an_lstm(schedule: bool) -> None:
    program = LastStep()
    found = tvmlab.compile(exported(program, X), schedule=schedule)(X)
    assert np.allclose(found, program(torch.tensor(X)).detach().numpy(), rtol=1e-4, atol=1e-5)


#: A function of x and indices, and the shapes of the indices.
BY_PYTORCH: dict[str, tuple[Call, list[tuple[int, ...]]]] = {
    "embedding": (lambda x, i: torch.nn.functional.embedding(i, x[0]), [(2, 3)]),
    "index": (lambda x, i: x[i], [(4,)]),
    "index of axis 1": (lambda x, i: x[:, i], [(2, 2)]),
    "index pairs": (lambda x, i, j: x[i, j], [(2, 1), (3,)]),
    "index pairs after an axis": (lambda x, i, j: x[:, i, j], [(3,), (3,)]),
    "index pairs around an axis": (lambda x, i, j: x[i, :, j], [(3,), (3,)]),
    "take": (torch.take, [(3,)]),
    "gather": (lambda x, i: torch.gather(x, 1, i), [(3, 2, 4)]),
    "index_select": (lambda x, i: torch.index_select(x, -2, i), [(3,)]),
    "scatter": (lambda x, i: torch.zeros(3, 5, 4).scatter(1, i, x), [(2, 2, 4)]),
    "scatter a value": (lambda x, i: x.scatter(1, i, 2.5), [(3, 1, 4)]),
    "index_put": (lambda x, i, j, k: x.index_put((i, j, k), x[0, 0, :3]), [(3,)] * 3),
    "index_put a value": (lambda x, i: x[0, 0].index_put((i,), torch.tensor(7.0)), [(1,)]),
    "gather with a smaller index": (lambda x, i: torch.gather(x, 1, i), [(2, 3, 2)]),
    "cast": (lambda x, i: x[i.to(torch.int32)], [(4,)]),
    "cast before embedding": (
        lambda x, i: torch.nn.functional.embedding(i.to(torch.int32), x[0]),
        [(2, 3)],
    ),
    "counted by itself": (lambda x, i: x[torch.where(i < 0, i + x.shape[0], i)], [(4,)]),
    "nll_loss": (
        lambda x, i: torch.nn.functional.nll_loss(x[:, :, 0], i, reduction="none"),
        [(3,)],
    ),
}


def unique(indices: tuple[np.ndarray, ...]) -> bool:
    """Whether no place is written twice: PyTorch does not define which value stays there."""
    places = np.stack([i % n for i, n in zip(indices, SHAPE, strict=False)])
    return len(np.unique(places, axis=1).T) == places.shape[1]


@functools.cache
def pytorch(name: str, schedule: bool) -> tuple[Call, Call]:
    function, shapes = BY_PYTORCH[name]
    program = Program(function)
    examples = [np.zeros(shape, "int64") for shape in shapes]
    ours = tvmlab.compile(exported(program, X, *examples), schedule=schedule)
    return ours, lambda *inputs: program(*map(torch.from_numpy, inputs)).numpy()


@SCHEDULES
@pytest.mark.parametrize("name", BY_PYTORCH)
@settings(max_examples=40)
@given(data=st.data())
def test_indices_of_pytorch(name: str, schedule: bool, data: st.DataObject) -> None:
    indices = tuple(drawn(data, shape) for shape in BY_PYTORCH[name][1])
    if name == "index_put" and not unique(indices):
        return
    if name.startswith("scatter") and np.any(np.diff(np.sort(indices[0] % 5, axis=1), axis=1) == 0):
        return
    agree(*pytorch(name, schedule), X, *indices)


SMALLER = [
    *((2, 3, 2), (3, 1, 4)),
    *(
        pytest.param(one, marks=pytest.mark.full)
        for one in ((1, 5, 3), (3, 5, 1), (2, 2, 4), (3, 4, 3))
    ),
]


def permuted(shape: tuple[int, ...], axis: int) -> np.ndarray:
    """Make an index that repeats no place of the axis."""
    drawn = np.random.default_rng(0).random([SHAPE[axis], *np.delete(shape, axis)])
    return np.moveaxis(drawn.argsort(0)[: shape[axis]], 0, axis)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("shape", SMALLER)
def test_a_scatter_with_a_smaller_index(shape: tuple[int, ...], axis: int) -> None:
    program = Program(lambda x, i, u: x.scatter(axis, i, u))
    index, updates = permuted(shape, axis), array(*shape)
    ours = tvmlab.compile(exported(program, X, index, updates))
    agree(ours, lambda *given: program(*map(torch.from_numpy, given)).numpy(), X, index, updates)
    constant = Program(lambda x, u: x.scatter(axis, torch.tensor(index), u))
    found = tvmlab.compile(exported(constant, X, updates))(X, updates)
    assert np.array_equal(found, ours(X, index, updates))
    index[0, 0, 0] = SHAPE[axis]
    with pytest.raises(OutOfRangeError, match=f"from 0 to {SHAPE[axis] - 1}$"):
        ours(X, index, updates)


@SCHEDULES
def test_sums_at_repeated_indices_are_whole(schedule: bool) -> None:
    """Threads that add to one element at once lose some of what they add."""
    program = Program(lambda x, i, v: x.index_put((i,), v, accumulate=True))
    many = 1_000_000
    inputs = (np.zeros(3, "float32"), np.arange(many) % 3, np.ones(many, "float32"))
    ours = tvmlab.compile(exported(program, *inputs), schedule=schedule)
    agree(ours, lambda *given: program(*map(torch.from_numpy, given)).numpy(), *inputs)


@SCHEDULES
def test_a_batch_of_any_size_keeps_its_last_step(schedule: bool) -> None:
    batch, steps = torch.export.Dim("batch"), torch.export.Dim("steps", min=2)
    program = Program(lambda x, i: x[:, -1][i])
    mod = exported(
        program, X, np.array([0, -1, 1]), dynamic_shapes={"inputs": ({0: batch, 1: steps}, {})}
    )
    ours = tvmlab.compile(mod, schedule=schedule)
    for last in (2, -3, 3, -4):
        given = X, np.array([0, last, -1])
        agree(ours, lambda *values: program(*map(torch.from_numpy, values)).numpy(), *given)


def test_classes_of_one_hot() -> None:
    program = Program(lambda i: torch.nn.functional.one_hot(i, 5))
    ours = tvmlab.compile(exported(program, np.array([0, 1])))
    assert np.array_equal(ours(np.array([4, 0])), np.eye(5)[[4, 0]])
    for outside in (5, -1):
        with pytest.raises(AssertionError, match="Class values"):  # PyTorch's own words
            ours(np.array([0, outside]))


def test_a_mask_is_refused() -> None:
    with pytest.raises(ModelError, match="mask"):
        exported(Program(lambda x: x[torch.tensor([True, False, True])]), X)


# ONNX

INT64 = TensorProto.INT64


def onnx_model(
    kind: str, indices: Any, extra: tuple[int, ...] = (), opened: bool = False, **attributes: Any
) -> Any:
    """One operator of x, indices (a shape, or constants), and perhaps updates."""
    constant = isinstance(indices, np.ndarray)
    inputs, parts = [value("x", TensorProto.FLOAT, "abc" if opened else SHAPE)], []
    if constant:
        parts = [weight("i", indices)]
    else:
        inputs.append(value("i", INT64, ["d", *indices[1:]] if opened else indices))
    if extra:
        inputs.append(value("u", TensorProto.FLOAT, ["d", *extra[1:]] if opened else extra))
    names = ["x", "i", "u"] if extra else ["x", "i"]
    result = value("y", TensorProto.FLOAT, None)
    return model([node(kind, names, ["y"], **attributes)], inputs, [result], parts, opset=18)


def runtime(proto: Any) -> Call:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    names = [one.name for one in session.get_inputs()]
    return lambda *inputs: session.run(None, dict(zip(names, inputs, strict=True)))[0]


def casting() -> Any:
    """A model that casts the indices of a Gather to int32, where large ones become others."""
    return model(
        [node("Cast", ["i"], ["j"], to=TensorProto.INT32), node("Gather", ["x", "j"], ["y"])],
        [value("x", TensorProto.FLOAT, SHAPE), value("i", INT64, (4,))],
        [value("y", TensorProto.FLOAT, None)],
    )


def counting() -> Any:
    """A model that adds the size of the axis itself, as upstream's importer does."""
    return model(
        [
            node("Less", ["i", "zero"], ["below"]),
            node("Shape", ["x"], ["shape"]),
            node("Gather", ["shape", "zero"], ["size"]),
            node("Add", ["i", "size"], ["moved"]),
            node("Where", ["below", "moved", "i"], ["j"]),
            node("Gather", ["x", "j"], ["y"]),
        ],
        [value("x", TensorProto.FLOAT, SHAPE), value("i", INT64, (4,))],
        [value("y", TensorProto.FLOAT, None)],
        [weight("zero", np.array(0))],
    )


BY_ONNX: dict[str, tuple[tuple[int, ...], Any]] = {
    "Gather": ((2, 2), functools.partial(onnx_model, "Gather", axis=1)),
    "GatherElements": ((3, 2, 4), functools.partial(onnx_model, "GatherElements", axis=1)),
    "GatherND": ((3, 2), functools.partial(onnx_model, "GatherND")),
    "GatherND of batches": ((3, 2, 1), functools.partial(onnx_model, "GatherND", batch_dims=1)),
    "ScatterElements": (
        (3, 1, 4),
        functools.partial(onnx_model, "ScatterElements", axis=1, extra=(3, 1, 4)),
    ),
    "ScatterElements add": (
        (3, 2, 4),
        functools.partial(onnx_model, "ScatterElements", axis=1, extra=(3, 2, 4), reduction="add"),
    ),
    "ScatterElements with a smaller index": (
        (2, 3, 2),
        functools.partial(onnx_model, "ScatterElements", axis=1, extra=(2, 3, 2), reduction="add"),
    ),
    "ScatterND": ((3, 2), functools.partial(onnx_model, "ScatterND", extra=(3, 4))),
    "cast": ((4,), lambda **_: casting()),
    "counted by itself": ((4,), lambda **_: counting()),
}
OPENED = ("Gather", "GatherND", "ScatterND")


def open_sizes(name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    sizes: dict[str, Any] = {"x": ("a", "b", "c"), "i": ("d", *shape[1:])}
    return {**sizes, "u": ("d", "c")} if name.startswith("Scatter") else sizes


@functools.cache
def onnx_pair(name: str, schedule: bool, opened: bool) -> tuple[Call, Call]:
    shape, make = BY_ONNX[name]
    proto = make(indices=shape, opened=opened)
    mod = tvmlab.load(proto, shapes=open_sizes(name, shape) if opened else None)
    return tvmlab.compile(mod, schedule=schedule), runtime(proto)


@SCHEDULES
@pytest.mark.parametrize(
    ("name", "opened"), [(n, False) for n in BY_ONNX] + [(n, True) for n in OPENED]
)
@settings(max_examples=40)
@given(data=st.data())
def test_indices_of_onnx(name: str, opened: bool, schedule: bool, data: st.DataObject) -> None:
    inputs = [X, drawn(data, BY_ONNX[name][0])]
    if name.startswith("Scatter"):
        extra = BY_ONNX[name][1].keywords["extra"]
        inputs.append(np.arange(np.prod(extra), dtype="float32").reshape(extra))
        if name == "ScatterND" and not unique(tuple(inputs[1].T)):
            return
    agree(*onnx_pair(name, schedule, opened), *inputs)


@pytest.mark.parametrize("pair", [pytorch, functools.partial(onnx_pair, opened=False)])
@pytest.mark.parametrize(
    ("kind", "indices"),
    [("cast", [2**32 + 1, 2**32 - 1, 0, 2]), ("counted by itself", [-6, -4, 0, 2])],
)
def test_a_model_keeps_its_own_operators_on_indices(
    pair: Call, kind: str, indices: list[int]
) -> None:
    ours, theirs = pair(kind, schedule=True)
    wanted = theirs(X, np.array(indices))
    assert np.array_equal(ours(X, np.array(indices)), wanted)


def test_constant_indices_of_onnx() -> None:
    proto = onnx_model("Gather", np.array([4, -1, -5, 0]), axis=1)
    agree(tvmlab.compile(tvmlab.load(proto)), runtime(proto), X)
    for outside in (5, -6, -10):
        with pytest.raises(ModelError, match=f"the index {outside} is out of range") as refusal:
            tvmlab.load(onnx_model("Gather", np.array([0, outside]), axis=1))
        said(refusal.value)


# ONNX Runtime takes an end of 2**63 - 1 for the end in the direction of the step.
BOUNDS = st.integers(-8, 8) | st.sampled_from((2**62, -(2**63)))


@functools.cache
def slicing(schedule: bool) -> tuple[Call, Call]:
    bounds = [value(name, INT64, [1]) for name in "bes"]
    proto = model(
        [node("Slice", ["x", "b", "e", "axes", "s"], ["y"])],
        [value("x", TensorProto.FLOAT, SHAPE), *bounds],
        [value("y", TensorProto.FLOAT, (3, "n", 4))],
        [weight("axes", [1])],
    )
    return tvmlab.compile(tvmlab.load(proto), schedule=schedule), runtime(proto)


@SCHEDULES
@settings(max_examples=60)
@given(begin=BOUNDS, end=BOUNDS, step=st.integers(-6, 6))
def test_slices_of_onnx(schedule: bool, begin: int, end: int, step: int) -> None:
    agree(*slicing(schedule), X, *(np.array([number]) for number in (begin, end, step)))


# TensorFlow Lite

FLOATS = Tensor(SHAPE, "float32")
ROWS = litert.constant(np.arange(12, dtype="float32").reshape(3, 4))


def indexing(
    code: str, indices: tuple[int, ...], out: tuple[int, ...], dtype: str = "int32", **options: int
) -> tuple[litert.Model, tuple[int, ...]]:
    """Write an operator of x and indices."""
    tensors = [FLOATS, Tensor(indices, dtype), Tensor(out, "float32")]
    return litert.Model(code, tensors, "GatherOptions" if options else "", options), indices


BY_TFLITE: dict[str, tuple[litert.Model, tuple[int, ...]]] = {
    "GATHER": indexing("GATHER", (2,), (3, 2, 4), Axis=1),
    "GATHER_ND": indexing("GATHER_ND", (3, 2), (3, 4)),
    "GATHER of int64": indexing("GATHER", (2,), (3, 2, 4), "int64", Axis=1),
    "GATHER of batches": indexing("GATHER", (3, 2), (3, 2, 4), Axis=1, BatchDims=1),
    "GATHER of batches, of a later axis": indexing(
        "GATHER", (3, 2), (3, 5, 2), Axis=-1, BatchDims=-1
    ),
    "EMBEDDING_LOOKUP": (
        litert.Model(
            "EMBEDDING_LOOKUP",
            [Tensor((2,), "int32"), litert.constant(X[0]), Tensor((2, 4), "float32")],
        ),
        (2,),
    ),
    "SCATTER_ND": (
        litert.Model(
            "SCATTER_ND",
            [
                *(Tensor((3, 2), "int32"), ROWS),
                *(litert.constant(np.array([3, 5, 4], "int32")), Tensor((3, 5, 4), "float32")),
            ],
        ),
        (3, 2),
    ),
}


@functools.cache
def tflite_pair(name: str, schedule: bool) -> tuple[Call, Call]:
    content = litert.write((BY_TFLITE | SEGMENTS)[name][0])
    # LiteRT is started again each time: after an error it remembers it.
    return tvmlab.compile(tvmlab.load(content), schedule=schedule), lambda *inputs: Litert(
        content
    ).run(*inputs)


@SCHEDULES
@pytest.mark.parametrize("name", BY_TFLITE)
@settings(max_examples=30)
@given(data=st.data())
def test_indices_of_tflite(name: str, schedule: bool, data: st.DataObject) -> None:
    indices = drawn(data, BY_TFLITE[name][1])
    if "int64" not in name:
        indices = np.clip(indices, -(2**31), 2**31 - 1).astype("int32")
    agree(*tflite_pair(name, schedule), *([X] if name.startswith("GATHER") else []), indices)


SEGMENTS = {
    f"UNSORTED_SEGMENT_{kind.upper()}": (
        litert.Model(
            f"UNSORTED_SEGMENT_{kind.upper()}",
            [
                ROWS,
                Tensor((3,), "int32"),
                litert.constant(np.array([3], "int32")),
                Tensor((3, 4), "float32"),
            ],
            f"UnsortedSegment{kind}Options",
        ),
        (3,),
    )
    for kind in ("Sum", "Min")
}


@SCHEDULES
@pytest.mark.parametrize("name", SEGMENTS)
@settings(max_examples=30)
@given(data=st.data())
def test_segments_of_tflite(name: str, schedule: bool, data: st.DataObject) -> None:
    """Rows whose segment is below zero are left out."""
    indices = np.clip(drawn(data, (3,)), -(2**31), 2**31 - 1).astype("int32")
    agree(*tflite_pair(name, schedule), indices)


def test_what_no_function_makes_dense_is_refused() -> None:
    floats = [Tensor((2,), "float32"), litert.constant(np.array(0, "float32"))]
    shape = litert.constant(np.array([5], "int32"))
    tensors = [Tensor((2, 1), "int32"), shape, *floats, Tensor((5,), "float32")]
    with pytest.raises(UnsupportedOperatorError, match="SPARSE_TO_DENSE"):
        tvmlab.load(litert.write(litert.Model("SPARSE_TO_DENSE", tensors)))


# What an error advises is what the framework takes


PAIRS: list[tuple[str, Call, str, tuple[int, ...]]] = [
    *(("pytorch", pytorch, n, s[0]) for n, (_, s) in BY_PYTORCH.items() if len(s) == 1),
    *(("onnx", functools.partial(onnx_pair, opened=False), n, s) for n, (s, _) in BY_ONNX.items()),
    *(("tflite", tflite_pair, n, s) for n, (_, s) in BY_TFLITE.items()),
]


@pytest.mark.parametrize(
    ("pair", "name", "shape"),
    [pytest.param(*one, id=f"{kind} {one[1]}") for kind, *one in PAIRS if "itself" not in one[1]],
)
def test_an_error_advises_what_the_framework_takes(
    pair: Call, name: str, shape: tuple[int, ...]
) -> None:
    ours, theirs = pair(name, schedule=True)

    def tried(call: Call, number: int) -> str:
        inputs = []
        for one in ours.signature.inputs:
            indices = one.dtype != "float32"
            inputs.append(np.zeros(shape if indices else one.shape, one.dtype))
            if indices:
                inputs[-1].flat[0] = number
        try:
            call(*inputs)
        except Exception as error:
            return str(error)
        return ""

    found = re.search(r"give indices from (-?\d+) to (\d+)", tried(ours, 10**6))
    assert found
    low, high = map(int, found.groups())
    for call in (ours, theirs):
        failed = [bool(tried(call, number)) for number in (low - 1, low, high, high + 1)]
        assert failed == [True, False, False, True]


# The pass that checks them


def test_modules_of_upstreams_importer_are_checked() -> None:
    proto = onnx_model("Gather", (2,), axis=1)
    ours = tvmlab.compile(from_onnx(proto))
    # Of indices from -10 to -6, upstream's operators make those from -5 to -1.
    for last in (4, -5, 5, -11):
        agree(ours, runtime(proto), X, np.array([0, last]))
