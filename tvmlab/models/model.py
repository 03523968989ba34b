"""A network in ONNX form, with a word on its weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import onnx

__all__ = ["Model"]


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
        ).rstrip()

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
        note: str = "",
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
            A sentence on that.

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
        return cls(proto, name, weights, value.name, shape, note)
