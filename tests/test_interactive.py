"""Pictures with a choice: what is shown, what is said, and that it is the same each time."""

from __future__ import annotations

import base64
import re
from html import escape
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from tvmlab import interactive
from tvmlab.errors import InputError
from tvmlab.interactive import State, choose


def state(*answers: object) -> State:
    said = " and ".join(map(str, answers))
    return State(
        f'<svg xmlns="http://www.w3.org/2000/svg"><text>{escape(said)}</text></svg>',
        f"One sees {said}.",
    )


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What is handed to Jupyter."""
    import IPython.display

    seen: list[dict[str, str]] = []
    monkeypatch.setattr(IPython.display, "publish_display_data", seen.append)
    return seen


class Page(HTMLParser):
    """Every tag with its attributes, in order; each must be closed where HTML asks for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("input", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, Any]]:
        return [attrs for name, attrs in self.tags if name == tag]


QUESTIONS = {"factor": [2, 4, 8], "order <a>": ["as split", "reordered & more"]}


def test_every_combination_has_its_picture(published: list[dict[str, str]]) -> None:
    choose(QUESTIONS, state, first=(1, 0))
    [data] = published
    assert set(data) == {"text/html", "text/plain"}
    page = Page(data["text/html"])
    images = page.all("img")
    # The one that is picked comes first.
    assert [one["alt"] for one in images][:3] == [
        "One sees 4 and as split.",
        "One sees 2 and as split.",
        "One sees 2 and reordered & more.",
    ]
    assert len(images) == len(page.all("details")) == 6
    for image in images:
        kind, _, content = image["src"].partition(",")
        assert kind == "data:image/svg+xml;base64"
        said = ElementTree.fromstring(base64.b64decode(content))[0].text
        assert image["alt"] == f"One sees {said}."
    assert data["text/plain"].splitlines()[5] == (
        "factor: 8, order <a>: reordered & more: One sees 8 and reordered & more."
    )


def test_it_can_be_used_with_keys_and_heard(published: list[dict[str, str]]) -> None:
    choose(QUESTIONS, state, first=(1, 0))
    page = Page(published[0]["text/html"])
    # Radio buttons of one name are one stop for the tabulator, and the arrow keys move in them.
    buttons = page.all("input")
    assert {one["type"] for one in buttons} == {"radio"}
    assert [one["name"] for one in buttons] == 3 * ["q0"] + 2 * ["q1"]
    assert [one["class"] for one in buttons if "checked" in one] == ["q0-1", "q1-0"]
    assert len(page.all("label")) == 5
    assert len(page.all("legend")) == len(page.all("fieldset")) == 2
    assert [one["aria-live"] for one in page.all("div") if "aria-live" in one] == ["polite"]
    # JupyterLab would take the arrow keys for itself, were it not said of the very button.
    assert {one["data-lm-suppress-shortcuts"] for one in buttons} == {"true"}
    # The enter key sends a form, if it has an address to be sent to.
    assert page.all("form")[0]["method"] == "dialog"


def test_two_on_a_page_do_not_disturb_each_other(published: list[dict[str, str]]) -> None:
    choose(QUESTIONS, state)
    page = Page(published[0]["text/html"])
    assert not any("id" in attrs for _, attrs in page.tags)
    assert page.tags[0][0] == "form"  # A group of radio buttons ends with its form.
    [style] = re.findall(r"<style>(.*?)</style>", published[0]["text/html"])
    inside = style.partition("{")[2]
    assert all(part.startswith(".tvmlab-choose") for part in re.findall(r"[^{},]+(?=[{,])", inside))


def test_the_style_shows_one_picture_for_any_answers(published: list[dict[str, str]]) -> None:
    choose(QUESTIONS, state)
    text = published[0]["text/html"]
    rules = dict(re.findall(r"((?::has\(\.q\d-\d:checked\))+) \.(s\d-\d)\{", text))
    assert len(rules) == 6
    for condition, mark in rules.items():
        assert mark == "s" + "-".join(re.findall(r"\.q\d-(\d)", condition))
    assert {one["class"] for one in Page(text).all("details")} == set(rules.values())


def test_without_its_style_one_picture_is_open_and_no_button_is_dead(
    published: list[dict[str, str]],
) -> None:
    choose(QUESTIONS, state, first=(2, 1))
    bare = re.sub(r"<style>.*?</style>", "", published[0]["text/html"])
    page = Page(bare)
    assert all("display:none" in one["style"] for one in page.all("fieldset"))
    opened = [("open" in one, one["class"]) for one in page.all("details")]
    assert opened[0] == (True, "s2-1")
    assert [is_open for is_open, _ in opened].count(True) == 1
    assert "<summary>factor: 2, order &lt;a&gt;: as split</summary>" in bare
    assert "<script" not in bare


def test_it_is_the_same_each_time(published: list[dict[str, str]]) -> None:
    for _ in range(2):
        choose(QUESTIONS, state)
    assert published[0] == published[1]


def test_one_question_is_enough(published: list[dict[str, str]]) -> None:
    choose({"size": {"small": 1, "large": 2}}, state)
    assert len(Page(published[0]["text/html"]).all("img")) == 2
    assert published[0]["text/plain"].startswith("size: small: One sees small.")


@pytest.mark.parametrize(
    ("questions", "first", "says"),
    [
        ({}, (), "there is no question"),
        ({"a": []}, (), "'a' has no answers"),
        ({"a": [1, "1"]}, (), "'a' has an answer twice"),
        ({"a": range(7), "b": range(7)}, (), "49 combinations, at most 48"),
        ({"a": [1, 2]}, (2,), "no answers stand at (2,)"),
        ({"a": [1, 2]}, (0, 0), "no answers stand at (0, 0)"),
        ([1, 2], (), "the questions are of type list"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    published: list[dict[str, str]], questions: Any, first: tuple[int, ...], says: str
) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        choose(questions, state, first=first)
    assert published == []


def test_what_is_no_state_is_refused(published: list[dict[str, str]]) -> None:
    with pytest.raises(InputError, match="for a: 1, draw gives something of type str"):
        choose({"a": [1, 2]}, str)  # type: ignore[arg-type]
    assert published == []


def test_the_public_names_are_there() -> None:
    assert all(hasattr(interactive, name) for name in interactive.__all__)
