"""Test a built image from outside: the user, the server with its health check, the notebooks.

    python3 image_check.py IMAGE.json RUNNER...

`IMAGE.json` is the output of `buildah inspect`; `RUNNER...` with a command after it runs that
command in the image. `image-test.sh` calls this in a network namespace that has nothing but
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

START = "notebooks/00_start_here.ipynb"
START_SECONDS = 90
OTHER_USER = 4242
CONFIG = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["Docker"]["config"]
RUNNER = sys.argv[2:]


def check(holds: bool, what: str, output: str = "") -> None:
    """End the test where something does not hold."""
    if not holds:
        sys.exit(f"  NOT {what}\n{output[:6000]}")
    print(f"  ok  {what}", flush=True)


def run(*command: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run a command in the image, with options of buildah's `run`: exit status and output."""
    at = RUNNER.index("run") + 1
    line = [*RUNNER[:at], *options, *RUNNER[at:], *command]
    done = subprocess.run(line, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def health() -> tuple[int, str]:
    """Run the image's own health check: exit status and output."""
    return run(*CONFIG["Healthcheck"]["Test"][1:])


def check_refused(when: str) -> None:
    """The health check fails for want of a server, not of itself."""
    code, output = health()
    check(code != 0 and "Connection refused" in output, f"unhealthy {when}", output)


def status(url: str, token: str = "", method: str = "GET") -> int:
    """Ask the server; return the HTTP status."""
    headers = {"Authorization": f"token {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def check_user() -> None:
    """Ask who runs, and what a terminal of JupyterLab finds: its $SHELL, as a login shell."""
    uid = run("id", "-u")[1].strip()
    check(uid.isdigit() and uid != "0", f"the commands run as uid {uid}, not as root")
    _, output = run("sh", "-c", 'exec "$SHELL" -lc "type -P tvmlab python && tvmlab --version"')
    places = ["/opt/tvmlab/bin/tvmlab", "/opt/tvmlab/bin/python"]
    check(output.splitlines()[:2] == places, "a terminal finds tvmlab and its python", output)
    code, output = run("make", "lab")
    refused = code != 0 and "without make" in output
    check(refused, "make does not install again, and says so", output)


def check_server() -> None:
    """Start the image's command, ask it with and without its token, and shut it down."""
    check_refused("while nothing serves")
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        line = [*RUNNER, *CONFIG["Cmd"]]
        server = subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True)
        try:
            deadline = time.monotonic() + START_SECONDS
            while (failed := health()[0]) and time.monotonic() < deadline and server.poll() is None:
                time.sleep(1)
            log.seek(0)
            output = log.read()
            check(not failed, "healthy while JupyterLab serves", output)
            found = re.search(r"(http://127\.0\.0\.1:8888)(/\S*)\?token=([0-9a-f]+)", output)
            check(found is not None, "the output gives the address with its token", output)
            assert found is not None
            base, path, token = found.groups()
            check(path == f"/lab/tree/{START}", f"the address leads to {START}")
            url = f"{base}/api/contents/{START}?content=0"
            check(status(url) == 403, "without the token the server refuses")
            check(status(url, token) == 200, "with the token it serves the notebook")
            check(status(f"{base}/api/shutdown", token, "POST") == 200, "it can be shut down")
            server.wait(timeout=30)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
    check_refused("after it was shut down")


def check_mapped_folder() -> None:
    """Map a folder in, as the image's user and as another one."""
    own = ("python", "-c", "import os, tvmlab; assert os.listdir() == []; print(tvmlab.__file__)")
    # The server writes to its home at once: the same call without HOME fails.
    other = ("sh", "-c", "touch mine && python -m jupyterlab --generate-config")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        options = ("--volume", f"{folder}:/home/lab/work")
        code, output = run(*own, options=options)
        whole = code == 0 and "/opt/tvmlab/" in output
        check(whole, "with a folder mapped in, the environment is whole", output)
        os.chown(folder, OTHER_USER, -1)
        options += ("--user", str(OTHER_USER), "--env", "HOME=/tmp")
        code, output = run(*other, options=options)
        check(code == 0, "another user can work in a folder of theirs", output)


def check_notebooks() -> None:
    """Compare notebooks 00 to 03, offline: there is no network in this namespace."""
    books = sorted(Path(__file__).resolve().parents[1].glob("notebooks/0[0-3]_*.ipynb"))
    check(len(books) == 4, "there are notebooks to compare")
    for book in books:
        code, output = run(
            *("python", "-m", "pytest", "--nbval", "--nbval-current-env"),
            *("--nbval-sanitize-with", "tests/sanitize.cfg", "--nbval-cell-timeout", "900"),
            *("-p", "no:cacheprovider", "-q", f"notebooks/{book.name}"),
        )
        counts = re.findall(r"^\d+ .* in [\d.]+s.*$", output, re.MULTILINE)
        check(code == 0, f"{book.name} compares equal: {''.join(counts)}", output)


for part in (check_user, check_server, check_mapped_folder, check_notebooks):
    part()
