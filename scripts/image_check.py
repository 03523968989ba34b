"""Test a built image from outside: its user, its server with the health check, and the notebooks.

    python3 image_check.py IMAGE.json RUNNER...

`IMAGE.json` is the output of `buildah inspect`. `RUNNER...` followed by a command runs this command
in the image. `image-test.sh` calls this script in a network namespace with only 127.0.0.1. The
script uses only the standard library, because it runs with the system's Python.
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
    """Print the result of a check, and end the script if the check failed."""
    if not holds:
        sys.exit(f"  NOT {what}\n{output[:6000]}")
    print(f"  ok  {what}", flush=True)


def run(*command: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run a command in the image with options of `buildah run`; return exit status and output."""
    at = RUNNER.index("run") + 1
    line = [*RUNNER[:at], *options, *RUNNER[at:], *command]
    done = subprocess.run(line, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def health() -> tuple[int, str]:
    """Run the health check of the image; return exit status and output."""
    return run(*CONFIG["Healthcheck"]["Test"][1:])


def check_refused(when: str) -> None:
    """Check that the health check fails because no server answers, not for another reason."""
    code, output = health()
    check(code != 0 and "Connection refused" in output, f"unhealthy {when}", output)


def status(url: str, token: str = "", method: str = "GET") -> int:
    """Send a request to the server and return the HTTP status."""
    headers = {"Authorization": f"token {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def check_user() -> None:
    """Check the user id, and the programs that JupyterLab's terminal (a login $SHELL) finds."""
    uid = run("id", "-u")[1].strip()
    check(uid.isdigit() and uid != "0", f"the commands run as uid {uid}, not as root")
    _, output = run("sh", "-c", 'exec "$SHELL" -lc "type -P tvmlab python && tvmlab --version"')
    places = ["/opt/tvmlab/bin/tvmlab", "/opt/tvmlab/bin/python"]
    check(output.splitlines()[:2] == places, "a terminal finds tvmlab and its Python", output)
    code, output = run("make", "lab")
    refused = code != 0 and "without make" in output
    check(refused, "make lab refuses to install again and explains why", output)


def check_server() -> None:
    """Start the image's command, send requests with and without the token, and shut it down."""
    check_refused("before the server starts")
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        line = [*RUNNER, *CONFIG["Cmd"]]
        server = subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True)
        try:
            deadline = time.monotonic() + START_SECONDS
            while (failed := health()[0]) and time.monotonic() < deadline and server.poll() is None:
                time.sleep(1)
            log.seek(0)
            output = log.read()
            check(not failed, "healthy while JupyterLab runs", output)
            found = re.search(r"(http://127\.0\.0\.1:8888)(/\S*)\?token=([0-9a-f]+)", output)
            check(found is not None, "the output contains the address with its token", output)
            assert found is not None
            base, path, token = found.groups()
            check(path == f"/lab/tree/{START}", f"the address leads to {START}")
            url = f"{base}/api/contents/{START}?content=0"
            check(status(url) == 403, "without the token the server refuses")
            check(status(url, token) == 200, "with the token it sends the notebook")
            check(status(f"{base}/api/shutdown", token, "POST") == 200, "it shuts down on request")
            server.wait(timeout=30)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
    check_refused("after the server has shut down")


def check_mapped_folder() -> None:
    """Mount a folder as the image's user and as another user."""
    own = ("python", "-c", "import os, tvmlab; assert os.listdir() == []; print(tvmlab.__file__)")
    # The server writes to its home directory, so this command fails without HOME.
    other = ("sh", "-c", "touch mine && python -m jupyterlab --generate-config")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        options = ("--volume", f"{folder}:/home/lab/work")
        code, output = run(*own, options=options)
        complete = code == 0 and "/opt/tvmlab/" in output
        check(complete, "the environment is complete with a folder mounted", output)
        os.chown(folder, OTHER_USER, -1)
        options += ("--user", str(OTHER_USER), "--env", "HOME=/tmp")
        code, output = run(*other, options=options)
        check(code == 0, "another user can work in a mounted folder", output)


def check_notebooks() -> None:
    """Compare notebooks 00 to 03 without a network, which this namespace does not have."""
    books = sorted(Path(__file__).resolve().parents[1].glob("notebooks/0[0-3]_*.ipynb"))
    check(len(books) == 4, "the four notebooks exist")
    for book in books:
        code, output = run(
            *("python", "-m", "pytest", "--nbval", "--nbval-current-env"),
            *("--nbval-sanitize-with", "tests/sanitize.cfg", "--nbval-cell-timeout", "900"),
            *("-p", "no:cacheprovider", "-q", f"notebooks/{book.name}"),
        )
        counts = re.findall(r"^\d+ .* in [\d.]+s.*$", output, re.MULTILINE)
        check(code == 0, f"{book.name} has the committed outputs: {''.join(counts)}", output)


for part in (check_user, check_server, check_mapped_folder, check_notebooks):
    part()
