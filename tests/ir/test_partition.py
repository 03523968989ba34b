"""PartitionGraph: the functions that it lifts out, and how a partitioned module runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import ir, relax, te, tirx

import tvmlab.qnn.transform  # noqa: F401 (adds the quantized operators to the table)
from tests.ir.partitions import (
    Region,
    begin,
    called,
    composite,
    marked,
    module,
    names,
    op,
    partitioned,
    run,
    same,
    supports,
    var,
    variables,
)
from tvmlab.errors import RelayError
from tvmlab.ir import graph
from tvmlab.ir.partition import (
    AnnotateTarget,
    InlineRegions,
    LowerRegions,
    MergeCompilerRegions,
    MergeComposite,
    PartitionGraph,
    compiler_begin,
    compiler_end,
)
from tvmlab.ir.patterns import is_constant, is_op, wildcard
from tvmlab.ir.text.reader import fromtext


def cut(compiler: str | list[str], mod: ir.IRModule, **options) -> ir.IRModule:
    """Take a module through the last three passes."""
    passes = [AnnotateTarget(compiler), MergeCompilerRegions(), PartitionGraph(**options)]
    return tvm.transform.Sequential(passes)(mod)


def test_one_operator_for_the_compiler_and_the_rest_for_tvm():
    x, y = variables("x y")

    def rest(total):
        return op("concat", [op("log", total), op("exp", total)], axis=0)

    done = PartitionGraph()(module([x, y], rest(marked("cc", "add", x, y))))
    p, q = variables("cc_0_i0 cc_0_i1")
    lifted = Region("cc", 0, [p, q], op("add", p, q))
    same(done, partitioned([x, y], rest(lifted(x, y)), lifted))
    function = done["tvmgen_default_cc_main_0"]
    assert [str(param.name) for param in function.params] == ["cc_0_i0", "cc_0_i1"]
    assert {name: str(value) for name, value in function.attrs.items()} == {
        "Compiler": "cc",
        "Codegen": "cc",
        "Primitive": "1",
        "Inline": "1",
        "global_symbol": "tvmgen_default_cc_main_0",
    }


def test_names_are_fit_for_c_and_say_the_module_and_the_function():
    x, y = variables("x y")
    odd = marked("unsanitary-name++", "add", x, y)
    assert names(PartitionGraph()(module([x, y], odd))) == {"unsanitary_name___main_0"}
    other = graph.to_anf([y], marked("cc", "abs", y))
    mod = module([x], marked("cc", "abs", x), sub=other)
    assert names(PartitionGraph()(mod)) == {"cc_main_0", "cc_sub_0"}
    for given, name in [
        ("net", "tvmgen_net_cc_main_0"),
        ("", "tvmgen_cc_main_0"),
        (None, "tvmgen_cc_main_0"),
    ]:
        done = PartitionGraph(given)(module([x], marked("cc", "abs", x)))
        assert {str(v.name_hint) for v in done.get_global_vars()} == {"main", name}


def test_a_name_that_is_taken_gets_a_number():
    x, y = variables("x y")
    function = graph.to_anf([y], op("abs", y), {"global_symbol": "tvmgen_default_cc_main_0"})
    mod = module([x], marked("cc", "abs", x), tvmgen_default_cc_main_0=function)
    done = PartitionGraph()(mod)
    assert names(done) == {"cc_main_0", "cc_main_0_1"}
    assert str(done["tvmgen_default_cc_main_0_1"].attrs["global_symbol"]).endswith("_0_1")


def test_a_region_is_numbered_by_its_first_mark():
    """A convolution takes marks 0 and 1, so that the normalization's are 2 to 6."""
    sizes = {"data": (1, 3, 8, 8), "weight": (16, 3, 3, 3)}
    data, weight = (var(name, size) for name, size in sizes.items())
    rest = [var(name, (16,)) for name in ("gamma", "beta", "mean", "var")]
    conv = marked("n", "nn.conv2d", data, weight, padding=(1, 1))
    norm = marked("n", "nn.batch_norm", conv, *rest, axis=1)
    done = PartitionGraph()(module([data, weight, *rest], norm))
    assert names(done) == {"n_main_0", "n_main_2"}
    params = done["tvmgen_default_n_main_2"].params
    assert [str(param.name) for param in params] == [f"n_2_i{i}" for i in range(5)]
    assert isinstance(done["main"].ret_ty, ir.TupleType)


def test_constants_move_into_the_region_unless_told_otherwise():
    x, y = var("x"), relax.const(np.ones((10, 10), "float32"))
    mod = module([x], op("log", marked("k", "add", y, x)))
    (p,) = variables("k_0_i1")
    inside = Region("k", 0, [p], op("add", y, p))
    done = PartitionGraph()(mod)
    same(done, partitioned([x], op("log", inside(x)), inside))
    assert str(done["tvmgen_default_k_main_0"].params[0].name) == "k_0_i1"
    p, q = variables("p q")
    outside = Region("k", 0, [p, q], op("add", p, q))
    done = PartitionGraph(bind_constants=False)(mod)
    same(done, partitioned([x], op("log", outside(y, x)), outside))


def test_several_outputs_come_as_a_tuple_in_the_order_of_their_ends():
    data = var("data")
    first = op("abs", *begin("m", data))
    second = op("nn.relu", first)
    between = op("tanh", compiler_end(first, "m"))
    third = marked("m", "add", compiler_end(second, "m"), between)
    done = PartitionGraph()(module([data], third))
    (p,) = variables("m_0_i0")
    inner = op("abs", p)
    one = Region("m", 0, [p], relax.Tuple([op("nn.relu", inner), inner]))
    q, r = variables("m_1_i0 m_1_i1")
    two = Region("m", 1, [q, r], op("add", q, r))
    both = one(data)
    relu, absolute = (relax.TupleGetItem(both, i) for i in (0, 1))
    same(done, partitioned([data], two(relu, op("tanh", absolute)), one, two))


def test_an_input_that_is_used_often_comes_once():
    """The marks are counted all the same."""
    x, y = variables("x y")
    squares = op("multiply", *begin("i", x, x))
    done = PartitionGraph()(module([x, y], compiler_end(op("add", squares, *begin("i", y)), "i")))
    params = done["tvmgen_default_i_main_0"].params
    assert [str(param.name) for param in params] == ["i_0_i0", "i_0_i2"]


def test_marks_of_the_default_compiler_go():
    x, y = variables("x y")
    pair = compiler_end(relax.Tuple(begin("default", x, y)), "default")
    done = PartitionGraph()(module([x, y], op("concat", pair, axis=0)))
    same(done, module([x, y], op("concat", relax.Tuple([x, y]), axis=0)))


def test_a_compiler_may_better_its_functions():
    def better(mod):
        (param,) = mod["main"].params
        return ir.IRModule({"main": graph.to_anf([param], op("abs", param))})

    tvm_ffi.register_global_func("relay.ext.bettered.optimize", better, override=True)
    x = var("x")
    done = PartitionGraph()(module([x], marked("bettered", "abs", marked("bettered", "abs", x))))
    one, two = (Region("bettered", i, [p := var("p")], op("abs", p)) for i in (0, 1))
    same(done, partitioned([x], two(one(x)), one, two))


def test_a_module_without_marks_or_regions_stays():
    x = var("x")
    before = module([x], op("abs", x))
    assert PartitionGraph()(before)["main"].same_as(before["main"])
    once = PartitionGraph()(module([x], marked("s", "abs", x)))
    same(PartitionGraph()(once), once)


def test_a_value_from_inside_that_is_used_outside():
    x = var("x")
    inner = op("abs", *begin("leak", x))
    body = op("add", compiler_end(op("tanh", inner), "leak"), inner)
    with pytest.raises(RelayError, match="used outside of it"):
        PartitionGraph()(module([x], body))


def test_a_region_that_needs_its_own_result():
    x = var("x")
    inner = op("abs", *begin("loop", x))
    back = compiler_begin(op("tanh", compiler_end(inner, "loop")), "loop")
    body = compiler_end(op("add", inner, back), "loop")
    with pytest.raises(RelayError, match="needs its own result"):
        PartitionGraph()(module([x], body))


def test_many_regions_in_a_row():
    (x,) = variables("x")
    body = x
    for i in range(400):
        body = marked(f"c{i % 2}", "abs", body)
    done = PartitionGraph()(module([x], body))
    assert len(names(done)) == 400


REWRITE = Path(__file__).parents[1] / "data" / "relay" / "rewrite"


@pytest.mark.parametrize(
    "name",
    ["tflite_before", "tflite_after", "torch_before", "torch_after"],
)
def test_what_real_relay_left_of_the_customers_convolution(name):
    """The source material's pattern table; before the two rewrites it does not fit PyTorch's."""

    def read(stem: str) -> ir.IRModule:
        return fromtext((REWRITE / f"{stem}.relay").read_text())

    padded = is_op("nn.pad")(wildcard(), wildcard()) | wildcard()
    conv = is_op("qnn.conv2d")(padded, *(is_constant() for _ in range(5)))
    biased = is_op("nn.bias_add")(conv, is_constant())
    pattern = is_op("qnn.requantize")(biased, *(is_constant() for _ in range(4)))
    passes = [
        MergeComposite([("tvmlab_npu.qnn_conv2d", pattern)]),
        AnnotateTarget("tvmlab_npu"),
        MergeCompilerRegions(),
        PartitionGraph(),
    ]
    done = tvm.transform.Sequential(passes)(read(name))
    same(done, read(f"{name}_partitioned"))
    functions = json.loads((REWRITE / "facts.json").read_text())[f"{name}_functions"]
    assert sorted(str(var.name_hint) for var in done.get_global_vars()) == functions


def data(count: int = 2) -> list[np.ndarray]:
    generator = np.random.default_rng(4)
    return [generator.standard_normal((10, 10)).astype("float32") for _ in range(count)]


@pytest.fixture
def generator():
    """A code generator for functions of one call of `abs`, which remembers what it got."""
    seen = []

    def generate(functions, options, constants):
        made = []
        for function in functions:
            symbol = str(function.attrs["global_symbol"])
            seen.append(symbol)
            a = te.placeholder((10, 10), name="a")
            # One more than the absolute value, so that the numbers tell who computed them.
            b = te.compute((10, 10), lambda i, j: tirx.abs(a[i, j]) + 1.0)  # noqa: B023
            prim = te.create_prim_func([a, b]).with_attr("global_symbol", symbol)
            made.append(tvm.compile(ir.IRModule({symbol: prim}), "llvm").mod)
        return made

    tvm_ffi.register_global_func("relax.ext.abs_plus_one", generate, override=True)
    yield seen
    tvm_ffi.remove_global_func("relax.ext.abs_plus_one")


def test_a_code_generator_takes_its_regions(generator, tmp_path):
    supports("abs_plus_one", "abs")
    x, y = variables("x y")
    body = op("add", op("tanh", op("abs", x)), op("abs", y))
    done = cut("abs_plus_one", module([x, y], body))
    given = data()
    wanted = np.tanh(np.abs(given[0]) + 1) + np.abs(given[1]) + 1
    lowered = relax.transform.RunCodegen()(done)
    assert generator == ["tvmgen_default_abs_plus_one_main_0", "tvmgen_default_abs_plus_one_main_1"]
    assert names(lowered) == set()
    np.testing.assert_allclose(run(lowered, *given)[0], wanted, rtol=1e-6)
    np.testing.assert_allclose(run(LowerRegions()(done), *given)[0], wanted, rtol=1e-6)


def test_without_a_code_generator_the_numbers_are_the_same():
    supports("absent", "abs", "add", "nn.relu")
    x, y, p, q = variables("x y p q")
    function = composite("absent.mul_relu", [p, q], op("nn.relu", op("multiply", p, q)))
    total = op("add", op("abs", x), y)
    body = relax.Tuple([op("tanh", total), op("add", called(function, total, y), op("exp", total))])
    done = cut("absent", module([x, y], body))
    assert names(done) == {"absent_main_0", "absent_main_3"}
    lowered = LowerRegions()(done)
    total = op("add", op("abs", x), y)
    last = op("add", op("nn.relu", op("multiply", total, y)), op("exp", total))
    same(lowered, module([x, y], relax.Tuple([op("tanh", total), last])))
    given = data()
    plus = np.abs(given[0]) + given[1]
    wanted = [np.tanh(plus), np.maximum(plus * given[1], 0) + np.exp(plus)]
    for found, one in zip(run(lowered, *given), wanted, strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-5)


def test_only_regions_without_a_code_generator_go(generator):
    supports("abs_plus_one", "abs")
    supports("nobody", "tanh")
    (x,) = variables("x")
    done = cut(["abs_plus_one", "nobody"], module([x], op("tanh", op("abs", x))))
    assert names(done) == {"abs_plus_one_main_0", "nobody_main_1"}
    inlined = InlineRegions()(done)
    assert names(inlined) == {"abs_plus_one_main_0"}
    (given,) = data(1)
    np.testing.assert_allclose(
        run(LowerRegions()(done), given)[0], np.tanh(np.abs(given) + 1), rtol=1e-6
    )


def test_a_main_without_a_global_symbol_stays_too():
    (x,) = variables("x")
    mod = module([x], op("abs", x))
    mod["main"] = mod["main"].without_attr("global_symbol")
    assert "main" in LowerRegions()(mod)
