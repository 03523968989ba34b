"""A notebook in JupyterLab, as its reader has it: open it, run it, look at what it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

CODE = ".jp-Notebook .jp-CodeCell"
ERROR = "application/vnd.jupyter.error"
# A cell that waits or runs has a star for its number; after an error none of the others runs.
ENDED = f"""count => document.querySelector('{CODE} [data-mime-type="{ERROR}"]') ||
  [...document.querySelectorAll('{CODE} .jp-InputArea-prompt')]
  .filter(prompt => /^\\[\\d+\\]:$/.test(prompt.textContent.trim())).length === count"""
SHOWN = """area => [...area.querySelectorAll('.jp-OutputArea-output')].map(
  output => ({kind: output.dataset.mimeType, text: output.textContent}))"""


class Notebook:
    """A notebook that is open.

    Parameters
    ----------
    page : Page
        A new page.
    address : str
        JupyterLab's, with its token.
    path : Path
        The file, in the folder that JupyterLab serves.
    place : str
        Its path from that folder.
    """

    def __init__(self, page: Page, address: str, path: Path, place: str) -> None:
        self.page = page
        self.cells: int = sum(cell["cell_type"] == "code" for cell in read(path)["cells"])
        parts = urlsplit(address)
        page.goto(f"{parts.scheme}://{parts.netloc}/lab/tree/{place}?{parts.query}")
        # It is not made all at once.
        page.locator(CODE).nth(self.cells - 1).wait_for()

    def run_all(self, seconds: float) -> None:
        """Choose Run All Cells in the menu; wait until every cell has its number, or one failed."""
        for name in ("Run", "Run All Cells"):
            self.page.get_by_role("menuitem", name=name, exact=True).click()
        self.page.wait_for_function(ENDED, arg=self.cells, timeout=seconds * 1000)

    def outputs(self) -> list[list[dict[str, str]]]:
        """Return, for each code cell, the kinds and the texts of what stands under it."""
        return [
            [output for area in cell.locator(".jp-OutputArea").all() for output in seen(area)]
            for cell in self.page.locator(CODE).all()
        ]

    def figures(self) -> list[Locator]:
        """Return the pictures under the cells."""
        images = ".jp-OutputArea-output:is([data-mime-type^='image/']) :is(img, svg)"
        return self.page.locator(f"{CODE} {images}").all()


def seen(area: Locator) -> list[dict[str, str]]:
    found: list[dict[str, str]] = area.evaluate(SHOWN)
    return found


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def empty(path: Path) -> None:
    """Take a notebook's outputs away: what is seen after it ran, the run has made."""
    notebook = read(path)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    path.write_text(json.dumps(notebook), encoding="utf-8")
