"""One file over HTTP: resumed, bounded in size and time, with a progress bar."""

from __future__ import annotations

import contextlib
import http.client
import importlib
import os
import re
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

__all__ = ["CONNECT_SECONDS", "LOOPBACK", "Broken", "Unreachable", "download"]

#: How long to wait for a host to answer at all, name look-up included.
CONNECT_SECONDS = 3.0
#: Hosts that plain http is allowed to, and that no proxy stands in front of.
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_READ_SECONDS = 15.0  # a transfer that stalls for longer is given up; what came is kept
_ATTEMPTS = 4  # of one address, each going on where the last one broke
_CHUNK = 1 << 18


class Unreachable(Exception):
    """The host did not answer: no network, as far as this address goes."""


class Broken(Exception):
    """The host answered, and the file still did not come whole."""


def download(url: str, part: Path, size: int, *, label: str) -> bool:
    """Complete the file `part` from an address.

    Parameters
    ----------
    url : str
        The address, https or a loopback http one.
    part : Path
        The file to complete. What it holds already is taken to be the beginning.
    size : int
        The length of the whole file in bytes.
    label : str
        What to call it in the progress line.

    Returns
    -------
    bool
        True if bytes that an earlier call or attempt left were kept: a wrong checksum may then
        come from two different files, and a fresh start may mend it.

    Raises
    ------
    Unreachable
        If the host does not answer within `CONNECT_SECONDS`.
    Broken
        If it refuses, answers with something else, or breaks off again and again.
    OSError
        If `part` cannot be written.
    """
    _probe(url)
    resumed = False
    for attempt in range(_ATTEMPTS):
        have = part.stat().st_size if part.exists() else 0
        if have > size:
            part.unlink()
            have = 0
        if have == size:
            return True
        resumed = resumed or have > 0
        try:
            if not _transfer(url, part, size, have, label):
                resumed = False
        except _Interrupted as error:
            if attempt == _ATTEMPTS - 1:
                kept = part.stat().st_size if part.exists() else 0
                raise Broken(
                    f"the transfer broke {_ATTEMPTS} times, last with: {error}; "
                    f"the first {kept} bytes are kept for the next time"
                ) from error
        else:
            return resumed
    raise AssertionError("unreachable: the last attempt returns or raises")


class _Interrupted(Exception):
    """A transfer ended early in a way that another attempt may mend."""


def _transfer(url: str, part: Path, size: int, have: int, label: str) -> bool:
    """Run one request; True if the server went on from byte `have`."""
    headers = {"User-Agent": "tvmlab", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)
    proxies = None if _proxy(url) else urllib.request.ProxyHandler({})
    opener = urllib.request.build_opener(_SafeRedirects(), *filter(None, [proxies]))
    try:
        with opener.open(request, timeout=_READ_SECONDS) as answer:
            follows = have > 0 and _continues(answer, have, size)
            declared = answer.headers.get("Content-Length")
            if not follows and declared and declared.isdigit() and int(declared) != size:
                raise Broken(f"the server offers {declared} bytes instead of {size}")
            with part.open("ab" if follows else "wb") as file:
                _copy(answer, file, have if follows else 0, size, label)
                file.flush()
                os.fsync(file.fileno())
            return follows
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and have:
            # The server's file is shorter than what is here: start again.
            part.unlink()
            raise _Interrupted("the server has no such range") from error
        if error.code in (408, 429, 500, 502, 503, 504):
            raise _Interrupted(f"HTTP {error.code} {error.reason}") from error
        raise Broken(f"HTTP {error.code} {error.reason}") from error
    except TimeoutError as error:
        raise Broken(f"the server was silent for {_READ_SECONDS:.0f} s") from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise Broken(f"the server was silent for {_READ_SECONDS:.0f} s") from error
        raise _Interrupted(str(error.reason)) from error
    except (http.client.HTTPException, ConnectionError, ssl.SSLError) as error:
        raise _Interrupted(str(error) or type(error).__name__) from error


def _continues(answer: http.client.HTTPResponse, have: int, size: int) -> bool:
    """Whether an answer goes on from byte `have` of the same file."""
    if answer.status != 206:
        return False
    span = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", answer.headers.get("Content-Range", ""))
    if span is None or int(span[1]) != have or span[3] not in (str(size), "*"):
        raise Broken("the server answered with another range than the one asked for")
    return True


def _copy(
    answer: http.client.HTTPResponse, file: IO[bytes], start: int, size: int, label: str
) -> None:
    got = start
    with _progress(label, start, size) as advance:
        while chunk := answer.read(_CHUNK):
            got += len(chunk)
            if got > size:
                file.truncate(0)
                raise Broken(f"the server sends more than the {size} bytes expected")
            file.write(chunk)
            advance(len(chunk))
    if got < size:
        raise _Interrupted(f"it ended after {got} of {size} bytes")


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follow a redirect only where it is as safe as the address that gave it."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        here, there = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        same_host = here.scheme == there.scheme and here.hostname == there.hostname
        if there.scheme != "https" and not same_host:
            raise Broken(f"it redirects to an address that is not https: {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _proxy(url: str) -> tuple[str, int] | None:
    """Host and port of the proxy that the environment names for an address, if any."""
    parts = urllib.parse.urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    host = parts.hostname or ""
    if not proxy or host in LOOPBACK or urllib.request.proxy_bypass(host):
        return None
    via = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return via.hostname or "", via.port or (443 if via.scheme == "https" else 80)


def _probe(url: str) -> None:
    """Find out quickly whether the host, or the proxy in front of it, answers at all.

    `urlopen`'s own timeout does not bound the name look-up, which can hang for half a minute on a
    machine without a network; a thread that is not waited for does.
    """
    parts = urllib.parse.urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if via := _proxy(url):
        host, port = via
    outcome: list[OSError | None] = []

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
            outcome.append(None)
        except OSError as error:
            outcome.append(error)

    thread = threading.Thread(target=connect, daemon=True, name="tvmlab-probe")
    thread.start()
    thread.join(CONNECT_SECONDS)
    if not outcome:
        raise Unreachable(f"{host} did not answer within {CONNECT_SECONDS:.0f} s")
    if outcome[0] is not None:
        raise Unreachable(f"{host} cannot be reached ({outcome[0]})") from outcome[0]


@contextlib.contextmanager
def _progress(label: str, start: int, size: int) -> Iterator[Callable[[int], object]]:
    """A tqdm bar where somebody may watch it, else one line in ten seconds."""
    watched = sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")
    if watched:
        with contextlib.suppress(ImportError):
            tqdm = importlib.import_module("tqdm").tqdm
            with tqdm(
                total=size, initial=start, desc=label, unit="B", unit_scale=True, leave=False
            ) as bar:
                yield bar.update
                return
    state = {"got": start, "said": time.monotonic()}

    def advance(count: int) -> None:
        state["got"] += count
        if time.monotonic() - state["said"] >= 10:
            state["said"] = time.monotonic()
            print(f"{label}: {state['got'] / size:.0%} of {size / 1e6:.1f} MB", file=sys.stderr)

    yield advance
