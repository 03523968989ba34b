"""The rows for networks: each made, typed, written back, read again, and run where ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tvm import relax, tirx

from tests.ir.cases import Case, case, names, results
from tests.ir.reference import back_and_forth, made, run, unknown, var
from tvmlab.errors import TvmlabError
from tvmlab.ir import graph, table

RNG = np.random.default_rng(0)


def data(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def shape(call: relax.Call) -> list[int]:
    return [int(size) for size in call.ty.shape.values]


Torch = Callable[..., torch.Tensor]


def compared(name: str, *shapes: tuple[int, ...], by: Torch, **attributes: Any) -> Case:
    """Make a call of random data, whose result PyTorch computes."""
    arrays = [data(*one) for one in shapes]
    return case(name, *arrays, want=by(*map(torch.from_numpy, arrays)).numpy(), **attributes)


def nhwc(channels_first: Torch) -> Torch:
    """Move the channels of the first operand and of the result."""
    return lambda x, *rest: channels_first(x.permute(0, 3, 1, 2), *rest).permute(0, 2, 3, 1)


def norm_over_channels(x: torch.Tensor, _: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x.mT, (3,), eps=1e-5).mT + beta[:, None]


def depthwise(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, w.permute(2, 3, 0, 1).reshape(-1, 1, 3, 3), groups=4)


IMAGE, CUBE, MAP = (1, 4, 9, 8), (1, 2, 4, 4, 4), (1, 2, 3, 4)
HWIO = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
HWOI = {"data_layout": "NHWC", "kernel_layout": "HWOI"}
CASES = [
    compared("nn.conv1d", (1, 4, 9), (6, 4, 3), padding=[1, 2],
             by=lambda x, w: F.conv1d(F.pad(x, (1, 2)), w)),
    compared("nn.conv1d", (1, 9, 4), (3, 4, 6), data_layout="NWC", kernel_layout="WIO",
             by=lambda x, w: F.conv1d(x.mT, w.permute(2, 1, 0)).mT),
    compared("nn.conv2d", IMAGE, (6, 4, 3, 3), padding=[1, 0, 2, 1],
             by=lambda x, w: F.conv2d(F.pad(x, (0, 1, 1, 2)), w)),
    compared("nn.conv2d", IMAGE, (6, 2, 3, 3),
             groups=2, channels=6, kernel_size=[3, 3], strides=[2, 1],
             by=lambda x, w: F.conv2d(x, w, stride=(2, 1), groups=2)),
    compared("nn.conv2d", (1, 9, 8, 4), (3, 3, 4, 6), **HWIO, dilation=[2, 2], channels=6,
             by=nhwc(lambda x, w: F.conv2d(x, w.permute(3, 2, 0, 1), dilation=2))),
    compared("nn.conv2d", (1, 9, 8, 4), (3, 3, 4, 2), **HWOI, groups=4, channels=8,
             by=nhwc(depthwise)),
    compared("nn.conv3d", (1, 2, 5, 6, 7), (3, 2, 3, 3, 3), padding=[1, 0, 1],
             by=lambda x, w: F.conv3d(x, w, padding=(1, 0, 1))),
    compared("nn.conv1d_transpose", (1, 4, 9), (4, 6, 3), strides=[2],
             by=lambda x, w: F.conv_transpose1d(x, w, stride=2)),
    compared("nn.conv2d_transpose", IMAGE, (4, 3, 3, 3),
             strides=[2, 2], padding=[1, 1], output_padding=[1, 0], groups=2,
             by=lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, (1, 0), 2)),
    compared("nn.conv3d_transpose", (1, 2, 3, 3, 3), (2, 3, 2, 2, 2), by=F.conv_transpose3d),
    compared("nn.dense", (2, 5, 4), (3, 4), by=F.linear),
    compared("nn.matmul", (4, 5), (3, 4), transpose_a=True, transpose_b=True,
             by=lambda x, w: x.mT @ w.mT),
    compared("nn.matmul", (2, 5, 4), (4, 3), by=torch.matmul),
    compared("nn.batch_matmul", (2, 5, 4), (1, 3, 4), transpose_b=True, by=lambda x, w: x @ w.mT),
    compared("nn.bias_add", (1, 3, 4), (3,), by=lambda x, b: x + b[:, None]),
    compared("nn.bias_add", (1, 3, 4), (4,), axis=-1, by=torch.add),
    compared("nn.relu", (2, 3), by=F.relu),
    compared("nn.leaky_relu", (2, 3), alpha=0.3, by=lambda x: F.leaky_relu(x, 0.3)),
    compared("nn.prelu", (2, 3, 4), (3,), by=F.prelu),
    compared("nn.softmax", (2, 3), axis=0, by=lambda x: F.softmax(x, 0)),
    compared("nn.log_softmax", (2, 3), by=lambda x: F.log_softmax(x, 1)),
    compared("nn.fast_softmax", (2, 3), axis=0, by=lambda x: F.softmax(x, 0)),
    compared("nn.layer_norm", (2, 3, 4), (4,), (4,), epsilon=1e-3,
             by=lambda x, g, b: F.layer_norm(x, (4,), g, b, eps=1e-3)),
    compared("nn.layer_norm", (2, 3, 4), (3,), (3,), axis=1, scale=False, by=norm_over_channels),
    compared("nn.instance_norm", (2, 4, 4, 3), (3,), (3,), axis=3, center=False,
             by=nhwc(lambda x, g, _: F.instance_norm(x, weight=g))),
    compared("nn.group_norm", (2, 4, 3, 3), (4,), (4,), num_groups=2,
             by=lambda x, g, b: F.group_norm(x, 2, g, b)),
    compared("nn.group_norm", (2, 4, 3, 3), (4,), (4,), num_groups=2, scale=False, center=False,
             by=lambda x, *_: F.group_norm(x, 2)),
    compared("nn.batch_flatten", (2, 3, 4), by=lambda x: x.flatten(1)),
    compared("nn.max_pool1d", (1, 3, 9), pool_size=[2], strides=[2],
             by=lambda x: F.max_pool1d(x, 2, 2)),
    compared("nn.max_pool2d", (1, 9, 9, 3),
             pool_size=[2, 2], strides=[2, 2], ceil_mode=True, layout="NHWC",
             by=nhwc(lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True))),
    compared("nn.max_pool3d", CUBE, pool_size=[2, 2, 2], by=lambda x: F.max_pool3d(x, 2, 1)),
    compared("nn.avg_pool1d", (1, 3, 9), pool_size=[3], dilation=[2],
             by=lambda x: (x[..., :-4] + x[..., 2:-2] + x[..., 4:]) / 3),
    compared("nn.avg_pool2d", (1, 3, 8, 8),
             pool_size=[3, 3], padding=[1, 0, 0, 1], count_include_pad=True,
             by=lambda x: F.avg_pool2d(F.pad(x, (0, 1, 1, 0)), 3, 1)),
    compared("nn.avg_pool3d", CUBE, pool_size=[2, 2, 2], by=lambda x: F.avg_pool3d(x, 2, 1)),
    compared("nn.global_avg_pool2d", (2, 3, 4, 5), by=lambda x: F.adaptive_avg_pool2d(x, 1)),
    compared("nn.global_max_pool2d", (2, 4, 5, 3), layout="NHWC",
             by=nhwc(lambda x: F.adaptive_max_pool2d(x, 1))),
    compared("nn.adaptive_avg_pool1d", (2, 3, 8), output_size=[4],
             by=lambda x: F.adaptive_avg_pool1d(x, 4)),
    compared("nn.adaptive_avg_pool2d", (2, 3, 8, 8), output_size=[2, 4],
             by=lambda x: F.adaptive_avg_pool2d(x, (2, 4))),
    compared("nn.adaptive_avg_pool3d", (2, 3, 8, 8, 8), output_size=[2, 2, 2],
             by=lambda x: F.adaptive_avg_pool3d(x, 2)),
    compared("nn.upsampling", MAP, scale_h=2.0, scale_w=3.0,
             by=lambda x: F.interpolate(x, scale_factor=(2, 3))),
    compared("nn.upsampling", MAP, scale_h=2.0, scale_w=2.0, method="bilinear", align_corners=True,
             by=lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)),
    compared("image.resize2d", MAP, size=[6, 8],
             by=lambda x: F.interpolate(x, size=(6, 8), mode="bilinear")),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(CASES)), ids=names(CASES))
def test_a_row_computes_what_pytorch_does(index: int) -> None:
    one = CASES[index]
    found = results(CASES)[index]
    assert (found.shape, found.dtype) == (one.want.shape, one.want.dtype)
    np.testing.assert_allclose(found, one.want, rtol=2e-5, atol=2e-5)
    params = params_of([x.shape for x in one.operands])
    written = back_and_forth(made(one.name, *params, **one.attributes))
    # What the call said is what comes back, but for padding, which Relax spells out.
    for key, value in one.attributes.items():
        if key != "padding":
            assert written[key] == value, key


def test_all_rows_of_networks_have_a_case() -> None:
    here = {one.name for one in CASES} | {"nn.batch_norm", "nn.dropout", "nn.pad"}
    known = {name for name in table.names() if name.startswith(("nn.", "image."))}
    assert known <= here


def params_of(shapes: list[tuple[int, ...]]) -> list[relax.Var]:
    return [var(*one, name=f"v{i}") for i, one in enumerate(shapes)]


def test_batch_norm_is_a_triple_for_inference() -> None:
    params = [var(2, 3, 4, 4), *[var(3, name=f"v{i}") for i in range(4)]]
    call = made("nn.batch_norm", *params, epsilon=2e-5, scale=False)
    assert len(call.ty.fields) == 3
    found = back_and_forth(call)
    assert found == {"axis": 1, "epsilon": 2e-5, "center": True, "scale": False}
    training = relax.op.nn.batch_norm(*params, axis=1, training=True)
    assert table.written(graph.typed(training)) is None
    # ONNX's momentum, so that what came from there is the same after a round trip.
    assert call.attrs.momentum == 0.9


def test_pad_takes_relax_own_for_a_float32_constant() -> None:
    x, width = var(1, 2, dtype="uint8"), [[0, 0], [1, 2]]
    call = made("nn.pad", x, relax.const(114.0, "float32"), pad_width=width)
    assert call.op.name == "relax.nn.pad"
    assert shape(call) == [1, 5]
    assert str(call.ty.dtype) == "uint8"
    assert back_and_forth(call) == {"pad_width": width, "pad_mode": "constant"}
    tenth = made("nn.pad", var(1, 2), relax.const(0.1, "float32"), pad_width=width)
    back_and_forth(tenth)
    assert tenth.attrs.pad_value == float(np.float32(0.1))


@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_pad_modes_mean_the_same(mode: str) -> None:
    x = var(2, 5)
    call = made("nn.pad", x, relax.const(0.0), pad_width=[[0, 0], [2, 1]], pad_mode=mode)
    back_and_forth(call)
    value = data(2, 5)
    np.testing.assert_array_equal(run(call, [x], value), np.pad(value, [(0, 0), (2, 1)], mode))


def test_pad_by_a_variable_or_another_dtype_is_ours() -> None:
    x, fill = var(2, 3), var(name="fill")
    for value, values in ((fill, (np.array(7, "float32"),)), (relax.const(7, "int32"), ())):
        call = made("nn.pad", x, value, pad_width=[[1, 0], [0, 2]])
        assert call.op.name == "relax.relay.nn.pad"
        assert shape(call) == [3, 5]
        back_and_forth(call)
        given = data(2, 3)
        params = [x, fill][: 1 + len(values)]
        wanted = np.pad(given, [(1, 0), (0, 2)], constant_values=7)
        np.testing.assert_array_equal(run(call, params, given, *values), wanted)


def test_convolution_keeps_what_an_unknown_weight_would_lose() -> None:
    call = made("nn.conv2d", var(1, 3, 8, 8), unknown("w"), channels=16, kernel_size=[3, 3])
    assert shape(call) == [1, 16, 6, 6]
    found = back_and_forth(call)
    assert (found["channels"], found["kernel_size"]) == (16, [3, 3])
    bare = made("nn.conv2d", unknown(), unknown("w"))
    assert back_and_forth(bare)["channels"] is None


def test_symbolic_sizes_stay() -> None:
    n = tirx.Var("n", "int64")
    call = made("nn.dense", var(n, 4), var(3, 4, name="w"), units=3)
    assert call.ty.shape.values[0].same_as(n)
    back_and_forth(call)
    pooled = made("nn.global_avg_pool2d", var(n, 4, 8, 8))
    assert pooled.ty.shape.values[0].same_as(n)


@pytest.mark.parametrize(
    ("name", "shapes", "attributes", "words"),
    [
        ("nn.conv2d", [(1, 3, 8, 8), (6, 3, 3, 3)], {"channels": 7}, "channels is 7"),
        ("nn.conv2d", [(1, 3, 8, 8), (6, 3, 3, 3)], {"kernel_size": [5, 5]}, "kernel_size"),
        ("nn.conv2d", [(1, 3, 8, 8), (6, 4, 3, 3)], {}, "4 input channels"),
        ("nn.conv2d", [(1, 3, 8, 8), (6, 3, 3, 3)], {"groups": 2}, "groups is 2"),
        ("nn.conv2d", [(1, 3, 8, 8), (6, 3, 3, 3)], {"padding": [1, 2, 3]}, "3 sizes"),
        ("nn.conv2d", [(1, 3, 8, 8), (6, 3, 3, 3)], {"strides": [0, 1]}, "strides"),
        ("nn.conv2d", [(1, 3, 2, 2), (6, 3, 3, 3)], {}, "larger than"),
        ("nn.conv2d", [(1, 3, 8), (6, 3, 3, 3)], {}, "3 dimensions"),
        ("nn.conv2d_transpose", [(1, 3, 8, 8), (4, 3, 3, 3)], {}, "4 input channels"),
        ("nn.conv2d_transpose", [(1, 4, 8, 8), (4, 3, 3, 3)], {"channels": 4}, "channels is 4"),
        ("nn.dense", [(5, 4), (3, 4)], {"units": 4}, "units is 4"),
        ("nn.dense", [(5, 4), (3, 5)], {}, "5 inputs"),
        ("nn.matmul", [(5, 4), (4, 3)], {"units": 4}, "units is 4"),
        ("nn.batch_matmul", [(2, 5, 4), (3, 4, 3)], {}, "2 matrices"),
        ("nn.batch_matmul", [(2, 5, 4), (2, 5, 3)], {}, "inner sizes"),
        ("nn.bias_add", [(1, 3, 4), (4,)], {}, "bias has 4 values"),
        ("nn.bias_add", [(1, 3, 4), (4,)], {"axis": 3}, "axis 3"),
        ("nn.layer_norm", [(1, 3), (3,), (3,)], {"axis": 2}, "axis 2"),
        (
            "nn.max_pool2d",
            [(1, 1, 2, 2)],
            {"pool_size": [1, 1], "strides": [2, 2], "ceil_mode": True},
            "padding only",
        ),
        ("image.resize2d", [(1, 3, 2, 2)], {}, "no size"),
    ],
)
def test_what_does_not_fit_is_named(
    name: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], words: str
) -> None:
    operands = params_of(shapes)
    with pytest.raises(TvmlabError, match=words) as caught:
        made(name, *operands, **attributes)
    assert name in str(caught.value)


def test_pad_width_and_mode_are_checked() -> None:
    zero = relax.const(0.0)
    for attributes in (
        {"pad_width": [[0, 0]]},
        {"pad_width": [0, 0, 1, 1]},
        {"pad_width": [[0, 0], [1, 1]], "pad_mode": "wrap"},
    ):
        with pytest.raises(TvmlabError, match="pad_"):
            made("nn.pad", var(2, 3), zero, **attributes)


def test_what_relay_cannot_say_is_not_written() -> None:
    two_axes = relax.op.nn.layer_norm(var(2, 3, 4), var(3, 4), var(3, 4), [1, 2])
    assert table.written(graph.typed(two_axes)) is None
    circular = relax.op.nn.pad(var(2, 3), [0, 0, 1, 1], "circular")
    assert table.written(graph.typed(circular)) is None
    four = relax.op.matmul(var(1, 2, 3, 4), var(1, 2, 4, 3))
    assert table.written(graph.typed(four)) is None
