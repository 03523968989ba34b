"""Examples for the rows of networks' layers and of images; see `tests.ir.rows`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tvm import relax

from tests.ir.rows import ALL, FLOATS, NUMBERS, Example, Given, Pool, example, shape_of

DATA_LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
KERNEL_LAYOUTS = {
    1: ("OIW", "WIO", "IOW"),
    2: ("OIHW", "HWIO", "HWOI", "OHWI", "IOHW"),
    3: ("OIDHW", "DHWIO", "DHWOI", "IODHW"),
}
SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
EPSILONS = (1e-5, 1e-3, 0.1, 1.0, 1.1920929e-07)
PAD_VALUES = (0.0, -1.5, 0.1, 3.4028234663852886e38, float("inf"), float("-inf"), 1e-20)


def dtype_of(value: relax.Expr) -> str:
    return str(value.ty.dtype)


def ordered(sizes: Mapping[str, int], layout: str) -> list[int]:
    """Put sizes, named by letters, into a layout's order."""
    return [sizes[axis] for axis in layout]


def padding(pool: Pool, n: int, most: int = 2) -> list[int]:
    """Draw padding: one size for all sides, one an axis, or all before and then all after."""
    return [pool.integer(0, most) for _ in range(pool.one_of(1, n, 2 * n))]


def sides(given: Sequence[int], n: int) -> list[tuple[int, int]]:
    """Give the padding before and after each axis."""
    whole = list(given) * (2 * n // len(given)) if len(given) < 2 * n else list(given)
    return list(zip(whole[:n], whole[n:], strict=True))


def _out_layout(pool: Pool, n: int) -> str:
    return str(pool.one_of("", "", *DATA_LAYOUTS[n]))


def convolved(pool: Pool, n: int) -> tuple[list[int], list[int], dict[str, Any]]:
    """Draw a convolution: the shapes of its operands, and all attributes but the dtype.

    Groups have any number of channels; a depthwise weight is stored in either of Relay's ways.
    """
    spatial = SPATIAL[n]
    groups, inner = pool.one_of(1, 1, 2, 3), pool.integer(1, 2)
    sizes = {"N": pool.integer(1, 2), "C": groups * inner}
    outer, step = groups * pool.integer(1, 2), 1
    made = outer
    if groups > 1 and pool.flag():  # depthwise: (channels, multiplier)
        sizes["C"], outer, inner = groups, groups, pool.integer(1, 2)
        made = outer * inner
    kernel = {"O": outer, "I": inner}
    dilation = [pool.integer(1, 2) for _ in spatial]
    for axis, step in zip(spatial, dilation, strict=True):
        kernel[axis] = pool.integer(1, 3)
        sizes[axis] = (kernel[axis] - 1) * step + pool.integer(1, 3)
    layout, kernel_layout = pool.one_of(*DATA_LAYOUTS[n]), pool.one_of(*KERNEL_LAYOUTS[n])
    given = {
        "strides": [pool.integer(1, 3) for _ in spatial],
        "padding": padding(pool, n),
        "dilation": dilation,
        "groups": groups,
        "channels": pool.one_of(None, made),
        "kernel_size": pool.one_of(None, ordered(kernel, spatial)),
        "data_layout": layout,
        "kernel_layout": kernel_layout,
        "out_layout": _out_layout(pool, n),
    }
    return ordered(sizes, layout), ordered(kernel, kernel_layout), given


def transposed(pool: Pool, n: int) -> tuple[list[int], list[int], dict[str, Any]]:
    """Draw a transposed convolution, as `convolved` does."""
    spatial = SPATIAL[n]
    groups, outer = pool.one_of(1, 1, 2), pool.integer(1, 2)
    sizes = {"N": pool.integer(1, 2), "C": groups * pool.integer(1, 2)}
    kernel = {"I": sizes["C"], "O": outer}
    for axis in spatial:
        kernel[axis], sizes[axis] = pool.integer(1, 3), pool.integer(3, 4)
    strides = [pool.integer(1, 3) for _ in spatial]
    more = [pool.integer(0, stride - 1) for stride in strides]
    layout, kernel_layout = pool.one_of(*DATA_LAYOUTS[n]), pool.one_of(*KERNEL_LAYOUTS[n])
    given = {
        "channels": pool.one_of(None, outer * groups),
        "kernel_size": pool.one_of(None, ordered(kernel, spatial)),
        "strides": strides,
        "output_padding": more,
        "padding": padding(pool, n, 1),
        "dilation": [pool.integer(1, 2) for _ in spatial],
        "groups": groups,
        "data_layout": layout,
        "kernel_layout": kernel_layout,
        "out_layout": _out_layout(pool, n),
    }
    return ordered(sizes, layout), ordered(kernel, kernel_layout), given


def _pair(pool: Pool, first: Sequence[int], second: Sequence[int]) -> tuple[Any, Any, str]:
    """Find two operands of one dtype, and a dtype for their products' sums."""
    data = pool.tensor((*FLOATS, "int8", "uint8", "int32"), first)
    kind = dtype_of(data)
    out = pool.one_of("", "float32") if kind in FLOATS else pool.one_of("", "int32")
    return data, pool.tensor((kind,), second), out


def _convolution(n: int, drawn: Callable[[Pool, int], Any]) -> Example:
    def draw(pool: Pool) -> Given:
        shape, kernel, given = drawn(pool, n)
        data, weight, out = _pair(pool, shape, kernel)
        return [data, weight], {**given, "out_dtype": out}

    return draw


def pooled(pool: Pool, n: int, average: bool) -> tuple[list[int], dict[str, Any]]:
    """Draw a pooling: the data's shape, and the attributes.

    The last window of ``ceil_mode`` never lies in the padding alone: such a one is refused.
    """
    spatial = SPATIAL[n]
    sizes = {"N": pool.integer(1, 2), "C": pool.integer(1, 3)}
    window = [pool.integer(1, 3) for _ in spatial]
    dilation = [pool.integer(1, 2) for _ in spatial]
    strides = [pool.integer(1, 3) for _ in spatial]
    reach = [(size - 1) * step + 1 for size, step in zip(window, dilation, strict=True)]
    sizes.update({axis: pool.integer(0, 2) + far for axis, far in zip(spatial, reach, strict=True)})
    pads, layout = padding(pool, n), pool.one_of(*DATA_LAYOUTS[n])
    ends = zip(sides(pads, n), strides, reach, strict=True)
    given = {
        "pool_size": window,
        "strides": strides,
        "dilation": dilation,
        "padding": pads,
        "layout": layout,
        "out_layout": _out_layout(pool, n),
        "ceil_mode": all(after + stride <= far for (_, after), stride, far in ends) and pool.flag(),
    }
    if average:
        given["count_include_pad"] = pool.flag()
    return ordered(sizes, layout), given


def _pooling(n: int, average: bool) -> Example:
    def draw(pool: Pool) -> Given:
        shape, given = pooled(pool, n, average)
        return [pool.tensor((*FLOATS, "int8", "int32"), shape)], given

    return draw


def _adaptive(n: int) -> Example:
    def draw(pool: Pool) -> Given:
        size = [pool.integer(1, 3) for _ in range(pool.one_of(0, 1, n))]
        data = pool.tensor(FLOATS, pool.sizes(n + 2, n + 2))
        layouts = {"layout": pool.one_of(*DATA_LAYOUTS[n]), "out_layout": _out_layout(pool, n)}
        return [data], {"output_size": size, **layouts}

    return draw


for _n in SPATIAL:
    example(f"nn.conv{_n}d")(_convolution(_n, convolved))
    example(f"nn.conv{_n}d_transpose")(_convolution(_n, transposed))
    example(f"nn.max_pool{_n}d")(_pooling(_n, average=False))
    example(f"nn.avg_pool{_n}d")(_pooling(_n, average=True))
    example(f"nn.adaptive_avg_pool{_n}d")(_adaptive(_n))


@example("nn.global_avg_pool2d", "nn.global_max_pool2d")
def _global(pool: Pool) -> Given:
    data = pool.tensor(FLOATS, pool.sizes(4, 4))
    return [data], {"layout": pool.one_of(*DATA_LAYOUTS[2]), "out_layout": _out_layout(pool, 2)}


@example("nn.dense")
def _dense(pool: Pool) -> Given:
    first, units = pool.sizes(1, 3), pool.integer(1, 4)
    data, weight, out = _pair(pool, first, [units, first[-1]])
    return [data, weight], {"units": pool.one_of(None, units), "out_dtype": out}


@example("nn.matmul")
def _matmul(pool: Pool) -> Given:
    first, units = pool.sizes(1, 3), pool.integer(1, 4)
    turns = {"transpose_a": len(first) > 1 and pool.flag(), "transpose_b": pool.flag()}
    inner = first[-2 if turns["transpose_a"] else -1]
    second = [units, inner] if turns["transpose_b"] else [inner, units]
    data, weight, out = _pair(pool, first, second)
    return [data, weight], {"units": pool.one_of(None, units), "out_dtype": out, **turns}


@example("nn.batch_matmul")
def _batch_matmul(pool: Pool) -> Given:
    first, second, turns = batches(pool)
    data, weight, out = _pair(pool, first, second)
    return [data, weight], {"out_dtype": out, **turns}


def batches(pool: Pool) -> tuple[list[int], list[int], dict[str, bool]]:
    """Draw the shapes of batches of matrices, and which of them stand transposed."""
    count, rows, inner, columns = pool.sizes(4, 4)
    turns = {"transpose_a": pool.flag(), "transpose_b": pool.flag()}
    first = [inner, rows] if turns["transpose_a"] else [rows, inner]
    second = [columns, inner] if turns["transpose_b"] else [inner, columns]
    one = pool.one_of(None, 0, 1)
    return [1 if one == 0 else count, *first], [1 if one == 1 else count, *second], turns


def _by_channel(pool: Pool, count: int, least: int = 1, kinds: Sequence[str] = FLOATS) -> Given:
    """Find data, parameters of one value for each of its channels, and the channels' axis."""
    data = pool.tensor(kinds, least=least)
    shape = shape_of(data)
    axis = pool.axis(len(shape))
    kept = [pool.tensor((dtype_of(data),), [shape[axis]]) for _ in range(count)]
    return [data, *kept], {"axis": axis}


example("nn.bias_add")(lambda pool: _by_channel(pool, 1, kinds=NUMBERS))
example("nn.prelu")(lambda pool: _by_channel(pool, 1))


def _whole(pool: Pool) -> dict[str, Any]:
    return {"epsilon": pool.one_of(*EPSILONS), "center": pool.flag(), "scale": pool.flag()}


@example("nn.batch_norm")
def _batch_norm(pool: Pool) -> Given:
    operands, given = _by_channel(pool, 4)
    return operands, {**given, **_whole(pool)}


@example("nn.layer_norm", "nn.instance_norm")
def _layer_norm(pool: Pool) -> Given:
    operands, given = _by_channel(pool, 2, least=2)
    return operands, {**given, **_whole(pool)}


@example("nn.group_norm")
def _group_norm(pool: Pool) -> Given:
    operands, given = _by_channel(pool, 2, least=3)
    channels = shape_of(operands[0])[given["axis"]]
    groups = [count for count in range(1, channels + 1) if channels % count == 0]
    return operands, {"num_groups": pool.one_of(*groups), **given, **_whole(pool)}


@example("nn.relu")
def _relu(pool: Pool) -> Given:
    return [pool.tensor(NUMBERS)], {}


@example("nn.batch_flatten")
def _batch_flatten(pool: Pool) -> Given:
    return [pool.tensor(ALL, least=2)], {}


@example("nn.softmax", "nn.log_softmax")
def _softmax(pool: Pool) -> Given:
    data = pool.tensor(FLOATS, least=1)
    return [data], {"axis": pool.axis(len(shape_of(data)))}


@example("nn.dropout")
def _dropout(pool: Pool) -> Given:
    return [pool.tensor(FLOATS)], {"rate": pool.one_of(0.0, 0.5, 0.1, 1 / 3)}


@example("nn.leaky_relu")
def _leaky_relu(pool: Pool) -> Given:
    return [pool.tensor(FLOATS)], {"alpha": pool.one_of(0.01, 0.3, 0.0, -1.0, 1e-8, 2 / 3)}


@example("nn.pad")
def _pad(pool: Pool) -> Given:
    data = pool.tensor(ALL)
    widths = [[pool.integer(0, 2), pool.integer(0, 2)] for _ in shape_of(data)]
    if pool.flag():
        value: relax.Expr = relax.const(np.float32(pool.one_of(*PAD_VALUES)), "float32")
    else:
        value = pool.tensor(NUMBERS, [])
    mode = pool.one_of("constant", "constant", "edge", "reflect")
    return [data, value], {"pad_width": widths, "pad_mode": mode}


@example("nn.lrn")
def _lrn(pool: Pool) -> Given:
    data = pool.tensor(FLOATS, least=1)
    numbers = {name: pool.one_of(2.0, 0.75, 1e-4, 1 / 3) for name in ("bias", "alpha", "beta")}
    return [data], {"size": pool.one_of(1, 3, 5), "axis": pool.axis(len(shape_of(data))), **numbers}


@example("nn.l2_normalize")
def _l2_normalize(pool: Pool) -> Given:
    data = pool.tensor(FLOATS)
    return [data], {"eps": pool.one_of(*EPSILONS), "axis": pool.axes(len(shape_of(data)))}


def _image(pool: Pool, layout: str, **sizes: int) -> relax.Expr:
    given = {"N": pool.integer(1, 2), "C": pool.integer(1, 3), "H": 2, "W": 3, **sizes}
    return pool.tensor((*FLOATS, "uint8"), ordered(given, layout))


@example("nn.upsampling")
def _upsampling(pool: Pool) -> Given:
    layout = pool.one_of(*DATA_LAYOUTS[2])
    return [_image(pool, layout)], {
        "scale_h": pool.one_of(1.0, 2.0, 1.5),
        "scale_w": pool.one_of(2, 3.0, 0.7),
        "layout": layout,
        "method": pool.one_of("nearest_neighbor", "bilinear", "bicubic"),
        "align_corners": pool.flag(),
    }


@example("nn.depth_to_space")
def _depth_to_space(pool: Pool) -> Given:
    layout, block = pool.one_of(*DATA_LAYOUTS[2]), pool.integer(1, 3)
    data = _image(pool, layout, C=block * block * pool.integer(1, 2))
    return [data], {"block_size": block, "layout": layout, "mode": pool.one_of("DCR", "CDR")}


@example("nn.space_to_depth")
def _space_to_depth(pool: Pool) -> Given:
    layout, block = pool.one_of(*DATA_LAYOUTS[2]), pool.integer(1, 3)
    data = _image(pool, layout, H=block * pool.integer(1, 2), W=block)
    return [data], {"block_size": block, "layout": layout}


@example("image.resize2d")
def _resize2d(pool: Pool) -> Given:
    layout = pool.one_of(*DATA_LAYOUTS[2])
    edges = st.lists(st.sampled_from((0.0, 0.1, 0.5, 1.0)), min_size=4, max_size=4)
    return [_image(pool, layout)], {
        "size": pool.sizes(2, 2),
        "roi": pool.draw(st.none() | edges),
        "layout": layout,
        "method": pool.one_of("nearest_neighbor", "linear", "cubic"),
        "coordinate_transformation_mode": pool.one_of(
            "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_crop_and_resize"
        ),
        "rounding_method": pool.one_of("", "round", "floor", "ceil", "round_prefer_floor"),
        "cubic_alpha": pool.one_of(-0.5, -0.75),
        "cubic_exclude": pool.integer(0, 1),
        "extrapolation_value": pool.one_of(0.0, -1.5, 0.1),
        "out_dtype": pool.one_of("", "float32"),
    }
