"""The share of a module that the accelerator computes, and why operators stay on the CPU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tvm import ir, relax, tirx

from ..errors import InputError
from ..ir.graph import is_call, key, rebuild
from ..support.wording import several
from .config import Config, machine
from .partition import Check, bound, layout_of
from .reading import BEHIND, READERS, bindings, config_of, core, regions


@dataclass(frozen=True)
class Operator:
    """One operator: its result variable, the global function that contains it, its cost.

    `reason` says why the CPU computes the operator; it is None on the accelerator.
    """

    operator: str
    binding: str
    function: str
    macs: int
    reason: str | None


@dataclass(frozen=True)
class Coverage:
    """The device of each operator of a module, and the number of regions; print it for a table."""

    operators: tuple[Operator, ...]
    regions: int

    @property
    def offloaded(self) -> tuple[Operator, ...]:
        """The operators that the accelerator computes."""
        return tuple(one for one in self.operators if one.reason is None)

    @property
    def refused(self) -> tuple[Operator, ...]:
        """The operators that stay on the CPU."""
        return tuple(one for one in self.operators if one.reason is not None)

    @property
    def operators_share(self) -> float:
        """The share of operators that the accelerator computes, 0 to 1; 0 if there are none."""
        return len(self.offloaded) / max(len(self.operators), 1)

    @property
    def macs_share(self) -> float:
        """The share of multiply-accumulates, 0 to 1; 0 if there are none."""
        whole = sum(one.macs for one in self.operators)
        return sum(one.macs for one in self.offloaded) / max(whole, 1)

    def __str__(self) -> str:
        macs = sum(one.macs for one in self.operators)
        taken = f"{len(self.offloaded)} of {len(self.operators)} operators"
        shares = f"({self.operators_share:.1%}), {self.macs_share:.2%} of {macs:,}"
        lines = [f"{several(self.regions, 'region')}, {taken} {shares} multiply-accumulates"]
        left = Counter((one.operator, one.reason) for one in self.refused)
        width = max((len(name) for name, _ in left), default=0)
        lines += [f"{count:5} {name:{width}}  {reason}" for (name, reason), count in left.items()]
        return "\n".join(lines)


def coverage(mod: ir.IRModule, config: Config | None = None) -> Coverage:
    """Report how much of a Relax module the accelerator computes, partitioned or not.

    Reasons refer to the machine `config`, else to that of the regions, else to the default one.
    Raises `tvmlab.errors.InputError` if `mod` is not a module.
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
            found += _left(function, name, check, bool(cut))
    return Coverage(tuple(found), len(cut))


def _inside(function: relax.Function, name: str) -> Iterator[Operator]:
    local = {key(var): value for var, value in bindings(function.body)}
    for var, value in bindings(function.body):
        if _is_operator(value):
            yield Operator(operator(value), str(var.name), name, macs(value), None)
        elif isinstance(value, relax.Call):
            called = local.get(key(value.op), value.op)
            yield from _inside(called, name) if isinstance(called, relax.Function) else ()


def _is_operator(value: relax.Expr) -> bool:
    return isinstance(value, relax.Call) and isinstance(value.op, ir.Op)


def operator(call: relax.Call) -> str:
    """Return the name of a call's operator."""
    return str(call.op.name).removeprefix("relax.").removeprefix("relay.")


def _left(
    function: relax.Function, name: str, check: Check, partitioned: bool
) -> Iterator[Operator]:
    """List the operators of a CPU function, including those in branches."""
    values: dict[int, relax.Expr] = {}
    users: dict[int, list[relax.Call]] = {}
    calls: list[tuple[relax.Var, relax.Call]] = []
    for var, value in bound(function.body):
        if isinstance(value, relax.Var):
            values[key(var)] = values.get(key(value), value)
        elif _is_operator(value):
            # Values replace variables, so that calls have calls as operands.
            args = [values.get(key(arg), arg) for arg in value.args]
            values[key(var)] = made = rebuild(value, args)
            calls.append((var, made))
            for arg in args:
                users.setdefault(key(arg), []).append(made)
    left = "nothing of the module was cut out: partition it"
    if partitioned:
        left = "no pattern of the table matches it"
    reasons = {
        key(call): check.reason(_whole(call, users)) or f"the machine takes it, but {left}"
        for _, call in calls
        if str(call.op.name) in READERS
    }
    for var, call in calls:
        reason = reasons.get(key(call)) or _around(call, users, reasons)
        yield Operator(operator(call), str(var.name), name, macs(call), reason)


def _whole(call: relax.Call, users: dict[int, list[relax.Call]]) -> relax.Call:
    names = set(BEHIND)
    while len(found := users.get(key(call), [])) == 1 and found[0].args[0].same_as(call):
        name = str(found[0].op.name)
        if name not in names:
            break
        call, names = found[0], names - {name if "requantize" in name else ""}
    return call


def _around(call: relax.Call, users: dict[int, list[relax.Call]], reasons: dict[int, str]) -> str:
    """Return why an operator of a layer stays on the CPU: its layer stays, or has no pattern."""
    around = is_call(call, *BEHIND, "relax.nn.pad", "relax.relay.nn.pad", "relax.astype")
    for one in (core(call), *users.get(key(call), [])) if around else ():
        if key(one) in reasons:
            return f"runs on the CPU because its {operator(one)} does"
    if is_call(call, "relax.quantize", "relax.dequantize"):  # as importers leave them
        return "the machine computes integers: run FakeQuantizationToInteger first"
    return f"no pattern takes {operator(call)}{' on its own' if around else ''}"


def macs(call: relax.Call) -> int:
    """Count a call's multiply-accumulates; 0 unless it is a convolution or matrix product."""
    name, out = str(call.op.name).rpartition(".")[2], math.prod(_sizes(call) or [0])
    if name in ("dense", "matmul", "batch_matmul"):
        data = _sizes(call.args[0])
        turned = name == "batch_matmul" and getattr(call.attrs, "transpose_a", False)
        return out * (data[-2 if turned else -1] if data else 0)
    kernel = str(getattr(call.attrs, "kernel_layout", "")) if name.startswith("conv") else ""
    by, weight = "I" if name.endswith("transpose") else "O", _sizes(call.args[1]) if kernel else []
    if by not in kernel or len(kernel) != len(weight):
        return 0
    one = math.prod(weight) // max(weight[kernel.index(by)], 1)
    return one * (math.prod(_sizes(call.args[0]) or [0]) if by == "I" else out)


def _sizes(expr: relax.Expr) -> list[int]:
    shape = getattr(expr.ty, "shape", None)
    found = list(shape.values) if isinstance(shape, relax.ShapeExpr) else []
    known = all(isinstance(size, (int, tirx.IntImm)) for size in found)
    return [int(size) for size in found] if known else []
