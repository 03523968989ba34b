"""Users' converters of PyTorch operators, and the check that each operator has a converter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from tvm import relax

from ..errors import ModelError, UnsupportedOperatorError
from ..indices.loops import static
from .custom import Converter, convert, suggestion
from .pytorch_converters import arguments
from .pytorch_results import without_importer

__all__ = ["FORM", "convert_map", "decomposed", "kept_by"]

#: The regular expression of the keys of converters: torch's name of an operator.
FORM = r"\w+::\w+(\.\w+)?"
# The libraries whose operators upstream converts. It compares names without the library.
_LIBRARIES = {"aten", "prims", "quantized_decomposed", "torchvision"}

ByNode = Callable[[Any, Any], relax.Expr]


def kept_by(program: Any, custom: Mapping[str, Converter]) -> list[str]:
    """Return the keys of `custom` that name operators of an exported program."""
    return sorted({name for node in _calls(program) for name in _names(node.target)} & {*custom})


def decomposed(program: Any, kept: Collection[str]) -> Any:
    """Decompose an exported program into the operators to convert, except the operators `kept`."""
    from .pytorch_decompositions import decompositions  # which imports PyTorch

    table = decompositions()
    for operator in [operator for operator in table if not set(kept).isdisjoint(_names(operator))]:
        table.pop(operator)
    return program.run_decompositions(table)


def convert_map(
    program: Any,
    custom: Mapping[str, Converter],
    ours: Mapping[str, ByNode],
    upstream: Mapping[str, Callable[[Any], relax.Expr]],
) -> dict[str, ByNode]:
    """Return the ``custom_convert_map`` for a program, with the converters of `custom` and `ours`.

    Raises `UnsupportedOperatorError` for an operator without a converter.
    """
    made = dict(ours)
    for node in _calls(program):
        names, kind = _names(node.target), node.target.__name__
        other = ours.get(kind)
        if other is None and kind in upstream:  # whose converters get only the node
            other = partial(without_importer, upstream[kind])
        if not names.isdisjoint(custom):
            made[kind] = partial(_by_user, custom, other)
        elif not other or (names and min(names).partition("::")[0] not in _LIBRARIES):
            raise _unsupported(node)
    return made


def _calls(program: Any) -> Iterator[Any]:
    """Yield the nodes that call operators, with those in branches."""
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            if node.op == "call_function":
                yield node


def _names(operator: Any) -> set[str]:
    """Return the names of an operator with and without its overload; Python's have none."""
    name = hasattr(operator, "_overloadname") and operator._schema.name
    return {name, f"{name}.{operator._overloadname}"} if name else set()


def _by_user(custom: Mapping[str, Converter], other: Any, node: Any, importer: Any) -> relax.Expr:
    """Convert a node with the user's converter, or with `other` if it is of another library."""
    keys = sorted(_names(node.target) & {*custom}, key=len)
    if not keys:
        converted: relax.Expr = other(node, importer)
        return converted
    inputs, attributes = _split(node)
    dtype = str(getattr(node.meta["val"], "dtype", "torch.float32")).removeprefix("torch.")
    tensors = [
        relax.const(value, dtype)  # PyTorch also passes numbers as tensors.
        if isinstance(value, (bool, int, float))
        else importer._retrieve_args(value)
        for value in inputs.values()
    ]
    attributes = {name: importer._retrieve_args(value) for name, value in attributes.items()}
    builder = importer.block_builder
    made = convert(custom[keys[-1]], builder, tensors, attributes, _where(node))
    _check_type(node, made)
    return made if isinstance(made, relax.Var) else builder.emit(made)


def _split(node: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a node's arguments into tensors and others, by name; a list's tensors by number."""
    tensors: dict[str, Any] = {}
    others: dict[str, Any] = {}
    kinds = {argument.name: str(argument.type) for argument in node.target._schema.arguments}
    for name, value in arguments(node).items():
        if "Tensor" not in kinds[name]:
            dtype = type(value).__name__ == "dtype"
            others[name] = str(value).removeprefix("torch.") if dtype else value
        elif isinstance(value, (list, tuple)):
            tensors |= {f"{name}{number}": item for number, item in enumerate(value)}
        else:
            tensors[name] = value
    return tensors, others


def _check_type(node: Any, made: relax.Expr) -> None:
    """Refuse a result of another dtype or shape than PyTorch's."""
    value = node.meta["val"]
    wanted = list(value) if isinstance(value, (list, tuple)) else [value]
    types = list(made.ty.fields) if isinstance(made.ty, relax.TupleType) else [made.ty]
    if len(types) != len(wanted) or not all(map(_fits, types, wanted)):
        texts = [f"{tuple(each.shape)} {each.dtype}".replace("torch.", "") for each in wanted]
        what = f"the converter returned {made.ty}, but PyTorch returns {', '.join(texts)}"
        fix = "correct the function, so that the shape and dtype of its result are PyTorch's"
        raise ModelError(what, where=_where(node), fix=fix)


def _fits(have: Any, want: Any) -> bool:
    sizes = have.shape.values if isinstance(have.shape, relax.ShapeExpr) else want.shape
    pairs = zip(map(static, sizes), want.shape, strict=False)
    differ = [a for a, b in pairs if a not in (None, b) and isinstance(b, int)]
    same = str(have.dtype) == str(want.dtype).removeprefix("torch.")
    return same and len(sizes) == want.dim() and not differ


def _where(node: Any) -> str:
    kind = max(_names(node.target) or {node.target.__name__}, key=len)
    return f"the exported program, node {node.name!r}, operator {kind}"


def _unsupported(node: Any) -> UnsupportedOperatorError:
    names = _names(node.target)
    kind = min(names, key=len) if names else f"{node.target.__name__}, a function of Python"
    fix = "write the module without it"
    if names:
        inputs, attributes = _split(node)
        fix = "use other operators, or " + suggestion(kind, inputs, attributes)
    what = f"TVM cannot import the PyTorch operator {kind}"
    return UnsupportedOperatorError(what, where=_where(node), fix=fix)
