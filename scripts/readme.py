"""Bring the tables of both READMEs, and the figure, up to date with notebooks and measurements.

    python scripts/readme.py            # write README.md, README.zh-CN.md and the figure
    python scripts/readme.py --check    # write nothing, exit 1 on any difference

The tables come from the notebooks' metadata, the Chinese titles from docs/zh/notebooks.toml. The
figure is a committed output of a notebook, with the alt text that stands beside it there. The
tables of speed come from docs/bench.json, which `scripts/bench.py --readme` writes.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path

from bench_report import block
from languages import ENGLISH, SIMPLIFIED, Language

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
README_CHINESE = ROOT / "README.zh-CN.md"
FIGURE = ROOT / "docs" / "ladder.png"
MEASURED = ROOT / "docs" / "bench.json"
FIGURE_FROM = ("notebooks/03_import_a_resnet.ipynb", "winograd-climb")


def table(language: Language) -> str:
    """Return the table of notebooks, in Markdown."""
    rows = [language.head, "|---|---|---|---|---|---|"]
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        about = language.about(path.stem, json.loads(path.read_text(encoding="utf-8")))
        own = language.notebook(path).relative_to(ROOT).as_posix()
        rows.append(
            f"| {path.name[:2]} | [{about['title']}]({own}) | {about['summary']} "
            f"| {language.levels[about['level']]} | {about['minutes']} | {language.needed(about)} |"
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
        sys.exit(f"README has no place for {mark}: {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n{content}\n{end}", text)


def main(check: bool) -> int:
    """Write, or check; return the exit code."""
    png, alt = figure()
    picture = FIGURE.relative_to(ROOT).as_posix()
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    texts = {}
    for path, language in ((README, ENGLISH), (README_CHINESE, SIMPLIFIED)):
        new = between(path.read_text(encoding="utf-8"), "notebooks", table(language))
        texts[path] = between(new, "bench", block(measured, language.code))
    texts[README] = between(texts[README], "figure", f"![{alt}]({picture})")
    same = all(path.read_text(encoding="utf-8") == text for path, text in texts.items())
    same = same and FIGURE.is_file() and FIGURE.read_bytes() == png
    if check:
        print("README is up to date" if same else "README is not up to date: run scripts/readme.py")
        return 0 if same else 1
    FIGURE.parent.mkdir(exist_ok=True)
    FIGURE.write_bytes(png)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
