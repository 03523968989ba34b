"""The reference has every module that README or a notebook tells a reader to use."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from gallery_source import MODULES

ROOT = Path(__file__).resolve().parent.parent

#: What a notebook opens to show how it works, and nobody has to call.
INTERNALS = {
    "tvmlab.cli": "the command, whose reference is its --help; 08 has its lines read by it",
    "tvmlab.cli.retired": "08 prints from it which options of tvmc are gone",
    "tvmlab.npu.codegen": "06 follows a region through the code generator",
    "tvmlab.npu.codegen.lower": "06 follows a region through the code generator",
    "tvmlab.npu.figures": "06 draws its figures with it",
    "tvmlab.npu.reading": "06 follows a region through the code generator",
    "tvmlab.npu.timeline": "06 draws from it which unit works when",
    "tvmlab.relay.target": "10 shows it as Relay's way; today's is tvmlab.target.as_target",
    "tvmlab.schedule.compute": "03 asks with it which convolutions take fewer products",
    "tvmlab.tuning.figures": "07 draws its figures with it",
    "tvmlab.tuning.measuring.tracker": "07 looks at the servers while they measure",
    "tvmlab.tuning.search.context": "07 looks into the search",
    "tvmlab.tuning.search.grid": "07 looks into the search",
    "tvmlab.tuning.search.model": "07 looks into the search",
    "tvmlab.tuning.settle": "07 says with its numbers how the finals go",
}


def is_module(name: str) -> bool:
    place = ROOT.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def named(name: str) -> str:
    """Return the module that a dotted name is of."""
    while not is_module(name):
        name = name.rpartition(".")[0]
    return name


def imported(code: str) -> Iterator[str]:
    """Yield the modules of the package that a cell or a block of code imports."""
    lines = [line for line in code.splitlines() if not line.startswith(("%", "!"))]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:  # another language's cell, as by %%bash
        return
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (named(name) for name in names if name.partition(".")[0] == "tvmlab")


def used() -> dict[str, set[str]]:
    """Return the modules that readers meet, and where."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = {named(name): {"README"} for name in re.findall(r"\btvmlab(?:\.[a-z_]\w*)+", readme)}
    texts = [("README", code) for code in re.findall(r"```python\n(.*?)```", readme, re.DOTALL)]
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                texts.append((path.stem, "".join(cell["source"])))
    for where, code in texts:
        for module in imported(code):
            found.setdefault(module, set()).add(where)
    return found


def test_every_module_that_readers_use_is_in_the_reference() -> None:
    unknown = {module: where for module, where in used().items() if module not in MODULES}
    assert {module: where for module, where in unknown.items() if module not in INTERNALS} == {}


def test_what_is_left_out_is_used_and_has_a_reason() -> None:
    assert set(INTERNALS) <= set(used())
    assert not set(INTERNALS) & set(MODULES)


@pytest.mark.parametrize(
    ("code", "modules"),
    [
        ("import tvmlab.relay", ["tvmlab.relay"]),
        ("from tvmlab import bench, npu", ["tvmlab.bench", "tvmlab.npu"]),
        ("from tvmlab.npu.isa import Load", ["tvmlab.npu.isa"]),
        ("%%time\nfrom tvmlab import load", ["tvmlab"]),
        ("%%bash\nls -l", []),
        ("from tvm import relax", []),
    ],
)
def test_an_import_is_found(code: str, modules: list[str]) -> None:
    assert list(imported(code)) == modules
