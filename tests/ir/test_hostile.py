"""Damaged, deep and huge text and graphs: they are read, or refused with their place."""

from __future__ import annotations

import random
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax

from tests.short import fresh
from tvmlab import relay
from tvmlab.errors import RelayError
from tvmlab.ir import graph
from tvmlab.ir.text.reader import fromtext

DATA = Path(__file__).parents[1] / "data" / "relay"
TEXTS = {
    path.stem: path.read_text()
    for path in [*(DATA / "rewrite").glob("t*before.relay"), *DATA.glob("*.relay")]
    if path.stat().st_size < 10_000
}
WORDS = [
    *("(", ")", "[", "]", "{", "}", ",", ";", ":", "=", "->", "-", ".0", ".9", "%0", "%x", "%999"),
    *("@main", "@f", "fn", "def", "let", "if", "else", "True", "None", "Tensor[(1), int8]", "()"),
    *("meta[relay.Constant][0]", "meta[relay.Constant][7]", "meta[runtime.BoxInt][0]", "/*", "*/"),
    *('"', "\\", "#[metadata]", "{}", "1e999f", "-1", "99999999999999999999", "int8", "float64"),
    *("nn.conv2d", "reshape", "qnn.quantize", "axis=7", "\0", "é", "\u2028", "\n", "//", "?"),
]
MUTATIONS = 2400


def read(text: str) -> None:
    """Read damaged text: the result is a module, or an error that names the place."""
    error = None
    try:
        assert isinstance(fromtext(text), tvm.IRModule)
    except RelayError as refused:
        error = refused
    if error is not None:
        assert error.line is not None, error
        assert error.column is not None
        assert 1 <= error.line <= text.count("\n") + 1, error


def mutate(text: str, chance: random.Random) -> str:
    """Damage a text in one to three places."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.choice([1, 1, 2, 5, 20, 200]))
        other = chance.randrange(len(text) + 1)
        numbers = list(re.finditer(r"\d+", text))
        kind = chance.randrange(7)
        if kind == 0:
            text = text[:start] + text[end:]
        elif kind == 1:
            text = text[:start] + chance.choice(WORDS) + text[start:]
        elif kind == 2:
            text = text[:start] + chance.choice(WORDS) + text[end:]
        elif kind == 3:
            text = text[:other] + text[start:end] + text[other:]
        elif kind == 4 and numbers:
            number = chance.choice(numbers)
            value = chance.choice(["0", "1", "3", "-1", "255", str(2**31), str(2**63), "1" * 99])
            text = text[: number.start()] + value + text[number.end() :]
        elif kind == 5:
            text = text[:start]
        else:
            text = text[:start] + chr(chance.randrange(1, 256)) + text[start + 1 :]
    return text


@pytest.mark.parametrize("part", range(8))
def test_damaged_text(part: int) -> None:
    chance = random.Random(fresh(part))
    names = sorted(TEXTS)
    for _ in range(MUTATIONS // 8):
        text = mutate(TEXTS[chance.choice(names)], chance)
        read(text)


@pytest.mark.parametrize("name", ["let", "literals"])
def test_text_cut_off_anywhere(name: str) -> None:
    text = TEXTS[name]
    body = text.index("#[metadata]") if "#[metadata]" in text else text.rindex("}")
    for end in range(len(text) if len(text) < 1000 else body):
        read(text[:end])
    for end in range(body, len(text), 23):
        read(text[:end])
    with pytest.raises(RelayError):
        fromtext(text[: body - 2])


DEEP = 10_000


@pytest.mark.parametrize(
    "text",
    [
        "(" * DEEP + "1" + ")" * DEEP,
        "abs(" * DEEP + "1" + ")" * DEEP,
        "-" * DEEP + "1",
        "1" + " + 1" * DEEP,
        "fn () { " * DEEP + "1" + " }" * DEEP,
        "if (True) { " * DEEP + "1" + " } else { 1 }" * DEEP,
        "fn (%x: " + "(" * DEEP + "int8" + ",)" * DEEP + ") { %x }",
        "fn (%x: int8, a=" + "[" * DEEP + "]" * DEEP + ") { %x }",
        "/*" * DEEP + "*/" * DEEP + "1",
        "%x" + ".0" * DEEP,
        "let %x = 1;" * DEEP + "%x",
        "".join(f"%{i} = ({f'%{i - 1}' if i else '1'},);" for i in range(DEEP)) + f"%{DEEP - 1}",
        "".join(f"%{i} = fn () {{ {f'%{i - 1}()' if i else '1'} }};" for i in range(300))
        + "%299()",
        "".join(f"def @f{i}() {{ @f{i + 1}() }}\n" for i in range(DEEP))
        + f"def @f{DEEP}() {{ 1 }}",
        "def @f() { @f() }",
        "meta[relay.Constant][" + "9" * 5000 + "]",
        "fn (%x: Tensor[(" + "9" * 5000 + "), int8]) { %x }",
        "fn (%x: Tensor[(" + "9, " * DEEP + "9), int8]) { %x }",
        f"fn (%x: Tensor[({2**63 - 1}, {2**63 - 1}), int8]) {{ nn.batch_flatten(%x) }}",
        "%" + "a" * 1_000_000,
        "1" * 1_000_000,
        "add(" + "1, " * DEEP + "1)",
        "fn (%x: int8) { expand_dims(%x, axis=0, num_newaxis=30000000) }",
        "fn (%x: Tensor[(9000000), int8]) { split(%x, indices_or_sections=3000000, axis=0).0 }",
        "fn (%x: int8) { reshape(%x, newshape=[" + "1, " * 3_000_000 + "1]) }",
        "\0",
        "",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_deep_and_huge_text(text: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read(text)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 << 20  # KiB


X = relay.var("x", shape=(2,))
C = relay.var("c", shape=(), dtype="bool")
Y = relay.abs(X)


def repeated(times: int, step: Callable[[Any], Any], first: Any = X) -> Any:
    made = first
    for _ in range(times):
        made = step(made)
    return made


STEPS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "tuples": (lambda inner: relay.Tuple([inner]), graph.MAX_TYPE_DEPTH - 1),
    "tuples of Relax": (lambda inner: relax.Tuple([inner]), graph.MAX_TYPE_DEPTH - 1),
    "pairs of the same": (lambda inner: relay.Tuple([inner, inner]), 12),
    "branches": (lambda inner: relay.If(C, inner, X), graph.MAX_SCOPES),
    "branches that use no condition": (lambda inner: relay.If(C, X, inner), graph.MAX_SCOPES),
    "functions": (lambda inner: relay.Function([], inner), graph.MAX_SCOPES - 1),
}


@pytest.mark.parametrize("name", STEPS)
def test_nesting_is_carried_up_to_a_limit_and_refused_beyond_it(name: str) -> None:
    step, most = STEPS[name]
    mod = relay.IRModule.from_expr(relay.Function([X, C], repeated(most, step, Y)))
    assert relax.analysis.check_well_formed(mod)
    for more in (1, 5000):
        with pytest.raises(RelayError, match="nest"):
            relay.IRModule.from_expr(relay.Function([X, C], repeated(most + more, step, Y)))


def test_what_does_not_nest_is_not_counted() -> None:
    """Fields of tuples taken out again, and branches one after the other."""
    packed = repeated(500, lambda inner: relay.Tuple([inner, X])[0])
    turned = repeated(500, lambda inner: relay.If(C, relay.abs(inner), relay.nn.relu(inner)))
    for body in (packed, turned):
        mod = relay.IRModule.from_expr(relay.Function([X, C], body))
        assert mod["main"].ret_ty == X.ty
