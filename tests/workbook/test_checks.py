"""The checks of exercises, and the tools of notebook 09."""

from __future__ import annotations

import linecache
import math
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from PIL import Image
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm_ffi import structural_equal
from tvmlab.exercises import graphs, judge, programs
from tvmlab.exercises.judge import Wrong, call, difference, same_shape, same_values

from notebooks import LAB_TOOLS, missing_tool
from tvmlab import exercises, models
from tvmlab.errors import InputError, ToolchainError


def hint(function: Callable[..., object], *arguments: object, **named: object) -> str:
    with pytest.raises(Wrong) as found:
        function(*arguments, **named)
    return str(found.value)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("it is four", "done: it is four"),
        (Wrong("5 is not four"), "not yet: 5 is not four"),
        (ValueError("bad"), "not yet: the check cannot judge this answer: ValueError: bad"),
        (SystemExit(2), "not yet: the check cannot judge this answer: SystemExit: 2"),
        (InputError("input 'x' is missing", fix="give it"), "not yet: input 'x' is missing"),
        (
            ToolchainError("g++ failed\n    a.cc:1:2: error: no ';'\n    a.cc:2:1: error: no '}'"),
            "not yet: the compiler reports an error: no ';'",
        ),
        (ToolchainError("no g++"), "not yet: the compiler reports an error: no g++"),
    ],
)
def test_a_check_prints_its_verdict_and_raises_nothing(
    result: object, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def check() -> Any:
        if isinstance(result, BaseException):
            raise result
        return result

    assert judge.exercise(check)() is None
    assert capsys.readouterr().out == f"{said}\n"


def learned(source: str, name: str) -> Callable[..., object]:
    """Define a function as a cell would: Python finds its lines."""
    file = "<cell of an exercise>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope: dict[str, Callable[..., object]] = {}
    exec(compile(source, file, "exec"), scope)
    return scope[name]


def test_a_failing_call_shows_the_line_of_the_learner() -> None:
    half = learned("def half(x):\n    return helper(x)\ndef helper(x):\n    return x / 0\n", "half")
    assert hint(call, half, 2) == (
        "half(2) raises ZeroDivisionError: division by zero\n  in the line: return helper(x)"
    )
    fails = learned("def fails(x):\n    yield x\n    yield x / 0\n", "fails")
    assert "in the line: yield x / 0" in hint(call, fails, 2)
    assert hint(call, int, "x" * 50).startswith("int(...) raises ValueError: invalid literal")
    nothing = learned("def nothing(x):\n    x + 1\n", "nothing")
    assert hint(call, nothing, 1) == "nothing(1) returns None: is a `return` missing?"
    assert call(nothing, 1, returns=False) is None
    assert hint(call, None, 2) == "it(2) raises TypeError: 'NoneType' object is not callable"


def test_shapes_and_values() -> None:
    good = np.zeros((2, 3))
    assert same_shape(good, (2, 3), "x") is good
    assert hint(same_shape, [1], (1,), "x") == "x is of type list, expected a NumPy array"
    start = "x has the shape (2, 3), expected"
    assert hint(same_shape, good, (2, 3, 1), "x") == f"{start} (2, 3, 1)"
    assert hint(same_shape, good, (2, 4), "x") == f"{start} (2, 4): axis 1 is 1 too short"
    wanted = np.array([[1, 2], [3, 4]])
    same_values(wanted + 0.25, wanted, "x", tolerance=0.25)
    assert hint(same_values, np.array([[1, 2], [9, 8]]), wanted, "x") == (
        "2 of 4 values of x are wrong; the first, at [1, 0], is 9, expected 3"
    )
    nan = hint(same_values, np.array([np.nan]), np.ones(1), "x", tolerance=9.0)
    assert "the first, at [0], is nan, expected 1" in nan
    unsigned = np.array([255], "uint8"), np.array([0], "uint8")
    assert "is 255, expected 0" in hint(same_values, *unsigned, "x")


FOUR = """
def main(x):
    lv = multiply(x, 2)
    lv1 = add(lv, 1)
    gv = relu(lv1)
    return gv
"""


def test_a_difference_of_ir_leaves_out_numbers_and_indentation() -> None:
    less = FOUR.replace("    lv1 = add(lv, 1)\n", "").replace("relu(lv1)", "relu(lv)")
    assert difference(FOUR, less).splitlines() == [
        *("--- yours", "+++ expected", "      lv = multiply(x, 2)", "-     lv1 = add(lv, 1)"),
        "      gv = relu(lv1)",
    ]
    # Where nothing else differs, the numbers do count.
    other = FOUR.replace("relu(lv1)", "relu(lv)")
    assert "-     gv = relu(lv1)\n+     gv = relu(lv)" in difference(FOUR, other)


def test_a_pass_cannot_change_the_module_of_the_check() -> None:
    mod = tvm.IRModule({"main": relax.Function([], relax.const(1))})
    before = mod.clone()

    def empties(given: tvm.IRModule) -> tvm.IRModule:
        del given["main"]
        return given

    assert not judge.changed(empties, mod, "empties").functions
    assert structural_equal(mod, before)


def test_every_check_says_what_it_takes() -> None:
    checks = {**vars(programs), **vars(graphs)}
    for name in [name for name in checks if name.startswith("check_")]:
        check: Any = getattr(exercises, name)
        assert check is checks[name]
        assert f"`{check.__wrapped__.__code__.co_varnames[0]}" in check.__doc__, name
    with pytest.raises(AttributeError, match="check_nothing"):
        exercises.check_nothing  # noqa: B018


# Answers that are right in another way than the worked solution.


@pytest.mark.parametrize("whole", [round, int, math.ceil])
@pytest.mark.parametrize("method", [None, *Image.Resampling])
def test_any_way_to_scale_a_picture(
    method: int | None, whole: Callable[[float], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Pillow's ways, and a nearest pixel that is looked up without Pillow."""

    def crop(picture: np.ndarray) -> np.ndarray:
        scale = 256 / min(picture.shape[:2])
        high, wide = (whole(size * scale) for size in picture.shape[:2])
        rows, columns = (np.arange(high) / scale).astype(int), (np.arange(wide) / scale).astype(int)
        large = picture[rows][:, columns]
        if method is not None:
            large = np.asarray(Image.fromarray(picture).resize((wide, high), method))
        top, left = (high - 224) // 2, (wide - 224) // 2
        return large[top : top + 224, left : left + 224]

    exercises.check_crop(crop, models.sample_image(), shorter=256, side=224)
    assert capsys.readouterr().out.startswith("done: ")


def as_int8(low: float, high: float) -> tuple[np.float32, np.int8]:
    low, high = min(low, 0), max(high, 0)
    scale = (high - low) / 255
    return np.float32(scale), np.int8(round(-128 - low / scale))


def numpy_median(candidate: list[int], rule: list[int]) -> np.bool_:
    return np.median(np.array(candidate) / np.array(rule)) < 0.98


def in_float32(share: float, times: float) -> np.float32:
    return 1 / (1 - np.float32(share) + np.float32(share) / np.float32(times))


def mutated(function: relax.Function) -> relax.Function:
    @mutator
    class DropOne(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            call = super().visit_call_(call)
            if call.op == tvm.ir.Op.get("relax.multiply"):
                for one, other in (call.args, call.args[::-1]):
                    if hasattr(one, "value") and (one.value.numpy() == 1).all():
                        return other
            return call

    return DropOne().visit_expr(function)


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        ("check_choose", lambda *ends: np.array(as_int8(*ends))),
        ("check_choose", as_int8),
        ("check_wins", numpy_median),
        ("check_gain", in_float32),
        ("check_drop_one", mutated),
    ],
)
def test_results_of_other_types(
    check: str, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    getattr(exercises, check)(answer)
    assert capsys.readouterr().out.startswith("done: ")


ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A PATH of one empty folder, and no cached result."""
    monkeypatch.setenv("PATH", str(tmp_path))
    missing_tool.cache_clear()
    yield tmp_path
    missing_tool.cache_clear()


def program(folder: Path, name: str, code: int = 0) -> None:
    (folder / name).write_text(f"#!/bin/sh\nexit {code}\n")
    (folder / name).chmod(0o755)


def test_a_missing_tool_names_its_package(own_path: Path) -> None:
    program(own_path, "nm")
    assert missing_tool("nm") is None
    assert missing_tool("pahole") == (
        "pahole is not on this machine: `make lab-tools` (Debian's dwarves)"
    )


@pytest.mark.parametrize("tool", ["perf", "strace"])
def test_a_tool_that_the_kernel_stops_is_missing(own_path: Path, tool: str) -> None:
    program(own_path, tool, code=1)
    assert missing_tool(tool) == (
        f"{tool} is on this machine, but the kernel does not let it look at processes"
    )


def test_make_lab_tools_installs_every_package_of_the_list(own_path: Path) -> None:
    said = own_path / "said"
    for name in ("apt-get", "sudo"):
        (own_path / name).write_text(f'#!/bin/sh\necho "{name} $@" >>{said}\n')
        (own_path / name).chmod(0o755)
    line = ["sh", str(ROOT / "scripts/lab-tools.sh")]
    path = f"{own_path}:/usr/bin:/bin"
    subprocess.run(line, check=True, env={"PATH": path})
    update, install = said.read_text().splitlines()
    assert "update" in update
    names = re.sub(r".* --no-install-recommends ", "", install).split()
    assert names == sorted(set(LAB_TOOLS.values()))
