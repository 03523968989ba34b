"""The networks that the contract's tests compile, partition and print."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from _pytest.mark import ParameterSet
from tvm import relax

import tvmlab
from tests.short import long
from tvmlab import models, relay
from tvmlab.models.quantized import calibration_pictures, quantized_onnx, quantized_torch
from tvmlab.models.resnet8 import resnet8_tflite
from tvmlab.qnn.transform import FakeQuantizationToInteger

TESTS = Path(__file__).resolve().parent.parent
#: Texts that Relay printed, by their names; wherever they lie among the tests.
TEXTS = {path.stem: path for path in sorted(TESTS.rglob("*.relay"))}


@relax.expr_functor.mutator
class _Coarse(relax.PyExprMutator):
    """Round scales to eight significant bits.

    A quantizer measures ranges with the float kernels of the processor that it runs on, so the last
    bits of a scale differ between machines.
    """

    def visit_generic_const_(self, op: tvm.ir.GenericConst) -> relax.Expr:
        value = op.value.numpy()
        if value.dtype != np.float32:
            return op
        fraction, exponent = np.frexp(value)
        return relax.const(np.ldexp(np.round(fraction * 256) / 256, exponent).astype("float32"))


def _integer(mod: tvm.IRModule) -> tvm.IRModule:
    coarse = _Coarse(mod)
    coarse.builder_.update_func(mod.get_global_var("main"), coarse.visit_expr(mod["main"]))
    return FakeQuantizationToInteger()(coarse.builder_.get())


def _digits_torch() -> tvm.IRModule:
    example = (torch.zeros(1, 1, 8, 8),)
    return tvmlab.load(torch.export.export(models.torch_digits_resnet().eval(), example))


def _mobilenet_int8() -> tvm.IRModule:
    pictures = calibration_pictures((3, 224, 224))[:1]
    return _integer(tvmlab.load(quantized_onnx(models.mobilenet_v2(), calibration=pictures)))


FLOAT: dict[str, Callable[[], tvm.IRModule]] = {
    "digits": lambda: tvmlab.load(models.digits_resnet()),
    "digits of any batch": lambda: tvmlab.load(
        models.digits_resnet(batch=None), shapes={"data": ("n", 1, 8, 8)}
    ),
    "digits from PyTorch": _digits_torch,
    "mlp from Relay's text": lambda: relay.fromtext(TEXTS["mlp"].read_text(encoding="utf-8")),
    "mobilenet_v2": lambda: tvmlab.load(models.mobilenet_v2()),
    "resnet18_v2": lambda: tvmlab.load(models.resnet18_v2()),
    "resnet50_v2": lambda: tvmlab.load(models.resnet50_v2("seeded")),
}
INT8: dict[str, Callable[[], tvm.IRModule]] = {
    "digits int8 QDQ": lambda: _integer(tvmlab.load(quantized_onnx(models.digits_resnet()))),
    "digits int8 QOperator": lambda: _integer(
        tvmlab.load(quantized_onnx(models.digits_resnet(), format="QOperator"))
    ),
    "digits int8 PT2E": lambda: _integer(tvmlab.load(quantized_torch(batch=1).program)),
    "resnet8 int8": lambda: _integer(tvmlab.load(resnet8_tflite())),
    "mobilenet_v2 int8": _mobilenet_int8,
}

#: Networks that every `make test` checks; the others have the marker `full`.
SMALL = ("digits", "digits int8 QDQ", "digits int8 QOperator", "resnet8 int8")


def case(name: str, *rest: object) -> ParameterSet:
    """Return the parameters of a test of a network, marked `full` where it takes long."""
    return pytest.param(name, *rest, marks=() if name in SMALL else long)


@functools.cache
def network(name: str) -> tvm.IRModule:
    """Build one of the networks; the quantized ones in their integer form."""
    return (FLOAT | INT8)[name]()
