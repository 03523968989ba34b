"""The operators of a module as a table."""

from __future__ import annotations

from tvm.script import ir as I
from tvm.script import relax as R

from tvmlab.measure.operators import Row, operators


@I.ir_module
class Small:
    @R.function
    def other(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        return R.tanh(x)

    @R.function
    def main(
        x: R.Tensor((2, "n"), "float32"), w: R.Tensor((3, 4), "float32"), c: R.Tensor((), "bool")
    ):
        y = R.matmul(w, R.const([1.0, 2.0, 3.0, 4.0]))
        both = (x, w)
        z = both[1]
        s = R.split(z, 2, axis=1)
        t = R.concat((s[0], s[1]), axis=1)
        return (R.add(t, t), y, x)


def test_operators() -> None:
    found = operators(Small)
    assert found.rows[0] == Row("matmul", 1, 12)
    assert {row.operator for row in found.rows} == {"matmul", "split", "concat", "add", "tanh"}
    lines = str(found).splitlines()
    assert lines[0].split() == ["operator", "calls", "multiply-accumulates", "share"]
    assert lines[-1].split() == ["all", "5", "12", "100.0%"]
