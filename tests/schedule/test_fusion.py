"""What comes before a convolution is computed in the copy of its input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm
from tvm import relax

import tvmlab


def build(
    shape: tuple[int, ...], *, kernel: int, stride: int, groups: int, shared: bool
) -> tuple[tvm.ir.IRModule, np.ndarray]:
    """Make relu(x * 2 + 1), a convolution of it, and if shared its sum with what was convolved."""
    rng = np.random.default_rng(0)
    channels = shape[3]
    weight = rng.standard_normal((channels, kernel, kernel, channels // groups), dtype=np.float32)
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            scaled = builder.emit(relax.op.multiply(x, relax.const(2.0, "float32")))
            moved = builder.emit(relax.op.add(scaled, relax.const(1.0, "float32")))
            y = builder.emit(relax.op.nn.relu(moved))
            conv = relax.op.nn.conv2d(
                y,
                relax.const(weight),
                strides=stride,
                padding=kernel // 2,
                groups=groups,
                data_layout="NHWC",
                kernel_layout="OHWI",
            )
            z = builder.emit(conv)
            out = builder.emit_output(relax.op.add(z, y) if shared else relax.op.nn.relu(z))
        builder.emit_func_output(out)
    return builder.get(), weight


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
    mod, weight = build(shape, kernel=kernel, stride=stride, groups=groups, shared=shared)
    run = tvmlab.compile(
        mod, schedule="epilogue"
    )  # all steps but Winograd's, which some targets take
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
