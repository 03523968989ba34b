"""The rule about numbers in prose: each stands in a checked cell of its section, or has a source.

A number that a reader may take for a result has to be one. So every number in the prose must be in
the code, or in a compared output, of the same section (from one heading of the second level to the
next). What no cell can produce, a date or another project's version, is in `facts.toml`, with the
source it was taken from; and a fact that no prose uses any more is refused too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from nbformat import NotebookNode
from notebook_form import IGNORED
from notebook_rules import Page, rule, tags, texts

FACTS = Path(__file__).with_name("facts.toml")
# Not int8, ResNet-50, C++20 or 2D: these are names. 224x224 is two numbers.
NUMBER = re.compile(r"(?<![\w.+])(?<![A-Za-z]-)\d[\d,]*(?:\.\d+)*(?![\d.]*[A-Za-z_])")
# The bits of a type count: int8 has 8.
PRODUCED = re.compile(r"(?:(?<![A-Za-z_\d.])|(?<=int)|(?<=float))\d[\d,]*(?:\.\d+)*")
NOT_A_CLAIM = [
    re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL),  # Text quoted from elsewhere.
    re.compile(r"`[^`\n]+`"),
    re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\([^)]*\)"),  # A link leads to what it names.
    re.compile(r"<[^>]*>"),
    re.compile(r"^#{1,6} .*$", re.MULTILINE),
    re.compile(r"^\s*(?:\*\*)?\d+\. ", re.MULTILINE),  # The numbers of a list,
    re.compile(r"^\| *\d+ +(?=[a-z])", re.MULTILINE),  # of the rows of a table,
    re.compile(r"\([A-Z][^()\d]*, (?:19|20)\d\d\)"),  # of a citation (Lavin and Gray, 2016),
    re.compile(r"x86-64"),
    re.compile(r"\b(?:[Nn]otebooks?|[Ss]teps?|[Rr]ungs?|[Rr]ows?) \d+"),  # and of what has one.
]


def plain(text: str) -> str:
    """Return a number without commas, and 5.0 as 5; a version 0.19 stays what it is."""
    text = text.replace(",", "")
    return re.sub(r"\.0+$", "", text) if text.count(".") == 1 else text


def claims(source: str) -> list[str]:
    """Return the numbers that the prose of a markdown cell states."""
    source = source.split("## Further reading")[0]  # Volumes and years of papers.
    for pattern in NOT_A_CLAIM:
        source = pattern.sub(" ", source)
    return [plain(number) for number in NUMBER.findall(_apart(source))]


def produced(cell: NotebookNode) -> set[str]:
    """Return the numbers in a code cell's source and, if it is compared, in its outputs."""
    found = [cell.source] + ([] if IGNORED in tags(cell) else list(map(_read, texts(cell))))
    return {plain(n) for text in found for n in re.findall(PRODUCED, _apart(text))}


def _read(text: str) -> str:
    """Drop the tags of an output in HTML: their sizes and numbers are no results."""
    is_html = text.startswith(("<div ", "<form "))
    return re.sub(r"<style>.*?</style>|<[^>]*>", " ", text) if is_html else text


def _apart(text: str) -> str:
    return re.sub(r"(?<=\d)x(?=\d)", " x ", text)


def sections(page: Page) -> Iterator[list[NotebookNode]]:
    """Yield the cells from one heading of the first or second level to the next."""
    section: list[NotebookNode] = []
    for cell in page.nb.cells:
        if cell.cell_type == "markdown" and re.match(r"##? ", cell.source) and section:
            yield section
            section = []
        section.append(cell)
    yield section


@cache
def facts() -> dict[str, dict[str, dict[str, str]]]:
    """Return the sources of facts, by notebook, cell id and number; `*` is any notebook's."""
    return tomllib.loads(FACTS.read_text(encoding="utf-8"))


def unbound(page: Page) -> Iterator[tuple[str, str]]:
    """Yield cell id and number of each claim that no cell of its section produces."""
    for section in sections(page):
        known = set().union(*(produced(cell) for cell in section if cell.cell_type == "code"))
        for cell in section:
            if cell.cell_type == "markdown":
                yield from ((cell.id, each) for each in claims(cell.source) if each not in known)


@rule
def numbers_are_produced(page: Page) -> Iterator[str]:
    own = facts().get(page.path.stem, {})
    used = set()
    for name, number in unbound(page):
        used.add((name, number))
        if number not in own.get(name, {}) and number not in facts().get("*", {}).get("*", {}):
            yield (
                f"{name}: no code or compared output of the section has the number {number}: "
                f"let a cell produce it, or name its source in {FACTS.name}"
            )
    for name, numbers in own.items():
        for number in numbers:
            if (name, number) not in used:
                yield f"{name}: {FACTS.name} has a source for {number}, which needs none"
