"""Indices below zero and out of range, compared with the frameworks that define them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import helpers_litert
import numpy as np
import onnxruntime
import pytest
import torch
import tvm
import tvm_ffi
from helpers_deploy import refused
from helpers_litert import Litert, Tensor
from helpers_models import array, model, node, quickly, said, value, weight
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

import tvmlab
from tvmlab.errors import CompileError, ModelError, OutOfRangeError, UnsupportedOperatorError
from tvmlab.indices import CheckIndices, NormalizeIndices

SHAPE = (3, 5, 4)
X = array(*SHAPE)
#: Around the ends of the axes, and where 32 or 64 bits end.
EXTREMES = (10**9, 2**31, 2**32 + 1, 2**63 - 1, -(2**63), -(2**32), -(10**9))
PLACES = st.integers(-11, 10) | st.sampled_from(EXTREMES)
INSIDE = st.integers(-3, 2)
SCHEDULES = pytest.mark.parametrize("schedule", [True, False])
Call = Callable[..., Any]


def agree(ours: Call, theirs: Call, *inputs: np.ndarray) -> None:
    """Both give the same bits, or both refuse."""
    try:
        wanted = theirs(*inputs)
    except Exception:
        with pytest.raises(OutOfRangeError) as refusal:
            ours(*inputs)
        said(refusal.value)
        assert isinstance(refusal.value, IndexError)
        return
    found = ours(*inputs)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert found.tobytes() == wanted.tobytes()


def drawn(data: st.DataObject, shape: tuple[int, ...]) -> np.ndarray:
    """Draw indices: mostly such as every axis has, so that results are compared, too."""
    places = data.draw(st.sampled_from([INSIDE, PLACES]))
    count = int(np.prod(shape))
    numbers = data.draw(st.lists(places, min_size=count, max_size=count))
    return np.array(numbers, "int64").reshape(shape)


# PyTorch


class Program(torch.nn.Module):
    def __init__(self, function: Call) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


def exported(module: torch.nn.Module, *inputs: np.ndarray, **options: Any) -> tvm.IRModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = tuple(map(torch.from_numpy, inputs))
        return tvmlab.load(torch.export.export(module.eval(), tensors, **options))


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
    "ScatterND": ((3, 2), functools.partial(onnx_model, "ScatterND", extra=(3, 4))),
}
OPENED = ("Gather", "GatherND", "ScatterND")


@functools.cache
def onnx_pair(name: str, schedule: bool, opened: bool) -> tuple[Call, Call]:
    shape, make = BY_ONNX[name]
    proto = make(indices=shape, opened=opened)
    sizes: dict[str, Any] = {"x": ("a", "b", "c"), "i": ("d", *shape[1:])}
    if name.startswith("Scatter"):
        sizes["u"] = ("d", "c")
    mod = tvmlab.load(proto, shapes=sizes if opened else None)
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
BY_TFLITE: dict[str, tuple[helpers_litert.Model, tuple[int, ...]]] = {
    "GATHER": (
        helpers_litert.Model(
            "GATHER",
            [FLOATS, Tensor((2,), "int32"), Tensor((3, 2, 4), "float32")],
            "GatherOptions",
            {"Axis": 1},
        ),
        (2,),
    ),
    "GATHER_ND": (
        helpers_litert.Model(
            "GATHER_ND", [FLOATS, Tensor((3, 2), "int32"), Tensor((3, 4), "float32")]
        ),
        (3, 2),
    ),
    "EMBEDDING_LOOKUP": (
        helpers_litert.Model(
            "EMBEDDING_LOOKUP",
            [Tensor((2,), "int32"), helpers_litert.constant(X[0]), Tensor((2, 4), "float32")],
        ),
        (2,),
    ),
    "GATHER of batches": (
        helpers_litert.Model(
            "GATHER",
            [FLOATS, Tensor((3, 2), "int32"), Tensor((3, 2, 4), "float32")],
            "GatherOptions",
            {"Axis": 1, "BatchDims": 1},
        ),
        (3, 2),
    ),
    "GATHER of batches, of a later axis": (
        helpers_litert.Model(
            "GATHER",
            [FLOATS, Tensor((3, 2), "int32"), Tensor((3, 5, 2), "float32")],
            "GatherOptions",
            {"Axis": -1, "BatchDims": -1},
        ),
        (3, 2),
    ),
    "SCATTER_ND": (
        helpers_litert.Model(
            "SCATTER_ND",
            [
                Tensor((3, 2), "int32"),
                helpers_litert.constant(np.arange(12, dtype="float32").reshape(3, 4)),
                helpers_litert.constant(np.array([3, 5, 4], "int32")),
                Tensor((3, 5, 4), "float32"),
            ],
        ),
        (3, 2),
    ),
    **{
        f"UNSORTED_SEGMENT_{kind.upper()}": (
            helpers_litert.Model(
                f"UNSORTED_SEGMENT_{kind.upper()}",
                [
                    helpers_litert.constant(np.arange(12, dtype="float32").reshape(3, 4)),
                    Tensor((3,), "int32"),
                    helpers_litert.constant(np.array([3], "int32")),
                    Tensor((3, 4), "float32"),
                ],
                f"UnsortedSegment{kind}Options",
            ),
            (3,),
        )
        for kind in ("Sum", "Min")
    },
}


@functools.cache
def tflite_pair(name: str, schedule: bool) -> tuple[Call, Call]:
    content = helpers_litert.write(BY_TFLITE[name][0])
    # LiteRT is started again each time: after an error it remembers it.
    return tvmlab.compile(tvmlab.load(content), schedule=schedule), lambda *inputs: Litert(
        content
    ).run(*inputs)


@SCHEDULES
@pytest.mark.parametrize("name", BY_TFLITE)
@settings(max_examples=30)
@given(data=st.data())
def test_indices_of_tflite(name: str, schedule: bool, data: st.DataObject) -> None:
    indices = np.clip(drawn(data, BY_TFLITE[name][1]), -(2**31), 2**31 - 1).astype("int32")
    agree(*tflite_pair(name, schedule), *([X] if name.startswith("GATHER") else []), indices)


def test_what_no_function_makes_dense_is_refused() -> None:
    floats = [Tensor((2,), "float32"), helpers_litert.constant(np.array(0, "float32"))]
    shape = helpers_litert.constant(np.array([5], "int32"))
    tensors = [Tensor((2, 1), "int32"), shape, *floats, Tensor((5,), "float32")]
    with pytest.raises(UnsupportedOperatorError, match="SPARSE_TO_DENSE"):
        tvmlab.load(helpers_litert.write(helpers_litert.Model("SPARSE_TO_DENSE", tensors)))


# Relay, whose text says what becomes of an index out of range


def relay(call: str) -> tvm.IRModule:
    return tvmlab.load(
        f'#[version = "0.0.5"]\ndef @main(%x: Tensor[(5, 4), float32], '
        f"%i: Tensor[(2, 4), int64]) {{ {call} }}".encode()
    )


BY_RELAY: dict[str, tuple[str, Call]] = {
    "clip": ("take(%x, %i, axis=0)", lambda x, i: np.take(x, i, 0, mode="clip")),
    "wrap": ('take(%x, %i, axis=0, mode="wrap")', lambda x, i: x[i % len(x)]),
    "fast": ('take(%x, %i, axis=0, mode="fast")', lambda x, i: np.take(x, i, 0)),
    "flat": ('take(%x, %i, mode="fast")', np.take),
    "gather": ("gather(%x, %i, axis=0)", lambda x, i: np.take_along_axis(x, i, 0)),
    "gather_nd": ("gather_nd(%x, %i)", lambda x, i: x[tuple(i)]),
}


@functools.cache
def relay_executable(name: str, schedule: bool) -> Call:
    return tvmlab.compile(relay(BY_RELAY[name][0]), schedule=schedule)


@SCHEDULES
@pytest.mark.parametrize("name", BY_RELAY)
@settings(max_examples=30)
@given(data=st.data())
def test_indices_of_relay(name: str, schedule: bool, data: st.DataObject) -> None:
    agree(relay_executable(name, schedule), BY_RELAY[name][1], X[0], drawn(data, (2, 4)))


# The pass itself, and where the check goes


def taking(mode: str = "fast", extent: Any = 5, dtype: str = "int64") -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((extent, 4), "float32"))
    i = relax.Var("i", relax.TensorType((2,), dtype))
    with builder.function("main", [x, i]):
        builder.emit_func_output(builder.emit(relax.op.take(x, i, 0, mode)))
    return builder.get()


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


def test_modules_of_upstreams_importer_are_checked() -> None:
    proto = onnx_model("Gather", (2,), axis=1)
    ours = tvmlab.compile(from_onnx(proto))
    for last in (4, -5, 5, -6, -10):
        agree(ours, runtime(proto), X, np.array([0, last]))


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
    package = tvmlab.compile(taking()).save(tmp_path / "taking.tar")
    loaded = tvmlab.load_executable(package)
    agree(loaded, lambda x, i: np.take(x, i, 0), X[0], np.array([-1, 5]))
    agree(loaded, lambda x, i: np.take(x, i, 0), X[0], np.array([-1, 4]))
    np.save(tmp_path / "x.npy", X[0])
    np.save(tmp_path / "i.npy", np.array([0, 5]))
    assert "an index is out of range" in refused(package, tmp_path / "x.npy", tmp_path / "i.npy")
