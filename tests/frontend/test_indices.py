"""Indices below zero and out of range, compared with the frameworks that define them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import pytest
import torch
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from torch.nn import functional
from tvm.relax.frontend.onnx import from_onnx

import tvmlab
from tests.indices.modules import SCHEDULES, SHAPE, Call, Program, X, agree, drawn, exported
from tests.oracles import litert
from tests.oracles.litert import Litert, Tensor
from tests.oracles.models import array, model, node, quickly, said, value, weight
from tvmlab.errors import ModelError, UnsupportedOperatorError

#: Our module, and the framework's function.
Pair = tuple[tvm.IRModule, Call]


def by_torch(function: Call, *examples: np.ndarray, **options: Any) -> Pair:
    program = Program(function)
    mod = exported(program, *examples, **options)
    return mod, lambda *inputs: program(*map(torch.from_numpy, inputs)).numpy()


def runtime(proto: Any) -> Call:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    names = [one.name for one in session.get_inputs()]
    return lambda *inputs: session.run(None, dict(zip(names, inputs, strict=True)))[0]


def by_onnx(proto: Any, shapes: Any = None) -> Pair:
    return tvmlab.load(proto, shapes=shapes), runtime(proto)


def by_litert(content: litert.Model) -> Pair:
    written = litert.write(content)
    # LiteRT is started again each time: after an error it remembers it.
    return tvmlab.load(written), lambda *inputs: Litert(written).run(*inputs)


class Case(NamedTuple):
    """A program of indices, the shapes of the indices, and its inputs before and after them.

    `defined` tells whether the framework says what the result is.
    """

    make: Callable[[], Pair]
    shapes: list[tuple[int, ...]]
    before: tuple[np.ndarray, ...] = (X,)
    after: tuple[np.ndarray, ...] = ()
    defined: Callable[..., bool] = lambda *indices: True
    dtype: str = "int64"


# PyTorch


def unique(*indices: np.ndarray) -> bool:
    """Whether no place is written twice: PyTorch does not define which value stays there."""
    places = np.stack([i % n for i, n in zip(indices, SHAPE, strict=False)])
    return len(np.unique(places, axis=1).T) == places.shape[1]


def unique_rows(index: np.ndarray) -> bool:
    return not np.any(np.diff(np.sort(index % 5, axis=1), axis=1) == 0)


def torch_case(function: Call, *shapes: tuple[int, ...], defined: Any = lambda *_: True) -> Case:
    examples = [np.zeros(shape, "int64") for shape in shapes]
    return Case(lambda: by_torch(function, X, *examples), list(shapes), defined=defined)


BY_PYTORCH: dict[str, Case] = {
    "embedding": torch_case(lambda x, i: torch.nn.functional.embedding(i, x[0]), (2, 3)),
    "index": torch_case(lambda x, i: x[i], (4,)),
    "index of axis 1": torch_case(lambda x, i: x[:, i], (2, 2)),
    "index pairs": torch_case(lambda x, i, j: x[i, j], (2, 1), (3,)),
    "index pairs after an axis": torch_case(lambda x, i, j: x[:, i, j], (3,), (3,)),
    "index pairs around an axis": torch_case(lambda x, i, j: x[i, :, j], (3,), (3,)),
    "take": torch_case(torch.take, (3,)),
    "gather": torch_case(lambda x, i: torch.gather(x, 1, i), (3, 2, 4)),
    "gather with a smaller index": torch_case(lambda x, i: torch.gather(x, 1, i), (2, 3, 2)),
    "index_select": torch_case(lambda x, i: torch.index_select(x, -2, i), (3,)),
    "scatter": torch_case(
        lambda x, i: torch.zeros(3, 5, 4).scatter(1, i, x), (2, 2, 4), defined=unique_rows
    ),
    "scatter a value": torch_case(
        lambda x, i: x.scatter(1, i, 2.5), (3, 1, 4), defined=unique_rows
    ),
    "index_put": torch_case(
        lambda x, i, j, k: x.index_put((i, j, k), x[0, 0, :3]), *[(3,)] * 3, defined=unique
    ),
    "index_put a value": torch_case(lambda x, i: x[0, 0].index_put((i,), torch.tensor(7.0)), (1,)),
    "cast": torch_case(lambda x, i: x[i.to(torch.int32)], (4,)),
    "cast before embedding": torch_case(
        lambda x, i: torch.nn.functional.embedding(i.to(torch.int32), x[0]), (2, 3)
    ),
    "counted by itself": torch_case(lambda x, i: x[torch.where(i < 0, i + x.shape[0], i)], (4,)),
}
CONSTANTS: dict[str, Call] = {
    "last": lambda x: x[:, -1],
    "select": lambda x: x.select(1, -2),
    "list": lambda x: x[:, torch.tensor([-1, 0])],
    "both ends": lambda x: x[-1, ..., -4],
    "pairs": lambda x: x[:, torch.tensor([-1, 0]), torch.tensor([-4, 3])],
}

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


def onnx_case(
    kind: str,
    indices: tuple[int, ...],
    extra: tuple[int, ...] = (),
    opened: bool = False,
    defined: Any = lambda *_: True,
    **attributes: Any,
) -> Case:
    sizes = {"x": tuple("abc"), "i": ("d", *indices[1:]), **({"u": ("d", "c")} if extra else {})}

    def make() -> Pair:
        proto = onnx_model(kind, indices, extra, opened, **attributes)
        return by_onnx(proto, sizes if opened else None)

    updates = np.arange(np.prod(extra), dtype="float32").reshape(extra)
    return Case(make, [indices], after=(updates,) * bool(extra), defined=defined)


def gathering(nodes: list[Any], *parts: Any) -> Case:
    """A model that computes the indices "j" of a Gather of x."""
    proto = model(
        [*nodes, node("Gather", ["x", "j"], ["y"])],
        [value("x", TensorProto.FLOAT, SHAPE), value("i", INT64, (4,))],
        [value("y", TensorProto.FLOAT, None)],
        list(parts),
    )
    return Case(lambda: by_onnx(proto), [(4,)])


#: The model adds the size of the axis itself, as upstream's importer does.
COUNTING = [
    node("Less", ["i", "zero"], ["below"]),
    node("Shape", ["x"], ["shape"]),
    node("Gather", ["shape", "zero"], ["size"]),
    node("Add", ["i", "size"], ["moved"]),
    node("Where", ["below", "moved", "i"], ["j"]),
]
SCATTER_ND = functools.partial(
    *(onnx_case, "ScatterND", (3, 2), (3, 4)), defined=lambda index: unique(*index.T)
)
BY_ONNX: dict[str, Case] = {
    "Gather": onnx_case("Gather", (2, 2), axis=1),
    "GatherElements": onnx_case("GatherElements", (3, 2, 4), axis=1),
    "GatherND": onnx_case("GatherND", (3, 2)),
    "GatherND of batches": onnx_case("GatherND", (3, 2, 1), batch_dims=1),
    "ScatterElements": onnx_case("ScatterElements", (3, 1, 4), (3, 1, 4), axis=1),
    **{
        f"ScatterElements add {shape}": onnx_case(
            "ScatterElements", shape, shape, axis=1, reduction="add"
        )
        for shape in ((3, 2, 4), (2, 3, 2))
    },
    "ScatterND": SCATTER_ND(),
    # Large indices become others.
    "cast": gathering([node("Cast", ["i"], ["j"], to=TensorProto.INT32)]),
    "counted by itself": gathering(COUNTING, weight("zero", np.array(0))),
}
OPENED: dict[str, Case] = {
    "open Gather": onnx_case("Gather", (2, 2), opened=True, axis=1),
    "open GatherND": onnx_case("GatherND", (3, 2), opened=True),
    "open ScatterND": SCATTER_ND(opened=True),
}

# TensorFlow Lite

FLOATS = Tensor(SHAPE, "float32")
ROWS = litert.constant(np.arange(12, dtype="float32").reshape(3, 4))


def tflite_case(
    code: str, tensors: list[Any], shape: tuple[int, ...], table: str = "", **options: int
) -> Case:
    """An operator on x, if that is among the tensors, and indices of a shape."""
    made = litert.Model(code, tensors, table or "GatherOptions" * bool(options), options)
    dtype = next(one.dtype for one in tensors if one.shape == shape and one.dtype != "float32")
    before = (X,) if FLOATS in tensors[:1] else ()
    return Case(lambda: by_litert(made), [shape], before, dtype=dtype)


def gather(
    code: str, indices: tuple[int, ...], out: tuple[int, ...], dtype: str = "int32", **options: int
) -> Case:
    tensors = [FLOATS, Tensor(indices, dtype), Tensor(out, "float32")]
    return tflite_case(code, tensors, indices, **options)


def sizes(*numbers: int) -> Tensor:
    return litert.constant(np.array(numbers, "int32"))


BY_TFLITE: dict[str, Case] = {
    "GATHER": gather("GATHER", (2,), (3, 2, 4), Axis=1),
    "GATHER_ND": gather("GATHER_ND", (3, 2), (3, 4)),
    "GATHER of int64": gather("GATHER", (2,), (3, 2, 4), "int64", Axis=1),
    "GATHER of batches": gather("GATHER", (3, 2), (3, 2, 4), Axis=1, BatchDims=1),
    "GATHER of batches, of a later axis": gather(
        "GATHER", (3, 2), (3, 5, 2), Axis=-1, BatchDims=-1
    ),
    "EMBEDDING_LOOKUP": tflite_case(
        "EMBEDDING_LOOKUP",
        [Tensor((2,), "int32"), litert.constant(X[0]), Tensor((2, 4), "float32")],
        (2,),
    ),
    "SCATTER_ND": tflite_case(
        "SCATTER_ND",
        [Tensor((3, 2), "int32"), ROWS, sizes(3, 5, 4), Tensor((3, 5, 4), "float32")],
        (3, 2),
    ),
}
# Rows whose segment is below zero are left out.
SEGMENTS = {
    f"UNSORTED_SEGMENT_{kind.upper()}": tflite_case(
        f"UNSORTED_SEGMENT_{kind.upper()}",
        [ROWS, Tensor((3,), "int32"), sizes(3), Tensor((3, 4), "float32")],
        (3,),
        f"UnsortedSegment{kind}Options",
    )
    for kind in ("Sum", "Min")
}

# Relay's text, compared with NumPy

TAKEN: dict[str, tuple[str, Call]] = {
    "take": ("take(%x, %i, axis=0)", lambda x, i: np.take(x, i, 0, mode="clip")),
    "take wrapped": ('take(%x, %i, axis=0, mode="wrap")', lambda x, i: x[i % len(x)]),
    "take fast": ('take(%x, %i, axis=0, mode="fast")', lambda x, i: np.take(x, i, 0)),
    "take of all": ('take(%x, %i, mode="fast")', np.take),
    "gather": ("gather(%x, %i, axis=0)", lambda x, i: np.take_along_axis(x, i, 0)),
    "gather_nd": ("gather_nd(%x, %i)", lambda x, i: x[tuple(i)]),
}


def relay_case(call: str, theirs: Call) -> Case:
    types = "%x: Tensor[(5, 4), float32], %i: Tensor[(2, 4), int64]"
    text = f'#[version = "0.0.5"]\ndef @main({types}) {{ {call} }}'.encode()
    return Case(lambda: (tvmlab.load(text), theirs), [(2, 4)], (X[0],))


# All of them

CASES: dict[str, Case] = {
    f"{framework} {name}": case
    for framework, cases in {
        "pytorch": BY_PYTORCH,
        "onnx": BY_ONNX | OPENED,
        "tflite": BY_TFLITE | SEGMENTS,
        "relay": {name: relay_case(*case) for name, case in TAKEN.items()},
    }.items()
    for name, case in cases.items()
}


@functools.cache
def compiled(name: str, schedule: bool = True) -> tuple[Call, Call]:
    mod, theirs = CASES[name].make()
    return tvmlab.compile(mod, schedule=schedule), theirs


@SCHEDULES
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=40)
@given(data=st.data())
def test_any_index_is_right_or_refused(name: str, schedule: bool, data: st.DataObject) -> None:
    case = CASES[name]
    indices = [drawn(data, shape) for shape in case.shapes]
    if case.defined(*indices):
        info = np.iinfo(case.dtype)
        indices = [np.clip(one, info.min, info.max).astype(case.dtype) for one in indices]
        agree(*compiled(name, schedule), *case.before, *indices, *case.after)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, case in CASES.items()
        if len(case.shapes) == 1 and not re.search("itself|open|SEGMENT|relay", name)
    ],
)
def test_an_error_advises_what_the_framework_takes(name: str) -> None:
    case, (ours, theirs) = CASES[name], compiled(name)

    def tried(call: Call, number: int) -> str:
        index = np.zeros(case.shapes[0], case.dtype)
        index.flat[0] = number
        try:
            call(*case.before, index, *case.after)
        except Exception as error:
            return str(error)
        return ""

    found = re.search(r"give indices from (-?\d+) to (\d+)", tried(ours, 10**6))
    assert found
    low, high = map(int, found.groups())
    for call in (ours, theirs):
        failed = [bool(tried(call, number)) for number in (low - 1, low, high, high + 1)]
        assert failed == [True, False, False, True]


@pytest.mark.parametrize("framework", ["pytorch", "onnx"])
@pytest.mark.parametrize(
    ("kind", "indices"),
    [("cast", [2**32 + 1, 2**32 - 1, 0, 2]), ("counted by itself", [-6, -4, 0, 2])],
)
def test_a_model_keeps_its_own_operators_on_indices(
    framework: str, kind: str, indices: list[int]
) -> None:
    ours, theirs = compiled(f"{framework} {kind}")
    wanted = theirs(X, np.array(indices))
    assert np.array_equal(ours(X, np.array(indices)), wanted)


# Indices that are constant, and other operators


@SCHEDULES
@pytest.mark.parametrize("name", CONSTANTS)
def test_constant_indices_of_pytorch(name: str, schedule: bool) -> None:
    mod, theirs = by_torch(CONSTANTS[name], X)
    agree(tvmlab.compile(mod, schedule=schedule), theirs, X)
    # The import alone makes them right, so that upstream's own build has them, too.
    assert np.array_equal(quickly(mod, X)[0], theirs(X))


@SCHEDULES
def test_sums_at_repeated_indices_are_whole(schedule: bool) -> None:
    """Threads that add to one element at once lose some of what they add."""
    many = 1_000_000
    inputs = (np.zeros(3, "float32"), np.arange(many) % 3, np.ones(many, "float32"))
    mod, theirs = by_torch(lambda x, i, v: x.index_put((i,), v, accumulate=True), *inputs)
    agree(tvmlab.compile(mod, schedule=schedule), theirs, *inputs)


def test_classes_of_one_hot() -> None:
    mod, _ = by_torch(lambda i: torch.nn.functional.one_hot(i, 5), np.array([0, 1]))
    ours = tvmlab.compile(mod)
    assert np.array_equal(ours(np.array([4, 0])), np.eye(5)[[4, 0]])
    for outside in (5, -1):
        with pytest.raises(AssertionError, match="Class values"):  # PyTorch's own words
            ours(np.array([0, outside]))


def test_constant_indices_of_onnx() -> None:
    mod, theirs = by_onnx(onnx_model("Gather", np.array([4, -1, -5, 0]), axis=1))
    agree(tvmlab.compile(mod), theirs, X)
    for outside in (5, -6, -10):
        with pytest.raises(ModelError, match=f"the index {outside} is out of range") as refusal:
            tvmlab.load(onnx_model("Gather", np.array([0, outside]), axis=1))
        said(refusal.value)


# ONNX Runtime takes an end of 2**63 - 1 for the end in the direction of the step.
BOUNDS = st.integers(-8, 8) | st.sampled_from((2**62, -(2**63)))


@functools.cache
def slicing(schedule: bool) -> tuple[Call, Call]:
    proto = model(
        [node("Slice", ["x", "b", "e", "axes", "s"], ["y"])],
        [value("x", TensorProto.FLOAT, SHAPE), *(value(name, INT64, [1]) for name in "bes")],
        [value("y", TensorProto.FLOAT, (3, "n", 4))],
        [weight("axes", [1])],
    )
    mod, theirs = by_onnx(proto)
    return tvmlab.compile(mod, schedule=schedule), theirs


@SCHEDULES
@settings(max_examples=60)
@given(begin=BOUNDS, end=BOUNDS, step=st.integers(-6, 6))
def test_slices_of_onnx(schedule: bool, begin: int, end: int, step: int) -> None:
    given = [np.array([number]) for number in (begin, end, step)]
    agree(*slicing(schedule), X, *given, fits=None if step > 0 else False)


def test_modules_of_upstreams_importer_are_checked() -> None:
    proto = onnx_model("Gather", (2,), axis=1)
    ours = tvmlab.compile(from_onnx(proto))
    # Of indices from -10 to -6, upstream's operators make those from -5 to -1.
    for last in (4, -5, 5, -11):
        agree(ours, runtime(proto), X, np.array([0, last]))


def test_what_has_no_result_of_one_shape_is_refused() -> None:
    with pytest.raises(ModelError, match="mask"):
        exported(Program(lambda x: x[torch.tensor([True, False, True])]), X)
    floats = [Tensor((2,), "float32"), litert.constant(np.array(0, "float32"))]
    tensors = [Tensor((2, 1), "int32"), sizes(5), *floats, Tensor((5,), "float32")]
    with pytest.raises(UnsupportedOperatorError, match="SPARSE_TO_DENSE"):
        tvmlab.load(litert.write(litert.Model("SPARSE_TO_DENSE", tensors)))


# Sampling of pictures at computed places

PADDINGS = ("zeros", "border", "reflection")


def near(function: Call, schedule: bool, *inputs: np.ndarray) -> None:
    mod, theirs = by_torch(function, *inputs)
    agree(tvmlab.compile(mod, schedule=schedule), theirs, *inputs, fits=True, rtol=1e-4)


@SCHEDULES
@pytest.mark.parametrize("height", [1, 2, 4])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grids_of_pytorch(mode: str, height: int, schedule: bool) -> None:
    """Every height meets every mode; coordinates also lie outside."""
    padding, aligned = PADDINGS[height // 2], schedule == (mode != "nearest")
    grid = np.random.default_rng(height).uniform(-2.5, 2.5, (2, height, 3, 2)).astype("float32")
    near(
        lambda x, grid: functional.grid_sample(x, grid, mode, padding, aligned),
        *(schedule, array(2, 3, 5, 4), grid),
    )


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_places_far_outside_of_pytorch(mode: str, padding: str) -> None:
    """ONNX Runtime takes other pixels from 1e20 on; PyTorch does not."""
    places = np.array([1e3, 1e5, 1e9, 1e20, -1e3, -1e5, -1e9, -1e20], "float32")
    grid = np.zeros((1, 8, 2, 2), "float32")
    grid[0, :, 0, 0] = grid[0, :, 1, 1] = places
    near(
        lambda x, grid: functional.grid_sample(x, grid, mode, padding, False),
        *(True, array(1, 2, 5, 4), grid),
    )


def test_affine_grids_of_pytorch() -> None:
    near(
        lambda x, by: functional.grid_sample(
            x, functional.affine_grid(by, [1, 3, 6, 2], align_corners=False), align_corners=False
        ),
        *(True, array(1, 3, 5, 4), array(1, 2, 3)),
    )


def test_one_row_reflects_in_no_way() -> None:
    program = Program(
        lambda x, grid: functional.grid_sample(x, grid, "bilinear", "reflection", True)
    )
    with pytest.raises(UnsupportedOperatorError, match="one row or column"):
        exported(program, array(1, 3, 1, 4), array(1, 2, 2, 2))
