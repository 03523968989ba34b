"""Relay text to tokens, and the readers of attributes and types, which need no names.

One regular expression matches every token. Comments nest in Relay, which a regular expression
cannot match, so nested comments are skipped by counting. Lines are counted only for an error.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tvm import ir, relax

from ...errors import RelayError, TvmlabError
from ..module import explain
from . import literals
from .metadata import MetadataTable

MAX_DEPTH = 100  # Printed text nests little; the parser recurses, and Python stops at 1,000.


class Token(NamedTuple):
    """A token of the text: its kind, its text, and the index of its first character.

    The kind of a punctuation mark or keyword is the text itself.
    """

    kind: str
    value: str
    start: int


def tokens(text: str) -> Iterator[Token]:
    """Split a text into tokens, up to its metadata section; the last token is ``END``."""
    match, position = _TOKEN.match, 0
    while position < len(text):
        found = match(text, position)
        if found is None:
            raise _unreadable(text, position)
        kind = found.lastgroup
        if kind == "OPEN":
            position = _comment_end(text, position)
            continue
        if kind is not None:
            value = found[kind]
            if kind == "MARK":
                kind = value
            elif kind == "NAME":
                kind = _KEYWORDS.get(value, kind)
            elif kind == "NAMED_NUMBER":
                kind = "NUMBER"
            yield Token(kind, value, position)
            if kind == "METADATA":
                break
        position = found.end()
    yield Token("END", "", len(text.rstrip()))


def _unreadable(text: str, position: int) -> RelayError:
    fix = """end it as in "x", /* x */, #[metadata] or #[version = "0.0.5"]"""
    for start, what in _UNCLOSED.items():
        if text.startswith(start, position):
            return literals.error_at(text, position, f"{what} is not closed", fix)
    what = f"No token of Relay text starts with {text[position]!r}"
    return literals.error_at(text, position, what, "remove it")


def _comment_end(text: str, start: int) -> int:
    """Return the end of a comment that can contain other comments."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise _unreadable(text, start)


class Cursor:
    """A position in a text, and readers of attributes and types."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(tokens(text))
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
        """Return whether the next tokens have these kinds."""
        return [token.kind for token in self.tokens[self.at : self.at + len(kinds)]] == list(kinds)

    def take(self, *kinds: str) -> Token:
        """Read a token, which must have one of several kinds."""
        token = self.tokens[self.at]
        if token.kind not in kinds:
            raise self.unexpected(" or ".join(kinds))
        self.at += 1
        return token

    def accept(self, kind: str) -> bool:
        """Read a token if it has a kind, and return whether it was read."""
        found = self.tokens[self.at].kind == kind
        self.at += found
        return found

    def items(self, end: str) -> Iterable[None]:
        """Iterate over items separated by commas, up to a closing token."""
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
        return literals.error_at(self.text, token.start, what, fix)

    def unexpected(self, wanted: str) -> RelayError:
        """Make the error for an unexpected token."""
        if self.token.kind == "END":
            return self.error(self.token, "The text ends too early", "is the text complete?")
        what = f"{self.token.value!r} is unexpected here"
        if self.token.kind == "GONE":
            what = f"{self.token.value!r}: algebraic data types have no counterpart in Relax"
        return self.error(self.token, what, f"write {wanted}")

    def unknown(self, token: Token, kind: str, names: Iterable[str]) -> RelayError:
        """Make the error for an unknown name, with the closest known name."""
        near = difflib.get_close_matches(token.value, names, n=1)
        fix = f"did you mean {near[0]}?" if near else "bind it before it is used"
        return self.error(token, f"There is no {kind} {token.value} here", fix)

    def placed(self, token: Token, read: Callable[..., Any], *args: Any) -> Any:
        """Call a function, and add the position of a token to its errors."""
        try:
            return read(*args)
        except Exception as problem:
            if isinstance(problem, RelayError) and problem.line is not None:
                raise
            if isinstance(problem, TvmlabError):
                raise self.error(token, problem.what, problem.fix) from problem
            what = f"Relax does not accept this expression: {explain(problem)}"
            raise self.error(token, what, "check shapes and dtypes of the operands") from problem

    def attribute(self, found: dict[str, Any]) -> None:
        """Read ``name=value`` of a call or a function."""
        token = self.take("NAME")
        self.take("=")
        if token.value in found:
            raise self.error(token, f"{token.value} occurs twice", "write it once")
        found[token.value] = self.setting()

    def setting(self) -> Any:
        """Read an attribute's value."""
        token = self.take("[", "(", "-", "NUMBER", "STRING", "BOOL", "NONE", "INTS", "META", "NAME")
        if token.kind in ("[", "("):
            self.deeper()
            values = [self.setting() for _ in self.items("]" if token.kind == "[" else ")")]
            self.depth -= 1
            return self.placed(token, literals.checked_list, values)
        if token.kind == "-":
            return -self.placed(token, literals.read_number, self.take("NUMBER").value)
        readers: dict[str, Callable[[str], Any]] = {
            "NUMBER": literals.read_number,
            "STRING": literals.read_string,
            "INTS": literals.read_integers,
            "META": self.metadata.attribute,
        }
        if token.kind in readers:
            return self.placed(token, readers[token.kind], token.value)
        return {"True": True, "False": False, "None": None}.get(token.value, token.value)

    def declared_type(self, mark: str) -> ir.Type | None:
        """Read a type after a punctuation mark, if there is one."""
        return self.type() if self.accept(mark) else None

    def type(self) -> ir.Type | None:
        """Read a type: rank 0 for a bare dtype, None for ``_``."""
        token = self.take("TENSOR", "NAME", "(", "fn")
        if token.kind == "TENSOR":
            return self.placed(token, literals.read_tensor_type, token.value)
        if token.kind == "NAME":
            if token.value != "_":
                self.placed(token, literals.read_dtype, token.value)
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


_WORD = r"[A-Za-z_]\w*"
# In the order of their frequency; the longer one first if two start alike.
_TOKEN = re.compile(
    rf"""
      [ \t\r\n\ufeff]+
    | /\*(?:[^*/]|\*(?!/)|/(?!\*))*+\*/ | //[^\n]*
    | (?P<GRAPH>%\d+)
    | (?P<LOCAL>%[A-Za-z_](?:[\w.]|/(?=\w))*+)
    | (?P<TENSOR>Tensor\[\s*\([^()\[\]"]*\)\s*,\s*\w+\s*\])
    | (?P<META>meta\[\s*[\w.]+\s*\]\s*\[\s*\d+\s*\])
    | (?P<NAMED_NUMBER>(?:inf|nan)(?:f\d*)?(?![\w.]))
    | (?P<NAME>{_WORD}(?:\.{_WORD})*+)
    | (?P<NUMBER>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?[A-Za-z]?\w*+)
    | (?P<INTS>\[\s*-?\d+(?:\s*,\s*-?\d+)*+\s*\])
    | (?P<GLOBAL>@{_WORD}(?:[.$]\w+)*+)
    | (?P<STRING>"(?:[^"\\]|\\.)*+")
    | (?P<FIELD>\.\d+)
    | (?P<VERSION>\#\[\s*version\s*=\s*"[^"\n]*"\s*\])
    | (?P<METADATA>\#\[\s*metadata\s*\])
    | (?P<OPEN>/\*)
    | (?P<MARK>->|==|!=|<=|>=|[(){{}}\[\],;:=<>+*/-])
    """,
    re.VERBOSE,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")
_UNCLOSED = {
    **{'"': "A string", "/*": "A comment"},
    **{"#[m": "The metadata line", "#[": "The version line"},
}
_KEYWORDS = {
    **{word: word for word in ("def", "fn", "let", "if", "else", "free_var")},
    **dict.fromkeys(("type", "extern", "match"), "GONE"),
    **{"True": "BOOL", "False": "BOOL", "None": "NONE"},
}
