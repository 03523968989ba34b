"""What a person reads uses plain English: no phrase of a short list occurs in it."""

from __future__ import annotations

import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Phrases that hide who does what, or that stand for a plain word, with the word to write.
PLAIN = {
    r"is none\b": "is missing, is not one",
    r"\bof (then|now)\b": "in Relay, today",
    r"\bstands?\b(?!-| (for|in for)\b)": "is",
    r"\bis (asked|told)\b": "gets",
    r"\bsays not\b": "does not say",
    r"\b([Nn]obody|[Ww]hoever|whereof|thereby|lest)\b": "name the actor",
    r"\bwho wins\b": "the winner",
    r"\bin turn\b": "alternately",
    r"\ba second time\b": "again",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\b[Ss]o (many|far as)\b": "this many",
    r"\bmay be\b": "can be",
    r"\bshall\b": "must, will",
}
FOUND = re.compile("|".join(PLAIN))


def spoken(path: Path) -> Iterator[str]:
    """Yield the texts of a file that a person reads: of Python, the comments and strings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        for cell in json.loads(text)["cells"]:
            source = "".join(cell["source"])
            whole = cell["cell_type"] == "markdown" or source.startswith("%%")
            yield from [source] if whole else strings(source)
    else:
        yield from strings(text) if path.suffix == ".py" else [text]


def strings(source: str) -> Iterator[str]:
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in kinds:
            yield token.string


def files() -> list[Path]:
    rooms = [ROOT / name for name in ("tvmlab", "scripts", "docs", "tests")]
    found = [path for room in rooms for path in room.rglob("*") if "build" not in path.parts]
    found += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile")]
    found += [*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("notebooks/solutions/*.md")]
    kinds = {".py", ".md", ".cc", ".h", ".txt", ".ipynb", ".sh", ".css", ".js", ""}
    found.remove(Path(__file__))  # It quotes the phrases.
    return sorted(path for path in found if path.is_file() and path.suffix in kinds)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_words_are_plain(path: Path) -> None:
    found = [match[0] for text in spoken(path) for match in FOUND.finditer(text)]
    assert found == [], f"write plain English, see PLAIN in {Path(__file__).name}"
