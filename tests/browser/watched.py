"""A page that remembers what went wrong on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

#: Widths and heights: a phone held upright, and a screen on which the site shows all its columns.
SIZES = {"phone": (390, 844), "desktop": (1440, 900)}
PATIENCE = 300  # seconds for what takes one, on a machine under load


@contextmanager
def watched(chromium: Browser, size: str, **options: Any) -> Iterator[tuple[Page, list[str]]]:
    """Open a page of a size of `SIZES`; `options` are Playwright's for a new context.

    Gives the page and the list of its errors, which grows: what it wrote to the console as one,
    what its scripts raised, what did not load, and what it asked of other machines.
    """
    width, height = SIZES[size]
    context = chromium.new_context(viewport={"width": width, "height": height}, **options)
    context.set_default_timeout(PATIENCE * 1000)
    errors: list[str] = []
    try:
        page = context.new_page()
        page.on("console", lambda said: _said(said.type, said.text, errors))
        page.on("pageerror", lambda error: errors.append(f"raised: {error}"))
        page.on("requestfailed", lambda it: errors.append(f"{it.url}: {it.failure}"))
        page.on("request", lambda it: _stays(it.url, errors))
        page.on("response", lambda it: _found(it.status, it.url, errors))
        yield page, errors
    finally:
        context.close()


def _said(kind: str, text: str, errors: list[str]) -> None:
    if kind == "error":  # JupyterLab warns where the machine is slow
        errors.append(f"console: {text}")


def _stays(url: str, errors: list[str]) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("data", "blob") and parts.hostname != "127.0.0.1":
        errors.append(f"asks another machine: {url}")


def _found(status: int, url: str, errors: list[str]) -> None:
    if status >= 400:
        errors.append(f"{status}: {url}")
