"""A row of radio buttons for each question, and the picture that belongs to the answers.

The output is HTML with a style and without a script. Each picture is an image of its own, with an
alternative text, in a `details`. The style shows the buttons and opens the one that is picked. The
buttons are reached with the tabulator key and moved with the arrow keys, as a slider is.

Where the style is taken away, as JupyterLab does in a notebook that one has neither run nor
trusted, or where the browser does not know what the style needs, the buttons stay hidden and the
`details` do what they do by themselves: the first picture is shown, and under it the other answers
stand in a list, each to be opened.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import product
from typing import Any, NamedTuple

from ..errors import InputError
from ..extras import need

__all__ = ["State", "choose"]

MOST_STATES = 48  # More make an output that is slow to load.

# The class of the whole output. The buttons of two outputs with the same questions do not disturb
# each other, for a group of radio buttons ends with its form, and no rule looks out of it.
_CLASS = "tvmlab-choose"

_OWN_KEYS = 'data-lm-suppress-shortcuts="true"'


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
    questions: Mapping[str, Iterable[Any]], draw: Callable[..., State], *, first: Sequence[int] = ()
) -> None:
    """Show a picture that follows what the reader picks.

    Parameters
    ----------
    questions : mapping of str to iterable
        What can be picked: for each question its answers, of which ``str`` is shown.
    draw : callable
        Called with one answer to each question, for every combination; gives the `State`. It must
        give the same each time, for the output is compared when the notebook is tested.
    first : sequence of int
        For each question, which of its answers is picked at first; left out: all the first ones.

    Raises
    ------
    tvmlab.errors.InputError
        If a question has no answers or one twice, if there are no questions or more than 48
        combinations, if `first` names no answers, or if `draw` gives something else.
    """
    if not isinstance(questions, Mapping):
        raise _refuse(
            f"the questions are of type {type(questions).__name__}",
            "give a dict: for each question its answers",
        )
    given = {question: list(answers) for question, answers in questions.items()}
    labels = {question: [str(one) for one in answers] for question, answers in given.items()}
    picked = tuple(first) or (0,) * len(labels)
    _check(labels, picked)
    states = {
        places: draw(*(answers[n] for answers, n in zip(given.values(), places, strict=True)))
        for places in _combinations(labels)
    }
    for places, state in states.items():
        if not isinstance(state, State):
            raise _refuse(
                f"for {_answers(labels, places)}, draw gives something of type "
                f"{type(state).__name__}",
                "return a State: the text of a picture, and what one sees on it",
            )
    display = need("IPython.display", extra="notebooks")
    told = [f"{_answers(labels, places)}: {state.says}" for places, state in states.items()]
    display.publish_display_data(
        {"text/html": _page(labels, states, picked), "text/plain": "\n".join(told)}
    )


def _page(
    labels: Mapping[str, Sequence[str]],
    states: Mapping[tuple[int, ...], State],
    picked: tuple[int, ...],
) -> str:
    """Write the HTML; it says the same each time."""
    # `method="dialog"`: the enter key on a button must not send the form anywhere.
    rows = [f'<form class="{_CLASS}" method="dialog">']
    rows.append(f"<style>{_style(states)}</style>")
    for number, (question, answers) in enumerate(labels.items()):
        buttons = [
            f'<label style="display:inline-block;margin:0 1em 0 0;padding:4px 0">'
            # Without the last attribute JupyterLab takes the arrow keys for itself. Further out
            # it is too late: a notebook's shortcuts are for whatever in it has the focus.
            f'<input type="radio" name="q{number}" class="q{number}-{place}" {_OWN_KEYS}'
            f"{' checked' if place == picked[number] else ''}> {escape(answer)}</label>"
            for place, answer in enumerate(answers)
        ]
        rows.append(
            '<fieldset style="display:none;border:0;margin:0;padding:0">'
            f'<legend style="float:left;padding:4px 1em 4px 0"><b>{escape(question)}</b></legend>'
            f"{''.join(buttons)}</fieldset>"
        )
    rows.append('<div aria-live="polite">')
    # The picked one comes first: without the style it is the figure, and the others its appendix.
    for places in sorted(states, key=lambda one: one != picked):
        state = states[places]
        data = base64.b64encode(state.svg.encode()).decode("ascii")
        rows.append(
            f'<details class="{_mark(places)}"{" open" if places == picked else ""}>'
            f"<summary>{escape(_answers(labels, places))}</summary>"
            f'<img style="max-width:100%" alt="{escape(state.says)}" '
            f'src="data:image/svg+xml;base64,{data}">'
            # The same words as the image's, for the eye: they are not to be read aloud twice.
            f'<p aria-hidden="true"><i>{escape(state.says)}</i></p></details>'
        )
    return "\n".join([*rows, "</div>", "</form>"])


def _style(states: Iterable[tuple[int, ...]]) -> str:
    rules = [
        f".{_CLASS} fieldset{{display:block!important}}",
        f".{_CLASS} details,.{_CLASS} summary{{display:none}}",
        # What a closed one holds is in this part of it, and is not drawn.
        f".{_CLASS} details::details-content{{content-visibility:visible}}",
    ]
    for places in states:
        buttons = "".join(f":has(.q{n}-{place}:checked)" for n, place in enumerate(places))
        rules.append(f".{_CLASS}{buttons} .{_mark(places)}{{display:block}}")
    needed = "selector(:has(*)) and selector(::details-content)"
    return f"@supports {needed}{{{''.join(rules)}}}"


def _mark(places: tuple[int, ...]) -> str:
    return "s" + "-".join(map(str, places))


def _combinations(labels: Mapping[str, Sequence[str]]) -> list[tuple[int, ...]]:
    return list(product(*(range(len(answers)) for answers in labels.values())))


def _answers(labels: Mapping[str, Sequence[str]], places: tuple[int, ...]) -> str:
    """Write a combination: each question with its answer."""
    picked = zip(labels.items(), places, strict=True)
    return ", ".join(f"{question}: {answers[place]}" for (question, answers), place in picked)


def _refuse(what: str, fix: str) -> InputError:
    return InputError(what, where="interactive.choose", fix=fix)


def _check(labels: Mapping[str, Sequence[str]], picked: tuple[int, ...]) -> None:
    if not labels:
        raise _refuse("there is no question", "give at least one")
    for question, answers in labels.items():
        if not answers:
            raise _refuse(f"{question!r} has no answers", "give at least one")
        if len(set(answers)) < len(answers):
            raise _refuse(f"{question!r} has an answer twice: {answers}", "name each once")
    if (count := math.prod(map(len, labels.values()))) > MOST_STATES:
        raise _refuse(f"{count} combinations, at most {MOST_STATES}", "leave out some answers")
    if picked not in _combinations(labels):
        raise _refuse(
            f"no answers stand at {picked}", "give a place for each question, counted from 0"
        )
