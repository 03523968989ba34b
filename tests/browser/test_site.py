"""The site in Chromium: no errors, nothing too wide, accessible by axe-core, with a search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.watched import SIZES, watched
from tests.short import ALL, absent

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

#: One page of each kind, where it is most crowded.
FEW = {
    "phone": ("index.html", "glossary.html", "notebooks/02_schedule_a_computation.html"),
    "desktop": ("reference/tvmlab.html", "zh/index.html", "notebooks/zh/03_import_a_resnet.html"),
}
#: Both colour schemes are tested, as both sizes are; no rule depends on both.
COLOURS = {"phone": "dark", "desktop": "light"}
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"


def violations(page: Page) -> list[str]:
    """Return axe-core's serious findings: the rule, the place, and the remedy of each."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        absent("axe-playwright-python is not installed: make setup")
    return [
        f"{found['id']}, {found['impact']}: {node['target']}: {node['failureSummary']}"
        for found in Axe().run(page).response["violations"]
        if found["impact"] in ("serious", "critical")
        for node in found["nodes"]
    ]


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
            too_wide = [f"{wide} pixels wide, {seen} visible"] if wide > seen else []
            if found := [*errors, *too_wide, *violations(page)]:
                wrong[name] = found
            errors.clear()
    assert wrong == {}


def test_a_card_leads_to_its_notebook_and_a_figure_to_its_file(
    address: str, chromium: Browser
) -> None:
    with watched(chromium, "desktop") as (page, errors):
        page.goto(f"{address}/index.html")
        page.locator(".sd-card", has_text="02 Schedule a computation").click()
        page.wait_for_url("**/notebooks/02_schedule_a_computation.html")
        page.locator(".cell_output a:has(img)").first.click()
        page.wait_for_url("**/_images/*.png")
        assert errors == []


def test_search_leads_to_a_notebook(address: str, chromium: Browser) -> None:
    with watched(chromium, "desktop") as (page, errors):
        page.goto(f"{address}/index.html")
        page.get_by_role("textbox", name="Search").fill("prefetch")
        page.keyboard.press("Enter")
        page.locator("#search-results li a").first.click()
        page.wait_for_url("**/notebooks/**")
        assert errors == []
