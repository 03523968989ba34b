"""MergeCompilerRegions: which regions join, and that none needs its own results."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from tests.ir.partitions import begin, marked, module, names, op, same, supports, var, variables
from tvmlab.errors import RelayError
from tvmlab.ir import graph
from tvmlab.ir.partition import (
    AnnotateTarget,
    InlineRegions,
    MergeCompilerRegions,
    PartitionGraph,
    compiler_end,
)


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


@pytest.mark.parametrize("non_calls", [False, True])
def test_regions_around_and_in_branches(non_calls):
    supports("branches", "sigmoid", "erf", "add")
    (data,) = variables("data")
    plus = op("add", data, data)
    minus = op("subtract", plus, data)
    cond = op("equal", op("sum", plus), op("sum", minus))
    either = graph.typed(relax.If(cond, op("sigmoid", plus), op("sigmoid", minus)))
    before = module([data], op("add", plus, op("erf", either)))
    mod = MergeCompilerRegions()(AnnotateTarget("branches", non_calls)(before))
    done = PartitionGraph()(mod)
    relax.analysis.well_formed(done)
    # The addition before and what follows the branches cannot run at one time.
    assert len(names(done)) == 3


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x, y: compiler_end(op("abs", x), "m"), "no region"),
        (lambda x, y: compiler_end(op("abs", *begin("m", x)), "n"), "one of m"),
        (lambda x, y: compiler_end(op("add", *begin("m", x), y), "m"), "another is in none"),
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
    """A graph of up to twelve operators, any of which may be a result too."""
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
