"""Files and commands that CONTRIBUTING and the hooks name exist; CHANGELOG knows the version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FOLDERS = (
    "",
    "tvmlab/qnn/",
    "tvmlab/ir/",
    "tvmlab/schedule/",
    "tvmlab/npu/",
    "tests/",
)  # named before the file


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
