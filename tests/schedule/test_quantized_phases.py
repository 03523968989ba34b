"""Quantized transposed convolutions by phases, against the reference of the operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

import tvmlab
from tests.schedule.dot import constant, full
from tvmlab import qnn
from tvmlab.qnn import arithmetic

#: Taps, stride, padding and output padding; the zero point of the weights; scales by channel.
CASES = [
    (2, 2, 0, 0, 0, True),
    (3, 2, 1, 1, 0, True),
    (4, 2, 1, 0, 7, False),
    (3, 1, 1, 0, 0, True),
    (3, 2, 0, 0, 0, False),
    (3, 2, 0, 0, 5, False),  # a missing tap would be the zero point: not by phases
]


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("taps", "step", "pad", "more", "point", "by_channel"), CASES)
def test_transposed_convolutions_are_exact(
    taps: int, step: int, pad: int, more: int, point: int, by_channel: bool, biased: bool
) -> None:
    shape, weight = (1, 16, 9, 7), full("int8", 16, 24, taps, taps, seed=1)
    scale = np.linspace(0.5, 1.5, 24 if by_channel else 1, dtype="float32")
    scale = scale if by_channel else scale[0]
    bias = full("int16", 1, 24, 1, 1).astype("int32") if biased else np.zeros((), "int32")
    how: dict[str, Any] = {"strides": [step] * 2, "padding": [pad] * 4}
    how["output_padding"] = [more] * 2
    given = constant(120, "int32"), constant(point, "int32"), constant(0.1, "float32")
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, "uint8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            call = qnn.op.conv2d_transpose(
                x, relax.const(weight), *given, relax.const(scale), **how
            )
            sums = builder.emit(call)
            if biased:
                sums = builder.emit(relax.op.add(sums, relax.const(bias)))
            points = relax.const(scale / 100), constant(0, "int32"), constant(9.5, "float32")
            out = {"axis": 1, "rounding": "ONNX", "out_dtype": "uint8"}
            made = qnn.op.requantize(sums, *points, constant(100, "int32"), **out)
            result = builder.emit_output(made)
        builder.emit_func_output(result)
    run, data = tvmlab.compile(builder.get()), full("uint8", *shape)
    wanted = arithmetic.conv2d_transpose(data, weight, 120, point, 0.1, scale, **how) + bias
    wanted = arithmetic.requantize(wanted.astype("int32"), scale / 100, 0, 9.5, 100, **out)
    np.testing.assert_array_equal(run(data), wanted)
    rules = {kernel.rule for kernel in run.summary().kernels if "conv2d" in kernel.name}
    assert rules == {"Contraction" if not point or taps % step == 0 else "Reduction"}
