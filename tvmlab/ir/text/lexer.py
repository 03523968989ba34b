"""Relay text to tokens, with their places.

One regular expression finds every token. Comments nest in Relay, which no regular expression
follows, so that nested comments are skipped by counting. Lines are counted only for an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...errors import RelayError


class Token(NamedTuple):
    """A piece of text: its kind, the text, and the index of its first character.

    The kind of a mark or keyword is the text itself.
    """

    kind: str
    value: str
    start: int


def tokens(text: str) -> Iterator[Token]:
    """Split a text into tokens, up to its metadata section; the last one is ``END``."""
    match, position = _TOKEN.match, 0
    while position < len(text):
        found = match(text, position)
        if found is None:
            raise error(text, position, *_refusal(text, position))
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
            else:
                kind = _SAME.get(kind, kind)
            yield Token(kind, value, position)
            if kind == "METADATA":
                break
        position = found.end()
    yield Token("END", "", len(text.rstrip()))


def error(text: str, position: int, what: str, fix: str | None = None) -> RelayError:
    """Make an error that names a place in the text: its line, its column, and what surrounds it."""
    position = min(position, len(text))
    line = text.count("\n", 0, position) + 1
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    end = len(text) if end < 0 else end
    left, right = max(start, position - 40), min(end, position + 60)
    shown = ("..." if left > start else "") + text[left:right] + ("..." if right < end else "")
    column = position - start + 1
    made = RelayError(what, where=f"line {line}, column {column}: {shown.strip()}", fix=fix)
    made.line, made.column = line, column
    return made


def type_comment(text: str, token: Token) -> str | None:
    """Return the type that a comment right behind a token states, such as ``Tensor[(3), int8]``."""
    found = _TYPE_COMMENT.match(text, token.start + len(token.value))
    return found["type"] if found else None


def _comment_end(text: str, start: int) -> int:
    """Find the end of a comment that can hold others."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise error(text, start, "A comment is not closed", "end it with */")


def _refusal(text: str, position: int) -> tuple[str, str]:
    if text[position] == '"':
        return "A string is not closed", 'end it with "'
    if text.startswith("#[m", position):
        return "The metadata line is not closed", "write #[metadata]"
    if text.startswith("#[", position):
        return "The version line is not closed", 'write #[version = "0.0.5"]'
    return f"Relay text has no token that starts with {text[position]!r}", "remove it"


_WORD = r"[A-Za-z_]\w*"
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
    **{word: word for word in ("def", "fn", "let", "if", "else", "free_var")},
    **dict.fromkeys(("type", "extern", "match"), "GONE"),
    **{"True": "BOOL", "False": "BOOL", "None": "NONE"},
}
