"""Room on the site: wide outputs and tables, what a touch screen shows, what a resize changes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from watched import watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TABLE = "notebooks/00_start_here.html"
REPORT = "notebooks/06_partition_for_an_accelerator.html"
# How many pixels of what is in the widest of some elements are out of sight.
HIDDEN = "them => Math.max(...them.map(one => one.scrollWidth - one.clientWidth))"


def test_a_desktop_shows_code_and_reports_whole(address: str, chromium: Browser) -> None:
    with watched(chromium, "desktop") as (page, _):
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(f"{address}/{REPORT}")
        report = page.locator(".cell_output pre", has_text="microjoule")
        assert report.count()
        assert report.evaluate_all(HIDDEN) <= 0
        assert page.locator(".cell_input pre").evaluate_all(HIDDEN) <= 0
        prose = page.locator("article p").evaluate_all("them => them.map(one => one.clientWidth)")
        assert max(prose) <= 46 * 16  # a line that is longer is hard to read


@pytest.mark.parametrize("width", [1000, 1100, 1280, 1440, 1920])
def test_no_part_of_a_page_is_squeezed_or_lies_on_another(
    width: int, address: str, chromium: Browser
) -> None:
    with watched(chromium, "desktop") as (page, _):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(f"{address}/{REPORT}")
        parts = page.evaluate(
            """() => ['.sidebar-drawer', '.content', '.toc-drawer'].map(name => {
                 const box = document.querySelector(name).getBoundingClientRect();
                 return [box.left, box.right];
               }).filter(([left, right]) => right > 0 && left < innerWidth)"""
        )
        assert all(right <= left for (_, right), (left, _) in pairwise(parts))
        assert parts[-1][1] <= width
        assert all(right - left >= 15 * 16 for left, right in parts)


def test_a_table_on_a_phone_has_room_for_words(address: str, chromium: Browser) -> None:
    with watched(chromium, "phone") as (page, _):
        page.goto(f"{address}/{TABLE}")
        cell = page.get_by_role("cell", name="take one small model")
        assert cell.evaluate("cell => cell.clientWidth") > 180


@pytest.mark.parametrize(("touch", "opacity"), [(True, "1"), (False, "0")])
def test_who_has_no_mouse_sees_the_buttons_that_copy(
    touch: bool, opacity: str, address: str, chromium: Browser
) -> None:
    with watched(chromium, "phone", has_touch=touch, is_mobile=touch) as (page, _):
        page.goto(f"{address}/{TABLE}")
        button = page.locator("button.copybtn").first
        assert button.evaluate("one => getComputedStyle(one).opacity") == opacity


def test_what_can_be_scrolled_has_a_bar_that_one_sees(address: str, chromium: Browser) -> None:
    with watched(chromium, "phone") as (page, _):
        page.goto(f"{address}/{TABLE}")
        for wide in (".cell_output pre", ".table-wrapper"):
            # By its style: Playwright's browser, where it has no window, draws no bars.
            bar = page.locator(wide).first.evaluate(
                "one => getComputedStyle(one, '::-webkit-scrollbar').height"
            )
            assert bar == "8px"


def test_what_is_no_longer_too_wide_is_no_stop_of_the_keyboard(
    address: str, chromium: Browser
) -> None:
    with watched(chromium, "phone") as (page, errors):
        page.goto(f"{address}/{REPORT}")
        report = page.locator(".cell_output pre", has_text="microjoule").first
        assert report.get_attribute("tabindex") == "0"
        page.set_viewport_size({"width": 1280, "height": 800})
        page.wait_for_function("one => !one.hasAttribute('tabindex')", arg=report.element_handle())
        for name in ("role", "aria-label"):
            assert report.get_attribute(name) is None
        assert errors == []
