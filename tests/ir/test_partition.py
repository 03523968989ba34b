"""The four partition passes, one after the other, and how a partitioned module runs.

Relay 0.18's own tests of these passes run unchanged as well; here is one test of each rule.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import ir, relax, te, tirx

import tvmlab.qnn.transform  # noqa: F401 (adds the quantized operators to the table)
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

SHAPE = (10, 10)
LEVEL = itertools.count(11)
"""TVM takes an attribute again at another level only."""


def var(name: str, shape: tuple[int, ...] = SHAPE, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))


def variables(names: str) -> list[relax.Var]:
    return [var(name) for name in names.split()]


def op(name: str, *operands: Any, **attributes: Any) -> relax.Call:
    """Call an operator of `tvm.relax.op`, typed, by its name with dots."""
    function: Any = relax.op
    for part in name.split("."):
        function = getattr(function, part)
    return graph.typed(function(*operands, **attributes))


def begin(compiler: str, *operands: relax.Expr) -> list[relax.Call]:
    return [compiler_begin(operand, compiler) for operand in operands]


def marked(compiler: str, name: str, *operands: Any, **attributes: Any) -> relax.Call:
    """Call an operator between marks of its own."""
    inside = [one if is_tuple(one) else compiler_begin(one, compiler) for one in operands]
    return compiler_end(op(name, *inside, **attributes), compiler)


def is_tuple(expr: relax.Expr) -> bool:
    return isinstance(expr, (relax.Tuple, tuple, list))


def module(params: list[relax.Var], body: relax.Expr, **functions: relax.Function) -> ir.IRModule:
    main = graph.to_anf(params, body, {"global_symbol": "main"})
    return ir.IRModule({"main": main, **functions})


def called(function: relax.Function, *args: relax.Expr) -> relax.Call:
    return graph.typed(relax.Call(function, list(args)))


def composite(name: str, params: list[relax.Var], body: relax.Expr) -> relax.Function:
    return graph.to_anf(params, body, {"Composite": name})


class Region:
    """A function that partitioning is to leave."""

    def __init__(
        self, compiler: str, number: int, params: list[relax.Var], body: relax.Expr
    ) -> None:
        self.name = f"tvmgen_default_{compiler}_main_{number}"
        attrs = {"Compiler": compiler, "Codegen": compiler, "Primitive": 1, "Inline": 1}
        self.function = graph.to_anf(params, body, {**attrs, "global_symbol": self.name})
        self.var = ir.GlobalVar(self.name)
        relax.expr._update_type(self.var, self.function.ty)

    def __call__(self, *args: relax.Expr) -> relax.Call:
        return graph.typed(relax.Call(self.var, list(args)))


def partitioned(params: list[relax.Var], body: relax.Expr, *regions: Region) -> ir.IRModule:
    functions = {one.var: one.function for one in regions}
    main = graph.to_anf(params, body, {"global_symbol": "main"})
    return ir.IRModule({ir.GlobalVar("main"): main, **functions})


def same(one: ir.IRModule, other: ir.IRModule) -> None:
    """Check that two modules are the same, and that Relax takes and prints them."""
    tvm.ir.assert_structural_equal(one, other, map_free_vars=True)
    relax.analysis.well_formed(one)
    assert "def main" in one.script()


def names(mod: ir.IRModule) -> set[str]:
    """List the regions' names without what they have in common."""
    prefix = "tvmgen_default_"
    found = (str(one.name_hint) for one in mod.get_global_vars())
    return {name.removeprefix(prefix) for name in found if name.startswith(prefix)}


def supports(compiler: str, *operators: str) -> str:
    """Register, under Relay's names, which operators a compiler takes."""
    for name in operators:
        ir.register_op_attr(name, f"target.{compiler}", lambda call: True, level=next(LEVEL))
    return compiler


def run(mod: ir.IRModule, *arrays: np.ndarray) -> list[np.ndarray]:
    """Run a module with upstream's build."""
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    found = machine["main"](*(tvm.runtime.tensor(one) for one in arrays))
    return [one.numpy() for one in (found if isinstance(found, tvm_ffi.Array) else [found])]


def function(name: str, operators: str, params, body) -> relax.Function:
    """Make the composite function that is expected."""
    attrs = {"Composite": name, "PartitionedFromPattern": operators}
    return graph.to_anf(params, body, attrs)


def test_of_matches_that_overlap_the_one_nearer_the_result_goes_first():
    """Upstream's FuseOpsByPattern takes the other one."""
    x, p = variables("x p")
    body = op("abs", op("abs", op("abs", x)))
    done = MergeComposite([("two", is_op("abs")(is_op("abs")(wildcard())))])(module([x], body))
    made = function("two", "abs_abs_", [p], op("abs", op("abs", p)))
    same(done, module([x], called(made, op("abs", x))))


def test_a_match_whose_inside_is_used_outside_stays():
    """Upstream's FuseOpsByPattern makes a function of two results of it."""
    (x,) = variables("x")
    inner = op("abs", x)
    before = module([x], op("add", op("nn.relu", inner), inner))
    table = [("inside", is_op("nn.relu")(is_op("abs")(wildcard())))]
    assert MergeComposite(table)(before)["main"].same_as(before["main"])


@pytest.mark.parametrize("entry", [("name",), ("name", 3), ("name", wildcard(), 3), "name"])
def test_an_entry_that_is_none(entry):
    with pytest.raises(RelayError, match="a pattern table holds"):
        MergeComposite([entry])


def test_shapes_and_numbers_that_relax_has_as_operands_bear_no_marks():
    supports("shapes", "reshape", "strided_slice")
    (x,) = variables("x")
    sliced = op("strided_slice", x, [0], [0], [5])
    before = module([x], op("reshape", sliced, (5, 2, 5)))
    slices = op("strided_slice", *begin("shapes", x), [0], [0], [5])
    inner = compiler_begin(compiler_end(slices, "shapes"), "shapes")
    after = compiler_end(op("reshape", inner, (5, 2, 5)), "shapes")
    same(AnnotateTarget("shapes")(before), module([x], after))


def test_functions_of_other_compilers_and_the_module_itself_stay():
    supports("rest", "nn.relu")
    x, y = variables("x y")
    given = graph.to_anf(
        [y], op("nn.relu", y), {"Compiler": "gone", "Codegen": "gone", "global_symbol": "f"}
    )
    before = module([x], op("nn.relu", x), f=given)
    text = before.script()
    done = AnnotateTarget("rest")(before)
    assert before.script() == text
    assert done["f"].same_as(before["f"])
    same(done, module([x], marked("rest", "nn.relu", x), f=given))


@pytest.mark.parametrize("glue", ["call", "tuple", "if"])
def test_a_way_through_what_bears_no_marks_keeps_regions_apart(glue):
    x, c = var("x"), var("c", (), "bool")
    first = op("abs", *begin("g", x))
    out = compiler_end(first, "g")
    between = {
        "call": lambda: op("tanh", out),
        "tuple": lambda: relax.TupleGetItem(relax.Tuple([out, x]), 0),
        "if": lambda: graph.typed(relax.If(c, op("tanh", out), x)),
    }[glue]()
    again = marked("g", "nn.relu", compiler_end(first, "g"))
    mod = MergeCompilerRegions()(module([x, c], marked("g", "add", again, between)))
    done = PartitionGraph()(mod)
    relax.analysis.well_formed(done)
    assert len(names(done)) == 2
    sizes = sorted(
        len(done[f"tvmgen_default_{name}"].body.blocks[0].bindings) for name in names(done)
    )
    assert sizes == [1, 3]  # abs, relu and their pair; add alone


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x, y: compiler_end(op("abs", x), "m"), "no region"),
        (lambda x, y: compiler_end(op("abs", *begin("m", x)), "n"), "a region of m"),
        (lambda x, y: compiler_end(op("add", *begin("m", x), y), "m"), "another is in no region"),
    ],
)
def test_marks_that_make_no_regions(body, message):
    x, y = variables("x y")
    mod = module([x, y], body(x, y))
    for one in (MergeCompilerRegions(), PartitionGraph()):
        with pytest.raises(RelayError, match=message):
            one(mod)


OPERATORS = ["abs", "nn.relu", "tanh", "add", "subtract"]


@st.composite
def graphs(draw):
    """A graph of up to twelve operators, any of which can be a result too."""
    x, y = variables("x y")
    nodes = [x, y]
    for _ in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from(OPERATORS))
        count = 2 if name in ("add", "subtract") else 1
        nodes.append(op(name, *(draw(st.sampled_from(nodes)) for _ in range(count))))
    results = draw(st.lists(st.sampled_from(nodes[2:]), min_size=1, max_size=3))
    body = results[0] if len(results) == 1 else relax.Tuple(results)
    return module([x, y], body)


@settings(max_examples=80, deadline=None)
@given(mod=graphs(), non_calls=st.booleans(), merged=st.booleans())
def test_any_graph_is_cut_into_regions_that_can_run(mod, non_calls, merged):
    """No region needs its own result, and inlining the regions gives the graph back."""
    supports("any.A", "abs", "add")
    supports("any.B", "nn.relu")
    done = AnnotateTarget(["any.A", "any.B"], non_calls)(mod)
    if merged:
        done = MergeCompilerRegions()(done)
    done = PartitionGraph()(done)
    relax.analysis.well_formed(done)
    assert "compiler_" not in done.script()
    same(
        InlineRegions()(done),
        module(list(mod["main"].params), graph.inline_bindings(mod["main"].body)),
    )


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


def test_a_name_that_is_taken_gets_a_number():
    x, y = variables("x y")
    function = graph.to_anf([y], op("abs", y), {"global_symbol": "tvmgen_default_cc_main_0"})
    mod = module([x], marked("cc", "abs", x), tvmgen_default_cc_main_0=function)
    done = PartitionGraph()(mod)
    assert names(done) == {"cc_main_0", "cc_main_0_1"}
    assert str(done["tvmgen_default_cc_main_0_1"].attrs["global_symbol"]).endswith("_0_1")


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


def test_a_value_from_inside_that_is_used_outside():
    x = var("x")
    inner = op("abs", *begin("leak", x))
    body = op("add", compiler_end(op("tanh", inner), "leak"), inner)
    with pytest.raises(RelayError, match="is used outside"):
        PartitionGraph()(module([x], body))


def test_a_region_that_needs_its_own_result():
    x = var("x")
    inner = op("abs", *begin("loop", x))
    back = compiler_begin(op("tanh", compiler_end(inner, "loop")), "loop")
    body = compiler_end(op("add", inner, back), "loop")
    with pytest.raises(RelayError, match="depends on its own result"):
        PartitionGraph()(module([x], body))


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
    supports("other", "tanh")
    (x,) = variables("x")
    done = cut(["abs_plus_one", "other"], module([x], op("tanh", op("abs", x))))
    assert names(done) == {"abs_plus_one_main_0", "other_main_1"}
    inlined = InlineRegions()(done)
    assert names(inlined) == {"abs_plus_one_main_0"}
    (given,) = data(1)
    np.testing.assert_allclose(
        run(LowerRegions()(done), given)[0], np.tanh(np.abs(given) + 1), rtol=1e-6
    )
