"""Test a built image from outside: who runs, the health check, the server, the notebooks.

    python3 image_check.py IMAGE.json RUNNER...

`IMAGE.json` is what `buildah inspect` says of the image; `RUNNER...` with a command after it runs
that command in the image. `image-test.sh` calls this in a network namespace that has nothing but
127.0.0.1. Only the standard library: this runs under the system's Python.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START = "notebooks/00_start_here.ipynb"
FIRST_NOTEBOOKS = ("00", "01", "02", "03")
START_SECONDS = 90
OTHER_USER = 4242


class Failed(Exception):
    """A check of the image failed."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise Failed(what)
    print(f"  ok  {what}", flush=True)


def status(url: str, token: str = "", method: str = "GET") -> tuple[int, bytes]:
    """Ask the server: the HTTP status and the body."""
    headers = {"Authorization": f"token {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


class Image:
    """The image under test: what it declares, and a way to run commands in it."""

    def __init__(self, inspected: Path, runner: list[str]) -> None:
        config = json.loads(inspected.read_text(encoding="utf-8"))["Docker"]["config"]
        self.user: str = config.get("User", "")
        self.command: list[str] = config["Cmd"]
        self.health: list[str] = config["Healthcheck"]["Test"]
        self.labels: dict[str, str] = config.get("Labels") or {}
        self.ports = set(config.get("ExposedPorts") or {})
        self.runner = runner

    def run(self, *command: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """Run `command` in the image; `options` are further ones of buildah's `run`."""
        at = self.runner.index("run") + 1
        line = [*self.runner[:at], *options, *self.runner[at:], *command]
        return subprocess.run(
            line, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def health_check(self) -> subprocess.CompletedProcess[str]:
        """Run the image's own health check as its engine would."""
        kind, *command = self.health
        if kind == "CMD-SHELL":
            command = ["/bin/sh", "-c", *command]
        return self.run(*command)


def check_metadata(image: Image) -> None:
    check(image.ports == {"8888/tcp"}, "port 8888 is exposed, and no other")
    check(
        image.labels.get("org.opencontainers.image.licenses") == "Apache-2.0",
        "the labels name the licence",
    )
    line = " ".join(image.command)
    check("token" not in line and "password" not in line, "the command leaves the token alone")


def check_user(image: Image) -> None:
    uid = image.run("id", "-u").stdout.strip()
    check(uid.isdigit() and uid != "0", f"the commands run as uid {uid}, not as root")


def check_terminal(image: Image) -> None:
    """Ask as JupyterLab's terminals do: its $SHELL, as a login shell."""
    done = image.run("sh", "-c", 'exec "$SHELL" -lc "type -P tvmlab python && tvmlab --version"')
    found = done.stdout.splitlines()
    check(
        found[:2] == ["/opt/tvmlab/bin/tvmlab", "/opt/tvmlab/bin/python"],
        "a terminal finds tvmlab and its python" + ("" if len(found) == 3 else f":\n{done.stdout}"),
    )
    done = image.run("make", "lab")
    check(
        done.returncode != 0 and "without make" in done.stdout,
        "make installs nothing a second time, and says so",
    )


def refused(image: Image) -> bool:
    """Say whether the health check fails, and for want of a server, not of itself."""
    done = image.health_check()
    return done.returncode != 0 and "Connection refused" in done.stdout


def check_server(image: Image) -> None:
    check(refused(image), "unhealthy while nothing serves")
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        server = subprocess.Popen(
            [*image.runner, *image.command], stdout=log, stderr=log, start_new_session=True
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while (
                not (healthy := image.health_check().returncode == 0)
                and time.monotonic() < deadline
            ):
                if server.poll() is not None:
                    break
                time.sleep(1)
            log.seek(0)
            said = log.read()
            check(healthy, "healthy while JupyterLab serves" + ("" if healthy else f":\n{said}"))
            found = re.search(r"(http://127\.0\.0\.1:8888)(/\S*)\?token=([0-9a-f]+)", said)
            check(found is not None, "the output gives the address with its token")
            assert found is not None
            base, path, token = found.groups()
            check(path == f"/lab/tree/{START}", f"the address leads to {START}")
            url = f"{base}/api/contents/{START}?content=0"
            check(status(url)[0] == 403, "without the token the server refuses")
            if (ROOT / START).exists():
                check(status(url, token)[0] == 200, "with the token it serves the notebook")
            check(status(f"{base}/api/shutdown", token, "POST")[0] == 200, "it can be shut down")
            server.wait(timeout=30)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
    check(refused(image), "unhealthy after it was shut down")


def check_mapped_folder(image: Image) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        done = image.run(
            "python",
            "-c",
            "import os, tvmlab; assert os.listdir('.') == []; print(tvmlab.__file__)",
            options=("--volume", f"{folder}:/home/lab/work"),
        )
    check(
        done.returncode == 0 and "/opt/tvmlab/" in done.stdout,
        "with a folder mapped in, the environment is whole"
        + ("" if done.returncode == 0 else f":\n{done.stdout}"),
    )
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        os.chown(folder, OTHER_USER, -1)
        # The server writes to its home at once: the same call without HOME fails.
        done = image.run(
            *("sh", "-c", "touch mine && python -m jupyterlab --generate-config"),
            options=(
                *("--user", str(OTHER_USER), "--env", "HOME=/tmp"),
                *("--volume", f"{folder}:/home/lab/work"),
            ),
        )
    check(
        done.returncode == 0,
        "another user can work in a folder of theirs"
        + ("" if done.returncode == 0 else f":\n{done.stdout}"),
    )


def check_notebooks(image: Image) -> None:
    """Compare notebooks 00 to 03, offline: there is no network in this namespace."""
    books = [
        f"notebooks/{path.name}"
        for number in FIRST_NOTEBOOKS
        for path in sorted((ROOT / "notebooks").glob(f"{number}_*.ipynb"))
    ]
    check(bool(books), "there are notebooks to compare")
    for book in books:
        started = time.monotonic()
        done = image.run(
            *("python", "-m", "pytest", "--nbval", "--nbval-current-env"),
            *("--nbval-sanitize-with", "tests/sanitize.cfg", "--nbval-cell-timeout", "900"),
            *("-p", "no:cacheprovider", "-q", book),
        )
        if done.returncode:
            # The first failure is the one to read: later cells mostly fail for want of it.
            print(done.stdout[:6000], "...", done.stdout[-1500:], sep="\n")
        counts = re.findall(r"^\d+ .* in [\d.]+s.*$", done.stdout, re.MULTILINE)
        took = time.monotonic() - started
        check(done.returncode == 0, f"{book} compares equal, {took:.0f} s: {''.join(counts)}")


def main(arguments: list[str]) -> int:
    image = Image(Path(arguments[0]), arguments[1:])
    try:
        for part in (
            check_metadata,
            check_user,
            check_terminal,
            check_server,
            check_mapped_folder,
            check_notebooks,
        ):
            part(image)
    except Failed as failed:
        print(f"  NOT {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
