"""The decoder that ships with the package, and its training."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from tvmlab import lm
from tvmlab.errors import InputError
from tvmlab.models import addition, training
from tvmlab.support import safetensors


@pytest.mark.parametrize("quantize", [None, "int8", "int4"])
def test_it_adds_numbers_that_it_never_saw(quantize: str | None) -> None:
    model = lm.load(addition.WEIGHTS, addition.CONFIG, quantize=quantize)
    pairs = addition.held_out(1000, seed=1)
    right = 0
    for first in range(0, len(pairs), 250):
        some = pairs[first : first + 250]
        prompts = [addition.encode(f"{a}+{b}=") for a, b in some]
        made = model.generate(prompts, addition.DIGITS + 2, stop=addition.encode(".")[0])
        texts = [addition.decode(tokens) for tokens in made]
        right += sum(text == addition.answer(*pair) for text, pair in zip(texts, some, strict=True))
    assert right >= 990


def test_it_is_the_model_that_pytorch_trained() -> None:
    weights = safetensors.read(addition.WEIGHTS)
    exact = {name: torch.from_numpy(array.astype(np.float32)) for name, array in weights.items()}
    assert json.loads(addition.CONFIG.read_text()) == training.SIZES
    assert sum(array.size for array in weights.values()) < 2_000_000
    assert addition.WEIGHTS.stat().st_size < 2_000_000
    assert training.accuracy(exact, addition.held_out(500, seed=2)) >= 0.99
    tokens = addition.encode("58+767=528.")
    session = lm.load(addition.WEIGHTS, addition.CONFIG).session()
    one = session.add()
    wanted = training.logits(exact, torch.tensor([tokens]))[0].numpy()
    for step, token in enumerate(tokens):
        got = session.extend([one], [[token]])[0]
        np.testing.assert_allclose(got, wanted[step], rtol=0, atol=1e-6 * np.abs(wanted).max())


def test_training_learns_and_is_seeded() -> None:
    losses: list[float] = []
    again: list[float] = []
    training.train(101, seed=1, note=lambda _, loss: losses.append(loss))
    training.train(1, seed=1, note=lambda _, loss: again.append(loss))
    assert again == losses[:1]
    assert losses[-1] < losses[0] - 0.5


def test_problems_left_out_are_spread_and_different() -> None:
    pairs = addition.held_out(5000)
    assert len(set(pairs)) == 5000
    assert all(addition.is_held_out(*pair) for pair in pairs)
    share = np.mean([addition.is_held_out(a, b) for a in range(0, 1000, 7) for b in range(1000)])
    assert 0.05 < share < 0.075
    assert addition.decode(addition.encode("7+25=23.")) == "7+25=23."
    assert addition.answer(7, 25) == "23."
    with pytest.raises(InputError, match="no token for '-'"):
        addition.encode("3-1=")
