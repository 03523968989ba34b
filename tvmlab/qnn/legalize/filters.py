"""The weights of a convolution, as its kernel reads them: by output channel, input, row, column."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx

from ...ir import windows
from .operands import Given
from .sums import Sums

__all__ = ["Filters"]

Array = npt.NDArray[Any]


class Filters:
    """Weights in any layout, of any groups, less their zero points.

    Parameters
    ----------
    given : Given
        A call of `qnn.conv2d` or `qnn.conv2d_transpose`.
    inputs : int or tvm.tirx.PrimExpr
        Channels of the data.
    made : int
        Output channels.

    Attributes
    ----------
    operand : tvm.relax.Expr
        What the kernel is given: the weight, or a constant made of it.
    rows : list of Row
        What it has to read besides.
    sums : Sums or None
        Where everything is constant: what the zero points add.
    inner, taps : int, list of int
        Inputs that each output channel sums; sizes of the kernel.
    kind : str
        The dtype of the sums.
    """

    def __init__(self, given: Given, inputs: Any, made: int) -> None:
        a = given.attributes
        self._layout, self._turned = a["kernel_layout"], given.name.endswith("transpose")
        sizes = dict(zip(self._layout, given.shape("weight"), strict=True))
        self._sizes, self._groups = sizes, a["groups"]
        self._deep = not self._turned and windows.depthwise(inputs, sizes["O"], self._groups)
        self.kind = "int64" if a["out_dtype"] == "int64" else "int32"
        self.each, self.taps = made // self._groups, [sizes["H"], sizes["W"]]
        self.inner = 1 if self._deep else sizes["I"]
        if self._turned:
            self.inner = sizes["I"] // self._groups
        kernel = given.array("weight")
        plain = None if kernel is None else self._plain(kernel)
        self.sums = Sums.of(given, "data", "weight", plain)
        if self.sums is None:
            self.operand = given["weight"]
            self._zero = given.zero_row("kernel_zero_point", given.dtype("weight"), made)
            self.rows = [self._zero]
            return
        # The inputs go last where those of the data do.
        self._layout = "OHWI" if a["data_layout"].endswith("C") else "OIHW"
        order = ["OIHW".index(letter) for letter in self._layout]
        kept = np.ascontiguousarray(self.sums.weight.transpose(order))
        self.operand, self.rows = relax.const(kept, str(kept.dtype)), []

    def _plain(self, kernel: Array) -> Array:
        """Bring constant weights to ``[outputs, inputs of a group, kh, kw]``."""
        plain = kernel.transpose([self._layout.index(letter) for letter in "OIHW"])
        if self._turned:
            whole = plain.reshape(len(plain), self._groups, self.inner, *plain.shape[2:])
            return whole.swapaxes(0, 1).reshape(-1, self.inner, *plain.shape[2:])
        return plain.reshape(-1, 1, *plain.shape[2:]) if self._deep else plain

    def read(self, weight: te.Tensor, o: Any, i: Any, y: Any, x: Any) -> tirx.PrimExpr:
        """Give a weight less its zero point.

        Parameters
        ----------
        weight : te.Tensor
            The `operand`.
        o, i, y, x
            The output channel, the input of its group, the row, the column.
        """
        at = {"O": o, "I": i, "H": y, "W": x}
        if self.sums is None and self._turned:
            at |= {"O": o % self.each, "I": o // self.each * self.inner + i}
        elif self.sums is None and self._deep:
            at |= {"O": o // self._sizes["I"], "I": o % self._sizes["I"]}
        found = weight(*(at[letter] for letter in self._layout)).astype(self.kind)
        return found if self.sums is not None else found - self._zero.read(o).astype(self.kind)
