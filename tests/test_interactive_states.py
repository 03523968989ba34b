"""The states: what is drawn and said is what the loops, the matcher and the report say."""

from __future__ import annotations

import re
from itertools import product
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from tvm import IRModule, s_tir, te

from tvmlab import relay
from tvmlab.errors import InputError
from tvmlab.interactive import loop_nest, matched, memory
from tvmlab.interactive.loops import Visit, visits
from tvmlab.plot import COLOURS
from tvmlab.relay.dataflow_pattern import is_constant, is_op, is_tuple, is_var, wildcard

LENGTH = 20


def split(factor: int, *, reordered: bool, length: int = LENGTH) -> s_tir.Schedule:
    A, B = (te.placeholder((length,), name=name) for name in "AB")
    C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
    sch = s_tir.Schedule(te.create_prim_func([A, B, C]))
    outer, inner = sch.split(sch.get_loops(sch.get_sblock("C"))[0], factors=[None, factor])
    if reordered:
        sch.reorder(inner, outer)
    return sch


def shapes(svg: str, tag: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(svg).findall(f"{{http://www.w3.org/2000/svg}}{tag}")


def words(svg: str) -> list[str]:
    return [one.text or "" for one in shapes(svg, "text")]


@pytest.mark.parametrize("factor", [1, 2, 3, 8, 20])
@pytest.mark.parametrize("reordered", [False, True])
def test_visits_are_those_of_plain_loops(factor: int, reordered: bool) -> None:
    blocks = -(-LENGTH // factor)
    if reordered:
        order = [o * factor + i for i, o in product(range(factor), range(blocks))]
    else:
        order = [o * factor + i for o, i in product(range(blocks), range(factor))]
    wanted = [Visit(element, element < LENGTH) for element in order]
    assert visits(split(factor, reordered=reordered), "C") == wanted


@pytest.mark.parametrize("reordered", [False, True])
def test_each_step_has_a_mark(reordered: bool) -> None:
    sch = split(8, reordered=reordered)
    steps = visits(sch, "C")
    svg, says = loop_nest(sch, "C")
    dots = [one for one in shapes(svg, "path") if one.get("fill") == COLOURS[0]]
    crosses = [one for one in shapes(svg, "path") if one.get("stroke") == COLOURS[3]]
    marks, legend = [
        [(one.get("d") or "").count("M") for one in pair]
        for pair in zip(dots, crosses, strict=True)
    ]
    assert marks == [sum(step.runs for step in steps), 4]
    assert marks[0] == LENGTH
    assert legend == [1, 1]
    assert says.startswith("24 steps visit the elements ")
    code = [one for one in words(svg) if "T.grid" in one]
    loops = ("i_1, i_0", "8, 3") if reordered else ("i_0, i_1", "3, 8")
    assert code == ["for {} in T.grid({}):".format(*loops)]


def test_what_is_said_is_what_is_seen() -> None:
    assert loop_nest(split(4, reordered=False), "C").says == (
        "20 steps visit the elements 0, 1, 2, 3, 4, 5 and so on. "
        "From each to the next it is 1 on. No step needs a guard."
    )
    assert loop_nest(split(8, reordered=True), "C").says == (
        "24 steps visit the elements 0, 8, 16, 1, 9, 17 and so on. In a turn of the outer loop, "
        "from each to the next it is 8 on; from one turn to the next, 15 back. The guard holds "
        "back 4 steps, in between, not only at the end."
    )


def test_a_schedule_stays_as_it_is() -> None:
    sch = split(8, reordered=True)
    before = sch.mod.script()
    assert loop_nest(sch, "C") == loop_nest(sch, "C")
    assert sch.mod.script() == before


def test_loops_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(InputError, match="130 steps"):
        loop_nest(split(10, reordered=False, length=130), "C")
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    C = te.compute(A.shape, lambda i: A[i], name="C")
    with pytest.raises(InputError, match="no constant length"):
        loop_nest(s_tir.Schedule(te.create_prim_func([A, C])), "C")
    A = te.placeholder((4, 4), name="A")
    C = te.compute(A.shape, lambda i, j: A[i, j], name="C")
    with pytest.raises(InputError, match="not one axis"):
        loop_nest(s_tir.Schedule(te.create_prim_func([A, C])), "C")


x = relay.var("x", shape=(1, 4))
one = relay.const(np.ones((1, 4), "float32"))


def graph(expr: Any) -> Any:
    return relay.IRModule.from_expr(relay.Function([x], expr))


SUM = graph(relay.tanh(relay.nn.relu(relay.add(x, one))))
RELU = is_op("nn.relu")(is_op("add")(wildcard(), is_constant()))


def test_a_match_inside_of_a_graph() -> None:
    svg, says = matched(RELU, SUM)
    assert says == "The pattern matches. It covers add, nn.relu. Outside of it: tanh."
    assert {"add", "nn.relu", "tanh", "x", "constant"} <= set(words(svg))


def test_a_match_that_stops_says_why() -> None:
    svg, says = matched(RELU, graph(relay.nn.relu(relay.add(x, relay.tanh(x)))))
    assert says == (
        "The pattern does not match: tanh stands where the pattern wants a constant. "
        "It reached add, nn.relu. No operator is outside."
    )
    thick = [box for box in shapes(svg, "rect") if box.get("stroke-width") == "2.4"]
    assert len(thick) == 2  # the box of tanh, and the legend's


def test_a_pattern_that_begins_nowhere() -> None:
    svg, says = matched(is_op("nn.conv2d")(wildcard(), wildcard()), SUM)
    thick = [box for box in shapes(svg, "rect") if box.get("stroke-width") == "2.4"]
    assert len(thick) == 1  # the legend's
    assert says == "The pattern matches nowhere: no operator here is nn.conv2d, its last one."


def test_parts_of_a_pattern_have_names() -> None:
    def why(part: Any) -> str:
        mod = graph(relay.nn.relu(relay.tanh(x)))
        return matched(is_op("nn.relu")(part), mod).says.split("wants ")[1].split(". It")[0]

    assert why(is_op("exp")(wildcard()) | is_constant()) == "exp or a constant"
    assert why(is_op("exp")(wildcard()) | is_op("sin")(wildcard()) | is_var()) == (
        "exp or sin or a variable"
    )
    assert why(is_var("y")) == "the variable y"
    assert why(is_var()) == "a variable"
    assert why(is_op("tanh")(wildcard()).has_dtype("int8")) == "tanh of dtype int8"
    assert why(is_op("tanh")(wildcard()).has_shape((4,))) == "tanh of shape (4)"
    assert why(is_op("tanh")(wildcard()).has_attr({"axis": 1})) == "tanh with axis=1"
    assert why(is_op("exp")) == "exp itself, not a call of it"
    assert why(is_tuple([wildcard()])) == "a tuple"
    exp = is_op("exp")(wildcard())
    assert why(exp.dominates(is_op("add")(None), wildcard())) == "exp that add dominates"


def test_a_wrong_number_of_operands_is_told() -> None:
    says = matched(is_op("nn.relu")(is_op("add")(wildcard())), SUM).says
    assert says == (
        "The pattern does not match: add has 2 operands, and the pattern names 1 operand. "
        "It reached nn.relu. Outside of it: tanh."
    )
    # As many as Relay has: Relax has the value of a pad as an attribute.
    padded = graph(relay.nn.pad(x, [(0, 0), (1, 1)]))
    assert "nn.pad has 2 operands" in matched(is_op("nn.pad")(wildcard()), padded).says
    assert "It covers nn.pad" in matched(is_op("nn.pad")(wildcard(), is_constant()), padded).says


def test_a_condition_that_fails_at_the_last_operator() -> None:
    says = matched(is_op("tanh")(None).has_dtype("int8"), SUM).says
    assert says == (
        "The pattern does not match: tanh stands where the pattern wants tanh of dtype int8. "
        "Outside of it: add, nn.relu."
    )


@pytest.mark.parametrize("pattern", [wildcard(), is_var(), is_constant()])
def test_a_pattern_of_no_operator(pattern: Any) -> None:
    says = matched(pattern, SUM).says
    assert says == "The pattern matches. It covers no operator. Outside of it: add, nn.relu, tanh."


def test_an_operator_without_its_call() -> None:
    says = matched(is_op("add"), SUM).says
    assert says.startswith("The pattern matches nowhere: it is the operator add alone.")
    assert matched(is_op("add")(None), SUM).says.startswith("The pattern matches. It covers add.")


def test_a_sum_is_taken_either_way_around() -> None:
    turned = is_op("nn.relu")(is_op("add")(is_constant(), is_op("tanh")(wildcard())))
    mod = graph(relay.nn.relu(relay.add(relay.tanh(x), one)))
    assert matched(turned, mod).says.startswith("The pattern matches. It covers tanh, add, nn.relu")
    says = matched(turned, graph(relay.nn.relu(relay.add(relay.exp(x), one)))).says
    assert "match: exp stands where the pattern wants tanh. It reached add, nn.relu." in says


def test_all_of_a_dominated_path_is_covered() -> None:
    path = is_op("nn.relu")(wildcard())
    pattern = is_op("tanh")(wildcard()).dominates(is_op("add")(None), path)
    assert matched(pattern, SUM).says == (
        "The pattern matches. It covers add, nn.relu, tanh. No operator is outside."
    )


def test_fields_of_a_tuple_are_followed() -> None:
    both = relay.concatenate([relay.tanh(x), relay.exp(x)], axis=0)
    parts = [is_op("tanh")(wildcard()), is_op("tanh")(wildcard())]
    says = matched(is_op("concatenate")(is_tuple(parts)), graph(both)).says
    assert "exp stands where the pattern wants tanh" in says
    assert "It reached tanh, concatenate." in says


def test_behind_a_condition_the_walk_goes_on() -> None:
    pattern = is_op("nn.relu")(is_op("add")(wildcard(), is_constant())).has_dtype("float32")
    assert matched(pattern, SUM).says == matched(RELU, SUM).says
    says = matched(pattern, graph(relay.nn.relu(relay.add(x, relay.tanh(x))))).says
    assert "tanh stands where the pattern wants a constant" in says


def test_of_alternatives_the_walk_takes_the_one_that_leads_on() -> None:
    adds = is_op("add")(wildcard(), is_constant())
    others = is_op("exp")(wildcard()), is_op("sin")(wildcard()).has_dtype("float32")
    mod = graph(relay.nn.relu(relay.add(relay.tanh(x), one)))
    for first in (adds | others[0] | others[1], others[0] | others[1] | adds):
        svg, says = matched(is_op("nn.relu")(first), mod)
        assert says == "The pattern matches. It covers add, nn.relu. Outside of it: tanh."
        # The boxes of relu, add and the constant, and the legend's.
        covered = [box for box in shapes(svg, "rect") if box.get("fill") == "#CDE9DF"]
        assert len(covered) == 4
    stops = graph(relay.nn.relu(relay.add(x, relay.tanh(x))))
    for first in (adds | others[0], others[0] | adds, others[1] | adds.has_dtype("float32")):
        says = matched(is_op("nn.relu")(first), stops).says
        assert "tanh stands where the pattern wants a constant. It reached add, nn.relu." in says


def test_parts_that_had_to_be_one() -> None:
    hole = wildcard()
    says = matched(is_op("add")(hole, hole), graph(relay.add(x, one))).says
    assert "two of its parts had to be one expression" in says


def test_what_is_no_pattern_is_refused() -> None:
    with pytest.raises(InputError, match="no pattern of Relay's language"):
        matched("nn.relu", SUM)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no function main"):
        matched(RELU, IRModule())
    for none in (None, SUM["main"]):
        with pytest.raises(InputError, match="is no module"):
            matched(RELU, none)  # type: ignore[arg-type]


def row(name: str, cycles: int, floor: float, pace: float) -> Any:
    return SimpleNamespace(
        name=name, cycles=cycles, array_floor=floor, dma_pace=pace, moved=int(16 * pace)
    )


def report(*rows: Any) -> Any:
    return SimpleNamespace(layers=rows, cycles=sum(one.cycles for one in rows))


REPORTS: Any = {
    4096: report(row("conv", 900, 300.0, 850.0), row("add", 200, 0.0, 20.0)),
    8192: report(row("conv", 350, 300.0, 100.0), row("add", 200, 0.0, 20.0)),
}


def bars(svg: str) -> list[float]:
    """Give the lengths of the bars, the legend's last."""
    high = [one for one in shapes(svg, "rect") if one.get("height") == "12"]
    return [float(one.get("width") or 0) for one in high if one.get("stroke-width") == "1"]


def test_a_size_stands_among_the_others() -> None:
    svg, says = memory(REPORTS, 4096)
    assert says == (
        "With 4 KiB the network takes 1,100 cycles and moves 13,920 bytes. That is 550 cycles more "
        "than with 8 KiB. The layer that pays most is conv: 900 cycles for 350."
    )
    assert memory(REPORTS, 8192).says == (
        "With 8 KiB the network takes 550 cycles and moves 1,920 bytes. It is the largest memory "
        "here."
    )
    written = words(svg)
    assert {"4 KiB", "8 KiB", "1,100", "conv", "add", "900", "200"} <= set(written)
    assert "550" not in written
    # One scale for all sizes, so that pictures can be compared: the longest bar is the width. Each
    # layer is a bar, and over it a darker one, as long as the bar of the largest memory.
    conv, conv_kept, add, add_kept = bars(svg)[:4]
    assert conv / add == pytest.approx(900 / 200, rel=1e-2)
    assert bars(memory(REPORTS, 8192).svg)[:4] == [conv_kept, conv_kept, add, add_kept]
    assert add == add_kept


def test_more_memory_that_gives_nothing_is_named_so() -> None:
    reports = {**REPORTS, 16384: REPORTS[8192]}
    assert memory(reports, 8192).says.endswith("With 16 KiB it takes no fewer cycles.")


def test_a_size_without_a_report_is_refused() -> None:
    with pytest.raises(InputError, match="no report for 100 bytes") as raised:
        memory(REPORTS, 100)
    assert re.search("4,096, 8,192", str(raised.value))


def test_no_reports_at_all() -> None:
    with pytest.raises(InputError, match="no report for 1 bytes") as raised:
        memory({}, 1)
    assert "there is none at all" in str(raised.value)


def test_reports_of_different_networks_are_refused() -> None:
    other = report(row("conv", 350, 300.0, 100.0))
    with pytest.raises(InputError, match="different layers"):
        memory({**REPORTS, 16384: other}, 4096)
