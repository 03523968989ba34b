"""The rule about numbers in prose: each is shown by a cell beside it, or `facts.toml` says by what.

A number that a reader may take for a result has to be one. What counts as a number, in digits and
in words, is in `notebook_claims.py`. It is bound by itself if the nearest code cell before or after
it, in the same section (from one heading of the second level to the next), has it in a line of its
code or of a compared output, near a word that stands beside the number in the prose, too: "450
pictures" by `pictures: 450`. That the digits are somewhere in the section binds nothing. A code
span with a number has to stand in a cell of the notebook as it is.

Every other one stands in a phrase of `facts.toml`, with what is behind it: a cell and a piece of
what it shows, which has to be there and to have the phrase's numbers, or how these follow from it;
or, for what no cell can produce, such as a date or another project's version, the source it was
taken from. An entry that no prose needs any more is refused, too.

What the rule does not see: a number that is shown and is said of the wrong thing, and whether a
number follows from a piece, or is in a source, as an entry says.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from notebook_claims import Claim, apart, bare, plain, spans, stated
from notebook_form import IGNORED
from notebook_rules import Page, rule, tags, texts

Source = str | list[Any]  # Of a fact, or [cell, piece], [cell, piece, count or how].
Sources = dict[str, Source]  # By phrase.
Line = dict[str, set[str]]  # The numbers of a line, and the words around each.
FACTS = Path(__file__).with_name("facts.toml")
# The bits of a type count: int8 has 8.
PRODUCED = re.compile(r"(?:(?<![A-Za-z_\d.])|(?<=int)|(?<=float))\d+(?:,\d{3})*(?:\.\d+)*")
WORD = re.compile(r"[A-Za-z][a-z]{2,}|[A-Z]{3,}")
BEFORE, AFTER = 3, 4  # So many words beside a number of the prose,
AROUND = 30  # and so many characters beside one that a cell shows, may tie the two together.
_COMMON = """
    all and are but can each for from has have here into its more not one our out see than that the
    their them then there these they this those was what where which with
"""
COMMON = frozenset(_COMMON.split())


def shown(cell: NotebookNode) -> list[str]:
    """Return what a code cell shows: its source and, if they are compared, its outputs."""
    return [cell.source] + ([] if IGNORED in tags(cell) else list(map(_read, texts(cell))))


def numbers(text: str) -> set[str]:
    """Return the numbers in code or in an output."""
    return {plain(number) for number in PRODUCED.findall(apart(text))}


def words(text: str) -> set[str]:
    """Return the beginnings of a text's words, also of those in names."""
    return {word[:5] for word in {word.lower() for word in WORD.findall(text)} - COMMON}


def _read(text: str) -> str:
    """Drop the tags of an output in HTML: their sizes and numbers are no results."""
    is_html = text.startswith(("<div ", "<form "))
    return re.sub(r"<style>.*?</style>|<[^>]*>", " ", text) if is_html else text


def sections(page: Page) -> Iterator[list[NotebookNode]]:
    """Yield the cells from one heading of the first or second level to the next."""
    section: list[NotebookNode] = []
    for cell in page.nb.cells:
        if cell.cell_type == "markdown" and re.match(r"##? ", cell.source) and section:
            yield section
            section = []
        section.append(cell)
    yield section


def prose_cells(page: Page) -> Iterator[tuple[NotebookNode, list[Line]]]:
    """Yield each prose cell, and the lines that the code cells beside it show."""
    for section in sections(page):
        for place, cell in enumerate(section):
            if cell.cell_type == "markdown":
                before = [each for each in section[:place] if each.cell_type == "code"][-1:]
                after = [each for each in section[place:] if each.cell_type == "code"][:1]
                beside = [text for each in before + after for text in shown(each)]
                yield cell, [read(line) for text in beside for line in text.splitlines()]


def read(line: str) -> Line:
    """Return the numbers of a line, each with the words around it."""
    line = apart(line)
    found: Line = defaultdict(set)
    for match in PRODUCED.finditer(line):
        around = line[max(0, match.start() - AROUND) : match.end() + AROUND]
        found[plain(match[0])] |= words(around)
    return found


def is_beside(claim: Claim, text: str, lines: list[Line]) -> bool:
    """Say whether one of the lines has the claim's numbers, each near a word from beside it."""
    end = r"[.;:!?](?:\s|$)"
    before = re.split(end, text[: claim.start])[-1].split()[-BEFORE:]
    after = re.split(end, text[claim.end :])[0].split()[:AFTER]
    near = words(" ".join(before + after))
    return any(
        all(near & line.get(number, set()) for number in reading)
        for reading in claim.readings
        for line in lines
    )


@cache
def facts() -> dict[str, dict[str, Sources]]:
    """Return what is behind phrases, by notebook and cell id; `*` is any notebook's."""
    return tomllib.loads(FACTS.read_text(encoding="utf-8"))


def occurrences(part: str, text: str) -> list[re.Match[str]]:
    """Find a part of a text that is no part of a word or number: not `n=6` in `n=64`."""
    return list(re.finditer(rf"(?<!\w)(?<!\d\.){re.escape(part)}(?!(?<=\w)\w|(?<=\d)\.\d)", text))


def covered(claim: Claim, text: str, phrases: Sources) -> str | None:
    """Return the phrase that a claim stands in, if it stands in one."""
    for phrase in phrases:
        for match in occurrences(phrase, text):
            if match.start() <= claim.start and claim.end <= match.end():
                return phrase
    return None


def unbound(text: str, lines: list[Line], own: Sources) -> Iterator[Claim]:
    """Yield the claims of a text that neither a line beside it shows nor a phrase covers."""
    everywhere = facts().get("*", {}).get("*", {})
    for claim in stated(text):
        if not is_beside(claim, text, lines) and not covered(claim, text, own | everywhere):
            yield claim


def does_not_show(page: Page, phrase: str, source: Source) -> str | None:
    """Say why what an entry names is not behind its phrase; None if it is."""
    if isinstance(source, str):
        return None
    name, piece, *more = source
    cells = [cell for cell in page.code if cell.id == name]
    if not cells:
        return f"{name} is no code cell"
    found = max(len(occurrences(piece, text)) for text in shown(cells[0]))
    if not found:
        return f"{name} shows no {piece!r}"
    if more and isinstance(more[0], str):
        return None
    if more and more != [found]:
        return f"{name} shows {piece!r} {found} times"
    has = {str(found)} if more else numbers(piece)
    for claim in stated(phrase):
        if not any(reading <= has for reading in claim.readings):
            return f"{piece!r} has no {claim.text}"
    return None


@rule
def numbers_are_produced(page: Page) -> Iterator[str]:
    entries = facts().get(page.path.stem, {})
    everything = "\n".join(text for cell in page.code for text in shown(cell))
    for cell, lines in prose_cells(page):
        text, own = bare(cell.source), entries.get(cell.id, {})
        needed = {covered(claim, text, own) for claim in unbound(text, lines, {})}
        for claim in unbound(text, lines, own):
            yield (
                f"{cell.id}: no line of the code cells beside it has the number {claim.text} near "
                f"a word from beside it: let a cell show it, or say in {FACTS.name} what does"
            )
        for span in spans(cell.source):
            needed |= set() if occurrences(span.strip("`"), everything) else {span}
            if span in needed - own.keys():
                yield f"{cell.id}: no cell shows {span}: say in {FACTS.name} where it is from"
        for phrase, source in own.items():
            if phrase not in needed:
                yield f"{cell.id}: {FACTS.name} has a source for {phrase}, which needs none"
            elif why := does_not_show(page, phrase, source):
                yield f"{cell.id}: {FACTS.name} has a source for {phrase}, but {why}"
    for name in entries.keys() - {cell.id for cell in page.markdown}:
        yield f"{name}: {FACTS.name} has sources for it, and it is no cell of prose"
