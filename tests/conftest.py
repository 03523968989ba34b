"""What the unit tests share."""

from __future__ import annotations

import fcntl
import functools
import inspect
import os
import secrets
import signal
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

from tests.cli.program import Program
from tests.runtime.limits import BANDWIDTH, PEAK
from tests.short import ALL

# No example is failed for being slow. In `make test` the examples are the same in every run.
settings.register_profile("tvmlab", deadline=None, derandomize=not ALL)
settings.load_profile("tvmlab")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its option
def pytest_configure(config: pytest.Config) -> None:
    """In `make test-all` let Hypothesis and `tests.short.fresh` draw from one new seed."""
    if ALL:
        seed = config.option.hypothesis_seed or os.environ.get("TVMLAB_TEST_SEED")
        config.option.hypothesis_seed = seed or str(secrets.randbelow(2**31))
        os.environ["TVMLAB_TEST_SEED"] = config.option.hypothesis_seed  # other processes' as well


def pytest_report_header(config: pytest.Config) -> str | None:
    """Print the seed, and how to draw from it again."""
    seed = config.option.hypothesis_seed
    return f"random cases: TVMLAB_TEST_ALL=1 pytest --hypothesis-seed={seed}" if ALL else None


# Idle threads sleep here, as other test processes want the cores: by default those of a pool spin
# for a while, in case that work comes. Programs that the tests start inherit it.
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# A shell without job control starts what it puts in the background with SIGINT ignored, and so are
# all children's: tests that send it would wait for nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_getmodule = inspect.getmodule


def _getmodule_of_files(of: object, file: str | None = None) -> ModuleType | None:
    """Find the module of a frame; say at once of a frozen one or a string that it has no file.

    TVMScript's decorators ask for the source of every frame that they are called from. For each
    without a file, and an import has many, `inspect` walks through all modules: where PyTorch is
    imported, one decorator took most of a second.
    """
    if inspect.isframe(of) and of.f_code.co_filename.startswith("<"):
        return None
    return _getmodule(of, file)


inspect.getmodule = _getmodule_of_files


def pytest_runtest_setup() -> None:
    """Let PyTorch list its C++ operators once per process.

    It lists them about 50 times per import, which is half the time of importing a small network.
    """
    module = sys.modules.get("torch._export.utils")
    if module and not hasattr(module._materialize_cpp_cia_ops, "cache_info"):
        module._materialize_cpp_cia_ops = functools.cache(module._materialize_cpp_cia_ops)


# `make referee` runs these, which take half an hour.
collect_ignore = ["referee"]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the whole site, built once for all processes of the run."""
    from gallery import build  # Here: it loads much, and most runs need no site.

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # each process has a folder of its own below it
    with (folder / "gallery.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (made := folder / "gallery" / "html").is_dir():
            build(made)
    return made


#: The files that take longest, in which order they begin: the longest first, as at the end they
#: would run alone; those that mostly wait beside those that compute; and what opens the site after
#: what builds it.
LONG = (
    "notebooks/test_recipes.py",
    "scripts/test_gallery.py",
    "tuning/test_remote.py",
    "scripts/test_readme.py",
    "notebooks/test_exercises.py",
    "schedule/test_schedule.py",
    "browser/test_site.py",
    "cli/test_model.py",
    "tuning/test_real.py",
    "runtime/test_remote.py",
    "cli/test_examples.py",
    "schedule/test_products.py",
    "tuning/test_local.py",
    "qnn/test_property.py",
    "notebooks/test_nbval.py",
    "models/test_models.py",
    "qnn/test_compile.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first, and skip the tests marked `full` unless all are to run."""
    chosen = ALL or "TVMLAB_FREEZE" in os.environ  # all values are frozen, those of `full` too
    for item in items:
        if item.get_closest_marker("full") and not chosen:
            item.add_marker(pytest.mark.skip(reason="takes long: make test-all"))
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get("/".join(item.path.parts[-2:]), len(LONG)))


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the test run in an empty folder of its own; give the folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def known_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let profiles be held against limits of the machine that are known."""
    from tvmlab.runtime import profiling  # Here: it imports TVM, and other files need none of it.

    monkeypatch.setattr(profiling, "peak", {"float32": PEAK, "int8": 4 * PEAK}.get)
    monkeypatch.setattr(profiling, "bandwidth", lambda: BANDWIDTH)


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Program:
    """Give the program `tvmlab`, called in this process."""
    return Program(capsys)
