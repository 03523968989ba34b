"""Converters that users pass to `tvmlab.load`, and the code that an error suggests for one."""

from __future__ import annotations

import keyword
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tvm import relax

from ..errors import ModelError, TvmlabError
from ..support.wording import telling

__all__ = ["Converter", "Converters", "convert", "converters_of", "suggestion"]

Converter = Callable[[relax.BlockBuilder, list[Any], dict[str, Any]], relax.Expr]
Converters = Mapping[str, Converter] | None


def converters_of(converters: Any, form: str, example: str) -> dict[str, Converter]:
    """Check `converters`; `form` is the regular expression of a key, and `example` a key."""
    if converters is None:
        return {}
    fix = f"pass converters={{{example!r}: function}}"
    if not isinstance(converters, Mapping):
        what = f"`converters` is a {type(converters).__name__}, not a mapping"
        raise ModelError(what, where="converters", fix=fix)
    for key, function in converters.items():
        if not isinstance(key, str) or not re.fullmatch(form, key):
            what = f"`converters` has the key {key!r}, which names no operator"
            raise ModelError(what, where="converters", fix=f"write the key like {example!r}")
        if not callable(function):
            what = f"the converter of {key} is a {type(function).__name__}, not a function"
            raise ModelError(what, where="converters", fix=fix)
    return dict(converters)


def convert(
    function: Converter, builder: Any, inputs: list[Any], attributes: dict[str, Any], where: str
) -> relax.Expr:
    """Call a user's converter and check its result; `where` names the node in errors."""
    try:
        made = function(builder, inputs, attributes)
        if isinstance(made, relax.Expr):
            made = builder.normalize(made)
    except TvmlabError:
        raise
    except Exception as error:  # the user's function can raise any class
        what = f"the converter raised {type(error).__name__}: {telling(error)}"
        types = ", ".join("None" if value is None else str(value.ty) for value in inputs)
        fix = f"correct the function; its inputs are {types or 'none'}, attributes {attributes}"
        raise ModelError(what, where=where, fix=fix) from error
    kinds = (relax.TensorType, relax.TupleType, relax.ShapeType)
    if not isinstance(made, relax.Expr) or not isinstance(made.ty, kinds):
        what = f"the converter returned {reprlib.repr(made)}, which is not a tensor of Relax"
        fix = "return a Relax expression, such as relax.op.nn.relu(inputs[0]) or a relax.Tuple"
        raise ModelError(what, where=where, fix=fix)
    return made


def suggestion(key: str, inputs: Iterable[str], attributes: Mapping[str, Any]) -> str:
    """Return the code of a converter for an operator, for the user to complete.

    Its `inputs` are given by their names in the model, its `attributes` with their values.
    """
    name = re.sub(r"\W", "_", key.rpartition("::")[2])
    taken = ["bb", "inputs", "attributes", "relax"]
    targets = _identifiers([*inputs], taken)
    fields = dict(zip(attributes, _identifiers(attributes, taken), strict=True))
    read = ", ".join(f"attributes[{field!r}]" for field in fields)
    shown = ", ".join(map(reprlib.repr, attributes.values()))
    code = (
        "from tvm import relax",
        f"def convert_{name}(bb, inputs, attributes):",
        f"    [{', '.join(targets)}] = inputs",
        f"    [{', '.join(fields.values())}] = [{read}]  # {shown}"
        if fields
        else "    # It has no attributes.",
        f"    return ...  # What {key} computes, such as relax.op.add(a, b)",
        f"mod = tvmlab.load(model, converters={{{key!r}: convert_{name}}})",
    )
    return "write a converter, and pass it to tvmlab.load:\n" + "\n".join(code)


def _identifiers(names: Iterable[str], taken: list[str]) -> list[str]:
    """Turn names into different Python identifiers, which are then `taken`."""
    made = []
    for name in names:
        short = re.sub(r"\W", "_", name.strip("/"))
        if not short.isidentifier() or keyword.iskeyword(short):
            short = f"_{short}"
        while short in taken:
            short += "_"
        taken.append(short)
        made.append(short)
    return made
