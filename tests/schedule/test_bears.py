"""What compiling must bear: rare dtypes and shapes, others' TIR, upstream's limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import tvmlab
from tests.oracles.models import array
from tvmlab.schedule import legalize


def build(make: Callable[..., Any], *types: tuple[Sequence[Any], str]) -> tvm.IRModule:
    """Make a module whose ``main`` takes tensors of these shapes and dtypes."""
    parameters = [relax.Var(f"x{i}", relax.TensorType(*type_)) for i, type_ in enumerate(types)]
    builder = relax.BlockBuilder()
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(make(*parameters))
        builder.emit_func_output(result)
    return builder.get()


def same(mod: tvm.IRModule, *cases: Sequence[np.ndarray]) -> tvmlab.Executable:
    """Compare with upstream's schedule on each case's inputs; return our executable."""
    run, plain = tvmlab.compile(mod), tvmlab.compile(mod, schedule=False)
    for inputs in cases:
        expected, result = plain(*inputs), run(*inputs)
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        largest = np.abs(expected).max(initial=0.0)
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * largest)
    return run


def rules(run: tvmlab.Executable) -> set[str]:
    return {kernel.rule for kernel in run.summary().kernels}


@pytest.mark.parametrize("signs", ["int8", "uint8"])
def test_a_depthwise_convolution_sums_in_its_out_dtype(signs: str) -> None:
    weight = np.random.default_rng(1).integers(-128, 128, (16, 3, 3, 1), "int8")
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_dtype": "int32"}
    mod = build(
        lambda x: op.nn.conv2d(x, relax.const(weight), padding=1, groups=16, **layouts),
        ((1, 9, 9, 16), signs),
    )
    x = np.random.default_rng(0).integers(np.iinfo(signs).min, 128, (1, 9, 9, 16), signs)
    run = tvmlab.compile(mod)
    assert rules(run) == {"Depthwise"}
    padded = np.pad(x.astype("int32"), [(0, 0), (1, 1), (1, 1), (0, 0)])
    taps = [
        padded[:, y : y + 9, z : z + 9] * weight[:, y, z, 0].astype("int32")
        for y in range(3)
        for z in range(3)
    ]
    np.testing.assert_array_equal(run(x), sum(taps))


@pytest.mark.parametrize(
    ("left", "right"),
    [((0, 16), (16, 8)), ((4, 0), (0, 4))],
)
@pytest.mark.parametrize("constant", [True, False])
def test_a_product_of_nothing(
    left: tuple[int, ...], right: tuple[int, ...], constant: bool
) -> None:
    a, b = array(*left), array(*right, seed=1)
    if constant:
        same(build(lambda x: op.matmul(x, relax.const(b)), (left, "float32")), [a])
    else:
        same(build(op.matmul, (left, "float32"), (right, "float32")), [a, b])


def test_a_product_with_an_open_number_of_rows_is_tiled() -> None:
    weight = relax.const(array(48, 70, seed=1))
    for before in ((), (tvm.tirx.Var("b", "int64"),)):
        shape = (*before, tvm.tirx.Var("n", "int64"), 48)
        mod = build(lambda x: op.nn.relu(op.matmul(x, weight)), (shape, "float32"))
        cases = [[array(*[3] * len(before), rows, 48)] for rows in (1, 5, 64, 67)]
        assert "Contraction" in rules(same(mod, *cases))


def test_what_a_sum_is_broadcast_to_is_not_computed_in_its_tile() -> None:
    """A squeeze-and-excite block: a few sums, and a picture that they scale."""
    weight = relax.const(array(32, 32, 1, 1, seed=1))

    def excite(x: relax.Var) -> relax.Expr:
        gate = op.sigmoid(op.nn.conv2d(op.mean(x, [2, 3], keepdims=True), weight))
        return op.multiply(x, gate)

    mod = build(excite, ((1, 32, 40, 40), "float32"))
    assert not same(mod, [array(1, 32, 40, 40)]).summary().unscheduled


def test_an_epilogue_of_more_dimensions() -> None:
    weight = relax.const(array(64, 64, 3, 3, seed=1))
    shapes = (((1, 64, 28, 28), "float32"), ((3, 1, 64, 28, 28), "float32"))
    mod = build(lambda x, y: op.add(op.nn.conv2d(x, weight, padding=1), y), *shapes)
    run = same(mod, [array(*shapes[0][0]), array(*shapes[1][0], seed=2)])
    assert not run.summary().unscheduled


def test_a_legalization_that_raises_is_named_and_the_model_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("no tile")

    monkeypatch.setattr(legalize.Tile, "ranked", broken)
    weight = relax.const(array(16, 8, 3, 3, seed=1))
    mod = build(lambda x: op.nn.conv2d(x, weight), ((1, 8, 9, 9), "float32"))
    with pytest.warns(UserWarning, match=r"relax\.nn\.conv2d is left to upstream: .*no tile"):
        same(mod, [array(1, 8, 9, 9)])


def test_a_graph_whose_layout_upstream_cannot_convert(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = relax.const(array(16, 8, 3, 3, seed=1))
    mod = build(lambda x: op.nn.conv2d(x, weight), ((1, 8, 9, 9), "float32"))

    def refuse(_: object) -> None:
        raise tvm.error.InternalError("Check failed: no layout for this")

    monkeypatch.setattr(relax.transform, "ConvertLayout", refuse)
    with pytest.warns(UserWarning, match=r"convolutions stay in their layout.*no layout for this"):
        same(mod, [array(1, 8, 9, 9)])


def test_a_transposed_convolution_is_no_transpose() -> None:
    weight = relax.const(array(8, 16, 3, 3, seed=1))
    mod = build(lambda x: op.nn.conv2d_transpose(x, weight), ((1, 8, 5, 5), "float32"))
    assert same(mod, [array(1, 8, 5, 5)]).summary().transposes == 0


def test_winograd_spreads_what_is_infinite_and_the_step_before_does_not() -> None:
    weight = relax.const(array(64, 64, 3, 3, seed=1))
    mod = build(lambda x: op.nn.conv2d(x, weight, padding=1), ((1, 64, 28, 28), "float32"))
    x = array(1, 64, 28, 28)
    x[0, 0, 14, 14] = np.inf
    finite = {
        step: np.isfinite(tvmlab.compile(mod, schedule=step)(x)).all(axis=1).mean()
        for step in (False, "epilogue", "winograd")
    }
    assert finite[False] == finite["epilogue"] == 1 - 9 / 28**2
    assert finite["winograd"] < finite["epilogue"]
