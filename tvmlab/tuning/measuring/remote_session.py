"""A worker's part in measuring elsewhere: it links kernels, and talks with one server at a time.

The connection is TVM's, which waits for a server's answer for ever; in a worker's process it can be
ended.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm
from tvm import rpc
from tvm.support import cc

from ...runtime.tracker import abilities_of, server_message
from .kernels import Plan, Shapes, build, fingerprint, in_turn, inputs

__all__ = ["export", "run"]


def export(text: str, target: dict[str, Any], path: str, linker: str) -> dict[str, Any]:
    """Compile a kernel into a shared library.

    Parameters
    ----------
    text, target
        As `tvmlab.tuning.measuring.kernels.build` takes them.
    path : str
        The file to write.
    linker : str
        The C++ compiler to link with.

    Returns
    -------
    dict
        What `run` needs to know about the kernel.
    """
    made = build(text, target)
    made.module.export_library(path, fcompile=cc.create_shared, cc=linker)
    return {"path": path, "arguments": made.arguments, "outputs": made.outputs}


def run(
    server: tuple[str, int, str],
    target: dict[str, Any],
    kernels: list[dict[str, Any]],
    plan: Plan,
    rounds: int,
    session_seconds: float,
) -> dict[str, Any]:
    """Measure kernels on a server.

    Parameters
    ----------
    server : (str, int, str)
        Host, port, and the key that the tracker gave.
    target : dict
        What the kernels were compiled for, as TVM spells targets in JSON.
    kernels : list of dict
        From `export`.
    plan : Plan
        How to time.
    rounds : int
        0 to measure them one after the other; else how often to measure them alternately.
    session_seconds : float
        When the server must give up.

    Returns
    -------
    dict
        ``times`` and ``answers``, one entry a kernel, and ``cpu``, the server's processor, empty
        where it does not tell; or ``lost``, why the server is; or ``refused``, why it cannot run
        what is compiled for the target.

    Raises
    ------
    RuntimeError
        A kernel failed on the server.
    """
    try:
        session = rpc.connect(*server, session_timeout=session_seconds)
        told = abilities_of(session)
        if told and (why := told.why_unsupported(tvm.target.Target(target))):
            return {"refused": f"{told.cpu}: {why}"}
        found = _measured(session, kernels, plan, rounds)
        return {**found, "cpu": told.cpu if told else ""}
    except Exception as error:  # TVM has many for a connection that breaks
        if why := server_message(error):
            raise RuntimeError(why) from None
        return {"lost": str(error).strip() or type(error).__name__}


def _measured(
    session: Any, kernels: list[dict[str, Any]], plan: Plan, rounds: int
) -> dict[str, Any]:
    device = session.cpu(0)
    timed, answers = [], []
    for kernel in kernels:
        name = Path(kernel["path"]).name
        session.upload(kernel["path"], name)
        module = session.load_module(name)
        session.remove(name)  # the system keeps what is loaded; the folder goes with the session
        arrays = inputs(_shapes(kernel), tuple(kernel["outputs"]))
        tensors = [tvm.runtime.tensor(array, device) for array in arrays]
        module["main"](*tensors)
        answers.append(fingerprint([tensors[place].numpy() for place in kernel["outputs"]]))
        timed.append((module, device, tensors))
    return {"times": in_turn(timed, plan, rounds), "answers": answers}


def _shapes(kernel: dict[str, Any]) -> Shapes:
    return tuple((tuple(shape), dtype) for shape, dtype in kernel["arguments"])
