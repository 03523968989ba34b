"""PartitionGraph: the functions it lifts, their names, parameters, attributes and results."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import ir, relax, tirx

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
    same,
    supports,
    var,
    variables,
)
from tvmlab.errors import RelayError
from tvmlab.ir import graph
from tvmlab.ir.partition import (
    AnnotateTarget,
    MergeCompilerRegions,
    MergeComposite,
    PartitionGraph,
    compiler_begin,
    compiler_end,
)
from tvmlab.ir.patterns import is_constant, is_op, wildcard
from tvmlab.ir.text.reader import fromtext
from tvmlab.relay.transform import InferType


def cut(compiler: str, mod: ir.IRModule, **options) -> ir.IRModule:
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
    other = graph.from_graph([y], marked("cc", "abs", y))
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
    function = graph.from_graph([y], op("abs", y), {"global_symbol": "tvmgen_default_cc_main_0"})
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


def test_a_whole_graph_between_marks_at_its_border():
    x, y = variables("x y")
    first = op("add", compiler_begin(x, "w"), compiler_begin(y, "w"))
    whole = compiler_end(op("multiply", first, compiler_begin(y, "w")), "w")
    done = PartitionGraph()(module([x, y], whole))
    p, q = variables("p q")
    lifted = Region("w", 0, [p, q], op("multiply", op("add", p, q), q))
    same(done, partitioned([x, y], lifted(x, y), lifted))


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


def test_tuples_of_constants_are_constants():
    x = var("x")
    one, two = (relax.const(np.full((10, 10), i, "float32")) for i in (1, 2))
    pair = compiler_begin(relax.Tuple([one, two]), "k2")
    inner = op("add", compiler_begin(x, "k2"), graph.typed(relax.TupleGetItem(pair, 1)))
    done = PartitionGraph()(module([x], compiler_end(inner, "k2")))
    assert len(done["tvmgen_default_k2_main_0"].params) == 1
    mixed = compiler_begin(relax.Tuple([one, x]), "k2")
    inner = op("add", compiler_begin(x, "k2"), graph.typed(relax.TupleGetItem(mixed, 1)))
    done = PartitionGraph()(module([x], compiler_end(inner, "k2")))
    assert len(done["tvmgen_default_k2_main_0"].params) == 2


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


def test_an_output_that_is_used_often_comes_once():
    supports("often", "abs")
    data = var("data")
    x = op("abs", data)
    body = relax.Tuple([op("nn.relu", x), op("tanh", x), op("log", x)])
    done = cut("often", module([data], body))
    (p,) = variables("p")
    lifted = Region("often", 0, [p], op("abs", p))
    x = lifted(data)
    body = relax.Tuple([op("nn.relu", x), op("tanh", x), op("log", x)])
    same(done, partitioned([data], body, lifted))


def test_an_input_that_is_used_often_comes_once():
    """The marks are counted all the same."""
    x, y = variables("x y")
    squares = op("multiply", *begin("i", x, x))
    done = PartitionGraph()(module([x, y], compiler_end(op("add", squares, *begin("i", y)), "i")))
    params = done["tvmgen_default_i_main_0"].params
    assert [str(param.name) for param in params] == ["i_0_i0", "i_0_i2"]


def test_uses_inside_and_outside_of_a_region():
    x, y, z = variables("x y z")
    total = op("add", x, y)
    log, rest = marked("u", "log", total), marked("u", "subtract", total, z)
    done = MergeCompilerRegions()(module([x, y, z], marked("u", "multiply", log, rest)))
    done = PartitionGraph()(done)
    p, q = variables("p q")
    lifted = Region("u", 0, [p, q], op("multiply", op("log", p), op("subtract", p, q)))
    same(done, partitioned([x, y, z], lifted(op("add", x, y), z), lifted))

    done = PartitionGraph()(MergeCompilerRegions()(module([x, y, z], op("multiply", log, rest))))
    (i,) = variables("i")
    one, two = Region("u", 0, [i], op("log", i)), Region("u", 1, [p, q], op("subtract", p, q))
    total = op("add", x, y)
    same(done, partitioned([x, y, z], op("multiply", one(total), two(total, z)), one, two))


def test_projections_of_a_regions_tuple():
    supports("norm", "nn.batch_norm", "nn.relu")
    data = var("data")
    rest = [var(name, (10,)) for name in ("gamma", "beta", "mean", "var")]

    def field(value, index):
        return graph.typed(relax.TupleGetItem(value, index))

    def outside(first, mean):
        return relax.Tuple([first, op("tanh", mean), op("log", mean)])

    norm = op("nn.batch_norm", data, *rest, axis=1)
    before = outside(op("nn.relu", field(norm, 0)), field(norm, 1))
    done = cut("norm", module([data, *rest], before))
    params = [var("p0"), *(var(f"p{i}", (10,)) for i in range(1, 5))]
    inner = op("nn.batch_norm", *params, axis=1)
    body = relax.Tuple([op("nn.relu", field(inner, 0)), field(inner, 1)])
    lifted = Region("norm", 0, params, body)
    whole = lifted(data, *rest)
    after = outside(field(whole, 0), field(whole, 1))
    same(done, partitioned([data, *rest], after, lifted))


def test_a_tuple_that_ends_a_region_becomes_several_outputs():
    supports("flat", "split", "abs")
    a = var("a")

    def fields(value):
        return [graph.typed(relax.TupleGetItem(value, i)) for i in (0, 1)]

    halves = op("split", a, 2)
    absolute = op("abs", graph.typed(relax.TupleGetItem(halves, 0)))
    before = relax.Tuple([op("concat", fields(halves), axis=0), op("nn.relu", absolute)])
    done = cut("flat", module([a], before))
    (p,) = variables("p")
    inner = op("split", p, 2)
    absolute = op("abs", graph.typed(relax.TupleGetItem(inner, 0)))
    lifted = Region("flat", 0, [p], relax.Tuple([*fields(inner), absolute]))
    whole = lifted(a)
    one, two, three = (graph.typed(relax.TupleGetItem(whole, i)) for i in range(3))
    after = relax.Tuple([op("concat", [one, two], axis=0), op("nn.relu", three)])
    same(done, partitioned([a], after, lifted))


def test_two_compilers_and_composite_functions_beside_operators():
    supports("west", "abs")
    supports("east", "tanh")
    a, b, x, y = variables("a b x y")
    function = composite("west.add_relu", [x, y], op("nn.relu", op("add", x, y)))
    body = op("tanh", op("abs", called(function, op("abs", a), b)))
    passes = [AnnotateTarget(["east", "west"]), MergeCompilerRegions(), PartitionGraph()]
    done = tvm.transform.Sequential(passes)(module([a, b], body))
    p, q, r = variables("p q r")
    one = Region("west", 0, [p, q], op("abs", called(function, op("abs", p), q)))
    two = Region("east", 2, [r], op("tanh", r))
    same(done, partitioned([a, b], two(one(a, b)), one, two))


def test_marks_of_the_default_compiler_go():
    x, y = variables("x y")
    pair = compiler_end(relax.Tuple(begin("default", x, y)), "default")
    done = PartitionGraph()(module([x, y], op("concat", pair, axis=0)))
    same(done, module([x, y], op("concat", relax.Tuple([x, y]), axis=0)))


def test_a_compiler_may_better_its_functions():
    def better(mod):
        (param,) = mod["main"].params
        return ir.IRModule({"main": graph.from_graph([param], op("abs", param))})

    tvm_ffi.register_global_func("relay.ext.bettered.optimize", better, override=True)
    x = var("x")
    done = PartitionGraph()(module([x], marked("bettered", "abs", marked("bettered", "abs", x))))
    one, two = (Region("bettered", i, [p := var("p")], op("abs", p)) for i in (0, 1))
    same(done, partitioned([x], two(one(x)), one, two))


def test_regions_in_branches():
    x, c = var("x"), var("c", (), "bool")
    total = op("add", x, x)
    sides = [marked("b", "abs", total), marked("b", "tanh", total)]
    done = PartitionGraph()(module([x, c], graph.typed(relax.If(c, *sides))))
    p, q = variables("p q")
    one, two = Region("b", 0, [p], op("abs", p)), Region("b", 1, [q], op("tanh", q))
    total = op("add", x, x)
    after = graph.typed(relax.If(c, one(total), two(total)))
    same(done, partitioned([x, c], after, one, two))


def test_a_module_without_marks_or_regions_stays():
    x = var("x")
    before = module([x], op("abs", x))
    assert PartitionGraph()(before)["main"].same_as(before["main"])
    once = PartitionGraph()(module([x], marked("s", "abs", x)))
    same(PartitionGraph()(once), once)


def test_a_module_is_left_as_it_is():
    x = var("x")
    before = module([x], marked("s", "abs", x))
    text = before.script()
    PartitionGraph()(before)
    assert before.script() == text


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


def test_modules_filled_by_hand():
    """Graphs, and attributes as code for Relay sets them."""
    x, y, p, q = variables("x y p q")
    mod = ir.IRModule()
    mod["main"] = relax.Function([x, y], marked("hand", "add", x, y))
    done = PartitionGraph()(mod)
    wanted = relax.Function([p, q], op("add", p, q))
    for name, value in [
        ("Primitive", tirx.IntImm("int32", 1)),
        ("Inline", tirx.IntImm("int32", 1)),
        ("Compiler", "hand"),
        ("global_symbol", "tvmgen_default_hand_main_0"),
    ]:
        wanted = wanted.with_attr(name, value)
    by_hand = ir.IRModule({"tvmgen_default_hand_main_0": wanted})
    by_hand["main"] = relax.Function(
        [x, y], relax.Call(by_hand.get_global_var("tvmgen_default_hand_main_0"), [x, y]), p.ty
    )
    same(done, InferType()(by_hand))
