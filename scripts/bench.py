"""Compare the speed of the workbook's networks with other runtimes: tables and a JSON file.

    python scripts/bench.py                              # everything
    python scripts/bench.py digits_resnet                # only this network
    python scripts/bench.py --sections networks,batch    # only these sections
    python scripts/bench.py --sections zoo unet          # a network of the zoo
    python scripts/bench.py --quick                      # few rounds, to test the script
    python scripts/bench.py --readme                     # write the last results into README

The results go to build/bench.json, beside those of other sections from the same commit and machine.
`--readme` measures nothing: it copies the results that README quotes to docs/bench.json and writes
them into README. The exit status is 1 if a section failed, and 0 if a value only misses its bar.
"""

from __future__ import annotations

import argparse
import functools
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import bench_harness as harness
import bench_lm
import bench_open
import numpy as np
import readme
from bench_harness import NETWORKS, TURNS, File, Process, network, race, timed, turn, written

import tvmlab
from tvmlab.errors import ToolchainError
from tvmlab.ir.graph import to_anf
from tvmlab.measure import bench
from tvmlab.models.networks import ARCHITECTURES, Architecture, Layer
from tvmlab.qnn.transform import FakeQuantizationToInteger
from tvmlab.runtime import deploy
from tvmlab.support.extras import need

OUTPUT = harness.ROOT / "build" / "bench.json"
# Rounds per comparison.
ROUNDS, QUICK_ROUNDS = 15, 3
# MetaSchedule's default of 30 s can expire before its workers have imported TVM.
UPSTREAM_SECONDS = 300.0
# The same work as `tvmlab compile`, and as the C++ program that runs a package.
COMPILE = """
import sys, tvmlab
tvmlab.compile(tvmlab.load(sys.argv[1])).save(sys.argv[2])
"""
RUN = """
import sys, numpy as np, tvmlab
run = tvmlab.load_executable(sys.argv[1])
found = run.time(np.load(sys.argv[2]), repeats=int(sys.argv[4]), number=1)
print(f"{1e3 * found.median} ms per call")
"""

#: The candidates per form of model. The last is the reference for ratios and errors.
CANDIDATES = {
    "float32": ("tvmlab", "PyTorch compiled", "OpenVINO", "ONNX Runtime"),
    "int8": ("tvmlab int8", "tvmlab float32", "OpenVINO", "ONNX Runtime"),
    "tflite int8": ("tvmlab int8", "OpenVINO", "LiteRT"),
    "zoo": ("tvmlab", "OpenVINO", "ONNX Runtime"),
}
#: Sections on every network of the zoo.
ZOOS = ("zoo", "zoo-int8")
#: Sections on networks of torchvision, timm and transformers, whose packages are not installed by
#: default; see requirements-networks.txt.
OPTIONAL = (*ZOOS, "open")
#: A section's values by measure, and of a comparison the results of each candidate.
Found = dict[str, Any]


# Models on every runtime.


def compiled(runtime: str, model: File) -> Any:
    """Load a model file in a runtime; return a function from arrays to arrays.

    The settings are the runtime's defaults, except for those in `SETTINGS` of the harness.
    """
    match runtime:
        case "tvmlab" | "tvmlab float32":
            return tvmlab.compile(tvmlab.load(model.path))
        case "tvmlab int8":
            return tvmlab.compile(FakeQuantizationToInteger()(tvmlab.load(model.path)))
        case "ONNX Runtime":
            return bench.OnnxRuntime(model.path)
        case "PyTorch compiled":
            torch = need("torch", extra="torch")
            tvmlab.toolchain.compiler()  # without a compiler, PyTorch fails after half a minute
            from tvmlab.models import torch_form

            return bench.Torch(torch.compile(torch_form.of(network(model.network))))
        case "OpenVINO":
            settings = {
                "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_PRECISION_HINT": "f32",
                "INFERENCE_NUM_THREADS": bench.peer_threads(),
            }
            core = need("openvino", extra="rivals").Core()
            run = core.compile_model(model.path, "CPU", settings)
            return lambda x: run(x)[0]
    litert = need("ai_edge_litert.interpreter", extra="tflite")
    interpreter = litert.Interpreter(model.path, num_threads=bench.peer_threads())
    interpreter.allocate_tensors()
    (data,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()

    def call(x: np.ndarray) -> np.ndarray:
        interpreter.set_tensor(data["index"], x)
        interpreter.invoke()
        return interpreter.get_tensor(result["index"])

    return call


def ready(runtime: str, model: File, key: str = "call") -> tuple[np.ndarray, float]:
    """Prepare a model in a runtime; return its first result and the seconds until then."""
    x = model.input()
    start = time.perf_counter()
    run = compiled(runtime, model)
    result = run(x)  # torch.compile compiles here
    seconds = time.perf_counter() - start
    assert isinstance(result, np.ndarray), "every candidate takes and returns NumPy arrays"
    TURNS[key] = timed(lambda: run(x))
    return result, seconds


def raced(name: str, rounds: int, form: str, which: str = "") -> Found:
    """Compare the candidates `which`, or those for the form, on a model in one form.

    ONNX Runtime's quantizer writes the int8 form: static QDQ with per-channel scales.
    """
    candidates = CANDIDATES[which or form]
    ours, *_, over = candidates
    outputs, figures, processes = {}, {}, {}
    with ExitStack() as stack:
        for each in candidates:
            model = written(name, "float32" if each == "tvmlab float32" else form)
            process = stack.enter_context(Process(each))
            try:
                outputs[each], _ = process.do(ready, each, model)
                processes[each] = process
            except ToolchainError as error:  # not installed
                # Without tvmlab or the reference there is nothing to compare.
                if each == over or each.startswith("tvmlab"):
                    raise
                figures[each] = {"absent": " ".join(str(error).split())}
        turns = {each: partial(process.do, turn) for each, process in processes.items()}
        found = race(turns, rounds, *processes.values())
    figures |= harness.race_figures(found, outputs, over)
    print(harness.race_table(f"{name}, {form}", figures, over), flush=True)
    label = name if form == "float32" else f"{name} {form}"
    others = [each for each in turns if not each.startswith("tvmlab")]
    values: Found = {f"{label}: ours / {each}": found.ratio(ours, each) for each in others}
    values[f"{label}: relative error"] = figures[ours]["error"]
    if form == "int8":
        values[f"{name}, ours: int8 / float32"] = found.ratio(ours, "tvmlab float32")
    return values | {f"{name}, {form}": figures}


def batch(name: str, rounds: int) -> Found:
    """Measure the time per image in a batch of 16, relative to a batch of 1."""
    turns = {}
    with Process("tvmlab") as process:
        for size in ("1", "16"):
            process.do(ready, "tvmlab", written(name, batch=int(size)), size)
            turns[size] = partial(process.do, turn, size)
        found = race(turns, rounds)
    return {f"{name}: time per image, batch 16 / batch 1": found.ratio("16", "1") / 16}


def compilation(name: str, rounds: int) -> Found:
    """Measure the compile time of a network in fresh processes."""
    seconds = []
    for _ in range(min(3, rounds)):
        with Process("tvmlab") as process:
            seconds.append(process.do(ready, "tvmlab", written(name))[1])
    return {f"{name}: seconds from the model file to the first result": median(seconds)}


@functools.cache
def package(name: str) -> str:
    """Compile a network and save it; return the path of the package."""
    path = str(harness.folder() / f"{name}.so")
    harness.output_of([sys.executable, "-c", COMPILE, written(name).path, path])
    return path


def memory(name: str, _rounds: int) -> Found:
    """Measure the memory that a process needs to load and run a network."""
    model = written(name)
    with Process("a loaded network") as process:
        grown = process.do(loaded, package(name), model)
    return {f"{name}: memory of the running model / weights": grown / model.weight_bytes}


def loaded(path: str, model: File) -> int:
    """Load a package and run it; return the memory that this needs, in bytes.

    TVM's own memory does not count, because TVM is imported and its threads run before.
    """
    x = model.input()
    bench.PeakLoop()()  # start code generation and threads, which every network needs
    before = harness.peak_memory(forget=True)
    executable = tvmlab.load_executable(path)
    harness.peak_memory(forget=True)  # loading has a separate peak
    for _ in range(3):
        executable(x)
    return harness.peak_memory() - before


def profiling(name: str, rounds: int) -> Found:
    """Measure the overhead of profiling, and how far the profile's rows add up to the total."""
    with Process("tvmlab") as process:
        found = process.do(profiled, written(name), 2 * rounds)
    print(found, flush=True)
    return {
        f"{name}: time with profiling / time without": 1 + found.overhead,
        f"{name}: |sum of the profile's rows / total time - 1|": abs(found.covered - 1),
    }


def profiled(model: File, repeats: int) -> Any:
    """Run a network once, then return its profile."""
    x, run = model.input(), compiled("tvmlab", model)
    run(x)
    return run.profile(x, repeats=repeats)


def command(name: str, rounds: int) -> Found:
    """Time the command's start, and compilation by the command and in Python, alternately."""
    python = [sys.executable, "-m", "tvmlab"]
    model, path = written(name).path, str(harness.folder() / "by-command.so")
    starts = [harness.seconds_of([*python, "--help"]) for _ in range(11)]
    ours = [*python, "compile", model, "-o", path]
    functions = [sys.executable, "-c", COMPILE, model, path]
    ratios = [
        harness.seconds_of(ours) / harness.seconds_of(functions) for _ in range(min(3, rounds))
    ]
    return {
        "tvmlab --help: seconds": median(starts),
        f"{name}: tvmlab compile / the same in Python": median(ratios),
    }


def deployment(name: str, rounds: int) -> Found:
    """Run a package in the C++ program and in Python, alternately."""
    x = str(harness.folder() / "x.npy")
    np.save(x, written(name).input())
    cpp = [str(deploy.program()), package(name), x, "--repeats"]
    lines = [cpp, [sys.executable, "-c", RUN, *cpp[1:]]]
    ratios = []
    for _ in range(rounds):
        texts = [harness.output_of([*line, "50"]) for line in lines]
        ours, theirs = re.findall(r"^([\d.]+) ms (?:a|per) call", "\n".join(texts), re.MULTILINE)
        ratios.append(float(ours) / float(theirs))
    starts = [harness.seconds_of([*cpp, "0"]) for _ in range(rounds)]
    return {
        f"{name}: a call in the C++ program / in Python": median(ratios),
        f"{name}: seconds from the start of the C++ program to its first result": median(starts),
    }


# Single convolutions, matrix products, Relay text, and candidates of the tuner.


@dataclass(frozen=True)
class LayerCost:
    """A layer with the sizes of its input and output images, and its FLOP per image."""

    layer: Layer
    in_size: tuple[int, int]
    out_size: tuple[int, int]
    flops: int


def layer_costs(spec: Architecture) -> tuple[LayerCost, ...]:
    """List the FLOP of every layer: twice its multiplications, including those with padding."""
    sizes = {"data": spec.image[1:]}
    costs = []
    for layer in spec.layers:
        before = height, width = sizes[layer.inputs[0]]
        if layer.op in ("conv", "max_pool"):
            reach = 2 * layer.padding - layer.kernel
            height, width = ((size + reach) // layer.stride + 1 for size in before)
        elif layer.op in ("global_pool", "flatten", "dense"):
            height = width = 1
        sizes[layer.name] = (height, width)
        work = 0
        if layer.op in ("conv", "dense"):
            in_channels, out_channels = layer.channels
            taps = layer.kernel**2 * in_channels // layer.groups
            work = 2 * height * width * out_channels * taps
        costs.append(LayerCost(layer, before, (height, width), work))
    return tuple(costs)


def convolutions(name: str, rounds: int) -> Found:
    """Measure each convolution of a network on its own, relative to the machine's peak.

    A direct convolution executes the operations that define it, so its rate is a share of the peak.
    Winograd executes fewer operations and its effective rate can exceed the peak, so Winograd
    convolutions have a separate measure.
    """
    shares: dict[bool, list[float]] = {False: [], True: []}
    kinds = Counter(
        replace(cost, layer=replace(cost.layer, name="", inputs=()))
        for cost in layer_costs(ARCHITECTURES[name])
        if cost.layer.op == "conv"
    )
    with Process("tvmlab") as process:
        for cost, times in kinds.items():
            microseconds, share, winograd = process.do(convolution, cost, 2 * rounds)
            shares[winograd] += [share] * times
            how = f"{microseconds:.0f} us, {share:.0%} of the peak" + ", Winograd" * winograd
            print(f"{times} x {cost.in_size}, {cost.layer}: {how}", flush=True)
    measures = {
        f"{name}: a direct convolution's share of the peak, median": shares[False],
        f"{name}: a Winograd convolution's effective rate / the peak, median": shares[True],
    }
    return {measure: median(values) for measure, values in measures.items() if values}


def convolution(cost: LayerCost, rounds: int) -> tuple[float, float, bool]:
    """Compare a compiled convolution with bias and ReLU with the machine's peak.

    The data layout is channels last, as inside a compiled network, because channels first would add
    two transposes to the measured time. Returns the microseconds, the rate relative to the peak,
    and whether the convolution uses Winograd's algorithm.
    """
    from tvm import relax

    rng, layer = np.random.default_rng(0), cost.layer
    x = rng.random((1, *cost.in_size, layer.channels[0]), "f")
    filters = (layer.channels[1], layer.kernel, layer.kernel, layer.channels[0] // layer.groups)
    weight = relax.const(rng.random(filters, "f") - np.float32(0.5))
    bias = relax.const(rng.random((1, 1, 1, layer.channels[1]), "f"))
    how = {"strides": layer.stride, "padding": layer.padding, "groups": layer.groups}
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}

    def result(data: Any) -> Any:
        sums = relax.op.nn.conv2d(data, weight, **how, **layouts)
        return relax.op.nn.relu(relax.op.add(sums, bias))

    executable = tvmlab.compile(_module(result, x.shape))
    loop = bench.PeakLoop()
    turns = {
        "convolution": timed(_in_place(executable, x), harness.CONVOLUTION_SECONDS),
        "peak": timed(loop, harness.CONVOLUTION_SECONDS),
    }
    found = race(turns, rounds)
    share = cost.flops / loop.flops * found.ratio("peak", "convolution")
    winograd = any(kernel.rule == "WinogradTransform" for kernel in executable.summary().kernels)
    return 1e6 * found.medians["convolution"], share, winograd


def _module(result: Callable[..., Any], *inputs: tuple[int, ...]) -> Any:
    """Build a function over float32 inputs of these shapes."""
    from tvm import IRModule, relax

    types = [relax.TensorType(shape, "float32") for shape in inputs]
    values = [relax.Var(f"x{number}", type_) for number, type_ in enumerate(types)]
    return IRModule({"main": to_anf(values, result(*values))})


def _in_place(executable: Any, *arrays: np.ndarray) -> Callable[[], object]:
    """Return a call of a compiled function with operands that are TVM tensors already."""
    import tvm

    main = tvm.relax.VirtualMachine(executable.vm_executable, tvm.cpu())["main"]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    return lambda: main(*tensors)


def products(_name: str, rounds: int) -> Found:
    """Tune matrix products without earlier records, and compare them with NumPy's BLAS."""
    shares = {}
    for size in (512, 1024):
        with Process("tvmlab") as ours, Process("NumPy's BLAS") as theirs:
            for process in (ours, theirs):
                process.do(product, process.name, size)
            turns = {each.name: partial(each.do, turn) for each in (ours, theirs)}
            found = race(turns, 2 * rounds, ours, theirs)
        measure = f"a {size}x{size} matrix product tuned with 64 trials: speed / BLAS"
        shares[measure] = found.ratio("NumPy's BLAS", "tvmlab")
    return shares


def product(runtime: str, size: int, trials: int = 64) -> None:
    """Prepare a product of square matrices, with operands that are the runtime's own tensors."""
    x, y = np.random.default_rng(0).standard_normal((2, size, size), "f")
    out = np.empty_like(x)
    if runtime != "tvmlab":
        TURNS["call"] = timed(lambda: np.matmul(x, y, out=out))
        return
    from tvm import relax

    mod = _module(relax.op.matmul, x.shape, y.shape)
    with tempfile.TemporaryDirectory() as records:
        path = Path(records) / "records.jsonl"
        tvmlab.tune(mod, records=path, trials=trials, progress=False)
        tuned = tvmlab.compile(mod, records=path)
    np.testing.assert_allclose(tuned(x, y), x @ y, rtol=1e-3, atol=1e-3)
    TURNS["call"] = timed(_in_place(tuned, x, y))


def relay_text(name: str, rounds: int) -> Found:
    """Time reading and printing Relay text: long functions, and a network with its weights."""
    with Process("tvmlab") as process:
        process.do(relay_calls, 100)  # the first call compiles the grammar
        few, many = (
            np.median([process.do(relay_calls, count) for _ in range(min(5, rounds))], axis=0)
            for count in (1_000, 10_000)
        )
    path = harness.folder() / "network.relay"
    mod = tvmlab.load(written(name).path)
    path.write_text(tvmlab.relay.astext(mod), encoding="utf-8")
    with Process("tvmlab") as process:
        seconds, grown = process.do(relay_network, path)
    return {
        "Relay text, 10,000 calls: seconds to read": many[0],
        "Relay text, 10,000 calls: seconds to print": many[1],
        "Relay text: time to read per call, 10,000 calls / 1,000 calls": many[0] / few[0] / 10,
        "Relay text: time to print per call, 10,000 calls / 1,000 calls": many[1] / few[1] / 10,
        f"{name} as Relay text: seconds to read": seconds,
        f"{name} as Relay text: memory to read it, GB": grown / 1e9,
    }


def relay_calls(count: int) -> tuple[float, float]:
    """Read and print a function with `count` calls as Relay text; return the seconds of both."""
    calls = (
        "nn.conv2d({}, %w, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3])",
        "nn.bias_add({}, %b)",
        "add({}, %x)",
        "nn.relu({})",
    )
    lines = [
        f"  %{number} = {calls[number % 4].format(f'%{number - 1}' if number else '%x')};"
        for number in range(count)
    ]
    types = "%x: Tensor[(1, 8, 6, 6), float32], %w: Tensor[(8, 8, 3, 3), float32]"
    head = f'#[version = "0.0.5"]\ndef @main({types}, %b: Tensor[(8), float32]) {{'
    text = "\n".join([head, *lines, f"  %{count - 1}", "}"])
    start = time.perf_counter()
    mod = tvmlab.relay.fromtext(text)
    read = time.perf_counter()
    assert tvmlab.relay.astext(mod).count(";") >= count - 1
    return read - start, time.perf_counter() - read


def relay_network(path: Path) -> tuple[float, int]:
    """Read a network's Relay text; return the seconds and the memory needed, in bytes."""
    tvmlab.relay.fromtext("1 + 1")
    before, start = harness.peak_memory(forget=True), time.perf_counter()
    tvmlab.relay.fromtext(path.read_text(encoding="utf-8"))
    return time.perf_counter() - start, harness.peak_memory() - before


def tuning(_name: str, rounds: int) -> Found:
    """Time tvmlab and MetaSchedule as they compile and measure schedules of a matrix product."""
    rates = []
    for name in ("tvmlab", "MetaSchedule"):
        with Process(name) as process:
            count, seconds = process.do(candidates, name, min(64, 5 * rounds))
        print(f"{name}: {count} in {seconds:.1f} s", flush=True)
        rates.append(count / seconds)
    return {"candidates measured per minute: ours / MetaSchedule": rates[0] / max(rates[1], 1e-9)}


def candidates(runtime: str, count: int) -> tuple[int, float]:
    """Compile and measure schedules with tvmlab's tuner or MetaSchedule's builder and runner.

    Returns the number of schedules that ran, and the seconds.
    """
    from tvm.s_tir.meta_schedule import arg_info, builder, runner

    from tvmlab.tuning import LocalMeasurer, Measure

    kernels, how, target = scheduled(count), Measure(), tvmlab.host_target()
    start = time.perf_counter()
    if runtime == "tvmlab":
        with LocalMeasurer(target, how) as measurer:
            measured = [outcome for _, outcome in measurer.measure(kernels) if outcome.times]
    else:
        built = builder.LocalBuilder(timeout_sec=UPSTREAM_SECONDS).build(
            [builder.BuilderInput(mod, target) for mod in kernels]
        )
        types = [arg_info.ArgInfo.from_entry_func(mod, True) for mod in kernels]
        inputs = [
            runner.RunnerInput(one.artifact_path, "cpu", type_)
            for type_, one in zip(types, built, strict=True)
            if one.artifact_path is not None
        ]
        config = runner.EvaluatorConfig(how.number, how.repeat, how.min_repeat_ms, how.cache_flush)
        local = runner.LocalRunner(timeout_sec=UPSTREAM_SECONDS, evaluator_config=config)
        found = [future.result() for future in local.run(inputs)]
        measured = [result for result in found if result.run_secs is not None]
    return len(measured), time.perf_counter() - start


def scheduled(count: int, size: int = 512) -> list[Any]:
    """Create `count` seeded schedules of a matrix product.

    Each has two levels of tiles, parallel rows and vectorized innermost columns.
    """
    import tvm
    from tvm import s_tir, te

    a, b = (te.placeholder((size, size), name=name) for name in "AB")
    k = te.reduce_axis((0, size), name="k")
    result = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    function = te.create_prim_func([a, b, result]).with_attr("global_symbol", "main")
    rng = random.Random(0)
    kernels = []
    for _ in range(count):
        sch = s_tir.Schedule(tvm.IRModule({"main": function}))
        block = sch.get_sblock("C")
        i, j, k_ = sch.get_loops(block)
        rows = sch.split(i, [None, rng.choice([1, 2, 4, 8]), rng.choice([1, 2, 4, 8])])
        columns = sch.split(j, [None, rng.choice([1, 2, 4]), rng.choice([16, 32, 64])])
        depth = sch.split(k_, [None, rng.choice([4, 8, 16, 32])])
        sch.reorder(rows[0], columns[0], rows[1], columns[1], *depth, rows[2], columns[2])
        sch.parallel(rows[0])
        sch.vectorize(columns[2])
        sch.decompose_reduction(block, depth[0])
        kernels.append(sch.mod)
    return kernels


#: The sections in order. The first two run on every network, the others on one.
SECTIONS: dict[str, Callable[[str, int], Found]] = {
    "networks": partial(raced, form="float32"),
    "int8": partial(raced, form="int8"),
    # MLPerf Tiny's ResNet-8.
    "tflite": lambda _, rounds: raced("resnet8", rounds, "tflite int8"),
    "convolutions": convolutions,
    "compile": compilation,
    "memory": memory,
    "batch": batch,
    "relay": relay_text,
    "tuning": tuning,
    "products": products,
    "lm": bench_lm.language,
    "profiling": profiling,
    "command": command,
    "deploy": deployment,
    "zoo": partial(raced, form="float32", which="zoo"),
    "zoo-int8": partial(raced, form="int8"),
    "open": bench_open.open_sizes,
}


def main(arguments: list[str]) -> int:
    """Run the sections that the command line selects; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    default = ",".join(section for section in SECTIONS if section not in OPTIONAL)
    parser.add_argument("--sections", default=default, help=f"also {', '.join(OPTIONAL)}")
    parser.add_argument("--quick", action="store_true", help="run few rounds")
    parser.add_argument("--readme", action="store_true", help="write the last results into README")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    if options.readme:
        return readme.main(check=False) if harness.quote(options.output, readme.MEASURED) else 1
    sections = options.sections.split(",")
    zoos = {section: harness.zoo(section) for section in ZOOS if section in sections}
    names = [*NETWORKS, *(name for zoo in zoos.values() for name in zoo)]
    for given, known in ((options.names, names), (sections, SECTIONS)):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
    report = harness.opened(options.output, options.quick)
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    chosen = [name for name in NETWORKS if name in options.names or not options.names]
    for section in [each for each in SECTIONS if each in sections]:
        # A section for one network uses the largest of the chosen networks.
        names = chosen if section in ("networks", "int8") else chosen[:1]
        if section in zoos:
            names = [name for name in zoos[section] if name in options.names or not options.names]
        for name in names:
            harness.enter(report, f"{section}, {name}", partial(SECTIONS[section], name, rounds))
        if section in zoos:
            report["values"] |= harness.summed_up(section, names, report["values"])
    return harness.closed(report, options.output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
