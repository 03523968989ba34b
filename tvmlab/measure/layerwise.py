"""Find the first layer in which an imported model differs from its original.

`compare` compares values. To compare speeds, use `tvmlab.bench.compare`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from ..compiler import compile
from ..errors import InputError, ModelError
from ..frontend.pytorch import UNDECOMPOSED
from ..frontend.pytorch_custom import decomposed
from ..ir.dialect import OUTPUT_NAMES
from ..ir.values import value_name
from ..models import Model
from ..support.extras import need
from ..support.wording import several, table, telling
from .bench import OnnxRuntime

__all__ = ["Differences", "Row", "compare"]

_MOST_ROWS = 24


@dataclass(frozen=True)
class Row:
    """One value of the module and of the reference.

    Attributes
    ----------
    name, operator, shape : str, str, tuple of int
        The value's name in the reference; the module's operator that computes it, or ``"(output)"``
        for a result of the module; its shape in the module.
    difference : float
        The largest absolute difference, divided by the largest absolute value of the reference
        unless this is 0. It is infinite if the shapes differ, or if only one value is NaN.
    """

    name: str
    operator: str
    shape: tuple[int, ...]
    difference: float


@dataclass(frozen=True)
class Differences:
    """The differences of a module from its reference; print it for a table.

    Attributes
    ----------
    rows : tuple of Row
        The values that both sides name, in the order of their computation, then the outputs.
    tolerance : float
        The largest difference that counts as equal.
    unmatched : tuple of str
        The values that only the module names.
    """

    rows: tuple[Row, ...]
    tolerance: float
    unmatched: tuple[str, ...]

    @property
    def first(self) -> Row | None:
        """The first value whose difference is above the tolerance, or None."""
        return next((row for row in self.rows if row.difference > self.tolerance), None)

    def __str__(self) -> str:
        """Format the values as a table; of a long table, the part around the first difference."""
        first, stop = self.first, len(self.rows)
        if first and stop > _MOST_ROWS:
            stop = min(stop, self.rows.index(first) + _MOST_ROWS // 2)
        start = max(0, stop - _MOST_ROWS)
        shown = self.rows[start:stop]
        rows = [
            (row.name, row.operator, "x".join(map(str, row.shape)), f"{row.difference:.1e}", mark)
            for row in shown
            for mark in ["<- first" if row is first else "*" * (row.difference > self.tolerance)]
        ]
        lines = [table(("value", "operator", "shape", "difference", ""), rows, left=(0, 1, 2, 4))]
        if len(shown) < len(self.rows):
            lines.append(f"rows {start + 1} to {stop} of {len(self.rows)}")
        above = sum(row.difference > self.tolerance for row in self.rows)
        counted = several(len(self.rows), "value")
        lines.append(f"{above} of {counted} differ by more than {self.tolerance:g}")
        return "\n".join(lines)


def compare(
    mod: ir.IRModule, reference: Any, inputs: Any, *, tolerance: float = 1e-4
) -> Differences:
    """Compare the values that a module computes with those of a reference, layer by layer.

    `compile` compiles the module with every named value as an output, and one call computes them
    all. The importers of `tvmlab.load` name values as the model does, and passes keep the names of
    the calls that they do not replace. In modules without such names, as of hand-written ones, the
    names are those of the variables.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        The imported module.
    reference : path, bytes, onnx.ModelProto, tvmlab.models.Model, \
            torch.export.ExportedProgram or tvm.ir.IRModule
        An ONNX model, which ONNX Runtime runs; an exported program, which PyTorch runs; or another
        module, such as the one before a pass.
    inputs : array, sequence of arrays, or mapping of str to array
        The inputs of one call of both.
    tolerance : float
        The largest difference that counts as equal, relative to the largest value of the reference.

    Returns
    -------
    Differences
        Its `first` is the row of the first value that differs.

    Raises
    ------
    InputError
        `mod` is not a module, the inputs do not match the module or the reference, or both have
        different outputs.
    ModelError
        The reference is of no known kind, or cannot run.
    """
    if not isinstance(mod, ir.IRModule):
        what = f"compare compares the values of a module, not of {type(mod).__name__}"
        raise InputError(what, where="compare", fix="pass the module that tvmlab.load returned")
    arrays, have, results = _run(mod, inputs)
    if isinstance(reference, ir.IRModule):
        _, values, wanted = _run(reference, arrays)
        want = {name: value for name, (_, value) in values.items()}
    elif type(reference).__name__ == "ExportedProgram":
        kept = (mod["main"].attrs or {}).get(UNDECOMPOSED, ())
        want, wanted = _run_torch(reference, arrays, kept)
    else:
        want, wanted = _run_onnx(reference, arrays, have)
    if len(results) != len(wanted):
        what = f"the module has {several(len(results), 'output')}, the reference {len(wanted)}"
        raise InputError(what, where="compare", fix="pass the model that was imported")
    names = [*(mod["main"].attrs or {}).get(OUTPUT_NAMES, map(str, range(len(results))))]
    rows = [
        Row(name, operator, value.shape, _difference(value, want[name]))
        for name, (operator, value) in have.items()
        if name in want
    ]
    rows += [
        Row(str(name), "(output)", value.shape, _difference(value, other))
        for name, value, other in zip(names, results, wanted, strict=True)
    ]
    return Differences(tuple(rows), tolerance, tuple(name for name in have if name not in want))


def _run(
    mod: ir.IRModule, inputs: Any
) -> tuple[list[np.ndarray], dict[str, tuple[str, np.ndarray]], list[np.ndarray]]:
    """Run a module; return its inputs, its named values with their operators, and its outputs."""
    plain = relax.transform.ToNonDataflow()(mod)
    main = plain["main"]
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    bindings = [binding for binding in bindings if isinstance(binding.var.ty, relax.TensorType)]
    recorded = any(map(value_name, bindings))
    found = {
        str(name): binding
        for binding in bindings
        if (name := value_name(binding) if recorded else binding.var.name)
    }
    result = relax.Tuple([*(binding.var for binding in found.values()), main.body.body])
    body = relax.SeqExpr(main.body.blocks, result)
    attributes = {name: it for name, it in (main.attrs or {}).items() if name != OUTPUT_NAMES}
    plain["main"] = relax.Function(
        main.params, body, result.ty, main.is_pure, ir.make_node("ir.DictAttrs", **attributes)
    )
    executable = compile(relax.transform.ConvertToDataflow()(plain))
    named = inputs if isinstance(inputs, Mapping) else {}
    listed = () if named else inputs if isinstance(inputs, Sequence) else (inputs,)
    arrays = executable.signature.bind(tuple(listed), named)
    *values, last = executable(*arrays)
    pairs = zip(found.items(), values, strict=True)
    have = {name: (_operator(binding), value) for (name, binding), value in pairs}
    return arrays, have, [*last] if isinstance(last, tuple) else [last]


def _operator(binding: relax.Binding) -> str:
    value = getattr(binding, "value", None)
    kind = getattr(getattr(value, "op", None), "name", type(value).__name__)
    return str(kind).removeprefix("relax.")


def _run_onnx(
    model: Any, arrays: list[np.ndarray], names: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    onnx = need("onnx", extra="onnx")
    copy = _read(onnx, model)
    outputs = [value.name for value in copy.graph.output]
    computed = {name for node in copy.graph.node for name in node.output}
    more = sorted((computed & names.keys()) - {*outputs})
    copy.graph.output.extend(map(onnx.helper.make_empty_tensor_value_info, more))
    made = OnnxRuntime(copy, exact=True)(*arrays)
    values = made if isinstance(made, tuple) else (made,)
    return dict(zip([*outputs, *more], values, strict=True)), [*values[: len(outputs)]]


def _read(onnx: Any, model: Any) -> Any:
    """Return an ONNX model as a message that can be changed."""
    try:
        if isinstance(model, (str, os.PathLike)):
            return onnx.load(model)
        copy = onnx.ModelProto()
        if isinstance(model, (bytes, bytearray)):
            copy.ParseFromString(bytes(model))
        else:
            copy.CopyFrom(model.proto if isinstance(model, Model) else model)
        return copy
    except Exception as error:  # of the file system or of Protocol Buffers
        what = f"compare cannot read the reference: {telling(error)}"
        fix = "pass an ONNX model, an exported PyTorch program, or a module of TVM"
        raise ModelError(what, where=str(model)[:80], fix=fix) from error


def _run_torch(
    program: Any, arrays: list[np.ndarray], kept: Sequence[str]
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    import torch

    values: dict[str, np.ndarray] = {}

    def array(tensor: Any) -> np.ndarray:
        wide = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
        return np.array(wide.detach().numpy())

    class Recorder(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: Any) -> Any:
            made = super().run_node(node)
            if isinstance(made, torch.Tensor) and node.op == "call_function":
                values[node.name] = array(made)
            return made

    module = decomposed(program, kept).module()
    # TVM copies the arrays, because NumPy itself has no bfloat16.
    tensors = [torch.from_dlpack(tvm.runtime.tensor(one)) for one in arrays]
    with torch.inference_mode():
        results = Recorder(module).run(*tensors, enable_io_processing=False)
    flat = torch.utils._pytree.tree_leaves(results)
    return values, [array(value) for value in flat]


def _difference(have: np.ndarray, want: Any) -> float:
    """Return the largest difference, relative to the largest value of the reference."""
    want = np.asarray(want)
    if have.shape != want.shape:
        return float("inf")
    # A long double has the 64 bits of the longest integers.
    kind = np.float64 if have.dtype.kind == want.dtype.kind == "f" else np.longdouble
    a, b = have.astype(kind), want.astype(kind)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.nan_to_num(np.where(same, 0, np.abs(a - b)), nan=np.inf, posinf=np.inf)
    largest = np.max(np.abs(b), initial=0, where=np.isfinite(b))
    return float(np.max(apart, initial=0) / (largest or 1))
