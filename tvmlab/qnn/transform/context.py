"""What the rules see: the forms found so far, and the emitter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from ...ir import checks
from .demand import Asked
from .emit import Emitter
from .form import NARROW, Form, Goal, NoForm, array_of

__all__ = ["Context", "Rule"]

Array = npt.NDArray[Any]


class Context:
    """The state of one function's rewriting.

    Parameters
    ----------
    emit : Emitter
        Where new bindings go.

    Attributes
    ----------
    forms : dict
        Each float variable's forms: by goal, and under None the one that is rounded to no goal.
    numbers : dict
        Each variable's value, where it is constant and does not come from a dequantize.
    calls : dict
        The operator that each variable comes from.
    """

    def __init__(self, emit: Emitter) -> None:
        self.emit = emit
        self.forms: dict[relax.Var, dict[Goal | None, Form]] = {}
        self.numbers: dict[relax.Var, Array] = {}
        self.calls: dict[relax.Var, relax.Call] = {}

    @property
    def rounding(self) -> str:
        """What every rounding operator says."""
        return self.emit.rounding

    def put(self, var: relax.Var, form: Form, goal: Goal | None = None) -> None:
        """Store a form of a variable."""
        self.forms.setdefault(var, {})[goal] = form

    def natural(self, expr: relax.Expr) -> Form:
        """Give the form of an operand that is rounded to no goal.

        Raises
        ------
        NoForm
            If there is none.
        """
        form = self.forms.get(expr, {}).get(None) if isinstance(expr, relax.Var) else None
        if form is None:
            raise NoForm(f"its operand {_name(expr)} is not quantized")
        return form

    def plain(self, expr: relax.Expr) -> Form:
        """Give `natural`, with its clip applied."""
        return self.emit.settle(self.natural(expr))

    def stored(self, expr: relax.Expr) -> Form:
        """Give `plain`, insisting on stored integers with one scale: not sums, not by channel.

        Raises
        ------
        NoForm
            If it is another.
        """
        form = self.plain(expr)
        if form.dtype not in NARROW:
            raise NoForm(f"its operand {_name(expr)}{self._maker(expr)} is not quantized before it")
        if not form.scalar:
            raise NoForm(f"its operand {_name(expr)} is quantized by channel")
        return form

    def _maker(self, expr: relax.Expr) -> str:
        """Say which operator gives an operand."""
        call = self.calls.get(expr)
        return "" if call is None else f", which {call.op.name.removeprefix('relax.')} gives,"

    def at(self, expr: relax.Expr, goal: Goal) -> Form:
        """Give an operand's form at a goal.

        Raises
        ------
        NoForm
            If there is none.
        """
        found = self.forms.get(expr, {}) if isinstance(expr, relax.Var) else {}
        if goal in found:
            return found[goal]
        number, axis = self.number(expr), 0
        if number is not None:
            made = self.emit.constant(self.emit.quantize(number, goal), goal.dtype)
        else:
            form = self.natural(expr)
            made, axis = self.emit.bring(form, goal), form.axis
        return Form(
            made,
            goal.dtype,
            np.asarray(goal.scale, np.float32),
            np.asarray(goal.zero, np.int64),
            axis,
            *checks.limits(goal.dtype),
        )

    def number(self, expr: relax.Expr) -> Array | None:
        """Give an operand's value where it is constant, float64."""
        if isinstance(expr, relax.Var):
            found = self.numbers.get(expr)
            if found is not None:
                return found.astype(np.float64)
            form = self.forms.get(expr, {}).get(None)
            if form is None or form.array is None:
                return None
            return form.real(form.array.ndim)
        array = array_of(expr)
        return None if array is None else array.astype(np.float64)

    def at_goals(self, asked: Asked, at: Any, var: relax.Var) -> None:
        """Store what a function makes of each goal."""
        for goal in asked.goals:
            self.put(var, at(goal), goal)

    def met(self, var: relax.Var, form: Form, goal: Goal) -> None:
        """Store a form that has a goal's scale but maybe another dtype, at the goal."""
        if form.dtype != goal.dtype:
            expr = self.emit.bring(form, goal)
            least, most = checks.limits(goal.dtype)
            zero = np.asarray(goal.zero, np.int64)
            form = replace(form, expr=expr, dtype=goal.dtype, zero=zero, least=least, most=most)
        self.put(var, form, goal)


def _name(expr: relax.Expr) -> str:
    return str(expr.name) if isinstance(expr, relax.Var) else "(a constant)"


#: Makes the forms of what one operator gives.
Rule = Callable[[Context, relax.Call, relax.Var, Asked], None]
