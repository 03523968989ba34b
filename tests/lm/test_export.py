"""The decoder of `tvmlab.lm`, and the same network as a PyTorch program of any length."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from torch.export import Dim

import tvmlab
from tvmlab import lm
from tvmlab.models import addition, training
from tvmlab.support import safetensors


class _Adder(torch.nn.Module):
    """The shipped decoder in PyTorch, without a cache."""

    def __init__(self, weights: dict[str, torch.Tensor], sizes: dict[str, Any]) -> None:
        super().__init__()
        self._names, self._sizes = list(weights), sizes
        for name, weight in weights.items():
            self.register_buffer(name.replace(".", "_"), weight)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        weights = {name: getattr(self, name.replace(".", "_")) for name in self._names}
        return training.logits(weights, tokens, self._sizes)


def test_an_imported_program_of_any_length_agrees() -> None:
    arrays = safetensors.read(addition.WEIGHTS)
    weights = {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()}
    module = _Adder(weights, json.loads(addition.CONFIG.read_text())).eval()
    example = torch.tensor([addition.encode("58+767=")])
    length = Dim("length", min=1, max=32)
    program = torch.export.export(module, (example,), dynamic_shapes=({1: length},))
    imported = tvmlab.compile(tvmlab.load(program))
    decoder = lm.load(addition.WEIGHTS, addition.CONFIG)
    text = addition.encode("58+767=528.58+767=528.58+767=528"[:32])
    for count in (1, 2, 7, 8, 17, 32):
        session = decoder.session(1, 32)
        (wanted,) = session.extend([session.add()], [text[:count]])
        got = np.asarray(imported(torch.tensor([text[:count]])))[0, -1]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
