"""Timing that can be compared: warm-up, repeats, medians, and rivals interleaved in one run.

*Rivals* are the functions that `compare` times; *peers* are other runtimes to make rivals of,
`OnnxRuntime` and `Torch`. `peak_flops` is the bound that none of them passes.

Machines drift: a laptop heats up, a neighbour starts a job. Two programs timed one after the other
are then not comparable. `compare` runs the rivals in turn, round by round, and takes the ratio
within each round.

Threads that have nothing to do spin before they sleep, in case work comes: those of TVM's pool
(``TVM_THREAD_POOL_SPIN_COUNT``), of ONNX Runtime and of OpenBLAS do for tens of milliseconds. Every
rival keeps its own default here, and none spins into another's time: before each turn `compare`
waits until the process uses next to no processor time.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import plot
from ._peak import PeakLoop, peak_flops
from ._telling import telling
from .errors import InputError, ModelError, TvmlabError
from .extras import need
from .models import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Comparison",
    "Measurement",
    "OnnxRuntime",
    "PeakLoop",
    "Torch",
    "compare",
    "measure",
    "peak_flops",
]

# A sample takes at least this long, so that the clock's resolution does not count.
_SAMPLE_SECONDS = 2e-3
# How long one look takes whether the process is idle, and how many looks are enough: a program
# with a busy thread of its own never is.
_LOOK_SECONDS = 0.01
_LOOKS = 50


@dataclass(frozen=True)
class Measurement:
    """Times of one function.

    Attributes
    ----------
    samples : tuple of float
        Seconds a call, one number a repeat, in the order they were taken.
    """

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median, in seconds."""
        return statistics.median(self.samples)

    @property
    def mean(self) -> float:
        """The arithmetic mean, in seconds."""
        return statistics.fmean(self.samples)

    @property
    def std(self) -> float:
        """The sample standard deviation, in seconds; 0 for a single sample."""
        return statistics.stdev(self.samples) if len(self.samples) > 1 else 0.0

    @property
    def spread(self) -> float:
        """The interquartile range over the median: how noisy the machine was."""
        if len(self.samples) < 2:
            return 0.0
        quarters = statistics.quantiles(self.samples, n=4, method="inclusive")
        return (quarters[2] - quarters[0]) / self.median

    def plot(self, title: str = "") -> Figure:
        """Draw the samples, in milliseconds."""
        return plot.samples({"run": [1e3 * s for s in self.samples]}, unit="ms", title=title)

    def __str__(self) -> str:
        """Say the median, the spread and the number of samples."""
        return f"{_time(self.median)} (spread {self.spread:.0%}, {len(self.samples)} samples)"


@dataclass(frozen=True)
class Comparison:
    """Times of several rivals, measured in turn in one run.

    Attributes
    ----------
    runs : dict of str to Measurement
        One a rival; sample ``i`` of each was taken in round ``i``.
    """

    runs: dict[str, Measurement]

    @property
    def medians(self) -> dict[str, float]:
        """Each rival's median, in seconds a call."""
        return {name: run.median for name, run in self.runs.items()}

    def ratio(self, name: str, to: str) -> float:
        """Divide one rival's time by another's.

        Parameters
        ----------
        name, to : str
            Two of the rivals.

        Returns
        -------
        float
            The median over the rounds of (time of `name` / time of `to`): below 1, `name` is
            the faster one.
        """
        pairs = zip(self.runs[name].samples, self.runs[to].samples, strict=True)
        return statistics.median(a / b for a, b in pairs)

    def __str__(self) -> str:
        """Lay the results out as a table: median, spread, and the ratio to the last rival."""
        last = list(self.runs)[-1]
        width = max(len(name) for name in self.runs)
        lines = [f"{'':{width}}  {'median':>10}  {'spread':>6}  over {last}"]
        for name, run in self.runs.items():
            ratio = self.ratio(name, last)
            lines.append(f"{name:{width}}  {_time(run.median):>10}  {run.spread:6.0%}  {ratio:.2f}")
        return "\n".join(lines)

    def plot(self, title: str = "") -> Figure:
        """Draw every rival's samples, in milliseconds."""
        runs = {name: [1e3 * s for s in run.samples] for name, run in self.runs.items()}
        return plot.samples(runs, unit="ms a call", title=title)


def measure(
    fn: Callable[[], object], *, warmup: int = 1, repeats: int = 10, number: int | None = None
) -> Measurement:
    """Time a function.

    Parameters
    ----------
    fn : callable
        Called without arguments.
    warmup : int
        Calls that are not counted.
    repeats : int
        Samples to take.
    number : int, optional
        Calls in a sample; left out, it is doubled until they fill 2 ms, so that the clock's
        resolution does not count. The calls of too short a sample are not counted.

    Returns
    -------
    Measurement
        Seconds a call.
    """
    return compare({"run": fn}, warmup=warmup, repeats=repeats, number=number).runs["run"]


def compare(
    rivals: Mapping[str, Callable[[], object]],
    *,
    warmup: int = 1,
    repeats: int = 10,
    number: int | None = None,
) -> Comparison:
    """Time several functions in turn: one sample of each, then the next round.

    Parameters
    ----------
    rivals : mapping of str to callable
        Each is called without arguments. Give all of them the same number of threads.
    warmup : int
        Calls of each rival that are not counted.
    repeats : int
        Rounds.
    number : int, optional
        Calls in a sample, the same for all; left out, each rival's is doubled until its calls
        fill 2 ms.

    Returns
    -------
    Comparison
    """
    if not rivals:
        raise TvmlabError("there is nothing to compare", fix="give at least one rival")
    for label, value, least in (
        ("warmup", warmup, 0),
        ("repeats", repeats, 1),
        ("number", number, 1),
    ):
        if value is not None and value < least:
            raise TvmlabError(f"{label} is {value}", fix=f"give at least {least}")
    for fn in rivals.values():
        _settle()
        for _ in range(warmup):
            fn()
    # Not taken from a warm-up call: the first call of a function often does more than the others.
    numbers = dict.fromkeys(rivals, number or 1)
    samples: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(repeats):
        for name, fn in rivals.items():
            if len(rivals) > 1:
                _settle()
            taken = _batch(fn, numbers[name])
            while number is None and taken < _SAMPLE_SECONDS:
                numbers[name] *= 2
                taken = _batch(fn, numbers[name])
            samples[name].append(taken / numbers[name])
    return Comparison({name: Measurement(tuple(taken)) for name, taken in samples.items()})


def _batch(fn: Callable[[], object], number: int) -> float:
    """Call a function some times; the seconds of all calls together."""
    start = time.perf_counter()
    for _ in range(number):
        fn()
    return time.perf_counter() - start


def _settle() -> None:
    """Wait until the idle threads of whoever ran last have gone to sleep."""
    for _ in range(_LOOKS):
        before = time.process_time()
        time.sleep(_LOOK_SECONDS)
        if time.process_time() - before < 0.2 * _LOOK_SECONDS:
            return


class OnnxRuntime:
    """ONNX Runtime on the CPU, as a peer: the same call as a tvmlab executable.

    Parameters
    ----------
    model : tvmlab.models.Model, onnx.ModelProto, bytes or path
        The model.
    threads : int, optional
        Threads inside an operator; left out, TVM's number (`peer_threads`).
    spinning : bool
        Whether threads that wait for work keep their cores busy, as is ONNX Runtime's default. They
        take these from whoever else is measured in the process.

    Raises
    ------
    ModelError
        ONNX Runtime cannot read it.
    """

    def __init__(self, model: Any, threads: int | None = None, *, spinning: bool = True) -> None:
        onnxruntime = need("onnxruntime", extra="peers")
        options = onnxruntime.SessionOptions()
        if not spinning:
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.intra_op_num_threads = threads or peer_threads()
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        model = model.proto if isinstance(model, Model) else model
        source = model.SerializeToString() if hasattr(model, "SerializeToString") else model
        source = os.fspath(source) if isinstance(source, os.PathLike) else source
        try:
            self._session = onnxruntime.InferenceSession(
                source, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # it has a class for each way to fail
            raise ModelError(
                f"ONNX Runtime cannot read the model: {telling(error)}",
                where=source if isinstance(source, str) else type(model).__name__,
                fix="give a file in ONNX format, of operators that ONNX Runtime has",
            ) from error
        self._names = [value.name for value in self._session.get_inputs()]

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run: arrays in, one array or a tuple of arrays out.

        Raises
        ------
        InputError
            They are not what the model takes.
        """
        if len(inputs) > len(self._names):
            raise InputError(
                f"{len(inputs)} inputs were given, {len(self._names)} are taken",
                where="the model in ONNX Runtime",
                fix=f"it takes {', '.join(self._names) or 'no inputs'}",
            )
        feeds = dict(zip(self._names, inputs, strict=False)) | named
        try:
            outputs = self._session.run(None, feeds)
        except Exception as error:
            raise InputError(
                f"ONNX Runtime does not run on these inputs: {telling(error)}",
                where="the model in ONNX Runtime",
                fix=f"it takes {', '.join(self._names) or 'no inputs'}",
            ) from error
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


class Torch:
    """A PyTorch module on the CPU, as a peer: arrays in, arrays out.

    Parameters
    ----------
    module : torch.nn.Module
        The module; it is switched to evaluation.
    threads : int, optional
        Threads inside an operator; left out, TVM's number. PyTorch keeps one number for the
        whole process.
    """

    def __init__(self, module: Any, threads: int | None = None) -> None:
        torch = need("torch", extra="torch")
        torch.set_num_threads(threads or peer_threads())
        self._module = module.eval()

    def __call__(self, *inputs: Any) -> Any:
        """Run: arrays in, one array or a tuple of arrays out."""
        import torch

        # A tensor has no read-only memory: PyTorch warns of it, and a module could write into it.
        owned = (value if value.flags.writeable else value.copy() for value in inputs)
        with torch.inference_mode():
            outputs = self._module(*map(torch.from_numpy, owned))
        if isinstance(outputs, (tuple, list)):
            return tuple(value.numpy() for value in outputs)
        return outputs.numpy()


def peer_threads() -> int:
    """Tell how many threads a peer gets: as many as TVM's pool."""
    from .target import host_target

    return int(host_target().attrs["num-cores"])


def _time(seconds: float) -> str:
    """Write a time in the unit that fits."""
    factor, unit = (1e6, "us")
    if seconds >= 1:
        factor, unit = (1.0, "s")
    elif seconds >= 1e-3:
        factor, unit = (1e3, "ms")
    number = seconds * factor
    return f"{number:.3g} {unit}" if number < 1000 else f"{number:.0f} {unit}"
