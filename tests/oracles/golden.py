"""What the real Relay computed, as calls of quantized operators."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax

import tvmlab
from tvmlab.qnn import arithmetic, op
from tvmlab.qnn.config import requantize_config

HERE = Path(__file__).parents[1] / "data" / "qnn"
# All of the results, of which those here are a selection, lie beside the repository.
WHOLE = "golden/qnn"

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
    """Name the cases in a folder."""
    return [row["file"] for row in json.loads((folder / "cases.json").read_text())]


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


def computed(case: Case) -> np.ndarray:
    """Compute a case by the reference arithmetic."""
    with requantize_config(**case.config):
        found = getattr(arithmetic, case.op)(**case.tensors, **case.arguments)
    assert isinstance(found, np.ndarray)
    return found


def call(case: Case) -> tuple[relax.Call, list[relax.Var], list[np.ndarray]]:
    """Make one of Relay's calls; weights and parameters are constants."""
    variables, arrays, operands = [], [], {}
    for name, value in case.tensors.items():
        given = []
        for array in value if isinstance(value, list) else [value]:
            if name in ("kernel", "weight"):
                given.append(relax.const(array))
                continue
            ty = relax.TensorType(array.shape, str(array.dtype))
            variables.append(relax.Var(f"x{len(variables)}", ty))
            arrays.append(array)
            given.append(variables[-1])
        operands[name] = given if isinstance(value, list) else given[0]
    attributes: dict[str, Any] = (
        {"channels": None, "kernel_size": None} if case.op == "conv2d" else {}
    )
    attributes |= {"units": None} if case.op == "dense" else {}
    for name, value in case.arguments.items():
        dtype = "float32" if "scale" in name else "int32"
        if name.startswith("input_scales") or name.startswith("input_zero_points"):
            attributes[name] = [relax.const(np.asarray(each, dtype)) for each in value]
        elif "scale" in name or "zero_point" in name:
            attributes[name] = relax.const(np.asarray(value, dtype))
        else:
            attributes[name] = value
    return getattr(op, case.op)(**operands, **attributes), variables, arrays


def compiled(cases: Sequence[Case], schedule: bool) -> tuple[np.ndarray, ...]:
    """Compute cases that are configured alike, compiled as one module."""
    made = [call(case) for case in cases]
    builder = relax.BlockBuilder()
    with builder.function("main", [var for _, variables, _ in made for var in variables]):
        with builder.dataflow():
            results = [builder.emit_output(one) for one, _, _ in made]
        builder.emit_func_output(relax.Tuple(results))
    with requantize_config(**cases[0].config):
        run = tvmlab.compile(builder.get(), schedule=schedule)
    found = run(*(array for _, _, arrays in made for array in arrays))
    assert isinstance(found, tuple)
    return found


def by_configuration(folder: Path) -> list[list[Case]]:
    """Read the cases of a folder in lists of those that are configured alike."""
    groups: dict[str, list[Case]] = {}
    for name in sorted(names(folder)):
        case = read(name, folder)
        groups.setdefault(str(case.config), []).append(case)
    return list(groups.values())


def check(case: Case, found: np.ndarray, ulp: int = 1) -> None:
    """Hold a result against Relay's: bit for bit; dequantize can differ by `ulp`."""
    assert (found.dtype, found.shape) == (case.expected.dtype, case.expected.shape)
    if case.op == "dequantize":
        np.testing.assert_array_max_ulp(found, case.expected, ulp)
    else:
        message = f"{case.name} {case.arguments}"
        np.testing.assert_array_equal(found, case.expected, err_msg=message)
