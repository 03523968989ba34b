"""Run All in the real JupyterLab: nothing fails, and every figure is to be seen."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from notebooks import load, missing_needs, missing_tools
from tests.browser.jupyter import ERROR, Notebook, empty
from tests.browser.watched import watched
from tests.scripts.lab import running
from tests.short import ALL

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
PLACES = sorted(str(path.relative_to(NOTEBOOKS)) for path in NOTEBOOKS.rglob("[0-9]*_*.ipynb"))
SHORT = "00_start_here.ipynb"
#: Seconds for a notebook on a machine under load; the longest takes about two minutes.
PATIENCE = 900
FIGURES = ("image/png", "image/svg+xml", "text/html")
FAILED = (ERROR, "application/vnd.jupyter.stderr")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    """The notebook's path in `notebooks/`, where this run has the time for it."""
    name = str(request.param)
    if name != SHORT:
        if not ALL:
            pytest.skip(
                "one notebook is run in the browser, all of them take minutes: make test-all"
            )
        if "PYTEST_XDIST_WORKER" in os.environ:
            pytest.skip(
                "in the browser the notebooks run when the other tests have ended: make test-all"
            )
    if missing := missing_needs(load(NOTEBOOKS / name)):
        pytest.skip(f"{Path(name).name} needs {', '.join(missing)}: not on this machine")
    return name


def test_run_all(place: str, chromium: Browser, tmp_path: Path, screenshots: Path) -> None:
    committed = load(NOTEBOOKS / place)
    folder = tmp_path / "workbook" / NOTEBOOKS.name
    shutil.copytree(NOTEBOOKS, folder, ignore=shutil.ignore_patterns(".*", "build"))
    empty(folder / place)
    (tmp_path / "own").mkdir()
    with (
        running(folder.parent, tmp_path / "own") as (_, address),
        watched(chromium, "desktop") as (page, errors),
    ):
        notebook = Notebook(page, address, folder / place, f"{NOTEBOOKS.name}/{place}")
        notebook.run_all(PATIENCE)
        shown = notebook.outputs()
        cells = [cell for cell in committed.cells if cell.cell_type == "code"]
        for cell, outputs in zip(cells, shown, strict=True):
            for output in outputs:
                assert output["kind"] not in FAILED, (cell.id, output)
                assert "Traceback (most recent call last)" not in output["text"], (cell.id, output)
            if not missing_tools(cell):
                kinds = [output["kind"] for output in outputs if output["kind"] in FIGURES]
                assert kinds == figures(cell), cell.id
        kept = screenshots / "jupyterlab" / place.removesuffix(".ipynb")
        kept.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=kept / "end.png")
        for number, figure in enumerate(notebook.figures()):
            is_seen(figure)
            figure.screenshot(path=kept / f"figure-{number:02d}.png")
        assert errors == []


def figures(cell: Any) -> list[str]:
    """Return the kinds of the pictures that are committed under a cell."""
    return [kind for output in cell.outputs for kind in FIGURES if kind in output.get("data", {})]


def is_seen(figure: Locator) -> None:
    """Hold that a picture has a size, on the page and of its own, and its sentence below it."""
    figure.scroll_into_view_if_needed()
    box = figure.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) > 50, box
    assert figure.evaluate("it => it.tagName !== 'IMG' || (it.complete && it.naturalWidth > 0)")
    # JupyterLab passes over the alt text that a picture's metadata has; it stands below as well.
    output = figure.locator("xpath=ancestor::*[contains(@class, 'jp-OutputArea-child')][1]")
    below = output.locator("xpath=following-sibling::*[1]").locator("[data-mime-type$=markdown] em")
    assert below.inner_text().strip().endswith("."), below.inner_text()
