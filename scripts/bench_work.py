"""What the processes of the bench measure.

Networks on every runtime, single convolutions, matrix products, memory, Relay text, and candidates
of the tuner.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tvmlab import bench, models
from tvmlab.extras import need
from tvmlab.models.cost import ARCHITECTURES, layer_costs

# Candidates per matrix product that is tuned from nothing.
TRIALS = 64
# MetaSchedule's default time limit, and the one that is set where no candidate is ready in time.
UPSTREAM_SECONDS, LONGER_SECONDS = 30.0, 300.0


# Seeded weights everywhere, so that the bench needs no network and measures the same everywhere.
NETWORKS: dict[str, tuple[Callable[..., models.Model], Callable[[], Any]]] = {
    "resnet50_v2": (
        lambda batch: models.resnet50_v2("seeded", batch=batch),
        lambda: models.torch_resnet50_v2("seeded"),
    ),
    "resnet18_v2": (models.resnet18_v2, models.torch_resnet18_v2),
    "mobilenet_v2": (models.mobilenet_v2, models.torch_mobilenet_v2),
    "digits_resnet": (models.digits_resnet, models.torch_digits_resnet),
}


# What each runtime makes of a model file: a function from arrays to arrays. All settings are the
# runtime's defaults, except those that `bench_report.SETTINGS` names.


def _tvmlab(path: str, _name: str) -> Any:
    import tvmlab

    return tvmlab.compile(tvmlab.load(path))


def _tvmlab_int8(path: str, _name: str) -> Any:
    import tvmlab
    from tvmlab.qnn.transform import FakeQuantizationToInteger

    return tvmlab.compile(FakeQuantizationToInteger()(tvmlab.load(path)))


def _onnxruntime(path: str, _name: str) -> Any:
    return bench.OnnxRuntime(path)


def _openvino(path: str, _name: str) -> Any:
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": bench.peer_threads(),
    }
    core = need("openvino", extra="rivals").Core()
    compiled = core.compile_model(path, "CPU", settings)
    return lambda x: compiled(x)[0]


def _litert(path: str, _name: str) -> Any:
    litert = need("ai_edge_litert.interpreter", extra="tflite")
    interpreter = litert.Interpreter(path, num_threads=bench.peer_threads())
    interpreter.allocate_tensors()
    (given,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()

    def call(x: Any) -> Any:
        interpreter.set_tensor(given["index"], x)
        interpreter.invoke()
        return interpreter.get_tensor(result["index"])

    return call


def _eager(_path: str, name: str) -> Any:
    return bench.Torch(NETWORKS[name][1]())


def _compiled(_path: str, name: str) -> Any:
    import torch

    from tvmlab.toolchain import compiler

    compiler()  # without one, PyTorch fails after half a minute
    return bench.Torch(torch.compile(NETWORKS[name][1]()))


RUNTIMES: dict[str, Callable[[str, str], Any]] = {
    "tvmlab": _tvmlab,
    "tvmlab float32": _tvmlab,  # beside int8
    "tvmlab int8": _tvmlab_int8,
    "PyTorch compiled": _compiled,
    "PyTorch eager": _eager,
    "OpenVINO": _openvino,
    "ONNX Runtime": _onnxruntime,
    "LiteRT": _litert,
}


def write(name: str, form: str, path: str, batch: int = 1) -> dict[str, Any]:
    """Write a model file; return the shape and dtype of its input, and the size of its weights."""
    if form == "tflite int8":
        from tvmlab.models.resnet8 import resnet8_tflite

        Path(path).write_bytes(resnet8_tflite())
        return {"shape": [1, 32, 32, 3], "dtype": "int8"}
    import onnx

    from tvmlab.models.quantized import quantized_onnx

    model = NETWORKS[name][0](batch=batch)
    onnx.save(quantized_onnx(model) if form == "int8" else model.proto, path)
    weights = sum(onnx.numpy_helper.to_array(t).nbytes for t in model.proto.graph.initializer)
    shape = [int(size) for size in model.input_shape]
    return {"shape": shape, "dtype": "float32", "weight_bytes": weights, "weights": model.weights}


def ready(
    runtime: str, name: str, path: str, shape: Sequence[int], dtype: str
) -> tuple[Callable[[], Any], Any]:
    """Get a model file ready on a runtime: a call on one array, and what the runtime made of it."""
    rng = np.random.default_rng(0)
    x = rng.random(shape, "f") if dtype == "float32" else rng.integers(-128, 128, shape, dtype)
    run = RUNTIMES[runtime](path, name)
    return lambda: run(x), run


@dataclass(frozen=True)
class Shape:
    """A convolution on one square image: its sizes, and nothing of its place in the network."""

    size: int
    in_channels: int
    out_channels: int
    kernel: int
    stride: int
    padding: int
    groups: int

    def __str__(self) -> str:
        text = f"{self.size:3}x{self.size:<3} {self.in_channels:4} to {self.out_channels:4}"
        text += f"  {self.kernel}x{self.kernel}/{self.stride}"
        return text + (f" in {self.groups} groups" if self.groups > 1 else "")

    def arguments(self) -> dict[str, int]:
        """The sizes by name, as `convolution` takes them."""
        return asdict(self)


def shapes(name: str) -> dict[Shape, tuple[int, int]]:
    """List the different convolutions of a network: how often each occurs, and its operations."""
    work: dict[Shape, int] = {}
    times: Counter[Shape] = Counter()
    for cost in layer_costs(ARCHITECTURES[name]):
        layer = cost.layer
        if layer.op == "conv":
            sizes = (cost.in_size[0], *layer.channels, layer.kernel, layer.stride, layer.padding)
            shape = Shape(*sizes, layer.groups)
            times[shape] += 1
            work[shape] = cost.flops
    return {shape: (times[shape], work[shape]) for shape in times}


def module(
    size: int,
    in_channels: int,
    out_channels: int,
    kernel: int,
    stride: int,
    padding: int,
    groups: int,
) -> Any:
    """Build a convolution with its bias and a ReLU over float32 [1, size, size, in_channels].

    Its data lies channels last, as it does inside a compiled network: channels first would add two
    transposes to what is measured.
    """
    from tvm import relax

    rng = np.random.default_rng(0)
    filters = (out_channels, kernel, kernel, in_channels // groups)
    weight = (rng.random(filters, dtype=np.float32) - 0.5) / np.sqrt(np.prod(filters[1:]))
    bias = rng.random(out_channels, dtype=np.float32).reshape(1, 1, 1, -1)
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((1, size, size, in_channels), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            y = builder.emit(
                relax.op.nn.conv2d(
                    data,
                    relax.const(weight.astype(np.float32)),
                    strides=stride,
                    padding=padding,
                    groups=groups,
                    data_layout="NHWC",
                    kernel_layout="OHWI",
                )
            )
            y = builder.emit(relax.op.add(y, relax.const(bias)))
            y = builder.emit_output(relax.op.nn.relu(y))
        builder.emit_func_output(y)
    return builder.get()


def convolution(**sizes: int) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Compile a convolution; a call whose input is a tensor of TVM's, and how it is computed."""
    import tvm
    from tvm import relax

    import tvmlab

    executable = tvmlab.compile(module(**sizes))
    [value] = executable.signature.inputs
    main = relax.VirtualMachine(executable.vm_executable, tvm.cpu())["main"]
    data = tvm.runtime.tensor(np.random.default_rng(1).random(value.shape, dtype=np.float32))
    rules = {kernel.rule for kernel in executable.summary().kernels}
    return lambda: main(data), {"winograd": "WinogradTransform" in rules}


def product(runtime: str, size: int) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Get a product of square matrices ready; each runtime's operands are its own tensors."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((size, size)).astype("float32") for _ in range(2))
    if runtime == "NumPy's BLAS":
        out = np.empty_like(x)
        return lambda: np.matmul(x, y, out=out), {}
    import tvm
    from tvm import relax

    import tvmlab

    builder = relax.BlockBuilder()
    a, b = (relax.Var(name, relax.TensorType((size, size), "float32")) for name in "ab")
    with builder.function("main", [a, b]):
        with builder.dataflow():
            made = builder.emit_output(relax.op.matmul(a, b))
        builder.emit_func_output(made)
    mod = builder.get()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.jsonl"
        report = tvmlab.tune(mod, records=path, trials=TRIALS, progress=False)
        tuned = tvmlab.compile(mod, records=path)
    np.testing.assert_allclose(tuned(x, y), x @ y, rtol=1e-3, atol=1e-3)
    multiply = relax.VirtualMachine(tuned.vm_executable, tvm.cpu())["main"]
    ours = [tvm.runtime.tensor(array) for array in (x, y)]
    return lambda: multiply(*ours), {"seconds": report.seconds, "report": str(report)}


def memory(path: str, shape: list[int], calls: int) -> dict[str, int]:
    """Load a saved executable and run it; the bytes that this process grew by at most.

    TVM is imported and its threads have started before.
    """
    import tvmlab

    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    bench.PeakLoop()()  # code generation and threads are TVM's own, whatever the network is
    before = kib("VmRSS")
    forget_peak()
    executable = tvmlab.load_executable(path)
    loading = kib("VmHWM")
    forget_peak()
    for _ in range(calls):
        executable(x)
    running = kib("VmHWM")
    return {"loading": 1024 * (loading - before), "running": 1024 * (running - before)}


def kib(field: str) -> int:
    """Read a number of this process's memory: VmRSS is what it has, VmHWM the most it has had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise OSError(f"/proc/self/status has no {field}")


def forget_peak() -> None:
    """Set VmHWM back to VmRSS."""
    Path("/proc/self/clear_refs").write_text("5")


def relay_calls(number: int) -> dict[str, float]:
    """Print and read a function of so many calls as Relay text; the seconds of each."""
    from tvmlab import relay

    x = relay.var("x", shape=(1, 8, 6, 6))
    w, b = relay.const(np.zeros((8, 8, 3, 3), np.float32)), relay.const(np.zeros(8, np.float32))
    steps = [
        lambda v: relay.nn.conv2d(v, w, padding=(1, 1), channels=8, kernel_size=(3, 3)),
        lambda v: relay.nn.bias_add(v, b),
        lambda v: relay.add(v, x),
        relay.nn.relu,
    ]
    value = x
    for index in range(number):
        value = steps[index % 4](value)
    mod = relay.from_expr(relay.Function([x], value))
    del value
    start = time.perf_counter()
    text = relay.astext(mod)
    printed = time.perf_counter()
    again = relay.fromtext(text)
    read = time.perf_counter()
    assert sum(len(block.bindings) for block in again["main"].body.blocks) == number
    return {"printed": printed - start, "read": read - printed}


def relay_write(model: str, path: str) -> dict[str, float]:
    """Print a model file with its weights as Relay text; the seconds and the size."""
    import tvmlab
    from tvmlab import relay

    mod = tvmlab.load(model)
    start = time.perf_counter()
    text = relay.astext(mod)
    seconds = time.perf_counter() - start
    Path(path).write_text(text, encoding="utf-8")
    return {"seconds": seconds, "bytes": len(text)}


def relay_read(path: str) -> dict[str, float]:
    """Read a network's Relay text; the seconds, and the bytes that this process grew by."""
    from tvmlab import relay

    relay.fromtext("1 + 1")
    before = kib("VmRSS")
    forget_peak()
    start = time.perf_counter()
    relay.fromtext(Path(path).read_text(encoding="utf-8"))
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "grown": 1024 * (kib("VmHWM") - before)}


def candidates(runtime: str, number: int) -> dict[str, float]:
    """Compile and measure so many schedules, by us or by MetaSchedule's defaults; the seconds."""
    batch = scheduled(number)
    if runtime == "tvmlab":
        from tvmlab import host_target
        from tvmlab.tuning.measure import Measure
        from tvmlab.tuning.measuring.local import LocalMeasurer

        start = time.perf_counter()
        with LocalMeasurer(host_target(), Measure()) as measurer:
            measured = sum(bool(outcome.times) for _, outcome in measurer.measure(batch))
            return {"seconds": time.perf_counter() - start, "measured": measured}
    # Where workers are not even ready in time, each candidate would take the whole limit.
    limit = UPSTREAM_SECONDS if _upstream(scheduled(2), UPSTREAM_SECONDS) else LONGER_SECONDS
    start = time.perf_counter()
    measured = _upstream(batch, limit)
    return {"seconds": time.perf_counter() - start, "measured": measured, "limit": limit}


def scheduled(number: int, size: int = 512) -> list[Any]:
    """Schedule a matrix product in different ways, always the same ones.

    Two levels of tiles, the rows in parallel, the innermost columns as vectors.
    """
    import tvm
    from tvm import s_tir, te

    a, b = (te.placeholder((size, size), name=name) for name in "AB")
    k = te.reduce_axis((0, size), name="k")
    product = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    function = te.create_prim_func([a, b, product]).with_attr("global_symbol", "main")
    drawn = random.Random(0)
    made = []
    for _ in range(number):
        sch = s_tir.Schedule(tvm.IRModule({"main": function}))
        block = sch.get_sblock("C")
        i, j, k_ = sch.get_loops(block)
        rows = sch.split(i, [None, drawn.choice([1, 2, 4, 8]), drawn.choice([1, 2, 4, 8])])
        columns = sch.split(j, [None, drawn.choice([1, 2, 4]), drawn.choice([16, 32, 64])])
        depth = sch.split(k_, [None, drawn.choice([4, 8, 16, 32])])
        sch.reorder(
            rows[0], columns[0], rows[1], columns[1], depth[0], depth[1], rows[2], columns[2]
        )
        sch.parallel(rows[0])
        sch.vectorize(columns[2])
        sch.decompose_reduction(block, depth[0])
        made.append(sch.mod)
    return made


def _upstream(batch: list[Any], limit: float) -> int:
    """Measure candidates with MetaSchedule's own builder and runner; return how many ran."""
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.builder import BuilderInput, LocalBuilder
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner, RunnerInput

    from tvmlab import host_target
    from tvmlab.tuning.measure import Measure

    how, target = Measure(), host_target()
    runner = LocalRunner(
        timeout_sec=limit,
        evaluator_config=EvaluatorConfig(
            number=how.number,
            repeat=how.repeat,
            min_repeat_ms=how.min_repeat_ms,
            enable_cpu_cache_flush=how.cache_flush,
        ),
    )
    built = LocalBuilder(timeout_sec=limit).build([BuilderInput(mod, target) for mod in batch])
    inputs = [
        RunnerInput(result.artifact_path, "cpu", ArgInfo.from_entry_func(mod, True))
        for mod, result in zip(batch, built, strict=True)
        if result.artifact_path is not None
    ]
    found = [future.result() for future in runner.run(inputs)]
    return sum(result.run_secs is not None for result in found)
