"""What `make bench` prints and writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bench as script
import bench_report
import bench_sections
import bench_tuned
import pytest
from bench_race import ChildError
from bench_report import BARS, Bar
from bench_sections import SECTIONS, Effort, Found, plan
from helpers_short import long

from tvmlab import models

RATIO = "digits_resnet: ours / ONNX Runtime"
SHARE = "resnet50_v2: a convolution's share of the peak, median"


@pytest.mark.parametrize(
    ("bar", "value", "met"),
    [
        (Bar(1, 0.7), 0.7, "aim"), (Bar(1, 0.7), 0.71, "bar"), (Bar(1, 0.7), 1, "bar"),
        (Bar(1, 0.7), 1.01, "no"), (Bar(1e-4), 0, "bar"), (Bar(1e-4), float("nan"), "no"),
        (Bar(0.75, 0.9, more=True), 0.9, "aim"), (Bar(0.75, 0.9, more=True), 0.8, "bar"),
        (Bar(0.75, 0.9, more=True), 0.74, "no"), (Bar(0.75, 0.9, more=True), float("nan"), "no"),
    ],
)  # fmt: skip
def test_a_bar_is_met_or_not(bar: Bar, value: float, met: str) -> None:
    assert bar.met(value) == met


def test_an_aim_is_never_easier_than_its_bar() -> None:
    for bar in BARS.values():
        assert bar.aim is None or (bar.aim > bar.bar) == bar.more


def test_the_table() -> None:
    rows = bench_report.verdicts({RATIO: 1.234567, SHARE: 0.8, "another": 3.0})
    lines = bench_report.table(rows).splitlines()
    assert [line.split("  ")[0] for line in lines[:4]] == ["measure", RATIO, SHARE, "another"]
    assert [line.split()[-5:] for line in lines[:3]] == [
        ["measure", "value", "bar", "aim", "met?"],
        ["<=", "1", "<=", "0.7", "no"],
        [">=", "0.75", ">=", "0.9", "bar"],
    ]
    assert lines[3].split() == ["another", "3"]
    assert lines[4:] == [
        "",
        f"missed: {RATIO}",
        f"not measured: {len(BARS) - 2} of {len(BARS)} bars",
    ]
    # Columns stand below each other.
    assert lines[1].index(" no") == lines[2].index("bar") == lines[0].index("met?") + 1


def test_all_is_well() -> None:
    rows = bench_report.verdicts({name: bar.bar for name, bar in BARS.items()})
    assert bench_report.table(rows).endswith("\n\nno measured bar is missed")


def test_the_plan() -> None:
    everything = plan(list(SECTIONS), [])
    assert everything[:4] == [("networks", name) for name in bench_sections.NETWORKS]
    assert everything[4:] == [(section, "resnet50_v2") for section in list(SECTIONS)[1:]]
    assert plan(["batch"], ["digits_resnet"]) == [("batch", "digits_resnet")]
    assert plan(["compile", "networks"], ["digits_resnet", "resnet18_v2"]) == [
        ("networks", "resnet18_v2"),
        ("networks", "digits_resnet"),
        ("compile", "resnet18_v2"),
    ]


def test_every_bar_is_measured_by_some_section() -> None:
    """A bar whose name no section writes would never be reported as missed."""
    texts = (bench_report.RATIO, bench_report.ERROR), (bench_report.SHARE,)
    texts += (bench_report.COMPILE,), (bench_report.MEMORY,), (bench_report.BATCH,)
    relay = [getattr(bench_report, name) for name in vars(bench_report) if name[:6] == "RELAY_"]
    texts += (relay, (bench_report.QUANTIZED_RATIO, bench_report.QUANTIZED_GAIN))
    texts += (bench_report.TUNING,), (bench_report.RECORDS,)
    texts += ([bench_report.PRODUCT.format(size) for size in bench_tuned.SIZES],)
    texts += ((bench_report.PROFILE, bench_report.ROWS),)
    texts += ((bench_report.COMMAND, bench_report.COMMAND_COMPILES),)
    measured = {
        text.format(name)
        for section, name in plan(list(SECTIONS), [])
        for text in dict(zip(SECTIONS, texts, strict=True))[section]
    }
    assert set(BARS) == measured


def test_a_section_that_fails_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_name: str, _effort: Effort) -> Found:
        raise ChildError("tvmlab ended: SIGSEGV\n    the last words", where="the process of tvmlab")

    def measures(name: str, effort: Effort) -> Found:
        assert effort == script.QUICK
        return Found({f"{name}: ours / ONNX Runtime": 2.0}, {"work": 5}, 3e11)

    monkeypatch.setitem(SECTIONS, "convolutions", fails)
    monkeypatch.setitem(SECTIONS, "networks", measures)
    output = tmp_path / "new" / "bench.json"
    arguments = ["digits_resnet", "--sections", "networks,convolutions", "--quick"]
    assert script.main([*arguments, "--output", str(output)]) == 1
    report: dict[str, Any] = json.loads(output.read_text())
    assert report["networks"]["digits_resnet"]["work"] == 5
    assert report["peak_flops"] == 3e11
    assert report["quick"] is True
    assert report["threads"] == report["target"]["num-cores"]
    assert report["measures"][0] == {
        "measure": RATIO, "value": 2.0, "bar": 1.0, "aim": 0.7, "more": False, "met": "no",
    }  # fmt: skip
    [failure] = report["failures"]
    assert failure.startswith("convolutions, digits_resnet: tvmlab ended: SIGSEGV")
    said = capsys.readouterr()
    assert "the last words" in said.err
    assert f"missed: {RATIO}" in said.out
    assert "the machine's peak: 300 GFLOP/s" in said.out
    assert said.out.splitlines()[-1] == "failed: " + failure.splitlines()[0]
    monkeypatch.setitem(SECTIONS, "convolutions", measures)
    assert script.main([*arguments, "--output", str(output)]) == 0  # a missed bar is no failure


@pytest.mark.parametrize("arguments", [["resnet51"], ["--sections", "networks,nothing"]])
def test_a_name_that_is_unknown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        script.main(arguments)
    assert caught.value.code == 2
    assert "there are " in capsys.readouterr().err


@long
def test_the_digits_go_through_the_sections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real processes: PyTorch's compiler alone is left out, which takes half a minute."""
    monkeypatch.setattr(script, "QUICK", Effort(rounds=1, budget=1))
    output = tmp_path / "bench.json"
    arguments = ["digits_resnet", "--sections", "memory,batch", "--quick", "--output", str(output)]
    assert script.main(arguments) == 0
    report = json.loads(output.read_text())
    names = [row["measure"] for row in report["measures"]]
    assert names == [
        "digits_resnet: memory of the running model / weights",
        "digits_resnet: time per image, batch 16 / batch 1",
    ]
    running, batch = (row["value"] for row in report["measures"])
    assert running >= 0  # what loading has left over can be all that running needs
    assert batch > 0
    memory = report["memory"]["digits_resnet"]
    assert memory["weight_bytes"] == 4 * models.digits_resnet().parameter_count
    # A third of a megabyte is less than what the allocator has at hand.
    assert memory["bytes"]["loading"] > 0
    runs = report["batch"]["digits_resnet"]["runs"]
    assert set(runs) == {
        f"{rival}, batch {size}" for rival in ("tvmlab", "ONNX Runtime") for size in (1, 16)
    }
