"""What compiling with schedules bears: rare shapes and operators, and layouts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from tvm import relax
from tvm.relax import op

import tvmlab
from tests.oracles.models import array
from tvmlab import relay
from tvmlab.compiler import simplify
from tvmlab.schedule import legalize
from tvmlab.schedule.layout import channels_last, convolves


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


@pytest.mark.parametrize(("left", "right"), [((0, 16), (16, 8)), ((4, 0), (0, 4))])
def test_a_product_of_nothing(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = array(*left), array(*right, seed=1)
    same(build(lambda x: op.matmul(x, relax.const(b)), (left, "float32")), [a])
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


HEAD = """def @main(%x: Tensor[(1, 4, 8, 8), float32], %w: Tensor[(4, 4, 3, 3), float32]) {
  %0 = nn.conv2d(%x, %w, padding=[1, 1]);
  """
ENDS = [
    "stack((%0, %0), axis=1)",
    "stack((%0, %x), axis=-1)",
    "nn.relu(nn.conv2d_transpose(nn.relu(%0), %w, strides=[2, 2], output_padding=[1, 1])) + 1f",
    "nn.conv2d_transpose(%0, reshape(%w, newshape=[4, 4, 3, 3]), padding=[1, 0, 1, 0], groups=1)",
    "transpose(%0, axes=[0, -1, 1, 2])",
    "squeeze(mean(%0, axis=[-1], keepdims=True), axis=[-1])",
    "squeeze(mean(%0, axis=[3], keepdims=True), axis=[0, -1])",
]


def test_layouts_are_converted_around_operators() -> None:
    # Upstream has no loops for dropout, which does nothing here.
    dropout, none = ["nn.dropout(%0).0", "nn.dropout(nn.dropout(%0).0).0 + %0"], ["%0", "%0 + %0"]
    mod, other = (
        relay.fromtext(f"{HEAD}({', '.join([*ENDS, *more])}) }}") for more in (dropout, none)
    )
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(s).astype("float32") for s in ((1, 4, 8, 8), (4, 4, 3, 3))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = channels_last()(simplify(mod))
        results = tvmlab.compile(mod)(*inputs)
    assert "NHWC" in str(made)
    expected = tvmlab.compile(other, schedule=False)(*inputs)
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, atol=1e-4)


def test_a_module_without_convolutions_is_left_alone() -> None:
    mod = relay.fromtext(
        "def @main(%x: Tensor[(2), float32]) { (stack((%x, %x), axis=0), nn.dropout(%x)) }"
    )
    assert not convolves(mod)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tvm.ir.assert_structural_equal(channels_last()(mod), mod)


@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "groups", "shared"),
    [
        ((1, 12, 12, 32), 1, 1, 1, False),
        # 45 channels fill the vectors of no processor, so Winograd takes none of these.
        ((2, 9, 13, 45), 3, 1, 1, False),
        ((2, 9, 13, 45), 3, 1, 1, True),
        ((1, 14, 14, 512), 1, 1, 1, True),
        ((1, 11, 7, 40), 3, 1, 4, False),
        ((1, 15, 15, 64), 1, 2, 1, False),
        ((1, 16, 16, 24), 3, 2, 2, False),
    ],
)
def test_prologues_are_fused_and_right(
    shape: tuple[int, ...], kernel: int, stride: int, groups: int, shared: bool
) -> None:
    """relu(x * 2 + 1), a convolution of it, and if shared its sum with what was convolved."""
    rng = np.random.default_rng(0)
    size = (shape[3], kernel, kernel, shape[3] // groups)
    weight = rng.standard_normal(size, dtype=np.float32)

    def make(x: relax.Var) -> relax.Expr:
        y = op.nn.relu(op.add(op.multiply(x, relax.const(2.0)), relax.const(1.0)))
        options = {"strides": stride, "padding": kernel // 2, "groups": groups}
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
        z = op.nn.conv2d(y, relax.const(weight), **options, **layouts)
        return op.add(z, y) if shared else op.nn.relu(z)

    # All steps but Winograd's, which some targets take.
    run = tvmlab.compile(build(make, (shape, "float32")), schedule="epilogue")
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    y = torch.relu(torch.from_numpy(x) * 2 + 1)
    filters = torch.from_numpy(weight).permute(0, 3, 1, 2)
    pictures = y.permute(0, 3, 1, 2)
    z = torch.nn.functional.conv2d(
        pictures, filters, stride=stride, padding=kernel // 2, groups=groups
    ).permute(0, 2, 3, 1)
    expected = (z + y if shared else torch.relu(z)).numpy()
    assert np.abs(run(x) - expected).max() <= 1e-5 * np.abs(expected).max()
    assert run.summary().unscheduled == ()
    (contraction,) = [k for k in run.summary().kernels if k.rule == "Contraction"]
    assert "multiply" in contraction.name  # of a sum as well: both readers are in one function
