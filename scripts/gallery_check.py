"""What must hold of the built site, read from its files: links, anchors, assets, text, sizes.

Nothing is fetched. An asset is what a browser loads by itself: it must be a file of the site, so
that the site works without a network. A link that a reader may follow can lead elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SITE_LIMIT = 30_000_000  # bytes of all files
FIRST_PAGE_LIMIT = 300_000  # bytes of index.html and its assets, as they are on disk
LOADED_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "manifest", "apple-touch-icon"}
ASSET_OF = {
    "img": "src", "script": "src", "iframe": "src", "source": "src", "video": "src",
    "audio": "src", "embed": "src", "object": "data", "track": "src",
}  # fmt: skip
CSS_ASSET = re.compile(r"@import\s+[\"']([^\"']+)[\"']|url\(\s*[\"']?([^\"')]+)[\"']?\s*\)")
# What is shown as it was written: text runs through the tags within a line, and ends at all others.
VERBATIM = {"code", "pre", "kbd", "script", "style", "svg", "math", "textarea"}
INLINE = {"a", "abbr", "b", "em", "i", "mark", "span", "strong", "sub", "sup", *VERBATIM}
# Markdown that came to nothing: emphasis (2**15 is none), and a role.
LITERAL = re.compile(r"(?<![\dA-Za-z_)*])\*+[^\s*](?:[^*]*[^\s*])?\*+|\{[a-z][\w:-]*\}(?=`|\ufffc)")


@dataclass
class Page(HTMLParser):
    """What a page of HTML has and refers to.

    Attributes
    ----------
    ids : set of str
        The anchors.
    links : list of str
        Where its links lead.
    assets : list of str
        What a browser loads with it.
    no_alt : list of str
        Pictures without an alt text.
    levels : list of int
        The levels of its headings, in order.
    literal : list of str
        Stars of an emphasis, and names of roles, that are shown as they were written.
    """

    text: str
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    assets: list[str] = field(default_factory=list)
    no_alt: list[str] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    literal: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._told, self._verbatim = "", 0
        self.feed(self.text)
        self.close()
        self._end_of_text()
        self.assets += [asset for style in self._styles() for asset in css_assets(style)]

    def _styles(self) -> list[str]:
        inline = re.findall(r"<style[^>]*>(.*?)</style>", self.text, re.DOTALL)
        return inline + re.findall(r"\sstyle=\"([^\"]*)\"", self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take down what a tag has."""
        self._tag(tag, 1)
        has = {name: value or "" for name, value in attrs}
        if "id" in has:
            self.ids.add(has["id"])
        if tag == "a" and "href" in has:
            self.links.append(has["href"])
        if tag == "link" and LOADED_LINKS & set(has.get("rel", "").split()):
            self.assets.append(has.get("href", ""))
        if tag in ASSET_OF and has.get(ASSET_OF[tag]):
            self.assets.append(has[ASSET_OF[tag]])
        if "srcset" in has:
            self.assets += [part.split()[0] for part in has["srcset"].split(",") if part.strip()]
        if tag == "img" and not has.get("alt", "").strip():
            self.no_alt.append(has.get("src", ""))
        if re.fullmatch(r"h[1-6]", tag):
            self.levels.append(int(tag[1]))

    def handle_endtag(self, tag: str) -> None:
        """Note where text ends."""
        self._tag(tag, -1)

    def handle_data(self, data: str) -> None:
        """Collect text; for what is verbatim a character stands that no page has."""
        self._told += "\ufffc" if self._verbatim else data

    def _tag(self, tag: str, depth: int) -> None:
        if tag in VERBATIM:
            self._verbatim += depth
        elif tag not in INLINE and not self._verbatim:
            self._end_of_text()

    def _end_of_text(self) -> None:
        self.literal += [found[0] for found in LITERAL.finditer(self._told)]
        self._told = ""


def css_assets(css: str) -> list[str]:
    """Return what a style sheet loads."""
    return [imported or address for imported, address in CSS_ASSET.findall(css)]


def pages(site: Path) -> dict[Path, Page]:
    """Read every page of the site."""
    return {
        path: Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
        if "_static" not in path.relative_to(site).parts
    }


def problems(site: Path) -> list[str]:
    """Return what is wrong with the built site, one sentence each."""
    found = pages(site)
    wrong = [problem for path in found for problem in _page_problems(site, path, found)]
    for sheet in sorted(site.rglob("*.css")):
        for asset in css_assets(sheet.read_text(encoding="utf-8")):
            if why := _no_file(site, sheet, asset):
                wrong.append(f"{sheet.relative_to(site)}: the asset {asset!r} {why}")
    if (size := site_bytes(site)) > SITE_LIMIT:
        wrong.append(f"the site has {size / 1e6:.1f} MB, at most {SITE_LIMIT / 1e6:.0f}")
    if (size := first_page_bytes(site)) > FIRST_PAGE_LIMIT:
        wrong.append(
            f"the first page has {size / 1e3:.0f} kB, at most {FIRST_PAGE_LIMIT / 1e3:.0f}"
        )
    return wrong


def _page_problems(site: Path, path: Path, found: dict[Path, Page]) -> Iterator[str]:
    page, name = found[path], path.relative_to(site)
    for asset in page.assets:
        if why := _no_file(site, path, asset):
            yield f"{name}: the asset {asset!r} {why}"
    for link in page.links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        if why := _no_file(site, path, link):
            yield f"{name}: the link {link!r} {why}"
            continue
        target = found.get(_file(path, link))
        if parts.fragment and target and unquote(parts.fragment) not in target.ids:
            yield f"{name}: the link {link!r} names an anchor that the page does not have"
    for literal in page.literal:
        yield f"{name}: {literal!r} is shown as it was written in Markdown"
    for picture in page.no_alt:
        yield f"{name}: the picture {picture!r} has no alt text"
    for before, after in zip([0, *page.levels], page.levels, strict=False):
        if after > before + 1:
            yield f"{name}: a heading jumps from level {before} to level {after}"


def _file(page: Path, address: str) -> Path:
    path = unquote(urlsplit(address).path)
    return (page.parent / path).resolve() if path else page


def _no_file(site: Path, page: Path, address: str) -> str | None:
    """Return why an address is no file of the site, or None if it is one."""
    parts = urlsplit(address)
    if parts.scheme == "data":
        return None
    if parts.scheme or parts.netloc:
        return "is on another server"
    file = _file(page, address)
    if not file.is_relative_to(site.resolve()) and file != page:
        return "leaves the site"
    return None if file.is_file() else "does not exist"


def site_bytes(site: Path) -> int:
    """Return the bytes of all files."""
    return sum(path.stat().st_size for path in site.rglob("*") if path.is_file())


def first_page_bytes(site: Path) -> int:
    """Return the bytes of the first page and of all that a browser loads with it."""
    index = site / "index.html"
    files, todo = {index}, [index]
    while todo:
        path = todo.pop()
        if path.suffix not in (".html", ".css"):
            continue
        text = path.read_text(encoding="utf-8")
        for asset in Page(text).assets if path.suffix == ".html" else css_assets(text):
            file = _file(path, asset)
            if file.is_file() and file not in files:
                files.add(file)
                todo.append(file)
    return sum(path.stat().st_size for path in files)
