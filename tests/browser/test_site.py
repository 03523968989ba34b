"""Every page of the site in Chromium: no error, nothing too wide, nothing grave for axe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from accessible import violations
from choices import CHOICE, answers
from helpers_short import ALL, long
from watched import SIZES, watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: One page of each kind, where it is most crowded.
FEW = {
    "phone": ("index.html", "glossary.html", "notebooks/02_schedule_a_computation.html"),
    "desktop": ("reference/tvmlab.html", "search.html", "zh/index.html"),
}
#: Both sets of colours are seen, as both sizes are; no rule depends on both.
COLOURS = {"phone": "dark", "desktop": "light"}
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"


def pages(site: Path, size: str) -> list[str]:
    """Return the pages that this run opens."""
    if not ALL:
        return list(FEW[size])
    return sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))


@pytest.mark.parametrize("size", SIZES)
def test_pages(size: str, site: Path, address: str, chromium: Browser, screenshots: Path) -> None:
    kept = screenshots / "site" / size
    wrong: dict[str, list[str]] = {}
    with watched(chromium, size, color_scheme=COLOURS[size], reduced_motion="reduce") as (
        page,
        errors,
    ):
        for name in pages(site, size):
            page.goto(f"{address}/{name}")
            picture = kept / Path(name).with_suffix(".png")
            picture.parent.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=picture)
            wide, seen = page.evaluate(WIDTHS)
            too_wide = [f"{wide} pixels wide, of which {seen} are seen"] if wide > seen else []
            if found := [*errors, *too_wide, *violations(page)]:
                wrong[name] = found
            errors.clear()
    assert wrong == {}


@pytest.mark.parametrize("size", ["desktop", pytest.param("phone", marks=long)])
def test_choices_answer(size: str, site: Path, address: str, chromium: Browser) -> None:
    counts = {
        path.name: path.read_text(encoding="utf-8").count(f'class="{CHOICE}"')
        for path in sorted(site.glob("notebooks/*.html"))
    }
    assert any(counts.values())
    with watched(chromium, size) as (page, errors):
        for name, count in counts.items():
            if count:
                page.goto(f"{address}/notebooks/{name}")
                choices = page.locator(f".{CHOICE}").all()
                assert len(choices) == count
                for choice in choices:
                    answers(page, choice)
        assert errors == []
