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

from ..errors import ModelError, UnsupportedOperatorError

__all__ = ["LIBRARY", "SUPPORTED", "arguments", "converters"]

LIBRARY = "quantized_decomposed"
#: What is imported, for errors.
SUPPORTED = (
    "quantize_per_tensor and dequantize_per_tensor (default, tensor, tensor2), "
    "quantize_per_channel and dequantize_per_channel, between float32 and int8, uint8, int16 or "
    "int32 (what is stored only), with scales and zero points that are numbers or stored too"
)
_INTEGERS = ("int8", "uint8", "int16", "int32")
_NAMES = [f"per_tensor.{overload}" for overload in ("default", "tensor", "tensor2")]
_NAMES.append("per_channel.default")

Converter = Callable[[Any, Any], relax.Expr]


def converters(program: Any) -> dict[str, Converter]:
    """Make the converters for one program.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        It holds scales and zero points that are tensors.

    Returns
    -------
    dict of str to callable
        By the name upstream looks for, functions of a node and upstream's importer; the
        ``custom_convert_map`` of `tvm.relax.frontend.torch.from_exported_program`. They raise
        `UnsupportedOperatorError` and `ModelError`.
    """
    stored = {**program.constants, **program.state_dict}
    signature = program.graph_signature
    places = {
        **signature.inputs_to_buffers,
        **signature.inputs_to_parameters,
        **signature.inputs_to_lifted_tensor_constants,
    }
    values = {name: stored[target] for name, target in places.items() if target in stored}
    return {
        f"{kind}_{name}": _Converter(values)
        for kind in ("quantize", "dequantize")
        for name in _NAMES
    }


class _Converter:
    """Turns one node into a call.

    Parameters
    ----------
    values : dict of str to torch.Tensor
        The program's stored tensors, by the names of their nodes.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def __call__(self, node: Any, importer: Any) -> Any:
        """Emit the operator of a node, called by upstream's importer."""
        given = arguments(node)
        dtype = str(given["dtype"]).removeprefix("torch.")
        scale, zero = self.parameters(node, given, dtype)
        axis = self.axis(node, given, scale, zero)
        source = given["input"]
        if node.target.__name__.startswith("dequantize"):
            out = given.get("out_dtype")
            if out is not None and str(out) != "torch.float32":
                raise _unsupported(node, f"the result is {out}")
            data = importer.env[source]
            return importer.block_builder.emit(
                relax.op.dequantize(data, relax.const(scale), relax.const(zero), axis)
            )
        kept = source.meta["val"].dtype
        if str(kept) != "torch.float32":
            raise _unsupported(node, f"it reads {kept}")
        low, high = self.limits(node, given, dtype)
        if dtype == "int32":
            return self.folded(node, given)
        data, emit = importer.env[source], importer.block_builder.emit
        info = np.iinfo(dtype)
        made = emit(relax.op.quantize(data, relax.const(scale), relax.const(zero), axis, dtype))
        if (low, high) == (info.min, info.max) or self.within(source, scale, zero, axis, low, high):
            return made
        return emit(relax.op.clip(made, low, high))

    def folded(self, node: Any, given: dict[str, Any]) -> relax.Expr:
        """Quantize what is stored, by PyTorch itself: ``R.quantize`` makes no int32."""
        if getattr(given["input"], "name", "") not in self.values:
            raise _unsupported(node, "it quantizes a computed value to int32")
        given = {name: self.values.get(getattr(v, "name", ""), v) for name, v in given.items()}
        return relax.const(node.target(**given).detach().cpu().numpy())

    def parameters(
        self, node: Any, given: dict[str, Any], dtype: str
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
        """Read a node's scale and zero point: scalars, or one a channel."""
        if dtype not in _INTEGERS:
            raise _unsupported(node, f"it quantizes to {dtype}")
        many = "scales" in given
        scale = self.value(node, given["scales" if many else "scale"], "scale")
        zero = given.get("zero_points" if many else "zero_point")
        zero = np.zeros_like(scale) if zero is None else self.value(node, zero, "zero_point")
        if not many:
            scale, zero = scale.reshape(()), zero.reshape(())
        scale = scale.astype("float32")
        bad = ~np.isfinite(scale) | (scale <= 0)
        if bad.any():
            raise _wrong(node, f"a scale of {scale[bad].ravel()[0]}, not positive and finite")
        info = np.iinfo(dtype)
        bad = (zero < info.min) | (zero > info.max)
        if bad.any():
            raise _wrong(node, f"a zero point of {zero[bad].ravel()[0]}, out of {dtype}'s range")
        return scale, zero.astype("int32")

    def value(self, node: Any, value: Any, name: str) -> npt.NDArray[Any]:
        """Give an argument's value, a number's or a stored tensor's."""
        if isinstance(value, (bool, int, float)):
            return np.asarray(value)
        stored = self.values.get(getattr(value, "name", ""))
        if stored is None:
            raise _unsupported(
                node,
                f"its {name} is computed when the program runs, by node {value}: dynamic "
                "quantization",
            )
        return np.asarray(stored.detach().cpu().numpy())

    def axis(self, node: Any, given: dict[str, Any], scale: Any, zero: Any) -> int:
        """Give the channels' axis; -1 where there is one scale."""
        if "axis" not in given:
            return -1
        shape = given["input"].meta["val"].shape
        axis = int(given["axis"])
        if not -len(shape) <= axis < len(shape):
            raise _wrong(node, f"axis {axis} of a tensor with {len(shape)} dimensions")
        for name, value in (("scales", scale), ("zero points", zero)):
            if value.size != shape[axis]:
                raise _wrong(node, f"{value.size} {name} for {shape[axis]} channels")
        return axis % len(shape)

    def limits(self, node: Any, given: dict[str, Any], dtype: str) -> tuple[int, int]:
        """Give the least and the greatest integer that a quantize may make."""
        low, high = (
            int(self.value(node, given[name], name)) for name in ("quant_min", "quant_max")
        )
        info = np.iinfo(dtype)
        if not info.min <= low <= high <= info.max:
            raise _wrong(node, f"a range from {low} to {high}, not one of {dtype}")
        return low, high

    def within(self, source: Any, scale: Any, zero: Any, axis: int, low: int, high: int) -> bool:
        """Say whether what is quantized is stored and stays within the limits by itself."""
        stored = self.values.get(getattr(source, "name", ""))
        if stored is None:
            return False
        data = stored.detach().cpu().numpy()
        if scale.ndim:
            shape = [-1 if i == axis else 1 for i in range(data.ndim)]
            scale, zero = scale.reshape(shape), zero.reshape(shape)
        made = np.rint(data / scale) + zero
        return bool(data.size and made.min() >= low and made.max() <= high)


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


def _wrong(node: Any, why: str) -> ModelError:
    return ModelError(
        f"a quantized operator is wrong: {why}",
        where=_where(node),
        fix="quantize the network again; torch.ao's operators check these when they run",
    )
