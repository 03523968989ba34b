"""ONNX's own backend tests, of the installed onnx package, on tvmlab and on upstream alone."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

# Our names of the groups of tests, and those of ONNX's runner.
ONNX = {
    **{"node": "Node", "pytorch-converted": "PyTorchConverted"},
    **{"pytorch-operator": "PyTorchOperator", "simple": "Simple", "light": "Real"},
}
# The names in ONNX's schemas of inputs that models usually hold as constants. Upstream requires
# most of them to be constants, because they determine the shape of a result.
BOUND = """
    shape axes axis pads constant_value k K repeats starts ends steps split roi scales sizes size
    depth values start limit delta position ratio training_mode dft_length frame_step frame_length
    image_shape block_shape output_shape max_output_boxes_per_class iou_threshold score_threshold M
    num_mel_bins sample_rate lower_edge_hertz upper_edge_hertz ConstantOfShape.input
"""


class Different(Exception):
    """The outputs are not the expected ones."""


class Model:
    """A model as ONNX's runner sees it: `run` imports, compiles and calls it."""

    form, side = "look", ""  # of the case that runs
    last: tuple[Any, dict[str, Any]]  # the model and the inputs of the last run

    def __init__(self, proto: Any) -> None:
        if self.form == "look":
            raise LookupError(proto)
        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(proto)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs."""
        graph = self.proto.graph
        weights = {tensor.name for tensor in graph.initializer}
        free = [value for value in graph.input if value.name not in weights]
        feed = {value.name: x for value, x in zip(free, inputs, strict=True)}
        if self.form == "bound":
            for name in shape_like(graph):
                graph.initializer.append(onnx.numpy_helper.from_array(feed.pop(name), name))
            del graph.input[:]
            graph.input.extend(value for value in free if value.name in feed)
            self.proto.ir_version = max(self.proto.ir_version, 4)  # weights are not inputs
        Model.last = self.proto, feed
        shapes = {name: list(x.shape) for name, x in feed.items() if hasattr(x, "shape")}
        if self.side == "tvmlab":
            import tvmlab

            result = tvmlab.compile(tvmlab.load(self.proto, shapes=shapes))(*feed.values())
        else:
            result = by_upstream(self.proto, shapes, list(feed.values()))
        outputs = list(result) if isinstance(result, tuple) else [result]
        sequence = len(graph.output) == 1 and graph.output[0].type.HasField("sequence_type")
        return [outputs] if sequence else outputs


def close_to_exact(
    expected: Sequence[Any], outputs: Sequence[Any], rtol: float, atol: float
) -> bool:
    """Return whether outputs agree with the result of ONNX's reference in double precision.

    Expected outputs are rounded, and where the exact result is 0 they are only rounding errors.
    """
    proto, inputs = Model.last
    doubled = {
        name: x.astype("float64") if is_float(x) and x.ndim else x for name, x in inputs.items()
    }
    if not all(map(is_float, [*expected, *outputs])):
        return False
    try:
        exact = ReferenceEvaluator(proto).run(None, doubled)
    except Exception:  # the reference does not accept these inputs as float64
        return False
    return all(
        (ours.dtype, ours.shape) == (theirs.dtype, one.shape)
        and np.allclose(ours.astype("float64"), one, rtol, atol)
        for ours, theirs, one in zip(outputs, expected, exact, strict=True)
    )


def is_float(value: Any) -> bool:
    """Return whether a value is an array of floats."""
    return bool(getattr(value, "dtype", np.dtype(object)).kind == "f")


def by_upstream(proto: Any, shapes: dict[str, list[int]], inputs: Sequence[Any]) -> Any:
    """Import, compile and call a model with upstream alone."""
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    built = relax.build(from_onnx(proto, shape_dict=shapes), tvm.target.Target("llvm"))

    def plain(value: Any) -> Any:
        if isinstance(value, tvm.runtime.Tensor):
            return value.numpy()
        return value if isinstance(value, (int, float)) else tuple(map(plain, value))

    return plain(relax.VirtualMachine(built, tvm.cpu())["main"](*map(tvm.runtime.tensor, inputs)))


def shape_like(graph: Any) -> list[str]:
    """Return the names of the inputs that operators use as shapes, axes and the like."""
    found = set()
    for node in graph.node:
        if onnx.defs.has(node.op_type, domain=node.domain):
            formal = onnx.defs.get_schema(node.op_type, domain=node.domain).inputs
            for name, parameter in zip(node.input, formal, strict=False):
                if {parameter.name, f"{node.op_type}.{parameter.name}"} & set(BOUND.split()):
                    found.add(name)
    found -= {tensor.name for tensor in graph.initializer}
    return [value.name for value in graph.input if value.name in found]


class Backend:
    """What ONNX's runner asks of a backend."""

    @staticmethod
    def supports_device(device: str) -> bool:
        """Return whether tests for this device run."""
        return device == "CPU"

    @staticmethod
    def prepare(proto: Any, device: str) -> Model:
        """Return a model to run."""
        return Model(proto)


@functools.cache
def backend_tests() -> dict[str, dict[str, Callable[[Any], None]]]:
    """Return ONNX's tests by group and name."""
    from onnx.backend.test.runner import Runner

    class Exact(Runner):  # type: ignore[misc]
        """ONNX's runner, but integers and booleans must be equal."""

        @classmethod
        def assert_similar_outputs(
            cls, ref_outputs: Any, outputs: Any, rtol: float, atol: float, model_dir: Any = None
        ) -> None:
            """Compare outputs; for a sequence, ONNX's method calls this one again."""
            try:
                super().assert_similar_outputs(ref_outputs, outputs, rtol, atol, model_dir)
                for theirs, ours in zip(ref_outputs, outputs, strict=True):
                    if getattr(theirs, "dtype", np.dtype(object)).kind in "iub":
                        np.testing.assert_array_equal(ours, theirs)
            except (AssertionError, TypeError, ValueError, AttributeError) as error:
                if not close_to_exact(ref_outputs, outputs, rtol, atol):
                    raise Different(str(error)) from error

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the data contain overflows and divisions by zero
        found = Exact(Backend).test_cases
    return {
        group: {
            name.removesuffix("_cpu"): getattr(found[f"OnnxBackend{kind}ModelTest"], name)
            for name in dir(found[f"OnnxBackend{kind}ModelTest"])
            if name.startswith("test_") and name.endswith("_cpu") and "_expanded" not in name
        }
        for group, kind in ONNX.items()
    }


def onnx_graph(group: str, name: str) -> Any:
    """Return the graph of a test, which ONNX's runner passes to the backend."""
    try:
        backend_tests()[group][name](None)
    except LookupError as found:
        return found.args[0].graph
