"""The networks on each of the rivals, ready to be called: arrays in, arrays out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvmlab import bench, models

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


@dataclass(frozen=True)
class Ready:
    """A network that waits for its call.

    Attributes
    ----------
    call : callable
        Runs it on a picture that stays the same, and gives its answer.
    seconds : float
        How long its rival took to make it ready: to compile it, for those that compile.
    weights : str
        Where the weights come from: "seeded" or "trained".
    weight_bytes : int
        The size of its weights.
    executable : tvmlab.Executable or None
        What tvmlab made of it.
    """

    call: Callable[[], Any]
    seconds: float
    weights: str
    weight_bytes: int
    executable: Any = None


def weight_bytes(model: models.Model) -> int:
    """Count the bytes of a model's weights."""
    import onnx

    return sum(onnx.numpy_helper.to_array(t).nbytes for t in model.proto.graph.initializer)


def _tvmlab(model: models.Model, _torch: Callable[[], Any]) -> tuple[Any, float]:
    import tvmlab

    mod = tvmlab.load(model)
    start = time.perf_counter()
    executable = tvmlab.compile(mod)
    return executable, time.perf_counter() - start


def _onnxruntime(model: models.Model, _torch: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return bench.OnnxRuntime(model), time.perf_counter() - start


def _eager(_model: models.Model, torch_form: Callable[[], Any]) -> tuple[Any, float]:
    return bench.Torch(torch_form()), 0.0


def _compiled(_model: models.Model, torch_form: Callable[[], Any]) -> tuple[Any, float]:
    import torch

    from tvmlab.toolchain import compiler

    compiler()  # without one, PyTorch fails after half a minute
    return bench.Torch(torch.compile(torch_form())), 0.0


#: Each rival by its name; the others are measured against ONNX Runtime.
RIVALS: dict[str, Callable[[models.Model, Callable[[], Any]], tuple[Any, float]]] = {
    "tvmlab": _tvmlab,
    "PyTorch compiled": _compiled,
    "PyTorch eager": _eager,
    "ONNX Runtime": _onnxruntime,
}


def network(rival: str, name: str, batch: int = 1) -> Ready:
    """Get a network ready on a rival.

    Parameters
    ----------
    rival : str
        One of RIVALS.
    name : str
        One of NETWORKS.
    batch : int
        Pictures in one call.

    Returns
    -------
    Ready
    """
    build, build_torch = NETWORKS[name]
    model = build(batch=batch)
    shape = [int(size) for size in model.input_shape]
    picture = np.random.default_rng(0).random(shape, dtype=np.float32)
    run, seconds = RIVALS[rival](model, build_torch)
    executable = run if rival == "tvmlab" else None
    return Ready(lambda: run(picture), seconds, model.weights, weight_bytes(model), executable)
