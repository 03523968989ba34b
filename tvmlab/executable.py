"""What `compile` returns: call it with arrays, time it, save it, load it again."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from . import bench
from .errors import InputError, PackageError, TargetError, ToolchainError
from .target import as_target, missing_features

__all__ = ["Executable", "Input", "Signature", "load_executable"]

_FORMAT = 1
_LIBRARY, _METADATA = "lib.so", "metadata.json"
# More than any library that TVM links in one piece; a damaged header cannot ask for more.
_MOST_BYTES = 4 << 30


@dataclass(frozen=True)
class Input:
    """One input of a function.

    Attributes
    ----------
    name : str
        The parameter's name.
    shape : tuple of int or str
        Sizes; a name is a size only known at run time, equal wherever the name is equal.
    dtype : str
        For example ``"float32"``.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    def __str__(self) -> str:
        """Write it like a declaration."""
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Signature:
    """The inputs that a function takes, in order."""

    inputs: tuple[Input, ...]

    @classmethod
    def of(cls, func: relax.Function) -> Signature:
        """Read the signature off a Relax function whose parameters are tensors."""
        inputs = []
        for param in func.params:
            if not isinstance(param.ty, relax.TensorType) or param.ty.shape is None:
                raise InputError(
                    f"parameter {param.name!r} is not a tensor of known rank: {param.ty}",
                    where="main",
                    fix="pass tensors; bind other parameters before compiling",
                )
            shape = tuple(
                int(dim) if isinstance(dim, (int, tvm.tirx.IntImm)) else str(dim)
                for dim in param.ty.shape
            )
            inputs.append(Input(param.name, shape, str(param.ty.dtype)))
        return cls(tuple(inputs))

    def bind(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> list[np.ndarray]:
        """Put a call's arguments in order and check them.

        Returns
        -------
        list of numpy.ndarray
            One a parameter, contiguous.

        Raises
        ------
        InputError
            A name, the number, a shape or a dtype does not fit.
        """
        names = [value.name for value in self.inputs]
        if len(args) > len(names):
            raise self._error(f"{len(args)} inputs were given, {len(names)} are taken")
        given = dict(zip(names, args, strict=False))
        for name, value in named.items():
            if name not in names:
                raise self._error(f"there is no input named {name!r}")
            if name in given:
                raise self._error(f"input {name!r} was given twice, by place and by name")
            given[name] = value
        absent = [name for name in names if name not in given]
        if absent:
            raise self._error(f"input {absent[0]!r} is missing")
        sizes: dict[str, int] = {}
        return [self._check(value, given[value.name], sizes) for value in self.inputs]

    def _check(self, declared: Input, value: Any, sizes: dict[str, int]) -> np.ndarray:
        array = np.asarray(value)
        if str(array.dtype) != declared.dtype:
            raise self._error(
                f"input {declared.name!r} is of dtype {array.dtype}, not {declared.dtype}",
                fix=f'convert it: {declared.name}.astype("{declared.dtype}")',
            )
        fits = len(array.shape) == len(declared.shape) and all(
            # A name stands for the first size that it meets.
            size == (sizes.setdefault(want, size) if isinstance(want, str) else want)
            for size, want in zip(array.shape, declared.shape, strict=True)
        )
        if not fits:
            raise self._error(
                f"input {declared.name!r} has shape {array.shape}, "
                f"not ({', '.join(map(str, declared.shape))})",
                fix="reshape the input, or compile the model for this shape: "
                f"tvmlab.load(model, shapes={{{declared.name!r}: {array.shape}}})",
            )
        return np.ascontiguousarray(array)

    def _error(self, what: str, fix: str | None = None) -> InputError:
        takes = ", ".join(map(str, self.inputs)) or "no inputs"
        return InputError(what, where=f"main({takes})", fix=fix or f"it takes {takes}")


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

    def __init__(self, built: Any, target: tvm.target.Target, signature: Signature) -> None:
        self.vm_executable = built
        self.target = target
        self.signature = signature
        self._machine: relax.VirtualMachine | None = None

    def __repr__(self) -> str:
        """Say the inputs and the target."""
        inputs = ", ".join(map(str, self.signature.inputs))
        return f"Executable(main({inputs}) for {self.target.kind.name})"

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run ``main``.

        Parameters
        ----------
        *inputs, **named : array
            One a parameter, by place or by name; shape and dtype must be those of the
            `signature`.

        Returns
        -------
        numpy.ndarray or tuple
            What ``main`` returns; tuples stay tuples.

        Raises
        ------
        InputError
            An input does not fit.
        TargetError
            This machine cannot run what the module was compiled for.
        """
        arrays = self.signature.bind(inputs, named)
        machine, device = self._start()
        return _to_numpy(machine["main"](*(tvm.runtime.tensor(a, device) for a in arrays)))

    def time(
        self, *inputs: Any, repeats: int = 10, number: int | None = None, **named: Any
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
        """
        path = Path(path)
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / _LIBRARY
            try:
                self.vm_executable.export_library(str(library))
            except Exception as error:
                raise ToolchainError(
                    f"the library could not be linked: {str(error).strip().splitlines()[0]}",
                    where=str(path),
                    fix="install a C++ compiler (Debian: apt-get install g++)",
                ) from error
            metadata = {
                "format": _FORMAT,
                "tvm": tvm.__version__,
                "target": json.loads(str(self.target)),
                "inputs": [asdict(value) for value in self.signature.inputs],
                "sha256": hashlib.sha256(library.read_bytes()).hexdigest(),
            }
            part = path.with_name(f".{path.name}.{os.getpid()}.part")
            try:
                with tarfile.open(part, "w") as archive:
                    content = json.dumps(metadata, indent=1).encode()
                    entry = tarfile.TarInfo(_METADATA)
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
                    archive.add(library, _LIBRARY)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
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
        The file is missing, damaged, or of another format. Like any program, the library in it
        can run code: load only files whose source you trust.
    """
    path = Path(path)
    try:
        with tarfile.open(path, "r:") as archive:
            metadata = json.loads(_member(archive, _METADATA, 1 << 20))
            library = _member(archive, _LIBRARY, _MOST_BYTES)
        inputs = tuple(
            Input(str(value["name"]), tuple(value["shape"]), str(value["dtype"]))
            for value in metadata["inputs"]
        )
        version, target, checksum = metadata["format"], metadata["target"], metadata["sha256"]
    except FileNotFoundError as error:
        raise PackageError("there is no such file", where=str(path)) from error
    except (OSError, tarfile.TarError, ValueError, KeyError, TypeError) as error:
        raise PackageError(
            f"this is not a file that Executable.save wrote, or it is damaged: {error}",
            where=str(path),
            fix="save the executable again",
        ) from error
    if version != _FORMAT:
        raise PackageError(
            f"the file's format is {version!r}, this tvmlab reads {_FORMAT}",
            where=str(path),
            fix="save the executable again with this version",
        )
    if hashlib.sha256(library).hexdigest() != checksum:
        raise PackageError(
            "the library's checksum is wrong: the file is damaged",
            where=str(path),
            fix="save or copy it again",
        )
    made = as_target(target)
    # The host's threads are set before the first kernel runs, as when it was compiled here.
    if made.kind.name == "llvm":
        as_target(None)
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / _LIBRARY
        unpacked.write_bytes(library)
        module = tvm.runtime.load_module(str(unpacked))
    return Executable(module, made, Signature(inputs))


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


def _to_numpy(value: Any) -> Any:
    """Copy what the virtual machine returned to NumPy; tuples stay tuples."""
    if hasattr(value, "numpy"):
        return value.numpy()
    return tuple(_to_numpy(item) for item in value)
