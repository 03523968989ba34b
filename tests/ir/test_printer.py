"""Relax printed as Relay text: byte for byte where Relay printed it first, and each form alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from tests.ir.texts import MATRIX, body, equal, module, same_again, var
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


UNTYPED = """\
  %0 = nn.pad(%input, 114f, pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]]);
  %1 = qnn.quantize(%features.0.0_weight, 0.00288958f, 0, out_dtype="int8", axis=0);
  %2 = nn.bias_add(%0, meta[relay.Constant][0]);
"""
TYPED = """\
  %0 = nn.relu(%input) /* ty=Tensor[(1, 3, 4, 4), uint8] */;
  %1 = nn.bias_add(%0, meta[relay.Constant][0] /* ty=Tensor[(3), uint8] */)\
 /* ty=Tensor[(1, 3, 4, 4), uint8] */;
"""
DECLARED = """\
  free_var %x: Tensor[(2, 4), float32];
  %0 = nn.relu(%x);
  free_var %y: Tensor[(2, 4), float32];
  %1 = (%0, %y);
  %2 = concatenate(%1);
"""


@pytest.mark.parametrize(("text", "types"), [(UNTYPED, False), (TYPED, True), (DECLARED, False)])
def test_a_fragment_is_printed_as_it_stands(text: str, types: bool) -> None:
    mod = fromtext(text)
    assert astext(mod, types=types) == text
    # Only the comments say what types a fragment's variables have.
    for other in (True, types):
        assert equal(fromtext(astext(mod, types=other)), mod)


def test_variables_declared_in_another_order_stand_in_front() -> None:
    text = DECLARED.replace("  free_var %y: Tensor[(2, 4), float32];\n", "")
    text = "  free_var %y: Tensor[(2, 4), float32];\n" + text
    assert astext(fromtext(text), types=False) == text


def test_a_fragment_cannot_have_constants_named_twice() -> None:
    mod = fromtext(TYPED)
    bound = relax.transform.BindParams("main", {"input": np.ones((1, 3, 4, 4), np.uint8)})(mod)
    with pytest.raises(RelayError, match="parameters named like constants") as caught:
        astext(bound)
    assert "BindParams" in str(caught.value.fix)


def test_numbers_follow_the_bindings_where_relay_would_order_them_otherwise() -> None:
    def build(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        late, early = builder.emit(op.exp(x)), builder.emit(op.nn.relu(x))
        builder.emit(op.negative(late))  # which nothing uses
        return op.add(early, late)

    mod = module(build, var())
    same_again(mod)
    assert body(mod) == ["%0 = exp(%x);", "%1 = nn.relu(%x);", "%2 = negative(%0);", "add(%1, %0)"]


def test_tuples_get_a_line_before_their_first_use() -> None:
    def build(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        pair = relax.Tuple([x, builder.emit(op.nn.relu(x))])
        first = builder.emit(op.concat(pair, axis=0))
        return relax.Tuple([first, builder.emit(op.concat(pair, axis=1)), relax.Tuple([first])])

    assert body(module(build, var())) == [
        "%0 = nn.relu(%x);",
        "%1 = (%x, %0);",
        "%2 = concatenate(%1);",
        "%3 = concatenate(%1, axis=1);",
        "%4 = (%2,);",
        "(%2, %3, %4)",
    ]


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


@pytest.mark.parametrize(
    ("build", "lines"),
    [
        (lambda _, x: op.exp(x), ["exp(%x)"]),
        (lambda builder, x: builder.emit(op.exp(x)), ["%0 = exp(%x);", "%0"]),
        (lambda _, x: relax.Tuple([x]), ["(%x,)"]),
        (lambda _, x: relax.Tuple([]), ["()"]),
        (lambda _, x: x, ["let %gv: Tensor[(2, 4), float32] = %x;", "%gv"]),
        (
            lambda builder, x: builder.emit(builder.emit(op.exp(x)), "a"),
            [
                "%0 = exp(%x);",
                "let %a: Tensor[(2, 4), float32] = %0;",
                "let %gv: Tensor[(2, 4), float32] = %a;",
                "%gv",
            ],
        ),
    ],
)
def test_results(build: Callable[..., relax.Expr], lines: list[str]) -> None:
    mod = module(build, var())
    same_again(mod)
    assert body(mod) == lines


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


def test_what_a_nested_function_shares_with_those_around_it() -> None:
    x, weight = var(), relax.const(np.ones((2, 4), "float32"))
    pair = relax.Tuple([x, weight])
    inner = relax.Function([], relax.SeqExpr([], graph.typed(op.concat(pair, 1))), var().ty)
    calls = [graph.typed(call) for call in (op.concat(pair, 0), relax.Call(inner, []))]
    made = graph.from_graph([x], relax.Tuple([*calls, graph.typed(op.stack(pair, 0))]))
    mod = tvm.IRModule({"main": made.with_attr("global_symbol", "main")})
    assert body(mod) == [
        "%0 = (%x, meta[relay.Constant][0]);",
        "%1 = concatenate(%0);",
        "%3 = fn () -> Tensor[(2, 8), float32] {",
        "%2 = (%x, meta[relay.Constant][0]);",
        "concatenate(%2, axis=1)",
        "};",
        "%4 = %3();",
        "%5 = stack(%0);",
        "(%1, %4, %5)",
    ]
    same_again(mod)


def test_a_compiler_of_relax_alone_stays_alone() -> None:
    mod = fromtext(NESTED)
    mod["side"] = mod["side"].without_attr("Compiler")
    assert 'Codegen="npu"' in astext(mod)
    assert "Compiler" not in astext(mod)


def test_names_are_those_that_relay_can_read() -> None:
    hints = ["x", "x.0", "x", "input.1", "a b;c:0", "0", "_y", "y.1/with", "a//b", "é", "z.", ""]
    mod = module(lambda _, *params: op.nn.relu(params[0]), *map(var, hints))
    header = same_again(mod).splitlines()[1]
    names = [part.partition(":")[0] for part in header.partition("(")[2].split("%")[1:]]
    wanted = ["x", "x_0", "x1", "input.1", "a_b_c_0", "v0", "v_y", "y.1/with", "a_/b", "v_", "z_"]
    assert names == [*wanted, "v"]


def test_main_keeps_its_names_and_other_functions_give_way() -> None:
    mod = module(lambda _, x: op.exp(x), var())
    mod["a-b"] = module(lambda _, x: op.nn.relu(x), var())["main"].without_attr("global_symbol")
    text = astext(mod, types=False)
    assert text.index("def @a_b(%x1: ") < text.index("def @main(%x: ")


def test_strings_are_escaped() -> None:
    mod = fromtext(NESTED)
    mod["side"] = mod["side"].with_attr("s", 'a"b\\c\n\té\x01')
    same_again(mod)
    assert r's="a\"b\\c\n\t\xC3\xA9\x01"' in astext(mod)


def test_sizes_that_are_not_known_are_question_marks() -> None:
    size = tirx.Var("n", "int64")
    mod = module(lambda _, x: op.nn.relu(x), var(ty=relax.TensorType([size, 4], "float32")))
    text = same_again(mod)
    assert "%x: Tensor[(?, 4), float32] /* ty=Tensor[(?, 4), float32] */" in text
    ranked = module(lambda _, x: op.nn.relu(x), var(ty=relax.TensorType(None, "int8", ndim=2)))
    assert "(%x: Tensor[(?, ?), int8])" in astext(ranked, types=False)


def test_types_that_are_not_known_are_left_out() -> None:
    unknown = relax.TensorType(dtype=None)
    mod = module(lambda b, x: op.nn.relu(x), var(ty=unknown))
    assert same_again(mod).splitlines()[1:3] == ["def @main(%x) {", "  nn.relu(%x)"]


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
