"""Every row of the table there and back; attributes completed, or refused in words."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.relax import op

import tvmlab.ir.operators  # noqa: F401  (fills the table)
from tests.ir.reference import back_and_forth, made, var
from tests.ir.rows import EXAMPLES, calls
from tvmlab.errors import RelayError, TvmlabError
from tvmlab.ir import dialect, graph, table

FEW = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
N = tirx.Var("n", "int64")


X, B = var(2, 3, 4), var(2, 3, dtype="bool")
PAIR = relax.Tuple([X, var(4)])
UNKNOWN = relax.Var("u")
NO_SHAPE = relax.Var("v", relax.TensorType(dtype="float32", ndim=3))
NOTHING = relax.Var("w", relax.TensorType(dtype=None, ndim=-1))


def row(name: str) -> table.Operator:
    found = table.find(name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", sorted(EXAMPLES))
@given(data=st.data())
@FEW
def test_what_a_row_writes_reads_back_as_the_same_call(name: str, data: st.DataObject) -> None:
    call = data.draw(calls(name))
    assert set(back_and_forth(call)) == set(row(name).by_name)
    written = table.written(call)
    assert written is not None
    assert written[0].name == name


def test_every_row_has_an_example() -> None:
    annotations = {name for name in table.names() if name.startswith("annotation.")}
    assert set(table.names()) - set(EXAMPLES) <= annotations


@pytest.mark.parametrize(
    "call",
    [
        op.clip(X, 0, 6),
        op.reshape(var(2, N, 4), (2, N * 4)),
        op.reshape(var(2, N, 4), (2, N, 2, 2)),
        op.permute_dims(X, [-1, 0, 1]),
        op.expand_dims(X, [1, 2]),
        op.expand_dims(X, []),
        op.squeeze(X, []),
        op.concat([X, X], -1),
        op.split(X, [1], 1),
        op.strided_slice(X, [0], [1], [2], [1]),
        op.strided_slice(X, [0, 1], [0, 0], [1, 1], [1, 1]),
        op.strided_slice(X, [2, 0], [0, 1], [1, -9], [2, -1]),
        op.take(X, var(dtype="int32"), 0, mode="fast"),
        op.take(X, var(5, dtype="int64"), -1, mode="wrap"),
        op.where(var(2, 3, 1, dtype="bool"), X, X),
        op.full((2, 3), relax.const(1.0), "int8"),
        op.arange(0, 5, 1, "int64"),
        op.argsort(X, 0, True, "int64"),
        op.topk(X, 2, 0, "indices", True, "int64"),
        op.cumsum(X, 1, "float64", True),
        op.sum(X, []),
        op.mean(X, [0, -1], True),
        op.zeros_like(NO_SHAPE),
        op.astype(NO_SHAPE, "int8"),
    ],
    ids=str,
)
def test_relax_calls_of_its_own_come_back_as_they_were(call: relax.Call) -> None:
    back_and_forth(graph.typed(call))


@pytest.mark.parametrize(
    "call",
    [
        op.clip(X, tirx.IntImm("int32", 0), tirx.IntImm("int32", 6)),
        op.expand_dims(X, [0, -1]),
        op.concat([var(2), var(3)], None),
        op.split(var(5), 2),  # 3 and 2: Relay cuts into equal parts only
        op.split(X, 1),
        op.strided_slice(X, [0], [0], [1], assume_inbound=True),
        op.zeros_like(X, "int8"),
        op.take(X, var(5, dtype="int64"), 0, mode="nan"),
        op.mean(var(3, dtype="int32")),
        op.broadcast_to(var(1), (N,)),
        op.sum(var(), []),
        op.square(X),
    ],
    ids=str,
)
def test_what_relay_cannot_say_is_not_written(call: relax.Call) -> None:
    assert table.written(graph.typed(call)) is None


@pytest.mark.parametrize(
    ("name", "given", "want"),
    [
        ("sum", {"axis": 1}, {"axis": [1], "keepdims": False, "exclude": False}),
        ("sum", {"axis": (0, -1), "keepdims": 1}, {"axis": [0, -1], "keepdims": True}),
        ("sum", {"axis": np.array([0, 1])}, {"axis": [0, 1]}),
        ("sum", {"axis": [tirx.IntImm("int32", 2)]}, {"axis": [2]}),
        ("clip", {"a_min": 0, "a_max": np.float32(1.5)}, {"a_min": 0, "a_max": 1.5}),
        ("cast", {"dtype": np.float16}, {"dtype": "float16"}),
        ("cumsum", {"dtype": None}, {"dtype": "", "axis": None}),
        ("transpose", {}, {"axes": None}),
        ("split", {"indices_or_sections": (1, 2)}, {"indices_or_sections": [1, 2], "axis": 0}),
        ("split", {"indices_or_sections": np.int64(2)}, {"indices_or_sections": 2}),
    ],
)
def test_attributes_become_plain_and_complete(
    name: str, given: dict[str, Any], want: dict[str, Any]
) -> None:
    found = table.complete_attributes(row(name), given)
    assert list(found) == list(row(name).by_name)
    for key, value in want.items():
        assert (found[key], type(found[key])) == (value, type(value))


def test_python_functions_have_defaults_of_their_own() -> None:
    assert table.complete_attributes(row("topk"), {})["dtype"] == ""
    assert table.complete_attributes(row("topk"), {}, python=True)["dtype"] == "int32"


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("sum", {"axes": 1}, ("sum has no attribute 'axes'", "did you mean 'axis'")),
        ("exp", {"q": 1}, ("no attribute 'q'", "no attributes")),
        ("sum", {"axis": "1"}, ("'axis' of sum must be integers, not '1'",)),
        ("sum", {"axis": 1.5}, ("integers",)),
        ("sum", {"keepdims": 2}, ("'keepdims' of sum must be True or False, not 2",)),
        ("one_hot", {"depth": 1.5}, ("an integer, not 1.5",)),
        ("clip", {"a_min": "0", "a_max": 1}, ("a number",)),
        ("cast", {"dtype": 8}, ("a string, not 8",)),
        ("cast", {}, ("cast needs the attribute 'dtype'",)),
    ],
)
def test_attributes_that_do_not_fit_are_named(
    name: str, given: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(RelayError) as caught:
        table.complete_attributes(row(name), given)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.where == name


LAYOUTS = [
    (one.name, attribute.name)
    for one in table.rows()
    for attribute in one.attributes
    if attribute.name.endswith("layout") and one.name != "layout_transform"
]


@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
def test_layouts_of_other_axes_are_named(name: str, layout: str) -> None:
    attributes = row(name).by_name
    first = "layout" if "layout" in attributes else "data_layout"
    letters = attributes[layout].default or attributes[first].default
    needed = {"pool_size": [1, 1]} if "pool_size" in attributes else {}
    for bad in ("NCH", "NCHX", letters + letters[0], letters.lower(), "1", f"{letters}16x"):
        with pytest.raises(RelayError, match=f"^{layout} of {name} is '{bad}'") as caught:
            table.complete_attributes(row(name), {**needed, layout: bad})
        assert caught.value.where == f"{name}, attribute {layout}"
    for good in (letters, letters[::-1], f"{letters}8{letters[1].lower()}"):
        assert table.complete_attributes(row(name), {**needed, layout: good})[layout] == good


@pytest.mark.parametrize("name", sorted(EXAMPLES))
@pytest.mark.parametrize("unknown", [UNKNOWN, NO_SHAPE, NOTHING], ids=str)
@given(data=st.data())
@settings(FEW, max_examples=3)
def test_operands_of_unknown_type_give_a_call_or_an_error_of_ours(
    name: str, unknown: relax.Var, data: st.DataObject
) -> None:
    call = data.draw(calls(name))
    written, operands, attributes = table.written(call) or (None, [], {})
    assert written is not None
    operands = [relax.Tuple([unknown]) if isinstance(x, relax.Tuple) else unknown for x in operands]
    # Relax's own operators say in their own way what they cannot bear.
    with contextlib.suppress(TvmlabError, TypeError, ValueError):
        assert isinstance(graph.typed(written.to_relax(operands, attributes)), relax.Call)


@pytest.mark.parametrize(
    ("name", "operands", "given", "words"),
    [
        ("reshape", [NO_SHAPE], {"newshape": [0, -1]}, "the shape of reshape data must be known"),
        ("reshape", [X], {"newshape": [-1, -1]}, "has two unknown sizes"),
        ("reshape", [X], {"newshape": [2, 3, 0, 2]}, "goes beyond|elements"),
        ("reshape", [X], {"newshape": [-4, -1, -1, -2]}, "two unknown sizes"),
        ("reshape", [X], {"newshape": None}, "needs a shape"),
        ("squeeze", [X], {"axis": [0]}, "which has size 2"),
        ("squeeze", [X], {"axis": [3]}, "axis 3 of squeeze data is outside its 3 dimensions"),
        ("split", [X], {"indices_or_sections": 2, "axis": 1}, "cannot cut 3 into 2 equal parts"),
        ("strided_slice", [X], {"begin": [0], "end": [1, 2]}, "of one length"),
        ("strided_slice", [X], {"begin": [0], "end": [1], "slice_mode": "x"}, "no mode 'x'"),
        ("take", [X, X], {"batch_dims": 1}, "batch_dims=0 only"),
        ("sum", [X], {"exclude": True}, "cannot exclude"),
        ("argmax", [X], {"axis": [0, 1, 2], "exclude": True}, "has no axis"),
        ("argmax", [var()], {}, "has no axis"),
        ("all", [X], {}, "takes booleans, not float32"),
        ("zeros", [], {"shape": [2]}, "needs a dtype"),
        ("one_hot", [var(2, dtype="int32"), var(), var()], {"depth": 2}, "needs a dtype"),
        ("where", [B, X, X], {}, "do not broadcast|broadcast"),
        ("layout_transform", [X], {"src_layout": "NCHW", "dst_layout": "NHWC"}, "cannot convert"),
        ("einsum", [PAIR], {"equation": "ijk,k->l"}, "l did not appear in the input"),
        ("einsum", [PAIR], {"equation": "ijk"}, "1 operands, but the call has 2"),
        ("einsum", [PAIR], {"equation": "ijk,j"}, r"label .j. for operand 1 \(3\)"),
    ],
)
def test_calls_that_mean_nothing_say_why(
    name: str, operands: list[relax.Expr], given: dict[str, Any], words: str
) -> None:
    with pytest.raises((RelayError, ValueError, TypeError), match=words):
        made(name, *operands, **given)


def test_an_error_of_inference_crosses_tvm_whole() -> None:
    call = dialect.call("relax.relay.all", [X], table.complete_attributes(row("all"), {}))
    builder = relax.BlockBuilder()
    with pytest.raises(RelayError) as caught, builder.function("main", [X]):
        builder.emit(call)
    assert caught.value.what == "all takes booleans, not float32"
    assert (caught.value.where, caught.value.fix) == ("all", "cast the data to bool")
