"""The Llama architecture in PyTorch, without a cache, and random weights for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import rms_norm, silu

from tvmlab.lm import Config

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
    w = {name: torch.from_numpy(np.asarray(array)) for name, array in weights.items()}
    count, size = len(tokens), config.head_dim
    heads, shared = config.num_attention_heads, config.num_key_value_heads
    frequency = config.rope_theta ** -(torch.arange(0, size, 2, dtype=torch.float32) / size)
    angle = torch.outer(torch.arange(count, dtype=torch.float32), frequency)
    cos, sin = (torch.cat([f(angle)] * 2, dim=-1)[:, None] for f in (torch.cos, torch.sin))

    def turned(x: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-high, low], dim=-1) * sin

    def normed(x: torch.Tensor, name: str) -> torch.Tensor:
        return rms_norm(x, x.shape[-1:], w[f"{name}.weight"], config.rms_norm_eps)

    mask = torch.full((count, count), -torch.inf).triu(1)
    x = w["model.embed_tokens.weight"][tokens]
    for number in range(config.num_hidden_layers):
        layer = f"model.layers.{number}"
        a = normed(x, f"{layer}.input_layernorm")
        q, k, v = (
            (a @ w[f"{layer}.self_attn.{one}_proj.weight"].T).reshape(count, -1, size)
            for one in "qkv"
        )
        q, k = turned(q), turned(k)
        k, v = (one.repeat_interleave(heads // shared, dim=1) for one in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) / size**0.5 + mask
        seen = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).reshape(count, -1)
        x = x + seen @ w[f"{layer}.self_attn.o_proj.weight"].T
        a = normed(x, f"{layer}.post_attention_layernorm")
        gate, up = (a @ w[f"{layer}.mlp.{one}_proj.weight"].T for one in ("gate", "up"))
        x = x + (silu(gate) * up) @ w[f"{layer}.mlp.down_proj.weight"].T
    head = w["model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"]
    return (normed(x, "model.norm") @ head.T).numpy()
