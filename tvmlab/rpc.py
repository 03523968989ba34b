"""The commands ``tvmlab rpc-tracker`` and ``tvmlab rpc-server``: machines that measure for others.

A tracker knows which servers there are and which are free; a server runs what it is sent, one
client at a time. TVM's RPC has no password and no encryption.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys

from ._bare import command, environment
from ._rpc import listening, parse_address
from .errors import TuningError

__all__ = ["add_commands", "server", "tracker"]

TRUSTED = (
    "TVM's RPC runs whatever it is sent, for anybody who can reach the port: listen on trusted "
    "networks only."
)


def tracker(host: str, port: int) -> int:
    """Run TVM's tracker in this process until it is told to end (Ctrl-C, SIGTERM).

    Parameters
    ----------
    host : str
        The address to listen at.
    port : int
        The port; 0 for any that is free.

    Returns
    -------
    int
        The exit status.

    Raises
    ------
    TuningError
        The address cannot be listened at, or tornado is not installed.
    """
    try:
        from tvm.rpc import tracker as tvm_tracker
    except ImportError as error:
        raise TuningError(
            "TVM's tracker needs tornado.", where=str(error), fix="pip install 'tornado>=6.6'"
        ) from error
    listener = listening(host, port)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    found = listener.getsockname()
    print(f"tracking at {found[0]}:{found[1]}. {TRUSTED}", flush=True)
    try:
        # TVM's `Tracker` starts a process for it, to which it sends code by cloudpickle.
        tvm_tracker._tracker_server(listener, secrets.token_hex(16))
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
    return 0


def server(
    host: str, port: int, key: str, tracker: tuple[str, int] | None, device_seconds: float = 0.0
) -> list[str]:
    """Give the command that serves; `environment` of this package belongs to it.

    Parameters
    ----------
    host : str
        The address to listen at.
    port : int
        The port; 0 for any that is free.
    key : str
        What kind of device this is: who asks the tracker for the key gets such a server.
    tracker : (str, int) or None
        Where to say so.
    device_seconds : float
        Seconds that each measurement takes longer, simulated.

    Returns
    -------
    list of str
        The program and its arguments. It waits for a tracker that is not there yet.
    """
    where = ":".join(map(str, tracker)) if tracker else ""
    return command("tvmlab.rpc_server", host, str(port), key, where, str(max(0.0, device_seconds)))


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the two to a command line.

    Parameters
    ----------
    commands : argparse's sub-parsers
        Of the program `tvmlab`.
    """
    tracks = commands.add_parser(
        "rpc-tracker", help="know the RPC servers", description=f"Know the RPC servers. {TRUSTED}"
    )
    serves = commands.add_parser(
        "rpc-server",
        help="measure kernels for others",
        description=f"Measure kernels for others. {TRUSTED}",
    )
    for each, port in ((tracks, 9190), (serves, 0)):
        each.add_argument("--host", default="127.0.0.1", help="to listen at (%(default)s)")
        each.add_argument("--port", type=int, default=port, help="0 is any (%(default)s)")
    tracks.set_defaults(run=lambda told: tracker(told.host, told.port))
    serves.add_argument(
        "--key", default="tvmlab", help="the kind of this device; clients name it (%(default)s)"
    )
    serves.add_argument(
        "--tracker",
        metavar="HOST:PORT",
        help="who knows servers; without one, clients have to know this server's address",
    )
    serves.add_argument(
        "--device-seconds",
        type=float,
        default=0.0,
        metavar="S",
        help="simulate a slow device: each measurement takes S seconds more (%(default)s)",
    )
    serves.set_defaults(run=_serve)


def _serve(told: argparse.Namespace) -> int:
    from .target import host_target

    if not told.key or " " in told.key:
        raise TuningError("A key is a word.", where=repr(told.key), fix="--key my-laptop")
    found = None if told.tracker is None else parse_address(told.tracker)
    host_target()  # sets the number of threads in the environment
    # In place of this process, which has imported much that a server does not need.
    line = server(told.host, told.port, told.key, found, told.device_seconds)
    sys.stdout.flush()
    os.execve(line[0], line, environment({}))
