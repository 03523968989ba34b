"""What the checks of exercises say: verdicts, shapes, values, differences of IR."""

from __future__ import annotations

import linecache
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from tvmlab import exercises
from tvmlab.exercises.arrays import same_shape, same_values
from tvmlab.exercises.assembly import multiply_add_loop
from tvmlab.exercises.ir import LINES, difference, with_main
from tvmlab.exercises.verdict import (
    NotYet,
    asking,
    call,
    exercise,
    listed,
    number,
    of_type,
    whole,
)


def hint(function: Callable[..., object], *arguments: object, **named: object) -> str:
    with pytest.raises(NotYet) as found:
        function(*arguments, **named)
    return str(found.value)


# Verdicts.


@exercise
def check_four(answer: int) -> str:
    """Check that an answer is four."""
    if answer != 4:
        raise NotYet(f"{answer} is not four")
    return "it is four"


def test_a_check_prints_and_returns_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_four(4) is None
    assert check_four(answer=5) is None
    assert capsys.readouterr().out == "done: it is four\nnot yet: 5 is not four\n"
    assert check_four.__doc__ == "Check that an answer is four."


def test_a_call_with_other_arguments_is_raised() -> None:
    with pytest.raises(TypeError):
        check_four()


def test_an_answer_that_no_check_thought_of_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    check_four(np.ones(2))
    said = capsys.readouterr().out
    assert said.startswith("not yet: the check cannot judge this answer: ValueError: The truth ")
    assert "(test_exercise_checks.py, line " in said


def learned(source: str, name: str) -> Callable[..., object]:
    """Define a function as a cell would: Python finds its lines."""
    file = "<cell of an exercise>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope: dict[str, object] = {}
    exec(compile(source, file, "exec"), scope)
    found = scope[name]
    assert callable(found)
    return found


def test_what_a_learner_wrote_is_called() -> None:
    assert call(max, 2, 3) == 3
    half = learned("def half(x):\n    return helper(x)\ndef helper(x):\n    return x / 0\n", "half")
    assert hint(call, half, 2) == (
        "half(2) raises ZeroDivisionError: division by zero\n  in the line: return x / 0"
    )
    assert hint(call, int, "x" * 50).startswith("int(...) raises ValueError: invalid literal")
    assert hint(call, int, object()).startswith("int(...) raises TypeError")
    assert hint(call, None, 2) == "None is no function"
    assert hint(call, list(range(40))) == "something of type list is no function"


def test_a_way_out_of_the_process_is_told() -> None:
    leaves = learned("import sys\ndef leaves():\n    sys.exit(3)\n", "leaves")
    assert hint(call, leaves) == "leaves() raises SystemExit: 3\n  in the line: sys.exit(3)"


def test_what_cannot_be_written_is_named_by_its_type() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    for value in (Odd(), 10**5000):
        said = hint(listed, lambda _, value=value: value, "x")
        assert said.endswith(f"gives something of type {type(value).__name__}, expected a list")


def test_a_missing_return_is_told() -> None:
    nothing = learned("def nothing(x):\n    x + 1\n", "nothing")
    assert hint(call, nothing, (1, 2)).startswith("nothing((1, 2)) raises TypeError")
    assert hint(call, nothing, 1) == "nothing(1) returns None: is a `return` missing?"
    assert call(nothing, 1, returns=False) is None


def test_items_are_listed_and_a_generator_runs_to_its_end() -> None:
    assert listed(range, 3) == [0, 1, 2]
    fails = learned("def fails(x):\n    yield x\n    yield x / 0\n", "fails")
    assert hint(listed, fails, 2) == (
        "fails(2) raises ZeroDivisionError: division by zero\n  in the line: yield x / 0"
    )
    assert hint(listed, abs, -3) == "abs(-3) gives 3, expected a list"
    assert hint(listed, abs, -3, expected="two values").endswith("gives 3, expected two values")
    assert hint(listed, str, 12) == "str(12) gives '12', expected a list"


def test_what_is_asked_for_and_is_not_there_is_told() -> None:
    def asked(error: Exception, *kinds: type[Exception]) -> None:
        with asking("it has no shape", *kinds):
            raise error

    assert hint(asked, KeyError("four")) == "it has no shape: 'four'"
    assert hint(asked, NotYet("three")) == "three"
    assert hint(asked, ValueError("two\nin the call"), ValueError) == "it has no shape: two"
    with pytest.raises(ZeroDivisionError):  # a fault of the check itself
        asked(ZeroDivisionError("one"), ValueError)


def test_types() -> None:
    assert of_type("x", str, "name", "a text") == "x"
    assert hint(of_type, None, str, "name", "a text") == "name is of type NoneType, expected a text"


def test_whole_numbers() -> None:
    assert whole(3, "n") == 3
    assert hint(whole, 3.0, "n") == "n is 3.0, expected a whole number"
    assert hint(whole, True, "n") == "n is True, expected a whole number"
    assert hint(whole, 0, "n") == "n is 0, expected at least 1"
    assert whole(-7, "n", least=None) == -7
    assert hint(whole, -(10**5000), "n") == "n is something of type int, expected at least 1"
    taken = whole(np.int8(100), "n")
    assert (taken + taken, type(taken)) == (200, int)  # as Python counts


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int8(2), Fraction(2)])
def test_numbers(value: object) -> None:
    assert type(number(value, "n")) is float
    assert number(value, "n") == 2
    assert hint(number, 10**400, "n") == "n is larger than any float"


@pytest.mark.parametrize("value", ["2", None, True, 2j, [2], np.ones(1)])
def test_what_is_no_number(value: object) -> None:
    assert hint(number, value, "n") == f"n is {value!r}, expected a number"


# Arrays.


def test_shapes() -> None:
    good = np.zeros((2, 3))
    assert same_shape(good, (2, 3), "x") is good
    assert hint(same_shape, [1], (1,), "x") == "x is of type list, expected a NumPy array"
    start = "x has the shape (2, 3), expected"
    assert hint(same_shape, good, (2, 3, 1), "x") == f"{start} (2, 3, 1): 2 axes for 3"
    assert hint(same_shape, good, (3, 2), "x").endswith("its axes stand in another order")
    assert hint(same_shape, good, (2, 4), "x").endswith("axis 1 is 1 too short")
    assert hint(same_shape, good, (1, 2), "x").endswith("axis 0 is 1 too long")
    for other in (np.array(["a"]), np.array([None]), np.array([1j])):
        text = f"x holds values of dtype {other.dtype}, expected numbers"
        assert hint(same_shape, other, (1,), "x") == text


def test_values() -> None:
    wanted = np.array([[1, 2], [3, 4]])
    same_values(wanted + 0.25, wanted, "x", tolerance=0.25)
    off = np.array([[1, 2], [9, 8]])
    assert hint(same_values, off, wanted, "x") == (
        "2 of 4 values of x are wrong; the first, at [1, 0], is 9, expected 3"
    )
    assert "the first, at [0], is nan, expected 1" in hint(
        same_values, np.array([np.nan]), np.ones(1), "x", tolerance=9.0
    )
    assert hint(same_values, np.array(2), np.array(1), "x") == (
        "1 of 1 values of x are wrong; the first is 2, expected 1"
    )
    big = np.array([255], "uint8"), np.array([0], "uint8")
    assert "is 255, expected 0" in hint(same_values, *big, "x")
    assert "axis 0 is 1 too short" in hint(same_values, np.ones(1), np.ones(2), "x")


# Differences of IR.

FOUR = """
def main(x):
    lv = multiply(x, 2)
    lv1 = add(lv, 1)
    gv = relu(lv1)
    return gv
"""


def test_a_difference_of_ir_shows_what_is_too_much() -> None:
    less = FOUR.replace("    lv1 = add(lv, 1)\n", "").replace("relu(lv1)", "relu(lv)")
    assert difference(FOUR, less).splitlines() == [
        "--- yours",
        "+++ expected",
        "      lv = multiply(x, 2)",
        "-     lv1 = add(lv, 1)",
        "      gv = relu(lv1)",
    ]
    assert difference(FOUR, FOUR) == ""
    assert difference(FOUR, FOUR + "\n\n") == ""


def test_another_operand_is_shown_where_all_else_is_equal() -> None:
    other = FOUR.replace("relu(lv1)", "relu(lv)")
    shown = difference(FOUR, other)
    assert "-     gv = relu(lv1)\n+     gv = relu(lv)" in shown


def test_what_stands_one_loop_deeper_is_not_shown() -> None:
    two = "for i in range(4):\n    for j in range(2):\n        C[i, j] = 0\n        D[i, j] = 0"
    one = "for i, j in T.grid(4, 2):\n    C[i, j] = 0\n    D[i, j] = 0"
    assert difference(two, one).splitlines() == [
        "--- yours",
        "+++ expected",
        "- for i in range(4):",
        "-     for j in range(2):",
        "+ for i, j in T.grid(4, 2):",
        "          C[i, j] = 0",
    ]


def test_places_far_apart_are_shown_apart() -> None:
    lines = [f"call {number}" for number in range(9)]
    shown = difference("\n".join(lines), "\n".join(["call x", *lines[1:8], "call y"]))
    assert shown.splitlines()[2:] == [
        *("- call 0", "+ call x", "  call 1", "...", "  call 7", "- call 8", "+ call y")
    ]


texts = st.lists(st.sampled_from(["a", "b", "lv = c", "lv1 = c", "  %12"]), max_size=30)


@given(texts, texts)
def test_a_difference_is_short_and_true(yours: list[str], expected: list[str]) -> None:
    found, wanted = ("x\n" + "\n".join(lines) + "\ny" for lines in (yours, expected))
    shown = difference(found, wanted).splitlines()
    assert bool(shown) == (found != wanted)
    assert len(shown) <= LINES
    for line in shown[2:]:
        text = line[2:]
        assert line.startswith("...") or text in (wanted if line[0] == "+" else found).split("\n")


def test_a_module_has_a_main() -> None:
    made = tvm.IRModule({"main": relax.Function([], relax.const(1))})
    assert with_main(made, "mod") is made
    assert hint(with_main, tvm.IRModule({}), "mod") == "mod has no function main"
    assert hint(with_main, made["main"], "mod") == "mod is of type Function, expected a module"


def test_without_a_loop_there_are_no_instructions() -> None:
    assert multiply_add_loop(["main:", "\tvfmadd231ps %ymm0, %ymm1, %ymm2", "\tretq"]) == []


# The package.


def test_every_check_has_its_module_and_says_what_it_takes() -> None:
    assert set(exercises.__all__) <= set(dir(exercises))
    for name in exercises.__all__:
        check = getattr(exercises, name)
        assert check.__name__ == name
        assert name in sys.modules[check.__module__].__all__
        assert "Parameters\n" in check.__doc__, name
    with pytest.raises(AttributeError, match="check_nothing"):
        exercises.check_nothing  # noqa: B018


def test_no_check_is_imported_before_it_is_asked_for() -> None:
    code = "import tvmlab.exercises, sys; print('tvm' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
