"""A row of radio buttons for each question, and the picture that belongs to the answers.

The output is HTML with a style and without a script. Each picture is an image of its own, with an
alternative text. The buttons are reached with the tabulator key and moved with the arrow keys, as
a slider is. Where the style is taken away, as JupyterLab does in a notebook that one has neither
run nor trusted, or where the browser does not know `:has`, the buttons are hidden and all pictures
stand side by side, each under its answers.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import product
from typing import Any, NamedTuple

from ..errors import InputError
from ..extras import need

__all__ = ["State", "choose", "page"]

MOST_STATES = 48  # More make an output that is slow to load.


class State(NamedTuple):
    """A picture, and what one sees on it.

    Attributes
    ----------
    svg : str
        The text of the picture.
    says : str
        Full sentences, which stand under it and are its alternative text.
    """

    svg: str
    says: str


def choose(
    name: str, questions: Mapping[str, Iterable[Any]], draw: Callable[..., State], *, first: int = 0
) -> None:
    """Show a picture that follows what the reader picks.

    Parameters
    ----------
    name : str
        A short name of small letters, digits and hyphens, which no other output of the page has.
    questions : mapping of str to iterable
        What can be picked: for each question its answers, of which ``str`` is shown.
    draw : callable
        Called with one answer to each question, for every combination; gives the `State`. It must
        give the same each time, for the output is compared when the notebook is tested.
    first : int
        Which answer to the first question is picked at first.

    Raises
    ------
    tvmlab.errors.InputError
        If a question has no answers or one twice, if there are no questions or more than 48
        combinations, or if the name is no such name.
    """
    given = {question: list(answers) for question, answers in questions.items()}
    labels = {question: [str(one) for one in answers] for question, answers in given.items()}
    _check(name, labels, first)
    states = {
        places: draw(*(answers[n] for answers, n in zip(given.values(), places, strict=True)))
        for places in _combinations(labels)
    }
    display = need("IPython.display", extra="notebooks")
    told = [f"{_answers(labels, places)}: {state.says}" for places, state in states.items()]
    display.publish_display_data(
        {"text/html": page(name, labels, states, first=first), "text/plain": "\n".join(told)}
    )


def page(
    name: str,
    labels: Mapping[str, Sequence[str]],
    states: Mapping[tuple[int, ...], State],
    *,
    first: int = 0,
) -> str:
    """Write the HTML that `choose` shows.

    Parameters
    ----------
    name : str
        As of `choose`.
    labels : mapping of str to sequence of str
        For each question its answers.
    states : mapping of tuple of int to State
        For each combination, as the places of its answers, the picture.
    first : int
        As of `choose`.

    Returns
    -------
    str
        A ``div``; it says the same each time.
    """
    rows = [f'<div class="tvmlab-choose" id="{name}" data-lm-suppress-shortcuts="true">']
    rows.append(f"<style>{_style(name, states)}</style>")
    for number, (question, answers) in enumerate(labels.items()):
        picked = first if number == 0 else 0
        buttons = [
            f'<label style="display:inline-block;margin:0 1em 0 0;padding:4px 0">'
            f'<input type="radio" name="{name}-{number}" id="{name}-{number}-{place}"'
            f"{' checked' if place == picked else ''}> {escape(answer)}</label>"
            for place, answer in enumerate(answers)
        ]
        rows.append(
            '<fieldset hidden style="border:0;margin:0;padding:0">'
            f'<legend style="float:left;padding:4px 1em 4px 0"><b>{escape(question)}</b></legend>'
            f"{''.join(buttons)}</fieldset>"
        )
    rows.append('<div aria-live="polite">')
    for places, state in states.items():
        data = base64.b64encode(state.svg.encode()).decode("ascii")
        rows.append(
            f'<figure class="{_mark(places)}" '
            'style="display:inline-block;vertical-align:top;width:45%;margin:4px">'
            f"<p><b>{escape(_answers(labels, places))}</b></p>"
            f'<img style="max-width:100%" alt="{escape(state.says)}" '
            f'src="data:image/svg+xml;base64,{data}">'
            # The same words as the image's, for the eye: they are not to be read aloud twice.
            f'<figcaption aria-hidden="true"><i>{escape(state.says)}</i></figcaption></figure>'
        )
    return "\n".join([*rows, "</div>", "</div>"])


def _style(name: str, states: Mapping[tuple[int, ...], State]) -> str:
    rules = [
        f"#{name} fieldset{{display:block}}",
        f"#{name} figure{{display:none!important;width:auto!important}}",
        f"#{name} figure p{{display:none}}",
    ]
    for places in states:
        picked = "".join(
            f":has(#{name}-{number}-{place}:checked)" for number, place in enumerate(places)
        )
        rules.append(f"#{name}{picked} .{_mark(places)}{{display:block!important}}")
    return f"@supports selector(:has(*)){{{''.join(rules)}}}"


def _mark(places: tuple[int, ...]) -> str:
    return "s" + "-".join(map(str, places))


def _combinations(labels: Mapping[str, Sequence[str]]) -> list[tuple[int, ...]]:
    return list(product(*(range(len(answers)) for answers in labels.values())))


def _answers(labels: Mapping[str, Sequence[str]], places: tuple[int, ...]) -> str:
    """Write a combination: each question with its answer."""
    picked = zip(labels.items(), places, strict=True)
    return ", ".join(f"{question} {answers[place]}" for (question, answers), place in picked)


def _check(name: str, labels: Mapping[str, Sequence[str]], first: int) -> None:
    def refuse(what: str, fix: str) -> InputError:
        return InputError(what, where=f"interactive.choose, {name!r}", fix=fix)

    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise refuse("the name is not of small letters, digits and hyphens", "say 'split-factor'")
    if not labels:
        raise refuse("there is no question", "give at least one")
    for question, answers in labels.items():
        if not answers:
            raise refuse(f"{question!r} has no answers", "give at least one")
        if len(set(answers)) < len(answers):
            raise refuse(f"{question!r} has an answer twice: {answers}", "name each once")
    if (count := len(_combinations(labels))) > MOST_STATES:
        raise refuse(f"{count} combinations, at most {MOST_STATES}", "leave out some answers")
    if not 0 <= first < len(next(iter(labels.values()))):
        raise refuse(f"the first question has no answer number {first}", "count from 0")
