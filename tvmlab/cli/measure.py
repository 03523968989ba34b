"""``tvmlab tune``, ``bench``, ``profile`` and RPC: commands that measure."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from . import arrays, options
from .options import Answer

__all__ = ["add"]

TUNE = """Search faster schedules for a model by measuring candidates.

The results go to a file of records for `tvmlab compile --tuning-records`. If tuning is interrupted,
the same command continues it."""
TUNE_EXAMPLE = """tvmlab tune digits_resnet -o digits.jsonl --total-trials 8 --tuner random
tvmlab compile digits_resnet --tuning-records digits.jsonl -o digits.so"""

BENCH = """Compare the times of packages and models.

The samples are interleaved, so that noise hits all programs alike. The programs run on this
machine; `tvmlab run --print-time` times a package on another one. A call includes the copies of its
inputs and outputs. All programs get the same inputs and TVM's number of threads. A program that is
listed twice is measured twice."""
BENCH_EXAMPLE = """tvmlab bench digits_resnet
tvmlab compile digits_resnet --target llvm -o plain.so
tvmlab bench plain.so digits_resnet --repeat 5 --json"""

PROFILE = """Measure the time of each function of a program.

The program runs on this machine; `tvmlab run --print-time` times a whole package on another one."""
PROFILE_EXAMPLE = """tvmlab profile digits_resnet --repeat 5 --trace trace.json --flame flame.svg"""

TRUSTED = (
    "TVM's RPC runs whatever it receives, from anybody who can reach the port. Listen on trusted\n"
    "networks only."
)
TRACKER = f"Keep the list of RPC servers.\n\n{TRUSTED}"
TRACKER_EXAMPLE = "tvmlab rpc-tracker --port 9190"
SERVER = f"Measure kernels and run packages for other machines.\n\n{TRUSTED}"
SERVER_EXAMPLE = "tvmlab rpc-server --key tvmlab --tracker 127.0.0.1:9190"


def add(commands: options.Commands) -> None:
    """Add the five commands."""
    _add_tune(options.add_command(commands, "tune", _tune, TUNE, TUNE_EXAMPLE))
    bench = options.add_command(commands, "bench", _bench, BENCH, BENCH_EXAMPLE)
    options.add_program(bench, nargs="+")
    profile = options.add_command(commands, "profile", _profile, PROFILE, PROFILE_EXAMPLE)
    options.add_program(profile)
    for parser in (bench, profile):
        arrays.add_inputs(parser, fill="random")
        options.add_repeat(parser)
    bench.add_argument(
        "--peer",
        metavar="FILE",
        help="an .onnx model that ONNX Runtime runs beside them, on the first program's inputs",
    )
    profile.add_argument(
        "--trace", metavar="FILE", help="write a trace that Chrome and Perfetto open (.json)"
    )
    profile.add_argument("--flame", metavar="FILE", help="write a flame graph (.svg)")
    _add_rpc(commands)


def _add_tune(parser: argparse.ArgumentParser) -> None:
    options.add_model(parser)
    options.add_target(parser)
    add, count = parser.add_argument, options.whole_number
    add("-o", "--output", required=True, metavar="FILE", help="append the records to this file")
    add(
        "--trials",
        type=count,
        default=64,
        metavar="N",
        help="how many candidates to measure for each task at most (%(default)s)",
    )
    add("--total-trials", type=count, metavar="N", help="the same limit for all tasks together")
    add(
        "--tuner",
        choices=("xgb", "ga", "random", "gridsearch"),
        default="xgb",
        help="how candidates are chosen (%(default)s)",
    )
    add("--early-stopping", type=count, metavar="N", help="end a task after N trials without gain")
    add(
        "--again",
        action="store_true",
        help="repeat the final comparison of tasks that have one; with --trials 1 do nothing else",
    )
    add("--seconds", type=float, metavar="S", help="the time limit")
    add("--seed", type=int, default=0, metavar="N", help="of the random numbers (%(default)s)")
    add("--rpc-tracker", metavar="HOST:PORT", help="measure on the servers of this tracker")
    add("--rpc-key", metavar="KEY", help=f"the servers' key ({options.KEY})")


def _tune(args: argparse.Namespace) -> Answer:
    """Tune a model."""
    from .. import tune

    options.need(args, "rpc_key", "rpc_tracker")
    options.check_files([args.model], [args.output])
    report = tune(
        options.load_model(args.model, args.input_shapes),
        args.target,
        records=args.output,
        trials=args.trials,
        total_trials=args.total_trials,
        tuner=args.tuner,
        early_stopping=args.early_stopping,
        seconds=args.seconds,
        seed=args.seed,
        again=args.again,
        tracker=args.rpc_tracker,
        key=args.rpc_key or options.KEY,
    )
    times = {"before": report.before, "after": report.after}
    return repr(report), {"records": args.output, **times, **asdict(report)}


def _bench(args: argparse.Namespace) -> Answer:
    """Compare the times of several programs."""
    from ..measure import bench

    options.check_files([*args.program, args.inputs, args.peer], [])
    candidates: dict[str, Callable[[], Any]] = {}
    first: list[Any] = []
    for place, name in enumerate(args.program):
        program = options.load_program(name, args.input_shapes)
        inputs = arrays.input_arrays(args, program.signature.inputs)
        first = first or inputs
        number = args.program[: place + 1].count(name)
        candidates[name if number == 1 else f"{name} ({number})"] = partial(program, *inputs)
    if args.peer:
        candidates["ONNX Runtime"] = partial(bench.OnnxRuntime(args.peer), *first)
    found = bench.compare(candidates, repeats=args.repeat)
    data = {
        name: {"median": time.median, "spread": time.spread, "samples": time.samples}
        for name, time in found.runs.items()
    }
    (one, *others) = found.runs.values()
    return str(found if others else one), {"seconds": data}


def _profile(args: argparse.Namespace) -> Answer:
    """Profile a program function by function."""
    from ..runtime.profiling import profile

    options.check_files([args.program, args.inputs], [args.trace, args.flame])
    program = options.load_program(args.program, args.input_shapes)
    inputs = arrays.input_arrays(args, program.signature.inputs)
    found = profile(program, *inputs, repeats=args.repeat)
    files = {"trace": (args.trace, found.trace), "flame": (args.flame, found.flame)}
    written = {name: str(write(path)) for name, (path, write) in files.items() if path}
    lines = [str(found), *(f"{path}: written" for path in written.values())]
    return "\n".join(lines), {**found.data(), "written": written}


def _add_rpc(commands: options.Commands) -> None:
    for name, run, about, example, port in (
        ("rpc-tracker", _track, TRACKER, TRACKER_EXAMPLE, 9190),
        ("rpc-server", _serve, SERVER, SERVER_EXAMPLE, 0),
    ):
        parser = options.add_command(commands, name, run, about, example, answers=False)
        parser.add_argument("--host", default="127.0.0.1", help="to listen at (%(default)s)")
        parser.add_argument("--port", type=int, default=port, help="0 is any (%(default)s)")
    add = parser.add_argument
    add("--key", default=options.KEY, help="the kind of this device, one word (%(default)s)")
    add(
        "--tracker",
        metavar="HOST:PORT",
        help="the tracker to register with; without one, clients need the address of this server: "
        "`tvmlab run --rpc-server`",
    )
    add(
        "--device-seconds",
        type=float,
        default=0.0,
        metavar="S",
        help="simulate a slow device: each measurement takes S seconds more (%(default)s)",
    )


def _track(args: argparse.Namespace) -> None:
    """Run a tracker until it is ended."""
    from ..runtime import tracker

    tracker.serve(args.host, args.port)


def _serve(args: argparse.Namespace) -> None:
    """Run a server until it is ended."""
    from ..errors import InputError

    if not args.key or " " in args.key:
        raise InputError("a key is one word", where=repr(args.key), fix="pass --key my-laptop")
    # Before NumPy is imported: its library would start threads, which the forked sessions lack.
    os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    from ..runtime.rpc_server import serve
    from ..runtime.tracker import parse_address

    tracker = None if args.tracker is None else parse_address(args.tracker)
    serve(args.host, args.port, args.key, tracker, args.device_seconds)
