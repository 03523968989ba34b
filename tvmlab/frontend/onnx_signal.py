"""Fourier transforms as products with constant matrices, and running products."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_index
from tvm.relax import op

from .onnx_graphs import Attributes, GraphImporter, Inputs, const, sizes_of

__all__ = ["SIGNAL"]


def _number(importer: GraphImporter, x: Any, default: int | None, what: str) -> int:
    """Return the value of an operand that must be a constant."""
    value = None if x is None else importer.value(x)
    made = default if x is None else None if value is None else int(value.item())
    if made is None:
        raise importer.unsupported(f"with {what} computed at run time", "make it a constant")
    return made


def _transform(
    n: int, length: int, parts: int, inverse: bool, onesided: bool
) -> npt.NDArray[np.float64]:
    """Return the matrix of a transform of `n` numbers; NumPy transforms the unit vectors."""
    units = [np.eye(n), 1j * np.eye(n)][:parts]
    if inverse and onesided:
        made = [np.fft.irfft(unit, length)[..., None] for unit in units]
    else:
        found = [(np.fft.ifft if inverse else np.fft.fft)(unit, length) for unit in units]
        found = [one[:, : length // 2 + 1] if onesided else one for one in found]
        made = [np.stack([one.real, one.imag], -1) for one in found]
    return np.stack(made, 1)  # input, part of the input, output, part of the output


def _fourier(importer: GraphImporter, x: Any, length: int | None, how: Attributes) -> Any:
    """Transform the last axis but one; the last one has the real and the imaginary part."""
    *rest, n, parts = importer.known_sizes(x)
    inverse, onesided = bool(how.get("inverse")), bool(how.get("onesided"))
    length = length or (2 * (n - 1) if inverse and onesided else n)
    matrix = _transform(n, length, parts, inverse, onesided).astype(str(x.ty.dtype))
    emit = importer.bb.emit
    flat = emit(op.reshape(x, [*rest, n * parts]))
    made = emit(op.matmul(flat, const(matrix.reshape(n * parts, -1))))
    return emit(op.reshape(made, [*rest, *matrix.shape[2:]]))


def _dft(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    x, length, axis = inputs[0:3]
    rank = len(importer.known_sizes(x))
    if importer.opset < 20:
        where = attributes.get("axis", 1)
    else:
        where = _number(importer, axis, -2, "an axis")
    order = [*(k for k in range(rank - 1) if k != where % rank), where % rank, rank - 1]
    emit = importer.bb.emit
    count = None if length is None else _number(importer, length, None, "a length")
    made = _fourier(importer, emit(op.permute_dims(x, order)), count, attributes)
    return op.permute_dims(made, [int(k) for k in np.argsort(order)])


def _stft(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    x, step, window, length = inputs[0:4]
    sizes = importer.known_sizes(x)
    known = None if window is None else (sizes_of(window) or [None])[0]
    width = _number(importer, length, known, "a frame length")
    stride = _number(importer, step, None, "a frame step")
    count = (sizes[1] - width) // stride + 1
    places = np.arange(count)[:, None] * stride + np.arange(width)
    emit = importer.bb.emit
    parts = sizes[2] if len(sizes) == 3 else 1
    x = emit(op.reshape(x, [sizes[0], sizes[1], parts]))
    frames = emit(op.take(x, const(places.ravel().astype("int64")), 1))
    frames = emit(op.reshape(frames, [sizes[0], count, width, parts]))
    if window is not None:
        frames = emit(op.multiply(frames, emit(op.reshape(window, [width, 1]))))
    how = {"onesided": attributes.get("onesided", 1)}
    return _fourier(importer, frames, width, how)


def _running(kind: str) -> Any:
    """Make a converter for a running sum or product."""
    compute, neutral = (op.cumsum, 0) if kind == "CumSum" else (op.cumprod, 1)

    def convert(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
        x, emit = inputs[0], importer.bb.emit
        sizes = sizes_of(x) or []
        constant = importer.value(inputs[1])
        if constant is None and len(sizes) != 1:
            raise importer.unsupported("along an axis computed at run time", "make it a constant")
        axis = 0 if constant is None else normalize_axis_index(int(constant.item()), len(sizes))
        dtype = str(x.ty.dtype)
        back = attributes.get("reverse", 0)
        x = emit(op.flip(x, axis)) if back else x
        if attributes.get("exclusive", 0):
            known = importer.known_sizes(x)
            first = [1 if k == axis else size for k, size in enumerate(known)]
            kept = emit(op.strided_slice(x, [axis], [0], [known[axis] - 1]))
            x = emit(op.concat([const(np.full(first, neutral, dtype)), kept], axis))
        made = emit(compute(x, axis, dtype))
        return emit(op.flip(made, axis)) if back else made

    return convert


#: The converters of this module.
SIGNAL = {
    "CumProd": _running("CumProd"),
    "CumSum": _running("CumSum"),
    "DFT": _dft,
    "STFT": _stft,
}
