"""Those who define what a quantized network computes, with all that they have on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
import tvm

import tvmlab
from tests.oracles.litert import Litert, read
from tests.oracles.models import session
from tests.qnn.cut import Place, cut, matched
from tvmlab.frontend import qoperator

Array = np.ndarray


class LitertJudge:
    """LiteRT's reference kernels."""

    def __init__(self, content: bytes, places: Sequence[Place]) -> None:
        tensors, layers = read(content)
        scaled = [layer for layer in layers if len(tensors[layer.output].scales)]
        others = []
        for layer in scaled:
            out = tensors[layer.output]
            others.append(Place(tuple(out.shape), out.dtype, float(out.scale), out.zero))
        chosen = [scaled[i] for i in matched(places, others)]
        self.kinds = [layer.name for layer in chosen]
        self._outputs = [layer.output for layer in chosen]
        self._litert = Litert(content)

    def __call__(self, x: Array) -> tuple[Array, ...]:
        result = self._litert.run(x)
        return (*map(self._litert.tensor, self._outputs), result)


class OnnxJudge:
    """ONNX Runtime, optimized as it is by default; what it fuses is between the places."""

    def __init__(self, proto: onnx.ModelProto, places: Sequence[Place]) -> None:
        # Quantized operators stand for pairs of dequantize and quantize; results keep their names.
        pairs = qoperator.rewrite(proto, "the model").graph
        known = {t.name: onnx.numpy_helper.to_array(t) for t in pairs.initializer}
        makers = {name: node for node in pairs.node for name in node.output}
        own = {name: node.op_type for node in proto.graph.node for name in node.output}
        # Shapes are not inferred through the operators of another domain: those of pairs are.
        inferred = onnx.shape_inference.infer_shapes(_of(proto, pairs)).graph
        values = {v.name: v for v in (*inferred.value_info, *inferred.output, *inferred.input)}
        names, others, kinds = [], [], []
        for node in pairs.node:
            if node.op_type != "QuantizeLinear":
                continue
            scale, zero = (known[name] for name in node.input[1:3])
            dims = values[node.input[0]].type.tensor_type.shape.dim
            shape = tuple(int(dim.dim_value) for dim in dims)
            others.append(Place(shape, zero.dtype.name, float(scale.item()), int(zero.item())))
            names.append(node.output[0])
            maker = makers.get(node.input[0])
            kind = own.get(node.output[0], "QuantizeLinear")
            if kind == "QuantizeLinear" and maker is not None:
                kind = maker.op_type
            kinds.append(kind)
        chosen = matched(places, others)
        self.kinds = [kinds[i] for i in chosen]
        self._names = [*(names[i] for i in chosen), proto.graph.output[0].name]
        shown = onnx.ModelProto()
        shown.CopyFrom(proto)
        there = {out.name for out in proto.graph.output}
        for name, place in zip(self._names, places, strict=False):
            kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(place.dtype))
            if name not in there:
                info = onnx.helper.make_tensor_value_info(name, kind, place.shape)
                shown.graph.output.append(info)
        self._session = session(shown)
        (given,) = self._session.get_inputs()
        self._given = given.name

    def __call__(self, x: Array) -> tuple[Array, ...]:
        return tuple(self._session.run(self._names, {self._given: x}))


def _of(proto: onnx.ModelProto, graph: onnx.GraphProto) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    made.graph.CopyFrom(graph)
    return made


class Apart:
    """How far values of one kind are from the judge's.

    Attributes
    ----------
    values, off, steps : int
        How many values were compared, how many differ, and by how much at most.
    """

    def __init__(self) -> None:
        self.values = self.off = self.steps = 0

    def add(self, found: Array, expected: Array) -> None:
        """Compare arrays of integers."""
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        steps = np.abs(found.astype(np.int64) - expected.astype(np.int64))
        self.values += steps.size
        self.off += int(np.count_nonzero(steps))
        self.steps = max(self.steps, int(steps.max()))

    @property
    def share(self) -> float:
        """The share of values that differ."""
        return self.off / self.values


def layer_by_layer(
    mod: tvm.IRModule,
    judge: type[LitertJudge] | type[OnnxJudge],
    model: Any,
    inputs: Iterable[Array],
    rounding: str | None = None,
) -> dict[str, Apart]:
    """Compile a network's pieces and run each on the judge's own integers; by kind of operator."""
    network = cut(mod, rounding)
    theirs, ours = judge(model, network.places), tvmlab.compile(network.mod)
    found: dict[str, Apart] = {}
    for x in inputs:
        *given, _ = theirs(x)
        *computed, _ = ours(x, *given)
        for kind, mine, other in zip(theirs.kinds, computed, given, strict=True):
            found.setdefault(kind, Apart()).add(mine, other)
    return found
