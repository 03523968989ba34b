"""The rules about what a notebook says of itself, under `tvmlab` in its metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator

from notebook_form import NEEDS
from notebook_rules import Page, packages, rule

LEVELS = ("beginner", "intermediate", "advanced")
MAX_MINUTES = 2


@rule
def metadata(page: Page) -> Iterator[str]:
    about = page.raw["metadata"].get("tvmlab")
    keys = {"title", "minutes", "level", "needs", "summary"}
    if not isinstance(about, dict) or set(about) - {"thumbnail"} != keys:
        listed = ", ".join(sorted(keys))
        yield f"metadata: `tvmlab` must have exactly the keys {listed}, and may have thumbnail"
        return
    h1 = next((text for _, level, text in page.headings if level == 1), None)
    if about["title"] != h1:
        yield f"metadata: the title {about['title']!r} is not the first heading {h1!r}"
    minutes = about["minutes"]
    if type(minutes) is not int or not 1 <= minutes <= MAX_MINUTES:
        yield f"metadata: minutes is {minutes!r}, expected whole minutes from 1 to {MAX_MINUTES}"
    if about["level"] not in LEVELS:
        yield f"metadata: level is {about['level']!r}, expected one of {', '.join(LEVELS)}"
    # The table of notebooks prints it under the heading "you will".
    if not re.fullmatch(r"(?=[a-z]+ )(?:\S+ ){3,}\S*[^\s.!?]", str(about["summary"])):
        yield (
            f"metadata: the summary {about['summary']!r} does not complete 'you will ...': "
            "four words or more, the first in lower case, and no full stop"
        )
    if not isinstance(about["needs"], list):
        yield "metadata: needs is not a list"
        return
    for name in about["needs"]:
        if name in packages():
            yield f"metadata: {name!r} comes with requirements.txt: no need of this notebook's own"
        elif name not in NEEDS:
            yield f"metadata: nobody knows how to look for the need {name!r} (see NEEDS)"
