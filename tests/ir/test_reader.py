"""Relay text read into Relax: what real Relay printed, and each part of the form alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi
from tvm import ir, relax

import tvmlab
from tvmlab.errors import InputError, RelayError
from tvmlab.ir import table
from tvmlab.ir.text.reader import fromtext

DATA = Path(__file__).parents[1] / "data" / "relay"
TEXTS = sorted(path.stem for path in DATA.glob("*.relay"))
RUNS = {path.stem: path.stem for path in DATA.glob("*.npz")}
RUNS |= dict.fromkeys(("anf", "corners_fused"), "corners")  # the same function in other forms


def text_of(name: str) -> str:
    return (DATA / f"{name}.relay").read_text()


def bindings(function: relax.Function) -> list[relax.Expr]:
    return [b.value for block in function.body.blocks for b in block.bindings]


def calls(function: relax.Function) -> list[str]:
    """Name Relay's operators in a function and those nested in it, through the table."""
    found = []
    for value in bindings(function):
        if isinstance(value, relax.Function):
            found += calls(value)
        written = table.written(value) if isinstance(value, relax.Call) else None
        if written is not None:
            found.append(written[0].name)
    return found


def equal(a: object, b: object) -> bool:
    return tvm_ffi.structural_equal(a, b, map_free_vars=True)


@pytest.mark.parametrize("name", TEXTS)
def test_operators_and_parameters_are_as_relay_counted(name: str) -> None:
    facts = json.loads((DATA / f"{name}.json").read_text())
    main = fromtext(text_of(name))["main"]
    counts = {operator: calls(main).count(operator) for operator in set(calls(main))}
    assert counts == facts["ops"]
    types = {p.name: [[int(i) for i in p.ty.shape.values], str(p.ty.dtype)] for p in main.params}
    assert types == facts["params"]


@pytest.mark.parametrize(("name", "ran"), sorted(RUNS.items()))
def test_what_ran_in_relay_gives_the_same(name: str, ran: str) -> None:
    data = np.load(DATA / f"{ran}.npz")
    params = {key[6:]: data[key] for key in data.files if key.startswith("param_")}
    mod = fromtext(text_of(name), params=params)
    inputs = {key[3:]: data[key] for key in data.files if key.startswith("in_")}
    given = [inputs[p.name] for p in mod["main"].params]
    outputs = tvmlab.compile(mod)(*given)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    for index, output in enumerate(outputs):
        expected = data[f"out_{index}"]
        assert output.dtype == expected.dtype
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(output, expected)
    assert len([key for key in data.files if key.startswith("out_")]) == len(outputs)


@pytest.mark.parametrize(
    ("text", "dtype", "value"),
    [
        ("1", "int32", 1),
        ("2147483648", "int64", 2**31),
        ("-9223372036854775808", "int64", -(2**63)),
        ("---10", "int32", -10),
        ("1.5f16", "float16", 1.5),
        ("1E-1f", "float32", np.float32(0.1)),
        ("inff", "float32", np.inf),
        ("True", "bool", True),
    ],
)
def test_a_literal(text: str, dtype: str, value: float) -> None:
    constant = fromtext(text)["main"].body.body
    assert isinstance(constant, ir.GenericConst)
    array = constant.value.numpy()
    assert (array.shape, str(constant.ty.dtype), array[()]) == ((), dtype, value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("2147483648i32", "does not fit int32"),
        ("3.40283e+38f32", "does not fit float32"),
        ("9223372036854775808", "does not fit int64"),
        ("1" * 5000, "is not a valid integer"),
        ("1f33", "is not a Relay literal"),
    ],
)
def test_a_literal_that_does_not_fit(text: str, what: str) -> None:
    with pytest.raises(RelayError, match=what) as caught:
        fromtext(text)
    assert (caught.value.line, caught.value.column) == (1, 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1 * 1 + 1 < 1 == True", "(((1 * 1) + 1) < 1) == True"),
        ("1 - 2 - 3", "(1 - 2) - 3"),
        ("2f - -1f", "subtract(2f, -1f)"),
        ("1 <= 2 != (3 >= 4)", "not_equal(less_equal(1, 2), greater_equal(3, 4))"),
        ("-(1 + 2)", "negative(add(1, 2))"),
    ],
)
def test_infix_operators_bind_as_in_relay(one: str, other: str) -> None:
    assert equal(fromtext(one), fromtext(other))
    assert not equal(fromtext("1 * (1 + 1)"), fromtext("1 * 1 + 1"))


def test_comments_nest() -> None:
    text = "/* a /* b // */ */ ( // (\n/***/ 1 /* ) */ , 2 /* ty=(int8 /* x */) */ )"
    assert len(bindings(fromtext(text)["main"])[0].fields) == 2


def test_let_binds_and_a_number_names() -> None:
    mod = fromtext("let %x = (1, 2); %0 = (%x, 3); %1 = %0; %2 = %1.0; %2.1")
    kinds = [type(value) for value in bindings(mod["main"])]
    assert kinds == [relax.Tuple, relax.TupleGetItem, relax.TupleGetItem]
    shadowed = fromtext("let %x = 1; let %x = add(%x, 2); %x")
    assert [type(value) for value in bindings(shadowed["main"])] == [ir.GenericConst, relax.Call]


def test_attributes_of_every_kind() -> None:
    mod = fromtext(
        'fn (%x: float32, a=1, b=-2.5f, c="q\\"\\\\n", d=[1, -2], e=[[1], []], f=True, g=None,'
        ' h=["s", "t"], i.j=float32, k=(1, 2)) { %x }'
    )
    attrs = mod["main"].attrs
    assert (attrs["a"], attrs["b"], attrs["c"], attrs["f"], attrs["g"]) == (
        *(1, -2.5, 'q"\\n', True, None),
    )
    assert [list(map(int, attrs[name])) for name in "dk"] == [[1, -2], [1, 2]]
    assert ([list(item) for item in attrs["e"]], list(attrs["h"])) == ([[1], []], ["s", "t"])
    assert attrs["i.j"] == "float32"


def test_functions_call_others_whose_types_are_declared_or_known_already() -> None:
    mod = fromtext(
        "def @f(%x: int32) { @g(%x) + 1 }\n"
        "def @g(%x: int32) -> int32 { if (%x < 1) { 1 } else { @g(%x - 1) * %x } }\n"
        "def @main(%x: int32) { @f(%x) }"
    )
    assert str(mod["main"].ret_ty.dtype) == "int32"
    with pytest.raises(RelayError, match="@f is called before its type is known"):
        fromtext("def @main(%x: int32) { @f(%x) } def @f(%x: int32) { %x }")


def test_question_marks_are_unknown_extents() -> None:
    mod = fromtext("def @main(%x: Tensor[(?, 3, ?), int8]) { copy(%x) }")
    rows, three, columns = mod["main"].params[0].ty.shape.values
    assert int(three) == 3
    assert not rows.same_as(columns)
    assert mod["main"].ret_ty.shape[0].same_as(rows)


def test_params_become_constants(tmp_path: Path) -> None:
    text = "def @main(%x: Tensor[(2), float32], %w: Tensor[(2), float32]) { %x * %w }"
    mod = fromtext(text, params={"w": np.array([2, 3], np.float32)})
    assert [p.name for p in mod["main"].params] == ["x"]
    np.testing.assert_array_equal(tvmlab.compile(mod)(np.ones(2, np.float32)), [2, 3])
    with pytest.raises(InputError, match="not a parameter of @main"):
        fromtext(text, params={"v": np.ones(2, np.float32)})
    with pytest.raises(RelayError, match="'w' in params is") as caught:
        fromtext(text, params={"w": np.ones(3, np.float32)})
    assert caught.value.column == text.index("%w") + 1


@pytest.mark.parametrize(
    ("text", "what", "at"),
    [
        ("def @main(%x: int32) { add(%x }", "'}' is unexpected", "}"),
        ("%0 = %1; %1", "no value %1", "%1"),
        ("def @main(%value: int32) { add(%valve, 1) }", "no value %valve", "%valve"),
        ("fn (%x: int8) { nn.relu(%x, %x) }", "takes 1 operands", "nn."),
        ("fn (%x: int8) { nn.softmax(%x, axis=1, axis=2) }", "axis occurs twice", "axis=2"),
        ("fn (%x: floot32) { %x }", "no dtype floot32", "floot32"),
        ("fn (%x: Tensor[(1, a), int8]) { %x }", "no integer", "Tensor"),
        ("fn (%x: int8) -> int32 { %x }", "declared", "fn"),
        ("fn () { }", "no result", "{"),
        ("def @main() { meta[relay.Constant][0] }", "the text has no metadata", "meta"),
        ("type List[A] { Nil }", "no counterpart", "type"),
        ('#[version = "0.1.0"]\n1', "not 0.0.5", "#["),
        ("/* /* */ 1", "not closed", "/*"),
        (
            "fn (%x: Tensor[(2, 3), float32], %y: Tensor[(4, 3), float32]) { %x + %y }",
            "",
            "+ %y",
        ),
        ("let %f = fn (%i: int32) -> int32 { %f(%i) }; %f(1)", "no value %f", "%f(%i)"),
        ("fn (%c: Tensor[(2), bool]) { if (%c) { 1 } else { 2 } }", "The condition is", "%c) {"),
        ("fn (%c: bool) { if (%c) { 1 } else { 2f } }", "The other branch is", "if"),
        ("fn (%x: Tensor[(4), int8]) { tile(%x, reps=[-3]) }", "would be", "tile"),
        ('fn (%x: Tensor[(4), int8]) { cast(%x, dtype="int4") }', "no dtype int4", "cast"),
    ],
)
def test_an_error_names_its_place(text: str, what: str, at: str) -> None:
    with pytest.raises(RelayError) as caught:
        fromtext("// first\n\n" + text)
    assert what in caught.value.what
    assert caught.value.line == 3 + text[: text.index(at)].count("\n")
    assert caught.value.column == text.index(at) - text.rfind("\n", 0, text.index(at))
    assert f"line {caught.value.line}, column {caught.value.column}: " in (caught.value.where or "")


def test_numbers_of_an_attribute_may_be_constants() -> None:
    written = (DATA / "literals.relay").read_text().partition("#[metadata]")[2]
    mod = fromtext(
        "arange(0i64, 7i64, 1i64, start=0, stop=meta[relay.Constant][1], step=100,"
        f' dtype="int32")\n#[metadata]{written}'
    )
    assert [int(extent) for extent in mod["main"].ret_ty.shape] == [7]
