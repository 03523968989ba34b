"""Arguments of kernels, their answers, and interleaved timing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import tvm

from tests.tuning import kernels
from tvmlab import host_target
from tvmlab.tuning import Measure
from tvmlab.tuning.kernels import Kernel, build, fingerprint, inputs, measure
from tvmlab.tuning.tasksearch import same_answer

TARGET = json.loads(str(host_target()))
HOW = Measure(repeat=3)


def test_inputs_have_the_range_of_their_type() -> None:
    shape = (4000,)
    made = inputs(
        tuple(
            (shape, dtype) for dtype in ("float32", "int8", "uint8", "int32", "bool", "bfloat16")
        ),
        (),
    )
    floats, signed, unsigned, whole, flags, brain = made
    assert floats.dtype == np.float32
    assert -1 <= floats.min() < -0.9 < 0.9 < floats.max() <= 1
    assert (signed.min(), signed.max()) == (-128, 127)
    assert (unsigned.min(), unsigned.max()) == (0, 255)
    assert not whole.any()
    assert not flags.any()
    assert str(brain.dtype) == "bfloat16"
    assert len(np.unique(brain.astype(np.float32))) > 100


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
        answers = measure([whole, other], HOW, 0)["answers"]
        assert same_answer(*answers, [0.0]) is same


def test_a_fingerprint_tells_outputs_apart() -> None:
    output = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
    magnitudes, signed = fingerprint([output])
    assert magnitudes == 2 + 1 + 0 + 1 + 2 + 3
    assert fingerprint([output[::-1]])[0] == magnitudes
    assert fingerprint([output[::-1].copy()])[1] != signed
    assert fingerprint([output.astype(np.int8)]) == [magnitudes, signed]
    assert fingerprint([output, output]) == [magnitudes, signed] * 2


def test_the_answer_is_that_of_what_is_written() -> None:
    kernel = build(tvm.ir.save_json(kernels.adds(1.0)), TARGET)
    x, y = inputs(kernel.arguments, kernel.outputs)
    assert not np.array_equal(x, y)  # each has its own numbers
    (answer,) = measure([kernel], HOW, 0)["answers"]
    assert answer == pytest.approx(fingerprint([x + np.float32(1)]))


class Timed:
    """A module whose timer says who was asked, and how."""

    def __init__(self, name: str, asked: list[tuple[str, dict[str, object]]]) -> None:
        self.name, self.asked = name, asked

    def __getitem__(self, _function: str) -> Any:
        return lambda *_: None

    def time_evaluator(self, _function: str, _device: object, **how: object) -> Any:
        def call(*_: object) -> object:
            self.asked.append((self.name, how))
            return type("Found", (), {"results": [1.0] * int(str(how["repeat"]))})

        return call


def test_kernels_in_turn_change_their_order() -> None:
    asked: list[tuple[str, dict[str, object]]] = []
    timed = [Kernel(Timed(name, asked), (), ()) for name in "abc"]
    times = measure(timed, Measure(2, 5, 7), rounds=3)["times"]
    assert "".join(name for name, _ in asked) == "abccbaabc"
    assert times == [[1.0] * 3] * 3
    assert asked[0][1]["f_preproc"] == "cache_flush_cpu_non_first_arg"
