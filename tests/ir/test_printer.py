"""Relax printed as Relay text: byte for byte where Relay printed it first, then form by form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.ir.texts import MATRIX, body, module, same_again, var
from tvmlab.errors import RelayError
from tvmlab.ir import graph
from tvmlab.ir.text.printer import astext
from tvmlab.ir.text.reader import fromtext

DATA = Path(__file__).parents[1] / "data" / "relay"
TEXTS = sorted(DATA.rglob("*.relay"))
MARK = "\n#[metadata]\n"
op = relax.op

# What Relax does not keep of a text, so that it cannot be printed again:
LETS = {"anf", "let"}  # which calls a `let` bound
RESHAPED = {"corners", "corners_fused"}  # that a size was left to be computed
SHARED = {"tflite_before", "tflite_after", "torch_after"}  # that two types share a size's node


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_what_relay_printed_is_printed_again(path: Path) -> None:
    text, name = path.read_text(), path.stem.removesuffix("_partitioned")
    again = astext(fromtext(text))
    if name in RESHAPED:
        again = again.replace("newshape=[2, 192]", "newshape=[2, -1]")
    if name in SHARED:
        text, again = text.partition(MARK)[0], again.partition(MARK)[0]
    assert (again == text) == (name not in LETS)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_what_relay_printed_is_read_again_as_the_same(path: Path) -> None:
    same_again(fromtext(path.read_text()))


def test_what_is_no_computation_is_bound_by_let() -> None:
    def build(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        pair = builder.emit(relax.Tuple([x, relax.const(2.0, "float32")]), "pair")
        field = builder.emit(relax.TupleGetItem(pair, 0))
        return op.add(builder.emit(field, "again"), builder.emit(relax.const(1), "lonely"))

    def cast(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return build(builder, x).args[0]

    mod = module(cast, var())
    same_again(mod)
    assert body(mod) == [
        "let %pair: (Tensor[(2, 4), float32], float32) = (%x, 2f);",
        "%0 = %pair.0;",
        "let %again: Tensor[(2, 4), float32] = %0;",
        "let %lonely: int32 = 1;",
        "%again",
    ]


NESTED = """\
#[version = "0.0.5"]
def @main(%x: Tensor[(2, 4), float32], %c: bool) -> Tensor[(2, 4), float32] {
  %1 = fn (%x1: Tensor[(2, 4), float32], Composite="a\\"b", Primitive=1) -> \
Tensor[(2, 4), float32] {
    %0 = exp(%x1);
    add(%0, %x)
  };
  %2 = %1(%x);
  %4 = if (%c) {
    %3 = nn.relu(%2);
    exp(%3)
  } else {
    %1(%2)
  };
  add(%4, %2)
}

def @side(%x2: Tensor[(2, 4), float32], Compiler="npu", flags=[1, -2], share=0.5f, global_symbol=\
"side") -> Tensor[(2, 4), float32] {
  @main(%x2, True)
}
"""


def test_nested_functions_branches_and_functions_of_the_module() -> None:
    mod = fromtext(NESTED)
    assert astext(mod, types=False) == NESTED
    text = same_again(mod)
    assert "  } /* ty=fn (Tensor[(2, 4), float32]) -> Tensor[(2, 4), float32] */;" in text
    assert "  %4 = if (%c) {" in text
    assert mod["side"].attrs["Codegen"] == "npu"


def test_names_are_those_that_relay_can_read() -> None:
    hints = ["x", "x.0", "x", "input.1", "a b;c:0", "0", "_y", "y.1/with", "a//b", "é", "z.", ""]
    mod = module(lambda _, *params: op.nn.relu(params[0]), *map(var, hints))
    header = same_again(mod).splitlines()[1]
    names = [part.partition(":")[0] for part in header.partition("(")[2].split("%")[1:]]
    wanted = ["x", "x.0", "x1", "input.1", "a_b_c_0", "v0", "v_y", "y.1/with", "a_/b", "v_", "z_"]
    assert names == [*wanted, "v"]


def test_a_function_and_a_graph_print_alone() -> None:
    x, y = var("x"), var("y")
    shared = graph.typed(op.nn.relu(x))
    value = graph.typed(op.add(shared, graph.typed(op.multiply(shared, y))))
    assert astext(value, types=False).splitlines() == [
        '#[version = "0.0.5"]',
        "free_var %x: Tensor[(2, 4), float32];",
        "%0 = nn.relu(%x);",
        "free_var %y: Tensor[(2, 4), float32];",
        "%1 = multiply(%0, %y);",
        "add(%0, %1)",
    ]
    function = relax.Function([x, y], relax.SeqExpr([], value), MATRIX)
    lines = astext(function).splitlines()
    assert lines[1].startswith("fn (%x: Tensor[(2, 4), float32] /* ty=Tensor[(2, 4), float32] */, ")
    assert lines[2] == "  %0 = nn.relu(%x) /* ty=Tensor[(2, 4), float32] */;"
    assert lines[-1].startswith("} /* ty=fn (Tensor[(2, 4), float32], Tensor[(2, 4), float32]) -> ")


NUMBERS = [
    (1.5, "float16", "1.5f16"),
    (0.1, "float32", "0.1f"),
    (1 / 3, "float32", "0.33333334f"),
    (16777216, "float32", "16777216f"),
    (3.4028235e38, "float32", "3.4028235e+38f"),
    (1e-45, "float32", "1.4013e-45f"),
    (-0.0, "float32", "-0f"),
    (np.inf, "float32", "inff"),
    (-np.inf, "float16", "-inff16"),
    (np.nan, "float64", "nanf64"),
    (-300, "int16", "-300i16"),
    (2**63 - 1, "int64", "9223372036854775807i64"),
    (True, "bool", "True"),
    (-(2**63), "int64", None),
    (-7, "int8", None),
    (7, "uint32", None),
]


@pytest.mark.parametrize(("value", "dtype", "text"), NUMBERS)
def test_numbers_stand_inline_and_come_back(value: Any, dtype: str, text: str | None) -> None:
    mod = module(lambda _: relax.Tuple([relax.const(np.array(value, dtype), dtype)]))
    assert body(mod) == [f"({text or 'meta[relay.Constant][0]'},)"]
    same_again(mod)


@pytest.mark.parametrize("bits", [0xFFC00000, 0x7F800001, 0x7FC00001])
def test_other_not_a_numbers_keep_their_bits(bits: int) -> None:
    value = np.array(bits, np.uint32).view(np.float32)
    mod = module(lambda _: relax.Tuple([relax.const(value, "float32")]))
    found = fromtext(astext(mod))["main"].body.blocks[0].bindings[0].value.fields[0]
    assert found.value.numpy().tobytes() == value.tobytes()


def deep(levels: int) -> relax.Function:
    """Nest functions in one another."""
    made = None
    for _ in range(levels):
        x = var()
        inner, result = made, relax.Call(tvm.ir.Op.get("relax.nn.relu"), [x])
        value = result if inner is None else relax.Call(inner, [x])
        made = relax.Function([x], relax.SeqExpr([], value), MATRIX)
    assert made is not None
    return made


def test_functions_nest_deep_or_are_refused() -> None:
    assert astext(deep(40)).count("fn (%x") == 40
    with pytest.raises(RelayError, match="nest too deep"):
        astext(deep(400))


def lowered(*names: str) -> tvm.IRModule:
    mod = relax.transform.LegalizeOps()(module(lambda _, x: op.nn.relu(x), var()))
    return tvm.IRModule({name: mod[name] for name in names})


def unbound() -> tvm.IRModule:
    return tvm.IRModule({"main": relax.Function([], relax.SeqExpr([], var("z")), MATRIX)})


def attributed(**attrs: Any) -> tvm.IRModule:
    mod = module(lambda _, x: op.nn.relu(x), var())
    return tvm.IRModule({"main": mod["main"].with_attrs(attrs)})


def shaped(ty: Any) -> tvm.IRModule:
    return module(lambda _, x, s: op.nn.relu(x), var(), var("s", ty))


@pytest.mark.parametrize(
    ("make", "message", "where"),
    [
        (lambda: lowered("main"), "no operator relax.call_tir", "binding gv"),
        (lambda: lowered("main", "relu"), "@relu is a PrimFunc", None),
        (lambda: module(lambda _, x: op.nn.selu(x), var()), "relax.nn.selu", "binding gv"),
        (lambda: module(lambda b, x: op.exp(b.match_cast(x, MATRIX)), var()), "match", "binding"),
        (lambda: shaped(relax.ShapeType(ndim=2)), "no type", "variable s"),
        (lambda: attributed(table={"a": 1}), "the attribute table=", None),
        (unbound, "Variable z is used where nothing binds it", None),
    ],
)
def test_what_relay_has_not_is_named(
    make: Callable[[], tvm.IRModule], message: str, where: str | None
) -> None:
    with pytest.raises(RelayError, match=message) as caught:
        astext(make())
    assert (caught.value.where or "").startswith(where or "")
    assert caught.value.fix
    assert caught.value.line is None


def test_strings_are_escaped() -> None:
    mod = fromtext(NESTED)
    mod["side"] = mod["side"].with_attr("s", 'a"b\\c\n\té\x01')
    same_again(mod)
    assert r's="a\"b\\c\n\t\xC3\xA9\x01"' in astext(mod)


def test_a_field_is_no_variable_of_the_same_name() -> None:
    pair, field = var("x", relax.TupleType([MATRIX, MATRIX])), var("x.0")
    mod = module(lambda _, x, y: op.subtract(relax.TupleGetItem(x, 0), y), pair, field)
    assert body(mod) == ["%0 = (%x).0;", "subtract(%0, %x.0)"]
    same_again(mod)
