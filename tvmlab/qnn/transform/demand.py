"""What is asked of each float value, found backwards from the quantizes.

A relu, a max pool or a reshape may be done before or after rounding: the goal of the quantize that
follows passes through it. An addition or a convolution needs its operands themselves, unrounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import tvm
from tvm import relax

from .form import Goal

# A value quantized in more ways than these is computed itself, and then requantized.
_MOST_GOALS = 8

__all__ = ["Asked", "Demands", "field_of", "leaves", "nested"]

#: ``ask(call)`` gives a call's operands that its rule reads: those that the goals of its result
#: hold for as well, and those that are needed as they are.
Ask = Callable[[relax.Call], tuple[list[relax.Expr], list[relax.Expr]]]


@dataclass
class Asked:
    """What is asked of one value.

    Attributes
    ----------
    goals : dict
        The goals, in the order found; the values mean nothing.
    exact : bool
        Whether the value itself is needed, rounded to no goal.
    """

    goals: dict[Goal, None] = field(default_factory=dict)
    exact: bool = False


class Demands:
    """What is asked of every value of a function.

    Parameters
    ----------
    goal_of : callable
        ``goal_of(call)`` gives a quantize's goal, or None where it has no such form or is none.
    asks : dict
        From the names of the operators that have rules to what they ask.
    always : collection of str
        The operators that ask for their operands even if nobody asks for their result.
    """

    def __init__(
        self,
        goal_of: Callable[[relax.Call], Goal | None],
        asks: dict[str, Ask],
        always: Collection[str] = (),
    ) -> None:
        self.of: dict[relax.Var, Asked] = {}
        self._fields: dict[tuple[relax.Var, int], Asked] = {}
        self._goal_of, self._asks, self._always = goal_of, asks, always

    def collect(self, body: relax.SeqExpr) -> None:
        """Walk a body backwards; those of branches are walked where they stand."""
        own: set[relax.Var] = set()
        for block in reversed(list(body.blocks)):
            for binding in reversed(list(block.bindings)):
                own.add(binding.var)
                self._binding(binding)
        # A goal is met where a value is made; from within a branch only the value is asked for.
        for var, asked in self.of.items():
            if var not in own and asked.goals:
                asked.goals.clear()
                asked.exact = True

    def _binding(self, binding: relax.Binding) -> None:
        var, value = binding.var, binding.value
        for inner in nested(value):
            self._within(inner)
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
            name = value.op.name
            goal = self._goal_of(value)
            if goal is not None:
                self._add(value.args[0], {goal: None}, exact=False)
                return
            if name in self._always:
                self.of.setdefault(var, Asked(exact=True))
            ask, asked = self._asks.get(name), self.of.get(var)
            if ask is None or asked is None:
                return
            through, needed = ask(value)
            for operand in through:
                self._add(operand, asked.goals, asked.exact)
            for operand in needed:
                self._add(operand, {}, exact=True)
            return
        if isinstance(value, relax.Tuple):
            for i, item in enumerate(value.fields):
                of_field = self._fields.get((var, i))
                if of_field is not None:
                    self._add(item, of_field.goals, of_field.exact)
            return
        asked = self.of.get(var)
        if asked is None:
            return
        if isinstance(value, relax.TupleGetItem):
            whole = value.tuple_value
            self._add(field_of(whole, value.index), asked.goals, asked.exact)
            if isinstance(whole, relax.Var):
                self._fields[whole, int(value.index)] = self._joined(whole, value.index, asked)
        elif isinstance(value, relax.Var):
            self._add(value, asked.goals, asked.exact)

    def _joined(self, whole: relax.Var, index: int, asked: Asked) -> Asked:
        """Add what is asked of a field to what others ask of it."""
        before = self._fields.get((whole, int(index)), Asked())
        return Asked({**before.goals, **asked.goals}, before.exact or asked.exact)

    def _within(self, body: relax.SeqExpr) -> None:
        inner = Demands(self._goal_of, self._asks, self._always)
        inner.collect(body)
        for var, asked in inner.of.items():
            mine = self.of.setdefault(var, Asked())
            mine.goals.update(asked.goals)
            mine.exact = mine.exact or asked.exact

    def _add(self, operand: relax.Expr, goals: dict[Goal, None], exact: bool) -> None:
        if not isinstance(operand, relax.Var) or not (goals or exact):
            return
        asked = self.of.setdefault(operand, Asked())
        asked.exact = asked.exact or exact
        if len(asked.goals) <= _MOST_GOALS:
            asked.goals.update(goals)
        if len(asked.goals) > _MOST_GOALS:
            asked.exact = True


def nested(value: relax.Expr) -> Iterator[relax.SeqExpr]:
    """Give the branches of an `if`; other functions are walked on their own."""
    if isinstance(value, relax.If):
        for branch in (value.true_branch, value.false_branch):
            if isinstance(branch, relax.SeqExpr):
                yield branch


def field_of(whole: relax.Expr, index: int) -> relax.Expr:
    """Give a field of a tuple that is written where it is read, or the whole."""
    return whole.fields[int(index)] if isinstance(whole, relax.Tuple) else whole


def leaves(expr: relax.Expr) -> Iterator[relax.Expr]:
    """Give what a tuple is made of, or the expression itself."""
    if isinstance(expr, relax.Tuple):
        for item in expr.fields:
            yield from leaves(item)
    else:
        yield expr
