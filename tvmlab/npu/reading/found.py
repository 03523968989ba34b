"""What a composite turned out to be: a layer whose values have no names yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm import relax

from ..isa import Dtype
from ..layers import Layer, Value
from .scales import Refusal, tensor

#: Stands for the names of a layer's inputs and output until they are known.
INPUTS, OUTPUT = ("0", "1"), "out"


@dataclass(frozen=True)
class Found:
    """A layer, and the expressions that it reads and makes.

    Attributes
    ----------
    layer : Layer
        Its values are called `INPUTS` and `OUTPUT`.
    inputs : tuple of tvm.relax.Expr
        What it reads.
    output : tvm.relax.Expr
        What it makes.
    layout : str or None
        How its images lie, ``"NCHW"`` or ``"NHWC"``; None where it takes both.
    macs : int
        Its multiply-accumulates.
    """

    layer: Layer
    inputs: tuple[relax.Expr, ...]
    output: relax.Expr
    layout: str | None = None
    macs: int = 0

    def named(self, inputs: Sequence[str], output: str) -> Layer:
        """Give the layer with the names of its values."""
        return replace(self.layer, inputs=tuple(inputs), output=output)

    def values(self, layout: str) -> dict[str, Value]:
        """Describe what the layer reads and makes, by the names that it has for them."""
        pairs = zip((*INPUTS[: len(self.inputs)], OUTPUT), (*self.inputs, self.output), strict=True)
        return {name: value(name, expr, layout) for name, expr in pairs}


def value(name: str, expr: relax.Expr, layout: str) -> Value:
    """Describe a tensor.

    Raises
    ------
    Refusal
        If its dtype is none of the machine's, its shape is not known, or it has three or more than
        four dimensions, or none.
    """
    dtype, shape = tensor(expr, "a value")
    if dtype not in Dtype.__members__ or dtype == "int16":
        raise Refusal(f"a value is of {dtype}; the machine computes with int8, uint8 and int32")
    layouts = {1: "C", 2: "NC", 4: layout}
    if len(shape) not in layouts:
        raise Refusal(f"a value has {len(shape)} dimensions; the machine knows 1, 2 and 4")
    if 0 in shape:
        raise Refusal("a value is empty")
    return Value(name, Dtype[dtype], shape, layouts[len(shape)])
