"""The row of ``layout_transform``.

The sources are `src/tir/ir/data_layout.cc` and `topi/transform.h` of TVM 0.18. A layout is a word:
a capital letter for an axis, and a number with the small letter for the inner part of one, as in
``NCHW16c``.
"""

from __future__ import annotations

import re
from typing import Any

from tvm import relax, s_tir, tirx
from tvm.relax import op

from ...errors import RelayError
from ..table import LAYOUT, stands_for
from ..types import plain
from .common import need_dims


def _error(what: str) -> RelayError:
    return RelayError(
        what, where="layout_transform", fix="give layouts such as NCHW, NHWC or NCHW16c"
    )


def _check_parts(shape: list[Any], source: str, target: str) -> None:
    """Refuse sizes that are no multiple of a part: Relay pads such an axis with zeros."""
    sizes = dict(zip(re.findall("[A-Za-z]", source), shape, strict=True))
    for number, letter in re.findall("([0-9]+)([a-z])", source):
        if sizes[letter] != int(number):
            raise _error(f"the part {number}{letter} of {source} has size {sizes[letter]}")
    for number, letter in re.findall("([0-9]+)([a-z])", target):
        whole = plain(sizes[letter.upper()] * sizes.get(letter, 1))
        if not isinstance(whole, int) or whole % int(number):
            raise _error(f"axis {letter.upper()} of size {whole} has no parts of {number}")


@stands_for("layout_transform", "data", "src_layout:str dst_layout:str")
def _layout_transform(data: relax.Expr, src_layout: str, dst_layout: str) -> relax.Expr:
    shape = need_dims(data.ty, "layout_transform data")
    for layout in (src_layout, dst_layout):
        letters = re.findall("[A-Za-z]", layout)
        if not LAYOUT.fullmatch(layout) or len(set(letters)) < len(letters):
            raise _error(f"there is no layout {layout!r}")
    ndim = len(re.findall("[A-Za-z]", src_layout))
    if len(shape) != ndim:
        raise _error(f"the data has {len(shape)} axes, the layout {src_layout} has {ndim}")
    try:
        both = s_tir.sbijective_layout(src_layout, dst_layout)
    except RuntimeError as error:  # such as a part without its axis
        raise _error(f"there is no layout {src_layout!r} or {dst_layout!r}") from error
    if both is None:
        raise _error(f"the layouts {src_layout} and {dst_layout} have other axes")
    _check_parts(shape, src_layout, dst_layout)
    if src_layout.isalpha() and dst_layout.isalpha():
        return op.permute_dims(data, [src_layout.index(axis) for axis in dst_layout])
    index_map = tirx.IndexMap.from_func(
        lambda *index: list(both.forward_index(list(index))), ndim=ndim, index_dtype="int64"
    )
    return op.layout_transform(data, index_map)
