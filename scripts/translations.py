"""Keep the translated notebooks and pages in step with the English ones.

    python scripts/translations.py             # bring notebooks/zh/ in step, say what is left to do
    python scripts/translations.py --check     # write nothing, exit 1 where something is to do
    python scripts/translations.py notebooks/zh/05_*.ipynb --translated stop-told bits-told
    python scripts/translations.py README.zh-CN.md --translated Docker "Tune it"

A translated notebook has the name, the cells and the ids of the English one, and prose of its own.
Its code and its outputs are copies: they are changed in the English notebook alone. Each of its
prose cells remembers, by a mark in its metadata, which English text it is the translation of. Where
that text has changed the translation is left as it is, and named here, until somebody has looked
at it and said so with `--translated` (without ids: of all its cells). So it is with the sections of
README and of the site's first page, by their English headings (scripts/translated_pages.py).
"""

from __future__ import annotations

import argparse
import copy
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import translated_pages
from nbformat import NotebookNode
from notebook_form import TRANSLATED, TRANSLATES, NotebookError, dumps, load
from translated_pages import PAGES, ROOT, mark

NOTEBOOKS = ROOT / "notebooks"
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s]+)(?=\))")


def original(path: Path) -> Path:
    """Return the English notebook of a translated one."""
    return path.parent.parent / path.name


def relinked(markdown: str, folder: Path) -> str:
    """Return markdown of the English notebooks as it must be in `folder`, below theirs.

    A link to what `folder` has too stays in it; every other one goes up a folder first.
    """
    return LINK.sub(
        lambda link: link[0] if _is_there(link[0], folder) else f"../{link[0]}", markdown
    )


def _is_there(link: str, folder: Path) -> bool:
    return (folder / link.partition("#")[0]).is_file()


def raised(markdown: str) -> str:
    """Return markdown of a translated notebook as it must be in the English one's folder."""
    return LINK.sub(lambda link: link[0].removeprefix("../"), markdown)


def in_step(english: NotebookNode, translated: NotebookNode, folder: Path) -> NotebookNode:
    """Return the English notebook with the prose that is translated, and its mark.

    Parameters
    ----------
    english, translated : NotebookNode
        The notebook, and its translation as it was. Neither is changed.
    folder : Path
        Where the translation is, for its links.

    Returns
    -------
    NotebookNode
        Cells, code, outputs and metadata of `english`. A prose cell that `translated` lacks is
        English in it, and has no mark. Links lead to translations where there are any.
    """
    kept = {cell.id: cell for cell in translated.cells if cell.cell_type == "markdown"}
    result = copy.deepcopy(english)
    for cell in result.cells:
        if cell.cell_type == "markdown" and cell.id in kept:
            cell.source = relinked(raised(kept[cell.id].source), folder)
            cell.metadata = copy.deepcopy(kept[cell.id].metadata)
        for output in cell.get("outputs", []):
            if "text/markdown" in output.get("data", {}):
                output.data["text/markdown"] = relinked(output.data["text/markdown"], folder)
    return result


def to_do(english: NotebookNode, translated: NotebookNode) -> Iterator[str]:
    """Yield the ids of the prose cells that wait for a translation."""
    marks = {cell.id: cell.metadata.get(TRANSLATES) for cell in translated.cells}
    for cell in english.cells:
        if cell.cell_type == "markdown" and marks.get(cell.id) != mark(cell.source):
            yield cell.id


def say_translated(english: NotebookNode, translated: NotebookNode, ids: Sequence[str]) -> None:
    """Mark prose cells of `translated` as the translation of what is in `english` now.

    Raises
    ------
    NotebookError
        An id is of no prose cell.
    """
    sources = {cell.id: cell.source for cell in english.cells if cell.cell_type == "markdown"}
    if unknown := sorted(set(ids) - set(sources)):
        raise NotebookError(f"no prose cell has the id {', '.join(unknown)}")
    for cell in translated.cells:
        if cell.id in (ids or sources):
            cell.metadata[TRANSLATES] = mark(sources[cell.id])


def process(path: Path, ids: Sequence[str] | None, *, check: bool) -> list[str]:
    """Bring one notebook in step; return what is left to do, one sentence each."""
    if path.parent.name not in TRANSLATED or not original(path).is_file():
        raise NotebookError(f"{path}: no translation of a notebook in the folder above")
    before, english = path.read_text(encoding="utf-8"), load(original(path))
    new = in_step(english, load(path), path.parent)
    if ids is not None:
        say_translated(english, new, ids)
    after, left = dumps(new), [f"{path}: {id}: translate it again" for id in to_do(english, new)]
    if after != before and check:
        left.append(f"{path}: code, outputs or form are not those of the English notebook")
    elif after != before:
        from tvmlab._files import whole  # Here, for it brings TVM in, and most runs write nothing.

        with whole(path) as part:
            part.write_text(after, encoding="utf-8", newline="\n")
        print(f"{path}: written")
    return left


def process_page(path: Path, ids: Sequence[str] | None, *, check: bool) -> list[str]:
    """Say what is left to do of one page, one sentence each."""
    place = path.resolve()
    name = place.relative_to(ROOT).as_posix() if place.is_relative_to(ROOT) else str(path)
    return translated_pages.process(name, ids, check=check)


def main(arguments: Sequence[str] | None = None) -> int:
    """Bring the notebooks in step; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "paths", nargs="*", type=Path, help="translated notebooks or pages; all by default"
    )
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if not in step")
    parser.add_argument("--translated", nargs="*", metavar="ID", help="these cells or sections are")
    options = parser.parse_args(arguments)
    if options.translated is not None and len(options.paths) != 1:
        parser.error("--translated goes with one notebook or page")
    everything = [
        path for name in TRANSLATED for path in sorted((NOTEBOOKS / name).glob("*.ipynb"))
    ]
    everything += [ROOT / page for page in PAGES]
    left = []
    try:
        for path in options.paths or everything:
            done = process_page if path.suffix == ".md" else process
            left += done(path, options.translated, check=options.check)
    except NotebookError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(left or ["the translations are in step"]))
    return 1 if options.check and left else 0


if __name__ == "__main__":
    sys.exit(main())
