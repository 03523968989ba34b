"""Writing integer expressions: variables, constants, and the step from one form to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from ...ir import checks, dialect
from .. import arithmetic
from .form import NARROW, Form, Goal, NoForm, bits, with_dtype

__all__ = ["INT32", "Emitter"]

Array = npt.NDArray[Any]

INT32 = (-(2**31), 2**31 - 1)
# Above this ratio of two scales the multiplier of a requantize is refused (`fixed_point`).
_APART = 2.0**30


@dataclass
class Scope:
    """What was computed in a block or branch, and is visible to the end of it alone.

    Attributes
    ----------
    brought : dict
        By a form's identity and a goal: the form, which is kept alive, and its integers there.
    settled : dict
        By a form's identity: the form, and the same with its clip applied.
    """

    brought: dict[tuple[int, Goal], tuple[Form, relax.Expr]] = field(default_factory=dict)
    settled: dict[int, tuple[Form, Form]] = field(default_factory=dict)


class Emitter:
    """Collects the bindings of a block, and knows how to bring a form to a goal.

    Parameters
    ----------
    rounding : str
        What every requantize, addition, product and pooling says.

    Attributes
    ----------
    bindings : list of (tvm.relax.Var, tvm.relax.Expr)
        What has been emitted since the block began.
    dataflow : bool
        Whether the block is a dataflow block.
    """

    def __init__(self, rounding: str) -> None:
        self.rounding = rounding
        self.bindings: list[tuple[relax.Var, relax.Expr]] = []
        self.dataflow = True
        self._constants: dict[tuple[str, tuple[int, ...], bytes], relax.Expr] = {}
        self._scope = Scope()

    def forget(self) -> Scope:
        """Begin a scope: what was computed in another may not be visible in it."""
        before, self._scope = self._scope, Scope()
        return before

    def remember(self, before: Scope) -> None:
        """Return to the scope that `forget` left."""
        self._scope = before

    @property
    def ties(self) -> str:
        """What every quantize says of half-way cases."""
        return "ONNX" if self.rounding == "ONNX" else "None"

    def quantize(self, value: Any, goal: Goal) -> Array:
        """Quantize numbers as a goal says, by the reference arithmetic."""
        return arithmetic.quantize(
            np.asarray(value, np.float32),
            np.float32(goal.scale),
            goal.zero,
            out_dtype=goal.dtype,
            rounding=self.ties,
        )

    def constant(self, value: npt.ArrayLike, dtype: str) -> relax.Expr:
        """Make a constant, or give the one made before; large ones are not kept."""
        array = np.array(value, dtype, order="C")
        if array.nbytes > 4096:
            return relax.const(array, dtype)
        key = (dtype, array.shape, array.tobytes())
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = relax.const(array, dtype)
        return found

    def scale(self, value: npt.ArrayLike) -> relax.Expr:
        """Make a scale's constant: float64 where it is, else float32."""
        array = np.asarray(value)
        return self.constant(array, "float64" if array.dtype == np.float64 else "float32")

    def zero(self, value: npt.ArrayLike) -> relax.Expr:
        """Make a zero point's constant."""
        return self.constant(value, "int32")

    def bind(
        self, value: relax.Expr, ty: Any, hint: str, var: relax.Var | None = None
    ) -> relax.Expr:
        """Bind an expression to a variable, a new one unless it is given.

        The type is given and not inferred: it is known, and a convolution's inference alone would
        take a millisecond.
        """
        if type(value.ty) is tvm.ir.Type:
            relax.expr._update_type(value, ty)
        if var is None:
            var = (relax.DataflowVar if self.dataflow else relax.Var)(hint, ty)
        self.bindings.append((var, value))
        return var

    def quantized(
        self,
        name: str,
        operands: Sequence[relax.Expr],
        attributes: dict[str, Any],
        ty: Any,
        hint: str,
        var: relax.Var | None = None,
    ) -> relax.Expr:
        """Bind a call of a quantized operator."""
        return self.bind(dialect.call(f"relax.qnn.{name}", operands, attributes), ty, hint, var)

    def bring(self, form: Form, goal: Goal, var: relax.Var | None = None) -> relax.Expr:
        """Give a form's integers at a goal's scale and zero point, cut as the form and goal say.

        Parameters
        ----------
        form : Form
        goal : Goal
        var : tvm.relax.Var, optional
            What the last operator is bound to, if any is needed.

        Raises
        ------
        NoForm
            If the roundings so far, or the requantize, could be wrong by more than it may.
        """
        key = (id(form), goal)
        if key in self._scope.brought:
            return self._scope.brought[key][1]
        expr = self._bring(form, goal, var)
        self._scope.brought[key] = (form, expr)
        return expr

    def _bring(self, form: Form, goal: Goal, var: relax.Var | None) -> relax.Expr:
        if form.array is not None:  # what is constant is quantized now
            return self.constant(self.quantize(form.real(form.array.ndim), goal), goal.dtype)
        expr, ty = form.expr, with_dtype(form.expr.ty, goal.dtype)
        hint = f"{getattr(expr, 'name', 'c')}_{goal.dtype}"
        limits = self.limits(form, goal)
        there = (
            form.scalar
            and float(form.scale) == goal.scale
            and int(form.zero) == goal.zero
            and form.dtype == goal.dtype
        )
        if not there:
            expr = self.requantize(form, goal, hint, None if limits else var)
        if limits:
            expr = self.bind(clip(expr, *limits), ty, hint, var)
        return expr

    def requantize(
        self, form: Form, goal: Goal, hint: str, var: relax.Var | None = None
    ) -> relax.Expr:
        """Bind a requantize; a clip that the form still needs is left out.

        Raises
        ------
        NoForm
            As `bring`.
        """
        check(form, goal)
        operands = [
            form.expr,
            self.scale(form.scale),
            self.zero(form.zero),
            self.scale(np.float32(goal.scale)),
            self.zero(goal.zero),
        ]
        attributes = {
            "axis": form.axis,
            "rounding": self.rounding,
            "compute_dtype": form.compute if goal.dtype in NARROW else "None",
            "out_dtype": goal.dtype,
        }
        ty = with_dtype(form.expr.ty, goal.dtype)
        return self.quantized("requantize", operands, attributes, ty, hint, var)

    def limits(self, form: Form, goal: Goal) -> tuple[int, int] | None:
        """Give where a form's integers are to be cut at a goal; None where the dtype does it.

        Rounding keeps the order of numbers, so that cutting the integers at the rounded limits is
        exactly what cutting the real values and rounding gives.
        """
        if not form.cut:
            return None
        low, high = (int(self.quantize(np.float32(limit), goal)) for limit in (form.low, form.high))
        if (low, high) == checks.limits(goal.dtype):
            return None
        return low, high

    def settle(self, form: Form) -> Form:
        """Apply a form's clip at its own scale.

        Raises
        ------
        NoForm
            If a limit is no integer there: the quantized network does not say how to round it.
        """
        if not form.cut:
            return form
        if id(form) not in self._scope.settled:
            self._scope.settled[id(form)] = (form, self._settle(form))
        return self._scope.settled[id(form)][1]

    def _settle(self, form: Form) -> Form:
        ends = [form.least, form.most]
        cut = []
        for limit, end, sign in ((form.low, ends[0], 1), (form.high, ends[1], -1)):
            if np.isinf(limit):
                cut.append(end)
                continue
            place = np.float64(limit) / form.scale.astype(np.float64) + form.zero
            if np.all(sign * (place - end) <= 0):
                cut.append(end)  # no value is beyond it
                continue
            if not np.all(place == np.round(place)) or np.any(place != place.flat[0]):
                raise NoForm(f"its operand is cut at {limit}, which is no step of its scale")
            cut.append(int(place.flat[0]))
        low, high = max(cut[0], ends[0]), min(cut[1], ends[1])
        if low > high:
            raise NoForm("its operand is cut to values that its dtype does not have")
        expr, ty = form.expr, form.expr.ty
        if (low, high) != (ends[0], ends[1]):
            hint = f"{getattr(expr, 'name', 'c')}_cut"
            if form.narrow:
                expr = self.bind(clip(expr, low, high), ty, hint)
            else:
                # A limit of int32 is no float32 number: constants of its own dtype are exact.
                for bound, kept, call in (
                    (low, low == ends[0], relax.op.maximum),
                    (high, high == ends[1], relax.op.minimum),
                ):
                    if not kept:
                        expr = self.bind(call(expr, self.constant(bound, form.dtype)), ty, hint)
        array = None if form.array is None else np.clip(form.array, low, high)
        infinity = float("inf")
        return replace(
            form, expr=expr, array=array, least=low, most=high, low=-infinity, high=infinity
        )

    def recode(self, form: Form, dtype: str) -> Form:
        """Give the same real values in another dtype, exactly: int8 as uint8, and to wider ones.

        Raises
        ------
        NoForm
            If the dtype does not hold them.
        """
        if form.dtype == dtype:
            return form
        zero = form.zero + shift(form.dtype, dtype)
        least, most = (end + shift(form.dtype, dtype) for end in (form.least, form.most))
        low, high = checks.limits(dtype)
        if least < low or most > high:
            raise NoForm(f"{dtype} does not hold {form.dtype}'s values")
        if not form.scalar:
            raise NoForm(f"its operand is {form.dtype} by channel beside {dtype}")
        goal = Goal(float(form.scale), int(zero), dtype)
        bare = replace(form, low=-float("inf"), high=float("inf"), error=0.0)
        expr = self.bring(bare, goal)
        return replace(form, expr=expr, dtype=dtype, zero=zero, least=least, most=most, array=None)


def check(form: Form, goal: Goal) -> None:
    """Insist that a requantize is right.

    Raises
    ------
    NoForm
        If it is not: the scales are too far apart, int32 would wrap, or roundings before it have
        lost a step.
    """
    scales = form.scale.astype(np.float64)
    if np.max(scales) / goal.scale >= _APART:
        raise NoForm("its scale and that of its result are 2**30 apart")
    if form.error > goal.scale / 2:
        raise NoForm("roundings before it could be more than half a step of its result")
    if goal.dtype == "int32" and form.reach / goal.scale + abs(goal.zero) >= INT32[1]:
        raise NoForm("its values could be beyond int32")


def clip(expr: relax.Expr, low: int, high: int) -> relax.Expr:
    """Make a clip as Relay's reader does: its limits are float64."""
    return relax.op.clip(expr, float(low), float(high))


def shift(source: str, dtype: str) -> int:
    """Give what is added to integers to keep their order in a dtype of the same width."""
    if bits(source) != bits(dtype) or source == dtype:
        return 0
    return checks.limits(dtype)[0] - checks.limits(source)[0]
