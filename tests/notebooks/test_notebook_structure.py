"""Every notebook has the structure that design and tests rely on: one table of rules."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest
from nbformat import NotebookNode

from notebooks import LAB_TOOLS, ROOT, TOOL_TAG, dumps, load
from tests.notebooks.checked import IGNORED, PATHS, STRICT, tags, texts

NOTEBOOKS = {path: load(path) for path in PATHS}
TITLES = {path.name: notebook.metadata.tvmlab.title for path, notebook in NOTEBOOKS.items()}
OPENING = ["What you'll do", "What you'll learn", "What you'll need"]
CLOSING = ["On your own", "In practice", "Further reading"]
STAGES = "You are here: import → Relax → passes → partition → TIR → schedule → LLVM → runtime"
KEYS = {"title", "minutes", "level", "needs", "summary"}
PROGRAMS = {"g++", "make"}  # what a notebook may need; `make setup` brings everything else
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)")
MACHINE = re.compile(
    r"(?<![\w.])/(?:home|root|tmp|usr|opt|var|mnt|srv|Users)(?:/|$|\s)|site-packages|ipykernel_\d"
    rf"|{re.escape(str(ROOT))}|{re.escape(sys.prefix)}/|{re.escape(tempfile.gettempdir())}/",
    re.MULTILINE,
)


def prose(cell: NotebookNode) -> str:
    """Return a cell's Markdown without code, in which `#` and `[` mean other things."""
    text: str = re.sub(r"`[^`\n]+`", "code", FENCED.sub("", cell.source))
    return text


def headings(notebook: NotebookNode) -> list[tuple[int, str]]:
    """Return level and text of every heading."""
    markdown = "\n".join(prose(cell) for cell in notebook.cells if cell.cell_type == "markdown")
    found = re.findall(r"^(#{1,6})\s+(.*?)\s*$", markdown, re.MULTILINE)
    return [(len(level), text) for level, text in found]


def is_sentence(text: object) -> bool:
    return isinstance(text, str) and bool(re.fullmatch(r"[A-Z0-9](?:\S*\s+){3}.*[.!?]", text))


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def canonical_form(path: Path, notebook: NotebookNode) -> Iterator[str]:
    if path.read_text(encoding="utf-8") != dumps(notebook):
        yield "run `make notebooks`"


def ids(path: Path, notebook: NotebookNode) -> Iterator[str]:
    names = [cell.get("id", "") for cell in json.loads(path.read_text("utf-8"))["cells"]]
    yield from (name for name in names if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name))
    yield from (name for name in set(names) if names.count(name) > 1)


def metadata(path: Path, notebook: NotebookNode) -> Iterator[str]:
    about = notebook.metadata.tvmlab
    if set(about) - {"thumbnail"} != KEYS:
        yield f"the keys are {sorted(about)}"
    if headings(notebook)[0] != (1, about.title):
        yield f"the first heading is not the title {about.title!r}"
    if about.minutes not in (1, 2) or about.level not in ("beginner", "intermediate", "advanced"):
        yield f"minutes {about.minutes}, level {about.level}"
    # It completes "you will ...".
    if not re.fullmatch(r"[a-z]+ (?:\S+ ){2,}\S*[^\s.!?]", about.summary):
        yield f"the summary is {about.summary!r}"
    if not set(about.needs) <= PROGRAMS:
        yield f"needs {about.needs}"
    if "thumbnail" in about and not any(
        cell.id == about.thumbnail and "'image/" in str(cell.outputs)
        for cell in code_cells(notebook)
    ):
        yield f"no cell {about.thumbnail!r} with a figure"


def skeleton(path: Path, notebook: NotebookNode) -> Iterator[str]:
    found = headings(notebook)
    sections = [text for level, text in found if level == 2]
    if [level for level, _ in found].count(1) != 1 or found[0][0] != 1:
        yield "not one title, at the beginning"
    if sections[:3] != OPENING or sections[-3:] != CLOSING or len(sections) < 7:
        yield f"the sections are {sections}"
    for (before, _), (after, text) in pairwise(found):
        if after > before + 1:
            yield f"{text!r} jumps from level {before} to level {after}"


def neighbours(path: Path, notebook: NotebookNode) -> Iterator[str]:
    names = list(TITLES)
    here = names.index(path.name)
    links = [f"[← {name[:2]} {TITLES[name]}]({name})" for name in names[:here][-1:]]
    links += [f"[{name[:2]} {TITLES[name]} →]({name})" for name in names[here + 1 :][:1]]
    for cell in (notebook.cells[0], notebook.cells[-1]):
        if " · ".join(links) not in cell.source.splitlines():
            yield f"{cell.id}: no line {' · '.join(links)!r}"


def map_line(path: Path, notebook: NotebookNode) -> Iterator[str]:
    """The head of a notebook says where in the compiler it is: some of `STAGES` are bold."""
    lines = [one for one in notebook.cells[0].source.splitlines() if "**" in one]
    if STAGES not in [one.replace("**", "") for one in lines]:
        yield f"no line {STAGES!r} with this notebook's stages bold"


def cells(path: Path, notebook: NotebookNode) -> Iterator[str]:
    for cell in notebook.cells:
        if not 0 < len(cell.source.splitlines()) <= 25:
            yield f"{cell.id}: {len(cell.source.splitlines())} lines"


def tags_known(path: Path, notebook: NotebookNode) -> Iterator[str]:
    # nbval ignores an unknown tag without a word, and obeys comments that no tag shows.
    known = {IGNORED, "raises-exception", "tvm-only", "given"} | {
        TOOL_TAG + tool for tool in LAB_TOOLS
    }
    for cell in notebook.cells:
        if set(tags(cell)) - (known if cell.cell_type == "code" else set()):
            yield f"{cell.id}: {tags(cell)}"
        if cell.cell_type == "code" and re.search(r"# *(NBVAL_|PYTEST_VALIDATE_)", cell.source):
            yield f"{cell.id}: use a tag, not a comment"


def tools_asked_for(path: Path, notebook: NotebookNode) -> Iterator[str]:
    """A shell cell has a tag for each tool that it runs; the tests skip it without the tool."""
    for cell in code_cells(notebook):
        if cell.source.startswith("%%bash"):
            tools = set(re.findall(r"[\w-]+", cell.source)) & set(LAB_TOOLS)
            if missing := {TOOL_TAG + tool for tool in tools} - set(tags(cell)):
                yield f"{cell.id}: lacks the tags {sorted(missing)}"


def compared(path: Path, notebook: NotebookNode) -> Iterator[str]:
    """After each measurement, a compared cell asserts or prints what the timing teaches."""
    found = code_cells(notebook)
    for cell, after in zip(found, [*found[1:], None], strict=True):
        if IGNORED in tags(cell) and (
            after is None
            or IGNORED in tags(after)
            or not ("assert" in after.source or "".join(texts(after)).strip())
        ):
            yield f"{cell.id}: no compared cell follows"


def outputs(path: Path, notebook: NotebookNode) -> Iterator[str]:
    for cell in code_cells(notebook):
        text = "\n".join(texts(cell))
        if len(text.splitlines()) > 100:
            yield f"{cell.id}: {len(text.splitlines())} lines of output"
        if found := MACHINE.search(text):
            yield f"{cell.id}: {found[0]!r} is a path of this machine"
        # nbval drops the text before a carriage return.
        if found := re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text):
            yield f"{cell.id}: the control character {found[0]!r}"
        if any(output.get("name") == "stderr" for output in cell.outputs):
            yield f"{cell.id}: output on stderr"
        is_error = any(output.output_type == "error" for output in cell.outputs)
        if is_error != ("raises-exception" in tags(cell)):
            yield f"{cell.id}: an error and the tag raises-exception belong together"


def figures(path: Path, notebook: NotebookNode) -> Iterator[str]:
    for cell in code_cells(notebook):
        for output in cell.outputs:
            for kind in [mime for mime in output.get("data", {}) if mime.startswith("image/")]:
                alt = output.metadata.get(kind, {}).get("alt")
                # nbval compares the text/plain in place of the picture.
                if not is_sentence(alt) or output.data.get("text/plain") != alt:
                    yield f"{cell.id}: the alt text is {alt!r}"


def links(path: Path, notebook: NotebookNode) -> Iterator[str]:
    for cell in [cell for cell in notebook.cells if cell.cell_type == "markdown"]:
        for image, text, target in LINK.findall(prose(cell)):
            place, _, anchor = target.partition("#")
            file = (path.parent / unquote(place)).resolve() if place else path
            if image and not is_sentence(text):
                yield f"{cell.id}: the alt text is {text!r}"
            if target.startswith("https://"):
                continue
            if not (file.is_relative_to(ROOT) and file.exists()):
                yield f"{cell.id}: {target} does not exist"
            elif anchor and unquote(anchor) not in anchors(file):
                yield f"{cell.id}: {target} has no such heading"


def anchors(file: Path) -> list[str]:
    """Return the anchors that JupyterLab gives to the headings of a file."""
    if file.suffix == ".ipynb":
        return [text.replace(" ", "-") for _, text in headings(load(file))]
    text = FENCED.sub("", file.read_text(encoding="utf-8"))
    return [one.replace(" ", "-") for one in re.findall(r"^#+ +(.*)$", text, re.MULTILINE)]


Rule = Callable[[Path, NotebookNode], Iterator[str]]
RULES: tuple[Rule, ...] = (
    *(canonical_form, ids, metadata, skeleton, neighbours, map_line, cells, links),
    *(tags_known, tools_asked_for, compared, outputs, figures),
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_notebook_keeps_the_rule(path: Path, rule: Rule) -> None:
    assert list(rule(path, NOTEBOOKS[path])) == []


def test_the_notebooks_are_numbered_in_reading_order() -> None:
    assert [name[:3] for name in TITLES] == [f"{number:02}_" for number in range(len(TITLES))]


def test_make_test_compares_every_notebook_strictly_and_offline() -> None:
    run = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True)
    lines = run.stdout.replace("\\\n", " ").splitlines()
    [words] = [shlex.split(line) for line in lines if " --nbval " in line]
    line = " ".join(words).replace(f"{ROOT}/", "").replace("=", " ")
    for option in (*STRICT, "PYTHONPATH=tests/offline", "--dist loadfile"):
        assert option.replace(f"{ROOT}/", "").replace("=", " ") in line
    assert sorted(ROOT / word for word in words if word.endswith(".ipynb")) == PATHS
