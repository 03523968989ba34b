"""Pictures with a choice (`tvmlab.interactive`): they answer to the mouse and to the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

CHOICE = "tvmlab-choose"  # the class of each


def answers(page: Page, choice: Locator) -> None:
    """Pick every answer to every question: each shows a picture of its own, with its sentence."""
    questions = choice.locator("fieldset:visible").all()
    assert questions, "no question is shown"
    for question in questions:
        seen = []
        for answer in question.get_by_role("radio").all():
            answer.check()
            seen.append(picture(choice))
        assert len(seen) > 1
        assert len(set(seen)) == len(seen)
        question.get_by_role("radio").first.check()
        page.keyboard.press("ArrowRight")
        assert picture(choice) == seen[1], "the arrow keys do not move it"
        page.keyboard.press("ArrowLeft")
        assert picture(choice) == seen[0]


def picture(choice: Locator) -> str:
    """Return the one picture that is to be seen, with its sentence."""
    image = choice.locator("img:visible")
    assert image.count() == 1
    image.scroll_into_view_if_needed()
    # A picture is decoded when it is first shown.
    assert image.evaluate("it => it.decode().then(() => it.naturalWidth)") > 0
    said = image.get_attribute("alt") or ""
    assert said.endswith(".")
    assert choice.get_by_text(said, exact=True).locator("visible=true").count() == 1
    return image.get_attribute("src") or ""
