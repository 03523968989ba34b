"""Record files put together, thinned out, and exchanged with MetaSchedule."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tvm.s_tir import meta_schedule

from tests.records import records as helpers
from tests.records.records import MODULE, OTHER, TARGET, result, verdict
from tvmlab.errors import RecordError
from tvmlab.records.database import best_of, export_database, import_database, merge
from tvmlab.records.records import Records
from tvmlab.records.result import target_data
from tvmlab.records.traces import replay


@pytest.fixture
def filled(tmp_path):
    path = tmp_path / "filled.jsonl"
    helpers.fill(path)
    return path


@pytest.fixture
def exported(filled, tmp_path):
    records = Records(filled)
    records.workload(MODULE)  # read here, so that no process is needed for it
    folder = tmp_path / "database"
    return folder, export_database(records, folder)


def test_merging_takes_every_line_once(filled, tmp_path):
    second, into = tmp_path / "second", tmp_path / "into"
    Records(second).append(result(seed=5))
    Records(second).append(verdict("another"))
    count = len(filled.read_bytes().splitlines())
    assert merge([filled, second], into) == count + 2
    assert merge([second, filled, into], into) == 0
    merged = Records(into)
    assert len(merged) == len(Records(filled)) + 1
    assert len(merged.verdicts) == 2
    assert merge([second], filled) == 2
    assert len(Records(filled)) == len(merged)


def test_what_is_newer_holds_in_whatever_order_files_are_merged(tmp_path):
    old, new, into = (tmp_path / name for name in ("old", "new", "into"))
    dates = "2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00.5+00:00"
    for path, date in zip((old, new), dates, strict=True):
        Records(path).append(verdict(date=date))
    merge([new, old], into)
    assert Records(into).best("w", TARGET).date == dates[1]


def test_merging_needs_files_of_records(filled, tmp_path):
    with pytest.raises(RecordError, match="there is no such file"):
        merge([filled, tmp_path / "missing"], tmp_path / "into")
    note = tmp_path / "note"
    note.write_text("hello\n")
    for paths, into in (([note], tmp_path / "into"), ([filled], note)):
        with pytest.raises(RecordError, match="this is no file of tuning records"):
            merge(paths, into)
    with pytest.raises(RecordError, match="this is no file of tuning records"):
        best_of(filled, note)
    assert note.read_text() == "hello\n"


def test_the_best_of_a_file_decides_as_the_file_does(filled, tmp_path):
    records = Records(filled)
    (name,) = records.workloads
    records.append(verdict("lost"))
    records.append(verdict("lost", trace=None))
    records.append(result("rule", origin="rule", how="warm"))
    records.append(result("free", times=(2.0,), seed=1))
    records.append(result("free", times=(1.0,), seed=2))
    records.append(result("free", target=target_data(OTHER), seed=3))
    records.append(verdict("own", workload="packed", layout="4x16"))
    into = tmp_path / "best"
    assert best_of(filled, into) == 5
    before, after = Records(filled, mixed=True), Records(into, mixed=True)
    assert [one.function for one in after.verdicts] == [name, "lost", "own"]
    for workload in (name, "lost", "rule", "free", "own", "packed"):
        for target in (TARGET, OTHER):
            assert after.best(workload, target) == before.best(workload, target)
            assert after.verdict(workload, target) == before.verdict(workload, target)
    assert list(after.workloads) == [name]
    with pytest.warns(RuntimeWarning, match="2 of 3 results are left out: 2 times"):
        assert export_database(after, tmp_path / "database") == 1  # what was measured of the best
    with pytest.raises(RecordError, match="cannot be thinned out in place"):
        best_of(into, into)


def test_metaschedule_reads_what_is_exported(filled, exported):
    folder, count = exported
    worked = [one for one in Records(filled).results() if one.times]
    assert count == len(worked)
    database = meta_schedule.database.JSONDatabase(work_dir=str(folder))
    found = database.get_all_tuning_records()
    assert len(found) == count
    times = sorted(min(map(float, one.run_secs)) for one in found)
    np.testing.assert_allclose(times, sorted(min(one.times) for one in worked))
    best = database.query_schedule(found[0].workload.mod, TARGET, "main")
    expected = helpers.run(MODULE)
    np.testing.assert_allclose(helpers.run(best.mod), expected, rtol=1e-4, atol=1e-4)


def test_an_exported_database_is_not_overwritten(filled, exported):
    folder, _ = exported
    with pytest.raises(RecordError, match="holds a database of MetaSchedule's already"):
        export_database(Records(filled), folder)


def test_what_is_damaged_is_not_exported(filled, tmp_path):
    records = Records(filled)
    name = records.workload(MODULE)
    records.append(result(name, trace=[[["Explode", [], [], []]], []]))
    records.append(result(name, trace=helpers.traces()[0], target={"kind": "abacus"}))
    records.append(result("unknown"))
    with pytest.warns(RuntimeWarning, match="3 of 9 results are left out: 1 times: "):
        assert export_database(records, tmp_path / "database") == 6


def test_what_was_exported_comes_back(filled, exported, tmp_path):
    folder, count = exported
    into = tmp_path / "into"
    assert import_database(folder, into, TARGET) == count
    assert import_database(folder, into, TARGET) == 0
    before, after = Records(filled), Records(into)
    assert list(after.workloads) == list(before.workloads)
    (name,) = after.workloads
    worked = [one for one in before.results() if one.times]
    pairs = list(zip(worked, after.results(), strict=True))
    assert all(mine.trace == again.trace for mine, again in pairs)
    np.testing.assert_allclose(*zip(*((a.seconds, b.seconds) for a, b in pairs), strict=True))
    best = after.best(name, TARGET)
    assert best.seconds == min(one.seconds for one in after.results())
    assert replay(after.module(name), best.trace).mod is not None


def _tuned(path, change):
    """Change the lines of a database of MetaSchedule's."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_what_is_damaged_is_not_imported(exported, tmp_path):
    folder, count = exported

    def damage(lines):
        lines[0][0] = 99
        lines[1][1][1] = [1e10]
        lines[2][1][0][0][0][0] = "Explode"
        lines[3][1][2]["mcpu"] = "x86-64-v4"
        lines[4] = None

    _tuned(folder / "database_tuning_record.json", damage)
    with pytest.warns(RuntimeWarning, match=f"5 of {count} results are left out: 2 times: a line"):
        assert import_database(folder, tmp_path / "into", TARGET) == count - 5


def test_nothing_to_import_is_an_error(exported, tmp_path):
    folder, count = exported
    with pytest.raises(RecordError, match=f"none of {count} results of a database can be used"):
        import_database(folder, tmp_path / "into", OTHER)
    _tuned(folder / "database_workload.json", lambda lines: lines[0].__setitem__(1, "%%%"))
    with pytest.raises(RecordError, match="TVM cannot read a workload's text"):
        import_database(folder, tmp_path / "into", TARGET)
    assert not (tmp_path / "into").exists()
    with pytest.raises(RecordError, match="cannot be read: No such file"):
        import_database(tmp_path / "missing", tmp_path / "into", TARGET)
