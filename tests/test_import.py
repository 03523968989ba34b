"""`import tvmlab` imports nothing; what its names import is TVM, NumPy, and what TVM brings in."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

COUNT = """
import builtins, json, sys
import tvm
before = set(sys.modules)
optional = set(sys.argv[1:])
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in optional:
            raise ImportError(f"import tvmlab asked for {name}")
sys.meta_path.insert(0, Refuse())
import tvmlab
names = sorted(name for name in tvmlab.__all__ if hasattr(tvmlab, name))
added = set(sys.modules) - before
print(json.dumps({"before": len(before), "added": sorted(added), "names": names}))
"""
# What the extras install, and what is slow to import.
OPTIONAL = (
    *("onnx", "onnxruntime", "google", "torch", "torchao", "tflite", "flatbuffers"),
    *("ai_edge_litert", "matplotlib", "PIL", "IPython", "sklearn", "scipy", "pandas"),
    *("tqdm", "xgboost", "tornado", "jupyterlab", "nbformat", "pytest"),
)


@pytest.fixture(scope="module")
def imported() -> dict[str, object]:
    run = subprocess.run(
        [sys.executable, "-c", COUNT, *OPTIONAL], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return dict(json.loads(run.stdout))


def test_the_package_alone_imports_nothing_of_others() -> None:
    code = (
        "import gc, sys\n"
        "import tvmlab, tvmlab.cli, tvmlab.errors\n"
        "print(sorted({'tvm', 'tvm_ffi', 'numpy', 'torch'} & set(sys.modules)))\n"
        "print(tvmlab.compile.__module__, 'relay' in dir(tvmlab), 'tvm' in sys.modules)\n"
        "from tvmlab import *\n"
        "print(tune.__module__, target.__name__, gc.isenabled())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "[]",
        "tvmlab.compiler True True",
        # While TVM is imported no garbage is looked for; afterwards it is again.
        "tvmlab.tuning.session tvmlab.support.target True",
    ]


def test_nothing_optional_is_imported(imported: dict[str, object]) -> None:
    added = imported["added"]
    assert isinstance(added, list)
    assert "tvmlab.compiler" in added
    known = {"tvmlab", "tvm", "numpy", *sys.stdlib_module_names}
    assert {name for name in added if name.partition(".")[0] not in known} == set()


def test_few_modules_are_added(imported: dict[str, object]) -> None:
    """Time is not asserted here; what costs time is new modules, and they can be counted."""
    added, before = imported["added"], imported["before"]
    assert isinstance(added, list)
    assert isinstance(before, int)
    assert len(added) <= 0.1 * before, added


def test_toolchain_is_light() -> None:
    code = (
        "import sys, types\n"
        "sys.modules['tvm'] = None\n"
        "import importlib.util as u\n"
        "spec = u.find_spec('tvmlab')\n"
        "package = types.ModuleType('tvmlab')\n"
        "package.__path__ = list(spec.submodule_search_locations)\n"
        "sys.modules['tvmlab'] = package\n"
        "import tvmlab.support.toolchain\n"
        "print(sorted({'tvm_ffi', 'numpy', 'torch'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
