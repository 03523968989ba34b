"""Float operators between dequantize and quantize, computed in integers."""

from __future__ import annotations

import tvm
from tvm import ir, relax

from ...errors import InputError
from ...ir.graph import no_collection
from ..config import ROUNDINGS
from .context import any_quantize, nested
from .rewrite import Rewriter

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
    before each quantize. Here each quantize asks its operand for integers, which asks its own; what
    was computed once is kept, so the time is that of the module's length.

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
        given, mod = mod, one_scope(mod)
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
        return changed if mod is given else relax.transform.ConvertToDataflow()(changed)


def rounding_of(mod: ir.IRModule) -> str:
    """Give what a module's ``main`` says of its rounding, ``"None"`` where it says nothing."""
    for name, function in mod.functions_items():
        if name.name_hint == "main" and getattr(function, "attrs", None):
            return str(function.attrs.get(ROUNDING, "None"))
    return "None"


def one_scope(mod: ir.IRModule) -> ir.IRModule:
    """Make one block of each body, so that a value is visible wherever it is asked for."""
    bodies = (f.body for f in mod.functions.values() if isinstance(f, relax.Function))
    if not any(map(_divided, bodies)):
        return mod
    return relax.transform.ToNonDataflow()(mod)


def _divided(body: relax.Expr) -> bool:
    """Whether a body that quantizes has a dataflow block among others."""
    blocks = list(body.blocks)
    if any(isinstance(block, relax.DataflowBlock) for block in blocks) and len(blocks) > 1:
        return any_quantize(body)
    values = (binding.value for block in blocks for binding in block.bindings)
    return any(_divided(inner) for value in values for inner in nested(value))
