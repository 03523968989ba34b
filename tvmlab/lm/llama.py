"""A decoder of the Llama architecture, written with `tvm.relax.frontend.nn`.

Each layer is RMS normalization, attention whose query heads share key-value heads (grouped-query
attention) with rotary embedding, RMS normalization, and a SwiGLU network (Touvron et al., "LLaMA:
Open and Efficient Foundation Language Models", 2023). Names and shapes of the weights are those of
Hugging Face's ``LlamaForCausalLM``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import (
    PagedKVCache,
    RopeMode,
    _merge_state_inplace_cpu,
)

from ..errors import ModelError
from ..schedule.packing import Format
from .kernels import PAGE, Attention
from .linear import Linear

__all__ = ["Config", "Decoder", "checked"]

Weights = Mapping[str, NDArray[Any]]
# What Llama's configuration can ask for, and this decoder does not compute.
_PLAIN = {"hidden_act": ("silu",), "attention_bias": (False,), "mlp_bias": (False,)}
_PLAIN |= {"rope_type": ("default",), "partial_rotary_factor": (1,), "sliding_window": (None,)}


@dataclass(frozen=True)
class Config:
    """The sizes of a decoder, with the names of Hugging Face's ``config.json``.

    Attributes
    ----------
    vocab_size, hidden_size, intermediate_size : int
        Tokens, numbers per token, and numbers inside the SwiGLU network.
    num_hidden_layers, num_attention_heads, num_key_value_heads : int
        Layers, query heads and key-value heads.
    head_dim : int, optional
        Numbers per head, even; by default, ``hidden_size / num_attention_heads``.
    max_position_embeddings : int
        The longest sequence.
    rms_norm_eps, rope_theta : float
        The number added to the mean square, and the base of the rotary wavelengths.
    tie_word_embeddings : bool
        Whether the last product uses the embedding's weights.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int = 0
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = False

    def __post_init__(self) -> None:
        """Complete the sizes and check them."""
        kinds = {"int": Integral, "float": Real, "bool": bool}
        wrong = [
            f"{one.name} is {getattr(self, one.name)!r}, not of type {one.type}"
            for one in fields(self)
            if not isinstance(getattr(self, one.name), kinds[str(one.type)])
            or (one.type != "bool" and isinstance(getattr(self, one.name), bool))
        ]
        for one in fields(self) if not wrong else ():  # also numbers of NumPy
            cast = {"int": int, "float": float, "bool": bool}[str(one.type)]
            object.__setattr__(self, one.name, cast(getattr(self, one.name)))
        heads, shared = self.num_attention_heads, self.num_key_value_heads
        if not wrong and not self.head_dim and heads > 0:
            object.__setattr__(self, "head_dim", self.hidden_size // heads)
        wrong = wrong or [
            f"{one.name} is {getattr(self, one.name)}"
            for one in fields(self)
            if one.name != "tie_word_embeddings" and not 0 < getattr(self, one.name) < math.inf
        ]
        if not wrong and heads % shared:
            wrong = [f"{heads} query heads cannot share {shared} key-value heads evenly"]
        if not wrong and self.head_dim % 2:
            wrong = [f"rotary embedding needs an even head_dim, not {self.head_dim}"]
        if wrong:
            raise ModelError(wrong[0], where="Config", fix="correct the sizes of the decoder")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Config:
        """Read ``config.json``; `ModelError` if it is damaged or asks for another architecture."""
        fix = "use a decoder of the Llama architecture without extensions"
        try:
            given = json.loads(Path(path).read_text(encoding="utf-8"))
            if not isinstance(given, dict):
                raise ValueError("it is not an object of JSON")
            rope = given.pop("rope_parameters", None) or {}
            scaling = given.pop("rope_scaling", None) or {"rope_type": "default"}
            kinds = [rope.get("rope_type", "default")]
            kinds += [scaling.get("rope_type") or scaling.get("type")]
        except (OSError, ValueError, AttributeError, TypeError) as error:
            what = f"the configuration cannot be read: {error}"
            fix = "pass config=, or the path of a config.json"
            raise ModelError(what, where=str(path), fix=fix) from error
        given = {name: value for name, value in given.items() if value is not None}
        own = ("rope_theta", "partial_rotary_factor")
        given = {**{name: rope[name] for name in own if name in rope}, **given}
        given["rope_type"] = next((kind for kind in kinds if kind != "default"), "default")
        for name, plain in _PLAIN.items():
            if given.get(name, plain[0]) not in plain:
                what = f"{name} is {given[name]!r}, which this decoder does not compute"
                raise ModelError(what, where=str(path), fix=fix)
        if given.get("model_type", "llama") != "llama":
            what = f"the model is of type {given['model_type']!r}, not 'llama'"
            raise ModelError(what, where=str(path), fix=fix)
        known = {one.name for one in fields(cls)}
        given.setdefault("num_key_value_heads", given.get("num_attention_heads"))
        found = {name: value for name, value in given.items() if name in known}
        needed = [one.name for one in fields(cls) if one.default is MISSING]
        if absent := [name for name in needed if name not in found]:
            what = f"the configuration is incomplete: {absent[0]} is missing"
            raise ModelError(what, where=str(path), fix="add it")
        try:
            return cls(**found)
        except ModelError as error:
            raise ModelError(error.what, where=str(path), fix=error.fix) from None

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of each weight."""
        hidden, inner = self.hidden_size, self.intermediate_size
        q, kv = (n * self.head_dim for n in (self.num_attention_heads, self.num_key_value_heads))
        found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, hidden)}
        for number in range(self.num_hidden_layers):
            layer = f"model.layers.{number}"
            found |= {
                f"{layer}.input_layernorm.weight": (hidden,),
                f"{layer}.self_attn.q_proj.weight": (q, hidden),
                f"{layer}.self_attn.k_proj.weight": (kv, hidden),
                f"{layer}.self_attn.v_proj.weight": (kv, hidden),
                f"{layer}.self_attn.o_proj.weight": (hidden, q),
                f"{layer}.post_attention_layernorm.weight": (hidden,),
                f"{layer}.mlp.gate_proj.weight": (inner, hidden),
                f"{layer}.mlp.up_proj.weight": (inner, hidden),
                f"{layer}.mlp.down_proj.weight": (hidden, inner),
            }
        found["model.norm.weight"] = (hidden,)
        if not self.tie_word_embeddings:
            found["lm_head.weight"] = (self.vocab_size, hidden)
        return found


def checked(config: Config, weights: Weights, where: str) -> dict[str, NDArray[np.float32]]:
    """Return the weights as float32; `ModelError` if one is missing, unknown or wrong."""
    wanted = config.weights()
    given = dict(weights)
    if config.tie_word_embeddings and "lm_head.weight" in given:
        # Some files store the shared weights twice.
        head, rows = given.pop("lm_head.weight"), given.get("model.embed_tokens.weight")
        if rows is not None and not np.array_equal(head, rows):
            what = "'lm_head.weight' differs from the embedding, but tie_word_embeddings is true"
            raise ModelError(what, where=where, fix="set tie_word_embeddings to false")
    # Older files store the wavelengths, which follow from the configuration.
    given = {name: array for name, array in given.items() if not name.endswith(".inv_freq")}
    fix = "use the configuration that belongs to the weights"
    for name in [*wanted, *given]:
        if name not in given or name not in wanted:
            what = f"tensor {name!r} is {'missing' if name in wanted else 'not one of the model'}"
            raise ModelError(what, where=where, fix=fix)
        array = given[name]
        if not isinstance(array, np.ndarray):
            what = f"tensor {name!r} is a {type(array).__name__}"
            raise ModelError(what, where=where, fix="pass arrays of NumPy, in float32")
        floats = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
        if array.shape != wanted[name] or not floats:
            what = f"tensor {name!r} is {array.dtype}{list(array.shape)}"
            what += f", but the model needs float{list(wanted[name])}"
            raise ModelError(what, where=where, fix=fix)
    made = {name: np.asarray(given[name], np.float32) for name in wanted}
    for name, array in made.items():
        if not np.isfinite(array).all():
            what = f"a weight of tensor {name!r} is infinite or not a number"
            raise ModelError(what, where=where, fix="train the model again")
    return made


class _Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, config: Config, form: Format, number: int) -> None:
        super().__init__()
        hidden, size = config.hidden_size, config.head_dim
        self.heads, self.number = config.num_attention_heads, number
        self.shared, self.size, self.inner = (
            config.num_key_value_heads,
            size,
            config.intermediate_size,
        )
        self.before = nn.RMSNorm(hidden, -1, config.rms_norm_eps, bias=False)
        self.qkv = Linear((self.heads + 2 * self.shared) * size, hidden, form)
        self.out = Linear(hidden, self.heads * size, form)
        self.after = nn.RMSNorm(hidden, -1, config.rms_norm_eps, bias=False)
        self.both = Linear(2 * self.inner, hidden, form)
        self.down = Linear(hidden, self.inner, form)

    def forward(self, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        tokens = x.shape[0]
        qkv = self.qkv(self.before(x)).reshape(1, tokens, self.heads + 2 * self.shared, self.size)
        seen = cache.attention_with_fused_qkv(self.number, qkv, self.heads, self.size**-0.5)
        x = x + self.out(seen.reshape(tokens, self.heads * self.size))
        both = self.both(self.after(x))

        def gated(pairs: te.Tensor) -> te.Tensor:
            def value(i: Any, j: Any) -> Any:
                return pairs[i, j] * tirx.sigmoid(pairs[i, j]) * pairs[i, self.inner + j]

            return te.compute((pairs.shape[0], self.inner), value, name="swiglu")

        return x + self.down(nn.op.tensor_expr_op(gated, "swiglu", [both]))


class Decoder(nn.Module):  # type: ignore[misc]
    """The decoder with its cache; `module` exports it.

    Parameters
    ----------
    config : Config
        The sizes.
    form : Format
        How the weights of the products are stored.
    """

    def __init__(self, config: Config, form: Format) -> None:
        super().__init__()
        self.config, self.form = config, form
        self.embedding = nn.Parameter((config.vocab_size, config.hidden_size))
        self.layers = nn.ModuleList(
            [_Layer(config, form, number) for number in range(config.num_hidden_layers)]
        )
        self.norm = nn.RMSNorm(config.hidden_size, -1, config.rms_norm_eps, bias=False)
        self.head = Linear(config.vocab_size, config.hidden_size, form)

    def prefill(self, tokens: nn.Tensor, rows: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        """Return the hidden states of the chosen rows."""
        return _rows(self._hidden(tokens, cache), rows, "last")

    def logits(self, last: nn.Tensor) -> nn.Tensor:
        """Return the logits that follow from the result of `prefill`."""
        return self.head(self.norm(last))

    def logits_of_one(self, last: nn.Tensor) -> nn.Tensor:
        """Return the logits of a single sequence."""
        return self.logits(last)

    def decode(self, tokens: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        """Return the logits of a single new token."""
        return self.logits(self._hidden(tokens, cache))

    def _hidden(self, tokens: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        x = _rows(self.embedding, tokens, "embedding")
        for layer in self.layers:
            x = layer(x, cache)
        return x

    def create(
        self,
        sequences: tirx.Var,
        total: tirx.Var,
    ) -> PagedKVCache:
        """Create a cache for a number of sequences, and tokens of all of them."""
        config, builder = self.config, relax.BlockBuilder.current()
        shared, size, layers = config.num_key_value_heads, config.head_dim, config.num_hidden_layers
        attention = Attention(
            config.num_attention_heads, shared, size, config.rope_theta, self.form.machine
        )

        def tirx_function(func: tirx.PrimFunc, name: str) -> Any:
            return relax.Tuple([tvm.ir.StringImm("tirx"), builder.add_func(func, name)])

        none, append = relax.Tuple([]), builder.add_func(attention.append(), "lm_append")
        arguments = [
            relax.ShapeExpr([sequences, total, total, PAGE, 0, 1]),
            relax.ShapeExpr([0, layers]),
            *map(relax.prim_value, (config.num_attention_heads, shared, size, size)),
            relax.ShapeExpr([0] * layers),  # every layer has plain attention
            relax.prim_value(0),
            relax.prim_value(int(RopeMode.NORMAL)),
            relax.prim_value(1),
            relax.prim_value(1),  # unused: `Attention.rotate` has its own wavelengths
            tirx.IntImm("int64", 0),
            relax.op.zeros((), "float32"),
            append,
            none,  # for another kind of attention
            tirx_function(attention.within(), "lm_self_attention"),
            tirx_function(attention.cross(), "lm_cross_attention"),
            tirx_function(attention.decode(), "lm_decode_attention"),
            *[none] * 5,  # sliding windows, trees of tokens, latent attention
            relax.Tuple([builder.add_func(_merge_state_inplace_cpu("float32"), "lm_merge")]),
            builder.add_func(attention.rotate(), "lm_rotate"),
            # These copy, export and compact pages. Sessions never call them: a call would fail.
            *[append] * 3,
        ]
        name = "vm.builtin.paged_attention_kv_cache_create"
        made = relax.call_pure_packed(name, *arguments, ty_args=relax.AnyType())
        return PagedKVCache(_expr=made, _name="cache")

    def module(self) -> tuple[tvm.ir.IRModule, list[str]]:
        """Export the functions; return the module and the names of its parameters in order."""
        cache, hidden = nn.spec.Object(object_type=PagedKVCache), self.config.hidden_size
        packed = {"param_mode": "packed", "effect_mode": "none"}
        sizes = dict.fromkeys(("sequences", "total"), int)
        spec = {
            "create": {**sizes, "$": {"param_mode": "none", "effect_mode": "none"}},
            "prefill": {
                "tokens": nn.spec.Tensor(["n"], "int32"),
                "rows": nn.spec.Tensor(["m"], "int32"),
                "cache": cache,
                "$": packed,
            },
            "decode": {"tokens": nn.spec.Tensor([1], "int32"), "cache": cache, "$": packed},
            "logits": {"last": nn.spec.Tensor(["m", hidden], "float32"), "$": packed},
            # A product of one row alone needs no rows that fill a tile.
            "logits_of_one": {"last": nn.spec.Tensor([1, hidden], "float32"), "$": packed},
        }
        mod, parameters = self.export_tvm(spec)
        for name in spec:  # passes keep functions with a public name
            mod[name] = mod[name].with_attr("global_symbol", name)
        return mod, [name for name, _ in parameters]

    def packed(self, weights: Weights) -> dict[str, NDArray[Any]]:
        """Return the parameters for the weights of `checked`."""
        found: dict[str, NDArray[Any]] = {"embedding": weights["model.embed_tokens.weight"]}

        def add(name: str, *parts: str) -> None:
            joined = np.concatenate([weights[f"{part}.weight"] for part in parts])
            for suffix, array in zip(("weight", "scale"), self.form.pack(joined), strict=False):
                found[f"{name}.{suffix}"] = array

        for number in range(self.config.num_hidden_layers):
            own, layer = f"layers.{number}", f"model.layers.{number}"
            found[f"{own}.before.weight"] = weights[f"{layer}.input_layernorm.weight"]
            found[f"{own}.after.weight"] = weights[f"{layer}.post_attention_layernorm.weight"]
            add(f"{own}.qkv", *(f"{layer}.self_attn.{one}_proj" for one in "qkv"))
            add(f"{own}.out", f"{layer}.self_attn.o_proj")
            add(f"{own}.both", *(f"{layer}.mlp.{one}_proj" for one in ("gate", "up")))
            add(f"{own}.down", f"{layer}.mlp.down_proj")
        found["norm.weight"] = weights["model.norm.weight"]
        tied = self.config.tie_word_embeddings
        add("head", "model.embed_tokens" if tied else "lm_head")
        return found


def _rows(table: nn.Tensor, chosen: nn.Tensor, name: str) -> nn.Tensor:
    """Return rows of a matrix, whose numbers the session has checked."""

    def take(matrix: te.Tensor, rows: te.Tensor) -> te.Tensor:
        shape = (rows.shape[0], matrix.shape[1])
        return te.compute(shape, lambda i, j: matrix[rows[i], j], name=name)

    return nn.op.tensor_expr_op(take, name, [table, chosen])
