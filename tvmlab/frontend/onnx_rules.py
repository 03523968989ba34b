"""ONNX's own rules for nodes, which onnx's checker does not apply and converters rely on.

ONNX defines for each operator how the dtypes and shapes of results follow from the operands. Its
shape inference, which also refuses wrong operands and attributes, is called for each node with the
types that Relax has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx
from onnx.shape_inference import InferenceError, infer_node_outputs

from ..errors import ModelError
from ..ir.dialect import WIDENED
from ..support.wording import telling

__all__ = [
    "check_attributes",
    "check_dtypes",
    "check_opsets",
    "disagreement",
    "inferred",
    "schema_of",
]

#: The values of attributes that are words, by attribute or by operator and attribute. ONNX's
#: schemas give them in prose only.
_CHOICES = {
    "approximate": "none tanh",
    "auto_pad": "NOTSET SAME_UPPER SAME_LOWER VALID",
    "BitShift.direction": "LEFT RIGHT",
    "Resize.coordinate_transformation_mode": "half_pixel half_pixel_symmetric pytorch_half_pixel "
    "align_corners asymmetric tf_half_pixel_for_nn tf_crop_and_resize",
    "RoiAlign.coordinate_transformation_mode": "half_pixel output_half_pixel",
    "DepthToSpace.mode": "DCR CRD",
    "direction": "forward reverse bidirectional",
    "GridSample.mode": "linear bilinear nearest cubic bicubic",
    "keep_aspect_ratio_policy": "stretch not_larger not_smaller",
    "nearest_mode": "round_prefer_floor round_prefer_ceil floor ceil",
    "Pad.mode": "constant reflect edge wrap",
    "padding_mode": "zeros border reflection",
    "reduction": "none sum mean add mul max min",
    "Resize.mode": "nearest linear cubic",
    "RoiAlign.mode": "avg max",
}
#: A number of elements. With more, TVM's 64-bit arithmetic on sizes in bytes can overflow.
_LARGEST = 2**48
#: Attributes that are factors.
_FINITE = {"alpha", "beta", "epsilon", "gamma"}
#: Operators whose inference differs from their definition: its default of ``onesided`` is 0.
_UNRELIABLE = {"STFT"}
_FIX = "correct the model; ONNX's documentation of operators says what each requires"


def check_opsets(model: Any, where: str) -> None:
    """Refuse a version of ONNX's operators that the installed onnx does not define."""
    newest = onnx.defs.onnx_opset_version()
    for one in model.opset_import:
        if one.domain in ("", "ai.onnx") and not 1 <= one.version <= newest:
            what = f"the model uses opset {one.version}, but onnx defines 1 to {newest} here"
            raise ModelError(what, where=where, fix="export with an older opset, or update onnx")


def check_dtypes(graph: Any, where: str) -> None:
    """Refuse weights and inputs of strings, of complex numbers and of no dtype."""
    dtypes = {one.name: one.data_type for one in graph.initializer}
    dtypes |= {one.name: one.type.tensor_type.elem_type or 1 for one in graph.input}
    names = {number: name for name, number in onnx.TensorProto.DataType.items()}
    for name, number in dtypes.items():
        kind = names.get(number, str(number))
        if not kind.startswith(("FLOAT", "BFLOAT", "DOUBLE", "INT", "UINT", "BOOL")):
            what = f"the tensor {name!r} has the dtype {kind}, which TVM does not have"
            raise ModelError(what, where=where, fix="use numbers or booleans")


def check_attributes(node: Any, where: str) -> None:
    """Refuse words and numbers that are no values of a node's attributes."""
    for one in node.attribute:
        if one.name in _FINITE and not math.isfinite(one.f):
            raise ModelError(f"attribute {one.name!r} is {one.f}", where=where, fix=_FIX)
        allowed = _CHOICES.get(f"{node.op_type}.{one.name}", _CHOICES.get(one.name))
        if allowed and one.s.decode(errors="replace") not in allowed.split():
            what = f"attribute {one.name!r} is {one.s!r}, which is not one of: {allowed}"
            raise ModelError(what, where=where, fix=_FIX)


def schema_of(node: Any, opset: int) -> Any:
    """Return ONNX's definition of a node's operator, None for an operator of another domain."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        return onnx.defs.get_schema(node.op_type, *([] if domain else [opset]), domain)
    except onnx.defs.SchemaError:
        return None


def inferred(
    node: Any,
    opset: int,
    types: Sequence[onnx.TypeProto | None],
    constants: dict[str, Any],
    where: str,
) -> dict[str, onnx.TypeProto]:
    """Return the types of a node's results, by name; none if ONNX does not determine them.

    An operand's type is None if the operand is absent, and empty if it is unknown. `constants` are
    the arrays of small operands. Raises `ModelError` if ONNX's rules forbid the node.
    """
    schema = schema_of(node, opset)
    if schema is None or any(one is not None and not one.WhichOneof("value") for one in types):
        return {}
    for number, one in enumerate(types):
        formal = schema.inputs[min(number, len(schema.inputs) - 1)]
        if one is not None and (text := _text(one)) not in formal.types:
            what = f"the operand {formal.name} of {node.op_type} is {text}"
            fix = f"pass one of {', '.join(sorted(formal.types))}"
            raise ModelError(what, where=where, fix=fix)
    if any(attribute.HasField("g") for attribute in node.attribute):
        return {}  # The types of values around the subgraph are unknown here.
    known = {n: one for n, one in zip(node.input, types, strict=True) if one is not None}
    data = {n: onnx.numpy_helper.from_array(value, n) for n, value in constants.items()}
    imports = [onnx.helper.make_opsetid("", opset)]
    try:
        made: dict[str, onnx.TypeProto] = infer_node_outputs(
            schema, node, known, data, opset_imports=imports
        )
    except (InferenceError, onnx.checker.ValidationError) as error:
        what = f"operator {node.op_type} breaks ONNX's rules: {telling(error)}"
        raise ModelError(what, where=where, fix=_FIX) from error
    return {} if node.op_type in _UNRELIABLE else made


def _text(kind: onnx.TypeProto) -> str:
    """Return a type as ONNX's schemas write it."""
    if kind.HasField("sequence_type"):
        return f"seq({_text(kind.sequence_type.elem_type)})"
    return f"tensor({onnx.TensorProto.DataType.Name(kind.tensor_type.elem_type).lower()})"


def disagreement(want: onnx.TypeProto | None, have: onnx.TypeProto, *, shape: bool = True) -> str:
    """Return how a tensor's type differs from the wanted one, as far as both are known."""
    sizes, others = map(_sizes, (want, have))
    known = [size for size in others or () if size is not None]
    if any(size < 0 for size in known) or math.prod(known) > _LARGEST:
        return f"of shape {others}, which is not possible"
    if want is None or not (want.HasField("tensor_type") and have.HasField("tensor_type")):
        return ""
    name, other = (_dtype(one.tensor_type.elem_type) for one in (want, have))
    if name != other:
        return f"{other}, not {name}"
    if not shape or sizes is None or others is None:
        return ""
    pairs = zip(sizes, others, strict=False)
    same = len(sizes) == len(others) and all(None in pair or len({*pair}) == 1 for pair in pairs)
    return "" if same else f"of shape {others}, not {sizes}"


def _sizes(kind: onnx.TypeProto | None) -> list[int | None] | None:
    """Return the sizes of a tensor's type, None for each that is open; None for an unknown rank."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]


def _dtype(number: int) -> str:
    """Return the name of a dtype in Relax."""
    if number not in onnx.TensorProto.DataType.values() or not number:
        return f"of no dtype ({number})"
    name = str(onnx.helper.tensor_dtype_to_np_dtype(number))
    return WIDENED.get(name, name)
