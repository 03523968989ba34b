"""Which values of a region share their bytes, and from when until when they are needed."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..isa import Dtype
from ..layers import Layer, Region, Value, View
from .work import Place

__all__ = ["Storage", "copied", "order", "storages"]


@dataclass
class Storage:
    """Bytes of one or more values: a view has the bytes of what it views.

    Attributes
    ----------
    value : Value
        The first of the values.
    made : int
        The number of the layer that makes it; -1 for an input of the region.
    read : list of int
        Numbers of the layers that read it.
    source : int or None
        Which input of the region it is.
    results : list of int
        Which outputs of the region it is.
    copied : bool
        Whether a view copies from it or to it: then it lies in DRAM.
    """

    value: Value
    made: int
    read: list[int] = field(default_factory=list)
    source: int | None = None
    results: list[int] = field(default_factory=list)
    copied: bool = False

    @property
    def dtype(self) -> Dtype:
        """The dtype of its numbers."""
        return self.value.dtype

    @property
    def nbytes(self) -> int:
        """Its size."""
        n, h, w, c = self.value.nhwc
        return n * h * w * c * self.dtype.bytes


def order(value: Value) -> Place:
    """Give the order of a value's tensor, as inputs and outputs of a region lie in DRAM.

    Where there is one channel or one pixel, both orders are the same one.
    """
    _, h, w, c = value.nhwc
    return Place.NCHW if value.layout == "NCHW" and c > 1 and h * w > 1 else Place.NHWC


def copied(layer: Layer, values: dict[str, Value]) -> bool:
    """Say whether a view has other bytes than what it views, with the channels inmost in both."""
    source, out = values[layer.inputs[0]], values[layer.output]
    orders = {order(source), order(out)}
    if orders == {Place.NCHW}:
        return (source.nhwc[0], source.nhwc[3]) != (out.nhwc[0], out.nhwc[3])
    return orders != {Place.NHWC}


def storages(region: Region) -> dict[str, Storage]:
    """Give the bytes of every value.

    Parameters
    ----------
    region : Region
        The region.

    Returns
    -------
    dict of str to Storage
        By the value's name; a view's is that of what it views, unless it has to be copied.
    """
    found: dict[str, Storage] = {}
    for i, name in enumerate(region.inputs):
        found[name] = Storage(region.values[name], -1, source=i)
    for number, layer in enumerate(region.layers):
        view = isinstance(layer, View)
        if view and not copied(layer, region.values):
            found[layer.output] = found[layer.inputs[0]]
            continue
        for name in layer.inputs:
            found[name].read.append(number)
            found[name].copied |= view
        found[layer.output] = Storage(region.values[layer.output], number, copied=view)
    for i, name in enumerate(region.outputs):
        found[name].results.append(i)
    return found
