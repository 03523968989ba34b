"""Train the decoder that the package contains: `python -m tvmlab.models train-decoder`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support import safetensors
from ..support.extras import need
from ..support.files import whole
from .addition import CONFIG, DIGITS, WEIGHTS, answer, encode, held_out, is_held_out

need("torch", extra="torch")
import torch  # noqa: E402 (after the check that says how to install it)
from torch.nn.functional import cross_entropy, rms_norm, silu  # noqa: E402

__all__ = ["SIZES", "accuracy", "logits", "parameters", "train", "train_decoder"]

#: The decoder's sizes, with the names of ``config.json``.
SIZES: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 13,
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100.0,
    "tie_word_embeddings": False,
}
_STEPS, _BATCH, _RATE, _ENOUGH = 2000, 256, 3e-3, 0.99
_LENGTH = 3 * DIGITS + 4  # of the longest problem with its answer
_IGNORED = -100

Weights = dict[str, torch.Tensor]


def parameters(seed: int) -> Weights:
    """Return untrained weights with the names of ``LlamaForCausalLM``."""
    random = torch.Generator().manual_seed(seed)
    hidden, inner, layers = (
        SIZES[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers")
    )
    size, vocabulary = SIZES["head_dim"], SIZES["vocab_size"]
    q, kv = (SIZES[f"num_{name}_heads"] * size for name in ("attention", "key_value"))
    made: Weights = {}

    def add(name: str, *shape: int, gain: float = 1.0) -> None:
        std = gain / math.sqrt(shape[-1])
        made[f"{name}.weight"] = std * torch.randn(*shape, generator=random)

    add("model.embed_tokens", vocabulary, hidden, gain=math.sqrt(hidden) / 4)
    for number in range(layers):
        layer = f"model.layers.{number}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            made[f"{layer}.{name}.weight"] = torch.ones(hidden)
        for name, rows in zip("qkv", (q, kv, kv), strict=True):
            add(f"{layer}.self_attn.{name}_proj", rows, hidden)
        add(f"{layer}.self_attn.o_proj", hidden, q, gain=0.4)
        add(f"{layer}.mlp.gate_proj", inner, hidden)
        add(f"{layer}.mlp.up_proj", inner, hidden)
        add(f"{layer}.mlp.down_proj", hidden, inner, gain=0.4)
    made["model.norm.weight"] = torch.ones(hidden)
    add("lm_head", vocabulary, hidden)
    return made


def logits(
    weights: Weights, tokens: torch.Tensor, sizes: Mapping[str, Any] = SIZES
) -> torch.Tensor:
    """Return the logits ``[batch, length, vocab_size]`` for tokens ``[batch, length]``."""
    batch, count = tokens.shape
    size, eps = sizes["head_dim"], sizes["rms_norm_eps"]
    frequency = sizes["rope_theta"] ** -(torch.arange(0, size, 2) / size)
    angle = torch.outer(torch.arange(count), frequency)
    cos, sin = angle.cos(), angle.sin()

    def product(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ weights[f"{name}.weight"].T

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return rms_norm(x, x.shape[-1:], weights[f"{name}.weight"], eps)

    def rotated(x: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, dim=-1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)

    x = weights["model.embed_tokens.weight"][tokens]
    for number in range(sizes["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        normed = norm(x, f"{layer}.input_layernorm")
        q, k, v = (
            product(normed, f"{layer}.self_attn.{one}_proj")
            .reshape(batch, count, -1, size)
            .transpose(1, 2)
            for one in "qkv"
        )
        seen = torch.nn.functional.scaled_dot_product_attention(
            rotated(q), rotated(k), v, is_causal=True, enable_gqa=True
        )
        seen = seen.transpose(1, 2).reshape(batch, count, -1)
        x = x + product(seen, f"{layer}.self_attn.o_proj")
        normed = norm(x, f"{layer}.post_attention_layernorm")
        gate = silu(product(normed, f"{layer}.mlp.gate_proj"))
        inner = gate * product(normed, f"{layer}.mlp.up_proj")
        x = x + product(inner, f"{layer}.mlp.down_proj")
    head = "model.embed_tokens" if sizes["tie_word_embeddings"] else "lm_head"
    return product(norm(x, "model.norm"), head)


def _batch(random: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw problems, and return their tokens and the tokens to predict."""
    tokens = np.zeros((_BATCH, _LENGTH), np.int64)
    wanted = np.full((_BATCH, _LENGTH), _IGNORED, np.int64)
    row = 0
    while row < _BATCH:
        a, b = (int(random.integers(10**digits)) for digits in random.integers(1, DIGITS + 1, 2))
        if is_held_out(a, b):
            continue
        problem, solved = encode(f"{a}+{b}="), encode(answer(a, b))
        length = len(problem) + len(solved)
        tokens[row, :length] = problem + solved
        wanted[row, len(problem) - 1 : length - 1] = solved
        row += 1
    return torch.from_numpy(tokens), torch.from_numpy(wanted)


def train(
    steps: int = _STEPS, seed: int = 4, note: Callable[[int, float], None] | None = None
) -> Weights:
    """Train from scratch; `note` gets every hundredth step and its loss."""
    weights = parameters(seed)
    for tensor in weights.values():
        tensor.requires_grad_()
    random = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(weights.values(), lr=_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=_RATE, total_steps=max(2, steps), pct_start=0.1
    )
    for step in range(steps):
        tokens, wanted = _batch(random)
        found = logits(weights, tokens).flatten(0, 1)
        loss = cross_entropy(found, wanted.flatten(), ignore_index=_IGNORED)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimizer.step()
        schedule.step()
        if note and step % 100 == 0:
            note(step, float(loss.detach()))
    return {name: tensor.detach() for name, tensor in weights.items()}


def accuracy(weights: Weights, pairs: list[tuple[int, int]]) -> float:
    """Return the share of problems whose whole answer is right, digit after digit."""
    right = 0
    with torch.inference_mode():
        for a, b in pairs:
            problem, solved = encode(f"{a}+{b}="), encode(answer(a, b))
            # The answer is right if each of its tokens is the most likely one after those before.
            found = logits(weights, torch.tensor([problem + solved]))[0].argmax(dim=-1).tolist()
            right += found[len(problem) - 1 : -1] == solved
    return right / len(pairs)


def train_decoder() -> None:
    """Train the decoder, and write its files if its accuracy is high enough."""
    trained = train(note=lambda step, loss: print(f"step {step}: loss {loss:.4f}", flush=True))
    halves = {name: tensor.numpy().astype(np.float16) for name, tensor in trained.items()}
    rounded = {name: torch.from_numpy(_float(array)) for name, array in halves.items()}
    pairs = held_out(2000)
    share = accuracy(rounded, pairs)
    print(f"{share:.2%} of {len(pairs)} held-out problems are right")
    if share < _ENOUGH:
        raise SystemExit(f"less than {_ENOUGH:.0%}: nothing is written")
    safetensors.write(WEIGHTS, halves)
    with whole(CONFIG) as part:
        part.write_text(json.dumps(SIZES, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {WEIGHTS}")


def _float(array: NDArray[np.float16]) -> NDArray[np.float32]:
    return array.astype(np.float32)
