"""`make bench`: its processes, what they measure, its report, and README's block."""

from __future__ import annotations

import json
import os
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import bench as script
import bench_harness as harness
import numpy as np
import pytest
import readme
from bench import CANDIDATES, SECTIONS
from bench_harness import Process

from tests.short import long

RATIO = "digits_resnet: ours / ONNX Runtime"
SHARE = "resnet50_v2: a direct convolution's share of the peak, median"


def test_a_process_runs_jobs_and_is_named_in_errors() -> None:
    with Process("ResNet on the moon") as process:
        assert process.do(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError) as caught:
            process.do(divmod, 1, 0)
        assert caught.value.__notes__ == ["in the process of ResNet on the moon, at divmod"]
        assert process.do(os.getpid) == process.pid  # it lives
        with pytest.raises(BrokenProcessPool) as ended:
            process.do(os.abort)
        assert "ResNet on the moon" in ended.value.__notes__[0]


# OpenVINO takes part where it is installed; PyTorch's compiler takes half a minute.
OTHERS = [
    (form, runtime)
    for form, runtimes in CANDIDATES.items()
    for runtime in runtimes
    if runtime not in ("PyTorch compiled", "OpenVINO")
]


@pytest.mark.parametrize(("form", "runtime"), OTHERS)
def test_every_candidate_computes_the_same(form: str, runtime: str, tmp_path: Path) -> None:
    own = "float32" if runtime == "tvmlab float32" else form
    kind = "tflite" if "tflite" in form else "onnx"
    file = harness.write("digits_resnet", own, 1, tmp_path / f"model.{kind}")
    other = harness.write("digits_resnet", form, 1, tmp_path / f"reference.{kind}")
    result, expected = (
        script.ready(each, model)[0]
        for each, model in ((runtime, file), (CANDIDATES[form][-1], other))
    )
    assert result.dtype == expected.dtype
    error = np.abs(result.astype(float) - expected).max() / np.abs(expected.astype(float)).max()
    assert error < (1e-4 if form == "float32" else 0.1)


def test_the_table_says_what_is_missed() -> None:
    lines = harness.table({RATIO: 1.234567, SHARE: 0.8, "another": 3.0}).splitlines()
    assert [line.split("  ")[0] for line in lines[:4]] == ["measure", RATIO, SHARE, "another"]
    assert lines[1].split()[-4:] == ["1.23", "<=", "1", "missed"]
    assert lines[2].split()[-4:] == ["0.8", ">=", "0.75", "yes"]
    bars = len(harness.BARS)
    assert lines[4:] == ["", f"missed: {RATIO}", f"not measured: {bars - 2} of {bars} bars"]


@pytest.mark.parametrize("language", ["en", "zh_CN"])
def test_the_block_of_readme(language: str) -> None:
    report = {
        "commit": "abc1234", "date": "2026-11-23", "cpu": "A processor", "mcpu": "znver4",
        "threads": 2, "onnxruntime_threads": 0, "versions": {"torch": "2.13.0"},
        "quick": False, "values": {SHARE: 0.8},
        "noise": {"networks, a": 0.2, "tuning, a": 0.9},
        "races": {"a, float32": {
            "tvmlab": {"ms": 1.0}, "ONNX Runtime": {"ms": 2.0},
            "OpenVINO": {"absent": "not installed (...)"},
        }},
    }  # fmt: skip
    text = readme.block(harness.quoted(report), language)
    for fact in ("abc1234", "A processor", "znver4", "`intra_op_num_threads=0`", "torch", "20%"):
        assert fact in text
    (line,) = [line for line in text.splitlines() if line.startswith("| a, float32")]
    absent = {"en": "not installed", "zh_CN": "未安装"}[language]
    assert line == f"| a, float32 | 1 | 2 | {absent} | 0.50 |"
    assert "LiteRT |" not in text  # it took no part
    assert f"| {SHARE} | 0.8 | >= 0.75 |" in text


@pytest.mark.parametrize(("noise", "quick"), [(0.3, False), (0.0, True)])
def test_noisy_and_quick_figures_are_not_quoted(
    noise: float, quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    output, quoted = tmp_path / "bench.json", tmp_path / "quoted.json"
    monkeypatch.setattr(readme, "MEASURED", quoted)
    data = {"taken_by_others": noise, "quick": quick}
    monkeypatch.setattr(harness, "quoted", lambda _report: data)
    output.write_text("{}")
    assert script.main(["--readme", "--output", str(output)]) == 1
    assert "not quoted" in capsys.readouterr().out
    assert not quoted.exists()


def test_a_section_that_fails_is_reported_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_name: str, _rounds: int) -> script.Found:
        raise ValueError("the last words")

    def measures(_name: str, rounds: int) -> script.Found:
        assert rounds == script.QUICK_ROUNDS
        return {RATIO: 2.0, "digits_resnet, float32": {"tvmlab": {"ms": 5}}}

    monkeypatch.setitem(SECTIONS, "convolutions", fails)
    monkeypatch.setitem(SECTIONS, "networks", measures)
    facts = harness.machine() | {"commit": "abc1234"}
    monkeypatch.setattr(harness, "machine", lambda: dict(facts))
    output = tmp_path / "new" / "bench.json"
    arguments = ["digits_resnet", "--quick", "--output", str(output), "--sections"]
    assert script.main([*arguments, "networks,convolutions"]) == 1
    report: dict[str, Any] = json.loads(output.read_text())
    assert report["races"] == {"digits_resnet, float32": {"tvmlab": {"ms": 5}}}
    assert report["failures"] == ["convolutions, digits_resnet: the last words"]
    said = capsys.readouterr()
    assert "takes and returns NumPy arrays" in said.out
    assert f"missed: {RATIO}" in said.out
    assert said.out.splitlines()[-1] == "failed: convolutions, digits_resnet: the last words"
    # Another section of the same commit joins what was measured; a missed bar is no failure.
    monkeypatch.setitem(SECTIONS, "convolutions", lambda _name, _rounds: {SHARE: 0.8})
    assert script.main([*arguments, "convolutions"]) == 0
    report = json.loads(output.read_text())
    assert report["values"] == {RATIO: 2.0, SHARE: 0.8}
    facts["commit"] = "def5678"
    assert script.main([*arguments, "convolutions"]) == 0
    assert json.loads(output.read_text())["values"] == {SHARE: 0.8}


@long
def test_the_digits_go_through_the_sections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real processes: PyTorch's compiler alone is left out, which takes half a minute."""
    chosen = {
        form: tuple(each for each in some if each != "PyTorch compiled")
        for form, some in CANDIDATES.items()
    }
    monkeypatch.setattr(script, "CANDIDATES", chosen)
    monkeypatch.setattr(script, "QUICK_ROUNDS", 1)
    output = tmp_path / "bench.json"
    sections = "networks,int8,tflite,compile,memory,batch,profiling"
    arguments = ["digits_resnet", "--sections", sections, "--quick", "--output", str(output)]
    assert script.main(arguments) == 0
    report = json.loads(output.read_text())
    values = report["values"]
    assert values["digits_resnet: relative error"] < 1e-4
    assert values["resnet8 tflite int8: ours / LiteRT"] > 0
    assert values["digits_resnet int8: ours / ONNX Runtime"] > 0
    assert values["digits_resnet: memory of the running model / weights"] > 0
    assert set(harness.quoted(report)["races"]) == {
        "digits_resnet, float32", "digits_resnet, int8", "resnet8, tflite int8",
    }  # fmt: skip
