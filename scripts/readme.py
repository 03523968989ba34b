"""Bring README's table and figure up to date with the notebooks.

    python scripts/readme.py            # write README.md and its figure
    python scripts/readme.py --check    # write nothing, exit 1 on any difference

The table comes from the notebooks' metadata. The figure is a committed output of a notebook, with
the alt text that stands beside it there.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
FIGURE = ROOT / "docs" / "ladder.png"
FIGURE_FROM = ("notebooks/03_import_a_resnet.ipynb", "winograd-climb")


def table() -> str:
    """Return the table of notebooks, in Markdown."""
    rows = [
        "| | Notebook | You will | Level | Minutes | Needs |",
        "|---|---|---|---|---|---|",
    ]
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        about = json.loads(path.read_text(encoding="utf-8"))["metadata"]["tvmlab"]
        needs = ", ".join(about["needs"]) or "nothing more"
        rows.append(
            f"| {path.name[:2]} | [{about['title']}](notebooks/{path.name}) | {about['summary']} "
            f"| {about['level']} | {about['minutes']} | {needs} |"
        )
    return "\n".join(rows)


def figure() -> tuple[bytes, str]:
    """Return the figure and its alt text."""
    name, cell_id = FIGURE_FROM
    cells = json.loads((ROOT / name).read_text(encoding="utf-8"))["cells"]
    cell = next(cell for cell in cells if cell["id"] == cell_id)
    output = next(output for output in cell["outputs"] if "image/png" in output.get("data", {}))
    alt = output["metadata"]["image/png"]["alt"]
    return base64.b64decode("".join(output["data"]["image/png"])), alt


def between(text: str, mark: str, content: str) -> str:
    """Replace what stands between a pair of marks."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        sys.exit(f"README.md has no place for {mark}: {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n{content}\n{end}", text)


def main(check: bool) -> int:
    """Write, or check; return the exit code."""
    png, alt = figure()
    picture = FIGURE.relative_to(ROOT).as_posix()
    new = between(README.read_text(encoding="utf-8"), "notebooks", table())
    new = between(new, "figure", f"![{alt}]({picture})")
    same = new == README.read_text(encoding="utf-8")
    same = same and FIGURE.is_file() and FIGURE.read_bytes() == png
    if check:
        print("README is up to date" if same else "README is not up to date: run scripts/readme.py")
        return 0 if same else 1
    FIGURE.parent.mkdir(exist_ok=True)
    FIGURE.write_bytes(png)
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
