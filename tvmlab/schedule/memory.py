"""Share the memory of a function's tensors, and make each tensor and shape only once.

A virtual machine's instruction costs a fraction of a microsecond, and more when its data is no
longer in the cache. Upstream's passes make a tensor and its shape for each kernel, and release the
tensor after its last use. Their `StaticPlanBlockMemory` shares memory between sizes that are known
only at run time if they are equal, and lets one branch of an `if` use memory that only the other
branch allocates, so that the process crashes.

Here, storages that are not alive at the same time share memory, the largest first (Pisarchyk and
Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020). Tensors of the same shape
and type in the same memory are the same tensor. Memory is shared if its size depends on nothing but
the shapes of a function's inputs; other storages, and those of branches, stay as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, sym, tirx
from tvm.relax.backend.cpu_generic import pipeline as cpu_generic

from ..ir.graph import is_call, key
from .compute import sizes
from .rebuild import replaced

__all__ = ["finalize_passes"]

_STORAGE, _TENSOR = "relax.memory.alloc_storage", "relax.memory.alloc_tensor"
_KILLS = ("relax.memory.kill_storage", "relax.memory.kill_tensor")
# What a size that is known only at run time is taken to be when storages are ordered; its bound.
_USUAL, _LARGEST = 64, 1 << 40


def finalize_passes(target: tvm.target.Target) -> list[tvm.transform.Pass]:
    """List the passes from a function that calls loops to the virtual machine's instructions."""
    passes = []
    for one in cpu_generic.finalize_passes(target):
        if one.info.name != "StaticPlanBlockMemory":
            passes.append(one)
        if one.info.name == "KillAfterLastUse":
            passes.append(_share_memory)
    return passes


@relax.transform.function_pass(opt_level=0, name="ShareMemory")  # type: ignore[untyped-decorator]
def _share_memory(func: relax.Function, mod: tvm.ir.IRModule, ctx: Any) -> relax.Function:
    """Share memory outside of branches."""
    bindings = [binding for block in func.body.blocks for binding in block.bindings]
    # Numbers in an input that is a shape could be negative.
    types = [param.ty for param in func.params if isinstance(param.ty, relax.TensorType)]
    known = [var for one in types for var in relax.analysis.definable_tir_vars_in_type(one)]
    rewriter = _Rewriter(_slots(_storages(bindings, func.body.body), known))
    for binding in bindings:
        rewriter.visit(binding)
    # `ToNonDataflow` ran before.
    body = relax.SeqExpr([relax.BindingBlock(rewriter.finish())], func.body.body)
    body = tvm_ffi.structural_map(body, (ir.Var, lambda var: rewriter.same.get(key(var), var)))
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)


@dataclass
class _Storage:
    """Memory that a binding allocates, and the first and last binding that need it."""

    call: relax.Call
    size: Any  # bytes: an integer if it is known
    place: tvm_ffi.StructuralKey  # the device and the scope
    first: int
    last: int
    tensor: Any = None  # the shape and type of the tensor in it


@dataclass
class _Slot:
    """Storages that share memory. The first one is the largest."""

    members: list[_Storage]
    var: relax.Var | None = None

    def takes(self, one: _Storage, analyzer: sym.Analyzer) -> bool:
        """Return whether a storage fits: never alive with a member, and never larger."""
        if any(one.first <= other.last and other.first <= one.last for other in self.members):
            return False
        most = self.members[0]
        if most.place != one.place:
            return False
        fits = most.size >= one.size
        return fits if isinstance(fits, bool) else bool(analyzer.can_prove(fits))


def _storages(bindings: list[relax.Binding], result: relax.Expr) -> dict[int, _Storage]:
    """Return the storages that can share memory, by variable; releases do not count as uses."""
    found: dict[int, _Storage] = {}
    # The storages that can contain a variable's value.
    within: dict[int, set[int]] = {}

    def use(expr: relax.Expr, place: int) -> set[int]:
        free = relax.analysis.free_vars(expr)
        used = set[int]().union(*(within.get(key(var), ()) for var in free))
        for one in used:
            found[one].last = place
        return used

    for place, binding in enumerate(bindings):
        var, value = key(binding.var), binding.value
        if is_call(value, _STORAGE):
            size, *where = value.args[:3]
            where = tvm_ffi.StructuralKey(where)
            found[var] = _Storage(value, sizes(size.values)[0], where, place, place)
            within[var] = {var}
        elif not is_call(value, *_KILLS):
            within[var] = use(value, place)
            if is_call(value, _TENSOR) and key(value.args[0]) in found:
                found[key(value.args[0])].tensor = tvm_ffi.StructuralKey(value.args[2:4])
    # Results have memory of their own: else a small result would keep the memory of a large tensor.
    for one in use(result, len(bindings)):
        del found[one]
    return found


def _slots(storages: dict[int, _Storage], known: Sequence[tirx.Var]) -> dict[int, _Slot]:
    """Assign storages of `known` sizes to slots, the largest first."""
    analyzer = sym.Analyzer()
    for var in known:
        analyzer.bind(var, tvm.ir.Range(0, _LARGEST))
    usual = [(var, tirx.IntImm(var.ty.dtype, _USUAL)) for var in known]

    estimates: dict[int, int] = {}
    for var, one in storages.items():
        with contextlib.suppress(tvm.error.InternalError):  # a division by zero
            (estimate,) = sizes([analyzer.simplify(replaced(one.call.args[0].values[0], usual))])
            if isinstance(estimate, int):
                estimates[var] = estimate
    made: list[_Slot] = []
    slots: dict[int, _Slot] = {}
    for var in sorted(estimates, key=lambda var: -estimates[var]):
        one = storages[var]
        free = [slot for slot in made if slot.takes(one, analyzer)]
        # Prefer a slot that has a tensor of this shape and type.
        alike = [slot for slot in free if any(one.tensor == other.tensor for other in slot.members)]
        if not free:
            made.append(_Slot([]))
        slots[var] = (alike or free or made[-1:])[0]
        slots[var].members.append(one)
    return slots


@dataclass
class _Rewriter:
    """Rewrite bindings, in order."""

    slots: dict[int, _Slot]
    kept: list[relax.Binding] = field(default_factory=list)
    #: The variable that takes the place of another one.
    same: dict[int, relax.Var] = field(default_factory=dict)
    # The calls that allocate tensors; the tensors and shapes that can be used again.
    _calls: dict[int, relax.Call] = field(default_factory=dict)
    _made: dict[Any, relax.Var] = field(default_factory=dict)

    def visit(self, binding: relax.Binding) -> None:
        """Keep a binding, change it, or drop it."""
        var, value = binding.var, binding.value
        if key(var) in self.slots:
            self._storage(var, self.slots[key(var)])
        elif is_call(value, _TENSOR) and key(value.args[0]) in self.slots:
            self._tensor(var, value, value.args[2])
        elif is_call(value, "relax.reshape") and key(value.args[0]) in self._calls:
            self._tensor(var, self._calls[key(value.args[0])], value.args[1])
        elif is_call(value, _STORAGE, _TENSOR):
            self._bind(var, value, [self._shape(arg) for arg in value.args])
        elif not is_call(value, *_KILLS) or not self._shared(value.args[0]):
            self.kept.append(binding)

    def finish(self) -> list[relax.Binding]:
        """Return the bindings, and release each shape after its last use.

        The next shape takes its memory, which is still in the cache then.
        """
        shapes = {key(var) for var in self._made.values() if isinstance(var.ty, relax.ShapeType)}
        done: list[relax.Binding] = []
        for binding in reversed(self.kept):
            for var in relax.analysis.free_vars(binding.value):
                if key(var) in shapes:
                    shapes.remove(key(var))
                    end = relax.Var("_", tvm.ir.TupleType([]))
                    done.append(relax.VarBinding(end, relax.op.vm.kill_object(var)))
            done.append(binding)
        return done[::-1]

    def _shared(self, var: relax.Expr) -> bool:
        return key(var) in self.slots or key(var) in self._calls

    def _storage(self, var: relax.Var, slot: _Slot) -> None:
        """Allocate a slot with the first of its storages."""
        if slot.var is None:
            slot.var = var
            call = slot.members[0].call
            self._bind(var, call, [self._shape(call.args[0]), *call.args[1:]])
        else:
            self.same[key(var)] = slot.var

    def _tensor(self, var: relax.Var, call: relax.Call, shape: relax.Expr) -> None:
        """Make a tensor of a shape where a call makes one, unless there is one already."""
        self._calls[key(var)] = call
        storage, offset, _, *kind = call.args
        slot = self.slots[key(storage)]
        one = (id(slot), tvm_ffi.StructuralKey([offset, shape, *kind]))
        if one in self._made:
            self.same[key(var)] = self._made[one]
        else:
            self._made[one] = var
            self._bind(var, call, [slot.var, offset, self._shape(shape), *kind])

    def _shape(self, shape: relax.Expr) -> relax.Expr:
        """Return the variable of an open shape; other shapes are constants."""
        if not isinstance(shape, relax.ShapeExpr):
            return shape
        if all(isinstance(size, int) for size in sizes(shape.values)):
            return shape
        one = tvm_ffi.StructuralKey(shape)
        if one not in self._made:
            self._made[one] = relax.Var("shape", shape.ty)
            self.kept.append(relax.VarBinding(self._made[one], shape))
        return self._made[one]

    def _bind(self, var: relax.Var, call: relax.Call, args: list[Any]) -> None:
        self.kept.append(relax.VarBinding(var, relax.Call(call.op, args, call.attrs)))
