"""The figures of tuning say the right things, and not by colour alone."""

from __future__ import annotations

import io
from itertools import combinations
from typing import Any

from tvmlab.tuning.figures import curves, learned, scaling, space_map


def drawn(fig: Any) -> None:
    fig.savefig(io.BytesIO(), format="png")


def legend(fig: Any) -> list[str]:
    return [text.get_text() for text in fig.legends[0].get_texts()]


def test_a_map_writes_each_value_and_frames_the_highest() -> None:
    values = {(1, 8): 2.34, (1, 16): 50.4, (4, 8): 99.6}  # and a candidate that failed
    fig = space_map(values, rows="height", columns="width", unit="GFLOP/s", title="a space")
    drawn(fig)
    axes, bar = fig.axes
    said = {text.get_position(): text.get_text() for text in axes.texts}
    assert said == {(0, 0): "2.3", (1, 0): "50", (0, 1): "100"}
    (frame,) = axes.patches
    assert frame.get_xy() == (-0.5, 0.5)
    assert not frame.get_fill()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["8", "16"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "4"]
    labels = [axes.get_ylabel(), axes.get_xlabel(), bar.get_ylabel()]
    assert labels == ["height", "width", "GFLOP/s"]


def test_searches_differ_in_line_and_marker_and_the_rule_from_all() -> None:
    runs = {name: [1.0, 2.0, float(row)] for row, name in enumerate("abcd", 2)}
    fig = curves(runs, unit="GFLOP/s", lines={"the rule": 3.0}, title="race")
    drawn(fig)
    looks = [(line.get_linestyle(), line.get_marker()) for line in fig.axes[0].lines]
    assert all(one[0] != other[0] for one, other in combinations(looks[:4], 2))
    assert all(one[1] != other[1] for one, other in combinations(looks, 2))
    assert legend(fig) == ["a", "b", "c", "d", "the rule"]


def test_a_model_has_a_panel_for_each_state() -> None:
    fig = learned({"before": ([0.1, 1.0], [0.7, 0.2]), "after": ([0.1, 1.0], [0.2, 0.9])})
    drawn(fig)
    assert [axes.get_title() for axes in fig.axes] == ["before", "after"]


def test_machines_are_measured_in_dots_and_extended_in_lines() -> None:
    fig = scaling({1: 5.0, 3: 14.0}, {1: 5.0, 2: 10.0, 4: 20.0}, ceiling=20.0, unit="a minute")
    drawn(fig)
    paper, measured, ceiling = fig.axes[0].lines
    assert list(measured.get_data()[0]) == [1, 3]
    assert measured.get_marker() not in ("", "None")
    assert len({line.get_linestyle() for line in (paper, measured, ceiling)}) == 3
