"""How much of a module the accelerator computes, and why it does not compute the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tvm import ir, relax, tirx

from ..errors import InputError
from ..ir import dialect
from ..ir.graph import is_call, key, rebuild
from ..support.wording import several
from .config import Config, machine
from .partition import bound, layout_of
from .patterns import Check
from .reading import BEHIND, READERS, config_of, core, regions


@dataclass(frozen=True)
class Operator:
    """One operator: the variable of its result, the global function around it, its cost.

    `macs` counts multiply-accumulates, 0 where a shape is unknown. `reason` says why the CPU
    computes the operator; it is None on the accelerator.
    """

    operator: str
    binding: str
    function: str
    macs: int
    reason: str | None


@dataclass(frozen=True)
class Coverage:
    """What of a module is computed where, and its number of regions; print it for a table."""

    operators: tuple[Operator, ...]
    regions: int

    @property
    def offloaded(self) -> tuple[Operator, ...]:
        """What the accelerator computes."""
        return tuple(one for one in self.operators if one.reason is None)

    @property
    def refused(self) -> tuple[Operator, ...]:
        """What it does not."""
        return tuple(one for one in self.operators if one.reason is not None)

    @property
    def operators_share(self) -> float:
        """The share of operators that the accelerator computes, 0 to 1; 0 of none."""
        return len(self.offloaded) / max(len(self.operators), 1)

    @property
    def macs_share(self) -> float:
        """The share of multiply-accumulates, 0 to 1; 0 of none."""
        whole = sum(one.macs for one in self.operators)
        return sum(one.macs for one in self.offloaded) / max(whole, 1)

    def __str__(self) -> str:
        """Make a table: the shares, and what is left with the reason, alike ones in one line."""
        macs = sum(one.macs for one in self.operators)
        taken = f"{len(self.offloaded)} of {len(self.operators)} operators"
        shares = f"({self.operators_share:.1%}), {self.macs_share:.2%} of {macs:,}"
        lines = [f"{several(self.regions, 'region')}, {taken} {shares} multiply-accumulates"]
        left = Counter((one.operator, one.reason) for one in self.refused)
        width = max((len(name) for name, _ in left), default=0)
        lines += [f"{count:5} {name:{width}}  {reason}" for (name, reason), count in left.items()]
        return "\n".join(lines)


def coverage(mod: ir.IRModule, config: Config | None = None) -> Coverage:
    """Say how much of a module the accelerator computes.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        Any Relax module, partitioned or not; `tvmlab.errors.InputError` if it is none.
    config : Config, optional
        The machine that reasons are about; else that of the regions, else the default one.
    """
    if not isinstance(mod, ir.IRModule):
        what = f"coverage takes a tvm.ir.IRModule, not {type(mod).__name__}"
        raise InputError(what, where="npu.coverage")
    cut = regions(mod)
    if config is None and cut:
        config = config_of(next(iter(cut.values())))
    check = Check(machine(config, "npu.coverage"), layout_of(mod))
    found: list[Operator] = []
    for var, function in mod.functions_items():
        name = str(var.name_hint)
        if name in cut:
            found += _inside(function, name)
        elif isinstance(function, relax.Function):
            found += _Left(name, check, bool(cut)).operators(function)
    return Coverage(tuple(found), len(cut))


def _inside(function: relax.Function, name: str) -> Iterator[Operator]:
    """List the operators of a region: those of a composite function at each of its calls."""
    bindings = [binding for block in function.body.blocks for binding in block.bindings]
    local = {key(binding.var): binding.value for binding in bindings}
    for var, value in ((binding.var, binding.value) for binding in bindings):
        if _is_operator(value):
            yield Operator(operator(value), str(var.name), name, macs(value), None)
        elif isinstance(value, relax.Call):
            called = local.get(key(value.op), value.op)
            yield from _inside(called, name) if isinstance(called, relax.Function) else ()


def _is_operator(value: relax.Expr) -> bool:
    return isinstance(value, relax.Call) and isinstance(value.op, ir.Op)


def operator(call: relax.Call) -> str:
    """Name a call's operator."""
    return str(call.op.name).removeprefix("relax.").removeprefix("relay.")


class _Left:
    """The operators of a function that is not for the accelerator."""

    def __init__(self, name: str, check: Check, partitioned: bool) -> None:
        self.name, self.check, self.partitioned = name, check, partitioned
        self.values: dict[int, relax.Expr] = {}
        self.users: dict[int, list[relax.Call]] = {}
        self.reasons: dict[int, str] = {}
        self.calls: list[tuple[relax.Var, relax.Call]] = []

    def operators(self, function: relax.Function) -> Iterator[Operator]:
        """List them, of branches and functions inside too."""
        for var, value in bound(function.body):
            if isinstance(value, relax.Var):
                self.values[key(var)] = self.values.get(key(value), value)
            elif _is_operator(value):
                # Values take the place of variables, so that calls have calls as operands.
                args = [self.values.get(key(arg), arg) for arg in value.args]
                self.values[key(var)] = made = rebuild(value, args)
                self.calls.append((var, made))
                for arg in args:
                    self.users.setdefault(key(arg), []).append(made)
        for _, call in self.calls:
            if str(call.op.name) in READERS:
                self.reasons[key(call)] = self._core(call)
        for var, call in self.calls:
            reason = self.reasons.get(key(call)) or self._around(call)
            yield Operator(operator(call), str(var.name), self.name, macs(call), reason)

    def _core(self, call: relax.Call) -> str:
        """Say why a layer is left, with what stands behind it."""
        root, names = call, set(BEHIND)
        while len(users := self.users.get(key(root), [])) == 1:
            name = str(users[0].op.name)
            if name not in names or not users[0].args[0].same_as(root):
                break
            root, names = users[0], names - {name if "requantize" in name else ""}
        left = "nothing of the module was cut out: partition it"
        if self.partitioned:
            left = "no pattern of the table matches it as it stands"
        return self.check.reason(root) or f"the machine takes it, but {left}"

    def _around(self, call: relax.Call) -> str:
        """Say why what goes with layers is left: the layer is, or there is none."""
        around = is_call(call, *BEHIND, "relax.nn.pad", "relax.relay.nn.pad", "relax.astype")
        for one in (core(call), *self.users.get(key(call), [])) if around else ():
            if key(one) in self.reasons:
                return f"it goes with a {operator(one)} that is left"
        if is_call(call, "relax.quantize", "relax.dequantize"):  # as importers leave them
            return "the machine computes integers: run FakeQuantizationToInteger first"
        return f"no pattern takes {operator(call)}{' on its own' if around else ''}"


def macs(call: relax.Call) -> int:
    """Count a call's multiply-accumulates: 0 for what is no convolution and no matrix product."""
    name = str(call.op.name).rpartition(".")[2]
    if name.startswith("conv") and "nd" not in name:
        kernel, weight = str(_get(call, "kernel_layout")), _sizes(call.args[1])
        by = "I" if name.endswith("transpose") else "O"
        if len(kernel) != len(weight) or by not in kernel:
            return 0
        one = math.prod(weight) // max(weight[kernel.index(by)], 1)
        return one * math.prod(_sizes(call.args[0] if by == "I" else call) or [0])
    if name in ("dense", "matmul", "batch_matmul"):
        data = _sizes(call.args[0])
        turned = name == "batch_matmul" and bool(_get(call, "transpose_a"))
        return math.prod(_sizes(call) or [0]) * (data[-2 if turned else -1] if data else 0)
    return 0


def _get(call: relax.Call, name: str) -> object:
    if isinstance(call.attrs, ir.DictAttrs):
        return dialect.attributes(call).get(name)
    return getattr(call.attrs, name, None)


def _sizes(expr: relax.Expr) -> list[int]:
    """Return a tensor's sizes, or none if one of them is unknown."""
    shape = getattr(expr.ty, "shape", None)
    found = list(shape.values) if isinstance(shape, relax.ShapeExpr) else []
    known = all(isinstance(size, (int, tirx.IntImm)) for size in found)
    return [int(size) for size in found] if known else []
