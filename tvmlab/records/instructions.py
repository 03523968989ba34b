"""The schedule instructions that a trace from a file may have, and how each one is carried out.

They are those that the rules of `tvmlab.schedule` and MetaSchedule's rules for CPUs write. Each one
checks for itself that the function's meaning stays, with two exceptions that are closed here: a
`Split` without predicates, and annotations, of which only known ones pass. Left out are
instructions that change what a function computes or takes (``UnsafeSetDType``,
``UnsafeHideBufferAccess``, ``TransformLayout``, ``PadEinsum``, ``SetScope``, ``CacheIndex``,
``CacheInplace``, ``RollingBuffer``, ``ReadAt`` and ``WriteAt``) or that are for GPUs (``Bind``).

What is given to TVM is checked first: a decision with a zero ends the process with a division by
zero in TVM, and sampling without a decision may never end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from ..schedule.machine import DOTS

__all__ = ["INSTRUCTIONS", "MOST_COPIES", "Apply", "refuse"]

Apply: TypeAlias = Callable[[s_tir.Schedule, list[Any], list[Any], Any], list[Any]]
"""Carries out an instruction: schedule, inputs, attributes and decision to outputs."""

# No loop of a network's function is as long, and no list of a trace has as many entries.
_MOST, _LONGEST = 2**31 - 1, 256
#: Times that a statement may be written out by unrolled and vectorized loops.
MOST_COPIES = 65536
_MOST_UNROLLED = 4096

_ANNOTATIONS: Mapping[str, Callable[[Any], bool]] = {
    "meta_schedule.parallel": lambda value: _whole(value, 0),
    "meta_schedule.vectorize": lambda value: _whole(value, 0, _MOST_UNROLLED),
    "meta_schedule.unroll_explicit": lambda value: _whole(value, 0, _MOST_UNROLLED),
    "meta_schedule.unroll_implicit": lambda value: _whole(value, 0, _MOST_UNROLLED),
    "meta_schedule.tiling_structure": lambda value: isinstance(value, str),
    "meta_schedule.random_compute_producer": lambda value: _whole(value, 0, 1),
    "pragma_auto_unroll_max_step": lambda value: _whole(value, 0, _MOST_UNROLLED),
    "pragma_unroll_explicit": lambda value: _whole(value, 0, 1),
    "tvmlab.ahead": lambda value: all(_whole(n) for n in (value if _is_list(value) else [value])),
}


def refuse(what: str) -> NoReturn:
    """End the reading of a trace."""
    raise ValueError(what)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _whole(value: Any, least: int = 1, most: int = _MOST) -> bool:
    return isinstance(value, int) and least <= value <= most


def _counted(values: list[Any], names: str) -> list[Any]:
    """Take as many values as there are names."""
    if len(values) != len(names.split()):
        refuse(f"it has {len(values)} values where {names or 'nothing'} should be")
    return values


def _loop(value: Any) -> LoopRV:
    return value if isinstance(value, LoopRV) else refuse("an input is no loop")


def _block(value: Any) -> SBlockRV:
    return value if isinstance(value, SBlockRV) else refuse("an input is no block")


def _either(value: Any) -> LoopRV | SBlockRV:
    return value if isinstance(value, LoopRV | SBlockRV) else refuse("an input is no block or loop")


def _int(value: Any, least: int, most: int = _MOST) -> int:
    if not _whole(value, least, most):
        refuse(f"{str(value)[:40]} is no number from {least} to {most}")
    return int(value)


def _flag(value: Any) -> bool:
    return bool(_int(value, 0, 1))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else refuse(f"{str(value)[:40]} is no text")


def _value(sch: s_tir.Schedule, given: Any) -> Any:
    """Give the number that a sampled variable stands for, and anything else as it is."""
    return int(sch.get(given)) if isinstance(given, tirx.Var) else given


def _extent(sch: s_tir.Schedule, loop: LoopRV) -> int | None:
    """Give a loop's length, None where it depends on other loops."""
    extent = sch.get(loop).extent
    return int(extent) if isinstance(extent, int | tirx.IntImm) else None


def _plain(method: str, inputs: Callable[..., Any] | None, results: int = 0) -> Apply:
    """Make an instruction of one input and no attributes; `results` is -1 where it is a list."""

    def apply(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], decision: Any) -> list[Any]:
        _counted(attrs, "")
        call = getattr(sch, method)
        made = call(*(() if inputs is None else (inputs(_counted(given, "input")[0]),)))
        if results < 0:
            return list(made)
        return [made] if results else []

    return apply


def _get_block(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], _: Any) -> list[Any]:
    _counted(given, "")
    name, function = _counted(attrs, "name function")
    if function != "main":
        refuse(f"the function {str(function)[:40]!r} is not main")
    return [sch.get_sblock(_text(name), "main")]


def _fuse(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], _: Any) -> list[Any]:
    (unit,) = _counted(attrs, "preserve_unit_iters")
    return [sch.fuse(*map(_loop, given), preserve_unit_iters=_flag(unit))]


def _reorder(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], _: Any) -> list[Any]:
    _counted(attrs, "")
    sch.reorder(*map(_loop, given))
    return []


def _split(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], _: Any) -> list[Any]:
    unit, unsafe = _counted(attrs, "preserve_unit_iters disable_predication")
    if _flag(unsafe):
        refuse("a loop is split without predicates")
    if len(given) < 2:
        refuse("a loop is split into nothing")
    loop, factors = _loop(given[0]), given[1:]
    sizes = [_int(_value(sch, factor), 1) for factor in factors if factor is not None]
    extent = _extent(sch, loop)
    # Loops that are much longer than what they are made of are of no use, and never end.
    if len(factors) - len(sizes) > 1 or math.prod(sizes) > max(64 * (extent or 1024), 4096):
        refuse("a loop is split into far more than there is")
    return list(sch.split(loop, factors, _flag(unit)))


def _compute_at(method: str) -> Apply:
    def apply(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], _: Any) -> list[Any]:
        block, loop = _counted(given, "block loop")
        unit, index = _counted(attrs, "preserve_unit_loops index")
        getattr(sch, method)(_block(block), _loop(loop), _flag(unit), _int(index, -2))
        return []

    return apply


def _cache(method: str) -> Apply:
    def apply(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], _: Any) -> list[Any]:
        block, consumers = _counted(given, "block consumers")
        index, scope = _counted(attrs, "buffer_index storage_scope")
        if scope != "global" or not _is_list(consumers):
            refuse("a buffer is cached elsewhere than in memory")
        return [
            getattr(sch, method)(_block(block), _int(index, 0), scope, [*map(_block, consumers)])
        ]

    return apply


def _decompose(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], _: Any) -> list[Any]:
    block, loop = _counted(given, "block loop")
    _counted(attrs, "")
    return [sch.decompose_reduction(_block(block), _loop(loop))]


def _rfactor(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], _: Any) -> list[Any]:
    (loop,), (axis,) = _counted(given, "loop"), _counted(attrs, "factor_axis")
    return [sch.rfactor(_loop(loop), _int(axis, -_LONGEST, _LONGEST))]


def _align(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], _: Any) -> list[Any]:
    (block,) = _counted(given, "block")
    index, axis, factor, offset = _counted(attrs, "buffer_index axis factor offset")
    numbers = _int(factor, 1, _MOST_UNROLLED), _int(offset, 0, _MOST_UNROLLED)
    sch.storage_align(_block(block), _int(index, 0), _int(axis, -_LONGEST, _LONGEST), *numbers)
    return []


def _blockize(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], _: Any) -> list[Any]:
    (loop,), (unit,) = _counted(given, "loop"), _counted(attrs, "preserve_unit_iters")
    return [sch.blockize(_loop(loop), _flag(unit))]


def _tensorize(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], _: Any) -> list[Any]:
    (where,) = _counted(given, "block_or_loop")
    name, unit = _counted(attrs, "tensor_intrin preserve_unit_iters")
    dot = next((dot for dot in DOTS if f"tvmlab.{dot.llvm}" == name), None)
    if dot is None:
        refuse(f"the intrinsic {_text(name)[:60]!r} is not known")
    name = dot.name  # which registers it
    sch.tensorize(_either(where), name, _flag(unit))
    return []


def _annotate(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], _: Any) -> list[Any]:
    (where, value), (key,) = _counted(given, "block_or_loop value"), _counted(attrs, "key")
    known = _ANNOTATIONS.get(_text(key))
    plain = [_value(sch, one) for one in value] if _is_list(value) else _value(sch, value)
    if known is None or not known(plain):
        refuse(f"the annotation {key[:60]!r} of {str(plain)[:40]} is not known")
    sch.annotate(_either(where), key, value)
    return []


def _unannotate(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], _: Any) -> list[Any]:
    (where,), (key,) = _counted(given, "block_or_loop"), _counted(attrs, "key")
    if not _text(key).startswith(("tvmlab.", "meta_schedule.", "schedule_rule")):
        refuse(f"the annotation {key[:60]!r} is not one of a schedule's")
    sch.unannotate(_either(where), key)
    return []


def _categorical(
    sch: s_tir.Schedule, given: list[Any], attrs: list[Any], decision: Any
) -> list[Any]:
    _counted(given, "")
    candidates, chances = _counted(attrs, "candidates probs")
    if not _is_list(candidates) or not _is_list(chances) or len(candidates) != len(chances):
        refuse("candidates and their chances are not as many")
    numbers = [_int(candidate, -_MOST) for candidate in candidates]
    if not all(isinstance(chance, int | float) and 0 <= chance <= 1e9 for chance in chances):
        refuse("a chance is no number")
    chosen = _int(decision, 0, len(numbers) - 1)
    return [sch.sample_categorical(numbers, [float(chance) for chance in chances], chosen)]


def _tile(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], decision: Any) -> list[Any]:
    (loop,), (count, innermost) = _counted(given, "loop"), _counted(attrs, "n max_innermost_factor")
    if not _is_list(decision) or len(decision) != _int(count, 2, 16):
        refuse("a loop's tiles are not as many as they should be")
    sizes, extent = [_int(size, 1) for size in decision], _extent(sch, _loop(loop))
    if extent is None or math.prod(sizes) != extent:
        refuse(f"a loop of {extent} has tiles of {str(sizes)[:80]}")
    return list(sch.sample_perfect_tile(loop, count, _int(innermost, -1), sizes))


def _location(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], decision: Any) -> list[Any]:
    (block,) = _counted(given, "block")
    _counted(attrs, "")
    return [sch.sample_compute_location(_block(block), _int(decision, -2, 1024))]


def _axes(sch: s_tir.Schedule, given: list[Any], attrs: list[Any], _: Any) -> list[Any]:
    """Leave out a block's axes of length one, or change their order; TVM sees to the lengths."""
    (block,), (text,) = _counted(given, "block"), _counted(attrs, "index_map")
    many, kept, dtype = _index_map(_text(text))
    chosen = tirx.IndexMap.from_func(
        lambda *axes: [axes[place] for place in kept], many, index_dtype=dtype
    )
    sch.transform_block_layout(_block(block), chosen)
    return []


def _index_map(text: str) -> tuple[int, list[int], str]:
    """Read a map that takes some of its indices: how many there are, those, and their dtype.

    It is a graph of TVM's in JSON, which TVM cannot be trusted to read.
    """
    match json.loads(text):
        case {"root_index": int(root), "nodes": list(nodes)}:
            pass
        case _:
            refuse("an index map is no graph")
    node = _Nodes(nodes)
    match node(root, "tirx.IndexMap"):
        case {"initial_indices": first, "final_indices": last, "inverse_index_map": inverse}:
            node(inverse, "None")
        case _:
            refuse("an index map lacks a part")
    initial, final = node(first, "ffi.Array"), node(last, "ffi.Array")
    if not 0 < len(final) <= len(initial) <= _LONGEST or not {*final} <= {*initial}:
        refuse("an index map computes")
    types = [node(node(one, "ir.Var")["ty"], "ir.PrimType")["dtype"] for one in initial]
    if {*types} not in ({"int32"}, {"int64"}) or len({*initial}) < len(initial):
        refuse("an index map has other indices than numbers")
    return len(initial), [initial.index(one) for one in final], types[0]


class _Nodes:
    """The nodes of a graph, by place and type."""

    def __init__(self, nodes: list[Any]) -> None:
        self.nodes = nodes

    def __call__(self, place: Any, kind: str) -> Any:
        node = self.nodes[_int(place, 0, len(self.nodes) - 1)]
        if not isinstance(node, dict) or node.get("type") != kind:
            refuse(f"an index map has something else than {kind}")
        return node.get("data")


#: What may be in a trace, by the name of its kind.
INSTRUCTIONS: Mapping[str, Apply] = {
    "AddUnitLoop": _plain("add_unit_loop", _either, 1),
    "Annotate": _annotate,
    "Blockize": _blockize,
    "CacheRead": _cache("cache_read"),
    "CacheWrite": _cache("cache_write"),
    "ComputeAt": _compute_at("compute_at"),
    "ComputeInline": _plain("compute_inline", _block),
    "DecomposeReduction": _decompose,
    "EnterPostproc": _plain("enter_postproc", None),
    "Fuse": _fuse,
    "GetChildBlocks": _plain("get_child_blocks", _either, -1),
    "GetConsumers": _plain("get_consumers", _block, -1),
    "GetLoops": _plain("get_loops", _block, -1),
    "GetOutputBlocks": _plain("get_output_blocks", _block, -1),
    "GetProducers": _plain("get_producers", _block, -1),
    "GetSBlock": _get_block,
    "Parallel": _plain("parallel", _loop),
    "RFactor": _rfactor,
    "Reorder": _reorder,
    "ReverseComputeAt": _compute_at("reverse_compute_at"),
    "ReverseComputeInline": _plain("reverse_compute_inline", _block),
    "SampleCategorical": _categorical,
    "SampleComputeLocation": _location,
    "SamplePerfectTile": _tile,
    "Split": _split,
    "StorageAlign": _align,
    "Tensorize": _tensorize,
    "TransformBlockLayout": _axes,
    "Unannotate": _unannotate,
    "Unroll": _plain("unroll", _loop),
    "Vectorize": _plain("vectorize", _loop),
}
