"""Close the network to every Python process that is started with this folder on PYTHONPATH.

Python imports `sitecustomize` at start-up, so kernels, their children and every tool written in
Python are covered. An audit hook refuses the operation itself: it also sees calls that go around
the `socket` module's classes, and it cannot be taken off again. Only where an address holds a name
does the hook come late, after the look-up; the methods of `socket.socket` refuse that before it.
Programs that are not Python are sent to a proxy that does not answer.

Loopback and Unix sockets stay open: kernels, RPC servers and local web servers need them.
"""

import functools
import importlib.machinery
import importlib.util
import os
import socket
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_CLOSED_PROXY = "http://127.0.0.1:9"  # The discard port: no process listens, so it refuses at once.
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_TO_ADDRESS = ("socket.connect", "socket.sendto", "socket.sendmsg")
_TO_HOST = (
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.gethostbyaddr",
    "socket.getnameinfo",
)


def _is_loopback(host):
    """Say whether `host`, a name or an address as the socket functions take it, is this machine."""
    if host is None:
        return True
    if isinstance(host, (bytes, bytearray)):
        host = bytes(host).decode("ascii", "replace")
    if not isinstance(host, str):
        return False
    host = host.split("%")[0].lower().removeprefix("::ffff:")
    if host in ("", "localhost", "ip6-localhost", "::1", "::", "0.0.0.0"):
        return True
    parts = host.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdigit() for part in parts)


def _refuse(event, host):
    if not _is_loopback(host):
        raise OSError(f"network closed by the tests: {event} to {host!r}")


def _guard(event, arguments):
    """Refuse what leaves the machine; runs at every audited event, so it decides fast."""
    if not event.startswith("socket."):
        return
    if event in _TO_ADDRESS:
        sock, address = arguments
        if address is not None and sock.family in _INTERNET:
            _refuse(event, address[0])
    elif event in _TO_HOST:
        _refuse(event, arguments[0][0] if event == "socket.getnameinfo" else arguments[0])


def _guarded(name, position):
    """Return the method of `socket.socket` with the guard before the look-up of the address."""
    method = getattr(socket.socket, name)

    @functools.wraps(method)
    def checked(self, *arguments):
        address = arguments[position:]
        # What is not an address is left to the method itself to refuse.
        if address and isinstance(address[0], tuple) and address[0]:
            _guard(f"socket.{name.removesuffix('_ex')}", (self, address[0]))
        return method(self, *arguments)

    return checked


def _close():
    """Install the guards and point other programs at the proxy that does not answer."""
    sys.addaudithook(_guard)
    # The place of the address among the arguments; in sendto it is the last one.
    for name, position in {"connect": 0, "connect_ex": 0, "sendto": -1, "sendmsg": 3}.items():
        setattr(socket.socket, name, _guarded(name, position))
    for name in ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy"):
        os.environ[name] = os.environ[name.upper()] = _CLOSED_PROXY
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "localhost,127.0.0.1,::1"


def _load_shadowed():
    """Run the sitecustomize that this one hides, if there is one."""
    others = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_close()
_load_shadowed()
