"""AnnotateTarget: who takes which operator, and where the marks stand."""

from __future__ import annotations

import pytest
import tvm
from tvm import ir, relax

from tests.ir.partitions import (
    begin,
    called,
    composite,
    marked,
    module,
    op,
    same,
    supports,
    variables,
)
from tvmlab.ir import graph
from tvmlab.ir.partition import (
    AnnotateTarget,
    compiler_begin,
    compiler_end,
)

both = pytest.mark.parametrize("non_calls", [False, True])


@both
def test_each_use_of_a_result_has_an_end_and_a_begin_of_its_own(non_calls):
    supports("ends", "nn.relu")
    (x,) = variables("x")
    r = op("nn.relu", x)
    before = module([x], op("add", op("abs", r), op("abs", r)))
    r = op("nn.relu", *begin("ends", x))
    uses = [marked("default", "abs", compiler_end(r, "ends")) for _ in range(2)]
    after = module([x], marked("default", "add", *uses))
    same(AnnotateTarget("ends", non_calls)(before), after)


def test_a_predicate_sees_types_and_attributes():
    asked = []

    @tvm.ir.register_op_attr("nn.relu", "target.typed")
    def takes(call):
        asked.append((str(call.args[0].ty.dtype), call.args[0].ty.shape.values[0]))
        return isinstance(call.args[0], relax.Call)

    (x,) = variables("x")
    done = AnnotateTarget("typed")(module([x], op("nn.relu", op("nn.relu", x))))
    assert [(kind, int(size)) for kind, size in asked] == [("float32", 10)] * 2
    inner = marked("default", "nn.relu", x)
    same(done, module([x], marked("typed", "nn.relu", inner)))


def test_a_name_of_relax_serves_as_well_as_one_of_relay():
    ir.register_op_attr("relax.abs", "target.spelled", lambda call: True)
    (x,) = variables("x")
    done = AnnotateTarget("spelled")(module([x], op("abs", x)))
    same(done, module([x], marked("spelled", "abs", x)))


@both
def test_a_tuple_between_operators_goes_with_them(non_calls):
    supports("tuple", "nn.relu", "concatenate")
    x, y = variables("x y")
    before = module([x, y], op("concat", [op("nn.relu", x), op("nn.relu", y)], axis=1))
    ends = [marked("tuple", "nn.relu", one) for one in (x, y)]
    if non_calls:
        whole = compiler_end(relax.Tuple(begin("tuple", *ends)), "tuple")
    else:
        whole = relax.Tuple(ends)
    after = compiler_end(op("concat", compiler_begin(whole, "tuple"), axis=1), "tuple")
    same(AnnotateTarget("tuple", non_calls)(before), module([x, y], after))


def test_a_tuple_of_several_compilers_goes_to_none():
    supports("left", "nn.relu")
    supports("right", "abs")
    (x,) = variables("x")
    before = module([x], relax.Tuple([op("nn.relu", x), op("abs", x)]))
    fields = [marked("left", "nn.relu", x), marked("right", "abs", x)]
    after = compiler_end(relax.Tuple(begin("default", *fields)), "default")
    same(AnnotateTarget(["left", "right"])(before), module([x], after))


def test_composite_functions_go_by_their_name_and_stay_as_they_are():
    supports("named", "nn.relu")
    a, b, x, y = variables("a b x y")
    function = composite("named.add_relu", [x, y], op("nn.relu", op("add", x, y)))
    before = module([a, b], called(function, a, b))
    after = compiler_end(called(function, *begin("named", a, b)), "named")
    same(AnnotateTarget("named")(before), module([a, b], after))
    same(
        AnnotateTarget("nam")(before),
        module([a, b], compiler_end(called(function, *begin("default", a, b)), "default")),
    )


@both
def test_the_first_of_two_compilers_takes_what_both_support(non_calls):
    supports("one", "nn.relu", "abs")
    supports("two", "abs", "tanh")
    (x,) = variables("x")
    before = module([x], op("tanh", op("abs", op("nn.relu", x))))
    inner = marked("one", "nn.relu", x)
    same(
        AnnotateTarget(["one", "two"], non_calls)(before),
        module([x], marked("two", "tanh", marked("one", "abs", inner))),
    )
    same(
        AnnotateTarget(["two", "one"], non_calls)(before),
        module([x], marked("two", "tanh", marked("two", "abs", inner))),
    )


@both
def test_two_runs_are_one_run_with_two_compilers(non_calls):
    supports("run.A", "nn.relu")
    supports("run.B", "add")
    (x,) = variables("x")
    r = op("nn.relu", x)
    before = module([x], op("add", op("abs", r), op("nn.relu", r)))
    twice = AnnotateTarget("run.B", non_calls)(AnnotateTarget("run.A", non_calls)(before))
    same(twice, AnnotateTarget(["run.A", "run.B"], non_calls)(before))
    again = AnnotateTarget("run.B", non_calls)(twice)
    same(again, twice)


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


def test_marks_compile_to_nothing():
    supports("nought", "nn.relu")
    (x,) = variables("x")
    mod = AnnotateTarget("nought")(module([x], op("nn.relu", x)))
    lowered = relax.transform.LegalizeOps()(mod)
    assert "compiler_begin" in mod.script()
    assert "compiler_" not in lowered.script()


def test_what_has_no_operands_bears_no_marks():
    alone = module([], op("zeros", (10, 10), "float32"))
    same(AnnotateTarget("nothing")(alone), alone)
