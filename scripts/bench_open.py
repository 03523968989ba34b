"""The section `open` of `make bench`: what an open batch or length costs.

Each network is compiled once with an open size and once for each static size. Both forms run in
the same process, because they share one runtime and its threads. Each form is saved and loaded
several times, because the place of its weights in memory changes its time by several percent.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from bench_harness import TURNS, Process, difference, folder, race, timed, turn

import tvmlab
from tvmlab.support.extras import need

#: Largest difference from PyTorch's result, relative to its largest number.
ERROR = 1e-4
#: Times that each form is loaded.
COPIES = 3
BATCHES, LENGTHS = (1, 3, 8), (5, 16, 77, 128)
#: The open axis of each network's input, and its sizes. All but `mlp` are of the zoo.
OPEN = {
    "mlp": (0, (1, 3, 8, 64, 100)),
    "resnet18": (0, BATCHES),
    "vit_b_32": (0, BATCHES),
    "bert_base": (1, LENGTHS),
    "gpt2_4_layers": (1, LENGTHS),
    "llama_4_layers": (1, LENGTHS),
}


def open_sizes(_name: str, rounds: int) -> dict[str, float]:
    """Compare each network with an open size, by both importers, with static sizes."""
    values = {}
    for name in OPEN:
        for importer in ("torch.export", "ONNX"):
            with Process(f"tvmlab, {name}") as process:
                ratios = process.do(compared, name, importer, rounds)
            print(f"{name}, {importer}:", *(f"{n}: {ratio:.2f}" for n, ratio in ratios.items()))
            values[f"{name}, {importer}: open size / static size"] = max(ratios.values())
    return {**values, "open size / static size, largest": max(values.values())}


def compared(name: str, importer: str, rounds: int) -> dict[int, float]:
    """Return the time with an open size over the time of a static one, for each size.

    Each ratio is the median of those of all loaded pairs.
    """
    axis, sizes = OPEN[name]
    module, make = network(name)
    runs = copies(compiled(module, make(7), importer, axis))
    ratios = {}
    for size in sizes:
        x = make(size)
        alone = copies(compiled(module, x, importer, None))
        expected, given = module(x).detach().numpy(), x.numpy()
        found = []
        for pair in zip(runs, alone, strict=True):
            for form, one in zip(("open", "static"), pair, strict=True):
                error = difference(one(given), expected)
                assert error < ERROR, f"{name}, {importer}, {size}: relative error {error:.1e}"
                TURNS[form] = timed(partial(one, given))
            turns = {form: partial(turn, form) for form in ("open", "static")}
            found.append(race(turns, rounds).ratio("open", "static"))
        ratios[size] = statistics.median(found)
    return ratios


def copies(executable: Any) -> list[Any]:
    """Load an executable several times."""
    path = folder() / "copies.so"
    executable.save(path)
    return [tvmlab.load_executable(path) for _ in range(COPIES)]


def network(name: str) -> tuple[Any, Callable[[int], Any]]:
    """Return a module, and a function from a size to an input."""
    torch = need("torch", extra="torch")
    torch.manual_seed(0)
    if name == "mlp":
        linear, gelu = torch.nn.Linear, torch.nn.GELU()
        layers = [linear(784, 1024), gelu, linear(1024, 1024), gelu, linear(1024, 10)]
        return torch.nn.Sequential(*layers).eval(), lambda size: torch.randn(size, 784)
    import networks

    module, (x,) = networks.network(name)
    if OPEN[name][0]:
        return module, lambda size: torch.randint(3, 99, (1, size))
    return module, lambda size: torch.randn(size, *x.shape[1:])


def compiled(module: Any, x: Any, importer: str, axis: int | None) -> Any:
    """Export a module, with an open axis or as it is, and compile it."""
    torch = need("torch", extra="torch")
    shapes: Any = None
    if axis is not None:
        shapes = ({axis: torch.export.Dim("n", min=2 if axis else 1, max=128)},)
        # The inputs of `networks.First` are one parameter, `*inputs`.
        shapes = (shapes,) if hasattr(module, "module") else shapes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if importer == "ONNX":
            program = torch.onnx.export(
                module, (x,), dynamic_shapes=shapes, dynamo=True, verbose=False, optimize=True
            )
            proto = program.model_proto
            (given,) = proto.graph.input
            dims = given.type.tensor_type.shape.dim
            sizes = {given.name: tuple(dim.dim_param or dim.dim_value for dim in dims)}
            return tvmlab.compile(tvmlab.load(proto, shapes=sizes))
        return tvmlab.compile(tvmlab.load(torch.export.export(module, (x,), dynamic_shapes=shapes)))
