"""One line of the errors of other libraries, plurals, and tables."""

from __future__ import annotations

import pytest

from tvmlab.support.wording import several, table, telling


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("no good", "no good"),
        ("# from tvm.script import ir\nno good\n# Metadata omitted.", "no good"),
        ("no good\nOffending call:\nR.nn.relu(x, y=1)\n# Metadata omitted.", "R.nn.relu: no good"),
        ('Traceback (most recent call last):\n  File "a", line 1\nKeyError: 3', "KeyError: 3"),
        ("ScheduleError: in 'split'.\n\nThe IR is:\n# T\ndef f\nError message: no good", "no good"),
        ("", "ValueError"),
        ("# Metadata omitted.", "ValueError"),
    ],
)
def test_a_line_is_chosen(words: str, line: str) -> None:
    assert telling(ValueError(words)) == line


def test_a_table_and_nouns_with_numbers() -> None:
    assert [several(number, "trial") for number in range(3)] == ["0 trials", "1 trial", "2 trials"]
    rows = [("long", 1, "x"), ("y", 22, "zz")]
    assert table(("a", "bc", "d"), rows, left=(0, 2)) == "a     bc  d\nlong   1  x\ny     22  zz"
