"""Every rule refuses a notebook that breaks it, and says where."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import notebook_links  # noqa: F401  (enters its rules into RULES)
import notebook_metadata  # noqa: F401  (as well)
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_output
from notebook_form import IGNORED, dumps
from notebook_rules import RULES, Page, check
from notebook_samples import ALT, PNG, code, figure, good, markdown, page, stream

Break = Callable[[NotebookNode], None]


def cell(notebook: NotebookNode, name: str) -> NotebookNode:
    return next(each for each in notebook.cells if each.id == name)


def source(name: str, old: str, new: str) -> Break:
    """Return a change of the source of one cell."""

    def change(notebook: NotebookNode) -> None:
        assert old in cell(notebook, name).source
        cell(notebook, name).source = cell(notebook, name).source.replace(old, new)

    return change


def outputs(name: str, *new: NotebookNode) -> Break:
    def change(notebook: NotebookNode) -> None:
        cell(notebook, name).outputs = list(new)

    return change


def about(**values: Any) -> Break:
    def change(notebook: NotebookNode) -> None:
        notebook.metadata.tvmlab.update(values)

    return change


def tagged(name: str, *tags: str) -> Break:
    def change(notebook: NotebookNode) -> None:
        cell(notebook, name).metadata["tags"] = list(tags)

    return change


def more(new: NotebookNode, after: str = "count") -> Break:
    def change(notebook: NotebookNode) -> None:
        notebook.cells.insert(notebook.cells.index(cell(notebook, after)) + 1, new)

    return change


def no_alt(notebook: NotebookNode) -> None:
    cell(notebook, "figure").outputs[0].metadata = NotebookNode()


def other_alt(notebook: NotebookNode) -> None:
    cell(notebook, "figure").outputs[0].data["text/plain"] = "<Figure size 640x480>"


def jpeg(notebook: NotebookNode) -> None:
    cell(notebook, "figure").outputs[0].data["image/jpeg"] = PNG


def half_outside(notebook: NotebookNode) -> None:
    cell(notebook, "count").source = 'if lab_tools.here("nm", "perf"):\n    pass\nprint(1)'
    tagged("count", "needs-nm", "needs-perf")(notebook)


def few_outputs(notebook: NotebookNode) -> None:
    for name in ("count", "pair", "clock-runs", "figure"):
        cell(notebook, name).outputs = []


def html(text: str, plain: str) -> NotebookNode:
    return new_output("display_data", data={"text/html": text, "text/plain": plain})


LONG = "\n".join(f"a{n} = {n}" for n in range(26))

# The rule, how the notebook is broken, the cell that the message names, a part of the message.
CASES: list[tuple[str, Break, str, str]] = [
    ("known_tags", tagged("count", "nbval-skip"), "count", "'nbval-skip'"),
    ("known_tags", tagged("count", "nbval_ignore_output"), "count", "not known"),
    ("known_tags", tagged("own", IGNORED), "own", "not known"),
    ("known_tags", source("count", "for n", "# NBVAL_IGNORE_OUTPUT\nfor n"), "count", "use a tag"),
    ("known_tags", tagged("count", "needs-gperf"), "count", "'needs-gperf'"),
    ("tools_are_asked_for", tagged("count", "needs-perf"), "count", "its tags name ['perf']"),
    ("tools_are_asked_for", source("count", "for", 'if lab_tools.here("nm"):\n    for'),
     "count", "for the tools ['nm']"),
    ("tools_are_asked_for", half_outside, "count", "outside of"),
    ("cell_length", source("count", "print(n)", "print(n)\n" + LONG), "count", "28 lines"),
    ("cell_length", source("practice", "People", "\n".join("abcdefghijklmnopqrstuvwxyz")),
     "practice", "at most 25"),
    ("no_empty_cells", more(code("void", "")), "void", "empty"),
    ("no_empty_cells", more(markdown("void", "")), "void", "empty"),
    ("ignored_then_compared", tagged("clock-runs", IGNORED), "clock", "no compared"),
    ("ignored_then_compared", tagged("exercise-five", IGNORED), "exercise-five", "no compared"),
    ("ignored_then_compared", outputs("clock-runs"), "clock", "neither asserts nor prints"),
    ("ignored_then_compared", outputs("clock-runs", stream("\n")), "clock", "neither"),
    ("enough_compared", few_outputs, "notebook", "3 compared"),
    ("output_length", outputs("count", stream("1\n" * 101)), "count", "101 lines"),
    ("output_length", outputs("count", stream("1\n" * 60), figure(), stream("2\n" * 60)), "count",
     "at most 100"),
    ("no_stray_output", outputs("count", stream("warning\n", "stderr")), "count", "stderr"),
    ("no_stray_output", tagged("fails"), "fails", "raises-exception"),
    ("no_stray_output", outputs("fails", stream("fine\n")), "fails", "raises-exception"),
    ("readable_output", outputs("count", stream("10%\r20%\r\n")), "count", r"'\r'"),
    ("readable_output", outputs("count", stream("\x1b[31mred\x1b[0m\n")), "count", r"'\x1b'"),
    ("readable_output", jpeg, "figure", "image/jpeg"),
    ("figures_have_alt", no_alt, "figure", "None is not a sentence"),
    ("figures_have_alt", outputs("figure", figure("a plot")), "figure", "'a plot'"),
    ("figures_have_alt", other_alt, "figure", "text/plain"),
    ("pictures_in_html_have_alt", outputs("count", html('<img src="x">', "1")), "count",
     "not a sentence"),
    ("pictures_in_html_have_alt", outputs("count", html(f'<img alt="{ALT}">', "1")), "count",
     "not in the text/plain"),
    ("one_title", source("title", "# Count", "We begin.\n\n# Count"), "title", "not begin"),
    ("one_title", source("steps", "### With print", "# Again"), "steps", "second title"),
    ("ordered_headings", source("steps", "### With", "#### With"), "steps", "level 2 to level 4"),
    ("skeleton", source("practice", "In practice", "In real life"), "notebook", "0 times"),
    ("skeleton", source("steps", "Count aloud", "On your own"), "notebook", "2 times"),
    ("skeleton", source("what", "## What you'll do", "## Why\n\n## What you'll do"), "what",
     "first sections"),
    ("skeleton", source("reading", "[Numbers]", "\n## More\n\n[N]"), "reading", "last sections"),
    ("skeleton", source("steps", "## Count aloud\n\n### With print", "Aloud"), "notebook",
     "no steps"),
    ("two_exercises", outputs("exercise-four", stream("done\n")), "notebook", "1 exercises"),
    ("two_exercises", tagged("exercise-four", IGNORED), "notebook", "1 exercises"),
    ("metadata", lambda nb: nb.metadata.tvmlab.pop("level"), "metadata", "exactly the keys"),
    ("metadata", lambda nb: nb.metadata.pop("tvmlab"), "metadata", "exactly the keys"),
    ("metadata", about(author="me"), "metadata", "exactly the keys"),
    ("thumbnail", about(thumbnail="nowhere"), "metadata", "'nowhere' is no code cell"),
    ("thumbnail", about(thumbnail="steps"), "metadata", "'steps' is no code cell"),
    ("metadata", about(title="Count"), "metadata", "not the first heading"),
    ("metadata", about(minutes=3), "metadata", "minutes is 3"),
    ("metadata", about(minutes=1.5), "metadata", "minutes is 1.5"),
    ("metadata", about(level="easy"), "metadata", "level is 'easy'"),
    ("metadata", about(summary="count"), "metadata", "does not complete"),
    ("metadata", about(summary="We count aloud to three."), "metadata", "does not complete"),
    ("metadata", about(needs="g++"), "metadata", "not a list"),
    ("metadata", about(needs=["g++", "gpp"]), "metadata", "'gpp'"),
    ("metadata", about(needs=["scikit-learn"]), "metadata", "comes with requirements.txt"),
    ("metadata", about(needs=["cmake"]), "metadata", "comes with requirements.txt"),
    ("links_resolve", source("steps", "#In-practice", "#In-theory"), "steps", "#In-theory"),
    ("links_resolve", source("steps", "#In-practice", "02_no.ipynb"), "steps", "does not exist"),
    ("links_resolve", source("steps", "#In-practice", "../out.md"), "steps", "leaves"),
    ("links_resolve", source("steps", "#In-practice", "00_begin_here.ipynb#End"), "steps",
     "the file does not have"),
    ("links_resolve", source("need", "https://", "http://"), "need", "https"),
    ("links_resolve", source("steps", "See", "<a href='gone.html'>x</a>"), "steps", "gone.html"),
    ("pictures_have_alt", source("steps", "See", "![](00_begin_here.ipynb)"), "steps", "''"),
    ("pictures_have_alt", source("steps", "See", "<img src='00_begin_here.ipynb'>"), "steps",
     "not a sentence"),
    ("neighbours", source("title", "[← 00", "[← 01"), "title", "00 Begin here"),
    ("neighbours", source("reading", "[← 00", "See [← 00"), "reading", "00 Begin here"),
]  # fmt: skip

PATHS = [
    "/home/someone/x.py",
    "/ro" + "ot/x",  # in two, so that a search for machine paths does not stop here
    "/tmp/tmpab12/libx.so",
    "see /usr/bin/g++ there",
    "'/opt/x/y'",
    "/srv/env/lib/python3.11/site-packages/tvm/__init__.py",
    "C:\\Users\\me",
    "Cell ipykernel_4711",
    str(Path(sys.prefix) / "bin" / "python"),
    f"at {Path(__file__).resolve()}",
]
CASES += [
    ("no_machine_path", outputs("count", stream(f"one\n{path}\n")), "count", "line 2")
    for path in PATHS
]


def test_the_sample_keeps_every_rule(tmp_path: Path) -> None:
    assert check(page(good(), tmp_path)) == []


@pytest.mark.parametrize(("name", "change", "where", "part"), CASES)
def test_a_broken_notebook_is_refused(
    name: str, change: Break, where: str, part: str, tmp_path: Path
) -> None:
    notebook = good()
    change(notebook)
    problems = check(page(notebook, tmp_path))
    mine = [problem for problem in problems if problem.endswith(f"[{name}]")]
    assert any(
        problem.startswith(f"01_count_to_three.ipynb: {where}: ") and part in problem
        for problem in mine
    ), problems


@pytest.mark.parametrize(
    "text", ["a/tmp/b", "tmp/x.o", "T.usr / y", "x /rooted", "8/2 GB", "dir C: free", "~/.cache/x"]
)
def test_what_only_looks_like_a_path_passes(text: str, tmp_path: Path) -> None:
    notebook = good()
    outputs("count", stream(text + "\n"))(notebook)
    assert check(page(notebook, tmp_path)) == []


def raw(change: Callable[[dict[str, Any]], None], folder: Path) -> Page:
    """Return a page whose JSON is changed behind nbformat's back."""
    value = json.loads(dumps(good()))
    change(value)
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    return page(good(), folder, text)


RAW_CASES: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    ("execution_counts", lambda nb: nb["cells"][4].update(execution_count=None), "count: "),
    ("execution_counts", lambda nb: nb["cells"][5].update(execution_count=7), "pair: "),
    ("cell_ids", lambda nb: nb["cells"][5].update(id="count"), "count: two cells"),
    ("cell_ids", lambda nb: nb["cells"][5].update(id="A_b"), "A_b: an id is a slug"),
    ("cell_ids", lambda nb: nb["cells"][5].pop("id"), "cell number 5: has no id"),
    ("canonical_json", lambda nb: nb["cells"][5]["metadata"].update(scrolled=True), "line "),
    ("canonical_json", lambda nb: nb["metadata"]["language_info"].update(version="3.11"), "line "),
    ("canonical_json", lambda nb: nb["metadata"].update(widgets={}), "line "),
]


@pytest.mark.filterwarnings("ignore::nbformat.warnings.MissingIDFieldWarning")
@pytest.mark.filterwarnings("ignore::nbformat.warnings.DuplicateCellId")
@pytest.mark.parametrize(("name", "change", "part"), RAW_CASES)
def test_broken_json_is_refused(
    name: str, change: Callable[[dict[str, Any]], None], part: str, tmp_path: Path
) -> None:
    problems = check(raw(change, tmp_path))
    assert any(part in problem and problem.endswith(f"[{name}]") for problem in problems), problems


@pytest.mark.parametrize("change", [lambda text: text.rstrip("\n"), lambda text: text + "\n"])
def test_the_closing_newline_counts(change: Callable[[str], str], tmp_path: Path) -> None:
    problems = check(page(good(), tmp_path, change(dumps(good()))))
    assert [problem.split("[")[-1] for problem in problems] == ["canonical_json]"]


def test_every_rule_has_a_case() -> None:
    tested = {case[0] for case in CASES} | {case[0] for case in RAW_CASES}
    assert tested == {each.__name__ for each in RULES}


def test_alt_text_of_the_sample_is_what_a_figure_carries() -> None:
    assert figure().metadata["image/png"]["alt"] == ALT
