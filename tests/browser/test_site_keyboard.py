"""The site without a mouse: one reaches everything, sees where one is, and it does what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from keyboard import walk
from watched import SIZES, watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGES = ("index.html", "notebooks/02_schedule_a_computation.html", "reference/tvmlab.plot.html")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PAGES)
def test_the_tabulator_key_reaches_everything(
    name: str, size: str, address: str, chromium: Browser
) -> None:
    with watched(chromium, size, reduced_motion="reduce") as (page, errors):
        page.goto(f"{address}/{name}")
        count, stops = walk(page)
        assert [stop["name"] for stop in stops if not stop["seen"]] == []
        assert len(stops) == count > 10
        assert errors == []


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("zh/notebooks/03_import_a_resnet.html", "代码或输出"),
        ("zh/notebooks/02_schedule_a_computation.html", "Code or output"),  # not translated
    ],
)
def test_what_is_too_wide_is_named_in_the_language_around_it(
    name: str, label: str, address: str, chromium: Browser
) -> None:
    with watched(chromium, "desktop") as (page, errors):
        page.goto(f"{address}/{name}")
        wide = page.locator("pre[tabindex='0']")
        before = wide.count()
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_function(
            "before => document.querySelectorAll('pre[tabindex]').length > before", arg=before
        )
        assert {one.get_attribute("aria-label") for one in wide.all()} == {label}
        assert errors == []


def test_the_first_stop_leads_past_the_navigation(address: str, chromium: Browser) -> None:
    with watched(chromium, "desktop", reduced_motion="reduce") as (page, _):
        page.goto(f"{address}/{PAGES[1]}")
        page.keyboard.press("Tab")
        assert page.locator(":focus").inner_text() == "Skip to content"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.locator("article :focus").count() == 1


def test_search_is_typed_and_its_results_are_links(address: str, chromium: Browser) -> None:
    with watched(chromium, "desktop") as (page, errors):
        page.goto(f"{address}/index.html")
        page.get_by_role("textbox", name="Search").focus()
        page.keyboard.type("prefetch")
        page.keyboard.press("Enter")
        page.locator("#search-results li a").first.wait_for()
        page.locator("#search-results li a").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/notebooks/**")
        assert errors == []


@pytest.mark.parametrize(
    ("error", "mended"),
    [
        ("No module named 'tvm.relay'", "No module named tvm.relay"),
        ("'NoneType' object has no attribute 'mod'", "NoneType has no attribute mod"),
    ],
)
def test_search_for_an_error_leads_to_its_recipe(
    error: str, mended: str, address: str, chromium: Browser
) -> None:
    with watched(chromium, "desktop") as (page, errors):
        page.goto(f"{address}/search.html?q={quote(error)}")
        found = page.locator("#search-results li a").first
        found.wait_for()
        page.wait_for_load_state("networkidle")  # the summaries of all results
        found.click()
        page.wait_for_url("**/notebooks/11_recipes.html#*")
        place = page.evaluate("document.getElementById(location.hash.slice(1)).offsetTop")
        heading = page.get_by_role("heading", name=mended).first
        assert abs(heading.evaluate("it => it.offsetTop") - place) < 200
        assert errors == []


@pytest.mark.parametrize(
    ("query", "title"),
    [("调度", "从这里开始"), ("卷积的 pad", "匹配与改写"), ("requantize", "匹配与改写")],
)
def test_search_finds_chinese_within_a_sentence(
    query: str, title: str, address: str, chromium: Browser
) -> None:
    with watched(chromium, "desktop") as (page, errors):
        page.goto(f"{address}/zh/search.html?q={query}")
        page.locator("#search-results li a", has_text=title).first.wait_for()
        assert errors == []


def test_the_colours_change(address: str, chromium: Browser) -> None:
    with watched(chromium, "desktop", color_scheme="light") as (page, _):
        page.goto(f"{address}/index.html")
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.locator(".theme-toggle:visible").focus()
        page.keyboard.press("Enter")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_the_drawer_of_a_phone_opens_and_shuts(address: str, chromium: Browser) -> None:
    with watched(chromium, "phone", reduced_motion="reduce") as (page, _):
        page.goto(f"{address}/index.html")
        link = page.locator(".sidebar-tree a").first
        assert not link.is_visible()
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        link.wait_for()
        link.focus()
        page.keyboard.press("Escape")
        link.wait_for(state="hidden")
        assert page.locator(":focus").get_attribute("id") == "__navigation"
