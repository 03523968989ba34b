"""``relay.build`` and the graph executor, over `tvmlab.compile`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

import tvmlab
from tests.relay.test_standin import script
from tvmlab import relay
from tvmlab.errors import CompileError, InputError, RelayError, TargetError
from tvmlab.relay import target
from tvmlab.relay.graph_executor import GraphModule, create

SHAPE = (2, 3)
WEIGHT = np.arange(12, dtype="float32").reshape(4, 3)
DATA = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
WANTED = DATA @ WEIGHT.T


def module() -> Any:
    x, w = relay.var("data", shape=SHAPE), relay.var("w", shape=(4, 3))
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
    return GraphModule(library["default"](tvm.cpu(0)))


# Building


@pytest.mark.parametrize("level", [0, 1, 3])
def test_the_level_says_whether_loops_are_scheduled(level: int) -> None:
    with tvm.transform.PassContext(opt_level=level):
        made = relay.build(module(), "llvm", params={"w": WEIGHT})
    # The summary lists the functions that a rule has scheduled, between its two other lines.
    assert (len(str(made.executable.summary()).splitlines()) > 2) == (level > 0)
    runner = GraphModule(made["default"](tvm.cpu()))
    runner.run(data=DATA)
    np.testing.assert_allclose(runner.get_output(0).numpy(), WANTED, rtol=1e-5)


def test_parameters_are_not_copied() -> None:
    weight = tvm.runtime.tensor(WEIGHT)
    made = relay.build(module(), "llvm", params={"w": weight})
    assert made.get_params()["w"].same_as(weight)
    assert made.get_lib() is made


def test_the_module_is_left_as_it_was() -> None:
    mod = module()
    before = mod.script()
    relay.build(mod, "llvm", params={"w": WEIGHT})
    assert mod.script() == before
    optimized, params = relay.optimize(mod, "llvm", params={"w": WEIGHT})
    assert params == {}
    assert [param.name for param in optimized["main"].params] == ["data"]
    assert optimized["main"].attrs["global_symbol"] == "main"


def test_targets() -> None:
    made = target.read("llvm -mcpu=x86-64-v3 -num-cores=4")
    assert made.attrs["mcpu"] == "x86-64-v3"
    assert int(made.attrs["num-cores"]) == 4
    assert target.read({"cpu": "llvm"}).kind.name == "llvm"
    assert target.read(["llvm"]).kind.name == "llvm"
    assert str(target.read(None)) == str(tvmlab.host_target())
    with made:
        assert target.read(None).attrs["mcpu"] == "x86-64-v3"
    assert target.read("cuda -arch=sm_80", "llvm").host.kind.name == "llvm"
    for wrong, what in (
        ({"cpu": "llvm", "gpu": "cuda"}, "several targets"),
        ("llvm mcpu=x", "no option of a target"),
        ("-mcpu=x", "no kind is named"),
        ("", "no kind is named"),
        ("llvm -mcpu=nothing-like-it", "LLVM does not know"),
        ("frob", "does not know this target"),
    ):
        with pytest.raises(TargetError, match=what):
            target.read(wrong)


@pytest.mark.parametrize(
    ("given", "error", "what"),
    [
        ({"mod": 1}, CompileError, "takes a module"),
        ({"workspace_memory_pools": [1]}, RelayError, "memory pools are gone"),
    ],
)
def test_what_is_not_built(given: dict[str, Any], error: type[Exception], what: str) -> None:
    mod = given.pop("mod", None) or module()
    with pytest.raises(error, match=what):
        relay.build(mod, "llvm", **given)


def test_executors_and_runtimes() -> None:
    executor, runtime = relay.backend.Executor("graph"), relay.backend.Runtime("cpp")
    made = relay.build(module(), "llvm", executor=executor, runtime=runtime, mod_name="mine")
    assert GraphModule(made["mine"](tvm.cpu())).get_num_inputs() == 2
    with pytest.raises(RelayError, match="no runtime 'crt'"):
        relay.backend.Runtime("crt")
    with pytest.raises(RelayError, match="takes no option"):
        relay.backend.Executor("aot", {"interface-api": "c"})
    with pytest.raises(RelayError, match="no function 'other'"):
        made["other"]


# Running


def test_set_run_get(runner: GraphModule) -> None:
    assert runner.get_num_inputs() == 1
    assert runner.get_num_outputs() == 2
    runner.set_input("data", DATA)
    runner.run()
    np.testing.assert_allclose(runner.get_output(0).numpy(), WANTED, rtol=1e-5)
    out = tvm.runtime.empty((2, 4), "float32")
    assert runner.get_output(1, out) is out
    np.testing.assert_allclose(out.numpy(), np.maximum(WANTED, 0), rtol=1e-5)
    runner.run(data=tvm.runtime.tensor(2 * DATA))
    np.testing.assert_allclose(runner.get_output(0).numpy(), 2 * WANTED, rtol=1e-5)
    runner.set_input(0, DATA.astype("float64").tolist())  # converted, as Relay does
    np.testing.assert_array_equal(runner.get_input("data").numpy(), DATA)
    copy = tvm.runtime.empty(SHAPE, "float32")
    np.testing.assert_array_equal(runner.get_input(0, copy).numpy(), DATA)
    assert runner.get_input_index("data") == 0
    assert runner.get_input_index("w") == -1
    assert runner.get_input_info() == ({"data": SHAPE}, {"data": "float32"})


def test_inputs_without_a_copy(runner: GraphModule) -> None:
    mine = tvm.runtime.tensor(DATA)
    runner.set_input_zero_copy("data", mine)
    assert runner.get_input(0).same_as(mine)
    mine.copyfrom(3 * DATA)
    runner.run()
    np.testing.assert_allclose(runner.get_output(0).numpy(), 3 * WANTED, rtol=1e-5)
    for wrong in (DATA, tvm.runtime.tensor(DATA.T.copy()), tvm.runtime.tensor(DATA.astype("int8"))):
        with pytest.raises(InputError, match="cannot be read"):
            runner.set_input_zero_copy("data", wrong)


def test_parameters_set_again(library: Any, runner: GraphModule) -> None:
    """Scripts set all parameters, though the build took them already."""
    runner.set_input("data", DATA, **library.get_params())
    runner.run()
    np.testing.assert_allclose(runner.get_output(0).numpy(), WANTED, rtol=1e-5)
    free = GraphModule(relay.build(module(), "llvm")["default"](tvm.cpu()))
    free.set_input(w=WEIGHT, data=DATA)
    free.run()
    np.testing.assert_allclose(free.get_output(0).numpy(), WANTED, rtol=1e-5)
    free.load_params(relay.save_param_dict({"w": tvm.runtime.tensor(2 * WEIGHT)}))
    free.run()
    np.testing.assert_allclose(free.get_output(0).numpy(), 2 * WANTED, rtol=1e-5)


def test_two_of_one_library_do_not_share_inputs(library: Any) -> None:
    first, second = (GraphModule(library["default"](tvm.cpu())) for _ in range(2))
    first.set_input("data", DATA)
    second.set_input("data", 5 * DATA)
    first.run()
    second.run()
    np.testing.assert_allclose(first.get_output(0).numpy(), WANTED, rtol=1e-5)
    np.testing.assert_allclose(second.get_output(0).numpy(), 5 * WANTED, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "what"),
    [
        (lambda m: m.set_input("dta", DATA), InputError, "could not find 'dta'"),
        (lambda m: m.run(dta=DATA), InputError, "could not find 'dta'"),
        (lambda m: m.set_input("w", WEIGHT), InputError, "could not find 'w'"),
        (lambda m: m.set_input(1, DATA), InputError, "could not find 1"),
        (lambda m: m.set_input("data", DATA.T), InputError, "has shape"),
        (lambda m: m.get_output(2), InputError, "no output 2"),
        (lambda m: m.get_output(-1), InputError, "no output -1"),
        (lambda m: m["_set"], RelayError, "packed function '_set'"),
        (lambda m: m.benchmark(tvm.cpu(), func_name="load"), RelayError, "function 'load'"),
        (lambda m: GraphModule(m), RelayError, "not a GraphModule"),
    ],
)
def test_what_does_not_fit(
    runner: GraphModule, call: Any, error: type[Exception], what: str
) -> None:
    with pytest.raises(error, match=what):
        call(runner)


def test_devices(library: Any) -> None:
    with pytest.raises(TargetError, match="the device is"):
        library["default"](tvm.cuda(0))
    with pytest.raises(RelayError, match="2 devices"):
        library["default"](tvm.cpu(0), tvm.cpu(1))
    assert GraphModule(library["default"]([tvm.cpu(0)])).get_num_inputs() == 1


def test_benchmark(runner: GraphModule) -> None:
    found = runner.benchmark(tvm.cpu(), repeat=3, number=2, data=DATA)
    assert len(found.results) == 3
    assert 0 < found.min <= found.median <= found.max
    assert found.min <= found.mean <= found.max
    assert found.std >= 0
    whole = runner.benchmark(tvm.cpu(), repeat=2, number=1, end_to_end=True, data=DATA)
    assert len(whole.results) == 2
    np.testing.assert_allclose(runner.get_output(0).numpy(), WANTED, rtol=1e-5)


def test_a_time_evaluator(library: Any, runner: GraphModule) -> None:
    dev = tvm.cpu()
    runner.set_input("data", DATA)
    for part in (runner.module, library["default"](dev)):
        result = part.time_evaluator("run", dev, number=1, repeat=3)()
        assert len(result.results) == 3
        assert result.mean > 0
    with pytest.raises(RelayError, match="function 'load'"):
        runner.module.time_evaluator("load", dev)


def test_packed_functions(library: Any) -> None:
    session = library["default"](tvm.cpu())
    session["set_input"]("data", DATA)
    session["run"]()
    assert session["get_num_outputs"]() == 2
    np.testing.assert_allclose(session["get_output"](0).numpy(), WANTED, rtol=1e-5)


# Saving


def test_saved_and_loaded(library: Any, tmp_path: Path) -> None:
    library.export_library(tmp_path / "model.so")
    loaded = relay.load_module(tmp_path / "model.so")
    again = GraphModule(loaded["default"](tvm.cpu()))
    assert again.get_num_outputs() == 2
    again.run(data=DATA)
    np.testing.assert_allclose(again.get_output(0).numpy(), WANTED, rtol=1e-5)
    with pytest.raises(RelayError, match="object files"):
        library.export_library(tmp_path / "other.so", addons=["x.o"])


def test_the_three_parts_of_2020(library: Any) -> None:
    with pytest.warns(DeprecationWarning, match="json / lib / params"):
        graph, lib, params = library
    assert [node["name"] for node in json.loads(graph)["nodes"]] == ["data", "main"]
    runner = create(graph, lib, tvm.cpu())
    runner.set_input("data", DATA, **params)
    runner.run()
    np.testing.assert_allclose(runner.get_output(0).numpy(), WANTED, rtol=1e-5)
    with pytest.raises(RelayError, match="not a string"):
        create(library, lib, tvm.cpu())
    again = create(library.graph_json, library.lib, tvm.cpu())
    again.run(data=DATA, **library.params)
    np.testing.assert_allclose(again.get_output(0).numpy(), WANTED, rtol=1e-5)


def test_sizes_known_at_run_time() -> None:
    x = relay.var("x", shape=(relay.Any(), 3))
    runner = GraphModule(
        relay.build(relay.from_expr(relay.nn.relu(x)), "llvm")["default"](tvm.cpu())
    )
    with pytest.raises(InputError, match="not set"):
        runner.run()
    for rows in (2, 5):
        runner.run(x=np.full((rows, 3), -1.0))
        assert runner.get_output(0).shape == (rows, 3)


# Executors


@pytest.mark.parametrize("kind", ["debug", "graph", "vm", "aot"])
def test_create_executor(kind: str) -> None:
    made = relay.create_executor(kind, module(), tvm.cpu(0), "llvm").evaluate()(DATA, w=WEIGHT)
    assert len(made) == 2
    np.testing.assert_allclose(made[0].numpy(), WANTED, rtol=1e-5)


def test_evaluating_expressions() -> None:
    executor = relay.create_executor()
    three = executor.evaluate(relay.const(1) + relay.const(2))
    assert int(three.numpy()) == 3
    a, b = relay.var("a", "float32"), relay.var("b", "float32")
    assert float(executor.evaluate(relay.Function([a], a * a))(3).numpy()) == 9
    assert float(executor.evaluate(a - b, {a: 3.0, b: relay.const(1.0)}).numpy()) == 2
    mod = relay.IRModule({"other": relay.Function([a], a + a)})
    found = relay.create_executor("vm", mod).evaluate(mod.get_global_var("other"))(4)
    assert float(found.numpy()) == 8
    with pytest.raises(RelayError, match="unknown execution strategy"):
        relay.create_executor("interpreter")


def test_options_that_do_nothing_now(tmp_path: Any) -> None:
    Executor, Runtime = relay.backend.Executor, relay.backend.Runtime
    with pytest.warns(UserWarning, match="'link-params' of the executor does nothing"):
        Executor("graph", {"link-params": True})
    with pytest.warns(UserWarning, match="interface-api"):
        Executor("aot", {"interface-api": "packed", "unpacked-api": False})
    with pytest.raises(RelayError, match="no option 'interface-api'"):
        Executor("aot", {"interface-api": "c"})
    with pytest.raises(RelayError, match="no option 'system-lib'"):
        Runtime("cpp", {"system-lib": True})
    done = script(
        tmp_path,
        "import tvm\n"
        "config = {'relay.FuseOps.max_depth': 1, 'relay.backend.use_auto_scheduler': True}\n"
        "with tvm.transform.PassContext(opt_level=3, config=config) as ctx:\n"
        "    print(ctx.opt_level)\n"
        "try:\n"
        "    tvm.transform.PassContext(config={'relay.ext.ethos-u.options': 1})\n"
        "except Exception as error:\n"
        "    print(type(error).__name__)\n",
    )
    assert done.stdout.splitlines() == ["3", "RelayError"]
    assert done.stderr.count("does nothing today") == 2
