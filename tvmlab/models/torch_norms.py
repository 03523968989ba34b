"""Batch norms that no convolution takes in, as convolutions. Import it only where torch is."""

from __future__ import annotations

import copy
from collections import Counter

import torch
from torch import nn

from .torch_form import Network

__all__ = ["norms_as_convolutions"]


def norms_as_convolutions(network: Network) -> Network:
    """Write every batch norm that stands for itself as a depthwise 1x1 convolution.

    A batch norm that is the only reader of a convolution stays: whoever quantizes the network can
    fold it. Any other scales and shifts each channel, which a convolution of one number a
    channel and a bias does as well.

    Parameters
    ----------
    network : Network
        In evaluation mode; it is left unchanged.

    Returns
    -------
    Network
        The same function, to float32 rounding.
    """
    network = copy.deepcopy(network)
    kinds = {layer.name: layer.op for layer in network.layers}
    readers = Counter(name for layer in network.layers for name in layer.inputs)
    for layer in network.layers:
        source = layer.inputs[0]
        if layer.op != "batch_norm" or (kinds.get(source) == "conv" and readers[source] == 1):
            continue
        path, _, leaf = layer.name.rpartition(".")
        parent = network.get_submodule(path)
        setattr(parent, leaf, _convolution(parent.get_submodule(leaf)))
    return network


def _convolution(norm: nn.BatchNorm2d) -> nn.Conv2d:
    channels = norm.num_features
    made = nn.Conv2d(channels, channels, 1, groups=channels)
    with torch.no_grad():
        # In double precision: each number is rounded once.
        scale = norm.weight.double() / torch.sqrt(norm.running_var.double() + norm.eps)
        made.weight.copy_(scale.reshape(channels, 1, 1, 1))
        made.bias.copy_(norm.bias.double() - norm.running_mean.double() * scale)
    return made.eval()
