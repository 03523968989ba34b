"""The translated notebooks say what the English ones say, around the same code and outputs."""

from __future__ import annotations

import copy
import re
from collections import Counter
from pathlib import Path

import nbformat
import notebook_links
import pytest
import translations
from languages import chinese
from nbformat import NotebookNode
from notebook_form import TRANSLATES, NotebookError, load
from notebook_rules import Page
from translated_pages import mark
from translated_prose import HAN, not_chinese, numbers, without_code
from translations import LINK, in_step, original, raised, relinked, say_translated, to_do

import notebooks

ROOT = Path(__file__).resolve().parents[2]
TRANSLATED = sorted((ROOT / "notebooks" / "zh").glob("*.ipynb"))
every_one = pytest.mark.parametrize("path", TRANSLATED, ids=lambda path: path.stem)


# Words at which a reader who works on compilers stops, and what is said instead.
STOPS = {
    "重量化": "重新量化",
    "遇半取偶": "向偶数舍入",
    "钉住": "锁定",
    "一族": "一类",
    "照方抓药": "a word that is plain",
    "说明一切": "what depends on it",
}
# Words that stand for an English term: its first mention has the term beside it.
BESIDE = {"下降": "lower", "重新量化": "requantize"}
CHINESE = [
    *TRANSLATED,
    ROOT / "README.zh-CN.md",
    *sorted((ROOT / "docs" / "zh").iterdir()),
]


def prose(notebook: NotebookNode) -> dict[str, str]:
    return {cell.id: cell.source for cell in notebook.cells if cell.cell_type == "markdown"}


def pairs(path: Path) -> list[tuple[str, str, str]]:
    """Return id, English and translated text of every prose cell."""
    translated = prose(load(path))
    return [(name, text, translated[name]) for name, text in prose(load(original(path))).items()]


def test_there_are_translations() -> None:
    assert TRANSLATED


@every_one
def test_code_outputs_and_metadata_are_those_of_the_english_notebook(path: Path) -> None:
    assert translations.process(path, None, check=True) == []


@every_one
def test_nothing_is_left_in_english(path: Path) -> None:
    for name, _, text in pairs(path):
        assert not_chinese(text) == [], name


@every_one
def test_no_line_breaks_between_two_chinese_characters(path: Path) -> None:
    # A page shows a line break as a space.
    for name, _, text in pairs(path):
        assert not re.search(rf"{HAN}\n{HAN}", text), name


@every_one
def test_the_numbers_are_the_same(path: Path) -> None:
    for name, english, text in pairs(path):
        assert numbers(text) == numbers(english), name


@pytest.mark.parametrize("path", CHINESE, ids=lambda path: path.name)
def test_words_are_those_of_the_trade(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [f"{word}: say {better}" for word, better in STOPS.items() if word in text] == []


def test_the_first_notebook_has_the_english_term_beside_a_word_for_it() -> None:
    text = "\n".join(prose(load(ROOT / "notebooks" / "zh" / "00_start_here.ipynb")).values())
    for word, term in BESIDE.items():
        assert re.match(rf"{word}\*?（{term}）", text[text.index(word) :]), word


@every_one
def test_the_headings_the_links_and_the_code_are_the_same(path: Path) -> None:
    for name, english, text in pairs(path):
        levels = [re.findall(r"^#+ ", without_code(each), re.M) for each in (english, text)]
        assert levels[0] == levels[1], name
        links = [
            Counter(re.findall(r"\]\(([^)\s]+)\)", each))
            for each in (relinked(english, path.parent), text)
        ]
        assert links[0] == links[1], name
        for pattern in (r"^```.*?^```$", r"(?<!`)`([^`\n]+)`(?!`)"):
            spans = [set(re.findall(pattern, each, re.M | re.S)) for each in (english, text)]
            assert spans[0] == spans[1], name


@every_one
def test_the_links_resolve(path: Path) -> None:
    page = Page(path, path.read_text(encoding="utf-8"))
    assert list(notebook_links.links_resolve(page)) == []


@every_one
def test_titles_are_those_of_the_site(path: Path) -> None:
    cells = load(path).cells
    assert cells[0].source.splitlines()[0] == f"# {chinese()[path.stem]['title']}"
    for cell in (cells[0], cells[-1]):
        labels = re.findall(
            r"\[(?:← )?(\d\d) ([^\]]+?)(?: →)?\]\((?:\.\./)?(\S+)\.ipynb\)", cell.source
        )
        assert labels
        for _, label, stem in labels:
            assert label == chinese()[stem]["title"]


# What keeps them in step.


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    """A notebook and its finished translation, in files."""
    cells = [
        nbformat.v4.new_markdown_cell("Add [one](01_one.ipynb), [two](02_two.ipynb).", id="told"),
        nbformat.v4.new_code_cell("1 + 1", id="sum"),
    ]
    data = {"text/markdown": "[two](02_two.ipynb)"}
    cells[1].outputs = [nbformat.v4.new_output("display_data", data)]
    english = nbformat.v4.new_notebook(cells=cells)
    translated = copy.deepcopy(english)
    translated.cells[0].source = "[一](01_one.ipynb)加[二](../02_two.ipynb)。"
    path = tmp_path / "zh" / "00_add.ipynb"
    path.parent.mkdir()
    (path.parent / "01_one.ipynb").touch()
    nbformat.write(english, tmp_path / path.name)
    nbformat.write(translated, path)
    assert translations.main([str(path), "--translated"]) == 0
    assert translations.main([str(path), "--check"]) == 0
    return tmp_path / path.name, path


def change(path: Path, name: str, source: str) -> None:
    notebook = load(path)
    next(cell for cell in notebook.cells if cell.id == name).source = source
    nbformat.write(notebook, path)


def test_changed_prose_is_named_until_somebody_says_that_it_is_translated(
    both: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    english, path = both
    change(english, "told", "Add three.")
    capsys.readouterr()
    assert translations.main([str(path)]) == 0
    assert f"{path}: told: translate it again" in capsys.readouterr().out
    assert translations.main([str(path), "--check"]) == 1
    change(path, "told", "加三。")
    assert translations.main([str(path), "--check"]) == 1
    assert translations.main([str(path), "--translated", "told"]) == 0
    assert translations.main([str(path), "--check"]) == 0
    assert load(path).cells[0].source == "加三。"


@pytest.mark.parametrize("side", [0, 1])
def test_changed_code_is_that_of_the_english_notebook(both: tuple[Path, Path], side: int) -> None:
    english, path = both
    change(both[side], "sum", "1 + 2")
    assert translations.main([str(path), "--check"]) == 1
    assert translations.main([str(path)]) == 0
    assert (
        load(path).cells[1].source == load(english).cells[1].source == ["1 + 1", "1 + 2"][not side]
    )
    assert load(path).cells[0].source.startswith("[一]")


def test_a_new_cell_is_english_and_waits(both: tuple[Path, Path]) -> None:
    english, path = both
    notebook = load(english)
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell("Look.", id="look"))
    made = in_step(notebook, load(path), path.parent)
    assert [cell.id for cell in made.cells] == ["told", "look", "sum"]
    assert list(to_do(notebook, made)) == ["look"]
    say_translated(notebook, made, [])
    assert made.cells[1].metadata[TRANSLATES] == mark("Look.")
    with pytest.raises(NotebookError, match="no prose cell has the id sum"):
        say_translated(notebook, made, ["sum"])


def test_links_lead_to_translations_or_a_folder_up(both: tuple[Path, Path]) -> None:
    folder = both[1].parent
    text = "[a](01_one.ipynb#A) [b](02_two.ipynb) [c](../c.py) [d](https://d.org) [e](#E)"
    there = "[a](01_one.ipynb#A) [b](../02_two.ipynb) [c](../../c.py) [d](https://d.org) [e](#E)"
    assert relinked(text, folder) == there
    assert raised(there) == text
    assert LINK.findall("[d](https://d.org)") == []
    assert load(both[1]).cells[1].outputs[0].data["text/markdown"] == "[two](../02_two.ipynb)"


def test_a_link_follows_where_another_notebook_is_translated(both: tuple[Path, Path]) -> None:
    path = both[1]
    (path.parent / "02_two.ipynb").touch()
    assert translations.main([str(path), "--check"]) == 1
    assert translations.main([str(path)]) == 0
    assert load(path).cells[0].source == "[一](01_one.ipynb)加[二](02_two.ipynb)。"


def test_what_is_no_translation_is_refused(both: tuple[Path, Path], tmp_path: Path) -> None:
    assert translations.main([str(both[0])]) == 2
    assert translations.main([str(tmp_path / "zh" / "07_none.ipynb")]) == 2
    with pytest.raises(SystemExit):
        translations.main(["--translated"])


def test_nobody_executes_a_translation(both: tuple[Path, Path]) -> None:
    assert notebooks.find([str(both[0].parent)]) == [both[0].resolve()]
    with pytest.raises(NotebookError, match="English notebook"):
        notebooks.find([str(both[1])])
