"""Axes, scales and sizes that a model computes: one executable is right for all of their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import tvmlab
from tests.oracles.models import array, as_tuple, model, node, session, value, weight
from tvmlab.errors import OutOfRangeError, UnsupportedOperatorError

KINDS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
AXES = [[0], [1], [-1], [-3], [3], [-4], [2**62]]
SCALES = [[1, 1, 2, 2], [1, 1, 0.6, 0.5], [1, 1, 1, 1], [1, 1, 1.6, 3]]
BAD_SCALES = [[1, 1, 0, 1], [1, 1, -1, 1], [1, 1, np.nan, 1], [1, 1, np.inf, 1], [1, 1, 3e8, 3e8]]
NEW = [[1, 2, 10, 14], [1, 2, 3, 4], [1, 2, 5, 7], [1, 2, -1, 4], [1, 2, 2**62, 1]]
WHOLE = [[4, 3, 2], [-1, 2, 2], [0, 0, -1], [24, 1, 1]]
BAD_SHAPES = [[-1, -1, 2], [5, 5, 5], [-2, 3, 4], [2**62, 2**62, 4], [-1, 5, 1], [-1, 0, 0]]
WIDTHS = [[0, 1, 1, 0], [2, 0, 0, 1], [0, 0, 0, 0], [-1, 0, 0, -1], [2**62, 0, 2**62, 0]]
PARTS = [[1, 2, 3], [6, 0, 0], [2, 2, 2], [1, 1, 1], [7, -1, 0], [2**62, 2**62, 2], [-2, 4, 4]]
# An operator, the shape of x, the values of its other input, and its attributes.
CASES: dict[str, tuple[str, list[int], list[Any], dict[str, Any]]] = {
    **{f"Reduce{kind}": (f"Reduce{kind}", [2, 3, 4], AXES, {}) for kind in KINDS},
    "ReduceSum, no axes": ("ReduceSum", [2, 3, 4], [[0, 1], [-1, 0], [2, -2], [0, 3]], {}),
    "ReduceMax, rank 1": ("ReduceMax", [2, 3, 4], [[0, 1], [-1, 0]], {"keepdims": 0}),
    "ReduceMean, rank 2": ("ReduceMean", [2, 3, 4], AXES, {"keepdims": 0}),
    "ReduceL2, a number": ("ReduceL2", [2, 3], [[0, 1], [-1, 0]], {"keepdims": 0}),
    "Resize": ("Resize", [1, 2, 5, 7], SCALES + BAD_SCALES, {"mode": "linear"}),
    "Resize, cubic": ("Resize", [1, 2, 5, 7], SCALES, {"mode": "cubic", "exclude_outside": 1}),
    "Resize, smooth": ("Resize", [1, 2, 5, 7], SCALES, {"mode": "linear", "antialias": 1}),
    "Resize, nearest": ("Resize", [1, 2, 5, 7], NEW, {"nearest_mode": "floor"}),
    "Pad": ("Pad", [3, 4], WIDTHS, {}),
    "Pad, reflect": ("Pad", [3, 4], WIDTHS[:3], {"mode": "reflect"}),
    "Pad, edge": ("Pad", [3, 4], WIDTHS[:3], {"mode": "edge"}),
    "Pad, wrap": ("Pad", [3, 4], WIDTHS[:3], {"mode": "wrap"}),
    "Reshape": ("Reshape", [2, 3, 4], WHOLE + BAD_SHAPES, {}),
    "Reshape, rank 4": ("Reshape", [2, 3], [[1, 1, 2, 3], [0, 0, 1, -1], [1, 2, 3, 0]], {}),
    "Split": ("Split", [2, 6], PARTS, {"axis": 1}),
    "TopK": ("TopK", [5, 3], [[1], [3], [5], [6], [-1]], {"axis": 0}),
}


def made(kind: str, shape: list[int], given: list[Any], how: dict[str, Any], dtype: str) -> Any:
    """A model of x and of the other input, with an operator before, so that TVM can fuse them."""
    names = {"Split": ["a", "b", "c"], "TopK": ["a", "b"]}.get(kind, ["a"])
    inputs = {"Resize": ["t", "", "n"]}.get(kind, ["t", "n"])
    if given is NEW:
        inputs.insert(2, "")
    rank = len(given[0]) if kind == "Reshape" else len(shape)
    rank -= 0 if how.get("keepdims", 1) else len(given[0])
    number, whole = (onnx.helper.np_dtype_to_tensor_dtype(np.dtype(d)) for d in (dtype, "int64"))
    outs = [value(name, number, [f"{name}{k}" for k in range(rank)]) for name in names]
    if kind == "TopK":
        outs[1].type.tensor_type.elem_type = whole
    nodes = [node("Abs", ["x"], ["t"]), node(kind, inputs, names, **how)]
    other = number if kind == "Resize" and given is not NEW else whole
    return model(
        nodes, [value("x", number, shape), value("n", other, [len(given[0])])], outs, opset=19
    )


def agree(ours: Any, theirs: Any, x: np.ndarray, one: Any) -> bool:
    """Compare the results; return whether ONNX Runtime has one, and expect an error if not."""
    n = np.array(one, theirs.get_inputs()[1].type[7:-1].replace("float", "float32"))
    try:
        want = theirs.run(None, {"x": x, "n": n})
    except Exception:  # ONNX Runtime raises a class of its own
        with pytest.raises(OutOfRangeError, match=r"where: .*\n +to do: give "):
            ours(x, n)
        return False
    for left, right in zip(as_tuple(ours(x, n)), want, strict=True):
        rtol = 0 if right.dtype.kind == "i" else 1e-5
        np.testing.assert_allclose(left, right, rtol=rtol, atol=rtol)
        assert left.dtype == right.dtype
    return True


@pytest.mark.parametrize("name", CASES)
def test_one_executable_for_all_values(name: str) -> None:
    """The results are ONNX Runtime's, and what it refuses is an error in words."""
    kind, shape, values, how = CASES[name]
    proto = made(kind, shape, values, how, "float32")
    ours, theirs = tvmlab.compile(tvmlab.load(proto)), session(proto)
    assert sum(agree(ours, theirs, array(*shape), one) for one in values) > 1


def test_a_shape_to_fill() -> None:
    fill = weight("value", np.array([3], "int32"))
    nodes = [node("ConstantOfShape", ["n"], ["y"], value=fill)]
    given = [value("n", onnx.TensorProto.INT64, [2])]
    call = tvmlab.compile(tvmlab.load(model(nodes, given, [value("y", 6, ["a", "b"])])))
    for size in ([2, 3], [0, 4], [7, 1]):
        np.testing.assert_array_equal(call(np.array(size)), np.full(size, 3, "int32"))
    for size in ([-1, 2], [2**40, 2**40], [2**62, 4]):
        with pytest.raises(OutOfRangeError, match="negative or too large"):
            call(np.array(size))


def test_the_same_axis_twice() -> None:
    proto = made("ReduceSum", [2, 3, 1], [[0, 1]], {"keepdims": 0}, "float32")
    call = tvmlab.compile(tvmlab.load(proto))
    with pytest.raises(OutOfRangeError, match="an axis is given twice"):
        call(array(2, 3, 1), np.array([1, -2]))


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float64"])
def test_reductions_of_other_dtypes(kind: str, dtype: str) -> None:
    proto = made(kind, [3, 4], AXES, {}, dtype)
    ours, theirs = tvmlab.compile(tvmlab.load(proto)), session(proto)
    x = np.round(3 * array(3, 4)).astype(dtype)
    assert [agree(ours, theirs, x, [axis]) for axis in (0, 1, -2, 2)] == [True, True, True, False]


def test_integers_are_not_averaged() -> None:
    with pytest.raises(UnsupportedOperatorError, match="of int32 over axes computed"):
        tvmlab.load(made("ReduceMean", [2, 3], AXES, {}, "int32"))
