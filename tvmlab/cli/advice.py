"""Advice of the package's functions, in the words of the command line."""

from __future__ import annotations

import re

__all__ = ["for_the_shell"]


def for_the_shell(fix: str) -> str:
    """Rewrite what a function's error advises.

    Parameters
    ----------
    fix : str
        In Python's words: ``"fix them with shapes={'x': (1, 3)}"``.

    Returns
    -------
    str
        The same, with the options that mean those arguments; as it was where it names none.
    """
    for written, spelled in _SPELLED:
        fix = written.sub(spelled, fix)
    return fix


_SHAPE = re.compile(r"'([^']*)': \(([^()]*)\)")


def _shapes(found: re.Match[str]) -> str:
    written = (f"{name}:[{_sizes(sizes)}]" for name, sizes in _SHAPE.findall(found[0]))
    return f'--input-shapes "{" ".join(written)}"'


def _sizes(written: str) -> str:
    return re.sub(r"[\s']|,$", "", written)


_SPELLED = (
    (re.compile(rf"shapes=\{{{_SHAPE.pattern}(?:, {_SHAPE.pattern})*\}}"), _shapes),
    (re.compile(r"\btvmlab\.load\(model, shapes=\.\.\.\)"), "`tvmlab compile --input-shapes`"),
    (re.compile(r"\bleave `?shapes`? out"), "leave --input-shapes out"),
    (re.compile(r'\bcross_compiler="([^"]*)"'), r"--cross-compiler \1"),
    (re.compile(r"\btvmlab\.tune\(\.\.\., records=\.\.\.\)"), "`tvmlab tune -o FILE`"),
    (re.compile(r"\bmake a new RemoteExecutable"), "run it again"),
    (re.compile("^the error above this one is TVM's own"), "--verbose prints TVM's own error"),
)
