"""Quantized models to import: by ONNX Runtime's static quantizer, and by torchao's PT2E.

Both calibrate on data that is here without a network, seeded, so that the same packages give the
same model. Import onnxruntime and torchao only where a maker is called.
"""

from __future__ import annotations

import contextlib
import logging
import re
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..support.extras import need
from ..support.wording import telling
from .onnx_form import Model, graph_input
from .samples import digits, preprocess, sample_image

if TYPE_CHECKING:
    import onnx

__all__ = ["QuantizedTorch", "calibration_pictures", "quantized_onnx", "quantized_torch"]

Pictures = npt.NDArray[np.float32]
_QUANTIZED = re.compile(r"QLinear|QGemm|(Dyn\w*|De)?[Qq]uantizeLinear|(Conv|MatMul)Integer")


class QuantizedTorch(NamedTuple):
    """A network quantized by PT2E: the exported program to load, and the module to call.

    `program` has the batch size that was asked for; `module` takes any batch.
    """

    program: Any
    module: Any


def calibration_pictures(image: tuple[int, int, int]) -> Pictures:
    """Return float32 pictures to calibrate a network on, for 1x8x8 or 3x224x224 images.

    They are 256 of the digits to train with, or eight parts of scikit-learn's two photographs,
    preprocessed. Raises `InputError` for another size.
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
        The type of the values between operators; weights are int8.
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
        If an argument is another word, the model is no ONNX model or quantized already, or the
        calibration data do not fit the input or are not finite.
    """
    onnx = need("onnx", extra="models")
    need("onnxruntime", extra="peers")
    with _quiet():
        from onnxruntime import quantization
        from onnxruntime.quantization.shape_inference import quant_pre_process

    types = {"uint8": quantization.QuantType.QUInt8, "int8": quantization.QuantType.QInt8}
    for word, known in ((format, ("QDQ", "QOperator")), (activations, tuple(types))):
        if word not in known:
            raise _wrong(f"There is no {word!r} here.", f"Use {known[0]!r} or {known[1]!r}.")
    proto = model.proto if isinstance(model, Model) else model
    if not isinstance(proto, onnx.ModelProto):
        raise _wrong(
            f"This is a {type(proto).__name__}, not an ONNX model.",
            "Give a tvmlab.models.Model or an onnx.ModelProto; onnx.load(path) reads one.",
        )
    kinds = {node.op_type for node in proto.graph.node}
    if quantized := sorted(kind for kind in kinds if _QUANTIZED.match(kind)):
        raise _wrong(
            f"The model is quantized already: it has {', '.join(quantized)}.",
            "Give the float32 model that it was made of.",
        )
    value = graph_input(proto)
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    if calibration is None:
        calibration = calibration_pictures((shape[1], shape[2], shape[3]))
    _check(calibration)
    step = shape[0] or max(len(calibration), 1)
    if list(calibration.shape[1:]) != shape[1:] or len(calibration) < step:
        raise _wrong(
            f"Calibration data are float32{list(calibration.shape)}, the input float32{shape}.",
            "Give float32 of the input's shape; the first axis can be longer, but not shorter.",
        )
    batches = [calibration[i : i + step] for i in range(0, len(calibration) - step + 1, step)]
    feed = iter([{value.name: batch} for batch in batches])

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        """Returns the batches one by one."""

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
            activation_type=types[activations],
            weight_type=quantization.QuantType.QInt8,
        )
        return onnx.load(done)


def quantized_torch(
    network: Any = None,
    *,
    calibration: Pictures | None = None,
    batch: int = 1,
) -> QuantizedTorch:
    """Quantize a network with torchao's PT2E, for X86 as torchao does.

    torchao's own recipe: `X86InductorQuantizer` with its default configuration, which is uint8
    activations by histogram, and int8 weights with a scale for each output channel.

    Parameters
    ----------
    network : torch.nn.Module, optional
        One of the workbook's networks (`tvmlab.models.torch_form.Network`), or any module of one
        input and one output, in evaluation mode; it is left unchanged. By default
        `torch_digits_resnet`.
    calibration : ndarray, optional
        float32 [n, ...], inputs of the network; for the workbook's networks `calibration_pictures`
        if it is left out.
    batch : int
        Pictures in one call of the program.

    Returns
    -------
    QuantizedTorch
        The program to import, and the module to compare with.

    Raises
    ------
    InputError
        If `network` is no module, is in training mode or quantized already, or the network does
        not take the calibration data.

    Notes
    -----
    torchao 0.18's `prepare_pt2e` folds a batch norm into the convolution before it even where
    something else reads that convolution too (`_fuse_conv_bn_` in torchao/quantization/pt2e/
    utils.py does not look). A ResNet v2 begins so: the sum at the end of its first unit reads the
    first convolution, and would get it normalized, which costs the digits network three points of
    accuracy. So every such batch norm of the workbook's networks becomes a depthwise 1x1
    convolution first; in other modules it is refused.
    """
    torch = need("torch", extra="torch")
    with _quiet():
        pt2e = need("torchao.quantization.pt2e.quantize_pt2e", extra="torch")
        x86 = need("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer", extra="torch")
    from .torch_form import Network, norms_as_convolutions

    if network is None:
        from .zoo import torch_digits_resnet

        network = torch_digits_resnet()
    ours = isinstance(network, Network)
    wrong = None
    if not isinstance(network, torch.nn.Module):
        wrong = f"This is a {type(network).__name__}, not a torch.nn.Module."
    elif network.training:
        wrong = "The network is in training mode."
    elif calibration is None and not ours:
        wrong = "There are no pictures to calibrate this network on."
    if wrong:
        raise _wrong(
            wrong,
            "Give a module in evaluation mode (network.eval()), and `calibration` with it.",
        )
    if calibration is None:
        calibration = calibration_pictures(network.spec.image)
    _check(calibration)
    pictures = torch.from_numpy(calibration)
    try:
        with torch.no_grad():
            network(pictures[:1])
    except Exception as error:  # a user's module can raise anything
        raise _wrong(
            f"The network does not take calibration data float32{list(calibration.shape)}: "
            f"{telling(error)}",
            "Give inputs of the network; the first axis counts them.",
        ) from error
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    example = (pictures[:1].repeat(2, *[1] * (pictures.ndim - 1)),)
    sizes = ({0: torch.export.Dim("batch", min=1)},)
    with _quiet(), torch.no_grad():
        module = norms_as_convolutions(network) if ours else network
        module = torch.export.export(module, example, dynamic_shapes=sizes).module()
        _check_graph(module)
        module = pt2e.prepare_pt2e(module, quantizer)
        for start in range(0, len(pictures), 64):
            module(pictures[start : start + 64])
        module = pt2e.convert_pt2e(module)
        program = torch.export.export(module, (torch.zeros(batch, *pictures.shape[1:]),))
    return QuantizedTorch(program, module)


def _check(calibration: Any) -> None:
    """Refuse calibration data that are no finite float32 array."""
    if not isinstance(calibration, np.ndarray) or calibration.dtype != np.float32:
        wrong = f"of {getattr(calibration, 'dtype', type(calibration).__name__)}, not float32"
    elif calibration.size and calibration.ndim and np.isfinite(calibration).all():
        return
    else:
        wrong = "empty or not finite, and every value's range is found from them"
    raise _wrong(f"Calibration data are {wrong}.", "Give a NumPy array of finite float32 inputs.")


def _check_graph(module: Any) -> None:
    """Refuse a quantized network, and a batch norm that torchao would fold wrongly."""
    for node in module.graph.nodes:
        target = str(node.target)
        if target.startswith("quantized_decomposed"):
            raise _wrong(
                f"The network is quantized already, in node {node.name!r}.",
                "Give the float32 network that it was made of.",
            )
        if not target.startswith(("aten.batch_norm", "aten._native_batch_norm")):
            continue
        source = node.args[0]
        if str(source.target).startswith("aten.conv") and len(source.users) > 1:
            raise _wrong(
                f"The batch norm of node {node.name!r} follows a convolution that something else "
                "reads too; torchao would fold it into what the other reads.",
                "Write the batch norm as a depthwise 1x1 convolution.",
            )


def _wrong(what: str, fix: str) -> InputError:
    return InputError(what, where="the model to quantize", fix=fix)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the quantizers' warnings about what they could not load, and their advice."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
