"""Where an array differs from the one that was asked for: its shape, its type, its values."""

from __future__ import annotations

import numpy as np

from .verdict import NotYet, of_type

__all__ = ["same_shape", "same_values"]


def same_shape(found: object, wanted: tuple[int, ...], name: str) -> np.ndarray:
    """Take an array of numbers, of a certain shape, from a learner.

    Parameters
    ----------
    found : object
        What the learner made.
    wanted : tuple of int
        The shape that it should have.
    name : str
        What the learner calls it.

    Returns
    -------
    np.ndarray
        `found`, of the shape `wanted`, of integers, floats or truth values.

    Raises
    ------
    NotYet
        It is no array of numbers, or has another shape; says in which way it differs.
    """
    array = of_type(found, np.ndarray, name, "a NumPy array")
    if array.dtype.kind not in "biuf":
        raise NotYet(f"{name} holds values of dtype {array.dtype}, expected numbers")
    if array.shape == wanted:
        return array
    what = f"{name} has the shape {array.shape}, expected {wanted}"
    if array.ndim != len(wanted):
        why = f"{array.ndim} axes for {len(wanted)}"
    elif sorted(array.shape) == sorted(wanted):
        why = "its axes stand in another order"
    else:
        pairs = enumerate(zip(array.shape, wanted, strict=True))
        axis, (has, needs) = next((at, pair) for at, pair in pairs if pair[0] != pair[1])
        why = f"axis {axis} is {abs(has - needs)} too {'long' if has > needs else 'short'}"
    raise NotYet(f"{what}: {why}")


def same_values(
    found: np.ndarray, wanted: np.ndarray, name: str, *, tolerance: float = 0.0
) -> None:
    """Compare a learner's array with the one that was asked for, value by value.

    Parameters
    ----------
    found, wanted : np.ndarray
        Of the same shape, of integers or floats.
    name : str
        What the learner calls `found`.
    tolerance : float, optional
        How far a value may be off, in the values' own unit.

    Raises
    ------
    NotYet
        Shapes or values differ; says how many values, and shows the first.
    """
    same_shape(found, wanted.shape, name)
    off = np.abs(found.astype("float64") - wanted.astype("float64"))
    wrong = ~(off <= tolerance)  # Not a number is wrong, too.
    if not wrong.any():
        return
    place = tuple(int(index) for index in np.argwhere(wrong)[0])
    at = f", at [{', '.join(map(str, place))}]," if place else ""
    raise NotYet(
        f"{wrong.sum()} of {wrong.size} values of {name} are wrong; "
        f"the first{at} is {found[place]:.6g}, expected {wanted[place]:.6g}"
    )
