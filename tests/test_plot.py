from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Annotation
from PIL import Image

from tvmlab import plot


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What `show` hands to Jupyter."""
    import IPython.display

    seen: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def publish(data: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
        seen.append((data, metadata or {}))

    monkeypatch.setattr(IPython.display, "publish_display_data", publish)
    return seen


def drawn(fig: Any) -> bytes:
    png = io.BytesIO()
    fig.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()


ALT = "One bar is twice as long as the other."


def test_show_publishes_a_picture_with_its_text(published: list[Any]) -> None:
    plot.show(plot.bars({"a": 1, "b": 2}, unit="ms"), ALT, "b takes longer.")
    (data, metadata), (caption, _) = published
    assert set(data) == {"image/png", "text/plain"}
    assert data["text/plain"] == ALT
    assert metadata["image/png"]["alt"] == ALT
    picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    assert picture.format == "PNG"
    assert min(picture.size) > 50
    assert caption["text/markdown"] == "*b takes longer.*"


def test_bars_are_labelled_from_top_to_bottom() -> None:
    values = {"slow": 12.345, "fast": 0.5}
    for log in (False, True):
        fig = plot.bars(values, unit="GFLOP/s", title="speed", log=log, newest="fast")
        (axes,) = fig.axes
        assert [label.get_text() for label in axes.get_yticklabels()] == ["slow", "fast"]
        assert axes.yaxis_inverted()
        assert [text.get_text() for text in axes.texts] == ["12.3", "0.5"]
        bars = [bar.get_width() for bar in axes.patches]
        dots = [float(dot.get_offsets()[0][0]) for dot in axes.collections]
        assert (dots if log else bars) == [12.345, 0.5]
        assert axes.get_xscale() == ("log" if log else "linear")
        assert axes.get_xlabel() == "GFLOP/s"
        assert axes.get_title() == "speed"


SPEEDS = st.floats(1e-2, 1e6)


@settings(max_examples=12)
@given(
    st.lists(SPEEDS, min_size=1, max_size=8),
    st.dictionaries(st.sampled_from(["NumPy", "peak", "floor"]), SPEEDS),
    st.booleans(),
    st.sampled_from(["", "speed"]),
)
def test_no_label_stands_on_anything(
    speeds: list[float], lines: dict[str, float], log: bool, title: str
) -> None:
    values = {f"register-blocked {row}": speed for row, speed in enumerate(speeds)}
    fig = plot.bars(values, unit="GFLOP/s", title=title, lines=lines, log=log)
    drawn(fig)
    (axes,) = fig.axes
    labels = [*axes.texts, *axes.get_yticklabels(), axes.xaxis.label]
    labels += [text for text in (axes.title,) if text.get_text()]
    boxes = [text.get_window_extent() for text in labels]
    boxes += [legend.get_window_extent() for legend in fig.legends]
    # What is left: the plot itself, in which the bars and the reference lines are.
    everything = [*boxes, axes.get_window_extent()]
    for number, box in enumerate(boxes):
        assert not box.count_overlaps(everything[number + 1 :])
        assert fig.bbox.containsx(box.x0)
        assert fig.bbox.containsx(box.x1)
        assert fig.bbox.containsy(box.y0)
        assert fig.bbox.containsy(box.y1)


@settings(max_examples=8)
@given(st.integers(1, 10), st.integers(1, 8), st.booleans())
def test_pictures_stand_in_a_grid(count: int, columns: int, colour: bool) -> None:
    images = [np.zeros((8, 8, 3) if colour else (8, 8)) + 0.1 for _ in range(count)]
    captions = [f"picture {index}" for index in range(count)]
    fig = plot.pictures(images, captions, columns=columns)
    shown = [axes for axes in fig.axes if axes.images]
    assert [axes.get_title() for axes in shown] == captions
    assert len(fig.axes) - count < columns
    assert len(drawn(fig)) > 100


POINTS = {"small": [(2.0, 30.0), (8.0, 90.0)], "large": [(40.0, 80.0)]}


def test_a_roofline_has_its_ridge_where_both_limits_meet() -> None:
    (axes,) = plot.roofline(POINTS, peak=100, bandwidth=20, title="kernels").axes
    roof, ridge, *groups = axes.lines
    assert list(roof.get_ydata())[1:] == [100, 100]
    assert set(ridge.get_xdata()) == {5.0} == {roof.get_xdata()[1]}
    for x, y in list(zip(*roof.get_data(), strict=True))[:2]:
        assert y == pytest.approx(20 * x)
    assert [list(zip(*line.get_data(), strict=True)) for line in groups] == list(POINTS.values())
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_title()) == ("log", "log", "kernels")
    assert [text.get_text() for text in axes.texts] == ["peak 100 GFLOP/s", "memory 20 GB/s"]


def small_graph() -> dict[str, plot.Box]:
    """A sum of one input and the exponential of another, then a ReLU."""
    return {
        "x": plot.Box("x", "outside"),
        "y": plot.Box("y", "outside"),
        "exp": plot.Box("exp", "stops", ["y"]),
        "add": plot.Box("add", "covered", ["x", "exp"]),
        "relu": plot.Box("relu", "covered", ["add"]),
    }


KINDS = ["covered", "stops", "outside"]


def test_a_graph_flows_down_and_its_side_branches_stand_at_the_right() -> None:
    (axes,) = plot.graphs({"sum": small_graph()}, kinds=KINDS).axes
    at = {text.get_text(): text.get_position() for text in axes.texts}
    column = {name: at[name][0] for name in small_graph()}
    row = {name: at[name][1] for name in small_graph()}
    assert row["relu"] < row["add"] < row["x"] == row["exp"] < row["y"]
    assert column["relu"] == column["add"] == column["x"] < column["exp"] == column["y"]
    arrows = [text for text in axes.texts if isinstance(text, Annotation)]
    ends = [(round(a.xyann[0]), round(a.xyann[1] + 0.31), round(a.xy[0])) for a in arrows]
    used = [("y", "exp"), ("x", "add"), ("exp", "add"), ("add", "relu")]
    assert ends == [(column[a], row[a], column[b]) for a, b in used]


def test_no_box_stands_on_another_nor_outside_the_figure() -> None:
    wide = {
        name: box._replace(label=f"qnn.{name}uantize\nfloat32")
        for name, box in small_graph().items()
    }
    del wide["relu"]
    # Two branches that want the same place: the second moves to the right.
    wide["z"] = plot.Box("constant\nint32", "outside")
    wide["zz"] = plot.Box("qnn.quantize\nint32", "outside", ["z"])
    wide["last"] = plot.Box("nn.bias_add\nint32", "outside", ["add", "zz"])
    fig = plot.graphs({"one": wide, "two": wide}, kinds=KINDS)
    drawn(fig)
    (axes,) = fig.axes
    texts = [text for text in axes.texts if text.get_text()]
    boxes = [(text.get_bbox_patch() or text).get_window_extent() for text in texts]
    for number, box in enumerate(boxes):
        assert not box.count_overlaps(boxes[number + 1 :])
        assert fig.bbox.containsx(box.x0)
        assert fig.bbox.containsx(box.x1)
        assert fig.bbox.containsy(box.y0)
        assert fig.bbox.containsy(box.y1)
