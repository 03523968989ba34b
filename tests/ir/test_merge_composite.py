"""MergeComposite: which matches become functions, and what those are."""

from __future__ import annotations

import pytest
from tvm import relax

from tests.ir.partitions import called, module, op, same, var, variables
from tvmlab.errors import RelayError
from tvmlab.ir import graph
from tvmlab.ir.partition import MergeComposite
from tvmlab.ir.patterns import (
    is_constant,
    is_op,
    wildcard,
)


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


@pytest.mark.parametrize("taken", [False, True])
def test_a_check_sees_operands_attributes_and_types(taken):
    asked = []

    def check(extracted):
        summed = extracted.args[0].args[0]
        asked.append(
            (summed.op.name, [int(axis) for axis in summed.attrs.axis], str(summed.ty.dtype))
        )
        return taken

    x, p = variables("x p")

    def body(value):
        return op("nn.relu", op("abs", op("sum", value, axis=[1])))

    pattern = is_op("nn.relu")(is_op("abs")(is_op("sum")(wildcard())))
    before = module([x], body(x))
    done = MergeComposite([("checked", pattern, check)])(before)
    assert asked == [("relax.sum", [1], "float32")]
    if taken:
        made = function("checked", "sum_abs_nn.relu_", [p], body(p))
        same(done, module([x], called(made, x)))
    else:
        same(done, before)


def test_constants_stay_inside_where_the_pattern_says_so():
    x, p = variables("x p")
    two = relax.const(2.0, "float32")
    before = module([x], op("multiply", x, two))
    done = MergeComposite([("inside", is_op("multiply")(wildcard(), is_constant()))])(before)
    made = function("inside", "multiply_", [p], op("multiply", p, two))
    same(done, module([x], called(made, x)))
    p, q = var("p"), var("q", ())
    done = MergeComposite([("outside", is_op("multiply")(wildcard(), wildcard()))])(before)
    made = function("outside", "multiply_", [p, q], op("multiply", p, q))
    same(done, module([x], called(made, x, two)))


@pytest.mark.parametrize("entry", [("name",), ("name", 3), ("name", wildcard(), 3), "name"])
def test_an_entry_that_is_none(entry):
    with pytest.raises(RelayError, match="a pattern table holds"):
        MergeComposite([entry])
