"""The parts of the site: cards, links to the glossary, and the check that finds what is broken."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import gallery
import pytest
from gallery_check import FIRST_PAGE_LIMIT, problems
from gallery_errors import GalleryError
from gallery_errors_index import index_errors
from gallery_glossary import OTHER_MEANINGS, Linker, read_terms, terms_of
from gallery_search import SearchChinese
from gallery_source import at_home, first_line, for_the_site, linked_files, write_solutions
from gallery_thumbnails import thumbnail
from languages import SIMPLIFIED
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")
TERMS = ("Relay", "schedule", "composite function", "function", "qnn", "TE", "zero point")

# Errors.


def test_an_error_is_in_the_index_below_its_heading() -> None:
    printed = [{"output_type": "stream", "text": ["error: it is; gone\n", "mended: yes\n"]}]
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "source": "", "outputs": printed},  # under no heading
        {"cell_type": "markdown", "source": "## Mend\n\n### It is gone\n\nDo this."},
        {"cell_type": "code", "source": "", "outputs": printed},
        {"cell_type": "markdown", "source": "### Another\n\nDo that."},
        {"cell_type": "code", "source": "", "outputs": []},
    ]
    index_errors(cells)
    assert cells[1]["source"] == (
        "## Mend\n\n### It is gone\n\n```{index} ! single: it is, gone\n```\n\n\nDo this."
    )
    assert cells[3]["source"] == "### Another\n\nDo that."


# The folder.


def test_a_site_that_cannot_be_replaced_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(configuration: Path, source: Path, made: Path, language: str) -> None:
        made.mkdir()

    monkeypatch.setattr(gallery, "stage", lambda *given: None)
    monkeypatch.setattr(gallery, "sphinx", made)
    site = tmp_path / "html"
    (site / "old").mkdir(parents=True)
    gallery.build(ROOT, site)
    assert [path.name for path in site.iterdir()] == ["zh"]
    (tmp_path / "file").touch()  # rmtree takes folders alone, whoever runs this
    with pytest.raises(GalleryError, match=r"cannot be replaced: .*remove .*file by hand"):
        gallery.build(ROOT, tmp_path / "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "html"]


# Links.


@pytest.mark.parametrize(
    ("source", "linked"),
    [
        ("Relay and Relay", "{term}`Relay` and Relay"),
        ("*Relay* was", "*{term}`Relay`* was"),
        ("Schedules of a loop", "{term}`Schedules <schedule>` of a loop"),
        ("two composite\nfunctions", "two {term}`composite functions <composite function>`"),
        ("with `qnn` and `qnn.add`", "with {term}`qnn` and `qnn.add`"),
        ("**Relay**: a | TE |", "**{term}`Relay`**: a | {term}`TE` |"),
        ("Zero points", "{term}`Zero points <zero point>`"),
    ],
)
def test_a_term_is_linked_where_it_stands_first(source: str, linked: str) -> None:
    assert Linker(TERMS).link(source) == linked


@pytest.mark.parametrize(
    "source",
    [
        "# Relay\n",
        "### A schedule",
        "```text\nRelay\n```",
        "~~~\nRelay\n~~~",
        "`Relay text`",
        "`schedule`",
        "``a `Relay` b``",
        "[Relay](10_relay.ipynb)",
        "![Relay.](relay.png)",
        '<a href="#x" title="Relay">x</a>',
        "https://example.org/Relay",
        "relay, RELAY, Relayed, Te, te, reschedule, schedule.py, schedule-like, tvm.TE",
    ],
)
def test_no_link_where_none_belongs(source: str) -> None:
    assert Linker(TERMS).link(source) == source


def test_a_notebook_has_one_link_a_term() -> None:
    linker = Linker(TERMS)
    assert linker.link("Relay.") == "{term}`Relay`."
    assert linker.link("Relay.") == "Relay."


@pytest.mark.parametrize("stem", sorted(OTHER_MEANINGS.keys() & {path.stem for path in NOTEBOOKS}))
def test_a_word_with_another_meaning_is_a_term_that_the_notebook_has(stem: str) -> None:
    path = ROOT / "notebooks" / f"{stem}.ipynb"
    terms = read_terms(ROOT / "docs" / "glossary.md")
    linker = Linker(terms)
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            linker.link("".join(cell["source"]))
    assert linker.linked >= OTHER_MEANINGS[stem]
    assert set(terms_of(terms, stem)) == set(terms) - OTHER_MEANINGS[stem]


def test_chinese_words_lead_to_terms() -> None:
    linker = Linker(TERMS, {"调度": "schedule", "零点": "zero point", "目标": "target"})
    linked = "{term}`Relay` 的{term}`调度 <schedule>`，调度（schedule）、目标、`零点`"
    assert linker.link("Relay 的*调度*，调度（schedule）、目标、`零点`") == linked
    assert linker.linked == {"Relay", "schedule"}


@pytest.mark.parametrize(
    ("source", "linked"),
    [
        ("由它的*调度*决定", "由它的{term}`调度 <schedule>`决定"),
        ("它的**调度**：", "它的{term}`调度 <schedule>`："),
        ("（*调度*）", "（*{term}`调度 <schedule>`*）"),
        ("由*调度的循环*，由调度", "由*调度的循环*，由{term}`调度 <schedule>`"),
        ("在*好的调度*里", "在*好的调度*里"),
        ("由*Relay*来", "由{term}`Relay`来"),
    ],
)
def test_no_star_is_left_between_a_letter_and_a_link(source: str, linked: str) -> None:
    assert Linker(TERMS, {"调度": "schedule"}).link(source) == linked


def test_every_chinese_word_is_of_a_term_and_is_used() -> None:
    words, terms = SIMPLIFIED.words(), read_terms(ROOT / "docs" / "glossary.md")
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "notebooks/zh").glob("*.ipynb")]
    assert set(words.values()) <= set(terms)
    assert [word for word in words if not any(word in text for text in texts)] == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks" / "zh").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_a_translation_links_every_term_that_the_english_notebook_links(path: Path) -> None:
    terms = terms_of(read_terms(ROOT / "docs" / "glossary.md"), path.stem)
    english, translated = Linker(terms), Linker(terms, SIMPLIFIED.words())
    for linker, file in ((english, ROOT / "notebooks" / path.name), (translated, path)):
        for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                linker.link("".join(cell["source"]))
    assert english.linked <= translated.linked


def test_a_glossary_without_terms_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "glossary.md"
    path.write_text("# Glossary\n\nRelay\n  A word.\n")
    with pytest.raises(GalleryError, match="glossary"):
        read_terms(path)


# Notebooks.


def png(width: int, height: int) -> str:
    file = io.BytesIO()
    Image.new("RGBA", (width, height), (0, 0, 0, 0)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def figure(alt: str | None, size: tuple[int, int] = (4, 3)) -> dict[str, Any]:
    metadata = {"image/png": {"alt": alt}} if alt else {}
    return {"output_type": "display_data", "data": {"image/png": png(*size)}, "metadata": metadata}


def stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def code(name: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "id": name, "metadata": {}, "source": "", "outputs": list(outputs)}


def prose(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": "prose", "metadata": {}, "source": source}


def notebook(*cells: dict[str, Any], **about: Any) -> dict[str, Any]:
    known = {"title": "Count", "level": "beginner", "minutes": 1, "needs": ["g++"]}
    return {"cells": list(cells), "metadata": {"tvmlab": known | about}}


def test_the_card_shows_the_last_figure_unless_the_notebook_names_one() -> None:
    cells = code("a", figure("First.", (960, 480))), code("b", figure("Last.")), code("c")
    assert thumbnail(notebook(*cells), "n").alt == "Last."
    found = thumbnail(notebook(*cells, thumbnail="a"), "n")
    assert (found.alt, found.suffix, found.size) == ("First.", ".webp", (480, 240))
    with Image.open(io.BytesIO(found.data)) as small:
        assert small.size == (480, 240)
        assert small.convert("L").getextrema()[0] > 250  # what was transparent is white


def test_the_card_shows_a_drawing_as_it_is() -> None:
    data, alt = {"image/svg+xml": ["<svg>", "</svg>"]}, {"image/svg+xml": {"alt": "Lines."}}
    output = {"output_type": "display_data", "data": data, "metadata": alt}
    found = thumbnail(notebook(code("a", output)), "n")
    assert (found.data, found.suffix, found.alt) == (b"<svg></svg>", ".svg", "Lines.")


def test_the_card_shows_a_text_where_there_is_no_figure() -> None:
    long = "\n".join(f"{n} < {n + 1}" for n in range(40))
    found = thumbnail(notebook(code("a", stream("short")), code("b", stream(long))), "n")
    assert found.suffix == ".svg"
    assert b"0 &lt; 1" in found.data
    assert b"39" not in found.data


@pytest.mark.parametrize("about", [{}, {"thumbnail": "nowhere"}])
def test_a_notebook_that_shows_nothing_is_refused(about: dict[str, str]) -> None:
    with pytest.raises(GalleryError, match="thumbnail"):
        thumbnail(notebook(prose("# Count"), code("a"), **about), "n")


def test_a_page_gets_its_facts_and_leaves_its_last_line_of_links_to_the_theme() -> None:
    links = "[← 00 One](00_one.ipynb) · [02 Two →](02_two.ipynb)"
    cells = prose(f"# Count\n\n{links}"), code("a", figure("A dot.")), prose(f"Relay.\n\n{links}")
    made = for_the_site(notebook(*cells), "01_count.ipynb", Linker(TERMS), "easy")["cells"]
    assert made[0]["source"].startswith("# Count\n\n{.facts}\neasy\n")
    assert made[0]["source"].endswith(links)
    assert made[1]["metadata"]["mystnb"] == {"image": {"alt": "A dot."}}
    assert made[2]["source"].strip() == "{term}`Relay`."


@pytest.mark.parametrize("alts", [(None,), ("One.", "Two.")])
def test_figures_without_their_own_alt_text_are_refused(alts: tuple[str | None, ...]) -> None:
    cells = prose("# Count"), code("a", *map(figure, alts)), prose("End.")
    with pytest.raises(GalleryError, match=r"n\.ipynb: a: a cell shows one figure"):
        for_the_site(notebook(*cells), "n.ipynb", Linker(TERMS), "easy")


def test_solutions_are_pages_that_no_list_has(tmp_path: Path) -> None:
    notebook = tmp_path / "notebooks" / "00_begin.ipynb"
    (notebook.parent / "solutions").mkdir(parents=True)
    page = tmp_path / "made" / "solutions" / "00_begin.md"
    page.parents[1].mkdir()
    write_solutions(notebook, notebook, page.parents[1])
    assert not page.exists()
    (notebook.parent / "solutions" / page.name).write_text("# Solutions\n")
    write_solutions(notebook, notebook, page.parents[1])
    assert page.read_text() == "---\norphan: true\nnosearch: true\n---\n\n# Solutions\n"


def test_a_module_says_what_it_is_for(tmp_path: Path) -> None:
    assert first_line(ROOT, "tvmlab.plot") == "Figures with alt text."
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "__init__.py").write_text('"""Is not imported.\n\nMore."""\n1 / 0\n')
    (tmp_path / "there" / "silent.py").touch()
    assert first_line(tmp_path, "there") == "Is not imported."
    for module in ("there.silent", "there.nowhere"):
        with pytest.raises(GalleryError, match=f"{module}: its docstring"):
            first_line(tmp_path, module)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("用 requantize", ["用", "requantize"]),
        ("把卷积pad成8x8", ["把卷", "卷积", "pad", "成", "8x8"]),
        ("qnn_op, tvm.relax", ["qnn_op", "tvm", "relax"]),
    ],
)
def test_chinese_is_searched_by_pairs(text: str, words: list[str]) -> None:
    assert SearchChinese({}).split(text) == words


def test_solutions_lead_to_the_headings_of_a_translation(tmp_path: Path) -> None:
    path, own = tmp_path / "00_begin.ipynb", tmp_path / "zh" / "00_begin.ipynb"
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "00_begin.md").write_text("[up](../00_begin.ipynb#On-your-own)")
    own.parent.mkdir()
    for file, heading in ((path, "On your own"), (own, "自己 动手")):
        fenced = prose(f"```\n# none\n```\n## {heading}")
        file.write_text(json.dumps(notebook(prose("# A"), fenced)), encoding="utf-8")
    made = tmp_path / "made"
    made.mkdir()
    write_solutions(path, own, made)
    text = (made / "solutions" / "00_begin.md").read_text(encoding="utf-8")
    assert text.endswith("[up](../00_begin.ipynb#自己-动手)")


def test_a_translation_leads_from_the_page_of_the_notebook() -> None:
    output = {"output_type": "display_data", "data": {"text/markdown": ["[b](../01_b.ipynb)"]}}
    book = notebook(prose("[a](../../a.py), [c](02_c.ipynb)"), code("table", output))
    at_home(book)
    assert book["cells"][0]["source"] == "[a](../a.py), [c](02_c.ipynb)"
    assert book["cells"][1]["outputs"][0]["data"]["text/markdown"] == "[b](01_b.ipynb)"


def test_files_that_a_notebook_links_to_come_along(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    book = notebook(prose("[this](../a.py), [that](../b.py), [other](https://example.org/../c)"))
    found = linked_files(book, tmp_path, "n.ipynb")
    assert next(found) == "a.py"
    with pytest.raises(GalleryError, match=r"n\.ipynb: links to \.\./b\.py"):
        next(found)


# The check.

GOOD = (
    '<h1 id="top">A</h1><a href="#top">up</a><a href="b.html#end">b</a><img src="a.png" alt="A.">'
)


def small_site(folder: Path, index: str = GOOD, css: str = "") -> Path:
    (folder / "index.html").write_text(f'<link rel="stylesheet" href="a.css">{index}')
    (folder / "b.html").write_text('<h1>B</h1><p id="end">')
    (folder / "a.css").write_text(css)
    (folder / "a.png").touch()
    return folder


def test_a_sound_site_has_no_problems(tmp_path: Path) -> None:
    css = "a { background: url(a.png); mask: url('data:image/svg+xml,x') }"
    assert problems(small_site(tmp_path, css=css)) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("b.html#end", "c.html", "index.html: the link 'c.html' does not exist"),
        ("b.html#end", "b.html#no", "index.html: the link 'b.html#no' names an anchor"),
        ("#top", "#no", "index.html: the link '#no' names an anchor"),
        ("b.html#end", "../outside", "index.html: the link '../outside' leaves the site"),
        ('"a.png"', '"//cdn.example/a.png"', "the asset '//cdn.example/a.png' is on another"),
        ('"a.png"', '"no.png"', "the asset 'no.png' does not exist"),
        ("<img", '<script src="https://cdn.example/a.js"></script><img', "another server"),
        ("<img", '<img srcset="https://x.example/a 2x" alt="B."><img', "another server"),
        ("<img", "<style>a { background: url(https://x.example/a) }</style><img", "another"),
        (
            ">up<",
            "><span>由它的</span>*<b>调度</b>*决定<",
            "index.html: '*调度*' is shown as it was",
        ),
        (">up<", ">{term}<code>Relay</code><", "index.html: '{term}' is shown as it was"),
        ('alt="A."', "", "index.html: the picture 'a.png' has no alt text"),
        ("<a", "<h3>B</h3><a", "index.html: a heading jumps from level 1 to level 3"),
    ],
)
def test_what_is_broken_is_found(tmp_path: Path, old: str, new: str, problem: str) -> None:
    (found,) = problems(small_site(tmp_path, GOOD.replace(old, new, 1)))
    assert problem in found


@pytest.mark.parametrize(
    "text",
    [
        "<code>*a*</code> or <pre>f(*a, *b)</pre>",
        "2 * 3 * 4",
        "2**15 for int16, 2**31 for int32",
        "<p>a*b</p><p>c*d</p>",
        "<em>f(<span>*</span><span>a</span>, <span>**</span><span>b</span>)</em>",
        "{term} of a set",
    ],
)
def test_stars_that_are_meant_are_no_problem(tmp_path: Path, text: str) -> None:
    assert problems(small_site(tmp_path, GOOD + text)) == []


@pytest.mark.parametrize("css", ["@import 'https://x.example/a.css';", "a { src: url(no.woff2) }"])
def test_style_sheets_are_read_too(tmp_path: Path, css: str) -> None:
    (found,) = problems(small_site(tmp_path, css=css))
    assert found.startswith("a.css: the asset")


def test_a_heavy_first_page_is_refused(tmp_path: Path) -> None:
    site = small_site(tmp_path, css="a { background: url(b.png) }")
    (site / "b.png").write_bytes(b"\0" * FIRST_PAGE_LIMIT)
    (found,) = problems(site)
    assert found.startswith("the first page has")
