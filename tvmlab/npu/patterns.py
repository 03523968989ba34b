"""The table of patterns that the machine computes as one layer, for Relay's `MergeComposite`.

Entries are tried in order, so patterns of int32 sums follow those that requantize the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from ..errors import InputError, TvmlabError
from ..ir.patterns import DFPattern, is_constant, is_op, wildcard
from ..qnn import rows as quantized
from .codegen.tiling import fits
from .config import COMPILER, Config, machine
from .reading import CONVERT, check, find, kind

assert quantized, "importing it fills the table with the quantized operators"

Entry = tuple[str, DFPattern, Callable[[relax.Expr], Any]]


@dataclass(frozen=True)
class Check:
    """A predicate of the pattern table: whether a machine takes a match, and why it does not.

    A `layout` refuses images in the other order, a `kind` such as ``"conv2d"`` other layers.
    """

    config: Config
    layout: str | None = None
    kind: str = ""

    def __call__(self, expr: relax.Expr) -> bool:
        """Return whether the machine takes the graph that matched."""
        return self.reason(expr) is None

    def reason(self, expr: relax.Expr) -> str | None:
        """Return why the machine does not take nested calls that matched; None if it does."""
        if self.kind and kind(expr) != self.kind:
            return f"it is no {self.kind}"
        try:
            match = find(expr)
            same = not self.layout or match.layout in (None, self.layout)
            orders = f"its images are {match.layout}, most of the module's {self.layout}"
            check(same, orders, CONVERT)
            values = match.values(self.layout or match.layout or "NCHW")
            return fits(match.layer, values, self.config)
        except TvmlabError as error:  # `Unsupported`, or the reference's: an invalid scale
            return f"{error.what}; {error.fix}" if error.fix else error.what


def pattern_table(config: Config | None = None, layout: str | None = None) -> list[Entry]:
    """List the patterns that the machine computes as one layer: ``(name, pattern, check)``.

    Parameters
    ----------
    config : Config, optional
        The machine, the default one if left out. Regions that you cut with this table run on the
        default machine; `partition` writes the sizes of another machine into them.
    layout : str, optional
        ``"NCHW"`` or ``"NHWC"``, to refuse images in the other order; both are taken if left out.

    Raises
    ------
    tvmlab.errors.InputError
        `config` is no `Config`, or the layout is another one.
    """
    if layout not in (None, "NCHW", "NHWC"):
        raise InputError(
            f"layout is {layout!r}; it is NCHW, NHWC or left out", where="npu.pattern_table"
        )
    sizes = machine(config, "npu.pattern_table")
    rows: Sequence[tuple[str, DFPattern]] = (
        ("depthwise_conv2d", _requantized(_convolution())),
        ("conv2d", _requantized(_convolution())),
        ("dense", _requantized(_dense())),
        ("add", _clipped(is_op("qnn.add")(wildcard(), wildcard(), *_constants(6)))),
        ("add", _requantized(is_op("add")(_side(), _side()))),
        ("max_pool2d", is_op("nn.max_pool2d")(wildcard())),
        ("avg_pool2d", is_op("qnn.avg_pool2d")(wildcard(), *_constants(4))),
        ("mean", _requantized(_total())),
        ("reshape", is_op("reshape")(wildcard())),
        ("depthwise_conv2d", _clipped(_convolution())),
        ("conv2d", _clipped(_convolution())),
        ("dense", _clipped(_dense())),
        ("mean", _total()),
        ("add", _clipped(is_op("add")(_side(), _side()))),
    )
    return [(f"{COMPILER}.{name}", pattern, Check(sizes, layout, name)) for name, pattern in rows]


def _constants(count: int) -> list[DFPattern]:
    """Make patterns of constants, each of its own: one object would mean the same constant."""
    return [is_constant() for _ in range(count)]


def _convolution() -> DFPattern:
    data = is_op("nn.pad")(wildcard(), wildcard()) | wildcard()
    return _biased(is_op("qnn.conv2d")(data, *_constants(5)))


def _dense() -> DFPattern:
    return _biased(is_op("qnn.dense")(wildcard(), *_constants(5)))


def _biased(sums: DFPattern) -> DFPattern:
    return is_op("nn.bias_add")(sums, is_constant()) | sums


def _clipped(sums: DFPattern) -> DFPattern:
    """Match what may be clipped: by clip, or as relu is in integers."""
    limited = is_op("maximum")(sums, is_constant()) | is_op("minimum")(sums, is_constant())
    return is_op("clip")(sums) | limited | sums


def _requantized(sums: DFPattern) -> DFPattern:
    return _clipped(is_op("qnn.requantize")(_clipped(sums), *_constants(4)))


def _side() -> DFPattern:
    """Match a side of an addition of int32: 8 bits requantized, or int32 as they are."""
    narrow = wildcard().has_dtype("uint8") | wildcard().has_dtype("int8")
    return is_op("qnn.requantize")(narrow, *_constants(4)) | wildcard()


def _total() -> DFPattern:
    """Match a sum over images, of 8 bits or of int32, rectified or not."""
    rectified = is_op("maximum")(wildcard(), is_constant()) | is_op("cast")(wildcard())
    return is_op("sum")(rectified | wildcard())
