"""Measure the workbook's networks against ONNX Runtime and PyTorch: a table, and a JSON file.

    python scripts/bench.py                  # all networks
    python scripts/bench.py digits_resnet    # some of them

Batch 1, as many threads as cores on every side, rivals interleaved, medians. The JSON file is
written to build/bench.json.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm

import tvmlab
from tvmlab import bench, models
from tvmlab._files import whole

OUTPUT = Path(__file__).resolve().parent.parent / "build" / "bench.json"
NETWORKS: dict[str, tuple[Callable[[], models.Model], Callable[[], Any]]] = {
    "digits_resnet": (models.digits_resnet, models.torch_digits_resnet),
    "resnet50_v2": (models.resnet50_v2, models.torch_resnet50_v2),
}


def network(name: str, repeats: int = 5) -> dict[str, Any]:
    """Time one network on all rivals; print the table; return the figures."""
    make, make_torch = NETWORKS[name]
    model = make()
    shape = tuple(int(size) for size in model.input_shape)
    image = np.random.default_rng(0).random(shape, dtype=np.float32)
    mod = tvmlab.load(model)
    start = time.perf_counter()
    run = tvmlab.compile(mod)
    compile_seconds = time.perf_counter() - start
    rivals = {
        "tvmlab": run,
        "PyTorch": bench.Torch(make_torch()),
        "ONNX Runtime": bench.OnnxRuntime(model.proto),
    }
    reference = rivals["ONNX Runtime"](image)
    error = float(np.abs(run(image) - reference).max() / np.abs(reference).max())
    calls = {key: lambda rival=rival: rival(image) for key, rival in rivals.items()}
    comparison = bench.compare(calls, repeats=repeats)
    print(f"{model}\ncompiled in {compile_seconds:.1f} s, relative error {error:.1e}")
    print(comparison, end="\n\n", flush=True)
    return {
        "weights": model.weights,
        "compile_seconds": compile_seconds,
        "relative_error": error,
        "median_seconds": comparison.medians,
        "over_onnxruntime": comparison.ratio("tvmlab", to="ONNX Runtime"),
    }


def main(names: list[str]) -> None:
    """Run the networks named, or all."""
    target = tvmlab.host_target()
    figures = {name: network(name) for name in names or NETWORKS}
    report = {
        "date": time.strftime("%Y-%m-%d"),
        "tvm": tvm.__version__,
        "target": str(target),
        "networks": figures,
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    with whole(OUTPUT) as part:
        part.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - set(NETWORKS)
    if unknown:
        sys.exit(f"no such network: {', '.join(sorted(unknown))}; there are {', '.join(NETWORKS)}")
    main(sys.argv[1:])
