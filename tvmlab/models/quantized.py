"""Quantized models to import: by ONNX Runtime's static quantizer, and by torchao's PT2E.

Both calibrate on data that is here without a network, seeded, so that the same packages give the
same model. Import onnxruntime and torchao only where a maker is called.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..extras import need
from .model import Model
from .samples import digits, preprocess, sample_image

if TYPE_CHECKING:
    import onnx

__all__ = ["QuantizedTorch", "calibration_pictures", "quantized_onnx", "quantized_torch"]

Pictures = npt.NDArray[np.float32]


class QuantizedTorch(NamedTuple):
    """A network quantized by PT2E, in the two forms that PyTorch has of it.

    Attributes
    ----------
    program : torch.export.ExportedProgram
        What `tvmlab.load` takes; the batch has the size that was asked for.
    module : torch.fx.GraphModule
        The same graph, to be called in PyTorch; it takes any batch.
    """

    program: Any
    module: Any


def calibration_pictures(image: tuple[int, int, int]) -> Pictures:
    """Give pictures to calibrate a network on.

    Parameters
    ----------
    image : tuple of int
        Channels, height and width of a picture: (1, 8, 8) or (3, 224, 224).

    Returns
    -------
    ndarray
        float32 [n, channels, height, width]. For 8x8: 256 of the digits to train with. For
        224x224: eight parts of scikit-learn's two photographs, preprocessed.

    Raises
    ------
    InputError
        If the pictures are of another size.
    """
    if image == (1, 8, 8):
        return digits().x_train[:256]
    if image == (3, 224, 224):
        photographs = [sample_image("china"), sample_image("flower")]
        corners = [(0, 0), (0, 240), (27, 120), (27, 240)]
        parts = [p[y : y + 400, x : x + 400] for p in photographs for y, x in corners]
        return np.concatenate([preprocess(part) for part in parts])
    raise InputError(
        f"There are no pictures of {image} to calibrate on.",
        where="calibration_pictures",
        fix="Give `calibration`, an array of the network's inputs.",
    )


def quantized_onnx(
    model: Model | onnx.ModelProto,
    *,
    format: Literal["QDQ", "QOperator"] = "QDQ",
    per_channel: bool = True,
    activations: Literal["uint8", "int8"] = "uint8",
    calibration: Pictures | None = None,
) -> onnx.ModelProto:
    """Quantize an ONNX model with ONNX Runtime's static quantizer.

    Parameters
    ----------
    model : Model or onnx.ModelProto
        A float32 model with one input; it is left unchanged.
    format : {"QDQ", "QOperator"}
        Float operators between QuantizeLinear and DequantizeLinear, or quantized operators:
        QLinearConv and its like.
    per_channel : bool
        A scale for each output channel of a weight, or one for all.
    activations : {"uint8", "int8"}
        The type of what flows; weights are int8.
    calibration : ndarray, optional
        float32 [n, ...], inputs to see the range of every value on; by default
        `calibration_pictures`.

    Returns
    -------
    onnx.ModelProto
        The quantized model. Ranges are the least and the greatest values seen; weights use
        all of int8 (``reduce_range`` is off: it is for CPUs without exact int8 products).

    Raises
    ------
    InputError
        If an argument is another word, or the calibration data do not fit the input.
    ToolchainError
        If onnx or onnxruntime is not installed.
    """
    for value, known in ((format, ("QDQ", "QOperator")), (activations, ("uint8", "int8"))):
        if value not in known:
            raise InputError(
                f"There is no {value!r} here.",
                where="quantized_onnx",
                fix=f"Use {known[0]!r} or {known[1]!r}.",
            )
    onnx = need("onnx", extra="models")
    need("onnxruntime", extra="peers")
    with _quiet():
        from onnxruntime import quantization
        from onnxruntime.quantization.shape_inference import quant_pre_process

    from .onnx_form import graph_input

    proto = model.proto if isinstance(model, Model) else model
    value = graph_input(proto)
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    if calibration is None:
        calibration = calibration_pictures((shape[1], shape[2], shape[3]))
    if calibration.dtype != np.float32 or list(calibration.shape[1:]) != shape[1:]:
        raise InputError(
            f"Calibration data are {calibration.dtype}{list(calibration.shape)}, the input "
            f"float32{shape}.",
            where="quantized_onnx",
            fix="Give float32 of the input's shape; the first axis may be longer.",
        )
    kinds = {"uint8": quantization.QuantType.QUInt8, "int8": quantization.QuantType.QInt8}
    step = shape[0] or max(len(calibration), 1)
    if len(calibration) < step:
        raise InputError(
            f"{len(calibration)} calibration inputs are fewer than one batch of {step}.",
            where="quantized_onnx",
            fix="Give at least one batch.",
        )
    batches = [calibration[i : i + step] for i in range(0, len(calibration) - step + 1, step)]
    feed = iter([{value.name: batch} for batch in batches])

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        """Hands the batches out one by one."""

        def get_next(self) -> dict[str, Pictures] | None:
            return next(feed, None)

    with tempfile.TemporaryDirectory(prefix="tvmlab-") as folder, _quiet():
        # Batch norms go into the convolutions before them, which quantization would else part.
        # From a file: of a model in memory it would take the weights out.
        given, ready, done = (Path(folder, f"{name}.onnx") for name in ("given", "ready", "done"))
        onnx.save(proto, given)
        quant_pre_process(given, ready, skip_symbolic_shape=True)
        quantization.quantize_static(
            ready,
            done,
            Reader(),
            quant_format=quantization.QuantFormat[format],
            per_channel=per_channel,
            activation_type=kinds[activations],
            weight_type=quantization.QuantType.QInt8,
        )
        return onnx.load(done)


def quantized_torch(
    network: Any = None,
    *,
    calibration: Pictures | None = None,
    batch: int = 1,
    fold_quantize: bool = True,
) -> QuantizedTorch:
    """Quantize one of the workbook's networks with torchao's PT2E, for X86 as torchao does.

    torchao's own recipe: `X86InductorQuantizer` with its default configuration, which is uint8
    activations by histogram, and int8 weights with a scale for each output channel.

    Parameters
    ----------
    network : tvmlab.models.torch_form.Network, optional
        In evaluation mode; it is left unchanged. By default `torch_digits_resnet`.
    calibration : ndarray, optional
        float32 [n, channels, height, width]; by default `calibration_pictures`.
    batch : int
        Pictures in one call of the program.
    fold_quantize : bool
        Whether weights are stored as integers, or as float32 with their quantize in the graph.

    Returns
    -------
    QuantizedTorch
        The program to import, and the module to compare with.

    Raises
    ------
    InputError
        If there are no pictures of the network's size to calibrate on.
    ToolchainError
        If torch or torchao is not installed.

    Notes
    -----
    torchao 0.18's `prepare_pt2e` folds a batch norm into the convolution before it even where
    something else reads that convolution too (`_fuse_conv_bn_` in torchao/quantization/pt2e/
    utils.py does not look). A ResNet v2 begins so: the sum at the end of its first unit reads the
    first convolution as it is, and would get it normalized; the digits network loses three points
    of accuracy by that, whatever the observers. Here every batch norm that stands for itself is
    written as what it is, a depthwise 1x1 convolution, before torchao sees the network. That one
    can be quantized as well.
    """
    torch = need("torch", extra="torch")
    with _quiet():
        pt2e = need("torchao.quantization.pt2e.quantize_pt2e", extra="torch")
        x86 = need("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer", extra="torch")
    from .torch_norms import norms_as_convolutions

    if network is None:
        from .zoo import torch_digits_resnet

        network = torch_digits_resnet()
    if calibration is None:
        calibration = calibration_pictures(network.spec.image)
    pictures = torch.from_numpy(calibration)
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    example = (pictures[:2],)
    sizes = ({0: torch.export.Dim("batch", min=1)},)
    with _quiet(), torch.no_grad():
        module = norms_as_convolutions(network)
        module = torch.export.export(module, example, dynamic_shapes=sizes).module()
        module = pt2e.prepare_pt2e(module, quantizer)
        for start in range(0, len(pictures), 64):
            module(pictures[start : start + 64])
        module = pt2e.convert_pt2e(module, fold_quantize=fold_quantize)
        program = torch.export.export(module, (torch.zeros(batch, *pictures.shape[1:]),))
    return QuantizedTorch(program, module)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the quantizers' notes to themselves: of what they could not load, and of advice."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
