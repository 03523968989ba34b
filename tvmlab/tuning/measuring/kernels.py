"""Kernels as a worker holds them: compiled in memory, run on seeded inputs, timed.

Only tvm and numpy are imported here, so that a worker starts without the rest of the package.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import s_tir

__all__ = [
    "Kernel",
    "Plan",
    "Shapes",
    "build",
    "fingerprint",
    "in_turn",
    "inputs",
    "measure",
    "written",
]

Shapes = tuple[tuple[tuple[int, ...], str], ...]
"""What a kernel is called with: the shape and the dtype of each tensor."""

_FULL_RANGE = {"int8": (-128, 128), "uint8": (0, 256)}
# What is in each byte of an output of places or counts before a kernel runs: no kernel writes it by
# accident, as it may write zeros.
_UNWRITTEN = b"\x5a"


@dataclass(frozen=True)
class Plan:
    """How to time: see `tvmlab.tuning.measure.Measure`."""

    number: int
    repeat: int
    min_repeat_ms: int
    cache_flush: bool

    def evaluator(self, module: Any, device: Any, repeat: int) -> Any:
        """Give TVM's timer of the function ``main``, here or on a server."""
        return module.time_evaluator(
            "main",
            device,
            number=self.number,
            repeat=repeat,
            min_repeat_ms=self.min_repeat_ms,
            f_preproc="cache_flush_cpu_non_first_arg" if self.cache_flush else "",
        )


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel.

    Attributes
    ----------
    module : tvm.runtime.Module
        The code.
    arguments : tuple of (shape, dtype)
        What it is called with.
    outputs : tuple of int
        The places of those that it writes.
    """

    module: Any
    arguments: Shapes
    outputs: tuple[int, ...]


def build(text: str, target: dict[str, Any]) -> Kernel:
    """Compile a kernel.

    Parameters
    ----------
    text : str
        A module of one TIR function ``main``, as ``tvm.ir.save_json`` writes it.
    target : dict
        What to compile for, as TVM spells targets in JSON.

    Returns
    -------
    Kernel
        LLVM's module; machine code is made when its function is first asked for.

    Raises
    ------
    ValueError
        The function's parameters are not tensors of known shapes.
    Exception
        Whatever TVM and LLVM find wrong.
    """
    module = tvm.ir.load_json(text)
    function = module["main"]
    arguments = []
    for parameter in function.params:
        if not isinstance(parameter.ty, tvm.tirx.BufferType) or not all(
            isinstance(extent, int | tvm.tirx.IntImm) for extent in parameter.shape
        ):
            raise ValueError(f"the parameter {parameter.name} is not a tensor of a known shape")
        shape = tuple(int(extent) for extent in parameter.shape)
        arguments.append((shape, str(parameter.dtype)))
    outputs = written(function)
    compiled = tvm.tirx.build(module, target=tvm.target.Target(target))
    return Kernel(compiled, tuple(arguments), outputs)


def written(function: Any) -> tuple[int, ...]:
    """Find the parameters that a function's blocks write; the last one where none says so."""
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


@functools.lru_cache(maxsize=2)  # the candidates of a task, one after the other, take the same
def inputs(arguments: Shapes, outputs: tuple[int, ...]) -> list[NDArray[Any]]:
    """Make what a kernel is called with; the same for the same arguments, outputs too.

    Parameters
    ----------
    arguments : tuple of (shape, dtype)
        From `Kernel`.
    outputs : tuple of int
        From `Kernel`.

    Returns
    -------
    list of array
        Floating-point numbers between -1 and 1, all that int8 and uint8 have, zeros in other types:
        those are places and counts, and a wrong one would reach outside of a tensor. Outputs of
        other types have a pattern, for what a kernel leaves unwritten is no zero then.
    """
    made: list[NDArray[Any]] = []
    for place, (shape, dtype) in enumerate(arguments):
        random = np.random.default_rng(place)
        if dtype in _FULL_RANGE:
            made.append(random.integers(*_FULL_RANGE[dtype], shape, dtype=dtype))
        elif "float" in dtype:
            floats = random.random(shape, dtype=np.float32) * 2 - 1
            made.append(floats.astype(_numpy(dtype)))
        elif place not in outputs:
            made.append(np.zeros(shape, dtype))
        elif dtype == "bool":
            made.append(random.integers(0, 2, shape, dtype=bool))
        else:
            size = np.dtype(dtype).itemsize
            made.append(np.full(shape, np.frombuffer(_UNWRITTEN * size, dtype)[0]))
    return made


def _numpy(dtype: str) -> Any:
    if dtype in ("float16", "float32", "float64"):
        return dtype
    import ml_dtypes  # bfloat16 and the types of eight bits

    return getattr(ml_dtypes, dtype)


@functools.lru_cache(maxsize=4)
def _signs(size: int) -> NDArray[np.float64]:
    return np.random.default_rng(size).choice(np.array([-1.0, 1.0]), size)


def fingerprint(outputs: Sequence[NDArray[Any]]) -> list[float]:
    """Give two numbers an output that tell whether two kernels computed the same.

    Parameters
    ----------
    outputs : sequence of array
        What a kernel wrote.

    Returns
    -------
    list of float
        For each, the sum of its magnitudes and a sum weighted by seeded signs, in float64. What is
        not a number, or infinite, counts as several times all the others together, so that it has
        to stand in the same places.
    """
    numbers: list[float] = []
    for output in outputs:
        flat = output.astype(np.float64).ravel()
        if not np.isfinite(flat).all():
            much = 1 + float(np.abs(flat[np.isfinite(flat)]).sum())
            flat = np.nan_to_num(flat, nan=3.1 * much, posinf=5.3 * much, neginf=-7.7 * much)
        numbers += [float(np.abs(flat).sum()), float(flat @ _signs(flat.size))]
    return numbers


def measure(kernels: Sequence[Kernel], plan: Plan, rounds: int) -> dict[str, Any]:
    """Run kernels and time them.

    Parameters
    ----------
    kernels : sequence of Kernel
        From `build`.
    plan : Plan
        How.
    rounds : int
        As in `in_turn`.

    Returns
    -------
    dict
        ``times``, the seconds of a call in each sample, and ``answers``, the fingerprints; one
        entry a kernel.
    """
    timed, answers = [], []
    for kernel in kernels:
        arrays = inputs(kernel.arguments, kernel.outputs)
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        kernel.module["main"](*tensors)
        answers.append(fingerprint([tensors[place].numpy() for place in kernel.outputs]))
        timed.append((kernel.module, tvm.cpu(), tensors))
    return {"times": in_turn(timed, plan, rounds), "answers": answers}


def in_turn(
    timed: Sequence[tuple[Any, Any, Sequence[Any]]], plan: Plan, rounds: int
) -> list[list[float]]:
    """Time kernels, here or on a server.

    Parameters
    ----------
    timed : sequence of (module, device, tensors)
        The kernels and what they are called with.
    plan : Plan
        How.
    rounds : int
        0 to time one after the other, `Plan.repeat` samples each; else so many rounds with a sample
        of each kernel, every other round from the last on.

    Returns
    -------
    list of list of float
        Seconds a call, by kernel.
    """
    repeat = 1 if rounds else plan.repeat
    timers = [plan.evaluator(module, device, repeat) for module, device, _ in timed]
    times: list[list[float]] = [[] for _ in timed]
    for turn in range(max(1, rounds)):
        order = range(len(timed))
        for place in order if turn % 2 == 0 else reversed(order):
            found = timers[place](*timed[place][2])
            times[place] += [float(seconds) for seconds in found.results]
    return times
