"""What the checks of exercises share: verdicts, calls, values, differences of IR."""

from __future__ import annotations

import linecache
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from hypothesis import strategies as st
from tvm import relax
from tvm_ffi import structural_equal
from tvmlab.exercises import judge
from tvmlab.exercises.judge import Wrong, call, difference, same_shape, same_values

from tvmlab import exercises
from tvmlab.errors import InputError, ToolchainError


def hint(function: Callable[..., object], *arguments: object, **named: object) -> str:
    with pytest.raises(Wrong) as found:
        function(*arguments, **named)
    return str(found.value)


@judge.exercise
def check_four(answer: int) -> str:
    """Check that an answer is four."""
    if answer != 4:
        raise Wrong(f"{answer} is not four")
    return "it is four"


def test_a_check_prints_its_verdict_and_raises_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_four(4) is None
    check_four(answer=5)
    check_four(np.ones(2))
    done, wrong, unknown = capsys.readouterr().out.splitlines()
    assert [done, wrong] == ["done: it is four", "not yet: 5 is not four"]
    assert unknown.startswith("not yet: the check cannot judge this answer: ValueError: The truth ")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InputError("input 'x' is missing", fix="give it"), "input 'x' is missing"),
        (
            ToolchainError("g++ failed\n    a.cc:1:2: error: no ';'\n    a.cc:2:1: error: no '}'"),
            "the compiler refuses it: no ';'",
        ),
        (ToolchainError("no g++"), "the compiler refuses it: no g++"),
        (SystemExit(2), "the check cannot judge this answer: SystemExit: 2"),
    ],
)
def test_what_an_error_says_is_a_hint(
    error: BaseException, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def check() -> str:
        raise error

    judge.exercise(check)()
    assert capsys.readouterr().out == f"not yet: {said}\n"


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
    assert hint(call, fails, 2) == (
        "fails(2) raises ZeroDivisionError: division by zero\n  in the line: yield x / 0"
    )
    leaves = learned("import sys\ndef leaves():\n    sys.exit(3)\n", "leaves")
    assert hint(call, leaves) == "leaves() raises SystemExit: 3\n  in the line: sys.exit(3)"
    assert hint(call, int, "x" * 50).startswith("int(...) raises ValueError: invalid literal")


def test_a_call_without_the_expected_result() -> None:
    nothing = learned("def nothing(x):\n    x + 1\n", "nothing")
    assert hint(call, nothing, 1) == "nothing(1) returns None: is a `return` missing?"
    assert call(nothing, 1, returns=False) is None
    assert hint(call, None, 2) == "it(2) raises TypeError: 'NoneType' object is not callable"
    assert call(iter, range(3)) == [0, 1, 2]


def test_shapes() -> None:
    good = np.zeros((2, 3))
    assert same_shape(good, (2, 3), "x") is good
    assert hint(same_shape, [1], (1,), "x") == "x is of type list, expected a NumPy array"
    start = "x has the shape (2, 3), expected"
    assert hint(same_shape, good, (2, 3, 1), "x") == f"{start} (2, 3, 1)"
    assert hint(same_shape, good, (2, 4), "x") == f"{start} (2, 4): axis 1 is 1 too short"
    assert hint(same_shape, good, (1, 2), "x").endswith("axis 0 is 1 too long")


def test_values() -> None:
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
    deeper = "for i in range(4):\n    for j in range(2):\n        C[i, j] = 0\n        D[i, j] = 0"
    flat = "for i, j in T.grid(4, 2):\n    C[i, j] = 0\n    D[i, j] = 0"
    assert difference(deeper, flat).splitlines()[2:] == [
        "- for i in range(4):",
        "-     for j in range(2):",
        "+ for i, j in T.grid(4, 2):",
        "          C[i, j] = 0",
    ]
    # Where nothing else differs, the numbers do count.
    other = FOUR.replace("relu(lv1)", "relu(lv)")
    assert "-     gv = relu(lv1)\n+     gv = relu(lv)" in difference(FOUR, other)


texts = st.lists(st.sampled_from(["a", "b", "lv = c", "lv1 = c", "  %12"]), max_size=30)


def test_a_pass_cannot_change_the_module_of_the_check() -> None:
    mod = tvm.IRModule({"main": relax.Function([], relax.const(1))})
    before = mod.clone()

    def empties(given: tvm.IRModule) -> tvm.IRModule:
        del given["main"]
        return given

    assert not judge.changed(empties, mod, "empties").functions
    assert structural_equal(mod, before)


def test_every_check_is_found_and_says_what_it_takes() -> None:
    for name in exercises.__all__:
        check = getattr(exercises, name)
        assert check.__name__ == name
        assert "Parameters\n" in check.__doc__, name
    with pytest.raises(AttributeError, match="check_nothing"):
        exercises.check_nothing  # noqa: B018
