"""What axe-core, the field's own checker, has against a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helpers_short import absent

if TYPE_CHECKING:
    from playwright.sync_api import Page

GRAVE = ("serious", "critical")


def violations(page: Page) -> list[str]:
    """Return each grave violation: its rule, where it is, and what would mend it."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        absent("axe-playwright-python is not installed: make setup")
    axe = Axe()
    return [
        f"{found['id']}, {found['impact']}: {node['target']}: {node['failureSummary']}"
        for found in axe.run(page).response["violations"]
        if found["impact"] in GRAVE
        for node in found["nodes"]
    ]
