"""The Chinese notebooks and README have the code, headings, links and numbers of the English."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from nbformat import NotebookNode

from notebooks import NOTEBOOKS, ROOT, TRANSLATIONS, dumps, load, translated

PATHS = sorted(TRANSLATIONS.glob("*.ipynb"))
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def form(text: str) -> dict[str, object]:
    """Return everything of a Markdown text that a translation has too."""
    prose = SPAN.sub("", FENCED.sub("", text))
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", prose)]
    return {
        "code": FENCED.findall(text),
        "names": set(SPAN.findall(FENCED.sub("", text))),
        "headings": re.findall(r"^#+ ", prose, re.MULTILINE),
        "links": Counter(re.sub(r"(\.\./)*|zh/", "", link) for link in links),
        "numbers": Counter(re.findall(r"\d+(?:[.,]\d+)*", re.sub(r"\]\([^)]*\)", "", prose))),
    }


def prose(notebook: NotebookNode) -> dict[str, str]:
    return {cell.id: cell.source for cell in notebook.cells if cell.cell_type == "markdown"}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_code_outputs_and_metadata_are_the_english_ones(path: Path) -> None:
    text = dumps(translated(load(NOTEBOOKS / path.name), load(path)))
    assert path.read_text(encoding="utf-8") == text, "run scripts/notebooks.py --no-run"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_prose_is_chinese_and_has_the_form_of_the_english(path: Path) -> None:
    english, chinese = prose(load(NOTEBOOKS / path.name)), prose(load(path))
    for name, text in english.items():
        assert form(chinese[name]) == form(text), name
        assert re.search(r"[\u4e00-\u9fff]", chinese[name]), name


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_links_resolve(path: Path) -> None:
    for text in prose(load(path)).values():
        for link in re.findall(r"\]\((?!https:|#)([^)#\s]+)", text):
            assert (path.parent / link).exists(), link


def test_readme_has_the_form_of_the_english() -> None:
    # Not compared: generated parts, links to each other, alt texts, the list of Chinese notebooks.
    own = r"<!-- (\w+): begin -->.*?<!-- \1: end -->|^[^\n]*(?:\(README|!\[|的正文是中文)[^\n]*$"
    english, chinese = (
        re.sub(own, "", (ROOT / name).read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        for name in ("README.md", "README.zh-CN.md")
    )
    assert form(chinese) == form(english)
