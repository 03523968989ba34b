"""Spoil single outputs of a notebook, so that nbval has something to catch."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator

from nbformat import NotebookNode
from nbformat.v4 import new_output
from notebook_form import IGNORED

# A corruption changes the outputs of one cell and returns True, or finds nothing to spoil.
Corruption = Callable[[NotebookNode], bool]


def _slots(cell: NotebookNode) -> Iterator[tuple[NotebookNode, str]]:
    """Yield the places where a cell has text that nbval compares."""
    for output in cell.outputs:
        if output.output_type == "stream":
            yield output, "text"
        elif output.output_type == "error":
            yield output, "evalue"
        else:
            yield from ((output.data, mime) for mime in output.data if mime.startswith("text/"))


def _rewrite(cell: NotebookNode, change: Callable[[str], str]) -> bool:
    """Change the first text for which `change` makes a difference."""
    for holder, key in _slots(cell):
        new = change(holder[key])
        if new != holder[key]:
            holder[key] = new
            return True
    return False


def last_digit(cell: NotebookNode) -> bool:
    """0.124 for 0.123: the smallest error a number can have."""
    return _rewrite(
        cell,
        lambda text: re.sub(
            r"(\d)(\D*)\Z", lambda m: str((int(m[1]) + 1) % 10) + m[2], text, count=1
        ),
    )


def first_digit(cell: NotebookNode) -> bool:
    """9 for 1."""
    return _rewrite(cell, lambda text: re.sub(r"\d", lambda m: str(9 - int(m[0])), text, count=1))


def line_removed(cell: NotebookNode) -> bool:
    def change(text: str) -> str:
        lines = text.splitlines(keepends=True)
        return "".join(lines[:-1]) if len(lines) > 1 else text

    return _rewrite(cell, change)


def line_added(cell: NotebookNode) -> bool:
    return _rewrite(cell, lambda text: text.rstrip("\n") + "\none line more\n")


def lines_swapped(cell: NotebookNode) -> bool:
    def change(text: str) -> str:
        lines = text.splitlines()
        if len(lines) > 1:
            lines[0], lines[1] = lines[1], lines[0]
        return "\n".join(lines) + text[len(text.rstrip("\n")) :]

    return _rewrite(cell, change)


def shape_changed(cell: NotebookNode) -> bool:
    """(1, 3, 225) for (1, 3, 224)."""
    return _rewrite(
        cell,
        lambda text: re.sub(
            r"([(\[])((?:\d+, )+)(\d+)([)\]])",
            lambda m: f"{m[1]}{m[2]}{int(m[3]) + 1}{m[4]}",
            text,
            count=1,
        ),
    )


def rank_changed(cell: NotebookNode) -> bool:
    """(3, 224) for (1, 3, 224)."""
    return _rewrite(cell, lambda text: re.sub(r"([(\[])\d+, (\d)", r"\1\2", text, count=1))


def letter_changed(cell: NotebookNode) -> bool:
    return _rewrite(cell, lambda text: re.sub(r"[a-z]", lambda m: m[0].upper(), text, count=1))


def spaces_added(cell: NotebookNode) -> bool:
    return _rewrite(cell, lambda text: text.rstrip("\n") + " " + text[len(text.rstrip("\n")) :])


def sign_changed(cell: NotebookNode) -> bool:
    return _rewrite(cell, lambda text: re.sub(r"(?<![\w.])(\d)", r"-\1", text, count=1))


def stream_renamed(cell: NotebookNode) -> bool:
    for output in cell.outputs:
        if output.output_type == "stream":
            output.name = "stderr"
            return True
    return False


def output_deleted(cell: NotebookNode) -> bool:
    if cell.outputs:
        cell.outputs.pop()
        return True
    return False


def output_doubled(cell: NotebookNode) -> bool:
    if cell.outputs:
        cell.outputs.append(copy.deepcopy(cell.outputs[-1]))
        return True
    return False


def warning_added(cell: NotebookNode) -> bool:
    cell.outputs.append(new_output("stream", name="stderr", text="UserWarning: look out\n"))
    return True


CORRUPTIONS: list[Corruption] = [
    last_digit,
    shape_changed,
    line_removed,
    stream_renamed,
    letter_changed,
    lines_swapped,
    output_deleted,
    first_digit,
    rank_changed,
    line_added,
    spaces_added,
    output_doubled,
    sign_changed,
    warning_added,
]


LEFT = 3  # one compared output in so many is left as it is: it must still pass


def corrupt(notebook: NotebookNode, seed: str) -> dict[str, str]:
    """Spoil most compared outputs, each in one way.

    Parameters
    ----------
    notebook : NotebookNode
        Changed in place.
    seed : str
        Decides which cells and where in the list of corruptions to begin; the notebook's name.

    Returns
    -------
    dict of str to str
        The corruption of each spoilt cell, by nbval's name of the cell.
    """
    rng = random.Random(seed)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    compared = [
        (f"Cell {number}", cell)
        for number, cell in enumerate(code)
        if IGNORED not in cell.metadata.get("tags", []) and any(True for _ in _slots(cell))
    ]
    assert len(compared) >= LEFT, "the notebook has no compared output to spoil"
    todo = CORRUPTIONS.copy()
    rng.shuffle(todo)
    done: dict[str, str] = {}
    for name, cell in rng.sample(compared, len(compared) - len(compared) // LEFT):
        # The first that applies goes to the end of the queue: all kinds get their turn.
        for corruption in todo:
            if corruption(cell):
                done[name] = corruption.__name__
                todo.remove(corruption)
                todo.append(corruption)
                break
    return done
