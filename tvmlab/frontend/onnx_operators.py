"""Converters for ONNX operators that upstream's importer turns into TIR loops.

Here they become Relax operators. No pass can tell the layout of a loop, whether it has an integer
form, or whether it reads outside its tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend as upstream

__all__ = ["Importer"]

_MODES = {"edge": "replicate", "reflect": "reflect", "wrap": "circular"}


class Importer(upstream.ONNXGraphImporter):  # type: ignore[misc]
    """Upstream's importer with other converters for some operators."""

    def _convert_operator(
        self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        converter = _CONVERTERS.get(op_name)
        if converter is None:
            return super()._convert_operator(op_name, inputs, attrs, opset)
        convert = converter.get_converter(opset)
        return self.bb.normalize(convert(self.bb, inputs, attrs, [self._nodes, self._params]))


class _Pad(upstream.Pad):  # type: ignore[misc]
    @classmethod
    def _impl_v2(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> relax.Expr:
        pads, value = np.array(attr["pads"], "int64"), np.float32(attr.get("value", 0))
        given = [inputs[0], relax.const(pads), relax.const(value), None]
        return cls._lower_pad(bb, given, attr, params, {"constant", *_MODES})

    @classmethod
    def _lower_pad(
        cls, bb: Any, inputs: Any, attr: Any, params: Any, allowed_modes: set[str]
    ) -> relax.Expr:
        before, after, value = cls._parse_pads_and_axes(inputs, params)
        mode, number = attr.get("mode", b"constant").decode(), float(value)
        exact = number == value or value != value
        if mode not in allowed_modes or not exact:  # the attribute of `nn.pad` is a float64
            return super()._lower_pad(bb, inputs, attr, params, allowed_modes)
        widths = [width for pair in zip(before, after, strict=True) for width in pair]
        return relax.op.nn.pad(inputs[0], widths, _MODES.get(mode, mode), number)


class _Einsum(upstream.Einsum):  # type: ignore[misc]
    @classmethod
    def _impl_v12(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> relax.Expr:
        return relax.op.einsum(tuple(inputs), attr["equation"].decode())


_CONVERTERS: dict[str, Any] = {"Pad": _Pad, "Einsum": _Einsum}
