"""Relay's attributes of a call, for code that reads them and makes calls with them again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import table

__all__ = ["Attributes"]


class Attributes:
    """The attributes of a call as Relay had them; TVM gets those of today.

    Parameters
    ----------
    row : Operator
        The operator's row in the table.
    values : dict
        Relay's attributes.
    today : tvm.ir.Attrs or None
        The call's own.
    """

    def __init__(self, row: table.Operator, values: dict[str, Any], today: Any) -> None:
        self.row, self.values, self.today = row, values, today

    def __getattr__(self, name: str) -> Any:
        if name in ("row", "values", "today") or name not in self.values:
            raise AttributeError(f"{self.row.name} has no attribute {name!r}")
        return self.values[name]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def keys(self) -> list[str]:
        """List the names."""
        return list(self.values)

    def get_int(self, name: str) -> int:
        """Return an integer."""
        return int(self.values[name])

    def get_str(self, name: str) -> str:
        """Return a string."""
        return str(self.values[name])

    def get_int_tuple(self, name: str) -> tuple[int, ...]:
        """Return integers."""
        return tuple(int(size) for size in self.values[name])

    def __tvm_ffi_object__(self) -> Any:
        """Stand for the call's own attributes wherever TVM takes some."""
        return self.today
