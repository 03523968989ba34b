"""The tokens of Relay text one by one: errors with their place, attributes and types."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

from tvm import ir, relax

from ...errors import RelayError, TvmlabError
from ..module import explain
from . import lexer, literals
from .lexer import Token
from .metadata import MetadataTable

MAX_DEPTH = 100  # Relay's printer nests a handful; the parser recurses, and Python ends at 1,000.
_TYPES = "write a dtype such as float32, Tensor[(1, 3), float32], a tuple (...) or fn (...) -> ..."


class Cursor:
    """A place in a text, and readers of what needs no names: attributes and types."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(lexer.tokens(text))
        self.at = 0
        self.depth = 0
        mark = self.tokens[-2:][0]
        has_metadata = mark.kind == "METADATA"
        self.metadata = MetadataTable(text, mark.start + len(mark.value) if has_metadata else None)

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.at]

    def next_is(self, *kinds: str) -> bool:
        """Return whether these tokens come next."""
        return [token.kind for token in self.tokens[self.at : self.at + len(kinds)]] == list(kinds)

    def take(self, *kinds: str) -> Token:
        """Read a token, which must be of one of some kinds."""
        token = self.tokens[self.at]
        if token.kind not in kinds:
            raise self.unexpected(" or ".join(kinds))
        self.at += 1
        return token

    def accept(self, kind: str) -> bool:
        """Read a token if it is of a kind."""
        found = self.tokens[self.at].kind == kind
        self.at += found
        return found

    def items(self, end: str) -> Iterable[None]:
        """Go through items with commas between them, up to a closing mark."""
        while not self.accept(end):
            yield
            if not self.next_is(end):
                self.take(",", end)

    def deeper(self) -> None:
        """Count a level of nesting."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            what = f"The text nests deeper than {MAX_DEPTH} levels here"
            raise self.error(self.token, what, "bind inner expressions to variables: %0 = ...;")

    def error(self, token: Token, what: str, fix: str | None = None) -> RelayError:
        """Make an error that points at a token."""
        return lexer.error(self.text, token.start, what, fix)

    def unexpected(self, wanted: str) -> RelayError:
        """Make the error for a token that cannot come next."""
        token = self.token
        if token.kind == "END":
            return self.error(token, "The text ends too early", "is it cut off?")
        if token.kind == "GONE":
            what = f"{token.value!r}: algebraic data types have no counterpart in Relax"
            return self.error(token, what, "write the program without them")
        what = f"Relay text cannot go on with {token.value!r} here"
        return self.error(token, what, f"write {wanted}")

    def unknown(self, token: Token, kind: str, names: Iterable[str]) -> RelayError:
        """Make the error for an unknown name, with the nearest known one."""
        near = difflib.get_close_matches(token.value, names, n=1)
        fix = f"did you mean {near[0]}?" if near else "bind it before it is used"
        return self.error(token, f"There is no {kind} {token.value} here", fix)

    def placed(self, token: Token, read: Callable[..., Any], *args: Any) -> Any:
        """Call a function whose errors get the place of a token."""
        try:
            return read(*args)
        except Exception as problem:
            if isinstance(problem, RelayError) and problem.line is not None:
                raise
            if isinstance(problem, TvmlabError):
                raise self.error(token, problem.what, problem.fix) from problem
            what = f"Relax refuses this: {explain(problem)}"
            raise self.error(token, what, "check shapes and dtypes of the operands") from problem

    def attribute(self, found: dict[str, Any]) -> None:
        """Read ``name=value`` of a call or a function."""
        token = self.take("NAME")
        self.take("=")
        if token.value in found:
            raise self.error(token, f"{token.value} is given twice", "give it once")
        found[token.value] = self.setting()

    def setting(self) -> Any:
        """Read an attribute's value."""
        token = self.take("[", "(", "-", *_SETTINGS, "INTS", "META", "NAME")
        match token.kind:
            case "[" | "(":
                self.deeper()
                values = [self.setting() for _ in self.items("]" if token.kind == "[" else ")")]
                self.depth -= 1
                if len(values) > literals.MAX_NUMBERS:
                    what = f"An attribute has {literals.MAX_NUMBERS} values at most"
                    raise self.error(token, what, "give fewer")
                return values
            case "-":
                number = self.take("NUMBER")
                return self.placed(number, literals.read_number, number.value, True)
            case "INTS":
                return self.placed(token, literals.read_integers, token.value)
            case "META":
                return self.placed(token, self.metadata.attribute, token.value)
            case "NAME":
                return token.value
        return self.placed(token, _SETTINGS[token.kind], token.value)

    def declared_type(self, mark: str) -> ir.Type | None:
        """Read a type behind a mark, if there is one."""
        return self.type() if self.accept(mark) else None

    def type(self) -> ir.Type | None:
        """Read a type: rank 0 for a bare dtype, None for ``_``."""
        token = self.take("TENSOR", "NAME", "(", "fn")
        if token.kind == "TENSOR":
            return self.placed(token, literals.read_tensor_type, token.value)
        if token.kind == "NAME":
            if token.value != "_" and token.value not in literals.DTYPES:
                raise self.error(token, f"There is no type {token.value}", _TYPES)
            return None if token.value == "_" else relax.TensorType([], token.value)
        self.deeper()
        if token.kind == "fn":
            self.take("(")
        parts = [self.type() or relax.AnyType() for _ in self.items(")")]
        made: ir.Type = relax.TupleType(parts)
        if token.kind == "fn":
            self.take("->")
            made = relax.FuncType(parts, self.type() or relax.AnyType())
        elif len(parts) == 1 and self.tokens[self.at - 2].kind != ",":
            raise self.error(token, "A type in parentheses is a tuple", "write (int8,) or int8")
        self.depth -= 1
        return made


_SETTINGS: dict[str, Callable[[str], Any]] = {
    "NUMBER": literals.read_number,
    "STRING": literals.read_string,
    **dict.fromkeys(("BOOL", "NONE"), {"True": True, "False": False, "None": None}.__getitem__),
}


def compatible(declared: ir.Type, found: ir.Type) -> bool:
    """Return whether a value can have a declared type; an unknown type is compatible with all."""
    result = relax.analysis.type_base_check(declared, found)
    return bool(result != relax.analysis.BaseCheckResult.FAIL_L0)


def type_text(type_: ir.Type) -> str:
    """Return a type in one line, for an error."""
    return str(type_).replace("R.", "") if type(type_) is not ir.Type else "of unknown type"
