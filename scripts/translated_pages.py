"""Keep the Chinese README and the first page of the Chinese site in step with the English ones.

`docs/zh/pages.toml` remembers of each section, from one heading of the second level to the next,
which English text it is the translation of. `scripts/translations.py`, which keeps the notebooks in
step, looks after these pages too.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from notebook_form import FENCED, NotebookError

ROOT = Path(__file__).resolve().parent.parent
MARKS = Path("docs/zh/pages.toml")
#: The translations, and what they are translations of.
PAGES = {"README.zh-CN.md": "README.md", "docs/zh/index.md": "docs/index.md"}
HEAD = """\
# Which English text each section of the Chinese pages is the translation of: a short hash of it.
# Written by scripts/translations.py PAGE --translated HEADING.
"""
# Written by scripts/readme.py, in both languages.
GENERATED = re.compile(r"<!-- (notebooks|bench): begin -->.*?<!-- \1: end -->", re.DOTALL)


def mark(source: str) -> str:
    """Return the mark of an English text: a short hash."""
    return hashlib.sha256(source.encode()).hexdigest()[:12]


def sections(text: str) -> dict[str, str]:
    """Return the sections of a page by their headings, without what is generated.

    What stands before the first heading of the second level is the section of the title.
    """
    text = GENERATED.sub("", text)
    # A comment in a block of code is no heading.
    plain = FENCED.sub(lambda block: re.sub("[^\n]", " ", block[0]), text)
    starts = [*re.finditer(r"^##? (.+)$", plain, re.MULTILINE)]
    ends = [*(start.start() for start in starts[1:]), len(text)]
    return {
        start[1].strip(): text[start.start() : end].strip()
        for start, end in zip(starts, ends, strict=True)
    }


def process(page: str, ids: Sequence[str] | None, *, check: bool, root: Path = ROOT) -> list[str]:
    """Say of a page's sections which wait for a translation, one sentence each.

    Parameters
    ----------
    page : str
        One of `PAGES`.
    ids : sequence of str, optional
        English headings of sections that are translated now; empty: all of them.
    check : bool
        Write nothing.
    root : Path
        The repository.

    Raises
    ------
    NotebookError
        There is no such page, or no such section.
    """
    if page not in PAGES:
        raise NotebookError(f"{page}: no translated page; there are {', '.join(PAGES)}")
    english = sections((root / PAGES[page]).read_text(encoding="utf-8"))
    now = {heading: mark(text) for heading, text in english.items()}
    file = root / MARKS
    marks = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    kept = {heading: marks.get(page, {}).get(heading) for heading in now}
    if ids is not None:
        if unknown := sorted(set(ids) - set(now)):
            raise NotebookError(f"{PAGES[page]}: no section {', '.join(unknown)}")
        kept |= {heading: now[heading] for heading in ids or now}
        marks[page] = {heading: known for heading, known in kept.items() if known}
        if not check:
            _write(file, marks)
    gone = marks.get(page, {}).keys() - now.keys()
    waiting = [heading for heading in now if kept[heading] != now[heading]]
    return [
        *(f"{page}: {heading!r}: translate it again" for heading in waiting),
        *(f"{page}: {heading!r}: {PAGES[page]} has no such section" for heading in sorted(gone)),
    ]


def _write(file: Path, marks: dict[str, dict[str, str]]) -> None:
    from tvmlab._files import whole  # Here, for it brings TVM in, and most runs write nothing.

    tables = [
        f"\n[{json.dumps(page)}]\n"
        + "".join(
            f"{json.dumps(heading, ensure_ascii=False)} = {json.dumps(known)}\n"
            for heading, known in marks[page].items()
        )
        for page in sorted(marks)
    ]
    with whole(file) as part:
        part.write_text(HEAD + "".join(tables), encoding="utf-8", newline="\n")
