"""The network is closed to Python, its children and its kernels; this machine stays open."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from nbformat.v4 import new_notebook

from notebooks import execute, offline_environment
from tests.notebooks.checked import code

CLOSED = "network closed by the tests"
# 192.0.2.0/24 and 2001:db8::/32 are set aside for documentation: no host ever has one.
REFUSED = {
    "connect": "socket.create_connection(('192.0.2.1', 80))",
    "connect by name": "socket.create_connection(('localhost.example.org', 80))",
    "around the socket module": "import _socket; _socket.socket().connect(('192.0.2.1', 80))",
    "sendto": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
    "getaddrinfo": "socket.getaddrinfo('example.org', 443)",
    "gethostbyname": "socket.gethostbyname('example.org')",
    "urllib": "import urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://192.0.2.1')",
    "a child": "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'import socket;"
    ' socket.create_connection(("192.0.2.1", 80))\'], capture_output=True, text=True).stderr)',
}
LOOPBACK = """
import http.server, socket, threading, urllib.request

server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").status)
print(urllib.request.urlopen(f"http://localhost:{server.server_port}/").status)
print(len(socket.getaddrinfo("localhost", 80)) > 0, len(socket.getaddrinfo(None, 80)) > 0)
receiver = socket.socket(type=socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
socket.socket(type=socket.SOCK_DGRAM).sendto(b"datagram", receiver.getsockname())
print(receiver.recv(100).decode())
"""


def python(source: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", source],
        env=offline_environment() | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_every_way_out_is_closed(tmp_path: Path) -> None:
    source = f"""
import contextlib, io, json, socket
said = {{}}
for name, code in {REFUSED!r}.items():
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(code, {{"socket": socket}})
    except OSError as error:
        out.write(str(error))
    said[name] = out.getvalue()
print(json.dumps(said))
"""
    run = python(source, tmp_path)
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    assert set(said) == set(REFUSED)
    assert [name for name, text in said.items() if CLOSED not in text] == []


def test_this_machine_stays_open(tmp_path: Path) -> None:
    run = python(LOOPBACK, tmp_path)
    assert run.stdout.split() == ["200", "200", "True", "True", "datagram"], run.stderr


def test_a_kernel_is_offline_and_so_are_its_children(tmp_path: Path) -> None:
    notebook = new_notebook()
    child = "import socket; socket.getaddrinfo('example.org', 1)"
    notebook.cells = [
        code("way-out", "import socket\nsocket.getaddrinfo('example.org', 1)",
             tags=("raises-exception",)),
        code("child", f"import subprocess, sys\ncommand = [sys.executable, '-c', {child!r}]\n"
             "print(subprocess.run(command, capture_output=True, text=True).stderr)"),
        code("shell", f"!{sys.executable} -c \"{child}\""),
    ]  # fmt: skip
    execute(notebook, tmp_path)
    said = [str(cell.outputs) for cell in notebook.cells]
    assert [CLOSED in text for text in said] == [True] * 3, said
