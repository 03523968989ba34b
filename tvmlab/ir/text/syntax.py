"""Relay text to a tree: what stands there, before anything is known of operators and types."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import lark

from ...errors import RelayError
from .lexer import TextLexer, Token, error

MAX_DEPTH = 200
"""How deep expressions, types and functions may nest; Relay's own printer nests a handful."""


class Node:
    """A place in the tree.

    Attributes
    ----------
    kind : str
        What it is: a rule's name in grammar.lark.
    token : Token
        Where an error about it points.
    items : tuple
        What it holds, by kind: nodes, tokens, plain values.
    end : Token or None
        The last token, behind which Relay writes the type in a comment.
    depth : int
        How many nodes are nested in it, at most.
    scopes : bool
        Whether a function or a branch is nested in it.
    """

    __slots__ = ("depth", "end", "items", "kind", "scopes", "token")

    def __init__(
        self,
        kind: str,
        token: Token,
        items: Any = (),
        inner: Any = (),
        *,
        end: Token | None = None,
        scopes: bool = False,
    ) -> None:
        self.kind, self.token, self.items, self.end = kind, token, items, end
        depth = 0
        if kind == "infix" and items[0].kind == kind:  # a sum of many terms is no deep one
            depth = max(items[0].depth - 1, 0)
            inner, scopes = inner[1:], scopes or items[0].scopes
        for node in inner:
            if node.depth > depth:
                depth = node.depth
            scopes = scopes or node.scopes
        self.depth, self.scopes = depth + 1, scopes
        if depth >= MAX_DEPTH:
            raise _TooDeepError(token)


class _TooDeepError(Exception):
    def __init__(self, token: Token) -> None:
        self.token = token


Children: TypeAlias = list[Any]
# Spelled out here, since Tree has methods named tuple and list.
Parameters: TypeAlias = tuple[list[Node], list[Node]]
Parsed: TypeAlias = tuple[Token | None, Node, Token | None]


class Tree(lark.Transformer[Token, Any]):
    """What each rule of grammar.lark makes, from what its parts made."""

    def literal(self, c: Children) -> Node:
        """A number with its suffix, or a truth value."""
        return Node("literal", c[0], end=c[0])

    def local(self, c: Children) -> Node:
        """A variable with a name, perhaps with fields behind it: ``%x``, ``%x.0``."""
        return Node("local", c[0])

    def temporary(self, c: Children) -> Node:
        """A variable with a number: ``%0``."""
        return Node("temporary", c[0])

    def global_name(self, c: Children) -> Node:
        """A function of the module: ``@main``."""
        return Node("global", c[0])

    def operator(self, c: Children) -> Node:
        """A bare word: an operator."""
        return Node("operator", c[0])

    def meta(self, c: Children) -> Node:
        """An entry of the metadata section: ``meta[relay.Constant][0]``."""
        return Node("meta", c[0], end=c[0])

    def call(self, c: Children) -> Node:
        """A call: what is called, the arguments, the attributes by name."""
        callee, end = c[0], c[-1]
        args = [item for item in c[1:-1] if item.kind != "attribute"]
        attributes = [item for item in c[1:-1] if item.kind == "attribute"]
        return Node("call", callee.token, (callee, args, attributes), c[:-1], end=end)

    def projection(self, c: Children) -> Node:
        """A field of a tuple."""
        return Node("projection", c[1], (c[0], c[1].value[1:]), c[:1])

    def tuple(self, c: Children) -> Node:
        """A tuple; its bracket is all that is left of an empty one."""
        return Node("tuple", c[0], c[1:], c[1:])

    def infix(self, c: Children) -> Node:
        """A chain of infix operators, put into the order in which they bind."""
        values: list[Node] = [c[0]]
        waiting: list[Token] = []
        for sign, value in zip(c[1::2], c[2::2], strict=True):
            while waiting and _BINDS[waiting[-1].value] >= _BINDS[sign.value]:
                _apply(values, waiting)
            waiting.append(sign)
            values.append(value)
        while waiting:
            _apply(values, waiting)
        return values[0]

    def negative(self, c: Children) -> Node:
        """A minus sign; signs in front of a literal cancel, of which there may be many."""
        sign, value = c
        if value.kind == "negative":
            inner: Node = value.items[0]
            return inner
        return Node("negative", sign, (value,), (value,))

    def function(self, c: Children) -> Node:
        """A function without a name: parameters, attributes, declared result, body."""
        token, (parameters, attributes), *result, body = c
        items = (parameters, attributes, result[0] if result else None, body)
        return Node("function", token, items, [*parameters, body], scopes=True)

    def branch(self, c: Children) -> Node:
        """A condition, and what follows from it."""
        token, condition, then, _, other = c
        return Node(
            "branch", token, (condition, then, other), (condition, then, other), scopes=True
        )

    def block(self, c: Children) -> Node:
        """A body in braces; an empty one stands where its brace does."""
        brace: Token = c[0]
        body: Node = c[1]
        if not body.token.value:
            body.token = brace
        return body

    def body(self, c: Children) -> Node:
        """Statements, and the result if there is one."""
        statements = [item for item in c if item.kind in _STATEMENTS]
        result = next((item for item in c if item.kind not in _STATEMENTS), None)
        token = c[0].token if c else Token("END", "", 0)
        return Node("body", token, (statements, result), c)

    def let(self, c: Children) -> Node:
        """A binding with a name: the name, the declared type, the value."""
        _, name, *declared, value = c
        return Node("let", name, (declared[0] if declared else None, value), (value,))

    def graph(self, c: Children) -> Node:
        """A binding with a number: the value."""
        return Node("graph", c[0], (c[1],), c[1:])

    def free(self, c: Children) -> Node:
        """A free variable's declaration: the declared type."""
        return Node("free", c[1], (c[2] if len(c) > 2 else None,))

    def effect(self, c: Children) -> Node:
        """A value that nobody uses."""
        return Node("effect", c[0].token, c, c)

    def annotation(self, c: Children) -> Node:
        """The type that is declared for a name."""
        declared: Node = c[0]
        return declared

    def parameters(self, c: Children) -> Parameters:
        """A function's parameters and its attributes."""
        parameters = [item for item in c if item.kind == "parameter"]
        return parameters, [item for item in c if item.kind == "attribute"]

    def parameter(self, c: Children) -> Node:
        """A parameter: the declared type. Where it lies (its virtual device) is dropped."""
        declared = [item for item in c[1:] if item.kind != "attribute"]
        return Node("parameter", c[0], (declared[0] if declared else None,), declared)

    def object(self, c: Children) -> Node:
        """An attribute's value that is an object of TVM's: nothing of it is kept."""
        return Node("object", c[0], (), c[1:])

    def attribute(self, c: Children) -> Node:
        """An attribute: its name and its value's node, or one token for both."""
        if len(c) == 1:
            return Node("attribute", c[0])
        return Node("attribute", c[0], (c[1],), c[1:])

    def value(self, c: Children) -> Node:
        """An attribute's value: a sign perhaps, and a token."""
        return Node("value", c[-1], (len(c) > 1,))

    def list(self, c: Children) -> Node:
        """A list of values."""
        return Node("list", c[0].token if c else Token("END", "", 0), c, c)

    def type(self, c: Children) -> Node:
        """A tensor's type, or a bare word."""
        return Node("type", c[0])

    def tuple_type(self, c: Children) -> Node:
        """The type of a tuple."""
        return Node("tuple_type", c[0].token if c else Token("END", "", 0), c, c)

    def function_type(self, c: Children) -> Node:
        """The type of a function: the parameters' types, then the result's."""
        inner = [item for item in c if isinstance(item, Node)]
        return Node("function_type", c[0], inner, inner)

    def definition(self, c: Children) -> Node:
        """A function with a name: parameters, attributes, declared result, body."""
        _, name, (parameters, attributes), *result, body = c
        items = (parameters, attributes, result[0] if result else None, body)
        return Node("definition", name, items, [*parameters, body])

    def module(self, c: Children) -> Node:
        """The definitions."""
        return Node("module", c[0].token, c, c)

    def start(self, c: Children) -> Parsed:
        """All of a text: its version, a module or a body, and the metadata's mark."""
        version = c[0] if isinstance(c[0], Token) else None
        metadata = c[-1] if isinstance(c[-1], Token) and c[-1] is not version else None
        return version, next(item for item in c if isinstance(item, Node)), metadata


def parse(text: str) -> Parsed:
    """Parse Relay text.

    Parameters
    ----------
    text : str
        A module, or a bare body.

    Returns
    -------
    tuple of Token or None, Node, Token or None
        The version, the module or body, and the mark behind which the metadata stands.

    Raises
    ------
    RelayError
        Where the text is none, with line and column.
    """
    try:
        return _parser().parse(text, start="start")  # type: ignore[return-value]
    except _TooDeepError as deep:
        raise error(
            text,
            deep.token.start,
            f"The text nests deeper than {MAX_DEPTH} levels here",
            fix="bind what is inside to variables: %0 = ...;",
        ) from None
    except lark.UnexpectedToken as unexpected:
        raise _unexpected(text, unexpected) from None


def parse_type(text: str) -> Node:
    """Parse a type alone, as comments state it."""
    try:
        return _parser().parse(text, start="type")  # type: ignore[return-value]
    except lark.UnexpectedToken as unexpected:
        raise _unexpected(text, unexpected) from None


def _unexpected(text: str, unexpected: lark.UnexpectedToken) -> RelayError:
    token = unexpected.token
    if token.type == "$END":
        return error(text, len(text.rstrip()), "The text ends too early", fix="is it cut off?")
    if token.type == "GONE":
        return error(
            text,
            token.start,
            f"{token.value!r}: algebraic data types have no counterpart in Relax",
            fix="write the program without them",
        )
    if token.value in ("[", "<") and _GENERIC.search(text, 0, token.start):
        return error(
            text,
            token.start,
            "Type parameters have no counterpart in Relax",
            fix="write the function once for each type",
        )
    bare = _BARE.search(text, 0, token.start) if token.value == ":" else None
    if bare:
        return error(
            text,
            bare.start(1),
            f"A parameter's name begins with %: {bare[1]} has to be %{bare[1]}",
            fix=f"parameters are written %{bare[1]}: Tensor[(1), float32]",
        )
    expected = sorted(_SAID.get(name, name) for name in unexpected.accepts or unexpected.expected)
    return error(
        text,
        token.start,
        f"Relay text cannot go on with {token.value!r} here",
        fix=f"write one of: {' '.join(expected)}",
    )


@cache
def _parser() -> lark.Lark:
    return lark.Lark(
        Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8"),
        parser="lalr",
        start=["start", "type"],
        lexer=TextLexer,
        transformer=Tree(),
    )


def _apply(values: list[Node], waiting: list[Token]) -> None:
    sign, right, left = waiting.pop(), values.pop(), values.pop()
    values.append(Node("infix", sign, (left, right), (left, right)))


_GENERIC = re.compile(r"(?:def\s+@[\w.]+|\bfn)\s*\Z")
_BARE = re.compile(r"[(,]\s*([A-Za-z_]\w*)\s*\Z")
_STATEMENTS = {"let", "graph", "free", "effect"}
_BINDS = {
    **dict.fromkeys(("==", "!="), 0),
    **dict.fromkeys(("<", ">", "<=", ">="), 1),
    **dict.fromkeys("+-", 2),
    **dict.fromkeys("*/", 3),
}
_SAID = {
    **{"LPAR": "(", "RPAR": ")", "LBRACE": "{", "RBRACE": "}", "LSQB": "[", "RSQB": "]"},
    **{"COMMA": ",", "SEMICOLON": ";", "COLON": ":", "EQUAL": "=", "ARROW": "->", "MINUS": "-"},
    **{"LOCAL": "%name", "GRAPH": "%0", "GLOBAL": "@name", "NAME": "name", "META": "meta[...]"},
    **{"DEF": "def", "FN": "fn", "LET": "let", "IF": "if", "ELSE": "else", "FREE": "free_var"},
    **{"$END": "the end", "FIELD": ".0", "INFIX": "+", "NUMBER": "1f", "BOOL": "True"},
    **{"STRING": '"text"', "NONE": "None", "INTS": "[1, 2]", "TENSOR": "Tensor[(1), int8]"},
}
