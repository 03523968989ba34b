"""The cost of a network's layers: the sizes of their pictures, and their arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from .architecture import Architecture, Layer
from .mobilenet import MOBILENET
from .resnet import DIGITS, RESNET18, RESNET50

__all__ = ["ARCHITECTURES", "LayerCost", "layer_costs"]

#: The networks of the workbook by their names.
ARCHITECTURES: dict[str, Architecture] = {
    spec.name: spec for spec in (RESNET50, RESNET18, MOBILENET, DIGITS)
}


@dataclass(frozen=True)
class LayerCost:
    """One layer with its cost per picture.

    Attributes
    ----------
    layer : Layer
        The layer.
    in_size, out_size : tuple of int
        Height and width of what it reads and of what it writes.
    flops : int
        Twice the multiplications of a convolution or a dense layer, those with the zeros of the
        padding included; 0 for every other layer.
    """

    layer: Layer
    in_size: tuple[int, int]
    out_size: tuple[int, int]
    flops: int


def layer_costs(spec: Architecture) -> tuple[LayerCost, ...]:
    """List the cost of every layer of a network, in the order of `spec.layers()`."""
    sizes = {"data": spec.image[1:]}
    costs = []
    for layer in spec.layers():
        before = height, width = sizes[layer.inputs[0]]
        if layer.op in ("conv", "max_pool"):
            reach = 2 * layer.padding - layer.kernel
            height, width = ((size + reach) // layer.stride + 1 for size in before)
        elif layer.op in ("global_pool", "flatten", "dense"):
            height = width = 1
        sizes[layer.name] = (height, width)
        work = 0
        if layer.op in ("conv", "dense"):
            in_channels, out_channels = layer.channels
            taps = layer.kernel**2 * in_channels // layer.groups
            work = 2 * height * width * out_channels * taps
        costs.append(LayerCost(layer, before, (height, width), work))
    return tuple(costs)
