"""``tvmlab rpc-tracker`` and ``tvmlab rpc-server``: machines that measure for others."""

from __future__ import annotations

import argparse
import sys

from . import arguments

__all__ = ["add"]

TRUSTED = (
    "TVM's RPC runs whatever it is sent, for anybody\nwho can reach the port: listen on trusted "
    "networks only."
)
TRACKER = "tvmlab rpc-tracker --port 9190"
SERVER = "tvmlab rpc-server --key tvmlab --tracker 127.0.0.1:9190"


def add(commands: arguments.Commands) -> None:
    """Add the two commands."""
    about = f"Know the RPC servers.\n\n{TRUSTED}"
    tracks = arguments.command(commands, "rpc-tracker", _track, about, TRACKER, answers=False)
    about = f"Measure kernels for others, and run packages.\n\n{TRUSTED}"
    serves = arguments.command(commands, "rpc-server", _serve, about, SERVER, answers=False)
    for each, port in ((tracks, 9190), (serves, 0)):
        each.add_argument("--host", default="127.0.0.1", help="to listen at (%(default)s)")
        each.add_argument("--port", type=int, default=port, help="0 is any (%(default)s)")
    serves.add_argument(
        "--key",
        default=arguments.KEY,
        help="the kind of this device; clients name it (%(default)s)",
    )
    serves.add_argument(
        "--tracker",
        metavar="HOST:PORT",
        help="who knows servers; without one, clients name this server's address: "
        "`tvmlab run --rpc-server`",
    )
    serves.add_argument(
        "--device-seconds",
        type=float,
        default=0.0,
        metavar="S",
        help="simulate a slow device: each measurement takes S seconds more (%(default)s)",
    )


def _track(told: argparse.Namespace) -> None:
    from ..rpc import tracker

    tracker(told.host, told.port)


def _serve(told: argparse.Namespace) -> None:
    import os

    from .._bare import environment
    from .._rpc import parse_address
    from ..errors import TuningError
    from ..rpc import server
    from ..target import host_target

    if not told.key or " " in told.key:
        raise TuningError("A key is a word.", where=repr(told.key), fix="--key my-laptop")
    found = None if told.tracker is None else parse_address(told.tracker)
    host_target()  # sets the number of threads in the environment
    # In place of this process, which has imported much that a server does not need.
    line = server(told.host, told.port, told.key, found, told.device_seconds)
    sys.stdout.flush()
    os.execve(line[0], line, environment({}))
