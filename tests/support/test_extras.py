from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tvmlab.errors import ToolchainError
from tvmlab.support.extras import need


def test_a_module_that_is_there_is_imported() -> None:
    assert need("json", extra="none") is json


def test_a_missing_package_is_named_with_its_extra() -> None:
    with pytest.raises(ToolchainError) as caught:
        need("nobody_has_this.part", extra="models")
    assert caught.value.what == "the Python package 'nobody_has_this' is not installed"
    assert caught.value.where == "needed for nobody_has_this.part"
    assert caught.value.fix == "pip install 'tvmlab[models]'"


def test_a_package_that_is_broken_inside_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_installed.py").write_text("import what_it_needs_is_missing")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="what_it_needs_is_missing"):
        need("half_installed", extra="models")
    sys.modules.pop("half_installed", None)
