"""The two networks of the workbook, each with the weights it can get."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .. import data
from ..errors import ChecksumError, DataError, InputError, ModelError
from ..extras import need
from .architecture import DIGITS, RESNET50, Parameters, seeded_parameters

if TYPE_CHECKING:
    import onnx

    from .torch_form import Network

__all__ = ["Model", "digits_resnet", "resnet50_v2", "torch_digits_resnet", "torch_resnet50_v2"]

ZOO_FILE = "resnet50-v2-7.onnx"
_SEED = 50
_NOTES = {
    "zoo": (
        "Weights: the ONNX model zoo's resnet50-v2-7.onnx, trained on ImageNet; "
        "its classes are real answers."
    ),
    "seeded": (
        "Weights: seeded random numbers in the architecture of the ONNX model zoo's "
        "resnet50-v2-7.onnx; speed and arithmetic are real, its classes mean nothing."
    ),
    "trained": (
        "Weights: trained by `python -m tvmlab.models train-digits` on scikit-learn's "
        "handwritten digits; its classes are real answers."
    ),
}
# Why the zoo's file could not be had in this process, so that nobody waits for the network twice.
_no_zoo = ""


@dataclass(frozen=True)
class Model:
    """A network in ONNX form, and where its weights come from.

    Parameters
    ----------
    proto : onnx.ModelProto
        The model, for `tvmlab.load`, ONNX Runtime or `onnx.save`.
    name : str
        The network's name.
    weights : {"zoo", "seeded", "trained"}
        Where the weights come from.
    input_name : str
        The input's name.
    input_shape : tuple
        The input's shape: numbers, and a name where the model leaves one open.
    note : str
        A sentence on the weights; `print(model)` shows it.
    """

    proto: onnx.ModelProto = field(repr=False)
    name: str
    weights: Literal["zoo", "seeded", "trained"]
    input_name: str
    input_shape: tuple[int | str, ...]
    note: str

    def __str__(self) -> str:
        shape = ", ".join(map(str, self.input_shape))
        millions = self.parameter_count / 1e6
        return (
            f"{self.name}: input {self.input_name} float32 [{shape}], "
            f"{millions:.3g} million parameters.\n{self.note}"
        )

    @property
    def parameter_count(self) -> int:
        """How many numbers the model's weights are."""
        return sum(math.prod(tensor.dims) for tensor in self.proto.graph.initializer)

    @classmethod
    def of(
        cls,
        proto: onnx.ModelProto,
        name: str,
        weights: Literal["zoo", "seeded", "trained"],
        note: str | None = None,
    ) -> Model:
        """Describe an ONNX model.

        Parameters
        ----------
        proto : onnx.ModelProto
            A model with one input besides its weights.
        name : str
            Its name.
        weights : {"zoo", "seeded", "trained"}
            Where its weights come from.
        note : str, optional
            A sentence on that; left out, the usual one.

        Returns
        -------
        Model
            The description.

        Raises
        ------
        ModelError
            If the model has no input, or several.
        """
        from .onnx_form import graph_input

        value = graph_input(proto)
        dims = value.type.tensor_type.shape.dim
        shape = tuple(dim.dim_param if dim.HasField("dim_param") else dim.dim_value for dim in dims)
        return cls(proto, name, weights, value.name, shape, note or _NOTES[weights])


def resnet50_v2(
    weights: Literal["auto", "zoo", "seeded"] = "auto", *, batch: int | None = 1
) -> Model:
    """Give ResNet-50 v2, the network of the model zoo's resnet50-v2-7.onnx.

    Parameters
    ----------
    weights : {"auto", "zoo", "seeded"}, optional
        "zoo" wants the zoo's file (102 MB, trained on ImageNet), from the cache or the network.
        "seeded" builds the same architecture with random numbers, offline, the same on every
        machine. "auto" is "zoo" where that can be had, else "seeded", and the note says why.
    batch : int or None, optional
        Pictures in one call; None leaves the number open.

    Returns
    -------
    Model
        Input "data" float32 [batch, 3, 224, 224], output float32 [batch, 1000] without softmax.
        Its `weights` and `note` say which weights it has.

    Raises
    ------
    ChecksumError
        If what was downloaded is another file, "auto" or not.
    DataError
        If "zoo" is asked for and cannot be had.
    InputError
        If `weights` is another word.
    ToolchainError
        If onnx is not installed.
    """
    need("onnx", extra="models")
    from .onnx_form import set_batch, to_onnx

    path, note = _zoo_file(weights)
    if path is None:
        parameters = seeded_parameters(RESNET50, _SEED)
        return Model.of(to_onnx(RESNET50, parameters, batch=batch), RESNET50.name, "seeded", note)
    import onnx

    proto = onnx.load(path)
    set_batch(proto, batch)
    return Model.of(proto, RESNET50.name, "zoo", note)


def _zoo_file(weights: str) -> tuple[Path | None, str]:
    """Find or fetch the zoo's file, None for seeded weights; with the sentence on the weights."""
    global _no_zoo
    if weights not in ("auto", "zoo", "seeded"):
        raise InputError(
            f"There are no {weights!r} weights.",
            where="resnet50_v2",
            fix='Use "auto", "zoo" or "seeded".',
        )
    if weights == "seeded":
        return None, _NOTES["seeded"]
    if weights == "zoo":
        return data.fetch(ZOO_FILE), _NOTES["zoo"]
    try:
        path = data.cached(ZOO_FILE) if _no_zoo else data.fetch(ZOO_FILE)
    except ChecksumError:
        raise
    except DataError as error:
        path, _no_zoo = None, error.what.splitlines()[0]
    if path is None:
        return None, f"{_NOTES['seeded']}\nThe zoo's file is not downloaded: {_no_zoo}"
    return path, _NOTES["zoo"]


def digits_resnet(*, batch: int | None = 1) -> Model:
    """Give the small network for 8x8 pictures of digits, with its trained weights.

    Parameters
    ----------
    batch : int or None, optional
        Pictures in one call; None leaves the number open.

    Returns
    -------
    Model
        Input "data" float32 [batch, 1, 8, 8] with values from 0 to 1, as `digits` gives them;
        output float32 [batch, 10] without softmax.

    Raises
    ------
    ModelError
        If the file that ships with the package is missing or damaged.
    ToolchainError
        If onnx is not installed.
    """
    need("onnx", extra="models")
    import onnx

    from .onnx_form import graph_input, set_batch

    asset = resources.files("tvmlab").joinpath("assets/digits_resnet.onnx")
    try:
        proto = onnx.load_from_string(asset.read_bytes())
        graph_input(proto)  # no bytes at all are a model too, as far as protobuf goes
    except Exception as error:  # protobuf's own error class is not public
        raise ModelError(
            "The digits network that ships with the package cannot be read.",
            where=str(asset),
            fix="Install the package again, or run `python -m tvmlab.models train-digits`.",
        ) from error
    set_batch(proto, batch)
    return Model.of(proto, DIGITS.name, "trained")


def torch_resnet50_v2(weights: Literal["auto", "zoo", "seeded"] = "auto") -> Network:
    """Give ResNet-50 v2 as a torch module, with the weights of `resnet50_v2`.

    Parameters
    ----------
    weights : {"auto", "zoo", "seeded"}, optional
        As for `resnet50_v2`.

    Returns
    -------
    torch.nn.Module
        In evaluation mode; its attribute `note` says which weights it has.

    Raises
    ------
    ChecksumError
        If what was downloaded is another file, "auto" or not.
    DataError
        If "zoo" is asked for and cannot be had.
    InputError
        If `weights` is another word.
    ModelError
        If the zoo's file does not hold this architecture.
    ToolchainError
        If torch or onnx is not installed.
    """
    need("torch", extra="torch")
    from . import torch_form

    path, note = _zoo_file(weights)
    parameters: Parameters
    if path is None:
        parameters = seeded_parameters(RESNET50, _SEED)
    else:
        need("onnx", extra="models")
        import onnx

        from .onnx_form import from_onnx

        parameters = from_onnx(RESNET50, onnx.load(path))
    network = torch_form.Network(RESNET50, note)
    return torch_form.load_parameters(network, parameters).eval()  # type: ignore[no-any-return]


def torch_digits_resnet() -> Network:
    """Give the digits network as a torch module, with the weights of `digits_resnet`.

    Returns
    -------
    torch.nn.Module
        In evaluation mode; takes any batch.

    Raises
    ------
    ToolchainError
        If torch or onnx is not installed.
    """
    need("torch", extra="torch")
    from . import torch_form
    from .onnx_form import from_onnx

    model = digits_resnet()
    network = torch_form.Network(DIGITS, model.note)
    parameters = from_onnx(DIGITS, model.proto)
    return torch_form.load_parameters(network, parameters).eval()  # type: ignore[no-any-return]
