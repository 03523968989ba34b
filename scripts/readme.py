"""Update the tables and the figure of both READMEs from the notebooks and measurements.

    python scripts/readme.py            # write README.md, README.zh-CN.md and the figure
    python scripts/readme.py --check    # write nothing, exit 1 on any difference

The tables of notebooks come from the notebooks' metadata; their Chinese titles and summaries are in
docs/zh/notebooks.toml. The figure is a committed output of a notebook. The benchmark tables come
from docs/bench.json, which `scripts/bench.py --readme` writes.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FIGURE = ROOT / "docs" / "ladder.png"
MEASURED = ROOT / "docs" / "bench.json"
FIGURE_FROM = ("notebooks/03_import_a_resnet.ipynb", "network-climb")
CHINESE = tomllib.loads((ROOT / "docs" / "zh" / "notebooks.toml").read_text(encoding="utf-8"))
# The words around the metadata, by language.
WORDS = {
    "en": {
        "head": "| | Notebook | You will | Level | Minutes | Needs |",
        "card": "You {summary}.",
        "facts": "{level} · {minutes} min · needs {needs}",
        "comma": ", ",
        "nothing": "nothing more",
        "file": "download the notebook",
    },
    "zh_CN": CHINESE["words"],
}
#: The other runtimes in README's benchmark table.
OTHERS = ("ONNX Runtime", "OpenVINO", "PyTorch compiled", "LiteRT")
# The words of the benchmark tables, by Sphinx's name of the language.
BENCH_WORDS = {
    "en": {
        "made": "Measured at commit `{commit}` on {date}: {cpu} (LLVM: `{mcpu}`), {threads} "
        "threads per runtime. {onnxruntime}, and `make bench` sets the number of threads of TVM, "
        "OpenVINO, PyTorch and LiteRT. Versions: {versions}.",
        "default": "ONNX Runtime uses its default (`intra_op_num_threads=0`)",
        "set": "`make bench` sets `intra_op_num_threads={}` for ONNX Runtime",
        "noisy": " Meanwhile, other programs used up to {taken_by_others:.0%} of the processors.",
        "races": ("ms per call", "tvmlab / fastest other"),
        "measures": ("measure", "value", "required"),
        "absent": "not installed",
    },
    "zh_CN": {
        "made": "测量于 {date}，提交 `{commit}`：{cpu}（LLVM：`{mcpu}`），"
        "每个运行时 {threads} 个线程。{onnxruntime}；TVM、OpenVINO、PyTorch 和 LiteRT "
        "的线程数由 `make bench` 设置。版本：{versions}。",
        "default": "ONNX Runtime 使用默认值（`intra_op_num_threads=0`）",
        "set": "`make bench` 把 ONNX Runtime 设为 `intra_op_num_threads={}`",
        "noisy": "测量期间，其他程序最多占用了 {taken_by_others:.0%} 的处理器。",
        "races": ("毫秒/次调用", "tvmlab / 其他最快者"),
        "measures": ("度量", "值", "要求"),
        "absent": "未安装",
    },
}
READMES = {"en": ROOT / "README.md", "zh_CN": ROOT / "README.zh-CN.md"}


@dataclass(frozen=True)
class Entry:
    """A row of the table of notebooks; `path` is the translation if there is one."""

    path: Path
    title: str
    summary: str
    level: str
    minutes: int
    needs: str


def entries(language: str) -> list[Entry]:
    """Return the notebooks in reading order, in a language of `WORDS`."""
    found, words = [], WORDS[language]
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        about = json.loads(path.read_text(encoding="utf-8"))["metadata"]["tvmlab"]
        if language != "en":
            about |= CHINESE[path.stem]
            translation = path.parent / "zh" / path.name
            path = translation if translation.is_file() else path
        level, minutes = words.get(about["level"], about["level"]), about["minutes"]
        needs = words["comma"].join(about["needs"]) or words["nothing"]
        found.append(Entry(path, about["title"], about["summary"], level, minutes, needs))
    return found


def table(language: str) -> str:
    """Return the table of notebooks, in Markdown."""
    rows = [WORDS[language]["head"], "|---|---|---|---|---|---|"]
    for one in entries(language):
        link = f"[{one.title}]({one.path.relative_to(ROOT).as_posix()})"
        row = (one.path.name[:2], link, one.summary, one.level, str(one.minutes), one.needs)
        rows.append(f"| {' | '.join(row)} |")
    return "\n".join(rows)


def figure() -> tuple[bytes, str]:
    """Return the figure and its alt text."""
    name, cell_id = FIGURE_FROM
    cells = json.loads((ROOT / name).read_text(encoding="utf-8"))["cells"]
    cell = next(cell for cell in cells if cell["id"] == cell_id)
    output = next(output for output in cell["outputs"] if "image/png" in output.get("data", {}))
    alt = output["metadata"]["image/png"]["alt"]
    return base64.b64decode("".join(output["data"]["image/png"])), alt


def block(data: Mapping[str, Any], language: str) -> str:
    """Return README's benchmark tables, in Markdown, from the content of docs/bench.json."""
    words, fixed = BENCH_WORDS[language], data["onnxruntime_threads"]
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    threads = words["set" if fixed else "default"].format(fixed)
    heading = words["made"] + (words["noisy"] if data["taken_by_others"] > 0.05 else "")
    heading = heading.format(**data | {"versions": versions, "onnxruntime": threads})
    present = {name for times in data["races"].values() for name in times}
    others = [name for name in OTHERS if name in present]
    heads = " | ".join((words["races"][0], "tvmlab", *others, words["races"][1]))
    lines = [heading, "", f"| {heads} |", "|---|" + "---:|" * (len(others) + 2)]
    for race, times in data["races"].items():
        ours = times.get("tvmlab int8", times.get("tvmlab"))
        cells = [ours, *(times.get(name, "") for name in others)]
        known = [cell for cell in cells[1:] if isinstance(cell, float)]
        texts = [
            f"{cell:.3g}" if isinstance(cell, float) else cell and words["absent"] for cell in cells
        ]
        ratio = f"{ours / min(known):.2f}" if known else ""
        lines.append(f"| {race} | {' | '.join(texts)} | {ratio} |")
    lines += ["", f"| {' | '.join(words['measures'])} |", "|---|---:|---:|"]
    for row in data["measures"]:
        lines.append(f"| {row['measure']} | {row['value']:.3g} | {row['bar']} |")
    return "\n".join(lines)


def between(text: str, mark: str, content: str) -> str:
    """Replace the text between a pair of marks."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        sys.exit(f"README lacks the marks {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n{content}\n{end}", text)


def main(check: bool) -> int:
    """Update READMEs and figure, or only check them; return the exit code."""
    png, alt = figure()
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    new = {FIGURE: png}
    for language, path in READMES.items():
        text = between(path.read_text(encoding="utf-8"), "notebooks", table(language))
        text = between(text, "bench", block(measured, language))
        if language == "en":
            text = between(text, "figure", f"![{alt}]({FIGURE.relative_to(ROOT).as_posix()})")
        new[path] = text.encode()
    stale = [path for path, content in new.items() if path.read_bytes() != content]
    if check:
        print(
            "README is not up to date: run scripts/readme.py" if stale else "README is up to date"
        )
        return 1 if stale else 0
    for path in stale:
        path.write_bytes(new[path])
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
