"""``relay.build`` and the graph executor, over `tvmlab.compile`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx.reference
import pytest
import tvm

import tvmlab
from tvmlab import relay
from tvmlab.errors import CompileError, InputError, RelayError, TargetError
from tvmlab.relay import target
from tvmlab.relay.graph_executor import GraphModule, create
from tvmlab.relay.target import Executor, Runtime

CPU = tvm.cpu(0)
WEIGHT = np.arange(12, dtype="float32").reshape(4, 3)
DATA = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")
WANTED = DATA @ WEIGHT.T


def module() -> Any:
    x, w = relay.var("data", shape=DATA.shape), relay.var("w", shape=WEIGHT.shape)
    y = relay.nn.dense(x, w)
    return relay.from_expr(
        relay.Function([x, w], relay.Tuple([y, relay.Tuple([relay.nn.relu(y)])]))
    )


@pytest.fixture(scope="module")
def library() -> Any:
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(module(), target="llvm", params={"w": WEIGHT})


@pytest.fixture
def runner(library: Any) -> GraphModule:
    return GraphModule(library["default"](CPU))


def near(found: Any, wanted: Any = WANTED) -> None:
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize("level", [0, 1])
def test_the_level_decides_whether_loops_are_scheduled(level: int) -> None:
    mod, weight = module(), tvm.runtime.tensor(WEIGHT)
    before = mod.script()
    with tvm.transform.PassContext(opt_level=level):
        made = relay.build(mod, "llvm", params={"w": weight})
    # The summary lists the functions that a rule has scheduled, between its two other lines.
    assert (len(str(made.executable.summary()).splitlines()) > 2) == (level > 0)
    runner = GraphModule(made["default"](CPU))
    runner.run(data=DATA)
    near(runner.get_output(0))
    assert mod.script() == before
    assert made.get_params()["w"].same_as(weight)


def test_targets() -> None:
    made = target.read("llvm -mcpu=x86-64-v3")
    assert str(target.read(None)) == str(tvmlab.host_target())
    with made:
        assert target.read(None).attrs["mcpu"] == "x86-64-v3"
    assert target.read("cuda -arch=sm_80", "llvm").host.kind.name == "llvm"


@pytest.mark.parametrize(
    ("make", "error", "what"),
    [
        (lambda: target.read(["llvm", "cuda"]), TargetError, "target"),
        (lambda: relay.build(1), CompileError, "takes a module"),
        (lambda: relay.build(module(), workspace_memory_pools=[1]), RelayError, "memory_pools"),
        (lambda: Runtime("crt"), RelayError, "no runtime 'crt'"),
        (lambda: Executor("aot", {"interface-api": "c"}), RelayError, "carry interface-api"),
        (lambda: relay.create_executor("interpreter"), RelayError, "unknown execution strategy"),
        (lambda: GraphModule(3), RelayError, "not a int"),
    ],
)
def test_what_is_not_built(make: Any, error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        make()


def test_executors_and_runtimes() -> None:
    made = relay.build(
        module(), "llvm", executor=Executor("graph"), runtime=Runtime("cpp"), mod_name="mine"
    )
    runner = GraphModule(made["mine"](CPU))
    runner.set_input(w=WEIGHT, data=DATA)
    runner.run()
    near(runner.get_output(0))
    runner.load_params(relay.save_param_dict({"w": tvm.runtime.tensor(2 * WEIGHT)}))
    runner.run()
    near(runner.get_output(0), 2 * WANTED)
    Executor("graph", {"link-params": True})
    Executor("aot", {"unpacked-api": False})


def test_set_run_get(library: Any, runner: GraphModule) -> None:
    assert (runner.get_num_inputs(), runner.get_num_outputs()) == (1, 2)
    runner.set_input("data", DATA, **library.get_params())  # constants already: left aside
    runner.run()
    near(runner.get_output(0))
    out = tvm.runtime.empty((2, 4), "float32")
    assert runner.get_output(1, out) is out
    near(out, np.maximum(WANTED, 0))
    runner.run(data=tvm.runtime.tensor(2 * DATA))
    near(runner.get_output(0), 2 * WANTED)
    runner.set_input(0, DATA.astype("float64").tolist())  # converted, as Relay does
    np.testing.assert_array_equal(runner.get_input("data").numpy(), DATA)
    other = GraphModule(library["default"]([CPU]))  # another place for inputs
    other.set_input("data", 5 * DATA)
    other.run()
    runner.run()
    near(other.get_output(0), 5 * WANTED)
    near(runner.get_output(0))


def test_inputs_without_a_copy(runner: GraphModule) -> None:
    mine = tvm.runtime.tensor(DATA)
    runner.set_input_zero_copy("data", mine)
    assert runner.get_input(0).same_as(mine)
    mine.copyfrom(3 * DATA)
    runner.run()
    near(runner.get_output(0), 3 * WANTED)
    for wrong, what in ((DATA.T.copy(), "has shape"), (DATA.astype("int8"), "is of dtype int8")):
        with pytest.raises(InputError, match=what):
            runner.set_input_zero_copy("data", tvm.runtime.tensor(wrong))


@pytest.mark.parametrize(
    ("call", "error", "what"),
    [
        (lambda _, m: m.set_input("w", WEIGHT), InputError, "could not find 'w'"),
        (lambda _, m: m.set_input("data", DATA.T), InputError, "has shape"),
        (lambda _, m: m.get_output(2), InputError, "no output 2"),
        (lambda _, m: m.benchmark(CPU, func_name="load"), RelayError, "function 'load'"),
        (lambda _, m: m.benchmark(CPU, end_to_end=True), RelayError, "end_to_end"),
        (lambda lib, _: lib["default"](tvm.cuda(0)), TargetError, "the device is"),
        (lambda lib, _: lib["default"](CPU, tvm.cpu(1)), RelayError, "2 devices"),
        (lambda lib, _: lib["other"], RelayError, "no function 'other'"),
        (lambda lib, _: lib.export_library("x.so", addons=["x.o"]), RelayError, "carry addons"),
    ],
)
def test_what_does_not_fit(
    library: Any, runner: Any, call: Any, error: type[Exception], what: str
) -> None:
    with pytest.raises(error, match=what):
        call(library, runner)


def test_times(runner: GraphModule) -> None:
    found = runner.benchmark(CPU, repeat=3, number=2, data=DATA)
    assert len(found.results) == 3
    assert 0 < found.min <= found.median <= found.max
    assert runner.module.time_evaluator("run", CPU, number=1, repeat=3)().mean > 0
    near(runner.get_output(0))


def test_saved_and_loaded(library: Any, tmp_path: Path) -> None:
    library.export_library(tmp_path / "model.so")
    again = GraphModule(relay.load_module(tmp_path / "model.so")["default"](CPU))
    again.run(data=DATA)
    near(again.get_output(0))


def test_the_three_parts_of_2020(library: Any) -> None:
    graph, lib, params = library
    assert [node["name"] for node in json.loads(graph)["nodes"]] == ["data", "main"]
    runner = create(graph, lib, CPU)
    runner.run(data=DATA, **params)
    near(runner.get_output(0))
    assert (library.get_graph_json(), library.get_lib()) == (graph, lib)


def test_sizes_known_at_run_time() -> None:
    x = relay.var("x", shape=(relay.Any(), 3))
    runner = GraphModule(relay.build(relay.from_expr(relay.nn.relu(x)), "llvm")["default"](CPU))
    with pytest.raises(InputError, match="not set"):
        runner.run()
    for rows in (2, 5):
        runner.run(x=np.full((rows, 3), -1.0))
        assert runner.get_output(0).shape == (rows, 3)


@pytest.mark.parametrize("kind", ["debug", "graph", "vm", "aot"])
def test_create_executor(kind: str) -> None:
    near(relay.create_executor(kind, module(), CPU, "llvm").evaluate()(DATA, w=WEIGHT)[0])


def test_evaluating_expressions() -> None:
    executor = relay.create_executor()
    near(executor.evaluate(relay.const(1) + relay.const(2)), 3)
    a = relay.var("a", "float32")
    near(executor.evaluate(relay.Function([a], a * a))(3), 9)
    mod = relay.IRModule({"other": relay.Function([a], a + a)})
    near(relay.create_executor("vm", mod).evaluate(mod.get_global_var("other"))(4), 8)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_is_that_of_onnx(mode: str) -> None:
    value = np.arange(2 * 18 * 4 * 5, dtype="float32").reshape(2, 18, 4, 5)
    node = onnx.helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=3, mode=mode)
    (wanted,) = onnx.reference.ReferenceEvaluator(node).run(None, {"x": value})
    for layout, order in (("NCHW", (0, 1, 2, 3)), ("NHWC", (0, 2, 3, 1))):
        data = value.transpose(order)
        x = relay.var("x", shape=data.shape)
        mod = relay.from_expr(relay.nn.depth_to_space(x, 3, layout, mode))
        result = relay.create_executor("graph", mod).evaluate()(data).numpy()
        np.testing.assert_array_equal(result, wanted.transpose(order))


def test_qnn_operands_that_relay_read_otherwise() -> None:
    x = relay.var("x", shape=(4,), dtype="uint8")
    pairs = [relay.const(0.5), relay.const(3)] * 3
    assert list(relay.qnn.add(x, x, *pairs, lhs_axis=1, rhs_axis=1).ty.shape) == [4]
    # A depthwise convolution's zero points are by input channel, and each has two results.
    data, kernel = (
        np.random.default_rng(7).integers(0, 255, shape, "uint8")
        for shape in ((1, 3, 5, 5), (3, 2, 3, 3))
    )
    zero = np.array([1, 20, 200], "int32")
    call = relay.qnn.conv2d(
        relay.var("x", shape=data.shape, dtype="uint8"), relay.const(kernel), relay.const(7),
        relay.const(zero), relay.const(0.5), relay.const(0.5),
        kernel_size=(3, 3), channels=6, groups=3,
    )  # fmt: skip
    result = relay.create_executor("graph", relay.from_expr(call)).evaluate()(data).numpy()
    shifted = kernel.astype("int32") - zero.reshape(3, 1, 1, 1)
    patches = np.lib.stride_tricks.sliding_window_view(data.astype("int32") - 7, (3, 3), (2, 3))
    wanted = np.einsum("nchwij,cmij->ncmhw", patches, shifted).reshape(result.shape)
    np.testing.assert_array_equal(result, wanted)
