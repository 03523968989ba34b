"""What upstream's ConvertLayout raises at is said otherwise first: no warning, equal results."""

from __future__ import annotations

import warnings

import numpy as np
import tvm
from tvm import relax

import tvmlab
from tvmlab import relay
from tvmlab.compiler import simplify
from tvmlab.schedule.carried import CarryLayouts, convolves
from tvmlab.schedule.layout import channels_last

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
DROPPED = ["nn.dropout(%0).0", "nn.dropout(nn.dropout(%0).0).0 + %0"]


def compared(ends: list[str], plain: list[str]) -> None:
    """Compile the ends of a convolution without a warning; compare with upstream's of `plain`."""
    mod, other = (relay.fromtext(f"{HEAD}({', '.join(each)}) }}") for each in (ends, plain))
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


def test_layouts_are_converted_around_operators() -> None:
    compared(ENDS, ENDS)


def test_layouts_are_converted_around_dropout() -> None:
    compared(DROPPED, ["%0", "%0 + %0"])  # upstream has no loops for dropout


def test_a_module_without_convolutions_is_left_alone() -> None:
    mod = relay.fromtext(
        "def @main(%x: Tensor[(2), float32]) { (stack((%x, %x), axis=0), nn.dropout(%x)) }"
    )
    assert not convolves(mod)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tvm.ir.assert_structural_equal(channels_last()(mod), mod)


def test_what_it_may_not_change_stays() -> None:
    mask = relay.fromtext(f"{HEAD}nn.dropout(%0).1 }}")
    assert convolves(mask)
    assert "dropout" in str(CarryLayouts()(mask))
    plain = relay.fromtext(f"{HEAD}squeeze(transpose(%0), axis=[3]) }}")
    tvm.ir.assert_structural_equal(CarryLayouts()(plain), plain)


def test_transposed_weights_are_constants_of_the_convolution() -> None:
    weight = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype("float32")
    mod = relay.fromtext(f"{HEAD}%0 }}")
    bound = relax.transform.BindParams("main", {"w": tvm.runtime.tensor(weight)})(mod)
    made = channels_last()(simplify(bound))
    kinds = [type(call.args[1]).__name__ for call in _convolutions(made)]
    assert kinds == ["GenericConst"]


def _convolutions(mod: tvm.ir.IRModule) -> list[relax.Call]:
    found: list[relax.Call] = []

    def look(expr: relax.Expr) -> None:
        if getattr(getattr(expr, "op", None), "name", "") == "relax.nn.conv2d":
            found.append(expr)

    relax.analysis.post_order_visit(mod["main"].body, look)
    return found
