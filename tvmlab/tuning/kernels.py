"""Kernels: compiled in memory, run on seeded inputs, and timed, here or on a server."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import s_tir

from .measure import Measure

__all__ = ["Kernel", "build", "fingerprint", "inputs", "measure", "written"]

Shapes = tuple[tuple[tuple[int, ...], str], ...]
"""What a kernel is called with: the shape and the dtype of each tensor."""

_FULL_RANGE = {"int8": (-128, 128), "uint8": (0, 256)}
# What is in each byte of an output of places or counts before a kernel runs: no kernel writes it by
# accident, as it may write zeros.
_UNWRITTEN = b"\x5a"


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel, what it is called with, and the places of what it writes."""

    module: Any
    arguments: Shapes
    outputs: tuple[int, ...]


def build(text: str, target: dict[str, Any]) -> Kernel:
    """Compile a module of one TIR function ``main``, as ``tvm.ir.save_json`` writes it."""
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
    compiled.get_function("main")  # LLVM makes the machine code here
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

    Floating-point numbers are between -1 and 1, int8 and uint8 take all of their values, and other
    inputs are zeros: those are places and counts, and a wrong one would reach outside of a tensor.
    Outputs of other types have a pattern, so that what a kernel leaves unwritten is no zero.
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
    """Return two numbers per output by which kernels that compute the same agree.

    They are the sum of the magnitudes and a sum weighted by seeded signs, in float64. A NaN or an
    infinity counts as several times all the others together, so that its place matters.
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
) -> dict[str, Any]:
    """Run kernels and time them, here or in a session with an RPC server.

    With a session, the kernels' modules are paths of libraries. Without `rounds`, kernels are timed
    one after the other, `Measure.repeat` samples each; else each round takes a sample of each
    kernel, and every other round goes from the last kernel to the first. The result has ``times``,
    the seconds per call of each sample, and ``answers``, the fingerprints; one entry per kernel.
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
    return {"times": times, "answers": answers}


def _uploaded(session: Any, path: str) -> Any:
    name = Path(path).name
    session.upload(path, name)
    module = session.load_module(name)
    session.remove(name)  # the system keeps what is loaded; the folder goes with the session
    return module
