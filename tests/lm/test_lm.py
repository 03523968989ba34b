"""Logits compared with PyTorch's, a batch with its sequences one by one, and bad input."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from tvm import tirx

from tests.lm.reference import TINY, logits, random_weights
from tvmlab import lm
from tvmlab.errors import InputError, ModelError, TargetError
from tvmlab.schedule.packing import GROUP, quantize
from tvmlab.support import safetensors

WEIGHTS = random_weights(TINY)
TOKENS = np.random.default_rng(1).integers(0, TINY.vocab_size, 231).tolist()


def near(got: NDArray[Any], wanted: NDArray[Any], error: float = 1e-6) -> None:
    """Compare logits; a part of the rounding errors grows with the largest logit."""
    tolerance = error * max(10, np.abs(wanted).max())
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance)


def test_prefill_and_200_steps_are_pytorchs(tiny: lm.LanguageModel) -> None:
    wanted = logits(TINY, WEIGHTS, TOKENS)
    session = tiny.session()
    one = session.add()
    near(session.extend([one], [TOKENS[:31]])[0], wanted[30])
    for step in range(31, 231):
        near(session.extend([one], [TOKENS[step : step + 1]])[0], wanted[step])
    assert session.tokens(one) == 231


def test_a_prompt_in_parts_of_any_length(tiny: lm.LanguageModel) -> None:
    wanted = logits(TINY, WEIGHTS, TOKENS)
    session = tiny.session(length=231)
    one, place = session.add(), 0
    for count in (1, 15, 1, 47, 1, 25, 141):  # the pages end after 64 tokens
        got = session.extend([one], [TOKENS[place : place + count]])
        place += count
        near(got[0], wanted[place - 1])


def test_tokens_that_are_dropped_leave_no_trace(tiny: lm.LanguageModel) -> None:
    session = tiny.session(2, 100)
    one, other = session.add(), session.add()
    text = TOKENS[:75]
    session.extend([one, other], [text, TOKENS[:3]])
    for count, more in ((1, 2), (20, 30), (0, 1), (51, 17), (1, 1)):
        session.drop(one, count)
        text = text[: len(text) - count]
        assert session.tokens(one) == len(text)
        text = text + TOKENS[60 : 60 + more]
        got = session.extend([one], [TOKENS[60 : 60 + more]])
        near(got[0], logits(TINY, WEIGHTS, text)[-1])
    near(session.extend([other], [[4]])[0], logits(TINY, WEIGHTS, [*TOKENS[:3], 4])[-1])
    for count in (-1, 54):
        with pytest.raises(InputError, match=rf"(?s)count is {count}\n.* from 0 to 53"):
            session.drop(one, count)


def test_sequences_of_different_lengths_share_a_batch(tiny: lm.LanguageModel) -> None:
    texts = [TOKENS[:3], TOKENS[50:120], TOKENS[7:8], TOKENS[100:117]]
    session = tiny.session(4, 100)
    numbers = [session.add() for _ in texts]
    together = session.extend(numbers, texts)
    for text, row in zip(texts, together, strict=True):
        near(row, logits(TINY, WEIGHTS, text)[-1])
    # One ends, and another takes its place, while the others go on.
    session.free(numbers[1])
    numbers[1], texts[1] = session.add(), TOKENS[20:55]
    more = [[5], texts[1], [6, 7], [8]]
    together = session.extend(numbers, more)
    for place, row in enumerate(together):
        text = texts[place] if place == 1 else texts[place] + more[place]
        near(row, logits(TINY, WEIGHTS, text)[-1])


def test_pages_of_a_sequence_can_be_anywhere(tiny: lm.LanguageModel) -> None:
    texts, session = [TOKENS[:150], TOKENS[80:220]], tiny.session(2, 200)
    numbers, done = [session.add(), session.add()], [0, 0]
    for which, count in ((0, 60), (1, 60), (0, 10), (1, 9), (0, 60), (1, 60), (0, 1), (1, 1)):
        new = texts[which][done[which] : done[which] + count]
        got = session.extend([numbers[which]], [new])
        done[which] += count
        near(got[0], logits(TINY, WEIGHTS, texts[which][: done[which]])[-1])


def test_an_interrupted_step_leaves_no_trace(
    tiny: lm.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = tiny.session()
    one = session.add()
    session.extend([one], [TOKENS[:70]])

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    for name, new in (("_run", TOKENS[70:80]), ("_end", TOKENS[70:71])):
        with monkeypatch.context() as patch:
            patch.setattr(session, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                session.extend([one], [new])
        assert session.tokens(one) == 70
    near(session.extend([one], [TOKENS[70:75]])[0], logits(TINY, WEIGHTS, TOKENS[:75])[-1])


@pytest.mark.parametrize(("kind", "bits"), [("int8", 8), ("int4", 4)])
def test_quantized_weights_are_the_float_weights_that_they_stand_for(kind: str, bits: int) -> None:
    model = lm.load(WEIGHTS, TINY, quantize=kind)

    def rounded(weight: NDArray[np.float32]) -> NDArray[np.float32]:
        integers, scales = quantize(np.ascontiguousarray(weight.T)[None], bits)
        groups = integers[0].reshape(-1, GROUP, len(weight)) * scales[0][:, None]
        step = np.abs(weight.reshape(len(weight), -1, GROUP)).max(-1) / (2 ** (bits - 1) - 1)
        step *= 1 + 2**-7  # a scale is rounded up to bfloat16
        made = groups.reshape(weight.T.shape).T
        assert (np.abs(made - weight) <= 0.5001 * np.repeat(step, GROUP, axis=1)).all()
        return np.ascontiguousarray(made)

    products = {n for n, a in WEIGHTS.items() if a.ndim == 2 and "embed" not in n}
    known = {n: rounded(a) if n in products else a for n, a in WEIGHTS.items()}
    wanted = logits(TINY, known, TOKENS[:50])
    session = model.session()
    one = session.add()
    # Products of few tokens round their inputs to 16 bits: see test_quantized.py.
    near(session.extend([one], [TOKENS[:20]])[0], wanted[19], 3e-5)
    for step in range(20, 50):
        near(session.extend([one], [TOKENS[step : step + 1]])[0], wanted[step], 3e-5)
    assert model.bytes < lm.load(WEIGHTS, TINY).bytes / 2


@pytest.mark.parametrize(
    "change",
    [
        {"num_key_value_heads": 6, "rope_theta": 500000.0, "rms_norm_eps": 1e-5},
        {"num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": True},
        {"head_dim": 6, "hidden_size": 100, "intermediate_size": 77, "vocab_size": 5},
        {"hidden_size": 320, "intermediate_size": 1024, "num_hidden_layers": 1},
    ],
)
def test_other_sizes(change: dict[str, Any]) -> None:
    config = replace(TINY, **change)
    weights = random_weights(config)
    tokens = [token % config.vocab_size for token in TOKENS[:66]]
    wanted = logits(config, weights, tokens)
    session = lm.load(weights, config).session()
    one = session.add()
    near(session.extend([one], [tokens[:60]])[0], wanted[59])
    for step in range(60, 66):
        near(session.extend([one], [tokens[step : step + 1]])[0], wanted[step])


def test_generate_takes_the_most_likely_token(tiny: lm.LanguageModel) -> None:
    prompts = [TOKENS[:9], TOKENS[30:32]]
    made = tiny.generate(prompts, 12)
    for prompt, new in zip(prompts, made, strict=True):
        rows = logits(TINY, WEIGHTS, [*prompt, *new])[len(prompt) - 1 : -1]
        assert new == rows.argmax(axis=1).tolist()
    stop = made[0][4]
    first = made[0].index(stop) + 1
    assert tiny.generate(prompts, 12, stop=stop)[0] == made[0][:first]
    assert tiny.generate(prompts[1:], 12) == made[1:]


def test_draws_follow_the_seed_and_the_probabilities(tiny: lm.LanguageModel) -> None:
    prompts = [TOKENS[:9]] * 1500
    one = tiny.generate(prompts, 1, temperature=0.8, seed=3)
    assert one == tiny.generate(prompts, 1, temperature=0.8, seed=3)
    assert one != tiny.generate(prompts, 1, temperature=0.8, seed=4)
    row = logits(TINY, WEIGHTS, TOKENS[:9])[-1].astype(np.float64) / 0.8
    expected = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
    found = np.bincount([new[0] for new in one], minlength=TINY.vocab_size) / len(one)
    deviation = np.sqrt(expected * (1 - expected) / len(one))
    assert (np.abs(found - expected) < 5 * deviation + 1e-3).all()


def test_bad_calls_append_nothing(tiny: lm.LanguageModel) -> None:
    session = tiny.session(2, 20)
    one, two = session.add(), session.add()
    for numbers, tokens, message in [
        ([one], [[]], "the prompt of sequence 0 is empty"),
        ([one], [[3, 97]], "token 97 at place 1 of the prompt of sequence 0 is unknown"),
        ([one], [[-1]], "token -1 at place 0"),
        ([one, two], [[1], [1] * 21], "would have 21 tokens, but the cache holds 20"),
        ([one], [[0.5]], "the prompt of sequence 0 is not a list of integers"),
        ([one], [1], "the prompt of sequence 0 is not a list"),
        ([one], [[[1], [2, 3]]], "the prompt of sequence 0 is not a list"),
        (one, [1], "do not correspond"),
        ([one, one], [[1], [2]], r"a sequence is listed twice: \[0, 0\]"),
        ([one], [[1], [2]], "do not correspond"),
        ([0.0], [[1]], "the sequence is 0.0"),
        ([7], [[1]], "sequence 7 does not exist"),
    ]:
        with pytest.raises(InputError, match=message):
            session.extend(numbers, tokens)  # type: ignore[arg-type]
        assert session.tokens(one) == session.tokens(two) == 0
    with pytest.raises(InputError, match="sequences is 0"):
        tiny.session(0, 20)
    with pytest.raises(InputError, match="length is 513"):
        tiny.session(1, 513)
    with pytest.raises(InputError, match="sequences is True"):
        tiny.session(True)
    with pytest.raises(InputError, match="too large"):
        tiny.session(10**6, 512)
    with pytest.raises(InputError, match="holds 2 sequences"):
        session.add()
    session.free(two)
    with pytest.raises(InputError, match="sequence 1 was freed already"):
        session.free(two)
    near(session.extend([one], [TOKENS[:20]])[0], logits(TINY, WEIGHTS, TOKENS[:20])[-1])
    with pytest.raises(InputError, match="would have 21 tokens"):
        session.extend([one], [[1]])


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([], {}, "there are no prompts"),
        (3, {}, "prompts is 3"),
        ([1, 2], {}, "prompt 0 is not a list of integers"),
        ([["a"]], {}, "prompt 0 is not a list of integers"),
        ([[1]], {"tokens": 0}, "tokens is 0"),
        ([[1]], {"tokens": 1.5}, "tokens is 1.5"),
        ([[1]], {"temperature": -1.0}, "temperature is -1.0"),
        ([[1]], {"temperature": None}, "temperature is None"),
        ([[1]], {"seed": -1}, "seed is -1"),
        ([[1]], {"stop": "."}, "stop is '.'"),
        ([[1]], {"stop": 97}, "stop is 97"),
        ([[1], []], {}, "prompt 1 is empty"),
        ([[1, 97]], {}, "token 97 at place 1 of prompt 0 is unknown"),
        ([[1], [1] * 510], {}, "prompt 1 has 510 .* a cache of 513, but it has 512"),
        ([[1] * 10], {"length": 12}, "a cache of 13, but it has 12[^$]*length of up to 512"),
    ],
)
def test_bad_prompts(
    tiny: lm.LanguageModel, prompts: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        tiny.generate(prompts, **{"tokens": 4, **options})


def test_a_file_and_its_configuration(tmp_path: Path, tiny: lm.LanguageModel) -> None:
    path, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    half = {name: array.astype(np.float16) for name, array in WEIGHTS.items()}
    safetensors.write(path, half)
    with pytest.raises(ModelError, match="configuration cannot be read"):
        lm.load(path)
    given = {**asdict(TINY), "model_type": "llama", "hidden_act": "silu", "torch_dtype": "float16"}
    config.write_text(json.dumps(given))
    model = lm.load(path)
    assert model.config == TINY
    exact = {name: array.astype(np.float32) for name, array in half.items()}
    session = model.session()
    got = session.extend([session.add()], [TOKENS[:9]])
    near(got[0], logits(TINY, exact, TOKENS[:9])[-1])
    for change, message in [
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_type is 'llama3'"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "rope_type is 'linear'"),
        ({"rope_scaling": {"factor": 2}}, "rope_type is None"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ({"hidden_size": 96.0}, "hidden_size is 96.0, not of type int"),
        ({"vocab_size": True}, "vocab_size is True, not of type int"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"model_type": "gpt2"}, "of type 'gpt2'"),
        ({"num_key_value_heads": 4}, "6 query heads cannot share 4"),
        ({"head_dim": 5}, "even head_dim"),
        ({"hidden_size": -1}, "hidden_size is -1"),
        ({"rope_theta": float("inf")}, "rope_theta is inf"),
    ]:
        config.write_text(json.dumps({**given, **change}))
        with pytest.raises(ModelError, match=message):
            lm.load(path)


def test_other_arguments_of_load(tmp_path: Path) -> None:
    assert type(replace(TINY, hidden_size=np.int64(96)).hidden_size) is int
    with pytest.raises(InputError, match="the weights are a NoneType"):
        lm.load(None, TINY)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"quantize=\['int8'\] is unknown"):
        lm.load(WEIGHTS, TINY, quantize=["int8"])  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"the folder has no model\.safetensors"):
        lm.load(tmp_path)
    (tmp_path / "config.json").write_text("null")
    with pytest.raises(ModelError, match="not an object of JSON"):
        lm.load(WEIGHTS, tmp_path / "config.json")


def test_weights_that_do_not_belong_to_the_model() -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    absent = {key: array for key, array in WEIGHTS.items() if key != name}
    for weights, message in [
        (absent, f"tensor '{name}' is missing"),
        ({**WEIGHTS, "bias": np.zeros(3, np.float32)}, "tensor 'bias' is not one of the model"),
        ({**WEIGHTS, name: WEIGHTS[name].T}, r"\[96, 160\], but the model needs float\[160, 96\]"),
        ({**WEIGHTS, name: WEIGHTS[name].astype(int)}, "is int64"),
        ({**WEIGHTS, name: WEIGHTS[name].tolist()}, "is a list"),
    ]:
        with pytest.raises(ModelError, match=message):
            lm.load(weights, TINY)
    tied, rows = replace(TINY, tie_word_embeddings=True), WEIGHTS["model.embed_tokens.weight"]
    with pytest.raises(ModelError, match=r"'lm_head\.weight' differs from the embedding"):
        lm.load({**WEIGHTS, "lm_head.weight": rows + 1}, tied)
    assert lm.load({**WEIGHTS, "lm_head.weight": rows}, tied).generate([[1]], 1)
    small = replace(TINY, intermediate_size=100)
    with pytest.raises(ModelError, match="multiple of 32"):
        lm.load(random_weights(small), small, quantize="int4")
    with pytest.raises(InputError, match="quantize='int3'"):
        lm.load(WEIGHTS, TINY, quantize="int3")
    with pytest.raises(InputError, match="without a configuration"):
        lm.load(WEIGHTS)
    with pytest.raises(InputError, match="the configuration is a dict"):
        lm.load(WEIGHTS, asdict(TINY))  # type: ignore[arg-type]
    with pytest.raises(TargetError, match="CPUs"):
        lm.load(WEIGHTS, TINY, target="opencl")
    broken = {**WEIGHTS, name: np.full_like(WEIGHTS[name], np.nan)}
    for kind in (None, "int8"):
        with pytest.raises(ModelError, match=f"'{name}' is infinite or not a number"):
            lm.load(broken, TINY, quantize=kind)


def test_other_forms_of_the_same_weights(tmp_path: Path) -> None:
    half = {name: array.astype(ml_dtypes.bfloat16) for name, array in WEIGHTS.items()}
    exact = {name: array.astype(np.float32) for name, array in half.items()}
    wanted = logits(TINY, exact, TOKENS[:9])[-1]
    session = lm.load(half, TINY).session()
    near(session.extend([session.add()], [TOKENS[:9]])[0], wanted)
    # A folder, with the wavelengths that older files store.
    more = {**exact, "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(16, np.float32)}
    safetensors.write(tmp_path / "model.safetensors", more)
    scaling = {"rope_scaling": {"rope_type": "default"}}
    (tmp_path / "config.json").write_text(json.dumps({**asdict(TINY), **scaling}))
    session = lm.load(tmp_path).session()
    near(session.extend([session.add()], [TOKENS[:9]])[0], wanted)


def test_threads_share_a_model(tiny: lm.LanguageModel) -> None:
    prompts = [TOKENS[place : place + 5 + place] for place in range(8)]
    wanted = [tiny.generate([prompt], 4) for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda prompt: tiny.generate([prompt], 4), prompts * 8))
    assert got == wanted * 8


def test_the_products_get_the_schedule_of_contractions(tiny: lm.LanguageModel) -> None:
    rows = [line.split() for line in str(tiny.summary()).splitlines()]
    products = [row for row in rows if row and "product" in row[0]]
    assert len(products) == 8
    assert {row[-1] for row in products} == {"Contraction"}


@pytest.mark.parametrize(("size", "fetches"), [(16, False), (1024, True)])
def test_a_large_product_prefetches_its_next_block(size: int, fetches: bool) -> None:
    config = replace(TINY, hidden_size=size, num_hidden_layers=1)
    target = {"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2}
    scheduled = lm.load(random_weights(config), config, target=target).scheduled
    products = [func for name, func in scheduled.functions_items() if "product" in str(name)]
    of_prompts = [one for one in products if not isinstance(one.params[0].shape[0], tirx.IntImm)]
    assert len(of_prompts) == 4
    # The number of tiles is known only at run time, and only the first tiles prefetch.
    assert sum("llvm.prefetch" in str(func) for func in of_prompts) == (4 if fetches else 0)
