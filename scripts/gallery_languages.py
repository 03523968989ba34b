"""The languages of the site and of README: words, and the notebooks' titles and summaries."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CHINESE = ROOT / "docs" / "zh" / "notebooks.toml"


@dataclass(frozen=True)
class Language:
    """A language.

    Attributes
    ----------
    code : str
        Sphinx's name for it.
    folder : str
        Where its own pages are in `docs/`, and its site below the whole one.
    summary : str
        A sentence around a notebook's summary.
    facts : callable
        Gives a notebook's level, minutes and needs in a line.
    """

    code: str
    folder: str
    summary: str
    facts: Callable[[dict[str, Any]], str]

    def about(self, stem: str, notebook: dict[str, Any]) -> dict[str, Any]:
        """Return a notebook's metadata, with title and summary in this language where it has them.

        `stem` is the file's name without its ending.
        """
        own: dict[str, Any] = notebook["metadata"]["tvmlab"]
        return own if self is ENGLISH else own | chinese().get(stem, {})


def chinese() -> dict[str, dict[str, str]]:
    """Return what the notebooks are called in Chinese, and of what it is the translation."""
    return tomllib.loads(CHINESE.read_text(encoding="utf-8"))


def _english_facts(about: dict[str, Any]) -> str:
    minutes = about["minutes"]
    needs = ", ".join(about["needs"]) or "nothing more"
    return f"{about['level']} · {minutes} {'minute' if minutes == 1 else 'minutes'} · needs {needs}"


LEVELS = {"beginner": "入门", "intermediate": "进阶", "advanced": "高级"}


def _chinese_facts(about: dict[str, Any]) -> str:
    needs = "、".join(about["needs"]) or "无"
    return f"{LEVELS[about['level']]} · {about['minutes']} 分钟 · 另需：{needs}"


ENGLISH = Language("en", "", "You {}.", _english_facts)
SIMPLIFIED = Language("zh_CN", "zh", "{}。", _chinese_facts)
LANGUAGES = (ENGLISH, SIMPLIFIED)
