"""The files that pin the packages are held to each other, and so are Makefile, CI and image."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.11", "3.12", "3.13")


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def direct() -> list[tuple[str, Requirement]]:
    """Return what is pinned, with the extra it belongs to ('' for the package's own)."""
    table = project()
    extras: dict[str, list[str]] = dict(table["optional-dependencies"])  # type: ignore[call-overload]
    extras.pop("rivals")
    own: list[str] = table["dependencies"]  # type: ignore[assignment]
    return [("", Requirement(line)) for line in own] + [
        (extra, Requirement(line)) for extra, lines in extras.items() for line in lines
    ]


def pinned() -> list[Requirement]:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.lstrip().startswith("#")]


def environment(python: str, platform: str, machine: str) -> dict[str, str]:
    system = {"linux": "Linux", "darwin": "Darwin"}[platform]
    changes = {"sys_platform": platform, "platform_system": system, "platform_machine": machine}
    changes |= {"python_version": python, "python_full_version": f"{python}.9", "extra": ""}
    return {**default_environment(), **changes}


ENVIRONMENTS = [
    environment(python, platform, machine)
    for python in PYTHONS
    for platform, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
]


def holds(marker: Marker | None, where: dict[str, str]) -> bool:
    return marker is None or marker.evaluate(where)  # type: ignore[arg-type]


def test_everything_in_requirements_is_pinned_to_one_version() -> None:
    for requirement in pinned():
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", requirement
        assert "*" not in specifier.version, requirement
        assert requirement.url is None, requirement


@pytest.mark.parametrize(
    "where",
    ENVIRONMENTS,
    ids=lambda where: (
        f"{where['python_version']}-{where['sys_platform']}-{where['platform_machine']}"
    ),
)
def test_every_direct_dependency_has_one_pin_that_satisfies_it(where: dict[str, str]) -> None:
    pins: dict[str, list[str]] = {}
    for requirement in pinned():
        if holds(requirement.marker, where):
            (specifier,) = requirement.specifier
            pins.setdefault(canonicalize_name(requirement.name), []).append(specifier.version)
    for extra, requirement in direct():
        if not holds(requirement.marker, where):
            continue
        found = pins.get(canonicalize_name(requirement.name), [])
        assert len(found) == 1, f"{requirement} of [{extra}]: pins {found}"
        assert requirement.specifier.contains(found[0], prereleases=True), (requirement, found)


def test_setup_and_conda_take_the_pythons_that_the_package_takes() -> None:
    declared = SpecifierSet(str(project()["requires-python"]))
    assert [f"3.{n}" for n in range(20) if f"3.{n}.5" in declared] == list(PYTHONS)
    script = (ROOT / "scripts" / "setup.sh").read_text(encoding="utf-8")
    (accepted,) = re.findall(r"case \$1 in ([\d. |]+)\) ;;", script)
    assert accepted.split(" | ") == list(PYTHONS)
    (python,) = [line for line in conda() if str(line).startswith("python")]
    assert SpecifierSet(python.removeprefix("python")) == declared


def conda() -> list[str]:
    """Return conda's own dependencies, the pip section left out."""
    table = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    return [line for line in table["dependencies"] if isinstance(line, str)]


def test_help_lists_every_target_and_make_alone_is_help() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    for command in (["make", "help"], ["make"]):
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
        listed = [line.split()[1] for line in done.stdout.splitlines()]
        assert listed == phony.split()
