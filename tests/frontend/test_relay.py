"""Relay text as a model file."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm

import tvmlab
from tvmlab.errors import ModelError, RelayError, ShapeError
from tvmlab.ir.text.reader import fromtext

DATA = Path(__file__).parents[1] / "data" / "relay"


def test_a_file_its_bytes_and_its_text_are_the_same_module() -> None:
    path = DATA / "mlp.relay"
    expected = fromtext(path.read_text())
    for model in (path, path.read_bytes(), b"\n" + path.read_bytes()):
        tvm.ir.assert_structural_equal(tvmlab.load(model), expected)


def test_what_is_no_relay_text_is_refused() -> None:
    with pytest.raises(RelayError, match="ends too early"):
        tvmlab.load(b"def @main() {")
    with pytest.raises(ModelError, match="no UTF-8"):
        tvmlab.load(b'#[version = "0.0.5"]\xff')
    with pytest.raises(ShapeError, match="declares the shapes"):
        tvmlab.load(DATA / "mlp.relay", shapes={"data": (1, 1, 8, 8)})
