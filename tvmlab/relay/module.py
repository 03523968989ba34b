"""Modules, whose graphs become bindings, and ``tvm.parser``, which reads Relay text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from ..errors import RelayError
from ..ir import graph
from ..ir.graph import substitute
from ..ir.module import is_normal, normal, normalize
from ..ir.text import lexer
from ..ir.text.reader import _Reader
from ..ir.text.reader import fromtext as _fromtext
from . import op
from .analysis import as_function
from .expr import Function, as_expr, const, kind, refuse


@kind(ir.IRModule)
def IRModule(functions: Mapping[Any, Any] | None = None, *_: Any, **__: Any) -> ir.IRModule:
    """Make a `tvm.IRModule` of functions by name, or an empty module."""
    return normalize(ir.IRModule(dict(functions or {})))


def from_expr(
    expr: Any, functions: Mapping[Any, Any] | None = None, type_defs: Any = None
) -> ir.IRModule:
    """Make a module of a function or expression, named ``main`` or by its ``global_symbol``.

    The free variables of an expression become parameters, in the order of their use. `functions`
    contains further functions, by name or `tvm.ir.GlobalVar`. Raises `RelayError` if a type cannot
    be inferred, or if there are type definitions.
    """
    refuse("IRModule.from_expr", "use tuples", type_defs=type_defs)
    main = as_function(expr)
    name = (main.attrs or {}).get("global_symbol", "main")
    return normalize(ir.IRModule({**(functions or {}), str(name): main}))


IRModule.from_expr = staticmethod(from_expr)


def bind(expr: Any, binds: Mapping[relax.Var, Any]) -> relax.Expr:
    """Replace variables of a function or a graph; bound parameters of a function are removed."""
    values = {var: as_expr(value) for var, value in binds.items()}
    expr = as_expr(expr)
    if not isinstance(expr, relax.Function):
        return substitute(expr, values)
    bound = {graph.key(var) for var in values}
    params = [param for param in expr.params if graph.key(param) not in bound]
    body = substitute(expr.body, values, infer=False)
    try:
        made = Function(params, body, attrs=expr.attrs)
    except RelayError:  # the values do not fit; as in Relay, `InferType` reports that
        return relax.Function(params, body, relax.AnyType(), attrs=expr.attrs)
    return normal(made) if is_normal(expr) else made


def bind_params_by_name(func: relax.Function, params: Mapping[str, Any]) -> relax.Function:
    """Bind a function's parameters to constants by name; other names are ignored."""
    values = {var: as_const(params[var.name]) for var in func.params if var.name in params}
    return bind(func, values)


def as_const(value: Any) -> Any:
    """Make a constant of a parameter's value, with its dtype, and without copying a tensor."""
    if isinstance(value, ir.GenericConst):
        return value
    return const(tvm.runtime.tensor(value) if isinstance(value, np.ndarray) else value)


def parse(
    source: str,
    source_name: str = "from_string",
    init_module: ir.IRModule | None = None,
    init_meta_table: Mapping[str, Sequence[Any]] | None = None,
) -> ir.IRModule:
    """Read a module of Relay text with its constants in the metadata section.

    The text can also call the functions of a typed module, and refer to the constants of a table,
    ``{"relay.Constant": [constant, ...]}``. Raises `RelayError` if the text cannot be read.
    """
    functions = dict(init_module.functions.items()) if init_module else None
    return _fromtext(source, None, functions, init_meta_table)


fromtext = parse


class _Untyped(_Reader):
    """Reader of an expression into a graph, which need not have types, and whose lets are kept."""

    def __init__(self, source: str) -> None:
        super().__init__(source, {}, {}, None)
        self.accept("VERSION")
        self.lets: list[relax.Binding] = []

    def bare(self) -> relax.Expr:
        """Read the whole text."""
        made = self.sequence(self.scope(None, self.token), [], plain=False, bare=True)
        if not self.at_end():
            raise self.unexpected("; or the end")
        return made

    def sequence(
        self, scope: Any, variables: list[relax.Var], plain: bool, bare: bool = False
    ) -> relax.Expr:
        """Read a body; the variables of its lets are bound around the result."""
        outer, self.lets = self.lets, []
        made = self.body(scope, False, bare)
        made = relax.SeqExpr([relax.BindingBlock(self.lets)], made) if self.lets else made
        self.lets = outer
        return made

    def function(self, signature: Any, outer: Any, params: Mapping[str, Any]) -> relax.Function:
        """Read a function; its parameters need no types."""
        scope = self.scope(outer, signature.token)
        variables = [relax.Var(token.value[1:], type_) for token, type_ in signature.parameters]
        scope.names.update({var.name: var for var in variables})
        body = self.block(scope, variables)
        return Function(variables, body, signature.result, attrs=signature.attributes)

    def type(self) -> ir.Type | None:
        """Read a type, which can also be a vector's, such as ``int8x4``."""
        token = self.token
        if token.kind == "NAME" and re.fullmatch(r"(u?int|float)\d+x\d+", token.value):
            self.at += 1
            return relax.TensorType([], token.value)
        return super().type()

    def check_type(self, token: Any, what: str, wanted: Any, value: Any) -> None:
        """Keep the declared type of a let's variable for `emit`, without comparing types."""
        self.declared = wanted

    def emit(self, value: relax.Expr, scope: Any, token: Any, name: str = "") -> relax.Expr:
        """Return the value itself, or the variable of a let."""
        if not name:
            return graph.typed(value)
        known = value.ty if graph.has_type(value) else None
        self.lets.append(relax.VarBinding(relax.Var(name, self.declared or known), value))
        return self.lets[-1].var

    def output(self, value: relax.Expr, scope: Any, plain: bool, token: Any) -> relax.Expr:
        """Return the value itself, or the variable of ``let %x = value; %x``."""
        is_let = self.tokens[self.tokens.index(token) - 1].kind == "let"
        return self.emit(value, scope, token, token.value[1:] if is_let else "")


def parse_expr(source: str) -> relax.Expr:
    """Read one expression: a function, a graph, `let` bindings, an operator or a function's name.

    Raises `RelayError` for a free variable that the text does not declare with ``free_var``.
    """
    tokens = [token for token in lexer.tokens(source) if token.kind != "VERSION"]
    kinds = [token.kind for token in tokens]
    if kinds[0] == "def":
        raise RelayError("the text is a module, not an expression", fix="call parse")
    if kinds in (["NAME", "END"], ["GLOBAL", "END"]):
        name = tokens[0].value
        return ir.GlobalVar(name[1:]) if kinds[0] == "GLOBAL" else op.get(name)
    if kinds[0] == "let" and kinds[-3:] == [";", "LOCAL", "END"]:
        return _Untyped(source).bare()  # the result is the variable, not its value
    try:
        main = _fromtext(source)["main"]
    except RelayError as error:
        try:  # as in Relay, an expression can be read whose types do not fit
            return _Untyped(source).bare()
        except RelayError:
            raise error from None
    # A text is one function if its first closing brace is at the end.
    depths = [*accumulate((kind == "{") - (kind == "}") for kind in kinds)]
    closed = [at for at, kind in enumerate(kinds) if kind == "}" and depths[at] == 0]
    if kinds[0] == "fn" and closed[:1] == [len(kinds) - 2]:
        return main.without_attr("global_symbol")
    return main.body if "let" in kinds else graph.inline_bindings(main.body)
