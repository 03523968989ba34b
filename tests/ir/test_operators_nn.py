"""The rows for networks: each made, typed, written back, read again, and run where ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tvm import relax, tirx

from tests.ir.reference import back_and_forth, made, run, unknown, var
from tvmlab.errors import RelayError, TvmlabError
from tvmlab.ir import graph, table

RNG = np.random.default_rng(0)


def data(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def shape(call: relax.Call) -> list[int]:
    return [int(size) for size in call.ty.shape.values]


CASES: list[tuple[str, list[tuple[int, ...]], dict[str, Any], list[int]]] = [
    ("nn.conv1d", [(1, 4, 9), (6, 4, 3)], {"padding": [1, 2]}, [1, 6, 10]),
    (
        "nn.conv1d",
        [(1, 9, 4), (3, 4, 6)],
        {"data_layout": "NWC", "kernel_layout": "WIO"},
        [1, 7, 6],
    ),
    ("nn.conv2d", [(1, 4, 9, 8), (6, 4, 3, 3)], {"padding": [1, 0, 2, 1]}, [1, 6, 10, 7]),
    (
        "nn.conv2d",
        [(1, 4, 9, 8), (6, 2, 3, 3)],
        {"groups": 2, "channels": 6, "kernel_size": [3, 3], "strides": [2, 1]},
        [1, 6, 4, 6],
    ),
    (
        "nn.conv2d",
        [(1, 9, 8, 4), (3, 3, 4, 6)],
        {"data_layout": "NHWC", "kernel_layout": "HWIO", "dilation": [2, 2], "channels": 6},
        [1, 5, 4, 6],
    ),
    (
        "nn.conv2d",
        [(1, 9, 8, 4), (3, 3, 4, 2)],
        {"data_layout": "NHWC", "kernel_layout": "HWOI", "groups": 4, "channels": 8},
        [1, 7, 6, 8],
    ),
    ("nn.conv3d", [(1, 2, 5, 6, 7), (3, 2, 3, 3, 3)], {"padding": [1, 0, 1]}, [1, 3, 5, 4, 7]),
    ("nn.conv1d_transpose", [(1, 4, 9), (4, 6, 3)], {"strides": [2]}, [1, 6, 19]),
    (
        "nn.conv2d_transpose",
        [(1, 4, 9, 8), (4, 3, 3, 3)],
        {"strides": [2, 2], "padding": [1, 1], "output_padding": [1, 0], "groups": 2},
        [1, 6, 18, 15],
    ),
    ("nn.conv3d_transpose", [(1, 2, 3, 3, 3), (2, 3, 2, 2, 2)], {}, [1, 3, 4, 4, 4]),
    ("nn.dense", [(2, 5, 4), (3, 4)], {}, [2, 5, 3]),
    ("nn.matmul", [(4, 5), (3, 4)], {"transpose_a": True, "transpose_b": True}, [5, 3]),
    ("nn.matmul", [(2, 5, 4), (4, 3)], {}, [2, 5, 3]),
    ("nn.batch_matmul", [(2, 5, 4), (1, 3, 4)], {"transpose_b": True}, [2, 5, 3]),
    ("nn.bias_add", [(1, 3, 4), (3,)], {}, [1, 3, 4]),
    ("nn.bias_add", [(1, 3, 4), (4,)], {"axis": -1}, [1, 3, 4]),
    ("nn.relu", [(2, 3)], {}, [2, 3]),
    ("nn.leaky_relu", [(2, 3)], {"alpha": 0.3}, [2, 3]),
    ("nn.prelu", [(2, 3, 4), (3,)], {}, [2, 3, 4]),
    ("nn.softmax", [(2, 3)], {"axis": 0}, [2, 3]),
    ("nn.log_softmax", [(2, 3)], {}, [2, 3]),
    ("nn.layer_norm", [(2, 3, 4), (4,), (4,)], {"epsilon": 1e-3}, [2, 3, 4]),
    ("nn.layer_norm", [(2, 3, 4), (3,), (3,)], {"axis": 1, "scale": False}, [2, 3, 4]),
    ("nn.instance_norm", [(2, 4, 4, 3), (3,), (3,)], {"axis": 3, "center": False}, [2, 4, 4, 3]),
    (
        "nn.group_norm",
        [(2, 4, 3, 3), (4,), (4,)],
        {"num_groups": 2, "scale": False, "center": False},
        [2, 4, 3, 3],
    ),
    ("nn.lrn", [(2, 3, 3, 7)], {"size": 3, "axis": 3, "bias": 1.0, "beta": 0.5}, [2, 3, 3, 7]),
    ("nn.l2_normalize", [(2, 3, 4)], {"eps": 1e-6, "axis": [1, 2]}, [2, 3, 4]),
    ("nn.batch_flatten", [(2, 3, 4)], {}, [2, 12]),
    ("nn.max_pool1d", [(1, 3, 9)], {"pool_size": [2], "strides": [2]}, [1, 3, 4]),
    (
        "nn.max_pool2d",
        [(1, 9, 9, 3)],
        {"pool_size": [2, 2], "strides": [2, 2], "ceil_mode": True, "layout": "NHWC"},
        [1, 5, 5, 3],
    ),
    ("nn.max_pool3d", [(1, 2, 4, 4, 4)], {"pool_size": [2, 2, 2]}, [1, 2, 3, 3, 3]),
    ("nn.avg_pool1d", [(1, 3, 9)], {"pool_size": [3], "dilation": [2]}, [1, 3, 5]),
    (
        "nn.avg_pool2d",
        [(1, 3, 8, 8)],
        {"pool_size": [3, 3], "padding": [1, 0, 0, 1], "count_include_pad": True},
        [1, 3, 7, 7],
    ),
    ("nn.avg_pool3d", [(1, 2, 4, 4, 4)], {"pool_size": [2, 2, 2]}, [1, 2, 3, 3, 3]),
    ("nn.global_avg_pool2d", [(2, 3, 4, 5)], {}, [2, 3, 1, 1]),
    ("nn.global_max_pool2d", [(2, 4, 5, 3)], {"layout": "NHWC"}, [2, 1, 1, 3]),
    ("nn.adaptive_avg_pool1d", [(2, 3, 8)], {"output_size": [4]}, [2, 3, 4]),
    ("nn.adaptive_avg_pool2d", [(2, 3, 8, 8)], {"output_size": [2, 4]}, [2, 3, 2, 4]),
    ("nn.adaptive_avg_pool3d", [(2, 3, 8, 8, 8)], {"output_size": [2, 2, 2]}, [2, 3, 2, 2, 2]),
    ("nn.upsampling", [(1, 2, 3, 4)], {"scale_h": 2.0, "scale_w": 3.0}, [1, 2, 6, 12]),
    (
        "nn.upsampling",
        [(1, 2, 3, 4)],
        {"scale_h": 2.0, "scale_w": 2.0, "method": "bilinear", "align_corners": True},
        [1, 2, 6, 8],
    ),
    ("image.resize2d", [(1, 2, 3, 4)], {"size": [6, 8]}, [1, 2, 6, 8]),
    ("nn.depth_to_space", [(1, 8, 2, 3)], {"block_size": 2}, [1, 2, 4, 6]),
    ("nn.depth_to_space", [(1, 8, 2, 3)], {"block_size": 2, "mode": "CDR"}, [1, 2, 4, 6]),
    ("nn.space_to_depth", [(1, 4, 6, 2)], {"block_size": 2, "layout": "NHWC"}, [1, 2, 3, 8]),
    ("nn.fast_softmax", [(2, 3)], {"axis": 0}, [2, 3]),
    (
        "nn.mirror_pad",
        [(1, 2, 4, 3)],
        {"pad_width": [[0, 0], [0, 0], [3, 1], [0, 2]], "mode": "REFLECT"},
        [1, 2, 8, 5],
    ),
]


@pytest.mark.parametrize(("name", "shapes", "attributes", "wanted"), CASES)
def test_made_written_and_made_again(
    name: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], wanted: list[int]
) -> None:
    call = made(name, *params_of(shapes), **attributes)
    assert shape(call) == wanted
    assert str(call.ty.dtype) == "float32"
    found = back_and_forth(call)
    # What the call said is what comes back, but for padding, which Relax spells out.
    for key, value in attributes.items():
        if key != "padding":
            assert found[key] == value, key


def test_all_rows_of_networks_have_a_case() -> None:
    here = {name for name, *_ in CASES} | {"nn.batch_norm", "nn.dropout", "nn.pad"}
    known = {name for name in table.names() if name.startswith(("nn.", "image."))}
    assert known <= here


def torch_of(name: str, given: list[torch.Tensor], a: dict[str, Any]) -> torch.Tensor:
    """Compute what an operator stands for, in other words than its expansion's."""
    x = given[0]
    if name == "nn.conv2d":  # NHWC, HWOI with a multiplier
        weight = given[1].permute(2, 3, 0, 1).reshape(-1, 1, 3, 3)
        return F.conv2d(x.permute(0, 3, 1, 2), weight, groups=4).permute(0, 2, 3, 1)
    if name == "nn.dense":
        return F.linear(x, given[1])
    if name in ("nn.matmul", "nn.batch_matmul"):
        first = x.mT if a.get("transpose_a") else x
        return first @ (given[1].mT if a.get("transpose_b") else given[1])
    if name == "nn.bias_add":
        return x + (given[1] if a.get("axis") == -1 else given[1][:, None])
    if name == "nn.layer_norm":  # over axis 1, no gamma
        y = F.layer_norm(x.transpose(1, 2), (3,), eps=1e-5).transpose(1, 2)
        return y + given[2][:, None]
    if name == "nn.instance_norm":  # NHWC, no beta
        y = F.instance_norm(x.permute(0, 3, 1, 2), weight=given[1])
        return y.permute(0, 2, 3, 1)
    if name == "nn.group_norm":
        return F.group_norm(x, 2)
    if name == "nn.lrn":
        axis, size = a.get("axis", 1), a["size"]
        moved = x.movedim(axis, 1)
        y = F.local_response_norm(
            moved, size, a.get("alpha", 0.0001), a.get("beta", 0.75), a.get("bias", 2.0)
        )
        return y.movedim(1, axis)
    if name == "nn.l2_normalize":
        axis = a["axis"] or tuple(range(x.ndim))
        return x / torch.sqrt(torch.clamp((x * x).sum(tuple(axis), keepdim=True), min=a["eps"]))
    if name == "nn.global_avg_pool2d":
        return F.adaptive_avg_pool2d(x, 1)
    if name == "nn.global_max_pool2d":
        return F.adaptive_max_pool2d(x.permute(0, 3, 1, 2), 1).permute(0, 2, 3, 1)
    if name == "nn.upsampling":
        if "method" in a:
            return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
        return F.interpolate(x, scale_factor=(2, 3), mode="nearest")
    if name == "nn.fast_softmax":
        return F.softmax(x, a["axis"])
    if name == "nn.mirror_pad":
        (top, bottom), (left, right) = a["pad_width"][2:]
        return F.pad(x, (left, right, top, bottom), mode="reflect")
    if name == "nn.depth_to_space" and a.get("mode") == "CDR":
        return F.pixel_shuffle(x, 2)
    if name == "nn.depth_to_space":
        return F.pixel_shuffle(x[:, [0, 2, 4, 6, 1, 3, 5, 7]], 2)
    assert name == "nn.space_to_depth"
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(1, 2, 3, 8)


def params_of(shapes: list[tuple[int, ...]]) -> list[relax.Var]:
    return [var(*one, name=f"v{i}") for i, one in enumerate(shapes)]


OURS = [
    (name, shapes, attributes)
    for name, shapes, attributes, _ in CASES
    if made(name, *params_of(shapes), **attributes).op.name.startswith("relax.relay.")
]


@pytest.mark.parametrize(("name", "shapes", "attributes"), OURS)
def test_ours_compute_what_pytorch_does(
    name: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any]
) -> None:
    params = params_of(shapes)
    call = made(name, *params, **attributes)
    values = [data(*one) for one in shapes]
    wanted = torch_of(name, [torch.from_numpy(value) for value in values], attributes)
    np.testing.assert_allclose(run(call, params, *values), wanted.numpy(), rtol=2e-5, atol=2e-5)


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
        ("nn.lrn", [(1, 3, 4, 4)], {"size": 4}, "odd"),
        ("nn.layer_norm", [(1, 3), (3,), (3,)], {"axis": 2}, "axis 2"),
        (
            "nn.max_pool2d",
            [(1, 1, 2, 2)],
            {"pool_size": [1, 1], "strides": [2, 2], "ceil_mode": True},
            "padding only",
        ),
        ("nn.adaptive_avg_pool2d", [(1, 1, 2, 2)], {"output_size": [1, 2, 3]}, "output_size"),
        ("nn.depth_to_space", [(1, 3, 2, 2)], {"block_size": 2}, "no multiple"),
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
        with pytest.raises(RelayError, match="pad_"):
            made("nn.pad", var(2, 3), zero, **attributes)


def test_what_relay_cannot_say_is_not_written() -> None:
    two_axes = relax.op.nn.layer_norm(var(2, 3, 4), var(3, 4), var(3, 4), [1, 2])
    assert table.written(graph.typed(two_axes)) is None
    circular = relax.op.nn.pad(var(2, 3), [0, 0, 1, 1], "circular")
    assert table.written(graph.typed(circular)) is None
    four = relax.op.matmul(var(1, 2, 3, 4), var(1, 2, 4, 3))
    assert table.written(graph.typed(four)) is None
