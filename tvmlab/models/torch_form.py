"""The torch form of a network: a module made from the table. Import it only where torch is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ..errors import ModelError
from .architecture import EPSILON, Architecture, Layer, Parameters
from .cost import ARCHITECTURES
from .model import Model

__all__ = ["Network", "load_parameters", "of", "parameters_of"]


class _Add(nn.Module):  # type: ignore[misc]
    """The end of a residual unit: a sum."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left + right


class Network(nn.Module):  # type: ignore[misc]
    """A network that runs a table of layers, one submodule each.

    Parameters
    ----------
    spec : Architecture
        The network. Layer "stage1.unit1.conv1" becomes the submodule of that name, so
        `state_dict()` has the names of `spec.parameters()`, and beside them only the counters
        `num_batches_tracked` that PyTorch's batch norm keeps.
    note : str, optional
        Where the weights come from, kept as the attribute `note`.
    """

    def __init__(self, spec: Architecture, note: str = "") -> None:
        super().__init__()
        self.note = note
        self.spec = spec
        self.layers = spec.layers()
        for layer in self.layers:
            parent: nn.Module = self
            *path, leaf = layer.name.split(".")
            for part in path:
                if part not in parent._modules:
                    parent.add_module(part, nn.Module())
                parent = parent.get_submodule(part)
            parent.add_module(leaf, _module(layer))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """Compute the logits.

        Parameters
        ----------
        data : torch.Tensor
            Pictures, float32 [n, channels, height, width].

        Returns
        -------
        torch.Tensor
            float32 [n, classes].
        """
        values = {"data": data}
        for layer in self.layers:
            inputs = [values[name] for name in layer.inputs]
            values[layer.name] = self.get_submodule(layer.name)(*inputs)
        return values["logits"]


def _module(layer: Layer) -> nn.Module:
    in_channels, out_channels = layer.channels
    match layer.op:
        case "batch_norm":
            return nn.BatchNorm2d(out_channels, eps=EPSILON)
        case "conv":
            sizes = (layer.kernel, layer.stride, layer.padding)
            return nn.Conv2d(in_channels, out_channels, *sizes, groups=layer.groups, bias=False)
        case "relu":
            return nn.ReLU()
        case "relu6":
            return nn.ReLU6()
        case "max_pool":
            return nn.MaxPool2d(layer.kernel, layer.stride, layer.padding)
        case "add":
            return _Add()
        case "global_pool":
            return nn.AdaptiveAvgPool2d(1)
        case "flatten":
            return nn.Flatten()
        case "dense":
            return nn.Linear(in_channels, out_channels)


def of(model: Model) -> Network:
    """Build the torch form of one of the workbook's models, with the model's weights.

    Parameters
    ----------
    model : Model
        A model of `tvmlab.models`, with the weights that the package ships or draws.

    Returns
    -------
    Network
        In evaluation mode; it takes any batch, and its attribute `note` is the model's.

    Raises
    ------
    ModelError
        If the weights do not have the names and shapes of the architecture. The file of the ONNX
        model zoo has other names.
    """
    from onnx import numpy_helper

    network = Network(ARCHITECTURES[model.name], model.note)
    tensors = model.proto.graph.initializer
    parameters = {tensor.name: numpy_helper.to_array(tensor) for tensor in tensors}
    return load_parameters(network, parameters).eval()  # type: ignore[no-any-return]


def load_parameters(network: Network, parameters: Mapping[str, npt.NDArray[np.float32]]) -> Network:
    """Copy parameters into a network.

    Parameters
    ----------
    network : Network
        The network, changed in place.
    parameters : mapping of str to ndarray
        float32 arrays under the names of `spec.parameters()`, no more and no fewer.

    Returns
    -------
    Network
        The same network.

    Raises
    ------
    ModelError
        If a name or a shape does not fit.
    """
    tensors = {name: torch.from_numpy(value.copy()) for name, value in parameters.items()}
    try:
        network.load_state_dict(tensors, strict=True)
    except RuntimeError as error:
        raise ModelError(
            "The parameters are not those of the network.",
            where=network.spec.name,
            fix="Give arrays with the names and shapes of spec.parameters().",
        ) from error
    return network


def parameters_of(network: Network) -> Parameters:
    """Copy a network's parameters out.

    Parameters
    ----------
    network : Network
        The network.

    Returns
    -------
    dict of str to ndarray
        float32 arrays with the names and shapes of `spec.parameters()`; what `to_onnx` takes.
    """
    state = network.state_dict()
    return {name: state[name].detach().numpy().copy() for name in network.spec.parameters()}
