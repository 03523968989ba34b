"""What `make bench` prints and writes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import bench as script
import bench_process
import bench_report
import bench_sections
import bench_work
import pytest
from bench_process import ChildError, Noise
from bench_report import BARS, Bar
from bench_sections import SECTIONS, Effort, Found
from helpers_short import long
from languages import ENGLISH, SIMPLIFIED

RATIO = "digits_resnet: ours / ONNX Runtime"
SHARE = "resnet50_v2: a direct convolution's share of the peak, median"


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
    everything = script.plan(list(SECTIONS), [])
    assert everything[:4] == [("networks", name) for name in bench_work.NETWORKS]
    assert everything[4:8] == [("int8", name) for name in bench_work.NETWORKS]
    assert everything[8:] == [(section, "resnet50_v2") for section in list(SECTIONS)[2:]]
    assert script.plan(["batch"], ["digits_resnet"]) == [("batch", "digits_resnet")]


def test_winograd_does_not_count_as_a_share_of_the_peak() -> None:
    """Direct convolutions are judged by what they execute, each as often as it occurs."""
    rows = [
        {"winograd": False, "of_peak": 0.5, "times": 3},
        {"winograd": False, "of_peak": 0.9, "times": 2},
        {"winograd": True, "of_peak": 1.6, "times": 9},
    ]
    name = "resnet50_v2"
    assert bench_sections.shares(name, rows) == {
        bench_report.SHARE.format(name): 0.5,
        bench_report.WINOGRAD.format(name): 1.6,
    }
    assert bench_report.SHARE.format(name) in BARS
    assert bench_report.WINOGRAD.format(name) not in BARS


@pytest.mark.parametrize(("number", "default"), [(0, True), (3, False)])
def test_the_heading_says_whether_a_number_of_threads_is_a_default(
    number: int, default: bool
) -> None:
    lines = bench_report.settings(3, number).splitlines()
    assert lines[0] == "3 threads for each candidate."
    assert f"intra_op_num_threads={number}" in lines[1]
    assert ("has its default" in lines[1]) == default
    assert max(map(len, lines)) <= 100


def test_a_runtime_that_is_not_installed_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    why = bench_sections.missing("OpenVINO")
    assert why == "not installed (pip install 'tvmlab[rivals]')"
    one = {"median_seconds": 1e-3, "spread": 0, "over": 1, "error": 0, "ready_seconds": 1}
    rows = {"ONNX Runtime": one, "OpenVINO": {"absent": why}}
    lines = bench_report.race_table("digits", rows, "ONNX Runtime").splitlines()
    assert lines[-1] == f"  OpenVINO: {why}"
    # Some runtimes use Winograd, so that a network's rate is no share of the peak.
    assert lines[0].endswith("effective GFLOP/s  over the peak")
    assert bench_sections.missing("tvmlab") == ""


@pytest.mark.parametrize("language", [ENGLISH, SIMPLIFIED], ids=lambda one: one.code)
def test_the_block_of_readme(language: Any) -> None:
    report = {
        "commit": "abc1234", "date": "2026-11-23", "cpu": "A processor", "mcpu": "znver4",
        "threads": 2, "onnxruntime_threads": 0, "versions": {"torch": "2.13.0"},
        "quick": False, "values": {SHARE: 0.8},
        "sections": {"networks": {"a": {
            "race": "a, float32", "taken_by_others": 0.2,
            "candidates": {
                "tvmlab": {"median_seconds": 1e-3},
                "ONNX Runtime": {"median_seconds": 2e-3},
                "OpenVINO": {"absent": "not installed (...)"},
            },
        }}},
    }  # fmt: skip
    text = bench_report.block(bench_report.quoted(report), language.code)
    for fact in (
        "abc1234",
        "A processor",
        "znver4",
        "2",
        "`intra_op_num_threads=0`",
        "torch 2.13.0",
        "20%",
    ):
        assert fact in text
    (line,) = [line for line in text.splitlines() if line.startswith("| a, float32")]
    absent = {"en": "not installed", "zh_CN": "未安装"}[language.code]
    assert line == f"| a, float32 | 1 | 2 | {absent} | 0.50 |"
    assert "LiteRT |" not in text  # it took no part
    assert f"| {SHARE} | 0.8 | >= 0.75 |" in text


def test_noisy_figures_are_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "OUTPUT", tmp_path / "bench.json")
    monkeypatch.setattr(script, "QUOTED", tmp_path / "quoted.json")
    monkeypatch.setattr(bench_report, "quoted", lambda _report: {"taken_by_others": 0.3})
    script.OUTPUT.write_text("{}")
    assert script.main(["--readme"]) == 1
    assert "30% of the machine" in capsys.readouterr().err
    assert not script.QUOTED.exists()


@pytest.mark.parametrize(
    ("busy", "own", "share"), [(5.0, 1.0, 0.2), (5.0, 6.0, 0.0), (99.0, 0.0, 1.0)]
)
def test_what_others_take(
    busy: float, own: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds on two processors."""
    now = {"seconds": 100.0, "busy": 7.0, "own": 3.0}
    monkeypatch.setattr(bench_process.time, "perf_counter", lambda: now["seconds"])
    monkeypatch.setattr(bench_process, "_busy_seconds", lambda: now["busy"])
    monkeypatch.setattr(bench_process.os, "times", lambda: (now["own"], 0, 0, 0, 0))
    monkeypatch.setattr(bench_process.os, "cpu_count", lambda: 2)
    noise = Noise()
    now.update(seconds=110.0, busy=7.0 + busy, own=3.0 + own)
    assert noise.share() == pytest.approx(share)


def test_a_section_that_fails_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_name: str, _effort: Effort) -> Found:
        raise ChildError("tvmlab ended: SIGSEGV\n    the last words", where="the process of tvmlab")

    def measures(_name: str, effort: Effort) -> Found:
        assert effort.quick
        return Found({RATIO: 2.0}, {"work": 5}, 3e11)

    monkeypatch.setitem(SECTIONS, "convolutions", fails)
    monkeypatch.setitem(SECTIONS, "networks", measures)
    monkeypatch.setattr(script, "_changed", lambda: False)
    output = tmp_path / "new" / "bench.json"
    arguments = ["digits_resnet", "--quick", "--output", str(output), "--sections"]
    assert script.main([*arguments, "networks,convolutions"]) == 1
    report: dict[str, Any] = json.loads(output.read_text())
    assert report["sections"]["networks"]["digits_resnet"]["work"] == 5
    assert report["peak_flops"] == 3e11
    assert report["measures"][0] == {
        "measure": RATIO, "value": 2.0, "bar": 1.0, "aim": 0.7, "more": False, "met": "no",
    }  # fmt: skip
    [failure] = report["failures"]
    assert failure.startswith("convolutions, digits_resnet: tvmlab ended: SIGSEGV")
    said = capsys.readouterr()
    threads = report["threads"], report["onnxruntime_threads"]
    assert bench_report.settings(*threads) in said.out
    assert "takes and returns NumPy arrays" in said.out
    assert "the last words" in said.err
    assert f"missed: {RATIO}" in said.out
    assert said.out.splitlines()[-1] == "failed: " + failure.splitlines()[0]
    # Another section of the same commit joins what was measured; a missed bar is no failure.
    monkeypatch.setitem(SECTIONS, "convolutions", lambda _name, _effort: Found({SHARE: 0.8}))
    assert script.main([*arguments, "convolutions"]) == 0
    report = json.loads(output.read_text())
    assert {row["measure"] for row in report["measures"]} == {RATIO, SHARE}
    assert set(report["sections"]) == {"networks", "convolutions"}


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
    candidates = {
        form: tuple(each for each in some if each != "PyTorch compiled")
        for form, some in bench_sections.CANDIDATES.items()
    }
    monkeypatch.setattr(bench_sections, "CANDIDATES", candidates)
    monkeypatch.setattr(script, "QUICK", Effort(rounds=1, budget=1))
    output = tmp_path / "bench.json"
    sections = "networks,int8,tflite,memory,batch"
    arguments = ["digits_resnet", "--sections", sections, "--quick", "--output", str(output)]
    assert script.main(arguments) == 0
    report = json.loads(output.read_text())
    values = {row["measure"]: row["value"] for row in report["measures"]}
    assert values[bench_report.ERROR.format("digits_resnet")] < 1e-4
    assert values["resnet8 tflite int8: ours / LiteRT"] > 0
    assert values["digits_resnet int8: ours / ONNX Runtime"] > 0
    assert set(bench_report.quoted(report)["races"]) == {
        "digits_resnet, float32", "digits_resnet, int8", "resnet8, tflite int8",
    }  # fmt: skip
