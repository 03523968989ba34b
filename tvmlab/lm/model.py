"""Compile a decoder, and generate tokens with it."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm_ffi import Shape

from ..compiler import build
from ..errors import CompileError, InputError, ModelError, TargetError, TvmlabError
from ..schedule import Summary
from ..schedule.machine import Machine
from ..schedule.packing import Format
from ..support import safetensors
from ..support.host import missing_features
from ..support.target import as_target, spelled
from ..support.wording import telling
from .arguments import integer, token_array
from .kernels import PAGE
from .llama import Config, Decoder, checked

__all__ = ["LanguageModel", "Session", "load"]

# Compiled code needs data that begin at a multiple of 64 bytes.
_ALIGNED = 64
_KINDS = {None: "float32", "int8": "int8", "int4": "int4"}


def load(
    weights: str | os.PathLike[str] | Mapping[str, NDArray[Any]],
    config: Config | str | os.PathLike[str] | None = None,
    *,
    quantize: str | None = None,
    target: tvm.target.Target | Mapping[str, Any] | str | None = None,
) -> LanguageModel:
    """Load a decoder of the Llama architecture, and compile it.

    Parameters
    ----------
    weights : path or mapping of str to numpy.ndarray
        A file in the safetensors format, the folder of a ``model.safetensors``, or arrays by name,
        with the names and shapes of ``LlamaForCausalLM`` (`Config.weights` lists them), in float32,
        float16 or bfloat16.
    config : Config or path, optional
        The sizes, or a file ``config.json``; by default, the file next to the weights.
    quantize : str, optional
        ``"int8"`` or ``"int4"`` stores the weights of the products as integers, with one scale per
        group of 32 inputs. Products of at most six rows also round their inputs, to 16 bits with
        one scale per group, so that logits differ by up to 3e-4 of the largest if a text is
        given in other parts, or beside other texts. By default, the weights stay in float32.
    target : tvm.target.Target, mapping or str, optional
        A CPU, see `tvmlab.target.as_target`; by default, the host.

    Returns
    -------
    LanguageModel
        Call `LanguageModel.generate`.

    Raises
    ------
    ModelError
        A file is missing, truncated or damaged, asks for another architecture, or a tensor is
        missing, unknown or of the wrong shape.
    InputError
        `quantize` is unknown, or there is no configuration.
    TargetError
        The target is unknown, or is no CPU.
    """
    where = "the weights"
    if not isinstance(weights, Mapping | str | os.PathLike):
        what = f"the weights are a {type(weights).__name__}"
        raise InputError(what, where="lm.load", fix="pass arrays by name, a file or a folder")
    if isinstance(weights, str | os.PathLike) and Path(weights).is_dir():
        weights = Path(weights) / "model.safetensors"
        if not weights.exists():
            what, fix = "the folder has no model.safetensors", "write all weights to this file"
            raise ModelError(what, where=str(weights.parent), fix=fix)
    if not isinstance(weights, Mapping):
        where = str(weights)
        config = Path(weights).with_name("config.json") if config is None else config
        weights = safetensors.read(weights)
    if config is None:
        what, fix = "arrays come without a configuration", "pass config=lm.Config(...)"
        raise InputError(what, where="lm.load", fix=fix)
    if not isinstance(config, Config | str | os.PathLike):
        what = f"the configuration is a {type(config).__name__}"
        raise InputError(what, where="lm.load", fix="pass lm.Config(...), or the path of a file")
    sizes = config if isinstance(config, Config) else Config.read(config)
    if not isinstance(quantize, str | None) or quantize not in _KINDS:
        what, fix = f"quantize={quantize!r} is unknown", 'pass "int8", "int4" or nothing'
        raise InputError(what, where="lm.load", fix=fix)
    made = as_target(target)
    if made.kind.name != "llvm":
        what = f"the attention is written for CPUs, but the target is {made.kind.name}"
        raise TargetError(what, where="lm.load(target=...)", fix='pass {"kind": "llvm"}')
    found = checked(sizes, weights, where)
    return LanguageModel(sizes, found, _KINDS[quantize], made)


class LanguageModel:
    """A compiled decoder and its weights.

    Attributes
    ----------
    config : Config
        The sizes.
    kind : str
        How the weights of the products are stored: ``"float32"``, ``"int8"`` or ``"int4"``.
    target : tvm.target.Target
        The target that the decoder was compiled for.
    bytes : int
        Bytes of all parameters.
    vm_executable : tvm.relax.VMExecutable
        Upstream's object, with the functions ``create``, ``prefill``, ``decode``, ``logits`` and
        ``logits_of_one``.
    scheduled : tvm.ir.IRModule
        The decoder after the passes from operators to scheduled loops.
    """

    def __init__(
        self,
        config: Config,
        weights: Mapping[str, NDArray[np.float32]],
        kind: str,
        target: tvm.target.Target,
    ) -> None:
        self.config, self.kind, self.target = config, kind, target
        decoder = Decoder(config, Format(kind, Machine.of(target)))
        packed = decoder.packed(weights)
        self.bytes = sum(array.nbytes for array in packed.values())
        mod, names = decoder.module()
        try:
            self.scheduled, self.vm_executable = build(mod, target)
        except TvmlabError:
            raise
        except Exception as error:  # passes and code generators raise many classes
            what = f"TVM could not compile the decoder: {telling(error)}"
            raise CompileError(what, where=f"target {target}") from error
        self._parameters = _in_large_pages([packed[name] for name in names])
        self._machine: Any = None
        # Two threads that use one virtual machine at once would crash the process.
        self.one_at_a_time = threading.Lock()

    def __repr__(self) -> str:
        layers = self.config.num_hidden_layers
        return f"LanguageModel({layers} layers, {self.kind}, {self.bytes / 1e6:,.1f} MB)"

    def summary(self) -> Summary:
        """Return the rule that scheduled each function."""
        return Summary.of(self.scheduled)

    def session(self, sequences: int = 1, length: int | None = None) -> Session:
        """Start a cache for a number of sequences of at most `length` tokens each.

        Raises
        ------
        InputError
            A number is not positive, or the decoder has too few positions.
        TargetError
            This machine cannot run code for the target.
        """
        most = self.config.max_position_embeddings
        length = integer(most if length is None else length, "length", "session", 1, most)
        sequences = integer(sequences, "sequences", "session", 1)
        tokens = sequences * -(-length // PAGE) * PAGE
        heads = self.config.num_attention_heads + 2 * self.config.num_key_value_heads
        # The kernels index a layer's pages, and its queries, keys and values, with int32.
        if tokens * heads * self.config.head_dim >= 1 << 31:
            what = f"a cache for {sequences} sequences of {length} tokens is too large"
            raise InputError(what, where="session", fix="start several smaller sessions")
        with self.one_at_a_time:
            self._start()
            return Session(self, sequences, length)

    def _start(self) -> None:
        """Start the virtual machine, if this machine can run the code."""
        if self._machine is None:
            if absent := missing_features(self.target):
                what = f"this machine cannot run the decoder: it lacks {absent}"
                raise TargetError(what, where=spelled(self.target), fix="load it without a target")
            self._machine = relax.VirtualMachine(self.vm_executable, tvm.cpu())

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        tokens: int,
        *,
        temperature: float = 0.0,
        seed: int = 0,
        stop: int | None = None,
        length: int | None = None,
    ) -> list[list[int]]:
        """Continue a batch of prompts, which can have different lengths.

        Parameters
        ----------
        prompts : sequence of sequences of int
            The tokens of each prompt.
        tokens : int
            The most tokens to generate for each prompt.
        temperature : float
            Zero takes the most likely token. Otherwise, the next token is drawn with probabilities
            ``softmax(logits / temperature)``.
        seed : int
            The seed of the draws. A prompt's draws depend on the seed and its place in the batch.
        stop : int, optional
            The token after which a sequence ends. It is part of the result.
        length : int, optional
            Tokens per sequence that the cache holds; by default, as many as needed.

        Returns
        -------
        list of lists of int
            The generated tokens of each prompt, without the prompt.

        Raises
        ------
        InputError
            There are no prompts, a prompt is empty, has an unknown token or is too long for the
            cache, or a number is out of range.
        """
        where, vocabulary = "generate", self.config.vocab_size
        tokens, seed = integer(tokens, "tokens", where, 1), integer(seed, "seed", where, 0)
        stop = stop if stop is None else integer(stop, "stop", where, 0, vocabulary - 1)
        if not isinstance(temperature, Real) or not 0 <= temperature < np.inf:
            what = f"temperature is {temperature!r}"
            raise InputError(what, where=where, fix="pass a number from 0 on")
        listed = isinstance(prompts, Sequence | np.ndarray)
        if not listed or not len(prompts):
            what = "there are no prompts" if listed else f"prompts is {prompts!r}"
            raise InputError(what, where=where, fix="pass a list of prompts")
        prompts = [
            token_array(prompt, f"prompt {place}", where, vocabulary)
            for place, prompt in enumerate(prompts)
        ]
        # The last token is not fed back, so it needs no place in the cache.
        needed = max(map(len, prompts)) + tokens - 1
        most = self.config.max_position_embeddings
        most = most if length is None else integer(length, "length", where, 1, most)
        if needed > most:
            long = max(range(len(prompts)), key=lambda place: len(prompts[place]))
            what = f"prompt {long} has {len(prompts[long])} tokens; with {tokens} more it needs a "
            what += f"cache of {needed}, but it has {most}"
            fix = "pass shorter prompts or fewer tokens"
            if most < self.config.max_position_embeddings:
                fix += f", or a length of up to {self.config.max_position_embeddings}"
            raise InputError(what, where=where, fix=fix)
        random = [np.random.default_rng([seed, place]) for place in range(len(prompts))]
        session = self.session(len(prompts), length or needed)
        made: list[list[int]] = [[] for _ in prompts]
        active = [session.add() for _ in prompts]
        places = dict(zip(active, range(len(prompts)), strict=True))
        logits = session.extend(active, prompts)
        while True:
            for row, one in zip(logits, active, strict=True):
                place = places[one]
                made[place].append(_choose(row, temperature, random[place]))
            for one in list(active):
                ended = made[places[one]]
                if len(ended) == tokens or ended[-1] == stop:
                    active.remove(one)
                    session.free(one)
            if not active:
                return made
            logits = session.extend(active, [made[places[one]][-1:] for one in active])


class Session:
    """Sequences in a paged cache of keys and values. `LanguageModel.session` starts one."""

    def __init__(self, model: LanguageModel, sequences: int, length: int) -> None:
        self._model, self._parameters, machine = model, model._parameters, model._machine
        self.sequences, self.length = sequences, length
        total = sequences * -(-length // PAGE) * PAGE
        self._cache = machine["create"](Shape([sequences]), Shape([total]))
        self._lengths: dict[int, int] = {}
        self._next = 0
        self._prefill, self._decode = machine["prefill"], machine["decode"]
        self._logits, self._logits_of_one = machine["logits"], machine["logits_of_one"]
        state = (
            tvm.get_global_func(f"vm.builtin.kv_state_{name}")
            for name in ("add_sequence", "remove_sequence", "popn", "begin_forward", "end_forward")
        )
        self._add, self._remove, self._pop, self._begin, self._end = state

    def add(self) -> int:
        """Add an empty sequence and return its number; `InputError` if the cache has no place."""
        if len(self._lengths) == self.sequences:
            what = f"the cache holds {self.sequences} sequences, and none was freed"
            raise InputError(what, where="Session.add", fix="free one, or start a larger session")
        number, self._next = self._next, self._next + 1
        self._add(self._cache, number)
        self._lengths[number] = 0
        return number

    def free(self, number: int) -> None:
        """Remove a sequence; `InputError` if the number is unknown or was freed."""
        self._known(number, "Session.free")
        self._remove(self._cache, number)
        del self._lengths[number]

    def drop(self, number: int, count: int) -> None:
        """Remove the last tokens of a sequence; `InputError` if it has fewer, or is unknown."""
        known = self._known(number, "Session.drop")
        count = integer(count, "count", "Session.drop", 0, known)
        self._pop(self._cache, number, count)
        self._lengths[number] -= count

    def tokens(self, number: int) -> int:
        """Return the number of tokens of a sequence in the cache."""
        return self._known(number, "Session.tokens")

    def extend(
        self, numbers: Sequence[int], tokens: Sequence[Sequence[int]]
    ) -> NDArray[np.float32]:
        """Append tokens to sequences, and return the logits of the token after each.

        Parameters
        ----------
        numbers : sequence of int
            Sequences that `add` returned, each at most once.
        tokens : sequence of sequences of int
            The new tokens of each sequence: a prompt, a part of one, or a single token.

        Returns
        -------
        numpy.ndarray
            float32 ``[sequences, vocab_size]``.

        Raises
        ------
        InputError
            A sequence is unknown or given twice, has no new tokens, or more than fit; or a token is
            not in the vocabulary. Nothing is appended then.
        """
        where = "Session.extend"
        lists = all(isinstance(one, Sequence | np.ndarray) for one in (numbers, tokens))
        if not lists or not len(numbers) or len(numbers) != len(tokens):
            what = "the sequences and the lists of tokens do not correspond"
            fix = "pass a list of sequences, and one list of tokens for each"
            raise InputError(what, where=where, fix=fix)
        new = [self._checked(*pair, where) for pair in zip(numbers, tokens, strict=True)]
        numbers = [int(number) for number in numbers]
        if len(set(numbers)) != len(numbers):
            what = f"a sequence is listed twice: {numbers}"
            raise InputError(what, where=where, fix="pass all new tokens of a sequence at once")
        lengths, flat = [len(one) for one in new], np.concatenate(new)
        with self._model.one_at_a_time:
            self._begin(self._cache, Shape([*numbers]), Shape(lengths))
            try:
                logits = self._run(flat, lengths)
                self._end(self._cache)
            except BaseException:  # such as an interruption: the cache has counted the tokens
                for number, count in zip(numbers, lengths, strict=True):
                    self._pop(self._cache, number, count)
                raise
            for number, count in zip(numbers, lengths, strict=True):
                self._lengths[number] += count
        return logits.numpy()  # type: ignore[no-any-return]

    def _run(self, flat: NDArray[np.int32], lengths: Sequence[int]) -> Any:
        """Return the logits after the last token of each sequence."""
        tokens = tvm.runtime.tensor(flat)
        if len(flat) == 1:
            return self._decode(tokens, self._cache, self._parameters)
        rows = tvm.runtime.tensor(np.cumsum(lengths, dtype=np.int32) - 1)
        last = self._prefill(tokens, rows, self._cache, self._parameters)
        head = self._logits_of_one if len(lengths) == 1 else self._logits
        return head(last, self._parameters)

    def _known(self, number: int, where: str) -> int:
        """Return the length of a sequence."""
        number = integer(number, "the sequence", where, 0)
        if number not in self._lengths:
            freed = number < self._next
            what = f"sequence {number} " + ("was freed already" if freed else "does not exist")
            raise InputError(what, where=where, fix="use a number that Session.add returned")
        return self._lengths[number]

    def _checked(self, number: int, tokens: Any, where: str) -> NDArray[np.int32]:
        """Return the new tokens of a sequence."""
        before, vocabulary = self._known(number, where), self._model.config.vocab_size
        new = token_array(tokens, f"the prompt of sequence {number}", where, vocabulary)
        if before + len(new) > self.length:
            what = f"sequence {number} would have {before + len(new)} tokens, but the cache holds "
            fix = "pass fewer tokens, or start a session with a larger length"
            raise InputError(f"{what}{self.length} per sequence", where=where, fix=fix)
        return new


def _in_large_pages(arrays: Sequence[NDArray[Any]]) -> list[Any]:
    """Copy arrays to tensors in memory of 2 MB per page, which the processor finds faster."""
    places = np.cumsum([0, *(-(-array.nbytes // _ALIGNED) * _ALIGNED for array in arrays)])
    memory = mmap.mmap(-1, int(places[-1]))
    with contextlib.suppress(AttributeError, OSError):  # only Linux has large pages on demand
        memory.madvise(mmap.MADV_HUGEPAGE)
    made = []
    for array, place in zip(arrays, places, strict=False):
        whole = np.frombuffer(memory, array.dtype, array.size, int(place)).reshape(array.shape)
        whole[...] = array
        made.append(tvm.runtime.from_dlpack(whole))
    return made


def _choose(logits: NDArray[np.float32], temperature: float, random: np.random.Generator) -> int:
    """Choose the next token: the most likely one, or a draw."""
    if not np.isfinite(logits).all():
        what = "the logits are infinite or not a number"
        raise ModelError(what, where="generate", fix="check the weights")
    if temperature == 0:
        return int(logits.argmax())
    scaled = (logits.astype(np.float64) - logits.max()) / temperature
    cumulated = np.cumsum(np.exp(scaled))
    return int(np.searchsorted(cumulated, random.random() * cumulated[-1], side="right"))
