"""Seeded weights for any architecture: random, and the same bytes on every machine."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .architecture import Architecture, Layer, Parameters
from .seeds import normal, uniform

__all__ = ["seeded_parameters"]

# What a residual branch ends in is seeded this many times smaller than the trunk it is added to.
_BRANCH = 1 / 32

_Array = npt.NDArray[np.float32]


def seeded_parameters(spec: Architecture, seed: int, *, identity_norms: bool = False) -> Parameters:
    """Random parameters, the same bytes on every machine.

    Parameters
    ----------
    spec : Architecture
        The network.
    seed : int
        Another seed, another network.
    identity_norms : bool, optional
        True leaves batch norms the identity, as before training. False gives each one a scale, a
        shift, a mean and a variance of its own, so that a compiler that folds them wrongly is seen.

    Returns
    -------
    dict of str to ndarray
        float32 arrays with the names and shapes of `spec.parameters()`.

    Notes
    -----
    Convolutions have He's deviation, sqrt(2 / fan-in). Each filter is centred: what a ReLU hands on
    is positive, and a centred filter does not let that common offset grow from layer to layer until
    it drowns the picture. A depthwise filter stays as it is, since a centred one would see edges
    only; the norm behind it takes the offset away, as a trained one does. A batch norm's variance
    is the one expected at that place, so that activations stay of order one through all the layers;
    before a ReLU6 the scale is doubled, so that some values do reach six.

    What a residual branch ends in, a convolution or its batch norm, is 32 times smaller than that.
    Networks are trained from small branches, zero often, and what is trained keeps the trunk the
    larger part (Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 5.1; Zhang et al.,
    "Fixup Initialization", 2019; De and Smith, "Batch Normalization Biases Residual Blocks Towards
    the Identity Function", 2020). With branches as large as the trunk a network is chaotic: noise
    of 1e-3 in a picture grew 25 to 36 times on its way to the logits, and one rounding more or less
    in a quantized form made another result. `identity_norms` leaves branches large: the digits
    network was trained from that.
    """
    values: Parameters = {}
    layers = spec.layers()
    clipped = {layer.inputs[0] for layer in layers if layer.op == "relu6"}
    ends = set() if identity_norms else {layer.inputs[0] for layer in layers if layer.op == "add"}
    spread = {"data": 1.0}  # the variance expected at each layer's output
    offset: dict[str, _Array] = {}  # the mean expected there, where it is not zero
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
    """The mean that grouped filters make of a rectified input of a variance."""
    # The rectified normal variable's mean is 0.68 times its own deviation. The sums of nine small
    # numbers are exact in float64, and so the same in any order of addition.
    sums = weight.sum(axis=(1, 2, 3), dtype=np.float64)
    return np.asarray(0.68 * math.sqrt(before) * sums, np.float32)


def _norm(
    layer: Layer, before: float, source: np.random.PCG64, identity: bool, gain: float
) -> list[_Array]:
    """Scale, shift, mean and variance of one batch norm."""
    shape = (layer.channels[1],)
    ones, zeros = np.ones(shape, np.float32), np.zeros(shape, np.float32)
    if identity:
        return [ones, zeros, zeros.copy(), ones.copy()]
    scale = uniform(source, shape, 0.75 * gain, 1.25 * gain)
    shift = uniform(source, shape, -0.1, 0.1)
    if layer.name == "data_norm":  # Gluon's opening norm has neither
        scale, shift = ones, zeros
    around = 0.1 * math.sqrt(before)
    mean = uniform(source, shape, -around, around)
    return [scale, shift, mean, uniform(source, shape, 0.75 * before, 1.25 * before)]
