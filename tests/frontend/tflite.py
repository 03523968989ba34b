"""A small TensorFlow Lite model."""

from __future__ import annotations

import numpy as np

from tests.oracles.models import array
from tvmlab.models.tflite_form import Content, Quantized, Step, write

__all__ = ["Content", "Quantized", "Step", "convolutional", "write"]


def convolutional(pooling: int | None = None) -> bytes:
    """A convolution with bias and ReLU, then average pooling: [1, 8, 8, 2] to [1, 4, 4, 3].

    `pooling` is another operator's code to put in the place of the pooling's.
    """
    import tflite

    operator = tflite.BuiltinOperator
    strides = {"Padding": tflite.Padding.SAME, "StrideH": 1, "StrideW": 1}
    relu = {"FusedActivationFunction": tflite.ActivationFunctionType.RELU}
    window = {"FilterHeight": 2, "FilterWidth": 2, "StrideH": 2, "StrideW": 2}
    tensors: dict[str, np.ndarray | tuple[int, ...]] = {
        "x": (1, 8, 8, 2),
        "weight": array(3, 3, 3, 2),
        "bias": array(3),
        "convolved": (1, 8, 8, 3),
        "y": (1, 4, 4, 3),
    }
    code = operator.AVERAGE_POOL_2D if pooling is None else pooling
    return write(
        tensors,
        [
            Step(operator.CONV_2D, [0, 1, 2], [3], "Conv2DOptions", {**strides, **relu}),
            Step(code, [3], [4], "Pool2DOptions", {"Padding": tflite.Padding.VALID, **window}),
        ],
    )
