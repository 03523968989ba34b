"""Arguments of kernels, their answers, and interleaved timing."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm

from tests.tuning import kernels
from tvmlab import host_target
from tvmlab.tuning import Measure
from tvmlab.tuning.kernels import build, fingerprint, inputs, measure
from tvmlab.tuning.tasksearch import same_answer

TARGET = json.loads(str(host_target()))
HOW = Measure(repeat=3)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "int64", "float32"])
def test_what_is_not_written_is_no_zero(dtype: str) -> None:
    read, unwritten = inputs((((90,), dtype), ((90,), dtype)), (1,))
    assert str(read.dtype) == str(unwritten.dtype) == dtype
    assert fingerprint([unwritten]) != fingerprint([np.zeros_like(unwritten)])
    if "int" in dtype and not dtype.endswith("int8"):
        assert not read.any()
        assert unwritten.all()


def test_a_kernel_that_leaves_half_of_its_output() -> None:
    whole, half = (
        build(tvm.ir.save_json(kernel), TARGET) for kernel in (kernels.Counts, kernels.CountsHalf)
    )
    for other, same in ((half, False), (whole, True)):
        one, two = measure([whole, other], HOW, 0)
        assert same_answer(one.answer, two.answer, [0.0]) is same


def test_the_answer_is_that_of_what_is_written() -> None:
    kernel = build(tvm.ir.save_json(kernels.adds(1.0)), TARGET)
    x, y = inputs(kernel.arguments, kernel.outputs)
    assert not np.array_equal(x, y)  # each has its own numbers
    (outcome,) = measure([kernel], HOW, 0)
    assert list(outcome.answer) == pytest.approx(fingerprint([x + np.float32(1)]))
