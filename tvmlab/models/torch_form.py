"""The torch form of a network: a module built from the table. Import it only if torch is there."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ..errors import ModelError
from .networks import ARCHITECTURES, EPSILON, Architecture, Layer, Parameters
from .onnx_form import Model

__all__ = ["Network", "load_parameters", "norms_as_convolutions", "of", "parameters_of"]


class _Add(nn.Module):  # type: ignore[misc]
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left + right


class Network(nn.Module):  # type: ignore[misc]
    """A network that runs a table of layers, with one submodule per layer, named after it.

    Therefore `state_dict()` has the names of `spec.parameters()`, and otherwise only the counters
    `num_batches_tracked` that PyTorch's batch norm keeps.
    """

    def __init__(self, spec: Architecture) -> None:
        super().__init__()
        self.spec = spec
        for layer in spec.layers:
            parent: nn.Module = self
            *path, leaf = layer.name.split(".")
            for part in path:
                if part not in parent._modules:
                    parent.add_module(part, nn.Module())
                parent = parent.get_submodule(part)
            parent.add_module(leaf, _MODULES[layer.op](layer))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """Compute the logits, float32 [n, classes], of images [n, channels, height, width]."""
        values = {"data": data}
        for layer in self.spec.layers:
            inputs = [values[name] for name in layer.inputs]
            values[layer.name] = self.get_submodule(layer.name)(*inputs)
        return values["logits"]


#: The module of each operator.
_MODULES: dict[str, Callable[[Layer], nn.Module]] = {
    "batch_norm": lambda layer: nn.BatchNorm2d(layer.channels[1], eps=EPSILON),
    "conv": lambda it: nn.Conv2d(
        *it.channels, it.kernel, it.stride, it.padding, groups=it.groups, bias=False
    ),
    "relu": lambda _: nn.ReLU(),
    "relu6": lambda _: nn.ReLU6(),
    "max_pool": lambda layer: nn.MaxPool2d(layer.kernel, layer.stride, layer.padding),
    "add": lambda _: _Add(),
    "global_pool": lambda _: nn.AdaptiveAvgPool2d(1),
    "flatten": lambda _: nn.Flatten(),
    "dense": lambda layer: nn.Linear(*layer.channels),
}


def of(model: Model) -> Network:
    """Build the torch form of a model of `tvmlab.models`, in evaluation mode, with its weights.

    It takes any batch. Raises `ModelError` for the ONNX model zoo's file, whose weights have other
    names.
    """
    from onnx import numpy_helper

    if model.weights == "zoo":
        what = "The zoo's weights do not have the names of the network's layers."
        raise ModelError(what, where=model.name, fix='Use the "seeded" weights.')
    network = Network(ARCHITECTURES[model.name])
    tensors = model.proto.graph.initializer
    parameters = {tensor.name: numpy_helper.to_array(tensor) for tensor in tensors}
    return load_parameters(network, parameters).eval()  # type: ignore[no-any-return]


def load_parameters(network: Network, parameters: Mapping[str, npt.NDArray[np.float32]]) -> Network:
    """Copy parameters, with exactly the names of `spec.parameters()`, into a network."""
    tensors = {name: torch.from_numpy(value.copy()) for name, value in parameters.items()}
    network.load_state_dict(tensors, strict=True)
    return network


def parameters_of(network: Network) -> Parameters:
    """Copy a network's parameters out, in the form that `onnx_form.to_onnx` takes."""
    state = network.state_dict()
    return {name: state[name].detach().numpy().copy() for name in network.spec.parameters()}


def norms_as_convolutions(network: Network) -> Network:
    """Copy a network with batch norms as depthwise convolutions, for `quantized_torch`.

    A batch norm that is the only reader of a convolution stays, because a quantizer folds it.
    """
    network = copy.deepcopy(network)
    layers = network.spec.layers
    kinds = {layer.name: layer.op for layer in layers}
    readers = Counter(name for layer in layers for name in layer.inputs)
    for layer in layers:
        source = layer.inputs[0]
        if layer.op != "batch_norm" or (kinds.get(source) == "conv" and readers[source] == 1):
            continue
        path, _, leaf = layer.name.rpartition(".")
        parent = network.get_submodule(path)
        setattr(parent, leaf, _as_convolution(parent.get_submodule(leaf)))
    return network


def _as_convolution(norm: nn.BatchNorm2d) -> nn.Conv2d:
    channels = norm.num_features
    made = nn.Conv2d(channels, channels, 1, groups=channels)
    with torch.no_grad():
        # In double precision, so that each number is rounded once.
        scale = norm.weight.double() / torch.sqrt(norm.running_var.double() + norm.eps)
        made.weight.copy_(scale.reshape(channels, 1, 1, 1))
        made.bias.copy_(norm.bias.double() - norm.running_mean.double() * scale)
    return made.eval()
