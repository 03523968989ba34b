"""Matrix products with packed weights, in float32 or quantized."""

from __future__ import annotations

from tvm import te
from tvm.relax.frontend import nn

from ..schedule.compute import contraction, sizes
from ..schedule.packing import Format
from ..schedule.tile_size import Tile
from ..schedule.weight_only import Quantized

__all__ = ["Linear"]


class Linear(nn.Module):  # type: ignore[misc]
    """A matrix product ``x @ weight.T`` without a bias, for ``x`` of ``[tokens, inputs]``."""

    def __init__(self, outputs: int, inputs: int, form: Format) -> None:
        super().__init__()
        self.outputs, self.inputs, self.form = outputs, inputs, form
        given = form.shapes(outputs, inputs)
        self.weight = nn.Parameter(*given[0])
        self.scale = nn.Parameter(*given[1]) if len(given) > 1 else None

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """Return ``[tokens, outputs]``."""
        if self.scale is None:
            return nn.op.tensor_expr_op(self._product, "product", [x, self.weight])
        count = x.shape[0] if isinstance(x.shape[0], int) else None
        kernel = Quantized(self.form, self.outputs, self.inputs).product(count)
        out = nn.Tensor.placeholder((x.shape[0], self.outputs), "float32")
        return nn.op.tensor_ir_op(kernel, "quantized_product", [x, self.weight, self.scale], out)

    def _product(self, x: te.Tensor, weight: te.Tensor) -> te.Tensor:
        """Multiply in tiles of tokens, which `tvmlab.schedule.Contraction` schedules."""
        rows, tile = sizes(x.shape)[0], self.form.tile
        columns, channels = self.form.rows, tile
        if rows == 1:
            columns, channels = 1, tile * self.form.streams(self.outputs)
        sums = contraction(
            x,
            lambda _, o, k: weight(o // tile, k, o % tile),
            read=lambda outer, r, _, k: (r, k),
            pixels=(rows, 1),
            taps=(),
            inputs=self.inputs,
            channels=self.outputs,
            tile=Tile(columns, 1, channels),
            dtype="float32",
            operator=f"lm product {self.outputs}x{self.inputs}, {rows} rows",
        )
        return te.compute((rows, self.outputs), lambda i, o: sums(i, 0, o), name="crop")
