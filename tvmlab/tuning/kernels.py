"""Measure kernels: the options, the outcomes, and the steps from a module to times."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import s_tir
from tvm.ir import IRModule

from ..errors import TuningError
from ..schedule.apply import finish
from ..schedule.lowered import PIPELINE

# The arguments of a kernel: the shape and the dtype of each tensor.
Shapes = tuple[tuple[tuple[int, ...], str], ...]

_FULL_RANGE = {"int8": (-128, 128), "uint8": (0, 256)}
# The initial value of each byte of an integer output: no kernel writes it by accident.
_UNWRITTEN = b"\x5a"


def expect_number(name: str, value: object, least: float, *, whole: bool = True) -> None:
    """Raise TuningError unless a parameter is a number in its range."""
    fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not (fits and least <= value < math.inf):  # type: ignore[operator]
        wanted = f"a {'whole ' if whole else ''}number of at least {least:g}"
        raise TuningError(
            f"{name} is {value!r}, not {wanted}", fix=f"pass {wanted}, or leave {name} out"
        )


@dataclass(frozen=True)
class Measure:
    """Options for measuring kernels, like AutoTVM's ``LocalRunner`` and ``LocalBuilder``.

    Attributes
    ----------
    number, repeat : int
        Calls per sample, and samples per kernel.
    min_repeat_ms : int
        The least time of a sample in milliseconds; `number` is raised to reach it.
    timeout, build_timeout : float
        Time limits in seconds for running a kernel, and for compiling it.
    cache_flush : bool
        Whether all arguments but the first are flushed from the caches before each sample, as for
        a layer in the middle of a network (``enable_cpu_cache_flush``). Only the first call of a
        sample is then cold, so `number` should be 1.

    Raises
    ------
    TuningError
        A value has the wrong type, or is out of its range.
    """

    number: int = 1
    repeat: int = 8
    min_repeat_ms: int = 0
    timeout: float = 10.0
    build_timeout: float = 10.0
    cache_flush: bool = True

    def __post_init__(self) -> None:
        """Reject options with which no kernel can be measured."""
        for name, least in (("number", 1), ("repeat", 1), ("min_repeat_ms", 0)):
            expect_number(name, getattr(self, name), least)
        for name in ("timeout", "build_timeout"):
            expect_number(name, getattr(self, name), 1e-3, whole=False)

    @property
    def how(self) -> str:
        """The use of the clock; results with another value are not comparable."""
        flushed = "flushed" if self.cache_flush else "warm"
        return f"number {self.number}, {self.min_repeat_ms} ms, {flushed}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of measuring one kernel.

    Attributes
    ----------
    times, error : tuple of float, str
        Seconds per call, one number per sample; or why the kernel failed, in one or more lines.
    answer : tuple of float
        A fingerprint of the kernel's result for seeded inputs: two numbers per output. Kernels of
        the same function agree up to rounding. Empty if it was not computed.
    cpu : str
        The processor that it ran on, by its vendor's name; empty if that is this machine's, or if
        an RPC server does not report it.
    """

    times: tuple[float, ...] = ()
    error: str = ""
    answer: tuple[float, ...] = ()
    cpu: str = ""


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel, its arguments, and the indices of its outputs."""

    module: Any
    arguments: Shapes
    outputs: tuple[int, ...]


def build(text: str, target: dict[str, Any]) -> Kernel:
    """Compile a module of one TIR function ``main``, as ``tvm.ir.save_json`` writes it."""
    function = tvm.ir.load_json(text)["main"]
    arguments = tuple(
        (tuple(int(extent) for extent in parameter.shape), str(parameter.dtype))
        for parameter in function.params
    )
    module = IRModule({"main": finish(function)})
    compiled = tvm.tirx.build(module, target=tvm.target.Target(target), pipeline=PIPELINE)
    compiled.get_function("main")  # LLVM generates the machine code here
    return Kernel(compiled, arguments, written(function))


def written(function: Any) -> tuple[int, ...]:
    """Return the parameters that a function's blocks write; by default, the last one."""
    written: list[Any] = []

    def look(block: Any) -> None:
        written.extend(region.source for region in block.writes)

    tvm_ffi.structural_walk(function.body, (s_tir.SBlock, look))
    places = [
        place
        for place, parameter in enumerate(function.params)
        if any(buffer.same_as(parameter) for buffer in written)
    ]
    return tuple(places) or (len(function.params) - 1,)


@functools.lru_cache(maxsize=2)  # consecutive candidates of a task have the same arguments
def inputs(arguments: Shapes, outputs: tuple[int, ...]) -> list[NDArray[Any]]:
    """Make the arguments of a kernel, the same for equal shapes; outputs included.

    Floating-point numbers are between -1 and 1, int8 and uint8 take all of their values, and other
    inputs are zeros: they can be indices and counts, and a wrong one would access invalid memory.
    """
    made: list[NDArray[Any]] = []
    for place, (shape, dtype) in enumerate(arguments):
        random = np.random.default_rng(place)
        if dtype in _FULL_RANGE:
            made.append(random.integers(*_FULL_RANGE[dtype], shape, dtype=dtype))
        elif "float" in dtype:  # TVM imports the package that defines bfloat16 and similar types
            made.append((random.random(shape, dtype=np.float32) * 2 - 1).astype(dtype))
        elif place not in outputs:
            made.append(np.zeros(shape, dtype))
        elif dtype == "bool":
            made.append(random.integers(0, 2, shape, dtype=bool))
        else:
            size = np.dtype(dtype).itemsize
            made.append(np.full(shape, np.frombuffer(_UNWRITTEN * size, dtype)[0]))
    return made


@functools.lru_cache(maxsize=4)
def _signs(size: int) -> NDArray[np.float64]:
    return np.random.default_rng(size).choice(np.array([-1.0, 1.0]), size)


def fingerprint(outputs: Sequence[NDArray[Any]]) -> list[float]:
    """Return two numbers per output that agree for kernels with the same result.

    They are the sum of the magnitudes and a sum weighted by seeded signs, in float64. A NaN or an
    infinity counts as several times all the others together, so that its position matters.
    """
    numbers: list[float] = []
    for output in outputs:
        flat = output.astype(np.float64).ravel()
        if not np.isfinite(flat).all():
            much = 1 + float(np.abs(flat[np.isfinite(flat)]).sum())
            flat = np.nan_to_num(flat, nan=3.1 * much, posinf=5.3 * much, neginf=-7.7 * much)
        numbers += [float(np.abs(flat).sum()), float(flat @ _signs(flat.size))]
    return numbers


def measure(
    kernels: Sequence[Kernel], how: Measure, rounds: int, session: Any = None
) -> list[Outcome]:
    """Run kernels and time them, here or in a session with an RPC server, from paths of libraries.

    Without `rounds`, kernels are timed sequentially; else each round takes a sample of each
    kernel, and every other round goes from the last kernel to the first.
    """
    device = tvm.cpu() if session is None else session.cpu(0)
    timed, answers = [], []
    for kernel in kernels:
        module = kernel.module if session is None else _uploaded(session, kernel.module)
        arrays = inputs(kernel.arguments, kernel.outputs)
        tensors = [tvm.runtime.tensor(array, device) for array in arrays]
        module["main"](*tensors)
        answers.append(fingerprint([tensors[place].numpy() for place in kernel.outputs]))
        timer = module.time_evaluator(
            "main",
            device,
            number=how.number,
            repeat=1 if rounds else how.repeat,
            min_repeat_ms=how.min_repeat_ms,
            f_preproc="cache_flush_cpu_non_first_arg" if how.cache_flush else "",
        )
        timed.append((timer, tensors))
    times: list[list[float]] = [[] for _ in timed]
    for turn in range(max(1, rounds)):
        order = range(len(timed))
        for place in order if turn % 2 == 0 else reversed(order):
            timer, tensors = timed[place]
            times[place] += [float(seconds) for seconds in timer(*tensors).results]
    return [Outcome(tuple(t), "", tuple(a)) for t, a in zip(times, answers, strict=True)]


def _uploaded(session: Any, path: str) -> Any:
    name = Path(path).name
    session.upload(path, name)
    Path(path).unlink()
    module = session.load_module(name)
    session.remove(name)  # a loaded library stays in memory; the session's folder is deleted
    return module
