"""What the real Relay computed, as calls of quantized operators."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent / "data" / "qnn"
# All of the results, of which those here are a selection, beside the repository.
WHOLE = Path(__file__).parents[2] / "shared" / "golden" / "qnn"

# Operators whose way of changing scales was configured rather than given.
CONFIGURED = ("add", "subtract", "mul", "concatenate")


@dataclass
class Case:
    """A call: the operator, its tensors, its scales and attributes, and Relay's result."""

    name: str
    op: str
    tensors: dict[str, Any]
    arguments: dict[str, Any]
    config: dict[str, str]
    expected: np.ndarray


def names(folder: Path = HERE) -> list[str]:
    """Name the cases in a folder; none where there is no such folder."""
    path = folder / "cases.json"
    return [row["file"] for row in json.loads(path.read_text())] if path.exists() else []


def read(name: str, folder: Path = HERE) -> Case:
    """Read a case."""
    rows = json.loads((folder / "cases.json").read_text())
    row = dict(next(row for row in rows if row["file"] == name))
    op = row.pop("op")
    del row["file"]
    with np.load(folder / name) as arrays:
        tensors: dict[str, Any] = {key[3:]: arrays[key] for key in arrays if key != "out"}
        expected = arrays["out"]
    if op in ("quantize", "dequantize"):
        side = "output" if op == "quantize" else "input"
        row = {
            f"{side}_{key}" if key in ("scale", "zero_point") else key: value
            for key, value in row.items()
        }
    elif op in ("conv2d", "dense"):
        row |= {"input_scale": 0.5, "kernel_scale": 0.25}  # The sums do not depend on them.
        if "weight" in row:
            tensors["kernel"] = np.load(folder / row.pop("weight"))
    elif op == "concatenate":
        tensors = {"data": list(tensors.values())}
    config = (
        {key: row.pop(key) for key in ("rounding", "compute_dtype")} if op in CONFIGURED else {}
    )
    return Case(name, op, tensors, row, config, expected)
