"""What Relay had and tvmlab does not carry, with its counterpart in today's TVM.

Names are in a table (`gone_names`), operators in a list here. The counterpart of an operator is
looked for in `tvm.relax.op`, so that it is never out of date.
"""

from __future__ import annotations

import difflib
import dis
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import NamedTuple

from tvm import relax

from ..errors import RelayError
from . import gone_names, table

__all__ = [
    "ROWS",
    "RelayImportError",
    "RelayNameError",
    "Row",
    "error",
    "find",
    "is_operator",
    "missing",
    "of_attribute",
    "operator",
    "raise_gone",
]


class RelayNameError(RelayError, AttributeError):
    """A module has no such name: what ``hasattr`` and ``getattr`` with a default understand."""


class RelayImportError(RelayError, ModuleNotFoundError):
    """The same, of an import: Python would put words of its own in the place."""


class Row(NamedTuple):
    """A name that is gone.

    Attributes
    ----------
    old : str
        ``"relay.vm"`` for ``tvm.relay.vm``; whole for what was elsewhere: ``"tvm.te.gradient"``.
    today : str or None
        The counterpart, a name that can be imported.
    remark : str
        How it differs; may be empty.
    """

    old: str
    today: str | None
    remark: str


def _rows() -> Iterator[Row]:
    for line in filter(None, gone_names.ROWS.splitlines()):
        old, today, remark = (part.strip() for part in line.split("|"))
        yield Row(old, None if today == "-" else today, remark)


ROWS = {row.old: row for row in _rows()}
"""The rows of `gone_names`, by their old names."""

_OPERATORS = frozenset(
    """
    abs acos acosh add adv_index all any arange argmax argmin argsort argwhere asin asinh atan
    atan2 atanh batch_matmul bitwise_and bitwise_not bitwise_or bitwise_xor broadcast_to
    broadcast_to_like cast cast_like ceil clip collapse_sum_like collapse_sum_to concatenate copy
    cos cosh cumprod cumsum debug device_copy diag divide dft einsum einsum equal erf exp
    expand_dims fast_erf fast_exp fast_softmax fast_tanh fft fixed_point_multiply
    fixed_point_multiply_per_axis floor floor_divide floor_mod full full_like gather gather_nd
    greater greater_equal hann_window invert_permutation isfinite isinf isnan layout_transform
    left_shift less less_equal log log10 log2 logical_and logical_not logical_or logical_xor
    logsumexp matrix_set_diag max maximum mean mean_std mean_variance meshgrid min minimum mod
    multiply ndarray_size negative not_equal one_hot ones ones_like power prod reinterpret repeat
    reshape reshape_like reverse reverse_reshape reverse_sequence right_shift round rsqrt scatter
    scatter_add scatter_elements scatter_nd searchsorted segment_sum sequence_mask shape_of
    sigmoid sign sin sinh slice_like sliding_window sort sparse_fill_empty_rows sparse_reshape
    sparse_to_dense split sqrt squeeze stack std stft strided_set strided_slice subtract sum take
    tan tanh tile topk transpose trilu trunc trunc_divide trunc_mod unique unravel_index variance
    where zeros zeros_like
    nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d nn.adaptive_max_pool1d
    nn.adaptive_max_pool2d nn.adaptive_max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool2d_grad
    nn.avg_pool3d nn.batch_flatten nn.batch_matmul nn.batch_norm nn.batch_to_space_nd nn.bias_add
    nn.bitpack nn.bitserial_conv2d nn.bitserial_dense nn.conv1d nn.conv1d_transpose nn.conv2d
    nn.conv2d_backward_weight nn.conv2d_transpose nn.conv3d nn.conv3d_transpose
    nn.contrib_conv2d_gemm_weight_transform nn.contrib_conv2d_nchwc
    nn.contrib_conv2d_winograd_without_weight_transform nn.contrib_conv3d_winograd_weight_transform
    nn.contrib_dense_pack nn.contrib_depthwise_conv2d_nchwc nn.correlation nn.cross_entropy
    nn.cross_entropy_with_logits nn.deformable_conv2d nn.dense nn.depth_to_space nn.dilate
    nn.dropout nn.dropout_raw nn.fast_softmax nn.fifo_buffer nn.global_avg_pool1d
    nn.global_avg_pool2d nn.global_avg_pool3d nn.global_max_pool1d nn.global_max_pool2d
    nn.global_max_pool3d nn.group_norm nn.instance_norm nn.l2_normalize nn.layer_norm
    nn.leaky_relu nn.log_softmax nn.lrn nn.matmul nn.max_pool1d nn.max_pool2d nn.max_pool2d_grad
    nn.max_pool3d nn.mirror_pad nn.nll_loss nn.pad nn.prelu nn.relu nn.softmax
    nn.space_to_batch_nd nn.space_to_depth nn.sparse_add nn.sparse_dense nn.sparse_transpose
    nn.upsampling nn.upsampling3d
    image.affine_grid image.crop_and_resize image.dilation2d image.grid_sample image.resize1d
    image.resize2d image.resize3d
    vision.all_class_non_max_suppression vision.get_valid_counts vision.multibox_prior
    vision.multibox_transform_loc vision.nms vision.non_max_suppression vision.proposal
    vision.roi_align vision.roi_pool vision.yolo_reorg
    qnn.abs qnn.add qnn.avg_pool2d qnn.batch_matmul qnn.broadcast qnn.concatenate
    qnn.contrib_dense_pack qnn.conv2d qnn.conv2d_transpose qnn.dense qnn.dequantize qnn.erf qnn.exp
    qnn.hardswish qnn.leaky_relu qnn.log qnn.mul qnn.quantize qnn.requantize qnn.rsqrt qnn.sigmoid
    qnn.simulated_dequantize qnn.simulated_quantize qnn.softmax qnn.sqrt qnn.subtract qnn.tanh
    annotation.bitpack_end annotation.bitpack_start annotation.cast_hint annotation.checkpoint
    annotation.compiler_begin annotation.compiler_end annotation.on_device annotation.stop_fusion
    random.multinomial random.normal random.threefry_generate random.threefry_key
    random.threefry_split random.uniform
    """.split()  # noqa: SIM905 - a table to read
)


_RENAMED = {
    "adv_index": "op.index_tensor",
    "argwhere": "op.nonzero",
    "cast_like": "op.astype",
    "debug": "op.print",
    "device_copy": "op.to_vdevice",
    "nn.dropout_raw": "op.nn.dropout",
    "scatter": "op.scatter_elements",
    "scatter_add": "op.scatter_elements",
    "searchsorted": "op.bucketize",
    "slice_like": "op.strided_slice",
    "strided_set": "op.slice_scatter",
    "trilu": "op.triu",
    "vision.nms": "op.vision.non_max_suppression",
}
"""Counterparts that have another name."""


def is_operator(name: str) -> bool:
    """Say whether Relay had an operator of a name."""
    return name in _OPERATORS


def operator(name: str) -> str | None:
    """Give today's counterpart of one of Relay's operators, where there is one.

    Most are found in `tvm.relax.op` by their names.
    """
    if name in _RENAMED:
        return f"tvm.relax.{_RENAMED[name]}"
    found: object = relax.op
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"tvm.relax.op.{name}" if callable(found) else None


def unknown_operator(name: str) -> tuple[str, str]:
    """Say what to do about an operator of Relay text that the table does not have.

    Returns
    -------
    tuple of str, str
        What is wrong, and what to do: Relay's own operators have a counterpart or none, another
        name was meant to be the closest one.
    """
    if name in _EFFECTS:
        return f"{name} makes or asks a reference, and values do not change in Relax", _PURE
    if is_operator(name):
        today = operator(name)
        fix = f"today's counterpart is {today}" if today else "today's TVM has no counterpart of it"
        return f"{name} is an operator of Relay's that tvmlab does not carry", fix
    near = table.closest(name)
    fix = f"did you mean {near}?" if near else "see tvmlab.ir.table for those that are"
    return f"Relay's operator {name} is not known here", fix


_EFFECTS = ("ref", "ref_read", "ref_write")
_PURE = "let the function take the value and give the new one"


def error(name: str, counterpart: str | None, remark: str = "") -> RelayError:
    """Make the error for a name that is not carried.

    Parameters
    ----------
    name : str
        The old name, such as ``"relay.vm"``.
    counterpart : str, optional
        Today's.
    remark : str
        How it differs.
    """
    known = (
        f"use today's counterpart: {counterpart}"
        if counterpart
        else "today's TVM has no counterpart of it"
    )
    return RelayError(
        f"tvmlab does not carry {name}, a name of Relay's time",
        where=name,
        fix=f"{known} ({remark})" if remark else known,
    )


def find(name: str) -> Row | None:
    """Find the row of a name, or of the nearest module around it.

    Parameters
    ----------
    name : str
        As `Row.old`.
    """
    module, dot, last = name.rpartition(".")
    found = ROWS.get(name)
    while found is None and dot:
        if module in ROWS:
            # Old modules showed names of their submodules: autotvm.XGBTuner is autotvm.tuner's.
            inner = (row for old, row in ROWS.items() if old.startswith(f"{module}."))
            return next((row for row in inner if row.old.endswith(f".{last}")), ROWS[module])
        module, dot, _ = module.rpartition(".")
    return found


def raise_gone(module: str, name: str) -> None:
    """Raise the error for a name that Relay's module had; return for another.

    Parameters
    ----------
    module : str
        Inside ``relay``, such as ``"transform"``; empty for ``relay`` itself.
    name : str
        The name that was asked for.

    Raises
    ------
    RelayNameError, RelayImportError
        Relay had it, and tvmlab does not carry it.
    """
    row = ROWS.get(".".join(part for part in ("relay", module, name) if part))
    if row is not None:
        raise of_attribute(error(*row), gone=True)


def missing(module: str, name: str, known: Iterable[str] = ()) -> Exception:
    """Make the error for a name that a module of the layer has not.

    Parameters
    ----------
    module, name : str
        As in `raise_gone`, which this does first.
    known : iterable of str
        Names that may have been meant.
    """
    raise_gone(module, name)
    whole = ".".join(part for part in (module, name) if part)
    what = f"tvmlab.relay has no {whole}"
    if name.startswith("__"):
        return AttributeError(what)
    near = difflib.get_close_matches(name, [one for one in known if one[:1] != "_"], n=1)
    where = ".".join(part for part in ("relay", whole) if part)
    meant = ".".join(part for part in ("relay", module, *near) if part)
    fix = f"did you mean {meant}?" if near else None
    return of_attribute(RelayError(what, where=where, fix=fix))


def of_attribute(error: RelayError, gone: bool = False) -> RelayError:
    """Make an error about a name one that Python understands, whoever asks for the name.

    Parameters
    ----------
    error : RelayError
        What to say.
    gone : bool
        Whether there is no use in looking for a module of that name either.

    Returns
    -------
    RelayNameError or RelayImportError
    """
    kind = RelayImportError if _importing(gone) else RelayNameError
    return kind(error.what, where=error.where, fix=error.fix)


def _importing(gone: bool) -> bool:
    """Say whether the first to ask, outside of the layer, is ``from module import name``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_LAYER):
        code = frame.f_code.co_code
        if code[frame.f_lasti] == _IMPORT_FROM:
            return True
        frame = frame.f_back
    if frame is None:
        return False
    if frame.f_code.co_name == "_handle_fromlist":
        return gone
    return frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM


_LAYER = ("tvmlab.ir", "tvmlab.relay")
_IMPORT_FROM = dis.opmap["IMPORT_FROM"]
