"""Inception of the third version, as ``relay.testing.inception_v3`` has it.

The paper is "Rethinking the Inception Architecture for Computer Vision".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tvm import ir, relax

from ..analysis import free_vars
from ..expr import Function, var
from ..op import function
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload"]


class _Step(NamedTuple):
    """A convolution of a tower, from one pixel to as many as it was given or less."""

    channels: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    pad: bool = True


_ROW, _COLUMN, _SQUARE = (1, 7), (7, 1), (3, 3)


def _conv(x: relax.Expr, name: str, step: _Step) -> Any:
    """Convolve, normalize, and drop what is negative."""
    height, width = step.kernel
    x = layers.conv2d(
        x,
        name=f"{name}_conv1",
        channels=step.channels,
        kernel_size=step.kernel,
        strides=(step.stride, step.stride),
        # What makes the picture smaller does so without padding.
        padding=(height // 2, width // 2) if step.pad and step.stride == 1 else (0, 0),
    )
    x = layers.batch_norm_infer(x, name=f"{name}_bn", epsilon=2e-5, scale=False)
    return function("nn.relu")(x)


def _tower(x: relax.Expr, name: str, steps: Iterable[_Step], start: int = 0) -> Any:
    """Convolve step by step."""
    for number, step in enumerate(steps, start):
        x = _conv(x, f"{name}_{number}" if number else name, step)
    return x


def _pool(x: relax.Expr, kind: str, size: int = 3, stride: int = 1, pad: int = 0) -> Any:
    extra = {"count_include_pad": True} if kind == "avg" else {}
    return function(f"nn.{kind}_pool2d")(
        x, pool_size=(size, size), strides=(stride, stride), padding=(pad, pad), **extra
    )


def _side_by_side(parts: Sequence[relax.Expr]) -> Any:
    return function("concatenate")(tuple(parts), axis=1)


def _same(x: relax.Expr, name: str, towers: Sequence[Sequence[_Step]], proj: int) -> Any:
    """Put towers side by side, and one behind a mean; the picture keeps its size."""
    names = (f"{name}_conv", f"{name}_tower_conv", f"{name}_tower_1_conv")
    parts = [_tower(x, tower, steps) for tower, steps in zip(names, towers, strict=True)]
    last = _conv(_pool(x, "avg", pad=1), f"{name}_tower_2_conv", _Step(proj))
    return _side_by_side([*parts, last])


def _smaller(x: relax.Expr, towers: dict[str, Sequence[_Step]]) -> Any:
    """Put towers and the largest values side by side; the picture gets half its size."""
    parts = [_tower(x, tower, steps) for tower, steps in towers.items()]
    return _side_by_side([*parts, _pool(x, "max", stride=2)])


def _wide(x: relax.Expr, name: str, kind: str) -> Any:
    """Put towers that end in a row and in a column side by side."""
    parts = [_conv(x, f"{name}_conv", _Step(320))]
    for tower, steps in (
        (f"{name}_tower", [_Step(384)]),
        (f"{name}_tower_1", [_Step(448), _Step(384, _SQUARE)]),
    ):
        y = _tower(x, f"{tower}_conv", steps)
        parts.append(_conv(y, f"{tower}_mixed_conv", _Step(384, (1, 3))))
        parts.append(_conv(y, f"{tower}_mixed_conv_1", _Step(384, (3, 1))))
    parts.append(_conv(_pool(x, kind, pad=1), f"{name}_tower_2_conv", _Step(192)))
    return _side_by_side(parts)


def get_net(
    batch_size: int, num_classes: int, image_shape: tuple[int, ...], dtype: str
) -> relax.Function:
    """Make the network.

    Parameters
    ----------
    batch_size, num_classes : int
        Pictures in a batch, and classes.
    image_shape : tuple of int
        One picture's shape: channels, height, width; the last two about 299.
    dtype : str
        Of everything.
    """
    x: Any = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    stem = (_Step(32, _SQUARE, stride=2), _Step(32, _SQUARE, pad=False), _Step(64, _SQUARE))
    x = _pool(_tower(x, "conv", stem), "max", stride=2)
    x = _tower(x, "conv", (_Step(80), _Step(192, _SQUARE, pad=False)), start=3)
    x = _pool(x, "max", stride=2)
    doubled = [_Step(64), _Step(96, _SQUARE), _Step(96, _SQUARE)]
    for name, proj in (("mixed", 32), ("mixed_1", 64), ("mixed_2", 64)):
        x = _same(x, name, [[_Step(64)], [_Step(48), _Step(64, (5, 5))], doubled], proj)
    x = _smaller(
        x,
        {
            "mixed_3_conv": [_Step(384, _SQUARE, stride=2)],
            "mixed_3_tower_conv": [*doubled[:2], _Step(96, _SQUARE, stride=2)],
        },
    )
    for name, inner in (("mixed_4", 128), ("mixed_5", 160), ("mixed_6", 160), ("mixed_7", 192)):
        once = [_Step(inner), _Step(inner, _ROW), _Step(192, _COLUMN)]
        twice = [_Step(inner, kernel) for kernel in ((1, 1), _COLUMN, _ROW, _COLUMN)]
        x = _same(x, name, [[_Step(192)], once, [*twice, _Step(192, _ROW)]], 192)
    rows = [_Step(192), _Step(192, _ROW), _Step(192, _COLUMN)]
    x = _smaller(
        x,
        {
            "mixed_8_tower_conv": [_Step(192), _Step(320, _SQUARE, stride=2)],
            "mixed_8_tower_1_conv": [*rows, _Step(192, _SQUARE, stride=2)],
        },
    )
    x = _wide(_wide(x, "mixed_9", "avg"), "mixed_10", "max")
    x = function("nn.batch_flatten")(_pool(x, "avg", size=8))
    # Relay's name of the bias is that of another layer.
    x = layers.dense_add_bias(x, bias=var("fc2_bias"), units=num_classes, name="fc1")
    x = function("nn.softmax")(x)
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 299, 299),
    dtype: str = "float32",
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make the network's module, and values for its parameters; see `get_net`."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))
