"""The public names that README and the notebooks use."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def cells() -> Iterator[tuple[str, list[str]]]:
    """Yield each document with its Python code, without the lines of magics and commands."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    yield "README.md", re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        found = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources = ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]
        python = [source for source in sources if not source.startswith("%%")]
        yield path.name, [re.sub(r"(?m)^[%!].*$", "", source) for source in python]


def used(sources: list[str]) -> Iterator[str]:
    """Yield the dotted names below `tvmlab` that the code imports or reads from an import."""
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    places = {"tvmlab": "tvmlab"}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None)
            for alias in node.names:
                name = f"{module}.{alias.name}" if module else alias.name
                if name.split(".")[0] == "tvmlab":
                    yield name
                    if module or alias.asname:
                        places[alias.asname or alias.name] = name
    # A variable of the same name hides the module in some cells: its attributes are left out.
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            places.pop(node.id, None)
        elif isinstance(node, ast.arg):
            places.pop(node.arg, None)
    for node in nodes:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts, node = [node.attr, *parts], node.value
        if parts and isinstance(node, ast.Name) and node.id in places:
            yield ".".join([places[node.id], *parts])


def resolve(name: str) -> Any:
    """Import what a dotted name stands for."""
    first, *parts = name.split(".")
    found, path = importlib.import_module(first), first
    for part in parts:
        path = f"{path}.{part}"
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
    return found


def test_names_are_those_of_the_documents_and_resolve(kept: Callable[..., Any]) -> None:
    found = sorted({name for _, sources in cells() for name in used(sources)})
    assert len(found) > 100
    assert found == kept("names", "names", found)
    for name in found:
        resolve(name)
