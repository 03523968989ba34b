"""Quantized models to import: from ONNX Runtime's static quantizer, and from torchao's PT2E."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..support.extras import need
from .onnx_form import Model
from .samples import digits, preprocess, sample_image

if TYPE_CHECKING:
    import onnx

    from .torch_form import Network

__all__ = ["QuantizedTorch", "calibration_pictures", "quantized_onnx", "quantized_torch"]

Pictures = npt.NDArray[np.float32]


class QuantizedTorch(NamedTuple):
    """A network quantized by PT2E: the exported program, and the module, which takes any batch."""

    program: Any
    module: Any


def calibration_pictures(image: tuple[int, int, int]) -> Pictures:
    """Return float32 images to calibrate a network with, for 1x8x8 or 3x224x224 inputs.

    They are 256 of the training digits, or eight crops of scikit-learn's two photographs,
    preprocessed.
    """
    if image == (1, 8, 8):
        return digits().x_train[:256]
    photographs = [sample_image("china"), sample_image("flower")]
    corners = [(0, 0), (0, 240), (27, 120), (27, 240)]
    parts = [p[y : y + 400, x : x + 400] for p in photographs for y, x in corners]
    return np.concatenate([preprocess(part) for part in parts])


def quantized_onnx(
    model: Model,
    *,
    format: Literal["QDQ", "QOperator"] = "QDQ",
    per_channel: bool = True,
    activations: Literal["uint8", "int8"] = "uint8",
    calibration: Pictures | None = None,
) -> onnx.ModelProto:
    """Quantize a network with ONNX Runtime's static quantizer; weights use all of int8.

    Raises `InputError` if an argument has another value, `model` is not a `Model`, or calibration
    data do not fit its input or are not finite.

    Parameters
    ----------
    model : Model
        A network of `tvmlab.models`; it is left unchanged.
    format : {"QDQ", "QOperator"}
        Float operators between QuantizeLinear and DequantizeLinear, or quantized operators:
        QLinearConv and its like.
    per_channel : bool
        A scale for each output channel of a weight, or one for all.
    activations : {"uint8", "int8"}
        The type of the values between operators; weights are int8.
    calibration : ndarray, optional
        float32 [n, ...], inputs from which the range of every value is determined; by default
        `calibration_pictures`.
    """
    onnx = need("onnx", extra="models")
    need("onnxruntime", extra="peers")
    with _quiet():
        from onnxruntime import quantization
        from onnxruntime.quantization.shape_inference import quant_pre_process

    types = {"uint8": quantization.QuantType.QUInt8, "int8": quantization.QuantType.QInt8}
    for word, known in ((format, ("QDQ", "QOperator")), (activations, tuple(types))):
        if word not in known:
            raise _wrong(f"{word!r} is not supported.", f"Use {known[0]!r} or {known[1]!r}.")
    if not isinstance(model, Model):
        what = f"This is a {type(model).__name__}, not a network of tvmlab.models."
        raise _wrong(what, "Quantize other models with onnxruntime.quantization.quantize_static.")
    batch, *image = (size if isinstance(size, int) else 0 for size in model.input_shape)
    if calibration is None:
        calibration = calibration_pictures((image[0], image[1], image[2]))
    step = batch or max(len(calibration), 1)
    fits = list(calibration.shape[1:]) == image and len(calibration) >= step
    if not fits or calibration.dtype != np.float32 or not np.isfinite(calibration).all():
        shown = f"{calibration.dtype}{list(calibration.shape)}"
        what = f"Calibration data {shown} are not finite inputs float32{[step, *image]}."
        raise _wrong(what, "Pass a NumPy array of finite float32 inputs, one batch or more.")
    starts = range(0, len(calibration) - step + 1, step)
    feed = iter([{model.input_name: calibration[i : i + step]} for i in starts])
    reader = SimpleNamespace(get_next=lambda: next(feed, None))
    with tempfile.TemporaryDirectory(prefix="tvmlab-") as folder, _quiet():
        # Fold batch norms into the preceding convolutions before quantization separates them.
        # From a file, because the weights of a model in memory would be removed.
        given, ready, done = (Path(folder, f"{name}.onnx") for name in ("given", "ready", "done"))
        onnx.save(model.proto, given)
        quant_pre_process(given, ready, skip_symbolic_shape=True)
        quantization.quantize_static(
            ready,
            done,
            reader,
            quant_format=quantization.QuantFormat[format],
            per_channel=per_channel,
            activation_type=types[activations],
            weight_type=quantization.QuantType.QInt8,
        )
        return onnx.load(done)


def quantized_torch(network: Network | None = None, *, batch: int = 1) -> QuantizedTorch:
    """Quantize a network with torchao's PT2E and the default config of `X86InductorQuantizer`.

    Activations are uint8 by histogram, and weights int8 with a scale for each output channel.
    Raises `InputError` if `network` is another module or in training mode.

    Parameters
    ----------
    network : tvmlab.models.torch_form.Network, optional
        One of the workbook's networks, in evaluation mode; it is left unchanged. By default
        `torch_digits_resnet`.
    batch : int
        Images per call of the program.

    Notes
    -----
    torchao 0.18's `prepare_pt2e` folds a batch norm into the convolution before it even where
    another operator reads that convolution too, like the sum at the end of a ResNet's first unit.
    This costs the digits network three points of accuracy, so every such batch norm becomes a
    depthwise 1x1 convolution first.
    """
    torch = need("torch", extra="torch")
    with _quiet():
        pt2e = need("torchao.quantization.pt2e.quantize_pt2e", extra="torch")
        x86 = need("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer", extra="torch")
    from .torch_form import Network, norms_as_convolutions
    from .zoo import torch_digits_resnet

    network = torch_digits_resnet() if network is None else network
    if not isinstance(network, Network) or network.training:
        what = f"This {type(network).__name__} is not a tvmlab.models network in evaluation mode."
        raise _wrong(what, "Pass the result of tvmlab.models.torch_form.of.")
    pictures = torch.from_numpy(calibration_pictures(network.spec.image))
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    example = (pictures[:1].repeat(2, 1, 1, 1),)
    sizes = ({0: torch.export.Dim("batch", min=1)},)
    with _quiet(), torch.no_grad():
        module = norms_as_convolutions(network)
        module = torch.export.export(module, example, dynamic_shapes=sizes).module()
        module = pt2e.prepare_pt2e(module, quantizer)
        for start in range(0, len(pictures), 64):
            module(pictures[start : start + 64])
        module = pt2e.convert_pt2e(module)
        program = torch.export.export(module, (torch.zeros(batch, *pictures.shape[1:]),))
    return QuantizedTorch(program, module)


def _wrong(what: str, fix: str) -> InputError:
    return InputError(what, where="the model to quantize", fix=fix)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the quantizers' warnings about optional imports, and their advice."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
