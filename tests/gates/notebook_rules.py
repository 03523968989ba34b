"""The rules that every notebook keeps, one small function each.

A rule takes a `Page` and yields what is wrong, one sentence each, with the cell's id in front.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from notebook_form import FENCED, IGNORED, TOOL_TAG, dumps, tools_of

from tvmlab import lab_tools

ROOT = Path(__file__).resolve().parents[2]
TAGS = {IGNORED, "raises-exception"}
OPENING = ["What you'll do", "What you'll learn", "What you'll need"]
CLOSING = ["On your own", "In practice", "Further reading"]
MIME_TYPES = {"text/plain", "text/html", "text/markdown", "image/png", "image/svg+xml"}
MAX_CELL_LINES = 25
MAX_OUTPUT_LINES = 100
MIN_COMPARED = 5


@dataclass
class Page:
    """A notebook file, its text, and the notebooks it stands among.

    Attributes
    ----------
    path : Path
        Where the file is; links are resolved against its folder.
    text : str
        What is in the file.
    titles : dict of str to str
        The titles of all notebooks of the set, by file name, in reading order.
    root : Path
        The folder that links to files may not leave.
    """

    path: Path
    text: str
    titles: dict[str, str] = field(default_factory=dict)
    root: Path = ROOT

    @cached_property
    def raw(self) -> dict[str, Any]:
        """The JSON as it stands: nbformat repairs some faults as it reads."""
        value: dict[str, Any] = json.loads(self.text)
        return value

    @cached_property
    def nb(self) -> NotebookNode:
        return nbformat.reads(self.text, as_version=4)

    @property
    def code(self) -> list[NotebookNode]:
        return [cell for cell in self.nb.cells if cell.cell_type == "code"]

    @property
    def markdown(self) -> list[NotebookNode]:
        return [cell for cell in self.nb.cells if cell.cell_type == "markdown"]

    @cached_property
    def headings(self) -> list[tuple[str, int, str]]:
        """Cell id, level and text of every heading, in order."""
        found = []
        for cell in self.markdown:
            for line in prose(cell.source).splitlines():
                if match := re.match(r"(#{1,6})\s+(.*?)\s*#*$", line):
                    found.append((cell.id, len(match[1]), match[2]))
        return found


Rule = Callable[[Page], Iterator[str]]
RULES: list[Rule] = []


def rule(function: Rule) -> Rule:
    """Enter a function into the list of rules."""
    RULES.append(function)
    return function


def check(page: Page) -> list[str]:
    """Return what any rule has to say about the page, with the file's name in front."""
    return [
        f"{page.path.name}: {problem} [{each.__name__}]" for each in RULES for problem in each(page)
    ]


def prose(source: str) -> str:
    """Return markdown without its code, in which `#` and `[` mean other things."""
    return re.sub(r"`[^`\n]+`", "code", FENCED.sub("", source))


def tags(cell: NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))


def texts(cell: NotebookNode) -> Iterator[str]:
    """Yield every text that a code cell has put out; a picture is none, whatever it is made of."""
    for output in cell.outputs:
        if output.output_type == "stream":
            yield output.text
        elif output.output_type == "error":
            yield "\n".join([output.ename, output.evalue, *output.traceback])
        else:
            data = output.data.items()
            yield from (str(text) for mime, text in data if not mime.startswith("image/"))


@cache
def packages() -> frozenset[str]:
    """Return the names of the Python packages that every environment of the workbook has."""
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([a-z0-9][a-z0-9._-]*)==", text, re.MULTILINE))


def is_sentence(text: object) -> bool:
    """Say whether a text reads as a whole sentence: capital, several words, full stop."""
    return isinstance(text, str) and bool(
        re.fullmatch(r"(?=[A-Z0-9])(?=(?:\S+\s+){3}).*[.!?]", text)
    )


# The file.


@rule
def canonical_json(page: Page) -> Iterator[str]:
    want = dumps(page.nb)
    if page.text != want:
        lines = zip(page.text.splitlines(), want.splitlines(), strict=False)
        number = next((n for n, (a, b) in enumerate(lines, 1) if a != b), "last")
        yield f"line {number}: not in canonical form, run `make notebooks`"


@rule
def cell_ids(page: Page) -> Iterator[str]:
    seen = set()
    for number, cell in enumerate(page.raw["cells"]):
        name = cell.get("id")
        if not name:
            yield f"cell number {number}: has no id"
        elif name in seen:
            yield f"{name}: two cells have this id"
        elif not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
            yield f"{name}: an id is a slug of lower-case words and hyphens"
        seen.add(name)


@rule
def execution_counts(page: Page) -> Iterator[str]:
    # nbval never compares a cell without a count.
    code = [cell for cell in page.raw["cells"] if cell["cell_type"] == "code"]
    for want, cell in enumerate(code, 1):
        if cell["execution_count"] != want:
            yield f"{cell.get('id')}: execution count {cell['execution_count']}, expected {want}"


# The cells.


@rule
def thumbnail(page: Page) -> Iterator[str]:
    # The site's card shows what this cell put out; without the key it shows the last figure.
    wanted = page.nb.metadata.get("tvmlab", {}).get("thumbnail")
    if wanted is not None and not any(c.id == wanted and any(texts(c)) for c in page.code):
        yield f"metadata: the thumbnail {wanted!r} is no code cell with an output"


@rule
def known_tags(page: Page) -> Iterator[str]:
    # nbval passes over an unknown tag in silence, and obeys comments that no tag shows.
    known = TAGS | {TOOL_TAG + tool for tool in lab_tools.PACKAGES}
    for cell in page.nb.cells:
        for tag in tags(cell):
            if tag not in known or cell.cell_type != "code":
                yield f"{cell.id}: the tag {tag!r} is not known here"
        if cell.cell_type == "code" and re.search(
            r"^\s*#+\s*(NBVAL_|PYTEST_VALIDATE_)", cell.source, re.MULTILINE
        ):
            yield f"{cell.id}: use a tag, not a comment, to steer nbval"


@rule
def tools_are_asked_for(page: Page) -> Iterator[str]:
    # The reader who lacks a tool is told by the cell; the gates, which skip it, go by its tags.
    for cell in page.code:
        first = re.match(r"if lab_tools\.here\((.*)\):\n", cell.source)
        asked = re.findall(r'"([^"]*)"', first[1]) if first else []
        if sorted(asked) != tools_of(cell):
            yield (
                f"{cell.id}: it asks for the tools {asked}, and its tags name {tools_of(cell)}: "
                "a cell that needs tools begins with `if lab_tools.here(...):`"
            )
        elif first and re.search(r"^\S", cell.source[first.end() :], re.MULTILINE):
            yield f"{cell.id}: a part of it stands outside of `if lab_tools.here(...):`"


@rule
def cell_length(page: Page) -> Iterator[str]:
    for cell in page.nb.cells:
        lines = len(cell.source.splitlines())
        if lines > MAX_CELL_LINES:
            yield f"{cell.id}: {lines} lines, at most {MAX_CELL_LINES}"


@rule
def no_empty_cells(page: Page) -> Iterator[str]:
    for cell in page.nb.cells:
        if not cell.source.strip():
            yield f"{cell.id}: the cell is empty"


@rule
def ignored_then_compared(page: Page) -> Iterator[str]:
    for cell, after in zip(page.code, [*page.code[1:], None], strict=True):
        if IGNORED not in tags(cell):
            continue
        if after is None or IGNORED in tags(after):
            yield f"{cell.id}: its output is ignored and no compared code cell follows"
        elif "assert" not in after.source and not any(text.strip() for text in texts(after)):
            yield f"{cell.id}: {after.id} follows, but neither asserts nor prints anything"


@rule
def enough_compared(page: Page) -> Iterator[str]:
    compared = sum(IGNORED not in tags(c) and any(t.strip() for t in texts(c)) for c in page.code)
    if compared < MIN_COMPARED:
        yield f"notebook: {compared} compared cells with an output, at least {MIN_COMPARED}"


# The outputs.


@rule
def output_length(page: Page) -> Iterator[str]:
    for cell in page.code:
        lines = sum(len(text.splitlines()) for text in texts(cell))
        if lines > MAX_OUTPUT_LINES:
            yield f"{cell.id}: {lines} lines of output, at most {MAX_OUTPUT_LINES}"


@rule
def no_machine_path(page: Page) -> Iterator[str]:
    here = [ROOT, Path.home(), Path(tempfile.gettempdir()), Path(sys.prefix), Path(sys.base_prefix)]
    known = "|".join(re.escape(str(path)) for path in here if len(path.parts) > 1)
    usual = r"/(?:home|root|tmp|usr|opt|var|mnt|srv|Users|private)\b"
    pattern = (
        rf"(?<![\w.])(?:(?:{usual}|{known})(?:/|$|\s)|/\S*site-packages|[A-Z]:\\\w)|ipykernel_\d+"
    )
    for cell in page.code:
        for text in texts(cell):
            if match := re.search(pattern, text, re.MULTILINE):
                line = text[: match.start()].count("\n") + 1
                yield f"{cell.id}: line {line} of an output has a path of a machine: {match[0]!r}"


@rule
def no_stray_output(page: Page) -> Iterator[str]:
    for cell in page.code:
        kinds = [output.output_type for output in cell.outputs]
        if any(output.get("name") == "stderr" for output in cell.outputs):
            yield f"{cell.id}: output on stderr, silence it at its source"
        if ("error" in kinds) != ("raises-exception" in tags(cell)):
            yield f"{cell.id}: an error and the tag raises-exception come together or not at all"


@rule
def readable_output(page: Page) -> Iterator[str]:
    # nbval drops what stands before a carriage return, and skips or cannot judge other types.
    for cell in page.code:
        for text in texts(cell):
            if match := re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text):
                yield f"{cell.id}: the control character {match[0]!r} in an output"
        for output in cell.outputs:
            for mime in output.get("data", {}):
                if mime not in MIME_TYPES:
                    yield f"{cell.id}: an output of type {mime}, which is not compared or not read"


@rule
def figures_have_alt(page: Page) -> Iterator[str]:
    for cell in page.code:
        for output in cell.outputs:
            kind = next((m for m in output.get("data", {}) if m.startswith("image/")), None)
            if kind is None:
                continue
            alt = output.get("metadata", {}).get(kind, {}).get("alt")
            if not is_sentence(alt):
                yield f"{cell.id}: the figure's alt text {alt!r} is not a sentence"
            elif output.data.get("text/plain") != alt:
                yield f"{cell.id}: the figure's text/plain is not its alt text"


@rule
def pictures_in_html_have_alt(page: Page) -> Iterator[str]:
    for cell in page.code:
        for output in cell.outputs:
            for tag in re.findall(r"<img\b[^>]*>", output.get("data", {}).get("text/html", "")):
                alt = re.search(r'\balt="([^"]*)"', tag)
                if alt is None or not is_sentence(unescape(alt[1])):
                    yield f"{cell.id}: the alt text of a picture in HTML is not a sentence"
                elif unescape(alt[1]) not in output.data.get("text/plain", ""):
                    yield f"{cell.id}: what a picture in HTML shows is not in the text/plain"


# The prose.


@rule
def one_title(page: Page) -> Iterator[str]:
    firsts = [(name, text) for name, level, text in page.headings if level == 1]
    first = page.nb.cells[0]
    if first.cell_type != "markdown" or not first.source.startswith("# "):
        yield f"{first.id}: the notebook does not begin with its title"
    for name, text in firsts[1:]:
        yield f"{name}: {text!r} is a second title"


@rule
def ordered_headings(page: Page) -> Iterator[str]:
    last = 0
    for name, level, text in page.headings:
        if level > last + 1:
            yield f"{name}: the heading {text!r} jumps from level {last} to level {level}"
        last = level


@rule
def skeleton(page: Page) -> Iterator[str]:
    sections = [(name, text) for name, level, text in page.headings if level == 2]
    names = [text for _, text in sections]
    for text in OPENING + CLOSING:
        if names.count(text) != 1:
            yield f"notebook: the section {text!r} stands {names.count(text)} times, expected once"
            return
    if names[: len(OPENING)] != OPENING:
        yield f"{sections[0][0]}: the first sections are not {', '.join(OPENING)}"
    if names[-len(CLOSING) :] != CLOSING:
        yield f"{sections[-1][0]}: the last sections are not {', '.join(CLOSING)}"
    if len(names) == len(OPENING + CLOSING):
        yield "notebook: there are no steps between the opening and the closing sections"


def exercises(page: Page) -> list[str]:
    """Return the ids of the cells under 'On your own' whose check says 'not yet'."""
    section, found = "", []
    for cell in page.nb.cells:
        if cell.cell_type == "markdown":
            here = [text for name, level, text in page.headings if name == cell.id and level == 2]
            section = here[-1] if here else section
        elif section == "On your own" and IGNORED not in tags(cell):
            asks = any(re.search(r"\bnot yet\b", text, re.IGNORECASE) for text in texts(cell))
            found += [cell.id] * asks
    return found


@rule
def two_exercises(page: Page) -> Iterator[str]:
    count = len(exercises(page))
    if count < 2:
        yield (
            f"notebook: {count} exercises under 'On your own' whose check says 'not yet', "
            "at least 2"
        )
