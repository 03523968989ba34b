"""The languages of the site and of README: words, and the notebooks' titles and summaries."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CHINESE = ROOT / "docs" / "zh" / "notebooks.toml"
CHINESE_TERMS = ROOT / "docs" / "zh" / "terms.toml"


@dataclass(frozen=True)
class Language:
    """A language.

    Attributes
    ----------
    code : str
        Sphinx's name for it.
    folder : str
        Where its own pages are in `docs/`, and its site below the whole one.
    head : str
        The head of README's table of notebooks.
    summary, minute, minutes, needs : str
        A notebook's summary, its minutes (one, or several) and its needs, each around ``{}``.
    nothing, comma, file : str
        What a notebook needs that needs nothing, what stands between two needs, and what the link
        to a notebook's file says.
    full_size, untranslated : str
        What the link around a figure says, and the note on a page that is English alone.
    levels : dict of str to str
        What the levels are called.
    """

    code: str
    folder: str
    head: str
    summary: str
    minute: str
    minutes: str
    needs: str
    nothing: str
    comma: str
    file: str
    full_size: str
    untranslated: str
    levels: dict[str, str]

    def about(self, stem: str, notebook: dict[str, Any]) -> dict[str, Any]:
        """Return a notebook's metadata, with title and summary in this language where it has them.

        `stem` is the file's name without its ending.
        """
        own: dict[str, Any] = notebook["metadata"]["tvmlab"]
        return own if self is ENGLISH else own | chinese().get(stem, {})

    def notebook(self, path: Path) -> Path:
        """Return a notebook's translation into this language, or `path` itself if there is none."""
        own = path.parent / self.folder / path.name
        return own if own.is_file() else path

    def words(self) -> dict[str, str]:
        """Return this language's own words for the glossary's terms."""
        if self is ENGLISH:
            return {}
        words: dict[str, str] = tomllib.loads(CHINESE_TERMS.read_text(encoding="utf-8"))
        return words

    def needed(self, about: dict[str, Any]) -> str:
        """Return what a notebook needs besides its environment."""
        return self.comma.join(about["needs"]) or self.nothing

    def facts(self, about: dict[str, Any]) -> str:
        """Return a notebook's level, minutes and needs in a line."""
        count = about["minutes"]
        minutes = (self.minute if count == 1 else self.minutes).format(count)
        needs = self.needs.format(self.needed(about))
        return f"{self.levels[about['level']]} · {minutes} · {needs}"


def chinese() -> dict[str, dict[str, str]]:
    """Return what the notebooks are called in Chinese, and of what it is the translation."""
    return tomllib.loads(CHINESE.read_text(encoding="utf-8"))


ENGLISH = Language(
    code="en",
    folder="",
    head="| | Notebook | You will | Level | Minutes | Needs |",
    summary="You {}.",
    minute="{} minute",
    minutes="{} minutes",
    needs="needs {}",
    nothing="nothing more",
    comma=", ",
    file="download the notebook",
    full_size="open at full size",
    untranslated="",
    levels={level: level for level in ("beginner", "intermediate", "advanced")},
)
SIMPLIFIED = Language(
    code="zh_CN",
    folder="zh",
    head="| | 笔记本 | 你将 | 难度 | 分钟 | 另需 |",
    summary="{}。",
    minute="{} 分钟",
    minutes="{} 分钟",
    needs="另需：{}",
    nothing="无",
    comma="、",
    file="下载笔记本",
    full_size="打开原图",
    untranslated="本页尚未翻译，以下内容为英文。",
    levels={"beginner": "入门", "intermediate": "进阶", "advanced": "高级"},
)
LANGUAGES = (ENGLISH, SIMPLIFIED)
