"""Where an image lies, and how a part of it is addressed and moved."""

from __future__ import annotations

from dataclasses import dataclass

from ..isa import Dtype, Load, Store
from .work import Place

__all__ = ["Box", "Image", "View"]


@dataclass(frozen=True)
class Box:
    """A part of an image: where it begins and its size, in rows, columns and channels."""

    y: int
    x: int
    c: int
    rows: int
    cols: int
    channels: int


@dataclass(frozen=True)
class View:
    """An address in SRAM, and the bytes from a row and from a pixel to the next."""

    address: int
    row: int
    pixel: int


@dataclass(frozen=True)
class Image:
    """A value of a region as images of one size, in SRAM, in DRAM, or in both.

    Attributes
    ----------
    height, width, channels : int
        The size of an image.
    dtype : Dtype
        Of its numbers.
    address : int or None
        Where it lies in SRAM, its channels inmost.
    tensor : int or None
        The tensor in DRAM.
    order : Place
        The order of that tensor.
    """

    height: int
    width: int
    channels: int
    dtype: Dtype
    address: int | None
    tensor: int | None
    order: Place

    def view(self, image: int, box: Box) -> View:
        """Address a part of the image that lies in SRAM."""
        assert self.address is not None
        pixel = self.channels * self.dtype.bytes
        row = self.width * pixel
        start = (image * self.height + box.y) * row + box.x * pixel + box.c * self.dtype.bytes
        return View(self.address + start, row, pixel)

    def packed(self, address: int, box: Box) -> View:
        """Address a buffer that holds a part and nothing else."""
        pixel = box.channels * self.dtype.bytes
        return View(address, box.cols * pixel, pixel)

    def load(self, layer: int, image: int, box: Box, view: View) -> Load:
        """Load a part from DRAM."""
        return Load(layer, *self._transfer(image, box, view))

    def store(self, layer: int, image: int, box: Box, view: View) -> Store:
        """Store a part to DRAM."""
        return Store(layer, *self._transfer(image, box, view))

    def _transfer(self, image: int, box: Box, view: View) -> tuple[int, ...]:
        assert self.tensor is not None
        each = self.dtype.bytes
        size = {"y": self.height, "x": self.width, "c": self.channels}
        first = {"y": box.y, "x": box.x, "c": box.c}
        count = {"y": box.rows, "x": box.cols, "c": box.channels}
        sram = {"y": view.row, "x": view.pixel, "c": each}
        axes = "cyx" if self.order is Place.NCHW else "yxc"
        stride, dram = each, {}
        for axis in reversed(axes):
            dram[axis] = stride
            stride *= size[axis]
        offset = image * stride + sum(first[axis] * dram[axis] for axis in axes)
        return (
            self.tensor,
            offset,
            view.address,
            each,
            1,
            *(count[axis] for axis in axes),
            0,
            *(dram[axis] for axis in axes),
            0,
            *(sram[axis] for axis in axes),
        )
