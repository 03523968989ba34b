"""Sizes and shapes that are known only at run time, compared with the frameworks and NumPy."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

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
from tests.frontend.test_indices import Pair, by_onnx, by_torch
from tests.indices.modules import SCHEDULES, agree
from tests.oracles.models import array, model, node, value, weight
from tvmlab.errors import CompileError, InputError, TvmlabError

Call = Callable[..., Any]
NUMBERS = {"zero": 0, "two": 2, "three": 3, "back": -1, "far": 2**31, "end": 2**63 - 1, "axes": 0}
WIDTHS = {"around": [2, 3], "across": [-2, 1], "fewer": [-2, -1]}


def counted(size: int) -> np.ndarray:
    return np.arange(1, size + 1, dtype="float32")


EVERY = tuple((counted(n), counted(m)) for n, m in itertools.product(range(9), repeat=2))


class Case(NamedTuple):
    """A program, the function that defines it, and the inputs to compare them on.

    Without `fits` the other function tells which inputs have a result.
    """

    make: Callable[[], Pair]
    inputs: Iterable[tuple[np.ndarray, ...]] = EVERY
    fits: Callable[[int, int], bool] | None = None
    rtol: float = 0


# ONNX


def slices(*inputs: str) -> Any:
    return node("Slice", ["x", *inputs], ["t"])


def using(kind: str, *inputs: str, **attributes: Any) -> list[Any]:
    """Slice x to the size of y, and use the slice."""
    return [slices("zero", "m", "axes"), node(kind, inputs, ["o"], **attributes)]


def sized(*nodes: Any) -> Pair:
    """A model of x and y, in which m is the size of y."""
    names = ["x", "y"]
    if nodes[-1].output[0] == "t":
        nodes = (*nodes, node("Identity", ["t"], ["o"]))
    proto = model(
        [node("Shape", ["y"], ["m"]), *nodes],
        [value(one, TensorProto.FLOAT, [size]) for one, size in zip(names, "nk", strict=True)],
        [value("o", TensorProto.FLOAT, None)],
        [
            *(weight(one, np.array([number])) for one, number in NUMBERS.items()),
            *(weight(one, np.array(widths)) for one, widths in WIDTHS.items()),
        ],
        opset=18,
    )
    return by_onnx(proto, {"x": ("n",), "y": ("k",)})


#: Any sizes have a result, or none in either.
EXACT: dict[str, list[Any]] = {
    "x[m:]": [slices("m", "far", "axes")],
    "x @ y": [node("MatMul", ["x", "y"], ["o"])],
    "x in a mirror": [node("Pad", ["x", "around"], ["o"], mode="reflect")],
    "x cut, in a mirror": [node("Pad", ["x", "across"], ["o"], mode="reflect")],
    "x with wide edges": [node("Pad", ["x", "around"], ["o"], mode="edge")],
    "x without three": [node("Pad", ["x", "fewer"], ["o"])],
    "the three largest of x": [node("TopK", ["x", "three"], ["o", "places"])],
}
#: The importer has assumed sizes: any other is an error. A 0 in a shape is the input's own size.
ASSUMED: dict[str, tuple[list[Any], Callable[[int, int], bool]]] = {
    "x[:m]": ([slices("zero", "m", "axes")], lambda n, m: m <= n),
    "x[3:m]": ([slices("three", "m", "axes")], lambda n, m: m - 3 == len(range(n)[3:m])),
    "x[:m:2]": (
        [slices("zero", "m", "axes", "two")],
        lambda n, m: (m + 1) // 2 == len(range(n)[:m:2]),
    ),
    "relu(x[:m])": (using("Relu", "t"), lambda n, m: m <= n),
    "x[:m] before x": (using("Concat", "t", "x", axis=0), lambda n, m: m <= n),
    "x[:m] + y": (using("Add", "t", "y"), lambda n, m: m <= n),
    "x[:m] * x[:m]": (
        [node("Slice", ["x", "zero", "m", "axes"], ["u"]), *using("Mul", "t", "u")],
        lambda n, m: m <= n,
    ),
    "x expanded to y": ([node("Expand", ["x", "m"], ["o"])], lambda n, m: m == n),
    "x reshaped to y": ([node("Reshape", ["x", "m"], ["o"])], lambda n, m: m == n),
    "x reshaped to m rows": (
        [node("Concat", ["m", "back"], ["s"], axis=0), node("Reshape", ["x", "s"], ["o"])],
        lambda n, m: m > 0 and n % m == 0,
    ),
    "x * y": ([node("Einsum", ["x", "y"], ["o"], equation="i,i->i")], lambda n, m: m == n),
    "dot(x, y)": ([node("Einsum", ["x", "y"], ["o"], equation="i,i")], lambda n, m: m == n),
}


def weighed(kind: str, *shape: int, **attributes: Any) -> Case:
    """An operator with weights, which are for 4 channels, and pictures of other channels."""
    opened = ["n", "c", 5, 5][: len(shape)]
    proto = model(
        [node(kind, ["x", "w"], ["y"], **attributes)],
        [value("x", TensorProto.FLOAT, opened)],
        [value("y", TensorProto.FLOAT, None)],
        [weight("w", array(*shape))],
    )
    sizes = (5, 5)[: len(shape) - 2]
    inputs = [(array(2, channels, *sizes),) for channels in (4, 1, 2, 3, 5, 8)]
    return Case(lambda: by_onnx(proto, {"x": opened}), inputs, rtol=1e-4)


# PyTorch

SLICED: dict[str, Call] = {
    "x[:m]": lambda x, y: x[: y.shape[0]],
    "x[m:]": lambda x, y: x[y.shape[0] :],
    "x[-m:]": lambda x, y: x[-y.shape[0] :],
    "x[:-m]": lambda x, y: x[: -y.shape[0]],
    "x[1:m:2]": lambda x, y: x[1 : y.shape[0] : 2],
}
# PyTorch exports this one for no more numbers in y than the example has.
MOST = {"x[1:m:2]": 3}


def dynamic(function: Call) -> Pair:
    sizes = ({0: torch.export.Dim.AUTO},) * 2
    return by_torch(function, counted(7), counted(3), dynamic_shapes={"inputs": sizes})


# Relax


def built(make: Callable[..., relax.Expr]) -> tvm.IRModule:
    """A module of x (n, 3) and y (m,)."""
    builder = relax.BlockBuilder()
    n, m = (tirx.Var(name, "int64") for name in "nm")
    x = relax.Var("x", relax.TensorType((n, 3), "float32"))
    y = relax.Var("y", relax.TensorType((m,), "float32"))
    with builder.function("main", [x, y]):
        builder.emit_func_output(builder.emit(make(x, y, n, m)))
    return builder.get()


def by_hand(make: Call, theirs: Call, fits: Any = None, rtol: float = 0) -> Case:
    pairs = [pair for pair in itertools.product(range(10), repeat=2) if fits is None or any(pair)]
    inputs = [(counted(3 * n).reshape(n, 3), counted(m)) for n, m in pairs]
    return Case(lambda: (built(make), theirs), inputs, fits, rtol)


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


RELAX = {
    "m - 3:": by_hand(
        lambda x, y, n, m: op.strided_slice(x, [0], [m - 3], [n], assume_inbound=True),
        lambda x, y: x[len(y) - 3 :],
        lambda n, m: n - (m - 3) == len(range(n)[m - 3 :]),
    ),
    "2:-2": by_hand(
        lambda x, y, n, m: op.strided_slice(x, [0], [2], [-2]),
        lambda x, y: x[2:-2],
        lambda n, m: n >= 4 or n == 0,
    ),
    "a scalar": by_hand(
        lambda x, y, n, m: op.reshape(relax.const(2.5), [m]),
        lambda x, y: np.reshape(np.float32(2.5), y.shape),
    ),
    "squeeze": by_hand(
        lambda x, y, n, m: op.squeeze(x, [0]), lambda x, y: np.squeeze(x, 0), lambda n, m: n == 1
    ),
    "resize": by_hand(
        lambda x, y, n, m: op.image.resize2d(op.reshape(x, [1, 1, n, 3]), (4, 3)),
        enlarged,
        lambda n, m: n > 0,
        rtol=1e-5,
    ),
    "attention": by_hand(attended, attention, lambda n, m: m == 3 * n and n > 0, rtol=1e-5),
}
CASES: dict[str, Case] = {
    **{f"onnx {k}": Case(functools.partial(sized, *v)) for k, v in EXACT.items()},
    **{
        f"onnx {name}": Case(
            functools.partial(sized, *nodes), [pair for pair in EVERY if len(pair[0])], fits
        )
        for name, (nodes, fits) in ASSUMED.items()
    },
    "onnx Conv": weighed("Conv", 2, 4, 3, 3),
    "onnx Conv of groups": weighed("Conv", 4, 2, 3, 3, group=2),
    "onnx Conv of lines": weighed("Conv", 2, 4, 3),
    "onnx ConvTranspose": weighed("ConvTranspose", 4, 2, 3, 3),
    "onnx Gemm": weighed("Gemm", 4, 3),
    **{
        f"pytorch {name}": Case(
            functools.partial(dynamic, function),
            [(x, y) for x, y in EVERY if len(x) > 0 and 0 < len(y) <= MOST.get(name, len(y))],
        )
        for name, function in SLICED.items()
    },
    **{f"relax {name}": case for name, case in RELAX.items()},
}


@SCHEDULES
@pytest.mark.parametrize("name", CASES)
def test_every_size_has_the_right_result_or_is_refused(name: str, schedule: bool) -> None:
    make, inputs, fits, rtol = CASES[name]
    mod, theirs = make()
    ours = tvmlab.compile(mod, schedule=schedule)
    for given_inputs in inputs:
        fitted = None if fits is None else fits(*map(len, given_inputs))
        agree(ours, theirs, *given_inputs, fits=fitted, rtol=rtol)


@SCHEDULES
def test_more_than_the_exported_size_is_refused(schedule: bool) -> None:
    mod, _ = dynamic(SLICED["x[1:m:2]"])
    ours = tvmlab.compile(mod, schedule=schedule)
    with pytest.raises(InputError, match="is 4, but the model was exported for at most 3"):
        ours(counted(7), counted(4))


@functools.cache
def expanding(shape: tuple[int, ...], rank: int, opened: bool, schedule: bool) -> tuple[Call, Call]:
    names = [f"n{axis}" if opened else size for axis, size in enumerate(shape)]
    proto = model(
        [node("Expand", ["x", "s"], ["y"])],
        [value("x", TensorProto.FLOAT, names), value("s", TensorProto.INT64, [rank])],
        [value("y", TensorProto.FLOAT, None)],
        opset=18,
    )
    mod, theirs = by_onnx(proto, {"x": names} if opened else None)
    return tvmlab.compile(mod, schedule=schedule), theirs


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
    near = [st.sampled_from([1, size]) for size in (5,) * more + shape]
    sizes = [st.integers(1, 5) | st.sampled_from([-1, 0]) for _ in range(rank)]
    target = data.draw(st.tuples(*near) | st.tuples(*sizes))
    # An axis of 1 is spread only if it is known before run time.
    fits = all(a == b or (a == 1 and not opened) for a, b in zip(shape, target[more:], strict=True))
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    run, theirs = expanding(shape, rank, opened, schedule)
    agree(run, theirs, x, np.array(target, "int64"), fits=None if fits else False)


def test_known_sizes_that_do_not_fit() -> None:
    for make in (
        lambda x, y, n, m: op.topk(x, 4, 1)[0],
        lambda x, y, n, m: op.nn.pad(x, [0, 0, 3, 0], "reflect"),
        # The result's shape is unknown: the batches may differ.
        lambda x, y, n, m: op.matmul(op.reshape(x, [n, 1, 3]), op.reshape(y, [m // 2, 2, 1])),
        lambda x, y, n, m: op.strided_slice(x, [0], [n], [m], [-1], assume_inbound=True),
        lambda x, y, n, m: op.reshape(
            op.strided_slice(x, [0], [m], [2**31], assume_inbound=True), [(2**31 - m) * 3]
        ),
    ):
        with pytest.raises(CompileError, match=r"do not fit|has a step|assumed"):
            tvmlab.compile(built(make))


def test_kernels_that_cannot_be_checked_are_refused() -> None:
    def pool(x: relax.Expr, y: relax.Expr, n: Any, m: Any) -> relax.Expr:
        regions = op.reshape(y, [tirx.floordiv(m, 5), 5])
        pictures = op.reshape(x, [1, 1, n, 3])
        return op.vision.roi_pool(pictures, regions, pooled_size=(1, 1), spatial_scale=1.0)

    with pytest.raises(CompileError, match="reads at positions that tvmlab cannot check"):
        tvmlab.compile(built(pool))


def test_a_table_for_every_length_that_the_export_allows() -> None:
    """The slice has min(n, 16) rows, which are n, because the export bounds n."""

    class Positions(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.linspace(0, 1, 64).reshape(1, 16, 4))
            self.norm = torch.nn.LayerNorm(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x + self.table[:, : x.shape[1]])

    module, lengths = Positions().eval(), torch.export.Dim("n", max=16)
    program = torch.export.export(module, (torch.ones(1, 5, 4),), dynamic_shapes=[{1: lengths}])
    run = tvmlab.compile(tvmlab.load(program))
    for length in (2, 5, 16):
        x = torch.from_numpy(array(1, length, 4))
        np.testing.assert_allclose(run(x), module(x).detach(), atol=1e-5)
    with pytest.raises(TvmlabError):
        run(array(1, 17, 4))
