"""What a notebook's prose states in numbers: in digits, and in words where they measure.

`224`, `0.98` and `4,000` are claims, and so are *four thousand candidates*, *three quarters* and
*twice as many*: a number word counts where a noun of measurement (`MEASURES`) or *hundred* or
*thousand* follows it, and a fraction where it is one *of* something. *Two passes*, *hundreds of
libraries* or *one of the three* are none: they count what the reader sees on the page, or do not
count. Headings, citations and the section *Further reading* state nothing. A code span with a
number in it, `n=64`, states itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from notebook_form import FENCED

# Not int8, ResNet-50, C++20 or 2D: these are names. 224x224 is two numbers.
NUMBER = re.compile(r"(?<![\w.+])(?<![A-Za-z]-)\d+(?:,\d{3})*(?:\.\d+)*(?![\d.]*[A-Za-z_])")
SPAN = re.compile(r"`[^`\n]+`")
NAME = re.compile(r"x86-64")
NOT_A_CLAIM = [
    FENCED,  # Text from elsewhere.
    SPAN,
    re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\([^)]*\)"),  # A link leads to what it names.
    re.compile(r"<[^>]*>"),
    re.compile(r"^#{1,6} .*$", re.MULTILINE),
    re.compile(r"^\s*(?:\*\*)?\d+\. ", re.MULTILINE),  # The numbers of a list,
    re.compile(r"^\| *\d+ +(?=[a-z])", re.MULTILINE),  # of the rows of a table,
    re.compile(r"\([A-Z][^()\d]*, (?:19|20)\d\d\)"),  # of a citation (Lavin and Gray, 2016),
    NAME,
    re.compile(r"\b(?:[Nn]otebooks?|[Ss]teps?|[Rr]ungs?|[Rr]ows?) \d+"),  # and of what has one.
]

_UNITS = """
    one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen
"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_MEASURES = """
    bits bytes floats KB KiB MB MiB GB hours minutes seconds milliseconds microseconds cycles times
    percent candidates trials repeats runs rounds samples channels lanes registers vectors columns
    taps pairs pictures classes cores threads servers kernels loads broadcasts multiply-adds
    multiplications operations instructions products sums inputs weights elements nanometres
"""
UNITS, TENS, MEASURES = _UNITS.split(), _TENS.split(), _MEASURES.split()
PARTS = {"half": 2, "third": 3, "quarter": 4, "fifth": 5, "tenth": 10}
POWERS = {"hundred": 100, "thousand": 1000, "million": 1000000}
WORDS = {word: number for number, word in enumerate(UNITS, 1)}
WORDS |= {word: 10 * number for number, word in enumerate(TENS, 2)}
_SMALL = "|".join(UNITS)
_COUNT = rf"(?:(?:{'|'.join(TENS)})(?:-(?:{_SMALL}))?|{_SMALL})"
_OTHER = r"(?: (?!(?:and|by|for|from|in|of|on|to) )[a-z-]+)?"  # Three *best* candidates.
_POWER = rf"(?:{'|'.join(POWERS)})"
_PART = rf"(?:{'|'.join(PARTS)})"
WORDED = re.compile(
    rf"\b(?:{_COUNT}(?: {_POWER}){{1,2}}"
    rf"|(?!one ){_COUNT}(?={_OTHER} (?:{'|'.join(MEASURES)}|per cent)\b)"
    rf"|{_COUNT} {_PART}s(?= of)"
    rf"|(?:(?:a|one) )?{_PART}(?= (?:of (?:a|the|them)|a|the)\b)"
    r"|(?:twice|double)(?= (?:as|the|that)\b))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Claim:
    """A number that the prose states.

    Attributes
    ----------
    text : str
        The number as it stands there, `1,234` or `three quarters`.
    start : int
        Where it stands in `bare(source)`.
    readings : tuple of frozenset of str
        The ways to show it: all numbers of one of the sets. Three quarters are 0.75, or 3 and 4.
    """

    text: str
    start: int
    readings: tuple[frozenset[str], ...]

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def plain(text: str) -> str:
    """Return a number without commas, and 5.0 as 5; a version 0.19 stays what it is."""
    text = text.replace(",", "")
    return re.sub(r"\.0+$", "", text) if text.count(".") == 1 else text


def apart(text: str) -> str:
    """Return a text with its 224x224 as `224 x 224`."""
    return re.sub(r"(?<=\d)x(?=\d)", " x ", text)


def bare(source: str) -> str:
    """Return a markdown cell's prose in one line, without all that states no number."""
    source = source.split("## Further reading")[0]  # Volumes and years of papers.
    for pattern in NOT_A_CLAIM:
        source = pattern.sub(" ", source)
    return " ".join(apart(source).split())


def claims(source: str) -> list[str]:
    """Return the numbers that the prose of a markdown cell states in digits."""
    return [plain(number) for number in NUMBER.findall(bare(source))]


def spans(source: str) -> list[str]:
    """Return the code spans, with their marks, that have a number and are no names like `int8`."""
    source = FENCED.sub(" ", source.split("## Further reading")[0])
    return [span for span in SPAN.findall(source) if NUMBER.search(apart(NAME.sub("", span)))]


def stated(text: str) -> list[Claim]:
    """Return the claims of a text from `bare`: those in digits, then those in words."""
    digits = [Claim(m[0], m.start(), (frozenset([plain(m[0])]),)) for m in NUMBER.finditer(text)]
    return digits + [Claim(m[0], m.start(), _readings(m[0])) for m in WORDED.finditer(text)]


def _readings(words: str) -> tuple[frozenset[str], ...]:
    """Say in digits what a number in words is."""
    count, power, part = 0, 1, 1
    for word in re.split(r"[ -]", words.lower()):
        count += WORDS.get(word, 0)
        power *= POWERS.get(word, 1)
        part *= PARTS.get(word, PARTS.get(word.rstrip("s"), 1))
    if words.lower() in ("twice", "double"):
        count = 2
    if part == 1:
        return (frozenset([str(count * power)]),)
    count = count or 1
    shown = {str(part)} | ({str(count)} if count > 1 else set())
    return frozenset([f"{count / part:g}"]), frozenset(shown)
