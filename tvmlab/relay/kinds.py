"""The two things that Relay's names share: classes of Relax's objects, and refused arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from ..errors import RelayError
from ..ir import graph

__all__ = ["kind", "refuse"]


class _Kind(type):
    """A class whose instances are TVM's."""

    instances: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]

    def __instancecheck__(cls, value: object) -> bool:
        """Return whether an object is what Relay calls by this name.

        A function's body, in Relax bindings, is the expression that it computes last.
        """
        if isinstance(value, relax.SeqExpr) and cls.instances is not relax.SeqExpr:
            value = graph.result(value)
        return isinstance(value, cls.instances)


def kind(instances: type) -> Callable[[Callable[..., Any]], Any]:
    """Make a class of a function: to call, and to give to `isinstance` for TVM's objects."""

    def decorate(make: Callable[..., Any]) -> Any:
        own = {"instances": instances, "__wrapped__": staticmethod(make), "__doc__": make.__doc__}
        return _Kind(make.__name__, (), {**own, "__module__": make.__module__})

    return decorate


def refuse(function: str, fix: str = "leave it out", **given: Any) -> None:
    """Refuse arguments of Relay's that have no effect here.

    Raises
    ------
    RelayError
        One is given, and is not empty.
    """
    for name, value in given.items():
        if value:
            raise RelayError(
                f"{function} does not carry {name}",
                where=f"relay.{function}({name}=...)",
                fix=fix,
            )
