"""The site is built from what is committed: warnings, links, assets and sizes are checked."""

from __future__ import annotations

import json
import os
import re
from html import unescape
from itertools import pairwise
from pathlib import Path

from gallery_check import pages, problems
from gallery_glossary import read_terms
from gallery_source import MODULES
from gallery_thumbnails import alt_text, kind_of_figure
from languages import ENGLISH, SIMPLIFIED, chinese

import tvmlab

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
EVERY_READER_MEETS = {
    *("Relay", "Relax", "TE", "TIR", "schedule", "trace"),
    *("QDQ", "qnn", "composite function", "region"),
}


def text(site: Path, page: str) -> str:
    return (site / page).read_text(encoding="utf-8")


def test_links_anchors_assets_and_sizes_are_in_order(site: Path) -> None:
    assert problems(site) == []


def test_no_folder_is_empty(site: Path) -> None:
    empty = [path for path in site.rglob("*") if path.is_dir() and not any(path.iterdir())]
    assert empty == []


def test_every_notebook_has_its_page_and_its_card(site: Path) -> None:
    index = text(site, "index.html")
    for path in NOTEBOOKS:
        about = json.loads(path.read_text(encoding="utf-8"))["metadata"]["tvmlab"]
        card = next(
            card
            for card in re.findall(r"<li><img.*?</li>", index, re.DOTALL)
            if f"notebooks/{path.stem}.html" in card
        )
        for part in (about["title"], about["summary"], about["level"], *about["needs"]):
            assert part in unescape(card), path.name
        assert about["title"] in unescape(text(site, f"notebooks/{path.stem}.html"))


def test_figures_keep_their_alt_texts(site: Path) -> None:
    for path in NOTEBOOKS:
        page = text(site, f"notebooks/{path.stem}.html")
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                if kind_of_figure(output):
                    assert str(alt_text(output)) in unescape(page), cell["id"]


def test_every_figure_leads_to_its_file(site: Path) -> None:
    for folder, title in ((site, "open at full size"), (site / "zh", "打开原图")):
        count = 0
        for page in folder.glob("notebooks/*.html"):
            html = page.read_text(encoding="utf-8")
            linked = rf'<a class="picture" href="([^"]+)" title="{title}"><img [^>]*src="\1"'
            assert len(re.findall(linked, html)) == len(re.findall(r'src="[^"]*_images/', html))
            count += len(re.findall(linked, html))
        assert count > len(NOTEBOOKS)


def test_no_empty_cell_is_read_out_as_the_name_of_a_column(site: Path) -> None:
    for page in site.rglob("*.html"):
        headers = re.findall(r"<th[ >].*?</th>", page.read_text(encoding="utf-8"), re.DOTALL)
        assert all(re.sub(r"<.*?>", "", header).strip() for header in headers), page.name
    corner = re.compile(r'<tr class="row-odd"><td class="head"></td>\s*<th class="head">')
    assert corner.search(text(site, "notebooks/01_build_tvm.html"))


def test_the_notebooks_can_be_had_as_they_are_committed(site: Path) -> None:
    for folder, language in ((site, ENGLISH), (site / "zh", SIMPLIFIED)):
        offered = {path.name: path.read_bytes() for path in folder.glob("_downloads/*/*.ipynb")}
        assert offered == {path.name: language.notebook(path).read_bytes() for path in NOTEBOOKS}


def test_previous_and_next_are_the_reading_order(site: Path) -> None:
    for before, after in pairwise(NOTEBOOKS):
        page = text(site, f"notebooks/{before.stem}.html")
        assert f'<link rel="next" title="{_title(after)}" href="{after.stem}.html"' in page
        page = text(site, f"notebooks/{after.stem}.html")
        assert f'<link rel="prev" title="{_title(before)}" href="{before.stem}.html"' in page


def _title(path: Path) -> str:
    return str(json.loads(path.read_text(encoding="utf-8"))["metadata"]["tvmlab"]["title"])


def test_the_glossary_has_what_every_reader_meets_and_no_term_in_vain(site: Path) -> None:
    terms = read_terms(ROOT / "docs" / "glossary.md")
    assert set(terms) >= EVERY_READER_MEETS
    assert terms == sorted(terms, key=str.lower)
    links = [link for page in pages(site).values() for link in page.links]
    for term in terms:
        anchor = f"glossary.html#term-{term.replace(' ', '-')}"
        assert any(link.endswith(anchor) for link in links), term


def test_the_reference_has_every_public_name(site: Path) -> None:
    anchors = {anchor for page in pages(site).values() for anchor in page.ids}
    modules = {f"tvmlab.{name}" for name in dir(tvmlab) if f"tvmlab.{name}" in MODULES}
    assert {f"tvmlab.{name}" for name in tvmlab.__all__} <= anchors | modules
    for module in MODULES:
        assert f"module-{module}" in anchors


def test_attributes_that_are_described_together_have_an_entry_each(site: Path) -> None:
    page = text(site, "reference/tvmlab.npu.isa.html")
    for name in ("rows", "cols", "channels"):
        assert re.search(rf"<strong>{name}</strong> \((<[^>]*>)?int", page), name
    wrong = re.compile(r"<strong>[\w.]+</strong> \((?:<em>[\w., ]*</em>)*<em>,</em>\)")
    for path in site.glob("reference/*.html"):
        assert not wrong.search(path.read_text(encoding="utf-8")), path.name


def test_every_page_leads_to_itself_in_the_other_language(site: Path) -> None:
    found = pages(site)
    chinese_pages = {path.relative_to(site / "zh") for path in found if site / "zh" in path.parents}
    english = {path.relative_to(site) for path in found if site / "zh" not in path.parents}
    assert chinese_pages == english
    for page in english:
        there = os.path.relpath(Path("zh") / page, page.parent)
        back = os.path.relpath(page, (Path("zh") / page).parent)
        assert there in found[site / page].links
        assert back in found[site / "zh" / page].links


def test_the_chinese_site_has_translations_and_chinese_titles_around_english_pages(
    site: Path,
) -> None:
    index = text(site, "zh/index.html")
    for path in NOTEBOOKS:
        assert chinese()[path.stem]["summary"] in index
        page = text(site, f"zh/notebooks/{path.stem}.html")
        assert chinese()[path.stem]["title"] in page
        translated = SIMPLIFIED.notebook(path) != path
        assert ("<h2>自己动手" in page) is translated
        assert ('<div lang="en">' in page) is not translated
        assert (SIMPLIFIED.untranslated in page) is not translated
    for name in ("glossary.html", "reference/tvmlab.html"):
        assert SIMPLIFIED.untranslated in text(site, f"zh/{name}")
    assert SIMPLIFIED.untranslated not in index
    assert '<html class="no-js" lang="zh-CN"' in index
    for word in ("下一页", "笔记本", "术语表", "搜索"):
        assert word in index


def test_search_knows_the_notebooks_and_gives_no_exercise_away(site: Path) -> None:
    for folder in (site, site / "zh"):
        known = text(folder, "searchindex.js")
        index = json.loads(known[known.index("(") + 1 : known.rindex(")")])
        places = {name: place for place, name in enumerate(index["docnames"])}
        found: set[int] = set()
        for part in ("terms", "titleterms", "alltitles"):
            for where in index[part].values():
                listed = where if isinstance(where, list) else [where]
                found |= {each[0] if isinstance(each, list) else each for each in listed}
        for path in NOTEBOOKS:
            assert places[f"notebooks/{path.stem}"] in found
            assert places[f"notebooks/solutions/{path.stem}"] not in found
