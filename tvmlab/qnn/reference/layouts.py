"""Arrays in another order of axes, named by letters."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir.checks import Array


def transposed(x: Array, layout: str, wanted: str, where: str) -> Array:
    """Bring an array from one layout to another.

    Parameters
    ----------
    x : numpy.ndarray
        One axis for each letter of `layout`.
    layout, wanted : str
        Orders of the same letters.
    where : str
        What to name in an error.

    Raises
    ------
    tvmlab.errors.ShapeError
        If the layout has other letters, or the array another number of axes.
    """
    x = np.asarray(x)
    if sorted(layout) != sorted(wanted) or x.ndim != len(wanted):
        raise ShapeError(
            f'shape {x.shape} in layout "{layout}" is not understood: '
            f"it has to be an order of {wanted}",
            where=where,
        )
    return x.transpose([layout.index(letter) for letter in wanted])


def arranged(x: Array, layout: str) -> Array:
    """Bring an array from NHWC to a layout.

    Raises
    ------
    tvmlab.errors.ShapeError
        If the layout is no order of NHWC.
    """
    return np.ascontiguousarray(transposed(x, "NHWC", layout, f'layout "{layout}"'))


def agree(call: str, name: str, given: Any, found: Any) -> None:
    """Insist that an attribute, if it is given, says what the weight's shape does.

    Raises
    ------
    tvmlab.errors.ShapeError
        If it says something else.
    """
    wanted = list(given) if isinstance(found, list) and given is not None else given
    if wanted is not None and wanted != found:
        raise ShapeError(
            f"{name} is {given}; the weight makes {found}", where=f"{call}, attribute {name}"
        )
