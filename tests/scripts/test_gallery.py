"""The site is built from the committed outputs; Sphinx's warnings fail the build."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

from gallery import figures
from readme import ROOT, entries

import tvmlab

NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def text(site: Path, page: str) -> str:
    return unescape((site / page).read_text(encoding="utf-8"))


def test_every_notebook_has_its_page_and_its_card_in_both_languages(site: Path) -> None:
    for language, index in (("en", "index.html"), ("zh_CN", "zh/index.html")):
        cards = text(site, index).replace("’", "'").split("sd-card ")[1:]
        for card, entry in zip(cards, entries(language), strict=True):
            page = entry.path.relative_to(ROOT).with_suffix(".html").as_posix()
            for part in (page, entry.title, entry.summary, entry.level, entry.needs):
                assert part in card, entry.path
            if language == "en" or "/zh/" in page:
                assert f"<h1>{entry.title}<" in text(site, page)


def test_figures_have_their_alt_texts_and_lead_to_their_files(site: Path) -> None:
    for path in NOTEBOOKS:
        page = text(site, f"notebooks/{path.stem}.html")
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for *_, alt in figures(cell):
                linked = (
                    rf'<a [^>]*href="([^"]+)"[^>]*><img [^>]*alt="{re.escape(alt)}"[^>]*src="\1"'
                )
                assert re.search(linked, page), cell["id"]


def test_the_reference_has_every_public_name_and_every_module_of_readme(site: Path) -> None:
    page = text(site, "reference/tvmlab.html")
    for name in tvmlab.__all__:
        module = site / "reference" / f"tvmlab.{name}.html"
        assert module.is_file() or f'id="tvmlab.{name}"' in page, name
    readme = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S))
    for module in re.findall(r"^(?:from|import) (tvmlab[\w.]*)", readme, re.MULTILINE):
        assert (site / "reference" / f"{module}.html").is_file(), module


def test_the_search_gives_no_exercise_away(site: Path) -> None:
    known = text(site, "searchindex.js")
    index = json.loads(known[known.index("(") + 1 : known.rindex(")")])
    titles = dict(zip(index["docnames"], range(len(index["docnames"])), strict=True))
    listed = str(index["alltitles"])
    for path in NOTEBOOKS:
        assert f"[{titles[f'notebooks/{path.stem}']}, " in listed
        assert f"[{titles[f'notebooks/solutions/{path.stem}']}, " not in listed
