"""The set-up: what setup.sh does and says.

The script runs for real, in a copy of its own; only Python is a stub, which says it is the version
that a test wants, makes an "environment" with itself inside, and writes down what pip was asked.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = (
    *("cat", "cmp", "cp", "df", "dirname", "du", "find"),
    *("head", "mkdir", "mv", "rm", "sed", "sleep"),
)

INDEX = "https://download.pytorch.org/whl/cpu"
OFFERED = f"--extra-index-url {INDEX}"

# A Python for the tests. $FAKE holds the log, and files whose presence makes something fail.
STUB = """#!/bin/sh
version=@VERSION@
case "$1 $2" in
"-c "*version_info*) echo "$version" ;;
"-c "*ensurepip*) [ ! -e "$FAKE/no-venv" ] ;;
"-c "*urlopen*) [ "$3" = @INDEX@/torch/ ] && [ ! -e "$FAKE/no-cpu-index" ] ;;
"-m venv")
    for target; do :; done
    echo "venv $version" >>"$FAKE/log"
    rm -rf "$target"/* && mkdir -p "$target/bin" "$target/lib" && cp "$0" "$target/bin/python" ;;
"-m pip")
    shift 2
    echo "pip $*" >>"$FAKE/log"
    case "$*" in
    *requirements.txt*)
        sleep 0.05 # A file system's clock ticks slower than this script runs.
        [ ! -e "$FAKE/half-installed" ] || : >"$VENV_LIB/half.py"
        [ ! -e "$FAKE/no-network" ] || { echo "ERROR: no route" >&2; exit 1; }
        [ ! -e "$FAKE/killed" ] || kill -9 $PPID ;;
    *--dest*) mkdir -p .venv/share/tvmlab ;;
    esac ;;
esac
"""


@dataclass
class Checkout:
    """A copy of what setup.sh reads, with a PATH that has only the stubs and the plain tools."""

    folder: Path
    bin: Path
    fake: Path

    def python(self, name: str, version: str) -> Path:
        """Put a stub interpreter on the PATH."""
        path = self.bin / name
        path.write_text(STUB.replace("@VERSION@", version).replace("@INDEX@", INDEX))
        path.chmod(0o755)
        return path

    def tool(self, name: str, text: str) -> None:
        """Put a stub in place of a plain tool."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def fails(self, what: str) -> Path:
        """Make the stubs fail in one way, until the file that is returned is gone."""
        path = self.fake / what
        path.touch()
        return path

    def setup(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the script from another folder, as `make -C` would."""
        return subprocess.run(
            ["/bin/sh", str(self.folder / "scripts" / "setup.sh")],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.bin,
            env={
                "PATH": str(self.bin),
                "FAKE": str(self.fake),
                "VENV_LIB": str(self.folder / ".venv" / "lib"),
                **environment,
            },
        )

    def log(self) -> list[str]:
        """Return what the interpreters were asked since the last call."""
        path = self.fake / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    folder = tmp_path / "checkout"
    for room in ("scripts", "tvmlab/assets"):
        (folder / room).mkdir(parents=True)
    for name in (
        "requirements.txt",
        "pyproject.toml",
        "scripts/setup.sh",
        "tvmlab/assets/tvm-ffi-source.txt",
    ):
        shutil.copy(ROOT / name, folder / name)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found, f"this machine has no {name}"
        (tools / name).symlink_to(found)
    fake = tmp_path / "fake"
    fake.mkdir()
    return Checkout(folder, tools, fake)


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the only line of an expected failure."""
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("setup: ")
    return lines[0]


def test_a_first_call_installs_and_a_second_does_nothing(checkout: Checkout) -> None:
    checkout.python("python3", "3.12")
    first = checkout.setup()
    assert (first.returncode, first.stderr) == (0, "")
    venv, packages, package, source = checkout.log()
    assert venv == "venv 3.12"
    assert packages.startswith(f"pip install {OFFERED} -r requirements.txt")
    assert re.match(r"pip install .*--no-deps .*--editable \.", package)
    assert re.match(r"pip download .*--dest \.venv/share/tvmlab .*tvm-ffi-source\.txt", source)

    second = checkout.setup()
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert checkout.log() == []


def test_a_changed_input_is_installed_into_the_same_environment(checkout: Checkout) -> None:
    checkout.python("python3", "3.12")
    checkout.setup()
    checkout.log()
    with (checkout.folder / "requirements.txt").open("a") as file:
        file.write("# changed\n")
    assert checkout.setup().returncode == 0
    log = checkout.log()
    assert len(log) == 3
    assert all(line.startswith("pip ") for line in log)
    checkout.setup()
    assert checkout.log() == []


def test_no_python_is_one_line(checkout: Checkout) -> None:
    checkout.python("python3", "3.14")
    line = one_line(checkout.setup())
    assert "no Python 3.11 to 3.13 found; python3 here is 3.14" in line
    assert "apt install python3 python3-venv" in line
    assert not (checkout.folder / ".venv").exists()


def test_the_python_that_is_asked_for_is_taken(checkout: Checkout) -> None:
    checkout.python("python3", "3.11")
    wanted = checkout.python("mine", "3.13")
    assert checkout.setup(PYTHON=str(wanted)).returncode == 0
    assert checkout.log()[0] == "venv 3.13"
    # It stays when the next call does not name it ...
    assert checkout.setup().returncode == 0
    assert checkout.log() == []
    # ... and goes when another is named.
    assert checkout.setup(PYTHON="python3").returncode == 0
    assert checkout.log()[0] == "venv 3.11"


@pytest.mark.parametrize("torch", ["", "cpu", "cuda"])
@pytest.mark.parametrize("closed", [False, True])
def test_pip_is_offered_the_cpu_build_where_its_index_answers(
    checkout: Checkout, torch: str, closed: bool
) -> None:
    checkout.python("python3", "3.12")
    if closed:
        checkout.fails("no-cpu-index")
    offered = not closed and torch != "cuda"
    needed = 4000 if offered else 13000
    checkout.tool("df", DF.format(free=needed * 1000 - 1))
    assert f"{needed} MB needed" in one_line(checkout.setup(TORCH=torch))
    assert checkout.log() == []
    checkout.tool("df", DF.format(free=needed * 1000))
    done = checkout.setup(TORCH=torch)
    assert (done.returncode, done.stderr) == (0, "")
    assert (OFFERED in checkout.log()[1]) == offered
    assert ("cannot reach" in done.stdout) == (closed and torch != "cuda")


DF = """echo 'Filesystem 1024-blocks Used Available Capacity Mounted on'
echo '/dev/a disk  100000000 90000000 {free} 90% /media/my disk 1'"""


@pytest.mark.parametrize("accident", ["no-network", "killed"])
def test_a_set_up_that_ends_in_the_middle_is_repaired(checkout: Checkout, accident: str) -> None:
    checkout.python("python3", "3.12")
    broken = [checkout.fails(accident), checkout.fails("half-installed")]
    assert checkout.setup().returncode in (1, -signal.SIGKILL)
    checkout.log()
    for path in broken:
        path.unlink()
    assert checkout.setup().returncode == 0
    assert checkout.log()[0] == "venv 3.12"
    assert not (checkout.folder / ".venv" / "lib" / "half.py").exists()
    checkout.setup()
    assert checkout.log() == []
