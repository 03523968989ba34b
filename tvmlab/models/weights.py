"""Seeded weights for any architecture: random, and the same bytes on every machine.

NumPy guarantees a bit generator's raw output, but not the results of
`Generator`, and a normal sampler calls the machine's own `log`. Therefore the numbers here are
computed from raw bits with integer arithmetic and one rounding only.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .networks import Architecture, Layer, Parameters

__all__ = ["normal", "permutation", "seeded_parameters", "uniform"]

# The last layer of a residual branch is scaled down by this factor, relative to the trunk.
_BRANCH = 1 / 32

# The standard deviation of the sum of four uniform numbers from 0 ... 65535.
_STD_OF_FOUR = math.sqrt(4 * (65536**2 - 1) / 12)

_Array = npt.NDArray[np.float32]


def seeded_parameters(spec: Architecture, seed: int, *, identity_norms: bool = False) -> Parameters:
    """Return random parameters with the names of `spec.parameters()`, the same on every machine.

    With `identity_norms`, batch norms are the identity and residual branches are large, as before
    training. By default, each batch norm has its own scale, shift, mean and variance, so that tests
    detect a compiler that folds them wrongly. The variance is the expected variance of its input,
    so that activations stay of order one; before a ReLU6, the scale is doubled.

    Convolutions have He's standard deviation, sqrt(2 / fan-in). Each filter but a depthwise one is
    centred, because the positive offset of a ReLU's results would grow from layer to layer. The
    last layer of a residual branch is 32 times smaller, as in trained networks. With branches as
    large as the trunk, noise in an image would grow 25 to 36 times on its way to the logits.
    """
    values: Parameters = {}
    layers = spec.layers
    clipped = {layer.inputs[0] for layer in layers if layer.op == "relu6"}
    ends = set() if identity_norms else {layer.inputs[0] for layer in layers if layer.op == "add"}
    spread = {"data": 1.0}  # the variance expected at each layer's output
    offset: dict[str, _Array] = {}  # the expected mean there, if it is not zero
    for number, layer in enumerate(layers):
        shapes = layer.parameters()
        before = sum(spread[name] for name in layer.inputs)
        source = np.random.PCG64([seed, number])
        arrays: list[_Array] = []
        if layer.op == "batch_norm":
            gain = 2.0 if layer.name in clipped else 1.0
            gain = _BRANCH if layer.name in ends else gain
            spread[layer.name] = gain**2
            arrays = _norm(layer, before, source, identity_norms, gain)
            if layer.inputs[0] in offset and not identity_norms:
                arrays[2] += offset[layer.inputs[0]]
        elif layer.op in ("conv", "dense"):
            weight, *rest = shapes.values()
            small = _BRANCH if layer.name in ends else 1.0
            std = small * math.sqrt(2.0 / math.prod(weight[1:]))
            centred = layer.channels[0] > 3 and layer.groups == 1
            arrays = [normal(source, weight, std, centred=centred)]
            arrays += [np.zeros(shape, np.float32) for shape in rest]
            spread[layer.name] = 2.0 * before * small**2
            if layer.groups > 1:
                offset[layer.name] = _offset(arrays[0], before)
        else:
            # A rectified normal variable has the variance 1/2 - 1/(2 pi). The largest of nine has
            # about six times that as its mean square.
            factor = {"relu": 0.34, "relu6": 0.34, "max_pool": 6.0}.get(layer.op, 1.0)
            spread[layer.name] = factor * before
        values.update(zip(shapes, arrays, strict=True))
    return values


def _offset(weight: _Array, before: float) -> _Array:
    # The rectified normal variable's mean is 0.68 times its own deviation. The sums of nine small
    # numbers are exact in float64, and therefore the same in any order of addition.
    sums = weight.sum(axis=(1, 2, 3), dtype=np.float64)
    return np.asarray(0.68 * math.sqrt(before) * sums, np.float32)


def _norm(
    layer: Layer, before: float, source: np.random.PCG64, identity: bool, gain: float
) -> list[_Array]:
    shape = (layer.channels[1],)
    ones, zeros = np.ones(shape, np.float32), np.zeros(shape, np.float32)
    if identity:
        return [ones, zeros, zeros.copy(), ones.copy()]
    scale = uniform(source, shape, 0.75 * gain, 1.25 * gain)
    shift = uniform(source, shape, -0.1, 0.1)
    if layer.name == "data_norm":  # Gluon's first norm has neither
        scale, shift = ones, zeros
    around = 0.1 * math.sqrt(before)
    mean = uniform(source, shape, -around, around)
    return [scale, shift, mean, uniform(source, shape, 0.75 * before, 1.25 * before)]


def normal(source: np.random.PCG64, shape: tuple[int, ...], std: float, *, centred: bool) -> _Array:
    """Return nearly normal float32 numbers around zero, each the sum of four uniform numbers.

    `centred` makes the sum over each ``array[i]`` zero, up to rounding.
    """
    bits = source.random_raw(math.prod(shape))
    # Each 64 bits contain four numbers; two of them at a time are added in the halves of a word.
    pairs = np.uint64(0x0000FFFF0000FFFF)
    sums = ((bits >> np.uint64(16)) & pairs) + (bits & pairs)
    halves = sums.view(np.uint32).reshape(shape[0], -1, 2)
    numbers = (halves[..., 0] + halves[..., 1]).astype(np.int32)
    if centred:
        # The integer sum is exact in any order of addition; a float sum would not be.
        total = numbers.sum(axis=1, keepdims=True, dtype=np.int64)
        numbers -= (total // numbers.shape[1]).astype(np.int32)
    else:
        numbers -= 2 * 65535
    factor = np.float32(std / _STD_OF_FOUR)
    return (numbers.astype(np.float32) * factor).reshape(shape)


def uniform(source: np.random.PCG64, shape: tuple[int, ...], low: float, high: float) -> _Array:
    """Return uniform numbers between two bounds."""
    bits = source.random_raw(math.prod(shape)) >> np.uint64(11)
    return (low + (high - low) * (bits * 2.0**-53)).astype(np.float32).reshape(shape)


def permutation(source: np.random.PCG64, count: int) -> npt.NDArray[np.int64]:
    """Return the numbers 0 to `count - 1` in random order."""
    return np.argsort(source.random_raw(count), kind="stable").astype(np.int64)
