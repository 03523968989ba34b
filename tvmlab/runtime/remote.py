"""Running a package on another machine: uploaded to an RPC server, called and timed there.

Servers are started with ``tvmlab rpc-server``, and found through a tracker (``tvmlab rpc-tracker``)
or by their address. TVM's RPC has no password and no encryption: trusted networks only.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import tvm
from tvm import relax, rpc
from tvm.error import RPCError, RPCSessionTimeoutError

from ..errors import InputError, RemoteError, TargetError
from ..ir.signature import Signature
from ..support.target import ABILITIES, Abilities, as_target
from . import package
from .protocol import LOAD_PACKAGE, parse_address
from .timing import Measurement
from .tracker import Tracker

__all__ = ["RemoteExecutable"]

_Result = TypeVar("_Result")

# How long a server may take to be free and to shake hands.
_PATIENCE_SECONDS = 30.0
# How long a session's end may take to come through.
_GRACE_SECONDS = 10.0
# A sample takes at least this long, so that the clock's resolution does not count.
_SAMPLE_MILLISECONDS = 2


class RemoteExecutable:
    """A package that runs on an RPC server.

    Parameters
    ----------
    path : path
        What `tvmlab.Executable.save` wrote.
    tracker : str, optional
        The ``host:port`` of a tracker, which names a server that is free.
    server : str, optional
        The ``host:port`` of a server that no tracker offers, instead.
    key : str
        What kind of server it is, or shall be.
    session_seconds : float
        How long the server is taken for, at most; then it is free again, whatever runs.

    Attributes
    ----------
    target : tvm.target.Target
        What it was compiled for.
    signature : Signature
        The inputs that a call takes.
    cpu : str
        The server's processor.

    Raises
    ------
    PackageError
        The file is missing or damaged.
    TargetError
        The server cannot run what the package was compiled for.
    TuningError
        An address is none, or there is no tracker.
    RemoteError
        No server is free, it does not answer, or it is not one of tvmlab's; or the package returns
        something else than tensors.

    Notes
    -----
    Use it in a ``with`` block, or call `close`: until then the server serves nobody else.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        tracker: str | None = None,
        server: str | None = None,
        key: str = "tvmlab",
        session_seconds: float = 3600.0,
    ) -> None:
        found = package.describe(path)
        self.signature = Signature(found.inputs, found.outputs)
        self.target = as_target(found.target)
        if odd := [str(output) for output in found.outputs if output.dtype in ("shape", "object")]:
            raise RemoteError(
                f"it returns something else than tensors, which TVM's RPC does not carry: {odd[0]}",
                where=str(path),
                fix="let the model return tensors",
            )
        self._session_seconds = session_seconds
        self._where = f"{tracker or server}, key {key!r}"
        # The inputs of a call stay on the server until it runs.
        self._one_at_a_time = threading.Lock()
        self._machine: Any = None
        self._device: Any = None
        address = self._server(tracker, server, key)
        session = self._answer(
            lambda: rpc.connect(*address, session_timeout=session_seconds), _PATIENCE_SECONDS
        )
        self.cpu = self._expect_able(session)
        self._answer(lambda: self._load(session, Path(path)))

    def __repr__(self) -> str:
        """Say the inputs, and where."""
        inputs = ", ".join(map(str, self.signature.inputs))
        return f"RemoteExecutable(main({inputs}) at {self._where})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """Run ``main`` on the server.

        Parameters
        ----------
        *inputs, **named : array
            One a parameter, as of `tvmlab.Executable`; they are sent to the server.

        Returns
        -------
        numpy.ndarray or tuple
            What ``main`` returns; tuples stay tuples.

        Raises
        ------
        InputError
            An input does not fit.
        RemoteError
            The server is lost, it failed, or the session is over.
        """
        arrays = self.signature.bind(inputs, named)

        def run() -> Any:
            self._place(arrays)
            self._machine.invoke_stateful("main")
            return _fetched(self._machine.module)

        with self._one_at_a_time:
            self._expect_open()
            return self._answer(run)

    def time(
        self, /, *inputs: Any, repeats: int = 10, number: int | None = None, **named: Any
    ) -> Measurement:
        """Time ``main`` on the server, by the server's clock: nothing is sent meanwhile.

        Parameters
        ----------
        *inputs, **named : array
            As in a call.
        repeats : int
            Samples.
        number : int, optional
            Calls in a sample; as many as take 2 ms if not given.

        Returns
        -------
        tvmlab.bench.Measurement

        Raises
        ------
        InputError
            An input does not fit, or a number is not positive.
        RemoteError
            As of a call.
        """
        if repeats < 1 or (number is not None and number < 1):
            raise InputError(
                "repeats and number are at least 1",
                where=f"time(repeats={repeats}, number={number})",
                fix="leave them out for 10 samples of at least 2 ms",
            )
        arrays = self.signature.bind(inputs, named)

        def run() -> Any:
            self._place(arrays)
            evaluator = self._machine.time_evaluator(
                "invoke_stateful",
                self._device,
                number=number or 1,
                repeat=repeats,
                min_repeat_ms=0 if number else _SAMPLE_MILLISECONDS,
            )
            return evaluator("main").results

        with self._one_at_a_time:
            self._expect_open()
            return Measurement(tuple(map(float, self._answer(run))))

    def close(self) -> None:
        """Let the server go; do it as often as you like."""
        self._machine = self._device = None

    def _server(self, tracker: str | None, server: str | None, key: str) -> tuple[str, int, str]:
        """Find out whom to connect to: host, port, and what to say."""
        if (tracker is None) == (server is None):
            raise RemoteError(
                "a tracker or a server is needed, and not both",
                where=f"RemoteExecutable(tracker={tracker!r}, server={server!r})",
                fix='give tracker="127.0.0.1:9190", or the address that the server printed',
            )
        if server is not None:
            return (*parse_address(server), key)
        known = Tracker(str(tracker), key)
        known.expect()
        if (free := known.request(_PATIENCE_SECONDS)) is None:
            raise RemoteError(
                f"no server was free in {_PATIENCE_SECONDS:g} s",
                where=self._where,
                fix="start another server of that key, or end who uses them",
            )
        return free

    def _expect_able(self, session: Any) -> str:
        """See to it that the server can run the package; name its processor."""

        def ask() -> Abilities | None:
            try:
                session.get_function(LOAD_PACKAGE)
                return Abilities.read(str(session.get_function(ABILITIES)()))
            except AttributeError:  # there is no such function
                return None

        able = self._answer(ask)
        if able is None:
            raise RemoteError(
                "the server is not one of tvmlab's, and cannot load packages",
                where=self._where,
                fix="start one there: tvmlab rpc-server",
            )
        if why := able.why_unsupported(self.target):
            raise TargetError(
                f"the server cannot run the module: {why}",
                where=f"{self._where}: {able.cpu}",
                fix="compile for the server's processor",
            )
        return able.cpu

    def _load(self, session: Any, path: Path) -> None:
        name = "package.so"
        session.upload(str(path), name)
        loaded = session.get_function(LOAD_PACKAGE)(name)
        session.remove(name)
        self._device = session.cpu(0)
        self._machine = relax.VirtualMachine(loaded, self._device)

    def _place(self, arrays: list[np.ndarray]) -> None:
        """Send the inputs."""
        tensors = [
            tvm.runtime.empty(array.shape, value.dtype, self._device).copyfrom(array)
            for array, value in zip(arrays, self.signature.inputs, strict=True)
        ]
        self._machine.set_input("main", *tensors)

    def _answer(self, ask: Callable[[], _Result], seconds: float | None = None) -> _Result:
        """Ask the server for something, and do not wait longer than the session lasts.

        TVM's client waits for ever, so it waits in a thread, which stays behind where no answer
        comes.
        """
        if seconds is None:
            seconds = self._session_seconds + _GRACE_SECONDS
        answers: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()

        def wait() -> None:
            try:
                answers.put((ask(), None))
            except Exception as error:
                answers.put((None, error))

        threading.Thread(target=wait, daemon=True).start()
        try:
            answer, error = answers.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise self._lost(f"it does not answer within {seconds:g} s") from None
        if error is None:
            result: _Result = answer
            return result
        self.close()
        raise self._lost(_words(error)) from error

    def _expect_open(self) -> None:
        if self._machine is None:
            raise RemoteError(
                "it was closed, or its server was lost",
                where=self._where,
                fix="make a new RemoteExecutable",
            )

    def _lost(self, why: str) -> RemoteError:
        if "sock.Connect" in why:
            return RemoteError(
                "no server answers at this address",
                where=self._where,
                fix="start one with tvmlab rpc-server, and check its address and port",
            )
        return RemoteError(
            f"lost the connection to the server: {why}",
            where=self._where,
            fix="look at what the server printed; then make a new RemoteExecutable",
        )


def _words(error: Exception) -> str:
    """Say what a server's error says; TVM wraps it more than once."""
    text = str(error).strip()
    if isinstance(error, RPCSessionTimeoutError):
        return text.rpartition("RPCSessionTimeoutError: ")[2]
    # Which of TVM's checks fails depends on what was under way when the connection ended.
    if "kShutdown" in text or "RPCCode::kReturn" in text:
        return "it ended the connection"
    if isinstance(error, RPCError):
        return text.partition("Error caught from RPC call:")[2].strip() or text
    return text or type(error).__name__


def _fetched(machine: Any, *place: int) -> Any:
    """Fetch what ``main`` returned; ``place`` leads to a field of a tuple.

    Upstream's `get_outputs` leaves a cycle behind, which would keep the server after `close`.
    """
    count = machine["get_output_arity"]("main", *place)
    if count == -1:
        return machine["get_output"]("main", *place).numpy()
    return tuple(_fetched(machine, *place, field) for field in range(count))
