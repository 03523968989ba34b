"""The section `lm` of `make bench`: a language model of 110 million weights.

Its weights are random, because only the time matters. PyTorch and ONNX Runtime get the same
decoder, written with plain operators. A cache of fixed size lets `torch.compile` compile it once.
"""

from __future__ import annotations

import math
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bench_harness import TURNS, Process, difference, race, timed, turn

from tvmlab import lm
from tvmlab.measure import bench
from tvmlab.runtime.timing import triad
from tvmlab.support.extras import need

SIZES = lm.Config(
    vocab_size=32_000,
    hidden_size=768,
    intermediate_size=2_432,
    num_hidden_layers=12,
    num_attention_heads=12,
    num_key_value_heads=4,
    max_position_embeddings=2_304,
    tie_word_embeddings=True,
)
KINDS = {"tvmlab": None, "tvmlab int8": "int8", "tvmlab int4": "int4"}
#: The process that measures the memory's bandwidth, in turns with the candidates.
MEMORY = "memory"
SHORT, LONG, PROMPT = 100, 2_000, 128
#: Largest difference of a logit from PyTorch's, relative to the largest logit. Rounding random
#: weights to 8 and 4 bits changes the logits by 0.03 and 0.4; a wrong product would by about 1.
ERROR, ROUNDED = 1e-4, {"tvmlab int8": 0.05, "tvmlab int4": 0.6}


def language(_name: str, rounds: int) -> dict[str, float]:
    """Compare decode and prefill with PyTorch and ONNX Runtime."""
    values: dict[str, float] = {}
    peers = ["PyTorch", "PyTorch compiled"]
    found, moved = raced([*KINDS, MEMORY, *peers], decoding, rounds)
    share = 4 * weights_read() / moved * found.ratio(MEMORY, "tvmlab")
    values["lm: a token's weights per second / the memory's bandwidth"] = share
    for name in ("tvmlab int8", "tvmlab int4"):
        values[f"lm: time per token, tvmlab / {name}"] = found.ratio("tvmlab", name)
    for name in peers:
        values[f"lm: time per token, {name} / tvmlab"] = found.ratio(name, "tvmlab")
    lengths, _ = raced(["tvmlab"], at_both_lengths, rounds)
    measure = f"lm: time per token after {LONG} tokens / after {SHORT}"
    values[measure] = lengths.ratio("long", "short")
    prompts, _ = raced(["tvmlab", "ONNX Runtime"], prefilling, rounds)
    measure = f"lm: prefill of {PROMPT} tokens, tvmlab / ONNX Runtime"
    values[measure] = prompts.ratio("tvmlab", "ONNX Runtime")
    return values


def raced(names: list[str], prepare: Any, rounds: int) -> tuple[Any, int]:
    """Prepare each candidate in a process of its own, check its logits, and race the candidates.

    Return the comparison, and the bytes that `MEMORY` moves.
    """
    processes = [Process(name) for name in names]
    try:
        made = {
            one.name: one.do(moving) if one.name == MEMORY else one.do(prepare, one.name)
            for one in processes
        }
        moved, expected = made.pop(MEMORY, 0), made[names[-1]]
        for name, got in made.items():
            error = difference(got, expected)
            assert error < ROUNDED.get(name, ERROR), f"{name}: relative error {error:.1e}"
        if prepare is at_both_lengths:
            turns = {key: partial(processes[0].do, turn, key) for key in ("short", "long")}
        else:
            turns = {one.name: partial(one.do, turn) for one in processes}
        return race(turns, rounds, *processes), moved
    finally:
        for one in processes:
            one.shutdown()


def weights_read() -> int:
    """Return the weights that one token reads: all, with the embedding once."""
    return sum(math.prod(shape) for shape in SIZES.weights().values())


def weights() -> dict[str, np.ndarray]:
    """Return the same random weights in every process."""
    rng = np.random.default_rng(0)
    return {
        name: np.ones(shape, np.float32)
        if len(shape) == 1
        else rng.standard_normal(shape, np.float32) / np.float32(math.sqrt(shape[-1]))
        for name, shape in SIZES.weights().items()
    }


def tokens(count: int) -> list[int]:
    """Return the same random tokens in every process."""
    return np.random.default_rng(1).integers(0, SIZES.vocab_size, count).tolist()


def moving() -> int:
    """Prepare the loop that measures the memory; return the bytes that it reads and writes."""
    loop, moved = triad()
    TURNS["call"] = timed(loop)
    return moved


def decoding(runtime: str) -> np.ndarray:
    """Prepare the step from `SHORT` tokens to one more; return its logits."""
    *before, last = tokens(SHORT + 1)
    if runtime in KINDS:
        step = ours(KINDS[runtime], before, last)
    else:
        step = in_torch(runtime, before, last)
    result = step()
    TURNS["call"] = timed(step)
    return result


def ours(kind: str | None, before: list[int], last: int) -> Any:
    """Return a function that appends a token to a text, and removes it again."""
    session = lm.load(weights(), SIZES, quantize=kind).session()
    return step_after(session, before, last)


def step_after(session: lm.Session, before: list[int], last: int) -> Any:
    """Return a function that appends a token to a new sequence, and removes it again."""
    one = session.add()
    session.extend([one], [before])

    def step() -> np.ndarray:
        made = session.extend([one], [[last]])
        session.drop(one, 1)
        return made

    return step


def at_both_lengths(_runtime: str) -> np.ndarray:
    """Prepare steps after a short and a long text with the same model."""
    model = lm.load(weights(), SIZES)
    session = model.session(2)
    for key, length in (("short", SHORT), ("long", LONG)):
        *before, last = tokens(length + 1)
        step = step_after(session, before, last)
        result = step()
        TURNS[key] = timed(step)
    # Another kernel computes the attention within a prompt, so the two check each other.
    prompt = model.session()
    expected = prompt.extend([prompt.add()], [tokens(LONG + 1)])
    error = difference(result, expected)
    assert error < ERROR, f"after {LONG} tokens: relative error {error:.1e}"
    return result


def prefilling(runtime: str) -> np.ndarray:
    """Prepare the call that reads a prompt of `PROMPT` tokens; return the logits after it."""
    prompt = tokens(PROMPT)
    if runtime in KINDS:
        session = lm.load(weights(), SIZES).session(1, PROMPT)
        one = session.add()

        def call() -> np.ndarray:
            made = session.extend([one], [prompt])
            session.drop(one, PROMPT)
            return made

    else:
        torch, onnxruntime = need("torch", extra="torch"), need("onnxruntime", extra="peers")
        given = (torch.tensor([prompt]), torch.arange(PROMPT))
        with tempfile.TemporaryDirectory() as place:
            path = str(Path(place) / "decoder.onnx")
            module = decoder(PROMPT, "prompt").eval()
            torch.onnx.export(module, given, path, dynamo=True, external_data=True, verbose=False)
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = bench.peer_threads()
            run = onnxruntime.InferenceSession(path, options)
        names = [one.name for one in run.get_inputs()]  # the positions can be folded away
        named = {name: one.numpy() for name, one in zip(names, given, strict=False)}

        def call() -> np.ndarray:
            return run.run(None, named)[0]

    result = call()
    TURNS["call"] = timed(call)
    return result


def in_torch(runtime: str, before: list[int], last: int) -> Any:
    """Return the step in PyTorch, whose cache has places for `PROMPT` tokens."""
    torch = need("torch", extra="torch")
    torch.set_num_threads(bench.peer_threads())
    module = decoder(PROMPT, "cache").eval()
    with torch.inference_mode():
        module(torch.tensor([before]), torch.arange(len(before)))
    run = torch.compile(module) if runtime == "PyTorch compiled" else module
    given = torch.tensor([[last]]), torch.tensor([len(before)])

    def step() -> np.ndarray:
        with torch.inference_mode():
            return run(*given).numpy()

    return step


def decoder(places: int, kind: str) -> Any:
    """Return the decoder as a PyTorch module, from tokens and their positions to the last logits.

    Its cache has a fixed number of places; of kind ``"prompt"``, it has no cache.
    """
    torch = need("torch", extra="torch")
    size, shared = SIZES.head_dim, SIZES.num_key_value_heads
    group = SIZES.num_attention_heads // shared
    known = {name: torch.from_numpy(array) for name, array in weights().items()}
    functional = torch.nn.functional

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, tensor in known.items():
                self.register_buffer(name.replace(".", "_"), tensor)
            for number in range(SIZES.num_hidden_layers if kind == "cache" else 0):
                self.register_buffer(f"cache{number}", torch.zeros(2, 1, shared, places, size))
            frequency = SIZES.rope_theta ** -(torch.arange(0, size, 2) / size)
            angle = torch.outer(torch.arange(places), frequency).repeat(1, 2)
            self.register_buffer("cos", angle.cos())
            self.register_buffer("sin", angle.sin())

        def product(self, x: Any, *names: str) -> Any:
            parts = (getattr(self, f"{name}.weight".replace(".", "_")) for name in names)
            return [functional.linear(x, part) for part in parts]

        def norm(self, x: Any, name: str) -> Any:
            weight = getattr(self, f"{name}.weight".replace(".", "_"))
            return functional.rms_norm(x, x.shape[-1:], weight, SIZES.rms_norm_eps)

        def forward(self, new: Any, position: Any) -> Any:
            count = new.shape[1]
            cos, sin = self.cos[position], self.sin[position]

            def turned(x: Any) -> Any:
                low, high = x.chunk(2, -1)
                return x * cos + torch.cat([-high, low], -1) * sin

            x = functional.embedding(new, self.model_embed_tokens_weight)
            visible = torch.arange(places) <= position[:, None]
            for number in range(SIZES.num_hidden_layers):
                layer = f"model.layers.{number}"
                names = (f"{layer}.self_attn.{one}_proj" for one in "qkv")
                a = self.product(self.norm(x, f"{layer}.input_layernorm"), *names)
                q, k, v = (one.view(1, count, -1, size).transpose(1, 2) for one in a)
                q, k = turned(q), turned(k)
                if kind == "cache":
                    cache = getattr(self, f"cache{number}")
                    cache[0].index_copy_(2, position, k)
                    cache[1].index_copy_(2, position, v)
                    k, v = cache[0], cache[1]
                k, v = (one.repeat_interleave(group, 1) for one in (k, v))
                seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)
                seen = seen.transpose(1, 2).reshape(1, count, -1)
                x = x + self.product(seen, f"{layer}.self_attn.o_proj")[0]
                a = self.norm(x, f"{layer}.post_attention_layernorm")
                gate, up = self.product(a, *(f"{layer}.mlp.{one}_proj" for one in ("gate", "up")))
                x = x + self.product(functional.silu(gate) * up, f"{layer}.mlp.down_proj")[0]
            return self.product(self.norm(x[:, -1], "model.norm"), "model.embed_tokens")[0]

    return Decoder()
