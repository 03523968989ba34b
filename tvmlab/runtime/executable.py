"""The result of `compile`: call it with arrays, time it, save it, load it again."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from ..errors import PackageError, TargetError
from ..ir import dialect as _dialect  # noqa: F401  It registers the errors that compiled code raises.
from ..schedule import Summary, Work
from ..support.host import host_target, missing_features, other_processor
from ..support.target import as_target, spelled
from ..support.toolchain import find_tool
from ..support.wording import telling
from . import library, package, profiling
from .signature import Signature
from .timing import Measurement, measure

__all__ = ["Executable", "load_executable"]


class Executable:
    """A compiled module.

    Attributes
    ----------
    target : tvm.target.Target
        The target that the module was compiled for.
    signature : Signature
        The inputs that a call takes.
    vm_executable : tvm.relax.VMExecutable or tvm.runtime.Module
        Upstream's object.
    work : mapping of str to tvmlab.schedule.Work
        The work of one call of each compiled function.
    """

    def __init__(
        self,
        built: Any,
        target: tvm.target.Target,
        signature: Signature,
        summary: Summary | None = None,
        work: Mapping[str, Work] | None = None,
        tir: tvm.ir.IRModule | None = None,
    ) -> None:
        self._summary, self._tir = summary, tir
        self.vm_executable, self.target, self.signature = built, target, signature
        self.work = dict(work or {})
        self._running: _VMSession | None = None
        # Two threads that use one virtual machine at once would crash the process.
        self._one_at_a_time = threading.Lock()

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.signature.inputs))
        others = [kind.removeprefix("tvmlab_") for kind in library.runtimes(self.vm_executable)]
        return f"Executable(main({inputs}) for {', '.join([*others, self.target.kind.name])})"

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """Run ``main``.

        Parameters
        ----------
        *inputs, **named : array
            One per parameter, by position or by name, with the shape and dtype of the `signature`.

        Returns
        -------
        numpy.ndarray or tuple
            Copies of the results; tuples stay tuples, and a shape is a tuple of int.

        Raises
        ------
        InputError
            An input does not match the signature.
        TargetError
            This machine cannot run code for the target.
        """
        arrays = self.signature.bind(inputs, named)
        with self._one_at_a_time:
            return (self._running or self._start())(arrays)

    def summary(self) -> Summary:
        """Return the rule that scheduled each function; `PackageError` for a loaded executable."""
        if self._summary is None:
            raise self._unknown()
        return self._summary

    def tir(self) -> tvm.ir.IRModule:
        """Return the scheduled TIR functions of the CPU, under the names that `summary` lists."""
        if self._tir is None:
            raise self._unknown()
        return self._tir

    def _unknown(self) -> PackageError:
        what = "a saved executable does not record how it was scheduled"
        fix = "use the executable that compile returned"
        return PackageError(what, where=repr(self), fix=fix)

    def time(
        self, /, *inputs: Any, repeats: int = 10, number: int | None = None, **named: Any
    ) -> Measurement:
        """Time ``main`` with `tvmlab.bench.measure`, with its inputs already on the device."""
        with self._ready(inputs, named) as (running, tensors):

            def once() -> None:
                running.main(*tensors)
                running.device.sync()

            return measure(once, repeats=repeats, number=number)

    def profile(self, /, *inputs: Any, repeats: int = 10, **named: Any) -> profiling.Profile:
        """Measure the time of each function of ``main``; see `tvmlab.profiling.profile`."""
        return profiling.profile(self, *inputs, repeats=repeats, **named)

    @contextlib.contextmanager
    def _ready(
        self, inputs: tuple[Any, ...], named: dict[str, Any]
    ) -> Iterator[tuple[_VMSession, list[Any]]]:
        """Lock the virtual machine for a block, and copy the inputs to its device."""
        arrays = self.signature.bind(inputs, named)
        with self._one_at_a_time:
            running = self._running or self._start()
            yield running, running.place(arrays)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        cross_compiler: str | None = None,
        cross_compiler_options: str = "",
    ) -> Path:
        """Write one file that `tvmlab.load_executable` reads in another process.

        The file is a shared library, which ``tvm.runtime.load_module`` loads too, with a
        description at its end (`tvmlab.package`).

        Parameters
        ----------
        path : path
            The file, whose name ends in ``.so``. It is written completely or not at all.
        cross_compiler, cross_compiler_options : str
            The C++ compiler that links for another kind of processor, such as
            ``"aarch64-linux-gnu-g++"``, and options for it, quoted as for a shell.

        Raises
        ------
        ToolchainError
            There is no such C++ compiler, or it failed.
        PackageError
            The name does not end in ``.so``, the file cannot be written, or the executable was
            loaded from one.
        """
        package.check_name(Path(path))
        return self.write(Path(path), cross_compiler, cross_compiler_options)

    def write(self, path: Path, cross_compiler: str | None = None, options: str = "") -> Path:
        """Write the package of `save` under any name; ``tvm.runtime.load_module`` needs ``.so``."""
        from .. import __version__

        if isinstance(self.vm_executable, tvm.runtime.Module):  # it comes from load_executable
            what = "an executable that was loaded from a file cannot be saved again"
            raise PackageError(what, where=str(path), fix="copy the file that it was loaded from")
        versions = {"tvmlab": __version__, "tvm": tvm.__version__, "tvm_ffi": tvm_ffi.__version__}
        description = package.Description(
            self.signature.inputs,
            self.signature.outputs,
            dict(self.signature.most),
            json.loads(str(self.target)),
            versions,
            tuple(library.runtimes(self.vm_executable)),
            {name: astuple(work) for name, work in self.work.items()},
        )
        compiler = cross_compiler and str(find_tool(cross_compiler).path)
        library.write(self.vm_executable, path, description, compiler, options)
        return path

    def _start(self) -> _VMSession:
        device = tvm.device("cpu" if self.target.kind.name == "llvm" else self.target.kind.name)
        absent = missing_features(self.target)
        if absent := absent or ("" if device.exist else f"a {self.target.kind.name} device"):
            what = f"this machine cannot run the module: it lacks {absent}"
            fix = "compile without a target, or run the saved module on a machine of that kind"
            raise TargetError(what, where=spelled(self.target), fix=fix)
        self._running = _VMSession(self.vm_executable, device, self.signature)
        # Return the memory that compiling and loading freed: 4 times ResNet-50's weights.
        with contextlib.suppress(AttributeError):  # only glibc has the function, and needs the call
            ctypes.CDLL(None).malloc_trim(0)
        return self._running


def load_executable(path: str | os.PathLike[str]) -> Executable:
    """Load a package that `Executable.save` wrote. It is code: load only packages that you trust.

    Raises
    ------
    PackageError
        The file is missing, damaged, of another format, or made for another machine.
    TargetError
        The file is intact, but this TVM does not know its target.
    ToolchainError
        It uses the accelerator of `tvmlab.npu`, whose simulator cannot be built here.
    """
    path = Path(path)
    found = package.describe(path)
    work = {name: Work(*fields) for name, fields in found.work.items()}
    made = as_target(found.target)
    on_cpu = made.kind.name == "llvm"
    if on_cpu and (alien := other_processor(made)):
        raise _not_loaded(path, made, f"it is for {alien}")
    if found.versions["tvm"].split(".")[:2] != tvm.__version__.split(".")[:2]:
        what = f"compiled with TVM {found.versions['tvm']}, but this is {tvm.__version__}"
        advice = f"{path} was {what}: if it does not run, compile the model again"
        warnings.warn(advice, RuntimeWarning, stacklevel=2)
    library.load_runtimes(found.runtimes)
    if on_cpu:
        host_target()  # sets the number of threads before the first kernel runs
    try:
        module = library.load(path)
    except Exception as error:  # the system's loader, with its own message
        raise _not_loaded(path, made, telling(error)) from error
    return Executable(module, made, Signature(found.inputs, found.outputs, found.most), work=work)


def _not_loaded(path: Path, target: tvm.target.Target, why: str) -> PackageError:
    what = f"the library cannot be loaded here: {why}"
    fix = "load it on a machine of that kind, or compile the model again for this one"
    return PackageError(what, where=f"{path}, made for {target}", fix=fix)


class _VMSession:
    """A virtual machine that has started: `main`, its device, and a buffer for each input."""

    def __init__(self, built: Any, device: Any, signature: Signature) -> None:
        self.device = device
        self.machine = relax.VirtualMachine(built, device)
        # Looked up once, because a look-up costs more than the rest of a small network's call.
        self.main = self.machine["main"]
        self._signature = signature
        self._dtypes = [value.stored for value in signature.inputs]
        self._buffers: list[Any] = [None] * len(self._dtypes)

    def __call__(self, arrays: list[np.ndarray]) -> Any:
        return self._signature.narrowed(self._copied(self.main(*self.place(arrays))))

    def place(self, arrays: list[np.ndarray]) -> list[Any]:
        """Copy arrays to tensors, which the next call overwrites.

        Compiled code needs data that begin at a multiple of 64 bytes, which NumPy does not promise.
        """
        for number, array in enumerate(arrays):
            if (buffer := self._buffers[number]) is None or buffer[0].shape != array.shape:
                tensor = tvm.runtime.empty(array.shape, self._dtypes[number], self.device)
                buffer = self._buffers[number] = tensor, _seen(tensor)
            tensor, seen = buffer
            if seen is None:
                tensor.copyfrom(array)
            else:
                np.copyto(seen, array)
        return [tensor for tensor, _ in self._buffers]

    def _copied(self, value: Any) -> Any:
        if isinstance(value, tvm.runtime.Tensor):
            # A copy even on the CPU: it can be an input, a constant, or in a tuple twice.
            seen = _seen(value)
            return value.numpy() if seen is None else seen.copy()
        if value is None or isinstance(value, (int, float)):
            return value
        return tuple(self._copied(item) for item in value)


def _seen(tensor: Any) -> np.ndarray | None:
    """View a tensor as an array; None if NumPy cannot, as on a GPU or for bfloat16."""
    try:
        array = np.from_dlpack(tensor)
    except (RuntimeError, BufferError):
        return None
    return array if array.flags.writeable else None  # NumPy 2.0 returns read-only arrays
