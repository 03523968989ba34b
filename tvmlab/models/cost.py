"""What a network costs: the sizes of its layers' pictures, and the arithmetic of each."""

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
    """One layer with what it costs on one picture.

    Attributes
    ----------
    layer : Layer
        The layer.
    in_size, out_size : tuple of int
        Height and width of what it reads and of what it writes.
    flops : int
        Floating-point operations on one picture: twice the multiplications of a convolution or a
        dense layer, those with the zeros of the padding included; 0 for every other layer.
    """

    layer: Layer
    in_size: tuple[int, int]
    out_size: tuple[int, int]
    flops: int


def layer_costs(spec: Architecture) -> tuple[LayerCost, ...]:
    """List every layer of a network with its sizes and its arithmetic.

    Parameters
    ----------
    spec : Architecture
        The network; its `image` gives the size of the picture.

    Returns
    -------
    tuple of LayerCost
        One a layer, in the order of `spec.layers()`.
    """
    sizes = {"data": spec.image[1:]}
    costs = []
    for layer in spec.layers():
        before = sizes[layer.inputs[0]]
        height, width = before
        match layer.op:
            case "conv" | "max_pool":
                reach = 2 * layer.padding - layer.kernel
                height = (height + reach) // layer.stride + 1
                width = (width + reach) // layer.stride + 1
            case "global_pool" | "flatten" | "dense":
                height, width = 1, 1
        sizes[layer.name] = (height, width)
        work = 0
        if layer.op in ("conv", "dense"):
            in_channels, out_channels = layer.channels
            taps = layer.kernel**2 * in_channels // layer.groups
            work = 2 * height * width * out_channels * taps
        costs.append(LayerCost(layer, before, (height, width), work))
    return tuple(costs)
