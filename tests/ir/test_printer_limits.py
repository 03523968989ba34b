"""Relay text of constants of every kind, of deep graphs, and what has no Relay text at all."""

from __future__ import annotations

from collections.abc import Callable
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

MARK = "\n#[metadata]\n"
op = relax.op

NUMBERS = [
    (1.5, "float16", "1.5f16"),
    (-2.25, "float32", "-2.25f"),
    (0.1, "float32", "0.1f"),
    (1 / 3, "float32", "0.33333334f"),
    (16777216, "float32", "16777216f"),
    (3.4028235e38, "float32", "3.4028235e+38f"),
    (1e-45, "float32", "1.4013e-45f"),
    (1 / 3, "float64", "0.3333333333333333f64"),
    (-0.0, "float32", "-0f"),
    (np.inf, "float32", "inff"),
    (-np.inf, "float16", "-inff16"),
    (np.nan, "float64", "nanf64"),
    (70000, "int32", "70000"),
    (-(2**31), "int32", "-2147483648"),
    (-300, "int16", "-300i16"),
    (2**63 - 1, "int64", "9223372036854775807i64"),
    (True, "bool", "True"),
    (-(2**63), "int64", None),
    (-7, "int8", None),
    (200, "uint8", None),
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


def test_a_constant_stands_in_the_metadata_once() -> None:
    one = relax.const(np.ones((2, 4), np.float32))
    other = relax.const(np.ones((2, 4), np.float32))
    mod = module(lambda b, x: op.add(b.emit(op.add(x, one)), b.emit(op.add(one, other))), var())
    assert body(mod)[:2] == [
        "%0 = add(%x, meta[relay.Constant][0]);",
        "%1 = add(meta[relay.Constant][0], meta[relay.Constant][1]);",
    ]
    same_again(mod)


def test_metadata_can_be_left_out_with_a_note() -> None:
    mod = module(lambda _, x: op.add(x, relax.const(np.ones((2, 4), np.float32))), var())
    text = astext(mod, show_meta_data=False)
    assert text.startswith(astext(mod).partition(MARK)[0])
    assert "metadata section has been omitted" in text
    assert text.endswith(" */")
    assert "b64ndarrays" not in text
    plain = module(lambda _, x: op.exp(x), var())
    assert astext(plain, show_meta_data=False) == astext(plain)


def test_depth_is_free() -> None:
    value = x = var()
    for _ in range(5000):
        value = graph.typed(op.nn.relu(value))
    assert astext(value, types=False).splitlines()[-1] == "nn.relu(%4998)"
    mod = tvm.IRModule({"main": graph.from_graph([x], value)})
    assert body(mod)[-1] == "nn.relu(%4998)"


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
        (lambda: lowered("main"), "no operator like relax.call_tir", "@main, binding gv"),
        (lambda: lowered("main", "relu"), "@relu is a PrimFunc", None),
        (lambda: module(lambda _, x: op.nn.selu(x), var()), "relax.nn.selu", "@main, binding gv"),
        (lambda: module(lambda b, x: op.exp(b.match_cast(x, MATRIX)), var()), "match", "@main, "),
        (lambda: shaped(relax.ShapeType(ndim=2)), "no type like", "@main, variable s"),
        (lambda: attributed(table={"a": 1}), "the attribute table of a function", "@main"),
        (unbound, "Variable z is used where nothing binds it", "@main"),
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
