"""The logits of PyTorch, without a cache, and random weights."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tvmlab.lm import Config
from tvmlab.models import training

TINY = Config(
    vocab_size=97,
    hidden_size=96,
    intermediate_size=160,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=32,
    max_position_embeddings=512,
)


def random_weights(config: Config, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Return weights that keep activations of order one."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, shape in config.weights().items():
        array = rng.standard_normal(shape, np.float32)
        if len(shape) == 1:
            made[name] = 1 + 0.1 * array
        elif "embed" in name:
            made[name] = array
        else:
            made[name] = array / np.float32(np.sqrt(shape[1]))
    return made


def logits(config: Config, weights: dict[str, Any], tokens: list[int]) -> NDArray[np.float32]:
    """Return the logits after each token, [tokens, vocab_size]."""
    known = {name: torch.from_numpy(np.asarray(array)) for name, array in weights.items()}
    return training.logits(known, torch.tensor([tokens]), asdict(config))[0].numpy()
