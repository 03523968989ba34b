"""Networks of torchvision, timm, transformers and PyTorch, to compare results and speed.

The weights are random with a fixed seed, so nothing is downloaded. `NETWORKS` are compared with
PyTorch's results; most are built from small configurations. `ZOO` are of usual size, and timed.
Requires the packages of requirements-networks.txt.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

# torchvision's usual wheel has compiled operators for CUDA. This module of it declares them, which
# fails beside a CPU build of PyTorch, and only detection needs them.
_COMPILED = "torchvision._meta_registrations"
sys.modules.setdefault(_COMPILED, types.ModuleType(_COMPILED))

CLOSE = 1e-4  # of the largest value of an output
Network = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Decoder(nn.Module):
    """The decoder of a small variational autoencoder, which makes a picture of 256x256 pixels."""

    def __init__(self) -> None:
        super().__init__()

        def layer(norm: nn.Module, *before: nn.Module) -> list[nn.Module]:
            return [*before, norm, nn.SiLU()]

        norm = partial(nn.InstanceNorm2d, affine=True)
        self.layers = nn.Sequential(
            *layer(norm(128), nn.Conv2d(16, 128, 3, padding=1)),
            *layer(norm(64), nn.ConvTranspose2d(128, 64, 4, 2, 1)),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            *layer(nn.GroupNorm(8, 32), nn.Conv2d(64, 32, 3, padding=1)),
            *[nn.ConvTranspose2d(32, 16, 3, 2, 1, 1), nn.ReLU()],
            *[nn.Conv2d(16, 3, 3, padding=1), nn.Tanh()],
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Decode."""
        return self.layers(x)


class UNet(nn.Module):
    """A U-Net of three levels (Ronneberger et al., 2015)."""

    def __init__(self) -> None:
        super().__init__()

        def level(inputs: int, outputs: int) -> nn.Sequential:
            first, second = (nn.Conv2d(n, outputs, 3, padding=1) for n in (inputs, outputs))
            return nn.Sequential(first, nn.ReLU(), second, nn.ReLU())

        sizes = (3, 32), (32, 64), (64, 128), (128, 64), (64, 32)
        self.down1, self.down2, self.bottom, self.up2, self.up1 = (level(*s) for s in sizes)
        self.grow2, self.grow1 = (nn.ConvTranspose2d(2 * n, n, 2, 2) for n in (64, 32))
        self.pool, self.last = nn.MaxPool2d(2), nn.Conv2d(32, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a class for each pixel."""
        one = self.down1(x)
        two = self.down2(self.pool(one))
        up = self.up2(torch.cat([self.grow2(self.bottom(self.pool(two))), two], 1))
        return self.last(self.up1(torch.cat([self.grow1(up), one], 1)))


class First(nn.Module):
    """A network of which only the first output counts, and that takes one tensor by name."""

    def __init__(self, module: nn.Module, name: str = "", **options: Any) -> None:
        super().__init__()
        self.module, self.name, self.options = module, name, options

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the first output."""
        named = {self.name: inputs[0]} if self.name else {}
        made = self.module(*() if named else inputs, **named, **self.options)
        return next(iter(made.values())) if isinstance(made, dict) else made[0]


def _vision(name: str, size: int = 64, **options: Any) -> Network:
    from torchvision.models import get_model

    options = {"weights": None, **options}
    if name in ("deeplabv3_resnet50", "fcn_resnet50", "lraspp_mobilenet_v3_large"):
        return First(get_model(name, weights_backbone=None)), (torch.randn(1, 3, size, size),)
    if name in ("googlenet", "inception_v3"):
        options |= {"init_weights": True, "aux_logits": False}
    return get_model(name, **options), (torch.randn(1, 3, size, size),)


def _maxvit() -> Network:
    from torchvision.models import MaxVit

    module = MaxVit((64, 64), 16, 4, [16, 32], [1, 1], head_dim=8, stochastic_depth_prob=0.0)
    return module, (torch.randn(1, 3, 64, 64),)


def _timm(name: str, size: int = 64, **options: Any) -> Network:
    import timm

    return timm.create_model(name, **options), (torch.randn(1, 3, size, size),)


def _text(name: str, part: str = "", **options: Any) -> Network:
    """Make a network of token numbers; `part` is the encoder of an encoder-decoder network."""
    import transformers

    config = getattr(transformers, name.removesuffix("Model") + "Config")(**{**SMALL, **options})
    model = getattr(getattr(transformers, name)(config), part or "base_model")
    return First(model, "input_ids"), (torch.randint(3, 99, (2, 11)),)


def _other(name: str, source: str, *shape: int, part: str = "", **options: Any) -> Network:
    import transformers

    config = getattr(transformers, name.removesuffix("Model") + "Config")(**options)
    model = getattr(getattr(transformers, name)(config), part or "base_model")
    return First(model, source), (torch.randn(*shape),)


def _own(make: Callable[[], nn.Module], *shape: int) -> Network:
    return make(), (torch.randn(*shape),)


def _tokens(name: str, count: int, **options: Any) -> Network:
    """Make a language network of the usual size, but for `options`."""
    import transformers

    config = getattr(transformers, f"{name}Config")(**options)
    model = First(getattr(transformers, f"{name}Model")(config), "input_ids")
    return model, (torch.randint(3, 99, (1, count)),)


def _torch(name: str, sizes: tuple[int, ...], *shapes: tuple[int, ...], **more: Any) -> Network:
    return getattr(nn, name)(*sizes, **more), tuple(torch.randn(*shape) for shape in shapes)


VISION = """
    resnet18 resnet50 resnext50_32x4d vgg11 vgg11_bn alexnet mobilenet_v2 mobilenet_v3_small
    mobilenet_v3_large efficientnet_b0 efficientnet_v2_s convnext_tiny regnet_x_400mf regnet_y_400mf
    densenet121 shufflenet_v2_x0_5 squeezenet1_1 googlenet mnasnet0_5 swin_t swin_v2_t
    deeplabv3_resnet50 fcn_resnet50 lraspp_mobilenet_v3_large
"""
TIMM = """
    edgenext_xx_small poolformer_s12 mobilevit_xxs mobilevitv2_050 ghostnet_050 hrnet_w18_small
    repvgg_a0 convmixer_768_32 fastvit_t8 mobileone_s0 lcnet_050 mobilenetv4_conv_small_050
    convnextv2_atto dla34 dpn48b res2net50_14w_8s resnest14d selecsls42 tinynet_e cspdarknet53
    eca_resnet33ts nfnet_f0 hgnet_tiny starnet_s1 mambaout_femto inception_next_atto
"""
TIMM_OF_64 = """
    deit_tiny_patch16_224 beit_base_patch16_224 mixer_s32_224 resmlp_12_224 vit_tiny_patch16_224
    cait_xxs24_224 coat_lite_tiny gmixer_12_224 pit_ti_224 xcit_nano_12_p16_224
    tnt_s_legacy_patch16_224 twins_svt_small gcvit_xxtiny
"""
# fmt: off
ENCODER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
           "intermediate_size": 64}
SMALL = {**ENCODER, "vocab_size": 99, "max_position_embeddings": 64, "use_cache": False}
HEADS = {"num_key_value_heads": 2, "head_dim": 8}
PIXELS = {**ENCODER, "image_size": 32, "patch_size": 8}
WINDOWS = {"image_size": 32, "patch_size": 2, "window_size": 2, "depths": [1, 1, 2, 1]}
HIERARCHY = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 4,
        "encoder_ffn_dim": 64, "decoder_attention_heads": 4, "decoder_ffn_dim": 64}
SPEECH = {**ENCODER, "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3),
          "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16,
          "num_conv_pos_embedding_groups": 4}
LLAMA = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4,
         "num_attention_heads": 8, "num_key_value_heads": 4, "use_cache": False}
WHISPER = {**BART, "num_mel_bins": 16, "max_source_positions": 20, "vocab_size": 99,
           "pad_token_id": 1}
# fmt: on

#: Name of a network, and the call that makes it.
NETWORKS: dict[str, tuple[Callable[..., Network], tuple[Any, ...], dict[str, Any]]] = {}


def _add(make: Callable[..., Network], name: str, *more: Any, **options: Any) -> None:
    NETWORKS[f"{make.__name__.strip('_')}/{name}"] = make, (name, *more), options


for _name in VISION.split():
    _add(_vision, _name)
_add(_vision, "inception_v3", 75)
_add(_vision, "vit_b_32", 64, image_size=64)
for _name in TIMM.split():
    _add(_timm, _name)
for _name in TIMM_OF_64.split():
    _add(_timm, _name, img_size=64)
for _name in ("levit_128s", "efficientformer_l1", "crossvit_9_240", "volo_d1_224"):
    _add(_timm, _name, 224)
for _name in ("BertModel", "RobertaModel", "MobileBertModel", "MPNetModel", "RoFormerModel"):
    _add(_text, _name)
_add(_text, "DistilBertModel", dim=32, n_layers=2, n_heads=4, hidden_dim=64)
for _name in ("Albert", "Electra"):
    _add(_text, f"{_name}Model", embedding_size=16)
_add(_text, "DebertaV2Model", relative_attention=True, pos_att_type=["p2c", "c2p"])
_add(_text, "GPT2Model", n_embd=32, n_layer=2, n_head=4)
_add(_text, "GPTNeoModel", num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]])
_add(_text, "OPTModel", ffn_dim=64, word_embed_proj_dim=32)
for _name in ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Phi", "Gemma2", "Olmo2", "Granite"):
    _add(_text, f"{_name}Model", **HEADS)
for _name in ("GPTNeoXModel", "BloomModel", "FalconModel", "StableLmModel", "MambaModel"):
    _add(_text, _name, num_key_value_heads=4)
_add(_text, "T5Model", "encoder", **T5)
_add(_text, "BartModel", "encoder", **BART)
_add(_text, "CLIPTextModel", eos_token_id=2)
for _name in ("CLIPVision", "ViT", "DeiT", "Dinov2"):
    _add(_other, f"{_name}Model", "pixel_values", 1, 3, 32, 32, **PIXELS)
_add(_other, "SwinModel", "pixel_values", 1, 3, 32, 32, **WINDOWS)
for _name, _more in {"Segformer": {}, "ConvNext": HIERARCHY, "MobileViT": {}}.items():
    _add(_other, f"{_name}Model", "pixel_values", 1, 3, 64, 64, **_more)
for _name in ("Wav2Vec2", "Hubert"):
    _add(_other, f"{_name}Model", "input_values", 1, 800, **SPEECH)
_add(_other, "WhisperModel", "input_features", 1, 16, 40, part="encoder", **WHISPER)
for _name in ("LSTM", "GRU", "RNN"):
    _add(_torch, _name, (6, 8, 2), (5, 3, 6), bidirectional=True)
_add(_torch, "TransformerEncoderLayer", (32, 4, 64), (2, 7, 32), batch_first=True)
_add(_torch, "Transformer", (32, 4, 2, 2, 64), (7, 2, 32), (5, 2, 32))
NETWORKS["vision/maxvit"] = _maxvit, (), {}


ZOO_VISION = """
    resnet18 resnet50 resnext50_32x4d vgg11 mobilenet_v2 mobilenet_v3_large efficientnet_b0
    convnext_tiny regnet_y_400mf densenet121 shufflenet_v2_x1_0 squeezenet1_1 mnasnet1_0 swin_t
    vit_b_16 vit_b_32
"""
ZOO_TIMM = """
    deit_tiny_patch16_224 mixer_s32_224 resmlp_12_224 poolformer_s12 hrnet_w18_small repvgg_a0
    ghostnet_100 convnextv2_atto edgenext_x_small fastvit_t8 lcnet_100
"""
#: Networks of usual size, for `make bench`.
ZOO: dict[str, tuple[Callable[..., Network], tuple[Any, ...], dict[str, Any]]] = {
    **{name: (_vision, (name, 224), {}) for name in ZOO_VISION.split()},
    **{name: (_timm, (name, 224), {}) for name in ZOO_TIMM.split()},
    "mobilevit_s": (_timm, ("mobilevit_s", 256), {}),
    "bert_base": (_tokens, ("Bert", 128), {}),
    "gpt2_4_layers": (_tokens, ("GPT2", 64), {"n_layer": 4, "use_cache": False}),
    "llama_4_layers": (_tokens, ("Llama", 64), LLAMA),
    "unet": (_own, (UNet, 1, 3, 128, 128), {}),
    "vae_decoder": (_own, (Decoder, 1, 16, 32, 32), {}),
    "conv3d": (_own, (lambda: nn.Conv3d(16, 32, 3, padding=1), 1, 16, 16, 32, 32), {}),
    "lstm": (_own, (lambda: First(nn.LSTM(128, 256)), 32, 1, 128), {}),
    "gru": (_own, (lambda: First(nn.GRU(128, 256)), 32, 1, 128), {}),
}


def network(name: str) -> Network:
    """Make a network of the tables, in evaluation mode, and its inputs."""
    torch.manual_seed(0)
    make, more, options = (NETWORKS | ZOO)[name]
    module, inputs = make(*more, **options)
    with torch.no_grad():
        # Constants such as a layer scale of 1e-6 would hide what a block computes.
        for one in [*module.parameters(), *module.buffers()]:
            if one.is_floating_point() and one.numel() > 1 and one.min() == one.max():
                one += torch.rand_like(one) * 0.5
    return module.eval(), inputs


def difference(name: str, onnx: bool = False) -> float:
    """Return the largest difference from PyTorch, relative to the largest value of the output."""
    import tvmlab

    module, inputs = network(name)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = module(*inputs)
        if onnx:
            model = torch.onnx.export(module, inputs, dynamo=True, verbose=False).model_proto
        else:
            model = torch.export.export(module, inputs)
        found = tvmlab.compile(tvmlab.load(model))(*inputs)
    ours = found if isinstance(found, (tuple, list)) else (found,)
    theirs = torch.utils._pytree.tree_leaves(expected)
    pairs = [(torch.from_numpy(a.copy()), b) for a, b in zip(ours, theirs, strict=True)]
    errors = [(a - b).abs().max() / b.abs().max() for a, b in pairs]
    return float(torch.stack(errors).max())  # NaN if one is NaN
