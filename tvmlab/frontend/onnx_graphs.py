"""The nodes of ONNX graphs: constant folding, operators that ONNX defines by others, and loops.

ONNX defines many of its operators, such as Attention and the losses, as functions of other
operators. An operator without a converter is replaced by the nodes of its definition. The
definitions compute sizes from the shapes of tensors; these computations are folded, as are those
that PyTorch exports, because Relax needs constants as sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import tvm
from onnx.reference import ReferenceEvaluator
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as upstream

from ..errors import ModelError, UnsupportedOperatorError
from ..indices.loops import static
from ..ir.dialect import WIDENED
from .onnx_rules import disagreement, inferred, schema_of
from .onnx_sizes import SCALARS, as_tensor, computed_sizes, is_scalar

__all__ = ["GraphImporter", "const", "definition", "nodes", "place", "sizes_of"]

Attributes = dict[str, Any]
Inputs = Sequence[Any]

#: The number of elements up to which computations of constants are folded.
_SMALL = 4096
#: Operators whose results are random, and those that keep quantized models quantized.
_KEPT = (
    *("Bernoulli", "DequantizeLinear", "Dropout", "QuantizeLinear", "Random", "Multinomial"),
    # The reference evaluator computes these wrongly for some attributes or versions.
    *("ArgM", "GRU", "GridSample", "Hardmax", "LRN", "LSTM", "LogSoftmax", "Lp", "RNN"),
    "Softmax",
)
#: Operators whose results can have any size, and those of them whose size is a product.
_GROWING = {"EyeLike", "OneHot", "Pad", "Resize", "Upsample"}
_BY_PRODUCT = {"ConstantOfShape", "Expand", "Tile"}
#: The number of iterations up to which a loop is unrolled.
_TRIPS = 1000
#: Operators with one result that is a tuple in Relax.
_SEQUENCES = {"Optional", "OptionalGetElement", "ConcatFromSequence", "SplitToSequence"}
#: Operators whose upstream converters accept a shape of Relax in place of a tensor.
_OF_SHAPES = {"Reshape", "Resize", "ConstantOfShape", "Gather", "Slice", "Shape", "Expand"}
_OF_SHAPES |= {"Concat", "Equal", "Where", "Cast", "CastLike", "Squeeze"}


def nodes(graph: Any) -> Any:
    """Yield the nodes of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes(attribute.g)


def place(node: Any) -> str:
    """Return a node's kind and its name, or its outputs where it has no name."""
    return f"{node.op_type} " + (
        f"in node {node.name!r}" if node.name else f"giving {list(node.output)}"
    )


def sizes_of(x: relax.Expr) -> list[int | None] | None:
    """Return a tensor's sizes, None for each unknown size; None for an unknown rank."""
    shape = x.ty.shape
    return [static(n) for n in shape.values] if isinstance(shape, relax.ShapeExpr) else None


def definition(node: Any, opset: int, types: Sequence[onnx.TypeProto] = ()) -> Any:
    """Return the function by which ONNX defines a node's operator, None if it is not a function."""
    schema = schema_of(node, opset)
    if schema is None:
        return None
    if schema.has_context_dependent_function:
        given = [one.SerializeToString() for one in types]
        made = schema.get_context_dependent_function(node.SerializeToString(), given)
        return onnx.FunctionProto.FromString(made) if made else None
    return schema.function_body if schema.has_function else None


class GraphImporter(upstream.ONNXGraphImporter):  # type: ignore[misc]
    """Upstream's importer with a walk over the nodes of its own.

    `node` is the node of the model that is being converted.
    """

    node: Any = None
    branches: bool  # whether the graph has an If outside of other subgraphs
    opset: int
    _nodes: dict[str, Any]
    _defining = 0

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        """Check nothing, because `tvmlab.frontend.onnx` has checked the model and its subgraphs."""

    def _construct_nodes(self, graph: Any) -> None:
        self.branches = any(node.op_type == "If" for node in graph.node)
        for node in graph.node:
            self.bind(node)
        for output in graph.output:
            value = self._nodes[output.name]
            if is_scalar(value) or isinstance(getattr(value, "ty", None), relax.ShapeType):
                self._nodes[output.name] = as_tensor(self.bb, value)
            self.check_declared(output, value, shape=False)  # runtimes accept outdated shapes

    def check_declared(self, declared: Any, value: Any, *, shape: bool = True) -> None:
        """Refuse a value whose type is not the one that its graph declares."""
        if why := disagreement(getattr(declared, "type", None), _type(value), shape=shape):
            what = f"the value {getattr(declared, 'name', declared)!r} is {why}, as declared"
            raise ModelError(what, where=self._where, fix="declare the type that it has")

    def expected(self, node: Any, inputs: Inputs) -> Mapping[str, onnx.TypeProto]:
        """Check a node by ONNX's rules, and return the types of its results as far as known."""
        if self._defining:
            return {}
        types = [None if value is None else _type(value) for value in inputs]
        values = {n: _plain(x) for n, x in zip(node.input, inputs, strict=True) if x is not None}
        small = {n: one for n, one in values.items() if one is not None and one.size <= _SMALL}
        return inferred(node, self.opset, types, small, self.place())

    def bind(self, node: Any) -> None:
        """Convert a node, and enter its results under their names."""
        if not self._defining:
            self.node = node
        kind = node.op_type
        attributes = self._parse_attr(node.attribute)
        attributes["tvm_custom"] = {"name": node.name, "num_outputs": len(node.output)}
        attributes["tvm_custom"]["node"] = node
        inputs = upstream.onnx_input(self._nodes[name] if name else None for name in node.input)
        sizes = computed_sizes(kind, inputs, attributes)
        if sizes is not None:
            self._nodes[node.output[0]] = sizes
            return
        for i, value in enumerate(inputs):
            shape = isinstance(getattr(value, "ty", None), relax.ShapeType)
            if (shape and kind not in _OF_SHAPES) or (is_scalar(value) and kind not in SCALARS):
                inputs[i] = as_tensor(self.bb, value)
        expected = self.expected(node, inputs)
        made = self.convert(kind, inputs, attributes)
        if not isinstance(made, relax.Tuple) and isinstance(
            getattr(made, "ty", None), relax.TupleType
        ):
            fields = range(len(made.ty.fields))
            made = relax.Tuple([self.bb.emit(relax.TupleGetItem(made, i)) for i in fields])
        many = isinstance(made, relax.Tuple) and not (
            kind in _SEQUENCES or kind.startswith("Sequence")
        )
        results = made if many or isinstance(made, list) else [made]
        if any(node.output[len(results) :]):
            raise self.unsupported(f"with {len(node.output)} results", "use its first result only")
        for name, value in zip(node.output, results, strict=False):
            self._nodes[name] = value
            if why := disagreement(expected.get(name), _type(value)):
                raise self.unsupported(f"here: {name!r} would be {why}", "use another operator")

    def convert(self, kind: str, inputs: Inputs, attributes: Attributes) -> Any:
        """Convert an operator; defined by `tvmlab.frontend.onnx_converters`."""
        raise NotImplementedError

    def by_upstream(self, kind: str, inputs: Inputs, attributes: Attributes) -> relax.Expr:
        """Convert an operator with upstream's converter."""
        given = upstream.onnx_input(inputs)
        return self._convert_operator(kind, given, dict(attributes), self.opset)

    def known_sizes(self, x: relax.Expr) -> list[int]:
        """Return a tensor's sizes, which must be known."""
        sizes = sizes_of(x)
        if sizes is None or None in sizes:
            raise self.unsupported("of unknown sizes", "give `shapes` to load")
        return [size for size in sizes if size is not None]

    def value(self, x: relax.Expr) -> npt.NDArray[Any] | None:
        """Return the value of a constant or a weight, or None for a computed value."""
        if isinstance(x, relax.Var) and x.name in self._params:
            return np.asarray(self._params[x.name][1].numpy())
        return np.asarray(x.value.numpy()) if isinstance(x, tvm.ir.GenericConst) else None

    def computed(self, operands: Inputs) -> bool:
        """Return whether one of some operands is a tensor that is computed when the model runs."""
        tensors = [x for x in operands if x is not None and isinstance(x.ty, relax.TensorType)]
        return any(self.value(x) is None for x in tensors)

    def results(self, graph: Any, given: Mapping[str, Any]) -> list[Any]:
        """Convert a subgraph with the values `given` for its inputs, and return its results."""
        outer = self._nodes
        self._nodes = {**outer, **given}
        try:
            for tensor in getattr(graph, "initializer", ()):
                self._nodes[tensor.name] = relax.const(self._parse_array(tensor))
            for node in graph.node:
                self.bind(node)
            for one in (*graph.input, *graph.output):
                self.check_declared(one, self._nodes.get(getattr(one, "name", one)))
            # An optional result of a definition can be missing.
            return [self._nodes.get(getattr(one, "name", one)) for one in graph.output]
        finally:
            self._nodes = outer

    def defined(self, node: Any, inputs: Inputs) -> list[Any]:
        """Convert the nodes by which ONNX defines a node's operator."""
        function = definition(node, self.opset, [_type(value) for value in inputs])
        if function is None:
            raise self.unsupported("with these attributes and dtypes", "compute it outside")
        given = dict.fromkeys(function.input)
        given.update(zip(function.input, inputs, strict=False))
        schema = onnx.defs.get_schema(node.op_type, node.domain)
        known = {name: one.default_value for name, one in schema.attributes.items()}
        known.update({one.name: one for one in (*function.attribute_proto, *node.attribute)})
        graph = onnx.FunctionProto()
        graph.CopyFrom(function)
        for one in nodes(graph):
            _resolve(one, known)
        opset, self.opset = self.opset, self.opset
        self.opset = next((x.version for x in function.opset_import if not x.domain), opset)
        self._defining += 1
        try:
            return self.results(graph, given)
        finally:
            self.opset = opset
            self._defining -= 1

    def folded(self, node: Any, inputs: Inputs) -> list[Any] | None:
        """Compute a node of small constants with ONNX's reference evaluator, or return None."""
        arrays = [None if x is None else _plain(x) for x in inputs]
        if any(a is None and x is not None for a, x in zip(arrays, inputs, strict=True)):
            return None
        if sum(a.size for a in arrays if a is not None) > _SMALL or node.op_type.startswith(_KEPT):
            return None
        if _grows(node.op_type, arrays):
            return None
        if any(attribute.HasField("g") for attribute in node.attribute):
            return None
        known: dict[str, Any] = {n: a for n, a in zip(node.input, arrays, strict=True) if n}
        try:
            made = self._evaluated(node, known)
        except Exception:  # the evaluator raises any class where it lacks an operator
            return None
        plain = all(
            isinstance(one, (np.ndarray, np.generic)) and one.size <= _SMALL for one in made
        )
        if not plain:
            return None
        if node.op_type == "ReduceSumSquare":  # the reference evaluator returns int64
            made = [made[0].astype(str(inputs[0].ty.dtype))]
        # TVM cannot save a constant without elements.
        if node.op_type.startswith(("Reduce", "Reshape", "Tri")) and not made[0].size:
            raise self.unsupported("with a result without elements", "compute it outside")
        return [const(one) for one in made]

    def _evaluated(self, node: Any, known: Mapping[str, npt.NDArray[Any]]) -> list[Any]:
        made = onnx.helper.make_graph(
            [node],
            "constants",
            [onnx.ValueInfoProto(name=name) for name in known],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        opsets = [onnx.helper.make_opsetid(node.domain, self.opset if not node.domain else 1)]
        model = onnx.helper.make_model(made, opset_imports=opsets)
        with np.errstate(all="ignore"):
            found = iter(ReferenceEvaluator(model).run(None, dict(known)))
        return [next(found) if name else np.zeros(()) for name in node.output]

    def place(self) -> str:
        """Return the names of the model and of the node being converted, for errors."""
        return f"{self._where}: {place(self.node)}"

    def unsupported(
        self, why: str, fix: str = "quantize the model with onnxruntime's quantize_static"
    ) -> UnsupportedOperatorError:
        """Make the error for an unsupported feature of the node."""
        what = f"tvmlab cannot import the ONNX operator {self.node.op_type} {why}"
        return UnsupportedOperatorError(what, where=self.place(), fix=fix)


def _grows(kind: str, arrays: Sequence[Any]) -> bool:
    """Return whether an operator of small constants can have a large result."""
    if kind in _BY_PRODUCT:
        return math.prod(map(int, arrays[-1].ravel())) > _SMALL
    if kind == "Range":
        start, limit, step = (one.item() for one in arrays)
        return not step or abs((limit - start) / step) > _SMALL
    return kind in _GROWING


def _plain(x: Any) -> npt.NDArray[Any] | None:
    """Return the value of a constant; a tensor without elements is one too."""
    if isinstance(value := getattr(x, "value", None), tvm.runtime.Tensor):
        return np.asarray(value.numpy())
    kind = getattr(x, "ty", None)
    sizes = sizes_of(x) if isinstance(kind, relax.TensorType) else None
    if sizes is None or None in sizes or 0 not in sizes:
        return None
    return np.zeros([size or 0 for size in sizes], str(x.ty.dtype))


def _resolve(node: Any, known: Mapping[str, Any]) -> None:
    """Replace a function's attributes in its node by their values."""
    kept = []
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            kept.append(attribute)
        elif (value := known.get(attribute.ref_attr_name)) is not None and value.name:
            made = onnx.AttributeProto()
            made.CopyFrom(value)
            made.name = attribute.name
            kept.append(made)
    del node.attribute[:]
    node.attribute.extend(kept)


def _type(value: Any) -> onnx.TypeProto:
    """Return the type of a value for ONNX's definitions; an empty one for an absent value."""
    made = onnx.TypeProto()
    kind = getattr(value, "ty", None)
    if isinstance(kind, relax.TensorType):
        dtype = np.dtype(str(kind.dtype))
        made.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(dtype)
        sizes = sizes_of(value)
        if sizes is not None:
            made.tensor_type.shape.SetInParent()  # a scalar has a shape, too
        for size in sizes or ():
            made.tensor_type.shape.dim.add(**({} if size is None else {"dim_value": size}))
    elif is_scalar(value):
        made.tensor_type.elem_type = onnx.TensorProto.INT64
        made.tensor_type.shape.SetInParent()
    elif isinstance(kind, relax.ShapeType):
        made.tensor_type.elem_type = onnx.TensorProto.INT64
        made.tensor_type.shape.dim.add(**({} if kind.ndim < 0 else {"dim_value": kind.ndim}))
    elif isinstance(kind, relax.TupleType) and kind.fields:
        first, *others = (_type(relax.Var("x", field)) for field in kind.fields)
        if any(other != first for other in others):
            first.tensor_type.ClearField("shape")
        made.sequence_type.elem_type.CopyFrom(first)
    return made


# Operators with subgraphs


def _if(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    branches = [attributes["then_branch"], attributes["else_branch"]]
    known = _constant(inputs[0])
    if known is not None:
        return importer.results(branches[not known], {})
    if not importer.branches:
        raise importer.unsupported("inside another operator", "move it out of the loop")
    made = [importer.results(branch, {}) for branch in branches]
    parts = [one[0] if len(one) == 1 else relax.Tuple(one) for one in made]
    return importer.bb.emit(
        relax.If(inputs[0], *(relax.SeqExpr(blocks=[], body=one) for one in parts))
    )


def _loop(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Unroll a loop whose number of iterations is a constant."""
    trips, condition, *state = inputs
    body = attributes["body"]
    if len(body.output) != 1 + len(attributes["tvm_custom"]["node"].output):
        raise importer.unsupported("whose body has more or fewer results", "export it again")
    number = _constant(trips)
    if number is None:
        raise importer.unsupported("with a number of iterations computed at run time", _UNROLL)
    scans: list[list[Any]] = [[] for _ in body.output[1 + len(state) :]]
    for i in range(int(number)):
        if i == _TRIPS:
            raise importer.unsupported(f"with more than {_TRIPS} iterations", "use fewer")
        running = True if condition is None else _constant(condition)
        if running is None:
            raise importer.unsupported("with a condition computed at run time", _UNROLL)
        if not running:
            break
        flag = const(np.array(True)) if condition is None else condition
        given = [const(np.int64(i)), flag, *state]
        names = [one.name for one in body.input]
        made = importer.results(body, dict(zip(names, given, strict=True)))
        condition, state = made[0], made[1 : 1 + len(state)]
        for scan, value in zip(scans, made[1 + len(state) :], strict=True):
            scan.append(value)
    if any(not scan for scan in scans):
        raise importer.unsupported("with no iteration", _UNROLL)
    return relax.Tuple([*state, *(_stack(importer, scan, 0) for scan in scans)])


def _scan(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Unroll a loop over the slices of its inputs."""
    body, count = attributes["body"], attributes["num_scan_inputs"]
    if importer.opset < 9:
        raise importer.unsupported("as defined before opset 9", "export with a newer opset")
    inputs = list(inputs)
    state, scanned = inputs[:-count], inputs[len(inputs) - count :]
    outputs = len(body.output) - len(state)
    axes = attributes.get("scan_input_axes", [0] * count)
    back = attributes.get("scan_input_directions", [0] * count)
    parts = [unstacked(importer, x, axis) for x, axis in zip(scanned, axes, strict=True)]
    parts = [part[::-1] if flip else part for part, flip in zip(parts, back, strict=True)]
    scans: list[list[Any]] = [[] for _ in range(outputs)]
    names = [one.name for one in body.input]
    for slices in zip(*parts, strict=True):
        made = importer.results(body, dict(zip(names, [*state, *slices], strict=True)))
        state = made[: len(state)]
        for scan, value in zip(scans, made[len(state) :], strict=True):
            scan.append(value)
    axes = attributes.get("scan_output_axes", [0] * outputs)
    back = attributes.get("scan_output_directions", [0] * outputs)
    scans = [scan[::-1] if flip else scan for scan, flip in zip(scans, back, strict=True)]
    stacks = [_stack(importer, scan, axis) for scan, axis in zip(scans, axes, strict=True)]
    return relax.Tuple([*state, *stacks])


_UNROLL = "make it a constant, so that the loop can be unrolled"


def unstacked(importer: GraphImporter, x: relax.Expr, axis: int) -> list[Any]:
    """Cut a tensor into its slices along an axis of a known size."""
    size = (sizes_of(x) or [None])[axis]
    if size is None:
        raise importer.unsupported("over an axis of unknown size", "give `shapes` to load")
    emit = importer.bb.emit
    if size == 1:
        return [emit(op.squeeze(x, [axis]))]
    parts = emit(op.split(x, size, axis))
    return [emit(op.squeeze(emit(relax.TupleGetItem(parts, i)), [axis])) for i in range(size)]


def _stack(importer: GraphImporter, parts: Sequence[Any], axis: int) -> Any:
    return importer.bb.emit(op.stack(list(parts), axis))


def const(value: Any) -> tvm.ir.GenericConst:
    """Make a constant of a NumPy value's own dtype, where ``relax.const`` makes int64 int32.

    A value of 2 or 4 bits gets 8.
    """
    array = np.asarray(value)
    wide = WIDENED.get(str(array.dtype))
    return relax.const(tvm.runtime.tensor(array if wide is None else array.astype(wide)))


def _constant(x: Any) -> Any:
    value = getattr(x, "value", None)
    return value.numpy().item() if isinstance(value, tvm.runtime.Tensor) else None


#: The converters of operators with subgraphs.
SUBGRAPHS = {"If": _if, "Loop": _loop, "Scan": _scan}
