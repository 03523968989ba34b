"""What errors and printed expressions say: names, shapes, and what to write in the place."""

from __future__ import annotations

from typing import Any

import pytest
import tvm

import tvmlab
from tests.relay.test_standin import script
from tvmlab import relay
from tvmlab.errors import CompileError, InputError, RelayError

X, Z = relay.var("x", shape=(2, 3)), relay.var("z", shape=(5,))
W = relay.var("w", shape=(4, 3))


def test_a_free_variable_is_named() -> None:
    free = relay.Function([X], relay.nn.dense(X, W))
    with pytest.raises(RelayError, match="nothing binds 'w'"):
        relay.IRModule.from_expr(free)
    with pytest.raises(RelayError, match="nothing binds 'w'"):
        relay.build(relay.IRModule({"main": free}), "llvm")
    # A function inside of another may use what that one binds.
    inner = relay.Function([Z], relay.sum(Z) + relay.sum(X))
    relay.IRModule.from_expr(relay.Function([X, Z], relay.Call(inner, [Z])))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: relay.from_expr(X + Z), ("add of", "(2, 3)", "(5,)")),
        (lambda: relay.add(X, Z), ("add of", "(2, 3)", "(5,)")),
        (lambda: relay.concatenate([X, Z], 0), ("concatenate of", "ndim 2 and 1")),
        (lambda: relay.nn.dense(X, Z), ("relay.nn.dense of", "(5,)", "weight has 1 dim")),
        (lambda: relay.fromtext(f"{HEAD} %x + {FIVE} }}"), ("In relax.add",)),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit(make: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(RelayError) as caught:
        make()
    told = str(caught.value)
    assert all(word in told for word in words), told
    assert "ir.Op(" not in told
    assert told.count("where:") == 1


FIVE = 'ones(shape=[5], dtype="float32")'
HEAD = "def @main(%x: Tensor[(2, 3), float32]) {"


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        ("def @main(x: Tensor[(2), int8]) { x }", "begins with %", "parameters are written %x"),
        ("fn (%x: int8, y: int8) { y }", "begins with %", "parameters are written %y"),
        ("def @main(%x: Tensor[(n, 3), int8]) { %x }", "extent n is no integer", "?"),
        ("garbage", "garbage is not known", "did you mean"),
        ("fast_exp(%x", "ends too early", "cut off"),
        ("add", "alone is no value", "call it"),
        ('#[version = "0.0.5"\ndef @main() { 1f }', "version line is not closed", "#[version ="),
        ("def @main() { 1f }\n#[metadata", "metadata line is not closed", "#[metadata]"),
        ("def @id[A](%x: A) -> A { %x }", "have no counterpart", "once for each type"),
    ],
)
def test_what_the_text_should_say(text: str, what: str, fix: str) -> None:
    with pytest.raises(RelayError, match=what.replace("?", r"\?")) as caught:
        relay.fromtext(text)
    assert fix in str(caught.value.fix)
    assert caught.value.line is not None


def test_a_tuple_is_no_input() -> None:
    mod = relay.fromtext(
        "def @main(%t: (Tensor[(2), float32], Tensor[(2), float32])) { %t.0 + %t.1 }"
    )
    with pytest.raises(CompileError, match="'t' is not a tensor") as caught:
        tvmlab.compile(mod)
    assert "flatten it" in str(caught.value.fix)
    assert "(t_0, t_1)" in str(caught.value.fix)


def test_expressions_print_as_relay_printed_them(tmp_path: Any) -> None:
    printed = script(
        tmp_path,
        "import tvm\n"
        "from tvm import relay\n"
        "from tvm.relay.dataflow_pattern import is_op, wildcard\n"
        "a = relay.var('a', shape=(2,))\n"
        "e = relay.add(relay.multiply(a, a), a)\n"
        "print(e)\n"
        "print(relay.transform.InferTypeLocal(relay.Tuple([e, a])))\n"
        "print(relay.split(e, (1,))[0])\n"
        "print(is_op('multiply')(wildcard(), wildcard()).partition(e))\n"
        "print(tvm.te.exp(tvm.te.var('x', 'float32')))\n",
    ).stdout
    lines = [line.partition(" /*")[0].rstrip(";") for line in printed.splitlines()]
    assert lines[:4] == [
        "free_var %a: Tensor[(2), float32]", "%0 = multiply(%a, %a)", "add(%0, %a)",
        "(Tensor[(2), float32], Tensor[(2), float32])",
    ]  # fmt: skip
    assert "%2.0" in lines
    assert 'PartitionedFromPattern="multiply_"' in printed
    assert "ir.Call" not in printed
    assert lines[-1] == "T.exp(x)"


def test_an_import_of_such_a_name_keeps_the_words() -> None:
    with pytest.raises(ImportError, match="does not carry") as caught:
        from tvmlab.relay.transform import ToMixedPrecision  # noqa: F401
    assert "tvm.relax.transform.ToMixedPrecision" in str(caught.value)
    with pytest.raises(ImportError, match="does not carry"):
        from tvmlab.relay import vm  # noqa: F401
    with pytest.raises(ImportError, match=r"did you mean relay\.transform\.FuseOps\?"):
        from tvmlab.relay.transform import FuseOpz  # type: ignore[attr-defined]  # noqa: F401
    from tvmlab.relay import compat  # a module that is no attribute before it is imported

    assert compat.install


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (lambda: relay.nn.con2d, "nn.conv2d"),
        (lambda: relay.transform.FuseOpz, "relay.transform.FuseOps"),
        (lambda: relay.ExprMutatr, "relay.ExprMutator"),
        (lambda: relay.frontend.from_onx, "relay.frontend.from_onnx"),
    ],
)
def test_a_slip_of_the_pen_is_told_the_name(ask: Any, name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        ask()
    assert name in str(caught.value).splitlines()[-1]
    assert "operator" not in str(caught.value) or "con2d" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "what", "fix"),
    [
        ("meshgrid((%x, %x))", "does not carry", "tvm.relax.op.meshgrid"),
        ("segment_sum(%x, %x)", "does not carry", "no counterpart"),
        ("vision.roi_align(%x, %x)", "does not carry", "tvm.relax.op.vision.roi_align"),
        ("lrn(%x)", "not known here", "did you mean nn.lrn"),
    ],
)
def test_an_operator_of_relays_that_is_not_carried(call: str, what: str, fix: str) -> None:
    with pytest.raises(RelayError, match=what) as caught:
        relay.fromtext(f"def @main(%x: Tensor[(2, 3), float32]) {{ {call} }}")
    assert fix in str(caught.value.fix)
    assert "line 1, column" in str(caught.value)


def test_text_is_read_by_relays_names() -> None:
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(2), float32]) { abs(%x) }'
    assert relay.parse(text, "notes.relay")["main"].body.op.same_as(relay.op.get("abs"))
    assert relay.parse_expr("1f + 2f").op.same_as(relay.op.get("add"))


def test_text_in_bytes() -> None:
    text = "def @main() { 1f /* \N{GREEK SMALL LETTER PI} */ }"
    tvm.ir.assert_structural_equal(relay.fromtext(text.encode()), relay.fromtext(text))


@pytest.mark.parametrize(
    ("text", "what"),
    [(None, "not a NoneType"), (3, "not a int"), (b"\xff\xfe", "not UTF-8"), ([], "not a list")],
)
def test_what_is_no_text(text: Any, what: str) -> None:
    with pytest.raises(InputError, match=what):
        relay.fromtext(text)
