"""What `compile` returns: call it with arrays, time it, save it, load it again."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from . import bench
from ._files import whole
from .errors import PackageError, TargetError, ToolchainError
from .schedule import Summary
from .signature import Input, Signature
from .target import as_target, host_target, missing_features

__all__ = ["Executable", "load_executable"]

_FORMAT = 1
_LIBRARY, _METADATA = "lib.so", "metadata.json"
# More than any library that TVM links in one piece; a damaged header cannot ask for more.
_MOST_BYTES = 4 << 30
# Standard error is the whole process's: who swaps it while another thread has swapped it would
# put back that thread's file.
_STDERR_LOCK = threading.Lock()


class Executable:
    """A compiled module.

    Attributes
    ----------
    target : tvm.target.Target
        What it was compiled for.
    signature : Signature
        The inputs that a call takes.
    vm_executable : tvm.relax.VMExecutable or tvm.runtime.Module
        Upstream's object, for everything that upstream can do with it.
    """

    def __init__(
        self,
        built: Any,
        target: tvm.target.Target,
        signature: Signature,
        summary: Summary | None = None,
    ) -> None:
        self._summary = summary
        self.vm_executable = built
        self.target = target
        self.signature = signature
        self._machine: relax.VirtualMachine | None = None
        # Upstream's virtual machine keeps its frames in itself: two threads in it at once end
        # the process.
        self._one_at_a_time = threading.Lock()

    def __repr__(self) -> str:
        """Say the inputs and the target."""
        inputs = ", ".join(map(str, self.signature.inputs))
        return f"Executable(main({inputs}) for {self.target.kind.name})"

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """Run ``main``.

        Parameters
        ----------
        *inputs, **named : array
            One a parameter, by place or by name; shape and dtype must be those of the
            `signature`.

        Returns
        -------
        numpy.ndarray or tuple
            What ``main`` returns; tuples stay tuples, and a shape is a tuple of int. The arrays
            are the caller's own.

        Raises
        ------
        InputError
            An input does not fit.
        TargetError
            This machine cannot run what the module was compiled for.

        Notes
        -----
        Threads may share an executable: their calls run one after the other.
        """
        arrays = self.signature.bind(inputs, named)
        with self._one_at_a_time:
            machine, device = self._start()
            return _to_numpy(machine["main"](*(tvm.runtime.tensor(a, device) for a in arrays)))

    def summary(self) -> Summary:
        """Say which rule scheduled which function.

        Returns
        -------
        tvmlab.schedule.Summary
            Print it: functions, how often each is called, the rule that took it or why none did,
            and the changes of layout that are left.

        Raises
        ------
        PackageError
            The executable was loaded from a file, which holds machine code only.
        """
        if self._summary is None:
            raise PackageError(
                "a saved executable does not tell how it was scheduled",
                where=repr(self),
                fix="ask the executable that compile returned",
            )
        return self._summary

    def time(
        self, /, *inputs: Any, repeats: int = 10, number: int | None = None, **named: Any
    ) -> bench.Measurement:
        """Time ``main``, with its inputs already on the device.

        Parameters
        ----------
        *inputs, **named : array
            As in a call.
        repeats, number : int
            Samples, and calls in a sample; see `tvmlab.bench.measure`.

        Returns
        -------
        tvmlab.bench.Measurement
        """
        arrays = self.signature.bind(inputs, named)
        with self._one_at_a_time:
            machine, device = self._start()
            main = machine["main"]
            tensors = [tvm.runtime.tensor(array, device) for array in arrays]

            def once() -> None:
                main(*tensors)
                device.sync()

            return bench.measure(once, repeats=repeats, number=number)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one file that `tvmlab.load_executable` reads in another process.

        Parameters
        ----------
        path : path
            Where to write; the usual ending is ``.tar``. The file appears whole or not at all.

        Returns
        -------
        pathlib.Path
            The file: a tar archive of the linked library and of its metadata (inputs, target,
            versions, checksum).

        Raises
        ------
        ToolchainError
            There is no C++ compiler to link with.
        PackageError
            The file cannot be written, or the executable was itself loaded from one.
        """
        path = Path(path)
        if isinstance(self.vm_executable, tvm.runtime.Module):  # load_executable made it
            raise PackageError(
                "an executable that was loaded from a file cannot be saved again",
                where=str(path),
                fix="copy the file that it was loaded from",
            )
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / _LIBRARY
            try:
                with _without_scope_lines():
                    self.vm_executable.export_library(str(library))
            except Exception as error:
                found = tvm.support.cc.get_cc()  # None would be reported as a type error
                said = [line for line in str(error).splitlines() if ": " in line]
                reason = said[0] if found and said else "no compiler is here"
                raise ToolchainError(
                    f"the library could not be linked: {reason}",
                    where=f"{path}, for {self.target}",
                    fix="install a C++ compiler (Debian: apt-get install g++); for another kind "
                    "of processor, save on such a machine",
                ) from error
            code = library.read_bytes()
        metadata: dict[str, Any] = {
            "format": _FORMAT,
            "tvm": tvm.__version__,
            "target": json.loads(str(self.target)),
            "inputs": [asdict(value) for value in self.signature.inputs],
        }
        metadata["sha256"] = _checksum(metadata, code)
        members = {_METADATA: json.dumps(metadata, indent=1).encode(), _LIBRARY: code}
        try:
            with whole(path) as part, tarfile.open(part, "w") as archive:
                for name, content in members.items():
                    entry = tarfile.TarInfo(name)
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
        except (OSError, ValueError) as error:  # ValueError: no path has a null character
            raise PackageError(
                f"the file cannot be written: {getattr(error, 'strerror', error)}",
                where=str(path),
                fix="choose an existing folder that you may write to and that has space",
            ) from error
        return path

    def _start(self) -> tuple[relax.VirtualMachine, Any]:
        """Start the virtual machine on the target's device, once."""
        device = tvm.device("cpu" if self.target.kind.name == "llvm" else self.target.kind.name)
        if self._machine is None:
            absent = missing_features(self.target)
            if absent or not device.exist:
                raise TargetError(
                    f"this machine cannot run the module: it lacks {absent}"
                    if absent
                    else f"this machine has no {self.target.kind.name} device",
                    where=str(self.target),
                    fix="compile for this machine by leaving the target out, or save the module "
                    "and run it where the target is",
                )
            self._machine = relax.VirtualMachine(self.vm_executable, device)
        return self._machine, device


def load_executable(path: str | os.PathLike[str]) -> Executable:
    """Read what `Executable.save` wrote.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    Executable

    Raises
    ------
    PackageError
        The file is missing, damaged, of another format, or made for another machine. Like any
        program, the library in it can run code: load only files whose source you trust.
    TargetError
        The file is whole, and this TVM does not know its target.
    """
    path = Path(path)
    try:
        with tarfile.open(path, "r:") as archive:
            metadata = json.loads(_member(archive, _METADATA, 1 << 20))
            library = _member(archive, _LIBRARY, _MOST_BYTES)
        if metadata["format"] != _FORMAT:
            raise PackageError(
                f"the file's format is {metadata['format']!r}, this tvmlab reads {_FORMAT}",
                where=str(path),
                fix="save the executable again with this version",
            )
        if metadata.pop("sha256") != _checksum(metadata, library):
            raise PackageError(
                "the checksum is wrong: the file is damaged",
                where=str(path),
                fix="save or copy it again",
            )
        inputs = tuple(
            Input(str(value["name"]), tuple(value["shape"]), str(value["dtype"]))
            for value in metadata["inputs"]
        )
        target = metadata["target"]
    except FileNotFoundError as error:
        raise PackageError(
            "there is no such file", where=str(path), fix="check the path"
        ) from error
    except (
        *(OSError, tarfile.TarError, ValueError, KeyError, TypeError),
        *(AttributeError, OverflowError, RecursionError),
    ) as error:
        raise PackageError(
            f"this is not a file that Executable.save wrote, or it is damaged: {error}",
            where=str(path),
            fix="save the executable again",
        ) from error
    made = as_target(target)
    # The host's threads are set before the first kernel runs, as when it was compiled here.
    if made.kind.name == "llvm":
        host_target()
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / _LIBRARY
        unpacked.write_bytes(library)
        try:
            with _without_scope_lines():
                module = tvm.runtime.load_module(str(unpacked))
        except Exception as error:  # the system's loader, in words of its own
            raise PackageError(
                f"the library cannot be loaded here: {str(error).strip().splitlines()[-1]}",
                where=f"{path}, made for {made}",
                fix="load it on a machine of that kind, or compile the model again for this one",
            ) from error
    return Executable(module, made, Signature(inputs))


def _checksum(metadata: Mapping[str, Any], library: bytes) -> str:
    """Compute what a saved file says of itself: SHA-256 over its metadata and its library."""
    text = json.dumps(metadata, sort_keys=True).encode()
    return hashlib.sha256(text + b"\0" + library).hexdigest()


def _member(archive: tarfile.TarFile, name: str, most: int) -> bytes:
    """Read one member into memory: nothing is unpacked, so no path can lead out of a folder."""
    entry = archive.getmember(name)
    if not entry.isfile() or entry.size > most:
        raise ValueError(f"{name} is not a file of at most {most} bytes")
    content = archive.extractfile(entry)
    data = content.read() if content else b""
    if len(data) != entry.size:
        raise ValueError(f"{name} is cut off")
    return data


@contextlib.contextmanager
def _without_scope_lines() -> Iterator[None]:
    """Drop two lines of TVM's that are no warnings.

    Its executable.cc logs "Warning: Scope Saving:" and "Scope Loaded:" whenever constants are
    written or read, straight to the process's standard error. Everything else passes through,
    when the block ends; a second thread waits until then.
    """
    with _STDERR_LOCK, tempfile.TemporaryFile() as caught:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            caught.seek(0)
            for line in caught:
                if b"Warning: Scope Saving:" not in line and b"Warning: Scope Loaded:" not in line:
                    os.write(2, line)


def _to_numpy(value: Any) -> Any:
    """Copy what the virtual machine returned to NumPy; tuples stay tuples, numbers numbers."""
    if hasattr(value, "numpy"):
        return value.numpy()
    if isinstance(value, (int, float)):
        return value
    return tuple(_to_numpy(item) for item in value)
