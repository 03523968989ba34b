"""README, CONTRIBUTING and CHANGELOG: commands, files, tables and code are what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import tvmlab
from tests.forked import forked
from tests.short import ALL, long

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
# What TVM and the pictures of the digits come with.
IMPORTED = ("tvmlab.compiler", "sklearn.datasets")
CODE = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_table_and_figure_are_those_of_the_notebooks() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/readme.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


# Each block in an empty folder, and with no name that it did not make.
IN_TURN = """
import json, os

with open("blocks.json") as file:
    blocks = json.load(file)
for number, code in enumerate(blocks):
    os.mkdir(f"block-{number}")
    os.chdir(f"block-{number}")
    print("block", number, flush=True)
    exec(compile(code, f"block-{number}", "exec"), {"__name__": "__main__"})
    os.chdir("..")
"""


# In `make test-all` each block has its own process, which tells whether it imports all that it
# needs; in `make test` all of them run one after the other in one.
@pytest.mark.parametrize("blocks", [[code] for code in CODE] if ALL else [CODE])
def test_code_runs(blocks: list[str], tmp_path: Path) -> None:
    (tmp_path / "blocks.json").write_text(json.dumps(blocks), encoding="utf-8")
    done = forked("-c", IN_TURN, folder=tmp_path, imported=IMPORTED)
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.split(r"^block \d+\n", done.stdout, flags=re.MULTILINE)
    assert said[0] == ""
    assert len(said) == 1 + len(blocks)
    assert all(part.strip() for part in said[1:])


@long  # `deploy.program`, in the code above, builds from the same files
def test_the_lines_of_cmake_build_the_program(tmp_path: Path) -> None:
    """In the folder where what the block before them wrote is."""
    (block,) = [
        lines for lines in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "cmake" in lines
    ]
    executable = tvmlab.compile(tvmlab.load(tvmlab.models.digits_resnet()))
    executable.save(tmp_path / "digits.so")
    picture = tvmlab.models.digits().x_test[:1]
    np.save(tmp_path / "x.npy", picture)
    (tmp_path / "tvmlab").symlink_to(ROOT / "tvmlab")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for line in block.splitlines():
        done = subprocess.run(
            line,
            shell=True,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path},
        )
        assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) == executable(picture).argmax()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z-]+)", README))))
def test_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", README + CHINESE))))
def test_links_resolve(link: str) -> None:
    assert link.startswith("https://") or (ROOT / link).exists()


TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# Named before the file.
FOLDERS = ("", "tvmlab/qnn/", "tvmlab/ir/", "tvmlab/schedule/", "tvmlab/npu/", "tests/")


def test_files_folders_and_commands_exist() -> None:
    files = re.findall(r"`([\w./-]+(?:\.\w+|/))`", TEXT) + re.findall(r"\]\(([\w./-]+)\)", TEXT)
    files = [name for name in files if not name.startswith(("tvmlab.", "npu."))]
    commands = re.findall(r"(?<=[ `=])((?:tests|notebooks|scripts)/[\w./*-]*\w)", TEXT)
    assert len(files) > 20
    assert len(commands) > 10
    named = {name for name in files + commands if "NN_" not in name}
    assert [x for x in named if not any(list(ROOT.glob(folder + x)) for folder in FOLDERS)] == []


def test_the_newest_change_is_of_this_version() -> None:
    newest = re.search(r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert newest is not None
    assert newest[1] == project["version"]
