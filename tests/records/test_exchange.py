"""Record files put together, thinned out, and exchanged with MetaSchedule."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm
from tvm.s_tir import meta_schedule

from tests.records import records as helpers
from tests.records.records import MODULE, OTHER, TARGET, result, verdict
from tvmlab.errors import RecordError
from tvmlab.records.entries import replay, target_data
from tvmlab.records.exchange import best_of, export_database, import_database, merge
from tvmlab.records.file import Records


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


def test_merging_needs_files_of_records(filled, tmp_path):
    with pytest.raises(RecordError, match="there is no such file"):
        merge([filled, tmp_path / "missing"], tmp_path / "into")
    note = tmp_path / "note"
    note.write_text("hello\n")
    for paths, into in (([note], tmp_path / "into"), ([filled], note)):
        with pytest.raises(RecordError, match="this is not a file of tuning records"):
            merge(paths, into)
    with pytest.raises(RecordError, match="this is not a file of tuning records"):
        best_of(filled, note)
    assert note.read_text() == "hello\n"


def test_the_best_of_a_file_decides_as_the_file_does(filled, tmp_path):
    records = Records(filled)
    (name,) = records.workloads
    records.append(verdict("lost"))
    records.append(verdict("lost", trace=None))
    records.append(result("rule", origin="rule", how="warm"))
    records.append(verdict("lost", target=target_data(OTHER)))
    records.append(verdict("own", workload="packed", layout="4x16"))
    into = tmp_path / "best"
    assert best_of(filled, into) == 4
    before, after = Records(filled), Records(into)
    assert [one.function for one in after.verdicts] == [name, "lost", "lost", "own"]
    for workload in (name, "lost", "rule", "own", "packed"):
        for target in (TARGET, OTHER):
            assert after.best(workload, target) == before.best(workload, target)
            assert after.verdict(workload, target) == before.verdict(workload, target)
    assert list(after.workloads) == [name]


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


def test_what_was_exported_comes_back(filled, exported, tmp_path):
    folder, count = exported
    into = tmp_path / "into"
    assert import_database(folder, into, TARGET) == count
    assert import_database(folder, into, TARGET) == 0
    before, after = Records(filled), Records(into)
    assert list(after.workloads) == list(before.workloads)
    (name,) = after.workloads
    worked = [one for one in before.results() if one.times]
    worked.sort(key=lambda one: one.seconds)  # as MetaSchedule lists them
    pairs = list(zip(worked, after.results(), strict=True))
    assert all(mine.trace == again.trace for mine, again in pairs)
    np.testing.assert_allclose(*zip(*((a.seconds, b.seconds) for a, b in pairs), strict=True))
    best = after.best(name, TARGET)
    assert best.trace == min(after.results(), key=lambda one: one.seconds).trace
    assert replay(after.module(name), best.trace).mod is not None
    assert after.verdict(name, TARGET) == best


def test_what_cannot_be_used_is_not_imported(filled, exported, tmp_path):
    folder, count = exported
    lines = (folder / "database_tuning_record.json").read_text().splitlines()
    changed = [json.loads(line) for line in lines]
    changed[0][1][1] = [1e10]
    changed[1][1][2]["mcpu"] = "x86-64-v4"
    text = "".join(json.dumps(line) + "\n" for line in changed)
    (folder / "database_tuning_record.json").write_text(text)
    with pytest.warns(RuntimeWarning, match=f"2 of {count} results are left out: "):
        assert import_database(folder, tmp_path / "into", TARGET) == count - 2


def test_nothing_to_import_is_an_error(exported, tmp_path):
    folder, count = exported
    with pytest.raises(RecordError, match=f"none of {count} results of a database can be used"):
        import_database(folder, tmp_path / "into", tvm.target.Target("nvidia/nvidia-a100"))
    (folder / "database_workload.json").write_text("[1, 2\n")
    for path in (folder, tmp_path / "missing"):
        with pytest.raises(RecordError, match="a database of MetaSchedule's cannot be read"):
            import_database(path, tmp_path / "into", TARGET)
    assert not (tmp_path / "into").exists()
