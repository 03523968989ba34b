"""A network in int8: quantized by ONNX Runtime, and run in integers by the rivals."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from bench_rivals import NETWORKS

from tvmlab import bench

#: Those that race; the first is our own in float32.
RIVALS = ("tvmlab", "tvmlab int8", "ONNX Runtime int8")


def write(name: str, path: str) -> None:
    """Quantize a network and save it: static QDQ, a scale for each output channel.

    Parameters
    ----------
    name : str
        One of NETWORKS.
    path : str
        Where the ONNX model goes.
    """
    import onnx

    from tvmlab.models.quantized import quantized_onnx

    onnx.save(quantized_onnx(NETWORKS[name][0](batch=1)), path)


def ready(rival: str, name: str, path: str) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Get a network ready on a rival.

    Parameters
    ----------
    rival : str
        One of RIVALS.
    name : str
        One of NETWORKS.
    path : str
        What `write` wrote.

    Returns
    -------
    tuple of callable and dict
        What runs it on a picture that stays the same; how long it took to make it ready.
    """
    import tvmlab
    from tvmlab.qnn.transform import FakeQuantizationToInteger

    model = NETWORKS[name][0](batch=1)
    start = time.perf_counter()
    if rival == "ONNX Runtime int8":
        run: Any = bench.OnnxRuntime(path, spinning=False)
    elif rival == "tvmlab int8":
        run = tvmlab.compile(FakeQuantizationToInteger()(tvmlab.load(path)))
    else:
        run = tvmlab.compile(tvmlab.load(model))
    seconds = time.perf_counter() - start
    shape = [int(size) for size in model.input_shape]
    picture = np.random.default_rng(0).random(shape, dtype=np.float32)
    return (lambda: run(picture)), {"seconds": seconds}
