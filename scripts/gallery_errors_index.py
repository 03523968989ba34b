"""An error's own words lead the site's search to the place that mends it.

The search finds words on pages, and titles by most of their text. An entry of the index is found
as a title is, and leads to its own place on the page.
"""

from __future__ import annotations

import re
from typing import Any

MET = re.compile(r"^error: (.+)$", re.MULTILINE)  # how a recipe prints an error that it met
HEADING = re.compile(r"^#{2,6} .+$", re.MULTILINE)


def index_errors(cells: list[dict[str, Any]]) -> None:
    """Put the errors that a cell prints into the index, below the heading that it stands under.

    Parameters
    ----------
    cells : list of dict
        A notebook's, of which the prose is changed.
    """
    told: dict[str, Any] | None = None
    for cell in cells:
        if cell["cell_type"] == "markdown":
            told = cell
            continue
        errors = MET.findall("".join("".join(one.get("text", [])) for one in cell["outputs"]))
        source = told["source"] if told else ""
        found = list(HEADING.finditer(source))
        if told is None or not errors or not found:
            continue
        # With an exclamation mark an entry comes before what only has the words somewhere. A
        # semicolon would part it into a word and what is said of it.
        kept = [one.strip().replace(";", ",") for one in errors]
        entries = "\n".join(f"```{{index}} ! single: {one}\n```\n" for one in kept)
        at = found[-1].end()
        told["source"] = f"{source[:at]}\n\n{entries}{source[at:]}"
