"""What CONTRIBUTING, the hooks and CHANGELOG say is still so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# What a line speaks of without naming it whole.
FOLDERS = ("", "tvmlab/qnn/", "tvmlab/schedule/", "tvmlab/npu/", "tests/")


def test_files_and_folders_are_there() -> None:
    named = re.findall(r"`([\w./-]+(?:\.\w+|/))`", TEXT) + re.findall(r"\]\(([\w./-]+)\)", TEXT)
    gone = [
        name
        for name in named
        if "NN_" not in name
        and not name.startswith(("tvmlab.", "npu."))
        and not any((ROOT / folder / name).exists() for folder in FOLDERS)
    ]
    assert len(named) > 20
    assert gone == []


def test_what_its_commands_name_is_there() -> None:
    named = re.findall(r"(?<=[ `=])((?:tests|notebooks|scripts)/[\w./*-]*\w)", TEXT)
    assert len(named) > 10
    assert [name for name in named if "NN_" not in name and not list(ROOT.glob(name))] == []


def test_the_tests_that_ask_for_every_operator_are_among_those_that_it_has_one_run() -> None:
    [command] = re.findall(r"^9\. `.*-m pytest (tests/qnn.*)`", TEXT, re.MULTILINE)
    run = {path for name in command.split() for path in [ROOT / name, *(ROOT / name).rglob("*.py")]}
    asking = {
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"set\((op\.__all__|EXAMPLES)\)", path.read_text(encoding="utf-8"))
    }
    assert len(asking) > 2
    assert asking - run == set()


def test_each_way_to_add_something_is_ten_lines_at_most() -> None:
    parts = re.split(r"^## Add .*$", TEXT, flags=re.MULTILINE)[1:]
    assert len(parts) == 4
    for part in parts:
        numbers = [int(number) for number in re.findall(r"^(\d+)\. ", part, re.MULTILINE)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert 5 <= len(numbers) <= 10


def test_hooks_run_what_is_installed_and_download_nothing() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    for repository in config["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            assert hook["language"] == "system"
            assert hook["entry"].startswith(".venv/bin/python ")
            for word in hook["entry"].split():
                assert not word.startswith(("tests/", "scripts/")) or (ROOT / word).exists()


def test_the_newest_change_is_of_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    newest = re.search(r"^## (\S+?),? ", text, re.MULTILINE)
    assert newest is not None
    assert newest[1] == version["version"]
