# Draft of notebook 13, in cells. Run it as a script: each cell prints what the notebook shows.

# %% [markdown]
# # Run a language model
#
# A language model reads a text and computes which token can come next. To write a text, it runs
# again for every token. This notebook builds such a model in TVM from its weights, runs it, and
# finds out what limits its speed.
#
# ## What you'll do
#
# You read the weights of a small decoder that adds numbers, write its architecture with
# `tvm.relax.frontend.nn`, compile it with a cache, and let it solve problems. Then you count
# what one token costs, and store the weights in fewer bits.
#
# ## What you'll learn
#
# - Read a file in the safetensors format, which contains numbers and no code.
# - Write the Llama architecture: RMS normalization, rotary embedding, grouped-query attention,
#   SwiGLU.
# - Compile prefill and decode for sequences of any length, with TVM's paged key-value cache.
# - Explain why decoding is memory-bound, and what quantized weights change.
#
# ## What you'll need
#
# [03 Import a ResNet](../03_import_a_resnet.ipynb) explains how to build a module, and [09 Find
# where the time goes](../09_find_where_the_time_goes.ipynb) explains memory-bound and
# compute-bound. Everything runs offline.

# %% [markdown]
# ## What is in the file?
#
# The decoder was trained to continue texts such as `58+767=` with the sum, from its last digit
# to its first, and a full stop. Each of its 13 characters is a **token**, a number from 0 to
# 12. A safetensors file begins with the length of a header in 8 bytes. The header is JSON, and
# names the dtype, shape and place of each tensor. No part of the file is code, so that you can
# read a file that you do not trust.

# %% setup
import json

import numpy as np
import tvm

from tvmlab.models import addition

content = addition.WEIGHTS.read_bytes()
start = 8 + int.from_bytes(content[:8], "little")
header = json.loads(content[8:start])
weights = {}
for name, entry in header.items():
    first, last = (start + place for place in entry["data_offsets"])
    assert entry["dtype"] == "F16"
    half = np.frombuffer(content[first:last], np.float16).reshape(entry["shape"])
    weights[name] = half.astype(np.float32)
for name in list(weights)[:5]:
    print(f"{name:45} {weights[name].shape}")
print(f"{len(weights)} tensors, {sum(w.size for w in weights.values()):,} weights")

# %% [markdown]
# ## How do you write a decoder in TVM?
#
# `relax.frontend.nn` has the modules of PyTorch that language models need, and exports them to
# Relax. A layer adds two results to its input `x`. The first is **attention**: each token has a
# query, a key and a value, and receives the values of the tokens before it, weighted by the
# products of its query and their keys. Three query heads share one key-value head here
# (**grouped-query attention**), which makes the cache three times smaller. The second is a
# network that multiplies two projections of a token (**SwiGLU**).

# %% layer
from tvm.relax.frontend import nn

HIDDEN, INNER, HEADS, SHARED, SIZE, LAYERS, TOKENS = 96, 192, 3, 1, 32, 3, 13


class Layer(nn.Module):
    def __init__(self, number):
        self.number = number
        self.before, self.after = (nn.RMSNorm(HIDDEN, -1, 1e-5, bias=False) for _ in "12")
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * SHARED) * SIZE, bias=False)
        self.out = nn.Linear(HEADS * SIZE, HIDDEN, bias=False)
        self.both = nn.Linear(HIDDEN, 2 * INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x, cache):
        batch, count, _ = x.shape
        qkv = self.qkv(self.before(x)).reshape(batch, count, HEADS + 2 * SHARED, SIZE)
        seen = cache.attention_with_fused_qkv(self.number, qkv, HEADS, SIZE**-0.5)
        x = x + self.out(seen.reshape(batch, count, HEADS * SIZE))
        gate, up = nn.op.split(self.both(self.after(x)), 2, axis=-1)
        return x + self.down(nn.op.silu(gate) * up)


# %% [markdown]
# The call `attention_with_fused_qkv` rotates queries and keys by an angle that grows with the
# position (**rotary embedding**), appends keys and values to the cache, and computes the
# attention. The cache belongs to TVM's runtime. It stores keys and values in **pages** of 16
# tokens, like the memory of an operating system, so that sequences of different lengths share
# it.

# %% decoder
from tvm import relax, tirx
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode, TIRPagedKVCache

target = tvm.target.Target("llvm")


class Decoder(nn.Module):
    def __init__(self):
        self.embedding = nn.Embedding(TOKENS, HIDDEN)
        self.layers = nn.ModuleList([Layer(number) for number in range(LAYERS)])
        self.norm = nn.RMSNorm(HIDDEN, -1, 1e-5, bias=False)
        self.head = nn.Linear(HIDDEN, TOKENS, bias=False)

    def forward(self, tokens, cache):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cache)
        return self.head(self.norm(x))

    def create(self, sequences, total, chunk, page, window):
        heads = {"num_attention_heads": HEADS, "num_key_value_heads": SHARED}
        sizes = {"qk_head_dim": SIZE, "v_head_dim": SIZE, "rotary_dim": SIZE}
        sizes |= {"mla_original_qk_head_dim": 0, "mla_original_v_head_dim": 0}
        rope = {"rope_mode": RopeMode.NORMAL, "rope_scale": 1, "rope_theta": 100}
        rope |= {"rope_scaling": {}, "rope_ext_factors": tirx.IntImm("int64", 0)}
        parts = {"layer_partition": relax.ShapeExpr([0, LAYERS]), "num_hidden_layers": LAYERS}
        more = {"enable_disaggregation": False, "dtype": "float32", "target": target}
        numbers = (sequences, total, chunk, page, window)
        return TIRPagedKVCache("mha", *numbers, **heads, **parts, **sizes, **rope, **more)


# %% [markdown]
# ## How do you compile it?
#
# `export_tvm` takes a specification of each function. The number of tokens is a symbol, `n`:
# the same function reads a whole prompt (**prefill**) and continues it one token at a time
# (**decode**). `packed` collects all weights in one list.

# %% compile
packed = {"param_mode": "packed", "effect_mode": "none"}
numbers = dict.fromkeys(["sequences", "total", "chunk", "page", "window"], int)
tokens = nn.spec.Tensor([1, "n"], "int32")
mod, parameters = Decoder().export_tvm(
    {
        "create": {**numbers, "$": {"param_mode": "none", "effect_mode": "none"}},
        "forward": {
            "tokens": tokens,
            "cache": nn.spec.Object(object_type=PagedKVCache),
            "$": packed,
        },
    }
)
vm = relax.VirtualMachine(relax.build(mod, target), tvm.cpu())
print([name for name, _ in parameters][:7])

# %% [markdown]
# The names of the modules differ from the names in the file, and some of the file's matrices
# are joined: one product of a larger matrix is faster than three small ones.

# %% parameters
JOINED = {
    "before": ["input_layernorm"],
    "after": ["post_attention_layernorm"],
    "qkv": [f"self_attn.{one}_proj" for one in "qkv"],
    "out": ["self_attn.o_proj"],
    "both": ["mlp.gate_proj", "mlp.up_proj"],
    "down": ["mlp.down_proj"],
}
OTHERS = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}


def value(name):
    *layer, part, _ = name.split(".")
    if not layer:
        return weights[f"{OTHERS[part]}.weight"]
    whole = f"model.{'.'.join(layer)}"
    return np.concatenate([weights[f"{whole}.{one}.weight"] for one in JOINED[part]])


values = [tvm.runtime.tensor(value(name)) for name, _ in parameters]

# %% [markdown]
# ## Does it add?
#
# Before each call, `begin_forward` says to which sequence the tokens belong and how many they
# are. The prompt is one call. Then each predicted token is the input of the next call.

# %% generate
from tvm_ffi import Shape

state = {
    name: tvm.get_global_func(f"vm.builtin.kv_state_{name}")
    for name in ("add_sequence", "begin_forward", "end_forward")
}


def solve(problem, most=5):
    cache = vm["create"](*(Shape([number]) for number in (1, 32, 32, 16, 0)))
    state["add_sequence"](cache, 0)
    new, text = addition.encode(problem), ""
    while not text.endswith(".") and len(text) < most:
        state["begin_forward"](cache, Shape([0]), Shape([len(new)]))
        logits = vm["forward"](tvm.runtime.tensor(np.array([new], "int32")), cache, values)
        state["end_forward"](cache)
        new = [int(logits.numpy()[0, -1].argmax())]
        text += addition.decode(new)
    return text


for a, b in [(58, 767), (9, 1), (999, 1), (123, 456)]:
    print(f"{a}+{b}={solve(f'{a}+{b}=')}  (expected {addition.answer(a, b)})")

# %% [markdown]
# Yes. The training never saw one in 16 of all problems, and the decoder solves those, too.

# %% held-out
pairs = addition.held_out(50)
right = [solve(f"{a}+{b}=") == addition.answer(a, b) for a, b in pairs]
print(f"{sum(right)} of {len(pairs)} problems that the training left out")

# %% [markdown]
# ## What limits the speed?
#
# To compute one token, a decoder reads every weight once, and multiplies it by one number.
# Count both for a decoder with 110 million weights. A core that multiplies and adds 50 billion
# times per second needs 2 ms for the arithmetic. To read the weights at 30 GB/s takes 15 ms.
# Decoding is **memory-bound**. A prompt of 128 tokens uses each weight 128 times, which makes
# prefill compute-bound.

# %% count
rows = []
for name, tokens_at_once in [("prefill of 128 tokens", 128), ("decode of one token", 1)]:
    count = 110_700_000
    rows.append((name, 2 * count * tokens_at_once / (4 * count)))
    print(f"{name:22} {rows[-1][1]:5.1f} operations per byte of weights")

# %% [markdown]
# Therefore, decode becomes faster with smaller weights. **Weight-only quantization** stores
# them as integers of 8 or 4 bits, with one scale for each group of 32 weights, and converts
# them to float32 in registers. The **short** form is `tvmlab.lm`, whose kernels do that. They
# also read the weights in the order in which the loops need them, and compute the attention
# with vectors.

# %% short
from tvmlab import lm

problems = ["58+767=", "9+1=", "123+456="]
for quantize in (None, "int8", "int4"):
    model = lm.load(addition.WEIGHTS, addition.CONFIG, quantize=quantize)
    made = model.generate(
        [addition.encode(one) for one in problems], 5, stop=addition.encode(".")[0]
    )
    print(model, [addition.decode(one) for one in made])

# %% [markdown]
# ## On your own (to write)
#
# 1. `sample(logits, temperature, random)`: draw a token; the check counts 10,000 draws.
# 2. `cache_bytes(layers, kv_heads, size, tokens)`: bytes of the cache; with 12 key-value heads
#    instead of 4, how long is a sequence whose cache is as large as the weights?
#
# ## In practice
#
# - Divide the bytes of the weights by the bandwidth of your memory: no decoder is faster than
#   that per token.
# - A batch reads the weights once for all its sequences, until the arithmetic takes longer than
#   the memory.
# - The cache grows with each token. At long contexts, it is read as often as the weights.
#
# ## Further reading
#
# - Touvron et al., *LLaMA: Open and Efficient Foundation Language Models*, 2023,
#   [arXiv:2302.13971](https://arxiv.org/abs/2302.13971).
# - Ainslie et al., *GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
#   Checkpoints*, 2023, [arXiv:2305.13245](https://arxiv.org/abs/2305.13245).
# - Kwon et al., *Efficient Memory Management for Large Language Model Serving with
#   PagedAttention*, 2023, [arXiv:2309.06180](https://arxiv.org/abs/2309.06180).
# - Su et al., *RoFormer: Enhanced Transformer with Rotary Position Embedding*, 2021,
#   [arXiv:2104.09864](https://arxiv.org/abs/2104.09864).
