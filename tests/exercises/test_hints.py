"""Answers that are nearly right, or no answers at all: each check says what is wrong with them."""

from __future__ import annotations

import math
import re
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from PIL import Image
from tvm import relax, s_tir
from tvm.relax import dpl
from tvm_ffi import structural_equal

from tests.short import long
from tvmlab import exercises, models, native, relay
from tvmlab.support import toolchain

HALF = "\ud800"  # of a character: Python has it in a text, and no file takes it
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="g++: not on this machine")


def hint(capsys: pytest.CaptureFixture[str], check: str, *answer: Any, **given: Any) -> str:
    """Return what a check says of a wrong answer."""
    getattr(exercises, check)(*answer, **given)
    said = capsys.readouterr().out
    said.encode("utf-8")  # any output takes it
    assert said.startswith("not yet: ")
    return said.removeprefix("not yet: ").rstrip("\n")


# Texts that cannot be written.


@pytest.mark.parametrize("words", [f"x{HALF}", "x\0"])
@pytest.mark.parametrize(
    ("check", "name"),
    [
        ("check_dequantize", "dequantize_source"),
        ("check_words", "options"),
        ("check_holes", "fields"),
        ("check_mended", "text"),
    ],
)
def test_a_text_that_cannot_be_written(
    check: str, name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place: dict[str, tuple[Path, ...]] = {
        "check_dequantize": (tmp_path,),
        "check_words": (tmp_path,),
    }
    given: dict[str, dict[str, Any]] = {
        "check_words": {"target": "x", "shapes": "y", "linker": "-s"},
        "check_holes": {"size": 24},
    }
    said = hint(capsys, check, words, *place.get(check, ()), **given.get(check, {}))
    assert said == f"{name} holds {words[1]!r} at 1, which does not belong in a text"


def test_an_error_with_a_half_of_a_character_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def gain(share: float, times: float) -> float:
        raise ValueError(f"no {HALF}")

    said = hint(capsys, "check_gain", gain)
    assert said.startswith(r"gain(0.5, 2) raises ValueError: no \ud800")


# Pictures.


def cut(scaled: np.ndarray) -> np.ndarray:
    top, left = (scaled.shape[0] - 224) // 2, (scaled.shape[1] - 224) // 2
    return scaled[top : top + 224, left : left + 224]


def middle(picture: np.ndarray) -> np.ndarray:
    scale = 256 / min(picture.shape[:2])
    size = round(picture.shape[1] * scale), round(picture.shape[0] * scale)
    return cut(np.asarray(Image.fromarray(picture).resize(size)))


def exchanged(picture: np.ndarray) -> np.ndarray:
    """Give Pillow the height before the width, of a picture that is higher than wide as well."""
    scale = 256 / min(picture.shape[:2])
    size = round(picture.shape[0] * scale), round(picture.shape[1] * scale)
    return cut(np.asarray(Image.fromarray(picture).resize(size)))


def emptied(picture: np.ndarray) -> np.ndarray:
    picture[:] = 0
    return np.full((224, 224, 3), 2, "uint8")


@pytest.mark.parametrize(
    ("crop", "says"),
    [
        (lambda it: middle(it) * np.nan, "values are from nan to nan, expected 0 to 255"),
        (lambda it: middle(it) / 127.5 - 1, "values are from -1 to 1, expected 0 to 255"),
        (lambda it: middle(it)[:, ::-1], r"it is \d+ of 255 from the middle"),
        (lambda it: np.full_like(middle(it), 128), r"it is \d+ of 255 from the middle"),
        (exchanged, "^width and height are exchanged"),
        (emptied, r"it is \d+ of 255 from the middle"),
    ],
)
def test_pictures_that_are_not_the_middle(
    crop: Callable[..., Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    photograph = models.sample_image()
    before = photograph.copy()
    assert re.search(says, hint(capsys, "check_crop", crop, photograph, shorter=256, side=224))
    assert np.array_equal(photograph, before)


# A pass that writes into the module that it is given.

CHAIN = """#[version = "0.0.5"]
def @main(%x: Tensor[(1, 4), int8]) {
  %0 = qnn.requantize(%x, 0.5f, 3, 0.5f, 3, out_dtype="int8");
  %1 = qnn.requantize(%0, 0.5f, 3, 0.5f, 3, out_dtype="uint8");
  %2 = qnn.requantize(%1, 0.5f, 3, 0.5f, 4, out_dtype="uint8");
  qnn.requantize(%2, 0.5f, 4, 0.25f, 4, out_dtype="uint8")
}
"""


def test_a_wrong_pass_leaves_the_module_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    chain = relay.fromtext(CHAIN)
    before = chain.clone()

    def drop_requantize(mod: tvm.IRModule) -> tvm.IRModule:
        x = dpl.wildcard()
        pattern = dpl.is_op("relax.qnn.requantize")(x, *[dpl.is_const() for _ in range(4)])
        mod["main"] = dpl.rewrite_call(pattern, lambda call, found: found[x], mod["main"])
        return mod

    assert hint(capsys, "check_drop_requantize", drop_requantize, chain).startswith("4 are gone")
    assert structural_equal(chain, before)

    def pipeline(mod: tvm.IRModule) -> tvm.IRModule:
        mod["main"] = relax.transform.LegalizeOps()(mod)["main"]
        return mod

    hint(capsys, "check_fusion", pipeline, chain, 0)
    assert structural_equal(chain, before)


def test_an_error_of_a_schedule_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    def blocked(sch: s_tir.Schedule) -> None:
        sch.get_sblock("D")

    said = hint(capsys, "check_blocked", blocked)
    assert said.startswith(
        "blocked(...) raises ScheduleError: Cannot find a block with the name: D\n  in the line: "
    )


# Numbers.


def towards_zero(low: float, high: float) -> tuple[float, int]:
    low, high = min(low, 0), max(high, 0)
    scale = (high - low) / 255
    return scale, int(-128 - low / scale)


def servers_at_least_processes(processes: int, build: float, run: float) -> int:
    return max(processes, math.ceil(processes * run / build))


def five_percent(candidate: list[int], rule: list[int]) -> bool:
    ratios = (mine / other for mine, other in zip(candidate, rule, strict=True))
    return statistics.median(ratios) < 0.95


@pytest.mark.parametrize(
    ("check", "answer", "says"),
    [
        ("check_choose", towards_zero, "for -0.7 to 2.0, the int8 reach from -0.71 to 1.99 only"),
        ("check_servers", servers_at_least_processes, "enough(4, 4, 1) gives 4, and 1 would do"),
        ("check_wins", five_percent, "the candidate does not win, but it is 3 percent faster"),
    ],
)
def test_rules_that_hold_for_most_numbers(
    check: str, answer: Callable[..., Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hint(capsys, check, answer).startswith(says)


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ((Path("/bin/deploy"), 0x4010), "the file is of type PosixPath, expected a text"),
        (("/bin/deploy", "0x4010"), "the place is of type str, expected a whole number"),
        (("/bin/deploy", np.ones(2)), "the place is of type ndarray, expected a whole number"),
        (
            ("/bin/deploy", np.ones(2), 3),
            "a place is a file and where in it, and here are 3 things",
        ),
    ],
)
def test_places_of_other_types(
    place: object, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f": {says}\n" in hint(capsys, "check_whose", lambda address, maps: place)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (64, "<lambda>(...) gives 64, expected a shape: the sizes of a convolution's weights"),
        ((64, 64, 3.5, 3), "(64, 64, 3.5, 3) is no shape: a size is a whole number"),
        ((64, 64, 3), "(64, 64, 3) is 3 sizes, and a convolution's weights have four"),
        ((3, 3, 64, 64), "the sizes of (3, 3, 64, 64) stand in another order than in the network"),
        ((64, 32, 1, 1), "the network of the digits has larger weights than (64, 32, 1, 1)"),
        (
            (128, 128, 3, 3),
            "no convolution in the network of the digits has as many weights as (128, 128, 3, 3)",
        ),
    ],
)
def test_shapes_of_other_weights(shape: Any, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert hint(capsys, "check_largest", lambda mod: shape) == says


# What a compiler or a shell says.

REST = "double scale; void* weights; bool relu; char pad;"


@needs_compiler
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (f"{REST} union {{ int stride; short channels; }};", "two fields share a place"),
        (f"{REST} int stride; _Short channels;", "the compiler refuses it: '_Short' does not name"),
        (f"{REST} int stride;", "the field channels is missing"),
        ("#pragma pack(1)\n" + REST, "the field channels is missing"),
        ("#pragma pack(1)\nint stride; short channels;" + REST, "a field lies where"),
        ("int pad int stride;", "the compiler refuses it: expected ';'"),
    ],
)
def test_fields_of_another_struct(
    fields: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hint(capsys, "check_holes", fields, size=24).startswith(says)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--target 'x", "Unterminated quoted string"),
        ("--target x\n--no-such-program", "--no-such-program: not found"),
    ],
)
def test_what_a_shell_does_not_read(
    options: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"target": "x", "shapes": "y", "linker": "-s"}
    said = hint(capsys, "check_words", options, tmp_path, **told)
    assert said.startswith("the shell cannot read it: ")
    assert said.endswith(says)


@needs_compiler
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "4 of 4 values of out are wrong; the first, at [0], is 0, expected -62.5"),
        (
            "for (int i = 0; i < 4; ++i) {"
            "  const int8_t steps = static_cast<int8_t*>(q.data_ptr())[i] - zero_point;"
            "  static_cast<float*>(out.data_ptr())[i] = steps * scale; }",
            "1 of 4 values of out are wrong; the first, at [3], is -63, expected 65",
        ),
    ],
)
def test_functions_that_do_not_dequantize(
    body: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"""
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
using tvm::ffi::TensorView;
void Dequantize(TensorView q, double scale, int64_t zero_point, TensorView out) {{ {body} }}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(dequantize, Dequantize)
"""
    assert hint(capsys, "check_dequantize", source, tmp_path / "work") == says


@needs_compiler
@pytest.mark.skipif(not shutil.which("make"), reason="make: not on this machine")
@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("2 * std::round(x / 2)", "1.0, 0.9, -1.2, 3.4, 1000.0 become [2, 0, -2, 4, 127]"),
        pytest.param(f"x /* {HALF} */", r"what edit returns holds '\ud800' at ", marks=long),
        (None, "edit(...) raises KeyError: 'round'"),
    ],
)
def test_changes_of_the_quantizer(
    to: str | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = shutil.copytree(native.QUANTIZER, tmp_path / "quantizer")
    (work / "made").mkdir()
    toolchain.run("make BUILD=made", cwd=work)

    def edit(text: str) -> str:
        return text.replace("std::round(x)", {"round": to}["round"] or {}["round"])

    assert hint(capsys, "check_round_to_even", edit, work).startswith(says)
