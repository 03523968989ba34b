"""`make doctor` finds what is wrong, and says what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
import doctor

Usage = namedtuple("Usage", "total used free")
GOOD = {"wrong": {}, "pinned": 147, "right": True, "mcpu": "znver4", "threads": 2}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with an environment, whose Python says what a test writes."""
    monkeypatch.setattr(doctor, "ROOT", tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    answers(tmp_path, json.dumps(GOOD))
    return tmp_path


def answers(checkout: Path, said: str, code: int = 0, error: str = "") -> None:
    (checkout / "said").write_text(said)
    (checkout / "error").write_text(error)
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(f"#!/bin/sh\ncat said\ncat error >&2\nexit {code}\n")
    python.chmod(0o755)


def found(check: doctor.Check) -> list[tuple[str, str]]:
    return [(each.state, each.what) for each in check()]


def test_nothing_is_wrong_here() -> None:
    """The real thing, in the environment that runs this test."""
    root = Path(doctor.__file__).resolve().parent.parent
    if Path(sys.executable).parent != root / ".venv" / "bin":
        pytest.skip(".venv: not on this machine")  # Run from another environment.
    done = subprocess.run(
        [sys.executable, doctor.__file__], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout
    assert "packages, as pinned" in done.stdout
    assert "reads its digit" in done.stdout
    assert done.stdout.endswith("nothing is wrong\n")


def test_a_sound_environment(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TVM_NUM_THREADS", raising=False)
    states = found(doctor.packages)
    assert [state for state, _ in states] == ["ok", "ok", "ok"]
    assert states[0] == ("ok", "147 packages, as pinned")
    assert "znver4" in states[1][1]


def test_an_environment_on_a_busy_machine(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be as good as any: nobody is told to delete it."""
    (checkout / ".venv" / "bin" / "python").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(doctor, "PATIENCE", 0.2)
    [finding] = doctor.packages()
    assert (finding.state, finding.what) == ("bad", ".venv has not answered for 0.2 s")
    assert finding.todo == "ask again when the machine is less busy"


def test_a_package_of_another_version_or_none(checkout: Path) -> None:
    wrong = {"apache-tvm-ffi": ["0.2", "==0.1.14.post1"], "onnx": [None, "==1.23.2"]}
    answers(checkout, json.dumps(GOOD | {"wrong": wrong}))
    states = found(doctor.packages)
    assert ("bad", "apache-tvm-ffi 0.2, pinned ==0.1.14.post1") in states
    assert ("bad", "onnx is missing, pinned ==1.23.2") in states
    assert ("ok", "147 packages, as pinned") not in states


def test_an_environment_whose_tvm_fails(checkout: Path) -> None:
    first = json.dumps({"wrong": {}, "pinned": 147})
    answers(checkout, first, 1, "Traceback\n  File x\nOSError: libtvm.so: cannot open\n   ~~^\n")
    assert found(doctor.packages) == [
        ("bad", "TVM does not compile and run: OSError: libtvm.so: cannot open")
    ]
    answers(checkout, "", 139)
    assert found(doctor.packages) == [("bad", "TVM does not compile and run: exit status 139")]


def test_a_wrong_answer_is_told(checkout: Path) -> None:
    answers(checkout, json.dumps(GOOD | {"right": False}))
    assert [each.state for each in doctor.packages()][1] == "bad"


def test_an_environment_that_is_not_there_or_not_finished(checkout: Path) -> None:
    (checkout / ".venv" / "tvmlab-unfinished").touch()
    assert found(doctor.packages) == [("bad", "an installation was interrupted")]
    (checkout / ".venv" / "bin" / "python").unlink()
    assert found(doctor.packages)[0][0] == "note"


def test_an_environment_that_does_not_start(checkout: Path) -> None:
    (checkout / ".venv" / "bin" / "python").write_text("#!/no/such/interpreter\n")
    ((state, what),) = found(doctor.packages)
    assert state == "bad"
    assert what.startswith(".venv does not run")


def test_fewer_threads_than_processors(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", "999")
    assert found(doctor.packages)[-1][0] == "note"


def test_no_python(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON", str(checkout / "none"))
    ((state, what),) = found(doctor.python)
    assert state == "bad"
    assert "3.11 to 3.13" in what
    monkeypatch.setenv("PYTHON", sys.executable)
    assert found(doctor.python)[0][0] == "ok"


def test_a_full_disk(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: Usage(9, 9, 1_000_000))
    assert found(doctor.space) == [("bad", "1 MB of disk are free")]


def test_a_path_with_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ROOT", tmp_path / "a b")
    assert found(doctor.system)[-1][0] == "bad"


def test_missing_programs_and_tools_say_what_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert {state for state, _ in found(doctor.programs)} == {"note"}
    ((state, what),) = found(doctor.tools)
    assert state == "note"
    assert "valgrind" in what


def test_the_notebooks_that_need_a_compiler_are_those_that_say_so(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "notebooks").mkdir()
    for number, needs in enumerate((["g++"], [], ["g++", "make"], ["g++"], ["g++"], [], ["g++"])):
        text = json.dumps({"metadata": {"tvmlab": {"needs": needs}}})
        (checkout / "notebooks" / f"{number:02}_a.ipynb").write_text(text)
    (checkout / "notebooks" / "07_own.ipynb").write_text('{"metadata": {}}')
    (checkout / "notebooks" / "08_torn.ipynb").write_text("{")
    monkeypatch.setenv("PATH", str(checkout))
    [told] = [what for _, what in found(doctor.programs) if what.startswith("no g++")]
    assert told.endswith("notebooks 00, 02 to 04, 06")


def test_main_counts_what_is_bad(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = [doctor.Finding("bad", "no luck", "try again"), doctor.Finding("ok", "fine")]
    monkeypatch.setattr(doctor, "CHECKS", (lambda: iter(one),))
    assert doctor.main() == 1
    assert capsys.readouterr().out == "bad   no luck\n      -> try again\nok    fine\n1 to mend\n"
