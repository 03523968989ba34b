"""PyTorch's quantized_decomposed operators as ``R.quantize`` and ``R.dequantize``.

PT2E, PyTorch's quantization of exported programs, writes a quantized network as float operators
between these operators (torch/ao/quantization/fx/_decomposed.py, PyTorch 2.13). Upstream's importer
does not know them; it takes converters by name.

PyTorch computes ``clamp(round(x * (1 / scale)) + zero_point, quant_min, quant_max)``, ties to even.
``R.quantize`` of TVM 0.27 is ``clip(round(x / scale) + zero_point)``, ties to even too (te.round);
the two differ by one step where the product and the quotient round to the two sides of a tie, which
happens for about one value in ten million. Relay's ``qnn.quantize`` rounds ties away from zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from ..errors import UnsupportedOperatorError
from .quantization import check, wrong

__all__ = ["LIBRARY", "SUPPORTED", "arguments", "converters"]

LIBRARY = "quantized_decomposed"
#: What is imported, for errors.
SUPPORTED = (
    "quantize_per_tensor and dequantize_per_tensor (default, tensor, tensor2), "
    "quantize_per_channel and dequantize_per_channel, between float32 and int8, uint8, int16 or "
    "int32 (what is stored only), with scales and zero points that are numbers or stored too"
)
_NAMES = ("per_tensor.default", "per_tensor.tensor", "per_tensor.tensor2", "per_channel.default")

Converter = Callable[[Any, Any], relax.Expr]


def converters(program: Any) -> dict[str, Converter]:
    """Make the converters for a `torch.export.ExportedProgram`, by the names upstream looks for.

    The program holds scales and zero points that are tensors, so each program has its own.
    """
    stored = {**program.constants, **program.state_dict}
    signature = program.graph_signature
    places = {
        **signature.inputs_to_buffers,
        **signature.inputs_to_parameters,
        **signature.inputs_to_lifted_tensor_constants,
    }
    values = {name: stored[target] for name, target in places.items() if target in stored}
    convert = _Converter(values)
    return {f"{kind}_{name}": convert for kind in ("quantize", "dequantize") for name in _NAMES}


class _Converter:
    """Turns a node into a call; `values` are stored tensors by the names of their nodes."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def __call__(self, node: Any, importer: Any) -> relax.Expr:
        """Emit the operator of a node, called by upstream's importer."""
        given = arguments(node)
        source, dtype = given["input"], str(given["dtype"]).removeprefix("torch.")
        if dtype not in ("int8", "uint8", "int16", "int32"):
            raise _unsupported(node, f"it quantizes to {dtype}")
        scale = self.value(node, given, "scale").astype("float32")
        zero = self.value(node, given, "zero_point")
        sizes = [size if isinstance(size, int) else None for size in source.meta["val"].shape]
        axis = given.get("axis", -1)
        check(scale, zero, dtype, sizes, axis, where=_where(node))
        axis = axis % len(sizes) if "axis" in given else -1
        zero = np.broadcast_to(zero, scale.shape).astype("int32")
        if node.target.__name__.startswith("dequantize"):
            out = given.get("out_dtype")
            if out is not None and str(out) != "torch.float32":
                raise _unsupported(node, f"the result is {out}")
            operands = importer.env[source], relax.const(scale), relax.const(zero)
            return importer.block_builder.emit(relax.op.dequantize(*operands, axis))
        if str(source.meta["val"].dtype) != "torch.float32":
            raise _unsupported(node, f"it reads {source.meta['val'].dtype}")
        low, high = (int(self.value(node, given, name)) for name in ("quant_min", "quant_max"))
        info = np.iinfo(dtype)
        if not info.min <= low <= high <= info.max:
            raise wrong(f"a range from {low} to {high}, not one of {dtype}", _where(node))
        if source.name in self.values:  # PyTorch quantizes stored data, also to int32
            stored = {n: self.values.get(getattr(v, "name", ""), v) for n, v in given.items()}
            return relax.const(node.target(**stored).detach().cpu().numpy())
        if dtype == "int32":
            raise _unsupported(node, "it quantizes a computed value to int32")
        operands = importer.env[source], relax.const(scale), relax.const(zero)
        emit = importer.block_builder.emit
        made = emit(relax.op.quantize(*operands, axis, dtype))
        return made if (low, high) == (info.min, info.max) else emit(relax.op.clip(made, low, high))

    def value(self, node: Any, given: dict[str, Any], name: str) -> npt.NDArray[Any]:
        """Return the value of an argument, which is a number, a stored tensor, or left out."""
        many = f"{name}s" in given
        value = given.get(f"{name}s" if many else name)
        if value is None:
            return np.zeros((), "int32")
        if not isinstance(value, (bool, int, float)):
            if value.name not in self.values:
                raise _unsupported(
                    node,
                    f"its {name} is computed when the program runs, by node {value}: dynamic "
                    "quantization",
                )
            value = self.values[value.name].detach().cpu().numpy()
        return np.asarray(value) if many else np.asarray(value).reshape(())


def arguments(node: Any) -> dict[str, Any]:
    """Return a node's arguments by the names of its operator's schema."""
    names = [argument.name for argument in node.target._schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _where(node: Any) -> str:
    return f"node {node.name!r}, operator {LIBRARY}.{node.target.__name__}"


def _unsupported(node: Any, why: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"tvmlab cannot import this quantized operator: {why}",
        where=_where(node),
        fix=f"quantize the network statically; supported are {SUPPORTED}",
    )
