"""Relay text to tokens, with the places where they stand.

One regular expression finds every token. Comments nest in Relay, which no regular expression
follows: those that do are skipped by counting. Lark's own lexers make strings with eight fields and
count lines as they go; here a token has three, and lines are counted when an error needs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lark.lexer import Lexer

from ...errors import RelayError


class Token:
    """A piece of text.

    Attributes
    ----------
    type : str
        The terminal's name in grammar.lark.
    value : str
        The text.
    start : int
        Where it starts.
    """

    __slots__ = ("start", "type", "value")
    # Lark copies these from the last token to the mark of the end.
    start_pos = end_pos = line = column = end_line = end_column = None

    def __init__(self, type: str, value: str, start: int) -> None:
        self.type, self.value, self.start = type, value, start


class TextLexer(Lexer):
    """Hands Lark the tokens of a text."""

    __future_interface__ = 0

    def __init__(self, lexer_conf: Any) -> None:
        pass

    def lex(self, data: str) -> Iterator[Token]:  # type: ignore[override]
        """Give the tokens of a text, up to its metadata section."""
        match, position = _TOKEN.match, 0
        while position < len(data):
            found = match(data, position)
            if found is None:
                raise error(data, position, _refusal(data, position), fix=_fix(data, position))
            kind = found.lastgroup
            if kind == "OPEN":
                position = _comment_end(data, position)
                continue
            if kind is not None:
                value = found[kind]
                if kind == "NAME":
                    kind = _KEYWORDS.get(value, kind)
                elif kind == "MARK":
                    kind = _MARKS[value]
                else:
                    kind = _SAME.get(kind, kind)
                yield Token(kind, value, position)
                if kind == "METADATA":
                    return
            position = found.end()


def error(
    text: str, position: int, what: str, *, fix: str | None = None, kind: type = RelayError
) -> RelayError:
    """Make an error that names a place in the text.

    Parameters
    ----------
    text : str
        All of it.
    position : int
        The index of the character where the error is.
    what, fix : str
        As every error of tvmlab has them.
    kind : type, optional
        The class of the error.

    Returns
    -------
    RelayError
        With line and column, counted from 1, and the line itself, cut to what surrounds the place.
    """
    position = min(position, len(text))
    line = text.count("\n", 0, position) + 1
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    end = len(text) if end < 0 else end
    left, right = max(start, position - 40), min(end, position + 60)
    shown = ("..." if left > start else "") + text[left:right] + ("..." if right < end else "")
    made: RelayError = kind(
        what, where=f"line {line}, column {position - start + 1}: {shown.strip()}", fix=fix
    )
    made.line, made.column = line, position - start + 1
    return made


def type_comment(text: str, token: Token) -> str | None:
    """Give the type that a comment right behind a token states, such as ``Tensor[(3), int8]``."""
    found = _TYPE_COMMENT.match(text, token.start + len(token.value))
    return found["type"] if found else None


def _comment_end(text: str, start: int) -> int:
    """Find where a comment ends that may hold others."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise error(text, start, "A comment is not closed", fix="end it with */")


def _fix(text: str, position: int) -> str:
    if text.startswith("#[m", position):
        return "write #[metadata]"
    return 'write #[version = "0.0.5"]' if text[position] == "#" else "see what stands there"


def _refusal(text: str, position: int) -> str:
    if text[position] == '"':
        return "A string is not closed"
    if text.startswith("#[", position):
        what = "metadata" if text.startswith("#[m", position) else "version"
        return f"The {what} line is not closed"
    return f"Relay text has no token that starts with {text[position]!r}"


_WORD = r"[A-Za-z_]\w*"
_PLAIN_VALUE = (
    r"""-?\d[\w.]*+(?:(?<=[eE])[+-]\d+\w*)?|"[^"\\\n]*"|\[-?\d[-\d,\ ]*\]|True|False|None"""
)
# In the order of how often they come; what starts alike stands longest first.
_TOKEN = re.compile(
    rf"""
      [ \t\r\n\ufeff]+
    | /\*(?:[^*/]|\*(?!/)|/(?!\*))*+\*/ | //[^\n]*
    | (?P<GRAPH>%\d+)
    | (?P<LOCAL>%[A-Za-z_](?:[\w.]|/(?=\w))*+)
    | (?P<TENSOR>Tensor\[\s*\([^()\[\]"]*\)\s*,\s*\w+\s*\])
    | (?P<META>meta\[\s*[\w.]+\s*\]\s*\[\s*\d+\s*\])
    | (?P<VERSIONED>v0\.\d+\.\d+)
    | (?P<SIMPLE>{_WORD}(?:\.{_WORD})*+=(?:{_PLAIN_VALUE})(?=[,)]))
    | (?P<NAMED_NUMBER>(?:inf|nan)(?:f\d*)?(?![\w.]))
    | (?P<OLD_METADATA>METADATA:)
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
_TYPE_COMMENT = re.compile(r"\s*/\*\s*ty=(?P<type>.*?)\s*(?:span=.*?)?\*/", re.DOTALL)
_COMMENT_MARK = re.compile(r"/\*|\*/")
_SAME = {"VERSIONED": "VERSION", "NAMED_NUMBER": "NUMBER", "OLD_METADATA": "METADATA"}
_KEYWORDS = {
    **{"def": "DEF", "fn": "FN", "let": "LET", "if": "IF", "else": "ELSE", "free_var": "FREE"},
    **dict.fromkeys(("type", "extern", "match"), "GONE"),
    **{"True": "BOOL", "False": "BOOL", "None": "NONE"},
}
_MARKS = {
    **{"(": "LPAR", ")": "RPAR", "{": "LBRACE", "}": "RBRACE", "[": "LSQB", "]": "RSQB"},
    **{",": "COMMA", ";": "SEMICOLON", ":": "COLON", "=": "EQUAL", "->": "ARROW", "-": "MINUS"},
    **dict.fromkeys(("==", "!=", "<=", ">=", "<", ">", "+", "*", "/"), "INFIX"),
}
