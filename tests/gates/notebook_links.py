"""The rules about links and pictures in the prose of a notebook."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
from notebook_rules import Page, is_sentence, prose, rule

# An address with one level of parentheses in it, as encyclopedias like them.
LINK = re.compile(
    r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(\s*([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)[^)]*\)"
)
HTML_LINK = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=[\"']([^\"']*)[\"']")
HTML_IMAGE = re.compile(r"<img\b[^>]*>")


def anchors(source: str) -> set[str]:
    """Return the anchors that JupyterLab gives to the headings of a markdown text."""
    found = re.findall(r"^#{1,6}\s+(.*?)\s*#*$", prose(source), re.MULTILINE)
    return {heading.replace(" ", "-") for heading in found}


def file_anchors(path: Path) -> set[str]:
    """Return the anchors of a notebook or a markdown file on disk."""
    if path.suffix == ".ipynb":
        cells = nbformat.read(path, as_version=4).cells
        return set().union(*(anchors(c.source) for c in cells if c.cell_type == "markdown"))
    return anchors(path.read_text(encoding="utf-8"))


def broken(page: Page, target: str) -> str | None:
    """Return why a link's target does not resolve, or None if it does."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        if parts.scheme == "mailto":
            return None
        whole = parts.scheme == "https" and "." in parts.netloc
        return None if whole else "is neither an https address nor a relative one"
    own = set().union(*(anchors(cell.source) for cell in page.markdown))
    if not parts.path:
        known = unquote(parts.fragment) in own
        return None if known else "names a heading that this notebook does not have"
    path = (page.path.parent / unquote(parts.path)).resolve()
    if not path.is_relative_to(page.root.resolve()):
        return "leaves the repository"
    if not path.exists():
        return "does not exist"
    if parts.fragment and unquote(parts.fragment) not in file_anchors(path):
        return "names a heading that the file does not have"
    return None


@rule
def links_resolve(page: Page) -> Iterator[str]:
    for cell in page.markdown:
        source = prose(cell.source)
        targets = [match[3] for match in LINK.finditer(source)] + HTML_LINK.findall(source)
        for target in targets:
            if why := broken(page, target):
                yield f"{cell.id}: the link {target!r} {why}"


@rule
def pictures_have_alt(page: Page) -> Iterator[str]:
    for cell in page.markdown:
        source = prose(cell.source)
        found = [(match[3], match[2]) for match in LINK.finditer(source) if match[1]]
        for tag in HTML_IMAGE.findall(source):
            alt = re.search(r"\balt=([\"'])(.*?)\1", tag)
            found.append((tag, alt[2] if alt else ""))
        for picture, alt_text in found:
            if not is_sentence(alt_text):
                yield f"{cell.id}: the alt text {alt_text!r} of {picture!r} is not a sentence"


def neighbour_line(page: Page) -> str:
    """Return the line of links to the previous and the next notebook, as it must be."""
    names = list(page.titles)
    here = names.index(page.path.name)
    links = []
    if here > 0:
        links.append(f"[← {_label(page, names[here - 1])}]({names[here - 1]})")
    if here + 1 < len(names):
        links.append(f"[{_label(page, names[here + 1])} →]({names[here + 1]})")
    return " · ".join(links)


def _label(page: Page, name: str) -> str:
    return f"{name[:2]} {page.titles[name]}"


@rule
def neighbours(page: Page) -> Iterator[str]:
    want = neighbour_line(page)
    for cell in (page.nb.cells[0], page.nb.cells[-1]):
        if want not in cell.source.splitlines():
            yield f"{cell.id}: the line {want!r} is missing"
