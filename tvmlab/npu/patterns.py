"""What the machine takes as one: a table of patterns, in the form that backends of Relay had.

An entry is ``(name, pattern, check)``. `tvmlab.relay.transform.MergeComposite` takes the table as
it is; `tvmlab.npu.partition.relax_patterns` makes of it what Relax's FuseOpsByPattern takes.
Entries are tried in order, so those that make sums alone come after those that go on to 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from ..errors import InputError
from ..ir.patterns import DFPattern, is_constant, is_op, wildcard
from ..qnn import rows as quantized
from .checks import Check
from .config import COMPILER, Config, machine

__all__ = ["Entry", "pattern_table"]

assert quantized, "importing it fills the table with the quantized operators"

Entry = tuple[str, DFPattern, Callable[[relax.Expr], Any]]


def pattern_table(config: Config | None = None, layout: str | None = None) -> list[Entry]:
    """List what the machine takes as one.

    Parameters
    ----------
    config : Config, optional
        The machine; the default one where it is left out.
    layout : str, optional
        ``"NCHW"`` or ``"NHWC"``: what images have in the other order is refused. Left out, both
        are taken; then a module should have but one.

    Returns
    -------
    list of tuple
        ``(name, pattern, check)``. The check gets the graph that matched and says whether the
        machine takes it; its `Check.reason` says why not.

    Raises
    ------
    tvmlab.errors.InputError
        If `config` is no `Config`, or the layout another.

    Notes
    -----
    Regions that passes make of the table by hand run on the default machine; `partition`
    writes the sizes of another machine into them, as the attribute ``npu.config``.
    """
    if layout not in (None, "NCHW", "NHWC"):
        raise InputError(
            f"layout is {layout!r}; it is NCHW, NHWC or left out", where="npu.pattern_table"
        )
    sizes = machine(config, "npu.pattern_table")
    rows: Sequence[tuple[str, DFPattern]] = (
        ("depthwise_conv2d", requantized(convolution())),
        ("conv2d", requantized(convolution())),
        ("dense", requantized(dense())),
        ("add", clipped(is_op("qnn.add")(wildcard(), wildcard(), *constants(6)))),
        ("add", requantized(is_op("add")(side(), side()))),
        ("max_pool2d", is_op("nn.max_pool2d")(wildcard())),
        ("avg_pool2d", is_op("qnn.avg_pool2d")(wildcard(), *constants(4))),
        ("mean", requantized(total())),
        ("reshape", is_op("reshape")(wildcard())),
        ("depthwise_conv2d", clipped(convolution())),
        ("conv2d", clipped(convolution())),
        ("dense", clipped(dense())),
        ("mean", total()),
        ("add", clipped(is_op("add")(side(), side()))),
    )
    return [(f"{COMPILER}.{name}", pattern, Check(sizes, layout, name)) for name, pattern in rows]


def constants(count: int) -> list[DFPattern]:
    """Make patterns of constants, each of its own: one object would mean the same constant."""
    return [is_constant() for _ in range(count)]


def convolution() -> DFPattern:
    """Match an optional pad, qnn.conv2d with constants, and an optional bias."""
    data = is_op("nn.pad")(wildcard(), wildcard()) | wildcard()
    return biased(is_op("qnn.conv2d")(data, *constants(5)))


def dense() -> DFPattern:
    """Match qnn.dense with constants, and an optional bias."""
    return biased(is_op("qnn.dense")(wildcard(), *constants(5)))


def biased(sums: DFPattern) -> DFPattern:
    """Match sums, with a bias or without."""
    return is_op("nn.bias_add")(sums, is_constant()) | sums


def clipped(sums: DFPattern) -> DFPattern:
    """Match what may be clipped: by clip, or as relu is in integers."""
    limited = is_op("maximum")(sums, is_constant()) | is_op("minimum")(sums, is_constant())
    return is_op("clip")(sums) | limited | sums


def requantized(sums: DFPattern) -> DFPattern:
    """Match sums, clipped or not, a requantize of constants, and clips behind it."""
    return clipped(is_op("qnn.requantize")(clipped(sums), *constants(4)))


def side() -> DFPattern:
    """Match a side of an addition of int32: 8 bits requantized, or int32 as they are."""
    narrow = wildcard().has_dtype("uint8") | wildcard().has_dtype("int8")
    return is_op("qnn.requantize")(narrow, *constants(4)) | wildcard()


def total() -> DFPattern:
    """Match a sum over images, of 8 bits or of int32, rectified or not."""
    rectified = is_op("maximum")(wildcard(), is_constant()) | is_op("cast")(wildcard())
    return is_op("sum")(rectified | wildcard())
