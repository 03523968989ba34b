"""The networks that the accelerator is held against, in their integer form."""

from __future__ import annotations

from typing import Literal

import tvm
from tvm import relax

import tvmlab
from tests.oracles.models import real_model
from tvmlab import models
from tvmlab.models import torch_form
from tvmlab.models.quantized import quantized_onnx, quantized_torch
from tvmlab.qnn.transform import FakeQuantizationToInteger

Form = Literal["QDQ", "QOperator", "PT2E"]


def digits(form: Form) -> tvm.IRModule:
    """Return the digits network, quantized in one of three ways, for one digit."""
    if form == "PT2E":
        return FakeQuantizationToInteger()(tvmlab.load(quantized_torch(batch=1).program))
    return FakeQuantizationToInteger()(
        tvmlab.load(quantized_onnx(models.digits_resnet(), format=form))
    )


def resnet50(form: Form) -> tvm.IRModule:
    if form == "PT2E":
        mod = tvmlab.load(quantized_torch(torch_form.of(models.resnet50_v2("seeded"))).program)
    else:
        mod = tvmlab.load(quantized_onnx(models.resnet50_v2(), format=form))
    return FakeQuantizationToInteger()(mod)


def resnet8() -> tvm.IRModule:
    return FakeQuantizationToInteger()(tvmlab.load(real_model("resnet8_int8.tflite")))


def integers_out(mod: tvm.IRModule) -> tvm.IRModule:
    """Cut a network behind its integers: it returns what it would have dequantized last."""
    main = mod["main"]
    bindings = [one for block in main.body.blocks for one in block.bindings]
    last = next(
        binding.value.args[0]
        for binding in reversed(bindings)
        if isinstance(binding.value, relax.Call)
        and getattr(binding.value.op, "name", "") == "relax.qnn.dequantize"
    )
    result = relax.Var("result", last.ty)
    block = relax.DataflowBlock([*bindings, relax.VarBinding(result, last)])
    made = relax.Function(main.params, relax.SeqExpr([block], result), last.ty, attrs=main.attrs)
    cut = tvm.IRModule({"main": made}, attrs=mod.attrs)
    return relax.transform.DeadCodeElimination()(cut)
