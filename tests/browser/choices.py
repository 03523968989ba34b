"""Pictures with a choice (`tvmlab.interactive`): they answer to the mouse and to the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

CHOICE = "tvmlab-choose"  # the class of each


def answers(page: Page, choice: Locator) -> None:
    """Pick every answer to every question: each shows a picture of its own, with its sentence."""
    questions = choice.get_by_role("group").all()
    assert questions, "no question is shown"
    for question in questions:
        seen = []
        for answer in question.get_by_role("radio").all():
            answer.check()
            seen.append(picture(choice))
        assert len(seen) > 1
        assert len(set(seen)) == len(seen), seen
        question.get_by_role("radio").first.check()
        page.keyboard.press("ArrowRight")
        assert picture(choice) == seen[1], "the arrow keys do not move it"
        page.keyboard.press("ArrowLeft")
        assert picture(choice) == seen[0]


def picture(choice: Locator) -> str:
    """Return the sentence of the one picture that is to be seen."""
    figure = choice.locator("figure:visible")
    assert figure.count() == 1
    image = figure.locator("img")
    image.scroll_into_view_if_needed()
    # A picture is decoded when it is first shown.
    assert image.evaluate("it => it.decode().then(() => it.naturalWidth)") > 0
    said = image.get_attribute("alt") or ""
    assert said.endswith(".")
    assert figure.locator("figcaption").inner_text() == said
    return said
