"""Targets as a user writes them: dictionaries, tags, and the strings of Relay's time."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st

import tvmlab
from tests.oracles.models import dense, said
from tvmlab.errors import TargetError
from tvmlab.support.target import as_target, parse, split_target

ARM = "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu"
AARCH64 = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("llvm", "llvm"),
        ("nvidia/nvidia-a100", "cuda"),
        ({"kind": "llvm", "mcpu": "x86-64-v3"}, "llvm"),
        ('{"kind": "llvm", "num-cores": 3}', "llvm"),
        (None, "llvm"),
        ("llvm -mcpu=x86-64-v3", "llvm"),
    ],
)
def test_as_target(given: Any, kind: str) -> None:
    made = as_target(given)
    assert made.kind.name == kind
    assert as_target(made) is made
    again = as_target(str(made))  # a target prints itself as JSON
    assert (again.kind.name, dict(again.attrs)) == (kind, dict(made.attrs))


@pytest.mark.parametrize(
    "wrong",
    [
        *("nonsense", "", "nvidia/no-such-gpu", {}, {"mcpu": "x86-64-v3"}, {"kind": "nonsense"}),
        *({"kind": "llvm", "bogus": 1}, {"kind": "llvm", "num-cores": "many"}, 5, b"llvm"),
    ],
    ids=repr,
)
def test_an_unknown_target(wrong: Any) -> None:
    with pytest.raises(TargetError, match="TVM does not know this target") as caught:
        tvmlab.compile(tvmlab.load(dense()), wrong)
    assert caught.value.where == repr(wrong)
    assert "kind" in said(caught.value)
    assert caught.value.__cause__ is not None


def test_an_unknown_triple() -> None:
    for _ in range(20):  # TVM itself reads through a null pointer, which ends the process or not
        with pytest.raises(TargetError, match="for the triple 'nonsense'") as caught:
            tvmlab.compile(tvmlab.load(dense()), {"kind": "llvm", "mtriple": "nonsense"})
        assert "mtriple" in said(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("llvm -num-cores=0", "num-cores is less than 1"),
        (f"{ARM} -mcpu=x86-64-v3", "LLVM does not know a processor named 'x86-64-v3'"),
        ("llvm -host='llvm -mcpu=no-such-cpu'", "LLVM does not know a processor named 'no-such"),
    ],
)
def test_values_that_llvm_does_not_have(text: str, words: str) -> None:
    for wrong in (text, parse(text), tvm.target.Target(parse(text))):
        with pytest.raises(TargetError, match=words) as caught:
            as_target(wrong)
        said(caught.value)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("llvm --device=arm_cpu -mtriple=a", {"kind": "llvm", "device": "arm_cpu", "mtriple": "a"}),
        ("llvm -num-cores 4 -fast-math", {"kind": "llvm", "num-cores": 4, "fast-math": True}),
        ("llvm '-mattr=+avx2, +fma'", {"kind": "llvm", "mattr": ["+avx2", "+fma"]}),
        ("cuda -host=llvm", {"kind": "cuda", "host": {"kind": "llvm"}}),
    ],
)
def test_target_strings(text: str, wanted: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse(text) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("llvm mcpu=x", "has no option mcpu"),
        ("gpu -cores=4", 'Target kind "gpu" is not defined'),
        ("llvm -mcpu='x", "No closing quotation"),
        ("llvm -mcpu", "'mcpu': expected type 'str'"),
        ("llvm -num-cores=many", "'num-cores': expected type 'int'"),
    ],
)
def test_strings_that_are_no_target(text: str, words: str) -> None:
    with pytest.raises(TargetError, match=words) as caught:
        as_target(text)
    assert caught.value.where == repr(text)
    said(caught.value)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"npu, {ARM}", ("npu", ARM)),
        ("npu,llvm -mattr=+avx2,+fma", ("npu", "llvm -mattr=+avx2,+fma")),
        ("llvm -mattr=+avx2,+fma", (None, "llvm -mattr=+avx2,+fma")),
        (" npu ", ("npu", None)),
    ],
)
def test_composites(text: str, wanted: tuple[str | None, str | None]) -> None:
    assert split_target(text) == wanted


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        (f"bnns, {ARM}", "'bnns', before the comma, is not a known", f"'npu, {ARM}'; or leave"),
        ("llvm, npu", "'llvm', before the comma", "comma: 'npu, llvm'; or leave out 'npu' and"),
    ],
)
def test_composites_that_are_refused(text: str, what: str, fix: str) -> None:
    with pytest.raises(TargetError, match=what) as caught:
        split_target(text)
    assert fix in said(caught.value)


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "mcpu": st.sampled_from(["x86-64", "x86-64-v3", "skylake-avx512"]),
        "mattr": st.lists(st.sampled_from(["+avx2", "+fma", "-avx512f"]), min_size=1, max_size=3),
        "num-cores": st.integers(1, 128),
        "fast-math": st.booleans(),
        "opt-level": st.integers(0, 3),
    },
)


@given(OPTIONS, st.sampled_from(["-", "--"]), st.sampled_from(["=", " "]))
def test_a_dictionary_and_its_string_are_the_same_target(
    options: dict[str, Any], dash: str, between: str
) -> None:
    words = ["llvm"]
    for name, value in options.items():
        text = ",".join(value) if isinstance(value, list) else str(value)
        gap = "=" if isinstance(value, bool) or text.startswith("-") else between
        words.append(f"{dash}{name}{gap}{text}")
    text = " ".join(words)
    assert parse(text) == {"kind": "llvm", **options}
    assert str(as_target(text)) == str(as_target({"kind": "llvm", **options}))
