"""Build the website of the workbook offline: build/gallery/html/index.html.

    python scripts/gallery.py

docs/conf.py configures Sphinx. Every warning of Sphinx, such as a broken link, is an error. This
script prepares the input of Sphinx: docs/, the notebooks with their committed outputs, and a card
for each notebook.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from readme import ROOT, WORDS, Entry, entries

SITE = ROOT / "build" / "gallery" / "html"
IMPORTED = f"{ROOT}{os.pathsep}{ROOT / 'scripts'}"  # for docs/conf.py and autodoc
INDEXES = {"en": "index.md", "zh_CN": "zh/index.md"}
CARDS = "<!-- cards -->"  # the place of the cards on a first page
SUFFIXES = {"image/png": ".png", "image/svg+xml": ".svg"}
# Solutions are linked only from their notebook, and the search excludes them.
HIDDEN = "---\norphan: true\nnosearch: true\n---\n\n"


def heading_anchor(heading: str) -> str:
    """Return JupyterLab's anchor of a heading, so that links work on the site too."""
    return heading.replace(" ", "-")


def build(site: Path) -> None:
    """Build the site into the folder `site`, which is replaced.

    Raises
    ------
    subprocess.CalledProcessError
        Sphinx printed a warning or an error.
    """
    site.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gallery-", dir=site.parent) as work:
        source, made = Path(work) / "source", Path(work) / "html"
        stage(source)
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"]
        command += ["-d", f"{work}/doctrees", str(source), str(made)]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": IMPORTED})
        if site.exists():
            shutil.rmtree(site)
        made.rename(site)


def stage(source: Path) -> None:
    """Write everything that Sphinx reads to the new folder `source`."""
    shutil.copytree(ROOT / "docs", source)
    notebooks = source / "notebooks"
    (notebooks / "zh").mkdir(parents=True)
    (notebooks / "solutions").mkdir()
    for path in (ROOT / "notebooks" / "solutions").glob("*.md"):
        text = HIDDEN + path.read_text(encoding="utf-8")
        (notebooks / "solutions" / path.name).write_text(text, encoding="utf-8")
    # Links lead to files of the package, and to the notebooks as committed.
    (source / "tvmlab").symlink_to(ROOT / "tvmlab")
    (source / "committed").symlink_to(ROOT / "notebooks")
    (source / "cards").mkdir()
    for language, name in INDEXES.items():
        words, cards = WORDS[language], []
        for entry in entries(language):
            facts = words["facts"].format(**vars(entry))
            notebook = json.loads(entry.path.read_text(encoding="utf-8"))
            texts = (words["card"].format(**vars(entry)), facts)
            cards.append(card(entry, texts, notebook, source))
            page = source / entry.path.relative_to(ROOT)
            if not page.exists():  # the Chinese list contains English notebooks too
                committed = f"/committed/{entry.path.relative_to(ROOT / 'notebooks')}"
                line = f"{facts} · {{download}}`{words['file']} <{committed}>`"
                page.write_text(json.dumps(for_sphinx(notebook, line)), encoding="utf-8")
        grid = "\n".join([":::::{grid} 1 2 2 3", ":gutter: 3", "", *cards, ":::::"])
        text = (source / name).read_text(encoding="utf-8").replace(CARDS, grid)
        (source / name).write_text(text, encoding="utf-8")


def figures(cell: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return MIME type, data and alt text of each figure in a cell's outputs."""
    return [
        (kind, "".join(output["data"][kind]), output["metadata"][kind]["alt"])
        for output in cell.get("outputs", [])
        for kind in SUFFIXES
        if kind in output.get("data", {})
    ]


def for_sphinx(notebook: dict[str, Any], line: str) -> dict[str, Any]:
    """Add a line under a notebook's title, and the alt texts in the form that MyST-NB reads."""
    for cell in notebook["cells"]:
        for *_, alt in figures(cell):
            # With a width, Sphinx links a figure to its file; gallery.css restores the size.
            cell["metadata"]["mystnb"] = {"image": {"alt": alt, "width": "100%"}}
    title, _, rest = "".join(notebook["cells"][0]["source"]).partition("\n")
    notebook["cells"][0]["source"] = f"{title}\n\n{{.facts}}\n{line}\n{rest}"
    return notebook


def card(entry: Entry, texts: tuple[str, str], notebook: dict[str, Any], source: Path) -> str:
    """Return a notebook's card with two texts, and write the card's image.

    The metadata of the notebook can name the cell with the image under `thumbnail`.
    """
    number, page = entry.path.name[:2], entry.path.relative_to(ROOT).with_suffix("")
    lines = [f"::::{{grid-item-card}} {number} {entry.title}", f":link: /{page}"]
    lines += [":link-type: doc"]
    named = notebook["metadata"]["tvmlab"].get("thumbnail")
    shown = [cell for cell in notebook["cells"] if figures(cell)]
    if shown:
        chosen = next((cell for cell in shown if cell["id"] == named), shown[-1])
        kind, data, alt = figures(chosen)[0]
        picture = source / "cards" / f"{number}{SUFFIXES[kind]}"
        picture.write_bytes(base64.b64decode(data) if kind == "image/png" else data.encode())
        lines += [f":img-top: /cards/{picture.name}", f":img-alt: {alt}"]
    return "\n".join([*lines, "", texts[0], ":::{card-footer}", texts[1], ":::", "::::", ""])


def main() -> int:
    """Build the site, print where it is, and return the exit code."""
    try:
        build(SITE)
    except subprocess.CalledProcessError:
        print("gallery: Sphinx failed; fix its warnings and errors above", file=sys.stderr)
        return 1
    print(SITE / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
