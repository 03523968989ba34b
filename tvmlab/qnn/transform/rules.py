"""The operators that have integer forms, in one table."""

from __future__ import annotations

from . import affine, cuts, movement, pooling, products, sums, unary
from .context import Rule
from .demand import Ask

__all__ = ["ASKS", "PRODUCTS", "RULES"]

_PARTS = (affine, cuts, movement, pooling, products, sums, unary)

#: From an operator's name to what makes its forms.
RULES: dict[str, Rule] = {name: rule for part in _PARTS for name, rule in part.RULES.items()}
#: From an operator's name to what it asks of its operands.
ASKS: dict[str, Ask] = {name: ask for part in _PARTS for name, ask in part.ASKS.items()}
#: The operators whose sums are exact, so that their real value can be read from them.
PRODUCTS = tuple(products.RULES)
