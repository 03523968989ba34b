"""What the rule about numbers takes for one, what binds it, and how many wrong ones would pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import notebook_numbers
import pytest
from notebook_claims import UNITS, Claim, bare, spans, stated
from notebook_numbers import Sources, facts, prose_cells, unbound
from notebook_rules import Page
from notebook_samples import good, markdown, page
from test_notebook_structure import NOTEBOOKS

# Of the wrong numbers that differ by one from a right one. It was a third when any digit of the
# section's code bound a number.
AT_MOST = 0.04


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1,234 steps of 0.50 s on 224x224 pixels.", [{"1234"}, {"0.50"}, {"224"}, {"224"}]),
        ("int8, ResNet-50, C++20, 2D, x86-64, step 3, notebook 07", []),
        ("two hours at most or four thousand candidates", [{"2"}, {"4000"}]),
        ("Twenty-four multiply-adds, ten vector registers", [{"24"}, {"10"}]),
        ("two passes, one of the three, hundreds of libraries, two of times", []),
        ("a quarter of the memory, twice as fast", [{"0.25"}, {"4"}, {"2"}]),
        ("three quarters of it, half a step", [{"0.75"}, {"3", "4"}, {"0.5"}, {"2"}]),
        ("one in ten thousand", [{"10000"}]),
    ],
)
def test_these_are_the_numbers_of_a_text(text: str, found: list[set[str]]) -> None:
    assert [set(each) for claim in stated(bare(text)) for each in claim.readings] == found


def test_a_code_span_with_a_number_states_itself() -> None:
    text = "Take `n=64` of `int8`, `x86-64` or `f` 7.\n\n```python\n`n=8`\n```\n"
    assert spans(text) == ["`n=64`"]
    assert [claim.text for claim in stated(bare(text))] == ["7"]


def problems(text: str, entries: Sources, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what the rule says of the sample with a text before its cell `count`."""
    known = {"01_count_to_three": {"said": entries}} if entries else {}
    monkeypatch.setattr(notebook_numbers, "facts", lambda: known)
    notebook = good()
    notebook.cells.insert(4, markdown("said", text))
    return "\n".join(notebook_numbers.numbers_are_produced(page(notebook, folder)))


@pytest.mark.parametrize(
    ("text", "entries", "part"),
    [
        ("The number 3 comes.", {}, None),
        ("The number 4 comes.", {}, "said: no line of the code cells beside it has the number 4"),
        ("We stop at 3.", {}, "the number 3"),  # Shown, but near no word of the text.
        ("See the first 10.", {}, "the number 10"),  # Shown, but by a cell that is not beside it.
        ("Three times.", {}, "the number Three"),
        ("In `(1, 2, 3)` and `(1, 3, 224)`.", {}, None),
        ("In `n in (1, 2, 3)`, not `r n in (1, 2, 3)`.", {}, "no cell shows `r n in"),
        ("In `(1, 2, 4)`.", {}, "no cell shows `(1, 2, 4)`"),
        ("In `(1, 2, 4)`.", {"`(1, 2, 4)`": "a book"}, None),
        ("See the first 10.", {"first 10": ["pair", "first 10"]}, None),
        ("See the first 11.", {"first 10": ["pair", "first 10"]}, "the number 11"),
        ("See the first 11.", {"first 11": ["pair", "first 10"]}, "'first 10' has no 11"),
        ("See the first 1.", {"first 1": ["pair", "first 1"]}, "pair shows no 'first 1'"),
        ("See the first 10.", {"first 10": ["pair", "first 9"]}, "pair shows no 'first 9'"),
        ("See the first 10.", {"first 10": ["four", "10"]}, "four is no code cell"),
        ("See 1.234 s.", {"1.234": ["clock", "1.234"]}, "clock shows no '1.234'"),  # Ignored.
        ("Two times.", {"Two times": ["fails", "division", 2]}, None),
        ("Two times.", {"Two times": ["fails", "division", 3]}, "shows 'division' 2 times"),
        ("Three times.", {"Three times": ["fails", "division", 2]}, "'division' has no Three"),
        ("It is 11.", {"11": ["pair", "first 10", "and one"]}, None),
        ("It is 10.", {"10": ["pair", "first 9", "and one"]}, "pair shows no 'first 9'"),
        ("Out of 17.", {"17": "a book"}, None),
        ("Out of 18.", {"17": "a book"}, "a source for 17, which needs none"),
        ("The number 3.", {"3": "a book"}, "a source for 3, which needs none"),
    ],
)
def test_a_number_is_bound_by_what_shows_it(
    text: str,
    entries: Sources,
    part: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = problems(text, entries, tmp_path, monkeypatch)
    assert part in said if part else said == ""


def test_sources_for_a_cell_that_is_gone_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"01_count_to_three": {"gone": {"17": "a book"}}}
    monkeypatch.setattr(notebook_numbers, "facts", lambda: known)
    [said] = notebook_numbers.numbers_are_produced(page(good(), tmp_path))
    assert "gone: " in said


def test_the_facts_are_about_notebooks() -> None:
    assert facts().keys() - {path.stem for path in NOTEBOOKS} == {"*"}


def off_by_one(text: str, claim: Claim) -> Iterator[str]:
    """Yield the text with another number in place of the claim: one less, and one more.

    Of a number in digits the last ones change, 0.20 and 0.18 for 0.19; of one in words the first
    word from two to twelve. No claim is made of none.
    """
    before, after = text[: claim.start], text[claim.end :]
    if digits := re.search(r"\d+$", claim.text.replace(",", "")):
        for other in (int(digits[0]) - 1, int(digits[0]) + 1):
            if other >= 0:
                whole = claim.text.replace(",", "")[: digits.start()]
                yield before + whole + f"{other:0{len(digits[0])}}" + after
    elif word := re.search(rf"\b(?:{'|'.join(UNITS[1:12])})\b", claim.text.lower()):
        place = UNITS.index(word[0])
        for other in (place - 1, place + 1):
            if other > 0:
                yield before + re.sub(word[0], UNITS[other], claim.text.lower()) + after


def test_few_wrong_numbers_would_pass() -> None:
    wrong, passed = 0, []
    for path in NOTEBOOKS:
        found = Page(path, path.read_text(encoding="utf-8"))
        for cell, lines in prose_cells(found):
            text, own = bare(cell.source), facts().get(path.stem, {}).get(cell.id, {})
            for claim in stated(text):
                for other in off_by_one(text, claim):
                    wrong += 1
                    if claim.start not in {each.start for each in unbound(other, lines, own)}:
                        passed.append(f"{path.stem}, {cell.id}: {claim.text} in {other!r}")
    assert wrong > 300
    assert len(passed) <= AT_MOST * wrong, "\n".join(passed)
