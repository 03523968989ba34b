"""README and the site's first page say in Chinese what they say in English."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import translated_pages
import translations
from notebook_form import FENCED, NotebookError
from translated_pages import MARKS, PAGES, ROOT, sections
from translated_prose import HAN, not_chinese, numbers, without_code

TRANSLATED = sorted((ROOT / "notebooks" / "zh").glob("*.ipynb"))
# Which notebooks are in Chinese is said to those who read it alone.
OWN = re.compile(r"^笔记本 [^\n]*的正文是中文[^\n]*\n+", re.MULTILINE)
every_one = pytest.mark.parametrize("page", PAGES)


def texts(page: str) -> tuple[str, str]:
    """Return a page in English, and what translates it."""
    english = (ROOT / PAGES[page]).read_text(encoding="utf-8")
    return english, OWN.sub("", (ROOT / page).read_text(encoding="utf-8"))


def pairs(page: str) -> list[tuple[str, str, str]]:
    """Return heading, English and translated text of every section."""
    english, translated = map(sections, texts(page))
    assert len(english) == len(translated)
    return [
        (heading, *both)
        for heading, both in zip(
            english, zip(english.values(), translated.values(), strict=True), strict=True
        )
    ]


def code(text: str) -> list[str]:
    """Return the blocks of code; of a list for the site's navigation, where it leads."""
    return [_leads(block[0]) for block in FENCED.finditer(text)]


def _leads(block: str) -> str:
    if not block.startswith("```{toctree}"):
        return block
    return re.sub(r"^.+<(.+)>$|^:caption: .*", r"\1", block, flags=re.MULTILINE)


def paragraphs(text: str) -> list[str]:
    text = re.sub(r"<!-- \w+: (?:begin|end) -->\n?", "", FENCED.sub("code", text))
    return re.split(r"\n\s*\n", text.strip())


@every_one
def test_every_section_is_the_translation_of_todays_text(page: str) -> None:
    assert translated_pages.process(page, None, check=True) == []


@every_one
def test_nothing_is_left_in_english(page: str) -> None:
    for heading, _, text in pairs(page):
        assert not_chinese(text) == [], heading


@every_one
def test_no_line_breaks_between_two_chinese_characters(page: str) -> None:
    # A page shows a line break as a space.
    for heading, _, text in pairs(page):
        assert not re.search(rf"{HAN}\n{HAN}", text), heading


@every_one
def test_the_numbers_are_the_same(page: str) -> None:
    for heading, english, text in pairs(page):
        assert numbers(text) == numbers(english), heading


@every_one
def test_code_links_and_tables_are_the_same(page: str) -> None:
    for heading, english, text in pairs(page):
        assert code(text) == code(english), heading
        for pattern in (r"\]\(([^)#]+)\)", r"^\|(?=-)[-|]+$", r"\| `(?:setup: )?[^`]+` \|"):
            here, there = (
                # The line at the head leads to the other one, and the table to translations.
                [
                    it.replace("/zh/", "/")
                    for it in re.findall(pattern, part, re.M)
                    if "README" not in it
                ]
                for part in (english, text)
            )
            assert here == there, heading


@every_one
def test_the_same_code_is_named(page: str) -> None:
    for heading, english, text in pairs(page):
        here, there = (
            set(re.findall(r"(?<!`)`([^`\n]+)`", FENCED.sub("", part))) for part in (english, text)
        )
        assert here == there, heading


@every_one
def test_no_paragraph_is_left_out(page: str) -> None:
    for heading, english, text in pairs(page):
        assert len(paragraphs(text)) == len(paragraphs(english)), heading


def test_a_paragraph_that_is_left_out_is_missed() -> None:
    assert len(paragraphs("## Three\n\n```sh\nfour\n\n```\n\nfive\n")) == 3


@every_one
def test_readers_are_told_which_notebooks_are_translated(page: str) -> None:
    *first, last = (path.stem[:2] for path in TRANSLATED)
    told = f"笔记本 {'、'.join(first)} 和 {last} 的正文是中文"
    assert told in (ROOT / page).read_text(encoding="utf-8")


# What these tests see.


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("## 一\n\n用 tvmlab 编译模型。\n", []),
        ("## Docker\n", []),
        ("用 `make lab` 打开。\n\nIt needs no network。\n", ["It needs no network。"]),
        ("- 第一项\n- The second one。\n", ["The second one。"]),
        ("## 延伸阅读\n\nChen et al., *TVM*, OSDI 2018。\n", []),
    ],
)
def test_a_paragraph_in_english_is_found(text: str, english: list[str]) -> None:
    assert not_chinese(text) == english
    assert without_code("`a` 和\n```\nb\n```\n") == " 和\n\n"


def test_a_page_is_cut_at_its_headings() -> None:
    text = "---\nx: y\n---\n# A\n\n```sh\n## no\n```\n## B\nb\n<!-- notebooks: begin -->1"
    text += "<!-- notebooks: end -->\n"
    assert sections(text) == {"A": "# A\n\n```sh\n## no\n```", "B": "## B\nb"}


# What keeps them in step.


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a page and its finished translation."""
    (tmp_path / MARKS).parent.mkdir(parents=True)
    (tmp_path / "README.md").write_text("# A\n\none\n\n## B\n\ntwo\n", encoding="utf-8")
    assert translated_pages.process("README.zh-CN.md", [], check=False, root=tmp_path) == []
    return tmp_path


def test_a_changed_section_is_named_until_somebody_says_that_it_is_translated(root: Path) -> None:
    def said(ids: list[str] | None = None, check: bool = False) -> list[str]:
        return translated_pages.process("README.zh-CN.md", ids, check=check, root=root)

    assert said() == []
    (root / "README.md").write_text("# A\n\none\n\n## B\n\nthree\n", encoding="utf-8")
    assert said() == said(["A"]) == ["README.zh-CN.md: 'B': translate it again"]
    before = (root / MARKS).read_text(encoding="utf-8")
    assert said(["B"], check=True) == []
    assert (root / MARKS).read_text(encoding="utf-8") == before
    assert said(["B"]) == []
    assert said() == []
    with pytest.raises(NotebookError, match=r"README\.md: no section C"):
        said(["C"])
    (root / "README.md").write_text("# A\n\none\n", encoding="utf-8")
    assert said() == ["README.zh-CN.md: 'B': README.md has no such section"]
    assert said([]) == []


def test_what_is_no_page_is_refused(tmp_path: Path) -> None:
    assert translations.main([str(tmp_path / "README.zh-CN.md"), "--check"]) == 2
    assert translations.main([str(ROOT / "README.zh-CN.md"), "--check"]) == 0
