"""Joining composite functions into regions, as large as they can be.

What `relax.transform.MergeCompositeFunctions` makes: a call joins the regions that its operands
come from, unless a way from the one to the other leads through something outside. Upstream's pass
copies sets of groups at every call, and compares all functions with each other; on 10,000 operators
that takes hours. Here each group of bindings knows which regions lie before it, as a set of bits,
and only a group that grows tells those behind it: the time grows as the module does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tvm import ir, relax

from ..ir.graph import key

__all__ = ["Group", "groups"]


@dataclass(eq=False)
class Group:
    """Bindings that stay together: a region, or one binding that is in none.

    Attributes
    ----------
    bits : int
        One bit for each region that has become part of this one; 0 outside of regions.
    before : int
        The bits of all regions that it needs the results of, itself or through others.
    members : list of int
        The bindings, by number.
    waiting : int
        Uses of its values that are still to come.
    """

    bits: int = 0
    before: int = 0
    members: list[int] = field(default_factory=list)
    waiting: int = 0


def groups(bindings: Sequence[relax.Binding], takes: Callable[[relax.Expr], bool]) -> list[Group]:
    """Put the bindings of a block into groups.

    Parameters
    ----------
    bindings : sequence of tvm.relax.Binding
        A dataflow block.
    takes : callable
        Says whether a value is a call for the accelerator.

    Returns
    -------
    list of Group
        In the order of their first binding. No group needs its own results by way of another.

    Notes
    -----
    The rule is `CompositeGroupsBuilder`'s in TVM's
    ``src/relax/transform/merge_composite_functions.cc``. There, what lies before a group is not
    brought up to date when a region before it grows, so that it can make regions that need their
    own results; here it is, for the groups whose values are still to be used.
    """
    return _Grouping(bindings).run(takes)


class _Grouping:
    """One walk over one block."""

    def __init__(self, bindings: Sequence[relax.Binding]) -> None:
        self.bindings = bindings
        own = {key(binding.var) for binding in bindings}
        self.reads = [
            [number for number in map(key, variables(binding.value)) if number in own]
            for binding in bindings
        ]
        self.uses: dict[int, int] = {}
        for read in self.reads:
            for number in read:
                self.uses[number] = self.uses.get(number, 0) + 1
        self.of: dict[int, Group] = {}
        self.joined: dict[Group, Group] = {}
        self.live: set[Group] = set()
        self.made = 0

    def run(self, takes: Callable[[relax.Expr], bool]) -> list[Group]:
        """Visit all bindings."""
        found: list[Group] = []
        for place, binding in enumerate(self.bindings):
            before = list(dict.fromkeys(self.now(self.of[number]) for number in self.reads[place]))
            taken = takes(binding.value)
            # Another name goes with what it names; a MatchCast has its say about shapes besides.
            again = isinstance(binding, relax.VarBinding) and isinstance(binding.value, relax.Var)
            merging = self._merging(before) if taken or again else []
            group = merging[0] if merging else Group()
            if not merging:
                found.append(group)
            if taken and not merging:
                group.bits, self.made = 1 << self.made, self.made + 1
            for other in merging[1:]:
                self._join(other, group)
            group.members.append(place)
            self._extend(group, [self.now(other) for other in before], grown=bool(merging))
            self._use(place, group)
        return [group for group in found if group not in self.joined]

    def now(self, group: Group) -> Group:
        """Find the group that a group has become part of, or itself."""
        whole = group
        while whole in self.joined:
            whole = self.joined[whole]
        while group is not whole:
            self.joined[group], group = whole, self.joined[group]
        return whole

    def _merging(self, before: list[Group]) -> list[Group]:
        """Choose the regions that no other operand lies behind."""
        behind = 0
        for group in before:
            behind |= group.before
        return [group for group in before if group.bits and not group.bits & behind]

    def _join(self, other: Group, into: Group) -> None:
        into.bits |= other.bits
        into.members += other.members
        into.waiting += other.waiting
        self.joined[other] = into
        self.live.discard(other)
        into.before |= other.before
        self._spread(into)

    def _extend(self, group: Group, before: Iterable[Group], *, grown: bool) -> None:
        """Record what a group needs now; new members have no users yet."""
        more = group.before
        for other in before:
            if other is not group:
                more |= other.bits | other.before
        if more != group.before:
            group.before = more
            if grown:
                self._spread(group)

    def _spread(self, group: Group) -> None:
        """Let what needs a group need all that the group needs."""
        for other in self.live:
            if other.before & group.bits:
                other.before |= group.before

    def _use(self, place: int, group: Group) -> None:
        """Count the uses of values: what no longer is used need not be kept up to date."""
        number = key(self.bindings[place].var)
        self.of[number] = group
        group.waiting += self.uses.get(number, 0)
        if group.waiting:
            self.live.add(group)
        for read in self.reads[place]:
            one = self.now(self.of[read])
            one.waiting -= 1
            if not one.waiting:
                self.live.discard(one)


def variables(value: relax.Expr) -> list[relax.Var]:
    """List the variables that a bound value reads, in order; in branches and functions too."""
    found: list[relax.Var] = []
    stack = [value]
    while stack:
        expr = stack.pop()
        if isinstance(expr, relax.Var):
            found.append(expr)
        elif isinstance(expr, relax.Call):
            head = [] if isinstance(expr.op, (ir.Op, ir.GlobalVar)) else [expr.op]
            stack += reversed([*head, *expr.args])
        elif isinstance(expr, relax.Tuple):
            stack += reversed(expr.fields)
        elif isinstance(expr, relax.TupleGetItem):
            stack.append(expr.tuple_value)
        elif not isinstance(expr, (ir.GenericConst, ir.Op, ir.GlobalVar)):
            found += relax.analysis.free_vars(expr)
    return found
