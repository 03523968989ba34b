"""The convolutions of a network, each as a module of its own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tvmlab.models.cost import ARCHITECTURES, layer_costs


@dataclass(frozen=True)
class Shape:
    """A convolution on one square picture: its sizes, and nothing of its place in the network."""

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
        """The sizes by name, as `ready` takes them."""
        return asdict(self)


def shapes(name: str) -> dict[Shape, tuple[int, int]]:
    """List the different convolutions of a network.

    Parameters
    ----------
    name : str
        The network.

    Returns
    -------
    dict of Shape to (int, int)
        How often each occurs, and its floating-point operations.
    """
    work: dict[Shape, int] = {}
    times: Counter[Shape] = Counter()
    for cost in layer_costs(ARCHITECTURES[name]):
        layer = cost.layer
        if layer.op == "conv":
            shape = Shape(
                cost.in_size[0],
                *layer.channels,
                layer.kernel,
                layer.stride,
                layer.padding,
                layer.groups,
            )
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
    """Build a convolution with its bias and a ReLU; weights are constants.

    Its data lies channels last, as it does inside a network once that is compiled: channels first
    would add two transposes to what is measured.

    Returns
    -------
    tvm.ir.IRModule
        ``main`` takes float32 [1, size, size, in_channels].
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


def ready(**sizes: int) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Compile a convolution for this machine.

    Parameters
    ----------
    **sizes : int
        The fields of a `Shape`.

    Returns
    -------
    callable, dict
        A call of the compiled function whose input is on the device already; "compile_seconds",
        and "winograd": whether it is computed with fewer operations than it is defined by.
    """
    import tvm
    from tvm import relax

    import tvmlab

    made = module(**sizes)
    start = time.perf_counter()
    executable = tvmlab.compile(made)
    seconds = time.perf_counter() - start
    [value] = executable.signature.inputs
    picture = np.random.default_rng(1).random(value.shape, dtype=np.float32)
    main = relax.VirtualMachine(executable.vm_executable, tvm.cpu())["main"]
    data = tvm.runtime.tensor(picture)
    rules = {kernel.rule for kernel in executable.summary().kernels}
    said = {"compile_seconds": seconds, "winograd": "WinogradTransform" in rules}
    return lambda: main(data), said
