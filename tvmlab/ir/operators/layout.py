"""The row of ``layout_transform``.

The sources are `src/tir/ir/data_layout.cc` and `topi/transform.h` of TVM 0.18. A layout is a word:
a capital letter for an axis, and a number with the small letter for the inner part of one, as in
``NCHW16c``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tvm import ir, relax
from tvm.relax import op

from ...errors import RelayError
from ..table import Attribute, add_ours
from .common import Dims, Operands, Values, dims, dtype, made, need_dims, simplified

_WHAT = "layout_transform"
Part = tuple[str, int]
"""An axis and 0, or the small letter of an axis and the size of its inner part."""


def _parts(layout: str) -> list[Part]:
    found = re.findall(r"(\d*)([A-Za-z])", layout)
    if "".join(number + letter for number, letter in found) != layout:
        raise _error(f"there is no layout {layout!r}")
    parts = [(letter, int(number or 0)) for number, letter in found]
    letters = [letter for letter, _ in parts]
    for letter, size in parts:
        inner = letter.islower()
        if letters.count(letter) > 1 or inner != bool(size):
            raise _error(f"the layout {layout!r} is wrong about {letter}")
        if inner and letter.upper() not in letters:
            raise _error(f"the layout {layout!r} has a part of {letter.upper()} but no such axis")
    return parts


def _error(what: str) -> RelayError:
    return RelayError(what, where=_WHAT, fix="give layouts such as NCHW, NHWC or NCHW16c")


def _sizes(shape: Dims, a: Values) -> dict[str, Any]:
    """Give the size of each whole axis, by its capital letter."""
    source, target = _parts(a["src_layout"]), _parts(a["dst_layout"])
    axes = {letter for letter, _ in source if letter.isupper()}
    if axes != {letter for letter, _ in target if letter.isupper()}:
        raise _error(f"the layouts {a['src_layout']} and {a['dst_layout']} have other axes")
    if len(source) != len(shape):
        raise _error(f"the data has {len(shape)} axes, the layout {a['src_layout']} another number")
    sizes: dict[str, Any] = dict.fromkeys(axes, 1)
    for (letter, inner), size in zip(source, shape, strict=True):
        if inner and size != inner:
            raise _error(f"the part {inner}{letter} of {a['src_layout']} has size {size}")
        sizes[letter.upper()] = sizes[letter.upper()] * size
    for letter, inner in target:
        whole = sizes[letter.upper()]
        if inner and not (isinstance(whole, int) and whole % inner == 0):
            # Relay pads such an axis with zeros, which no reshape does.
            raise _error(f"axis {letter.upper()} of size {whole} has no parts of {inner}")
    return {letter: simplified(size) for letter, size in sizes.items()}


def _split(sizes: dict[str, Any], parts: Sequence[Part]) -> list[Any]:
    """Give the sizes that parts have, in their order."""
    inner = {letter.upper(): size for letter, size in parts if size}
    return [
        size or (sizes[letter] // inner[letter] if letter in inner else sizes[letter])
        for letter, size in parts
    ]


def _type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    shape = dims(types[0])
    target = _parts(a["dst_layout"])
    if shape is None:
        return made(None, dtype(types[0]), len(target))
    return made(_split(_sizes(shape, a), target), dtype(types[0]))


def _layout_transform(operands: Operands, a: Values) -> relax.Expr:
    data: Any = operands[0]
    sizes = _sizes(need_dims(data.ty, f"{_WHAT} data"), a)
    source, target = _parts(a["src_layout"]), _parts(a["dst_layout"])
    order = [letter for letter, _ in source if letter.isupper()]
    # Inner parts to behind their axes, axes whole, axes cut anew, then all into place.
    data = op.permute_dims(data, _behind(source, order))
    if len(source) != len(order):
        data = op.reshape(data, [sizes[letter] for letter in order])
    cut = [target[place] for place in _behind(target, order)]
    if len(target) != len(order):
        data = op.reshape(data, _split(sizes, cut))
    return op.permute_dims(data, [cut.index(part) for part in target])


def _behind(parts: Sequence[Part], order: Sequence[str]) -> list[int]:
    """List the places of parts so that each axis comes in `order`, its inner part behind it."""
    places = {letter: place for place, (letter, _) in enumerate(parts)}
    wanted = [letter for axis in order for letter in (axis, axis.lower())]
    return [places[letter] for letter in wanted if letter in places]


add_ours(
    _WHAT,
    ("data",),
    (Attribute("src_layout", "str"), Attribute("dst_layout", "str")),
    _type,
    _layout_transform,
)
