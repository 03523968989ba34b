"""DCGAN's generator of pictures, as ``relay.testing.dcgan`` has it.

The paper is "Unsupervised Representation Learning with Deep Convolutional Generative Adversarial
Networks".
"""

from __future__ import annotations

from typing import Any

from tvm import ir, relax

from ...errors import RelayError
from ..analysis import free_vars
from ..expr import Function, var
from ..op import function
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload"]

_KERNEL_LAYOUTS = {"NCHW": "IOHW", "NHWC": "HWOI"}


def _enlarge(x: relax.Expr, name: str, channels: int, layout: str) -> Any:
    """Double height and width."""
    return layers.conv2d_transpose(
        x,
        name=f"{name}_deconv",
        channels=channels,
        kernel_size=(4, 4),
        strides=(2, 2),
        padding=(1, 1),
        output_padding=(0, 0),
        data_layout=layout,
        kernel_layout=_KERNEL_LAYOUTS[layout],
    )


def get_net(
    batch_size: int,
    random_len: int = 100,
    oshape: tuple[int, ...] = (3, 64, 64),
    ngf: int = 128,
    code: relax.Expr | None = None,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> relax.Function:
    """Make the network.

    Parameters
    ----------
    batch_size, random_len : int
        Pictures in a batch, and random numbers for each.
    oshape : tuple of int
        One picture's shape: channels, 64, 64.
    ngf : int
        Channels before the last layer.
    code : tvm.relax.Expr, optional
        The random numbers; left out, they are the input ``data``.
    layout : str
        ``"NCHW"`` or ``"NHWC"``; TVM itself lowers this convolution in the first only.
    dtype : str
        Of everything.

    Raises
    ------
    RelayError
        The picture has another size, or the layout is another.
    """
    if tuple(oshape[-2:]) != (64, 64):
        raise RelayError(
            "DCGAN makes pictures of 64 x 64",
            where=f"oshape={oshape}",
            fix="end the shape in 64, 64",
        )
    if layout not in _KERNEL_LAYOUTS:
        raise RelayError(
            f"there is no DCGAN in the layout {layout!r}",
            where="relay.testing.dcgan",
            fix="use 'NCHW' or 'NHWC'",
        )
    relu = function("nn.relu")
    x: Any = var("data", shape=(batch_size, random_len), dtype=dtype) if code is None else code
    x = relu(function("nn.dense")(x, var("dense_weight"), units=4 * 4 * ngf * 8))
    first = {"N": -1, "C": ngf * 8, "H": 4, "W": 4}
    x = function("reshape")(x, newshape=tuple(first[axis] for axis in layout))
    for name, channels in (("g2", ngf * 4), ("g3", ngf * 2), ("g4", ngf)):
        x = layers.batch_norm_infer(
            _enlarge(x, name, channels, layout),
            name=f"{name}_batch_norm",
            epsilon=1e-5 + 1e-12,
            scale=False,
            axis=layout.index("C"),
        )
        x = relu(x)
    x = function("tanh")(_enlarge(x, "g5", oshape[-3], layout))
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int,
    oshape: tuple[int, ...] = (3, 64, 64),
    ngf: int = 128,
    random_len: int = 100,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make the network's module, and values for its parameters; see `get_net`."""
    return create_workload(
        get_net(batch_size, random_len, oshape=oshape, ngf=ngf, layout=layout, dtype=dtype)
    )
