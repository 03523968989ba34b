"""Target strings of Relay's time."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.models import said
from tvmlab.errors import TargetError
from tvmlab.support.target import as_target, parse, split_target

ARM = "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("llvm", {"kind": "llvm"}),
        (
            "llvm -mcpu=x86-64-v3 -num-cores=4",
            {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 4},
        ),
        (
            "llvm --device=arm_cpu -mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod",
            {
                "kind": "llvm",
                "device": "arm_cpu",
                "mtriple": "aarch64-linux-gnu",
                "mattr": ["+neon", "+dotprod"],
            },
        ),
        ("llvm -num-cores 4 -fast-math", {"kind": "llvm", "num-cores": 4, "fast-math": True}),
        ("llvm -fast-math=0 -opt-level=2", {"kind": "llvm", "fast-math": False, "opt-level": 2}),
        ("llvm '-mattr=+avx2, +fma'", {"kind": "llvm", "mattr": ["+avx2", "+fma"]}),
        ("llvm -target=aarch64-linux-gnu", {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}),
        ("llvm -mcpu=7", {"kind": "llvm", "mcpu": "7"}),
        (
            "cuda -arch=sm_80 -libs=cudnn,cublas",
            {"kind": "cuda", "arch": "sm_80", "libs": ["cudnn", "cublas"]},
        ),
        ("cuda -host=llvm", {"kind": "cuda", "host": {"kind": "llvm"}}),
        ("gpu -cores=4 -fast", {"kind": "gpu", "cores": 4, "fast": True}),
    ],
)  # fmt: skip
def test_target_strings(text: str, wanted: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse(text) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("llvm mcpu=x", "no option of a target"),
        ("-mcpu=x", "no kind of device"),
        ("", "no kind of device"),
        ("llvm -mcpu='x", "cannot be read: No closing quotation"),
        ("llvm -mcpu", "-mcpu takes a value"),
        ("llvm -num-cores=many", "-num-cores takes a whole number, not 'many'"),
        ("llvm -num-cores=٣", "-num-cores takes a whole number"),
        ("llvm -fast-math=very", "-fast-math takes true or false"),
        ("llvm -mcpuu=x", "did you mean -mcpu[?]"),
        ("llvm -zzz", "has no option -zzz(.|\n)*mtriple"),
        ("llvm -system-lib", "has no option -system-lib"),
        ("llvm -mcpu=x, llvm", "several targets"),
        ("llvm -mcpu=x -target=a -mtriple=b", "-mtriple is there twice"),
        ("llvm -kind=c", "-kind is there twice"),
        ("llvm -mattr=+avx2, +fma", "'[+]fma' is no option(.|\n)*without spaces"),
    ],
)
def test_target_strings_that_are_none(text: str, words: str) -> None:
    with pytest.raises(TargetError, match=words) as caught:
        parse(text)
    assert caught.value.where == repr(text)
    said(caught.value)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("-libs=cblas,mkl", "partitioner"),
        ("-link-params", "weights"),
        ("-link-params=0", "weights"),
        ("-runtime=cpp", "runtime"),
        ("-executor=graph", "virtual machine"),
        ("-model=unknown", "says nothing"),
    ],
)
def test_an_option_without_a_meaning_is_dropped_in_words(option: str, why: str) -> None:
    with pytest.warns(UserWarning, match=f"{option} changes nothing today: .*{why}"):
        assert parse(f"llvm {option} -num-cores=2") == {"kind": "llvm", "num-cores": 2}


def test_a_target_of_them() -> None:
    made = as_target(f"{ARM} -mcpu=cortex-a72 -num-cores=4")
    assert made.attrs["mcpu"] == "cortex-a72"
    assert int(made.attrs["num-cores"]) == 4
    assert made.attrs["mtriple"] == "aarch64-linux-gnu"
    assert "arm_cpu" in made.keys
    again = as_target(str(made))  # what it prints is JSON, which has spaces in it or not
    assert str(again) == str(made)
    assert as_target('{"kind": "llvm", "num-cores": 3}').attrs["num-cores"] == 3
    with pytest.raises(TargetError, match="LLVM does not know a processor"):
        as_target("llvm -mcpu=nothing-like-it")
    with pytest.raises(TargetError, match="TVM does not know this target"):
        as_target("gpu -fast")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("llvm -num-cores=0", "no machine has 0 cores"),
        ("llvm -num-cores=-1", "no machine has -1 cores"),
        ("llvm -mattr=+nonsense", "no instruction set '[+]nonsense' for "),
        ("llvm -mattr=+avx2,fma -mtriple=x86_64-linux-gnu", "no instruction set 'fma' for x86_64"),
        (f"{ARM} -mattr=-avx2", "no instruction set '-avx2' for aarch64"),
        ("llvm -host='llvm -mcpu=nothing-like-it'", "know a processor named 'nothing-like-it'"),
    ],
)
def test_values_that_llvm_has_not(text: str, words: str) -> None:
    with pytest.raises(TargetError, match=words) as caught:
        as_target(text)
    said(caught.value)


@pytest.mark.parametrize("sets", ["+neon,+dotprod", "-neon", "+sve"])
def test_instruction_sets_of_another_processor(sets: str) -> None:
    assert list(as_target(f"{ARM} -mattr={sets}").attrs["mattr"]) == sets.split(",")


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


def test_a_composite_of_a_library_that_is_not_here() -> None:
    """The command line of the source material: it is told what is known, and what to write."""
    with pytest.raises(TargetError, match="'bnns' is not known before a comma; known: npu") as got:
        split_target(f"bnns, {ARM}")
    assert f"'npu, {ARM}'" in said(got.value)
    assert "leave out 'bnns'" in said(got.value)
    with pytest.raises(TargetError) as got:
        split_target("llvm, npu")
    assert "comes first: 'npu, llvm'; to compile all of it, leave out 'npu'" in said(got.value)
    with pytest.raises(TargetError, match="'ethos-u' is not known before a comma"):
        split_target("ethos-u -accelerator_config=ethos-u55-256, c")
    with pytest.raises(TargetError, match="'npu' takes no options in a target, such as '-rows=8'"):
        split_target("npu -rows=8, llvm")


WORDS = st.text(st.sampled_from("abz019-=,+'\" \t\\é{}"), max_size=12)
KINDS = st.sampled_from(["llvm", "c", "npu", "llvm -mattr=", "llvm -mcpu=", ""])


@given(KINDS, st.lists(WORDS, max_size=4))
def test_any_string_is_read_or_refused_in_words(kind: str, rest: list[str]) -> None:
    text = " ".join([kind, *rest])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _, target = split_target(text)
            made = as_target(target)
        except TargetError as error:
            said(error)
        else:
            assert isinstance(made, tvm.target.Target)


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
