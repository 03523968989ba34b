"""What ``tvmlab rpc-tracker`` and ``tvmlab rpc-server`` run: machines that measure for others.

A tracker knows which servers there are and which are free; a server runs what it is sent, one
client at a time. TVM's RPC has no password and no encryption.
"""

from __future__ import annotations

import secrets
import signal
import sys

from ..errors import TuningError
from .bare import command
from .protocol import listening

__all__ = ["server", "tracker"]

TRUSTED = (
    "TVM's RPC runs whatever it is sent, for anybody who can reach the port: listen on trusted "
    "networks only."
)


def tracker(host: str, port: int) -> None:
    """Run TVM's tracker in this process until it is told to end (Ctrl-C, SIGTERM).

    Parameters
    ----------
    host : str
        The address to listen at.
    port : int
        The port; 0 for any that is free.

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
    return command(
        "tvmlab.runtime.rpc_server", host, str(port), key, where, str(max(0.0, device_seconds))
    )
