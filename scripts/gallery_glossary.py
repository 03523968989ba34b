"""The glossary's terms, and links to them from where a notebook's prose first uses them.

The notebooks stay as they are: the links are put in as the site is built. `docs/glossary.md` is the
one list of terms; its plurals are found too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gallery_errors import GalleryError

# Terms that are found where they stand as code, too; elsewhere code is the name of a thing.
AS_CODE = {"qnn"}

# Words that mean something else in a notebook: make's targets, stack traces, the shell's patterns.
OTHER_MEANINGS = {
    "01_build_tvm": {"target", "trace"},
    "08_deploy_from_the_command_line": {"pattern"},
}

# Where no link goes: blocks of code, code, links and pictures, headings, HTML, addresses.
ELSEWHERE = (
    r"^(?P<fence>```+|~~~+).*?^(?P=fence)|(?P<ticks>`+).+?(?P=ticks)(?!`)|!?\[[^\]]*\]\([^)]*\)"
    r"|^#{1,6}\s[^\n]*|<[^<>]+>|https?://\S+"
)


def read_terms(path: Path) -> list[str]:
    """Return the terms of a glossary, in its order.

    Raises
    ------
    GalleryError
        The file has no glossary, or an empty one.
    """
    text = path.read_text(encoding="utf-8")
    found = re.search(r"^```\{glossary\}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = found[1].splitlines() if found else []
    terms = [line.strip() for line in lines if re.match(r"[^\s:]", line)]
    if not terms:
        raise GalleryError(f"{path}: there is no ```{{glossary}} with terms in it")
    return terms


def terms_of(terms: Sequence[str], stem: str) -> list[str]:
    """Return the terms that mean in a notebook what the glossary says; `stem` is its name."""
    return [term for term in terms if term not in OTHER_MEANINGS.get(stem, ())]


class Linker:
    """Links terms in the prose of one notebook, each where it stands first.

    Parameters
    ----------
    terms : sequence of str
        What the glossary explains. One that is written with a capital is found in that spelling
        only; the others also at the beginning of a sentence.
    words : mapping of str to str
        Other words for terms, in a language that puts no spaces between words.
    """

    def __init__(self, terms: Sequence[str], words: Mapping[str, str] | None = None) -> None:
        self.linked: set[str] = set()
        self._terms = set(terms)
        self._words = {word: term for word, term in (words or {}).items() if term in self._terms}
        # The longest first, so that "composite function" is not taken for "function".
        spelt = "|".join(_pattern(term) for term in sorted(terms, key=len, reverse=True))
        code = "|".join(re.escape(term) for term in AS_CODE & self._terms) or r"(?!)"
        other = "|".join(sorted(self._words, key=len, reverse=True)) or r"(?!)"
        self._find = re.compile(
            rf"`(?P<code>{code})`(?!`)|(?P<elsewhere>{ELSEWHERE})|(?P<stars>\*{{1,2}}|)"
            rf"(?:(?P<word>{other})|(?<![\w`./-])(?P<term>{spelt})(?![\w`-]|[./]\w))(?P=stars)",
            re.DOTALL | re.MULTILINE,
        )

    def link(self, source: str) -> str:
        """Return a cell's markdown, with roles of MyST around the terms that are new."""
        return self._find.sub(self._replace, source)

    def _replace(self, match: re.Match[str]) -> str:
        words = match["code"] or match["word"] or match["term"]
        if words is None:
            return match[0]
        words = re.sub(r"\s+", " ", words)
        term = self._term(words)
        if term in self.linked:
            return match[0]
        # A star between a letter and a role is no emphasis to Markdown: it would be shown. Chinese
        # has no spaces there: the link takes the emphasis's place, or waits for the next mention.
        before, after = match.string[: match.start()], match.string[match.end() :]
        if re.search(r"\w\*+\Z", before) or re.match(r"\*+\w", after):
            return match[0]
        alone = not (before[-1:].isalnum() or after[:1].isalnum())
        stars = (match["stars"] or "") if alone else ""
        self.linked.add(term)
        target = "" if words == term else f" <{term}>"
        return f"{stars}{{term}}`{words}{target}`{stars}"

    def _term(self, words: str) -> str:
        """Return the term that was found by another word, in a plural, or as a sentence begins."""
        if words in self._words:
            return self._words[words]
        for form in (words, words[0].lower() + words[1:]):
            for term in (form, form.removesuffix("s"), form.removesuffix("es")):
                if term in self._terms:
                    return term
        raise AssertionError(f"{words!r} was found and is no term")


def _pattern(term: str) -> str:
    words = r"\s+".join(re.escape(word) for word in term.split())
    if term == term.lower():
        words = f"[{term[0]}{term[0].upper()}]" + words[1:]
    return f"{words}(?:e?s)?"
