"""Quantized operators: the types of their results, and their rows in Relay's table."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tvmlab.ir.text.printer import astext
from tvmlab.ir.text.reader import fromtext
from tvmlab.qnn import op, rows  # noqa: F401 (rows fills the table)

DATA = Path(__file__).parents[1] / "data" / "relay"


ONE_ROW = """
import numpy as np, tvm, tvmlab
from tvm import relax
from tvmlab.qnn import arithmetic, op, unary

unary.unary("sin", "Sine", np.sin)

from tests.qnn.graphs import Network
from tvmlab import relay
from tvmlab.qnn import transform  # and so the tables, which are made of the definitions

x, net = np.arange(-128, 128, dtype="int8"), Network(([256], "int8"))
wanted = arithmetic.sin(x, np.float32(0.03), 5, 1 / 127, -3)
real = np.sin((x.astype("float64") - 5) * 0.03) * 127 - 3
assert np.abs(wanted - np.clip(real, -128, 127)).max() < 0.51
made = net.emit(relax.op.sin(net.real(net.inputs[0], 0.03, 5)))
found = transform.FakeQuantizationToInteger()(net.module(net.quantized(made, 1 / 127, -3)))
assert "R.qnn.sin" in found.script() and np.array_equal(tvmlab.compile(found)(x), wanted)
tvm.ir.assert_structural_equal(relay.fromtext(relay.astext(found)), found)
tvm.ir.assert_structural_equal(tvm.script.from_source(found.script(show_meta=True)), found)
help(op.sin)
"""


def test_a_function_is_one_row() -> None:
    """As CONTRIBUTING says, in a process of its own, which the operator does not outlive."""
    done = subprocess.run([sys.executable, "-c", ONE_ROW], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Sine of a quantized tensor's real values" in done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "rewrite/torch_before",
        "rewrite/torch_after_partitioned",
        "rewrite/tflite_after",
        "mlp",
        "mobilenet",
        "resnet50",
        "resnet8_cifar",
    ],
)
def test_calls_come_out_as_relay_printed_them(name: str) -> None:
    """Operators, attributes, defaults and inferred types, as Relay 0.18 printed them."""
    text = (DATA / f"{name}.relay").read_text().split("#[metadata]")[0]
    calls = [line for line in text.splitlines() if re.search(r"\bq?nn\.", line)]
    assert len(calls) > 3
    printed = astext(fromtext((DATA / f"{name}.relay").read_text())).splitlines()
    assert [line for line in printed if re.search(r"\bq?nn\.", line)] == calls
