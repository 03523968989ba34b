"""``tvmlab tune``, ``bench``, ``profile`` and RPC: commands that measure."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from . import options
from .arrays import INPUTS, input_arrays
from .options import JSON, KEY, SHAPES, Answer, add_command, shared

__all__ = ["add"]


def add(commands: options.Commands) -> None:
    """Add the five commands."""
    _add_tune(commands)
    common = (SHAPES, *INPUTS, options.REPEAT, JSON)
    bench = add_command(commands, "bench", _bench, options.PROGRAMS, *common)
    bench.add_argument(
        "--peer",
        metavar="FILE",
        help="an .onnx model that ONNX Runtime runs beside them, on the first program's inputs",
    )
    profile = add_command(commands, "profile", _profile, options.PROGRAM, *common)
    profile.add_argument(
        "--trace", metavar="FILE", help="write a trace that Chrome and Perfetto open (.json)"
    )
    profile.add_argument("--flame", metavar="FILE", help="write a flame graph (.svg)")
    _add_rpc(commands)


def _add_tune(commands: options.Commands) -> None:
    common = (options.MODEL, SHAPES, options.TARGET, options.SEED, *options.RPC, JSON)
    add = add_command(commands, "tune", _tune, *common).add_argument
    count = options.whole_number
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


def _tune(args: argparse.Namespace) -> Answer:
    """Search faster schedules for a model by measuring candidates.

    The results go to a file of records for `tvmlab compile --tuning-records`. If tuning is
    interrupted, the same command continues it.

    example:
      tvmlab tune digits_resnet -o digits.jsonl --total-trials 8 --tuner random
      tvmlab compile digits_resnet --tuning-records digits.jsonl -o digits.so
    """
    from .. import tune

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
        key=args.rpc_key,
    )
    return repr(report), {"before": report.before, "after": report.after, **asdict(report)}


def _bench(args: argparse.Namespace) -> Answer:
    """Compare the times of packages and models.

    The samples are interleaved, so that noise hits all programs alike. The programs run on this
    machine; `tvmlab run --print-time` times a package on another one. A call includes the copies of
    its inputs and outputs. All programs get the same inputs and TVM's number of threads. A program
    that is listed twice is measured twice.

    example:
      tvmlab bench digits_resnet
      tvmlab compile digits_resnet --target llvm -o plain.so
      tvmlab bench plain.so digits_resnet --repeat 5 --json
    """
    from ..measure import bench

    options.check_files([*args.program, args.inputs, args.peer], [])
    candidates: dict[str, Callable[[], Any]] = {}
    first: list[Any] = []
    for place, name in enumerate(args.program):
        program = options.load_program(name, args.input_shapes)
        inputs = input_arrays(args, program.signature, fill="random")
        first = first or inputs
        number = args.program[: place + 1].count(name)
        candidates[name if number == 1 else f"{name} ({number})"] = partial(program, *inputs)
    if args.peer:
        candidates["ONNX Runtime"] = partial(bench.OnnxRuntime(args.peer), *first)
    found = bench.compare(candidates, repeats=args.repeat)
    (one, *others) = found.runs.values()
    data = {name: options.seconds(time) for name, time in found.runs.items()}
    return str(found if others else one), {"seconds": data}


def _profile(args: argparse.Namespace) -> Answer:
    """Measure the time of each function of a program.

    The program runs on this machine; `tvmlab run --print-time` times a whole package on another
    one.

    example:
      tvmlab profile digits_resnet --repeat 5 --trace trace.json --flame flame.svg
    """
    from ..runtime.profiling import profile

    options.check_files([args.program, args.inputs], [args.trace, args.flame])
    program = options.load_program(args.program, args.input_shapes)
    inputs = input_arrays(args, program.signature, fill="random")
    found = profile(program, *inputs, repeats=args.repeat)
    for path, write in ((args.trace, found.trace), (args.flame, found.flame)):
        if path:
            write(path)
    return str(found), found.data()


def _add_rpc(commands: options.Commands) -> None:
    host = shared("--host", default="127.0.0.1", help="0.0.0.0 is all (%(default)s)")
    tracker = add_command(commands, "rpc-tracker", _track, host)
    server = add_command(commands, "rpc-server", _serve, host)
    for parser, port in ((tracker, 9190), (server, 0)):
        parser.add_argument("--port", type=int, default=port, help="0 is any (%(default)s)")
    add = server.add_argument
    add("--key", default=KEY, help="the kind of this device, one word (%(default)s)")
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
    """Keep the list of RPC servers.

    TVM's RPC runs whatever it receives, from anybody who can reach the port. Listen on trusted
    networks only.

    example:
      tvmlab rpc-tracker --port 9190
    """
    from ..runtime import tracker

    tracker.serve(args.host, args.port)


def _serve(args: argparse.Namespace) -> None:
    """Measure kernels and run packages for other machines.

    TVM's RPC runs whatever it receives, from anybody who can reach the port. Listen on trusted
    networks only.

    example:
      tvmlab rpc-server --key tvmlab --tracker 127.0.0.1:9190
    """
    from ..errors import InputError

    if not args.key or " " in args.key:
        raise InputError("a key is one word", where=repr(args.key), fix="pass --key my-laptop")
    # Before NumPy is imported: its library would start threads, which the forked sessions lack.
    os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    from ..runtime.rpc_server import serve
    from ..runtime.tracker import parse_address

    tracker = None if args.tracker is None else parse_address(args.tracker)
    serve(args.host, args.port, args.key, tracker, args.device_seconds)
