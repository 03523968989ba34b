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
        known = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
        makers = {name: node.op_type for node in proto.graph.node for name in node.output}
        nodes = [node for node in proto.graph.node if _result(node)]
        everything = onnx.ModelProto()
        everything.CopyFrom(proto)
        del everything.graph.output[:]
        everything.graph.output.extend(
            onnx.helper.make_empty_tensor_value_info(node.output[0]) for node in nodes
        )
        running = session(everything)
        (given,) = running.get_inputs()
        results = running.run(None, {given.name: np.zeros(given.shape, "float32")})
        names, others, kinds = [], [], []
        for node, result in zip(nodes, results, strict=True):
            scale, zero = (known[name] for name in _result(node))
            others.append(
                Place(result.shape, zero.dtype.name, float(scale.item()), int(zero.item()))
            )
            names.append(node.output[0])
            kind = node.op_type
            kinds.append(makers.get(node.input[0], kind) if kind == "QuantizeLinear" else kind)
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


def _result(node: onnx.NodeProto) -> list[str]:
    """Name the scale and the zero point of a node's result; nothing if it has none."""
    first = {"QLinearConcat": 0, "QLinearConv": 6, "QGemm": 7, "QuantizeLinear": 1}.get(
        node.op_type
    )
    if first is None:
        return list(node.input[-2:]) if node.op_type.startswith("QLinear") else []
    return list(node.input[first : first + 2])


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
