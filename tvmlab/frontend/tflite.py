"""TensorFlow Lite to Relax, through upstream's importer."""

from __future__ import annotations

import warnings
from typing import Any

from tvm.ir import IRModule

from ..errors import ModelError
from ..ir.indices import NormalizeIndices
from ..ir.signature import OUTPUT_NAMES
from ..support.extras import need

__all__ = ["import_bytes"]


def import_bytes(data: bytes, *, where: str) -> IRModule:
    """Import the content of a TensorFlow Lite file; see `tvmlab.load`.

    ``main`` has the file's own NHWC layout. Where the model is quantized, its attribute
    ``qnn.rounding`` is "TFLITE": what `tvmlab.qnn.transform.FakeQuantizationToInteger` rounds like,
    unless it is told otherwise. `where` is the file, for errors.
    """
    tflite = need("tflite", extra="tflite")
    from tvm.relax.frontend.tflite import from_tflite

    from .tflite_converter import QuantizedConverter, check_scales, unsupported

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = tflite.Model.GetRootAsModel(data, 0)
            quantized = check_scales(model)
            mod = from_tflite(model, op_converter=QuantizedConverter)
            # Upstream lists the weights here, which are constants of the function already.
            main = mod["main"].without_attr("params").with_attr(OUTPUT_NAMES, _outputs(model))
            mod["main"] = main.with_attr("qnn.rounding", "TFLITE") if quantized else main
            normalize: Any = NormalizeIndices(from_end=False)
            return normalize(mod)
    except ModelError as error:
        place = f"{where}: {error.where}" if error.where else where
        raise type(error)(error.what, where=place, fix=error.fix) from error.__cause__
    except NotImplementedError as error:
        raise unsupported(error, where) from error
    except Exception as error:  # a damaged FlatBuffer fails anywhere: struct, index, assertion
        raise ModelError(
            f"the TensorFlow Lite model is damaged, or TVM's importer failed on it: {error!r}",
            where=where,
            fix="compare its size and checksum with its source, and download it again",
        ) from error


def _outputs(model: Any) -> list[str]:
    """Name the outputs as the file does."""
    graph = model.Subgraphs(0)
    tensors = [graph.Tensors(int(place)) for place in graph.OutputsAsNumpy()]
    return [(tensor.Name() or b"").decode(errors="replace") for tensor in tensors]
