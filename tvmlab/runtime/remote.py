"""Run a package on another machine: upload it to an RPC server, call it and time it there.

`tvmlab rpc-server` starts a server, which clients reach through a tracker (`tvmlab rpc-tracker`) or
by its address. TVM's RPC has no password and no encryption, so use it on trusted networks only.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Self, TypeVar

import tvm
from tvm import relax, rpc
from tvm.error import RPCSessionTimeoutError

from ..errors import OutOfRangeError, RemoteError
from . import package
from .signature import Signature
from .timing import Measurement, expect_counts
from .tracker import DIED, LOAD_RUNTIMES, Tracker, parse_address, server_message

__all__ = ["RemoteExecutable"]

_Result = TypeVar("_Result")

# Time limits: for a server to be free, for the handshake, and for the message that a session
# has ended.
_PATIENCE_SECONDS, _GRACE_SECONDS = 30.0, 10.0
# A sample takes at least this long, so that the clock's resolution does not matter.
_SAMPLE_MILLISECONDS = 2


class RemoteExecutable:
    """A package that runs on an RPC server.

    Use it in a ``with`` block, or call `close`. Until then, the server serves no other client.

    Parameters
    ----------
    path : path
        A file that `tvmlab.Executable.save` wrote.
    The ``host:port`` of a tracker, which assigns a free server, or of a server without a tracker.
        The ``host:port`` of a tracker, which names a free server, or of a server without a tracker.
    key : str
        The server's key.
    session_seconds : float
        The longest time that the server is reserved. Then the server ends the session.

    Raises
    ------
    PackageError
        The file is missing or damaged.
    RemoteError
        An address is malformed, there is no answer, no server of the key is registered or free, or
        the server cannot run the package.
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
        self.signature = Signature(found.inputs, found.outputs, found.most)
        if odd := [str(output) for output in found.outputs if output.dtype in ("shape", "object")]:
            what = f"TVM's RPC carries only tensors, and the package returns {odd[0]}"
            raise RemoteError(what, where=str(path), fix="let the model return tensors")
        self._session_seconds = session_seconds + _GRACE_SECONDS
        self._where = f"{tracker or server}, key {key!r}"
        # The inputs of a call stay on the server until the call runs.
        self._one_at_a_time = threading.Lock()
        self._machine: Any = None
        self._device: Any = None
        address = self._server(tracker, server, key)
        session = self._answer(
            lambda: rpc.connect(*address, session_timeout=session_seconds), _PATIENCE_SECONDS
        )

        def start() -> None:
            if found.runtimes:
                session.get_function(LOAD_RUNTIMES)(" ".join(found.runtimes))
            session.upload(str(path), "package.so")
            loaded = session.load_module("package.so")
            session.remove("package.so")
            self._device = session.cpu(0)
            self._machine = relax.VirtualMachine(loaded, self._device)

        self._answer(start, self._session_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """Run ``main`` on the server.

        Inputs and results are those of `tvmlab.Executable`.

        Raises
        ------
        InputError
            An input does not match; `tvmlab.errors.OutOfRangeError` if an index is out of range.
        RemoteError
            The call failed on the server. If the connection is lost or the session is over, further
            calls fail, too.
        """

        def run() -> Any:
            self._machine.invoke_stateful("main")
            return self.signature.narrowed(_fetch(self._machine.module))

        return self._run(inputs, named, run)

    def time(
        self, /, *inputs: Any, repeats: int = 10, number: int | None = None, **named: Any
    ) -> Measurement:
        """Time ``main`` with the server's clock; the time to send arrays is not included.

        Parameters
        ----------
        *inputs, **named : array
            As in a call, with the same errors.
        repeats, number : int
            The number of samples, and of calls per sample; by default, as many as take 2 ms.
        """
        expect_counts(repeats=repeats, number=number)

        def run() -> Any:
            evaluator = self._machine.time_evaluator(
                "invoke_stateful",
                self._device,
                number=number or 1,
                repeat=repeats,
                min_repeat_ms=0 if number else _SAMPLE_MILLISECONDS,
            )
            return evaluator("main").results

        return Measurement(tuple(map(float, self._run(inputs, named, run))))

    def close(self) -> None:
        """End the session, so that the server is free for others; closing again does nothing."""
        self._machine = self._device = None

    def _server(self, tracker: str | None, server: str | None, key: str) -> tuple[str, int, str]:
        """Return the host and port to connect to, and the key to send."""
        if (tracker is None) == (server is None):
            fix = 'pass tracker="127.0.0.1:9190", or server= the address that it printed'
            raise self._error("a tracker or a server is needed, not both", fix)
        if server is not None:
            return (*parse_address(server), key)
        known = Tracker(str(tracker), key)
        known.expect()
        if (free := known.request(_PATIENCE_SECONDS)) is None:
            fix = "start another server of that key, or end the sessions that use them"
            raise self._error(f"no server was free in {_PATIENCE_SECONDS:g} s", fix)
        return free

    def _run(
        self, inputs: tuple[Any, ...], named: dict[str, Any], run: Callable[[], _Result]
    ) -> _Result:
        """Send the inputs and run a function with them."""
        arrays = self.signature.bind(inputs, named)

        def send_and_run() -> _Result:
            tensors = [
                tvm.runtime.empty(array.shape, value.stored, self._device).copyfrom(array)
                for array, value in zip(arrays, self.signature.inputs, strict=True)
            ]
            self._machine.set_input("main", *tensors)
            return run()

        with self._one_at_a_time:
            if self._machine is None:
                what = "it was closed, or the connection to its server was lost"
                raise self._error(what, "make a new RemoteExecutable")
            return self._answer(send_and_run, self._session_seconds)

    def _answer(self, ask: Callable[[], _Result], seconds: float) -> _Result:
        """Call a function of the server, with a time limit."""
        answer: Future[_Result] = Future()

        def wait() -> None:
            try:
                answer.set_result(ask())
            except Exception as error:
                # The traceback would keep the session and its tensors alive, and the server busy.
                answer.set_exception(error.with_traceback(None))

        threading.Thread(target=wait, daemon=True).start()
        try:
            error = answer.exception(seconds)
        except TimeoutError:
            raise self._lost(f"the server does not answer within {seconds:g} s") from None
        if error is None:
            return answer.result()
        message = server_message(error)
        if not message or isinstance(error, RPCSessionTimeoutError) or message.startswith(DIED):
            raise self._lost(_words(error)) from error
        # RPC does not transfer the error's class, but only checks in compiled code include a fix.
        what, _, rest = message.partition("\n  where: ")
        where, _, fix = rest.partition("\n  to do: ")
        kind = OutOfRangeError if fix and self._machine is not None else RemoteError
        raise kind(
            f"the call failed on the server: {what}",
            where=f"{self._where}: {where}" if where else self._where,
            fix=fix or "look at what the server printed",
        ) from error

    def _error(self, what: str, fix: str) -> RemoteError:
        return RemoteError(what, where=self._where, fix=fix)

    def _lost(self, what: str) -> RemoteError:
        self.close()
        fix = "look at what the server printed, or start one, and make a new RemoteExecutable"
        return self._error(what, fix)


def _words(error: BaseException) -> str:
    """Describe how a connection ended."""
    why = server_message(error) or str(error).strip() or type(error).__name__
    if "sock.Connect" in why:
        return "no server answers at this address"
    if "cannot find server that matches key" in why:
        return "the server was started with another key, or its reservation has expired"
    # Which of TVM's checks fails depends on the operation during which the connection ended.
    if "kShutdown" in why or "RPCCode::kReturn" in why:
        why = "it ended the connection"
    return f"lost the connection to the server: {why}"


def _fetch(machine: Any, *place: int) -> Any:
    """Copy the result of ``main``, or the field of a tuple at ``place``, to this machine.

    TVM's method ``get_outputs`` would keep the session in a reference cycle.
    """
    count = machine["get_output_arity"]("main", *place)
    if count == -1:
        return machine["get_output"]("main", *place).numpy()
    return tuple(_fetch(machine, *place, field) for field in range(count))
