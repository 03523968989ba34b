"""The workbook's networks run by their peers, and their weights."""

from __future__ import annotations

import hashlib

import numpy as np
import onnx
import torch

from tests.oracles.models import by_onnx_runtime
from tvmlab.models import torch_form
from tvmlab.models.networks import Parameters, resnet_v2

TINY = resnet_v2("tiny", (3, 32, 32), 7, bottleneck=True, units=(1, 2), channels=(8, 16, 32))


def by_onnxruntime(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return by_onnx_runtime(proto, x)[0]


def by_torch(network: torch_form.Network, x: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return network(torch.from_numpy(x)).numpy()


def relative_error(value: np.ndarray, reference: np.ndarray) -> float:
    return float(np.abs(value - reference).max() / np.abs(reference).max())


def digest(parameters: Parameters) -> str:
    total = hashlib.sha256()
    for name, value in parameters.items():
        total.update(name.encode() + value.astype("<f4").tobytes())
    return total.hexdigest()[:16]
