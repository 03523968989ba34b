"""What Sphinx reads: `docs/`, the notebooks with links to the glossary, the cards, the reference.

The notebooks in `notebooks/` are for JupyterLab and stay as they are. Copies of them, or of their
translations, get what a site has besides: the alt texts where Sphinx looks for them, a line of
facts under the title, and the glossary's links.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from gallery_errors import GalleryError
from gallery_errors_index import index_errors
from gallery_glossary import Linker, read_terms, terms_of
from gallery_thumbnails import alt_text, kind_of_figure, thumbnail
from languages import Language
from notebook_form import FENCED
from translations import raised

CARDS = "<!-- cards -->"  # where the first page wants them
CONTENTS = "notebooks/*"  # and where it wants the list for the navigation
LINK_TO_FILE = re.compile(r"\]\(\.\./([^)#\s]+)\)")

# The reference: the modules that readers are told to use, in the order in which one meets them.
MODULES = (
    "tvmlab",
    "tvmlab.models",
    "tvmlab.models.quantized",
    "tvmlab.models.resnet8",
    "tvmlab.models.tflite_form",
    "tvmlab.data",
    "tvmlab.compiler",
    "tvmlab.batch_norm",
    "tvmlab.package",
    "tvmlab.deploy",
    "tvmlab.bench",
    "tvmlab.profiling",
    "tvmlab.plot",
    "tvmlab.diagram",
    "tvmlab.operators",
    "tvmlab.interactive",
    "tvmlab.target",
    "tvmlab.schedule",
    "tvmlab.schedule.outline",
    "tvmlab.tuning",
    "tvmlab.qnn",
    "tvmlab.qnn.op",
    "tvmlab.qnn.arithmetic",
    "tvmlab.qnn.transform",
    "tvmlab.qnn.analysis",
    "tvmlab.qnn.config",
    "tvmlab.npu",
    "tvmlab.npu.isa",
    "tvmlab.npu.program",
    "tvmlab.npu.energy",
    "tvmlab.npu.simulator",
    "tvmlab.relay",
    "tvmlab.relay.transform",
    "tvmlab.relay.dataflow_pattern",
    "tvmlab.relay.frontend",
    "tvmlab.relay.graph_executor",
    "tvmlab.remote",
    "tvmlab.native",
    "tvmlab.toolchain",
    "tvmlab.lab_tools",
    "tvmlab.exercises",
    "tvmlab.errors",
)


def heading_anchor(heading: str) -> str:
    """Return the anchor that JupyterLab gives to a heading, so that links work in both."""
    return heading.replace(" ", "-")


def stage(root: Path, source: Path, language: Language) -> None:
    """Write everything that Sphinx reads for one language to a new folder.

    Parameters
    ----------
    root : Path
        The repository.
    source : Path
        The folder, which must not exist yet.
    language : Language
        The language of the first page and of the navigation.

    Raises
    ------
    GalleryError
        A notebook has no picture for its card, figures without their own alt text, or a link to a
        file that is not there.
    """
    others = shutil.ignore_patterns("conf.py", "zh", "ladder.png", "tested.md")
    shutil.copytree(root / "docs", source, ignore=others)
    terms = read_terms(root / "docs" / "glossary.md")
    folder, originals = source / "notebooks", source / "originals"
    pictures = source / "_static" / "cards"
    for new in (folder, originals, pictures):
        new.mkdir(parents=True)
    cards, contents = [], []
    for path in sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        own = language.notebook(path)
        notebook = json.loads(own.read_text(encoding="utf-8"))
        if own != path:
            at_home(notebook)
        cards.append(card(notebook, path.stem, pictures, language))
        title = language.about(path.stem, notebook)["title"]
        contents.append(f"{path.name[:2]} {title} <notebooks/{path.stem}>")
        for linked in linked_files(notebook, root, path.name):
            copy = source / linked
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / linked, copy)
        shutil.copyfile(own, originals / path.name)
        write_solutions(path, own, folder)
        file = f"{{download}}`{language.file} <../originals/{path.name}>`"
        line = f"{language.facts(notebook['metadata']['tvmlab'])} · {file}"
        linker = Linker(terms_of(terms, path.stem), language.words())
        page = for_the_site(notebook, path.name, linker, line)
        (folder / path.name).write_text(json.dumps(page), encoding="utf-8")
    index = root / "docs" / language.folder / "index.md"
    text = index.read_text(encoding="utf-8")
    if CARDS not in text or CONTENTS not in text:
        raise GalleryError(f"{index}: no place for the cards ({CARDS}) or the list ({CONTENTS})")
    text = text.replace(CARDS, '<ul class="cards">\n' + "\n".join(cards) + "\n</ul>")
    (source / "index.md").write_text(text.replace(CONTENTS, "\n".join(contents)), encoding="utf-8")
    write_reference(root, source / "reference")


def at_home(notebook: dict[str, Any]) -> None:
    """Let the links of a translated notebook lead from the folder in which its page is."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = raised("".join(cell["source"]))
        for output in cell.get("outputs", []):
            if text := output.get("data", {}).get("text/markdown"):
                output["data"]["text/markdown"] = raised("".join(text))


def write_solutions(notebook: Path, own: Path, folder: Path) -> None:
    """Copy the solutions to a notebook's exercises, a page that only the notebook links to.

    Parameters
    ----------
    notebook, own : Path
        The notebook, and what stands in for it in this language, with headings of its own.
    folder : Path
        Where the notebooks' pages are.
    """
    file = notebook.parent / "solutions" / f"{notebook.stem}.md"
    if file.is_file():
        (folder / file.parent.name).mkdir(exist_ok=True)
        # Whoever searches for a word wants what explains it, not what gives an exercise away.
        text = "---\norphan: true\nnosearch: true\n---\n\n" + file.read_text(encoding="utf-8")
        if own != notebook:
            for here, there in zip(headings(notebook), headings(own), strict=True):
                text = text.replace(f"#{heading_anchor(here)})", f"#{heading_anchor(there)})")
        (folder / file.parent.name / file.name).write_text(text, encoding="utf-8")


def headings(notebook: Path) -> list[str]:
    """Return the headings of a notebook, in order."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    prose = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    return re.findall(r"^#{1,6} (.+)$", re.sub(FENCED, "", "\n".join(prose)), re.MULTILINE)


def card(notebook: dict[str, Any], stem: str, pictures: Path, language: Language) -> str:
    """Write a notebook's picture and return its card, in HTML."""
    about = language.about(stem, notebook)
    small = thumbnail(notebook, f"{stem}.ipynb")
    name = stem + small.suffix
    (pictures / name).write_bytes(small.data)
    width, height = small.size
    return (
        f'<li><img src="_static/cards/{name}" alt="{escape(small.alt)}" lang="en" width="{width}" '
        f'height="{height}" loading="lazy">'
        f'<h3><a href="notebooks/{stem}.html">{stem[:2]} {escape(about["title"])}</a></h3>'
        f"<p>{escape(language.summary.format(about['summary']))}</p>"
        f'<p class="facts">{escape(language.facts(about))}</p></li>'
    )


def linked_files(notebook: dict[str, Any], root: Path, name: str) -> Iterator[str]:
    """Yield the files of the repository that a notebook's prose links to."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            for linked in LINK_TO_FILE.findall("".join(cell["source"])):
                if not (root / linked).is_file():
                    raise GalleryError(f"{name}: links to ../{linked}, which is not there")
                yield linked


def for_the_site(notebook: dict[str, Any], name: str, linker: Linker, line: str) -> dict[str, Any]:
    """Return a notebook as Sphinx gets it.

    Parameters
    ----------
    notebook : dict
        The notebook's JSON, which is changed.
    name : str
        The file's name.
    linker : Linker
        Links the glossary's terms.
    line : str
        The facts that stand under the title.
    """
    cells = notebook["cells"]
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            add_alt(cell, name)
        else:
            cell["source"] = linker.link(source)
    index_errors(cells)
    title, _, rest = cells[0]["source"].partition("\n")
    cells[0]["source"] = f"{title}\n\n{{.facts}}\n{line}\n{rest}"
    # At the end of a page the theme has links to both neighbours itself.
    lines = cells[-1]["source"].splitlines()
    cells[-1]["source"] = "\n".join(line for line in lines if not _neighbours(line))
    return notebook


def _neighbours(line: str) -> bool:
    return bool(re.fullmatch(r"\[← [^\]]+\]\(\S+\)( · .*)?|\[[^\]]+ →\]\(\S+\)", line))


def add_alt(cell: dict[str, Any], name: str) -> None:
    """Copy a figure's alt text from the output to the cell, where MyST-NB takes it from."""
    alts = [alt_text(output) for output in cell["outputs"] if kind_of_figure(output)]
    if not alts:
        return
    if None in alts or len(set(alts)) > 1:
        raise GalleryError(
            f"{name}: {cell['id']}: a cell shows one figure, with an alt text; here are {alts}"
        )
    cell["metadata"]["mystnb"] = {"image": {"alt": alts[0]}}


def write_reference(root: Path, folder: Path) -> None:
    """Write a page for each public module, which autodoc fills from the docstrings."""
    folder.mkdir()
    for module in MODULES:
        page = f"{module}\n{'#' * len(module)}\n\n.. automodule:: {module}\n   :members:\n"
        (folder / f"{module}.rst").write_text(page, encoding="utf-8")
    rows = "\n".join(
        f"- [{module}]({module}.rst): {first_line(root, module)}" for module in MODULES
    )
    names = "\n".join(MODULES)
    listed = f"# Reference\n\n{rows}\n\n```{{toctree}}\n:hidden:\n\n{names}\n```\n"
    (folder / "index.md").write_text(listed, encoding="utf-8")


def first_line(root: Path, module: str) -> str:
    """Return the first line of a module's docstring, which says what it is for.

    It is read from the file below `root`: to find where a module is, Python would import what it
    is in, and TVM with it.
    """
    place = root.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    said = ast.get_docstring(ast.parse(text))
    if not said:
        raise GalleryError(f"{module}: its docstring, which the reference begins with, is missing")
    return said.splitlines()[0]
