"""Float operators between dequantize and quantize, computed in integers."""

from __future__ import annotations

import tvm
from tvm import ir, relax

from ...errors import InputError
from ...ir.collector import no_collection
from ..config import ROUNDINGS
from .rewrite import Rewriter

__all__ = ["ROUNDING", "FakeQuantizationToInteger"]

#: The attribute of a function in which an importer says how its format rounds.
ROUNDING = "qnn.rounding"


@tvm.transform.module_pass(opt_level=0, name="FakeQuantizationToInteger")
class FakeQuantizationToInteger:
    """The pass: a quantized network that computes in floats in, one that computes in integers out.

    Frontends import a quantized network as float operators between ``R.dequantize`` and
    ``R.quantize``. Each operator between them that has an integer form gets it::

        [nn.pad ->] qnn.conv2d -> nn.bias_add -> qnn.requantize [-> clip]

    with constant weights and biases, where a relu, relu6 or clip is no operator at all if the
    result's dtype ends where it cuts. ``R.quantize`` and ``R.dequantize`` that are left (at the
    ends, and around softmax) become ``relax.qnn`` ones. What has no integer form stays float;
    `tvmlab.qnn.analysis.float_operators` lists it, with the reasons.

    Every integer result is within one step of the float one: what a quantize rounds is rounded
    there, and nothing else is, but for biases and sums added unrounded (to a part of a step, which
    is checked). Where that cannot be had, an operator stays float. Additions and averages of
    windows say ``"TFLITE"`` where the rounding is one of Relay's, which rounds once for all that
    one can see: Relay's additions round both sides first, its averages cut the fraction off.

    A convolution or matrix product that is read as float too, or never quantized, is dequantized
    from its sums, which are exact.

    Parameters
    ----------
    rounding : str, optional
        ``"UPWARD"``, ``"TONEAREST"``, ``"TFLITE"``, ``"ONNX"`` or ``"None"``: what every requantize
        and product says. By default what the function's attribute ``qnn.rounding`` says, which the
        frontends of TensorFlow Lite and ONNX set; else ``"None"``, which leaves it to
        `tvmlab.qnn.config`. The attribute is taken off.

    Raises
    ------
    InputError
        If the rounding is none of these, or, when the pass runs, a scale is zero, negative or not
        finite, or a zero point is out of its dtype's range.

    Notes
    -----
    Relay's `FakeQuantizationToInteger` (src/relay/transforms/fake_quantization_to_integer.cc and
    python/tvm/relay/transform/fake_quantization_to_integer.py, TVM 0.18) looked at the operators
    before each quantize. Here every value is looked at once forwards and once backwards, so the
    time is that of the module's length.

    A quantize that stays rounds half-way cases away from zero, as Relay's and TFLite's, where
    ``R.quantize`` of TVM 0.27 rounded them to even.
    """

    def __init__(self, rounding: str | None = None) -> None:
        if rounding is not None and rounding not in ROUNDINGS:
            raise InputError(
                f'rounding is "{rounding}"; it has to be one of {", ".join(ROUNDINGS)}',
                where="FakeQuantizationToInteger",
            )
        self.rounding = rounding

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        made = {}
        default = rounding_of(mod)
        with no_collection():
            for name, function in mod.functions_items():
                if not isinstance(function, relax.Function):
                    continue
                after = Rewriter(self.rounding or default).function(function)
                if after.attrs and ROUNDING in after.attrs:
                    after = after.without_attr(ROUNDING)
                if after is not function:
                    made[name] = after
        if not made:
            return mod
        changed = mod.clone()
        changed.update(ir.IRModule(made))
        return changed


def rounding_of(mod: ir.IRModule) -> str:
    """Give what a module's ``main`` says of its rounding, ``"None"`` where it says nothing."""
    for name, function in mod.functions_items():
        if name.name_hint == "main" and getattr(function, "attrs", None):
            return str(function.attrs.get(ROUNDING, "None"))
    return "None"
