"""Tuning: better schedules found by measuring, and records of them that last.

`tune` searches a module's functions and writes what it measures to a file of records;
`tvmlab.compile(mod, records=...)` takes from it what was decided. The parts can be had one by one:
`tasks` lists what there is to tune, `LocalMeasurer` and `RemoteMeasurer` time kernels,
`tune_tasks` searches, `Records` is the file, and `merge`, `best_of`, `export_database` and
`import_database` carry records elsewhere.
"""

from ..records.entries import Result, Verdict, replay, workload_id
from ..records.exchange import best_of, export_database, import_database, merge
from ..records.file import Records
from .extract import Task, Variant, tasks
from .kernels import Measure, Outcome
from .measurers import LocalMeasurer, Measurer, RemoteMeasurer
from .report import Report, TaskReport
from .search.model import TUNERS
from .session import tune, tune_tasks

__all__ = [
    "TUNERS",
    "LocalMeasurer",
    "Measure",
    "Measurer",
    "Outcome",
    "Records",
    "RemoteMeasurer",
    "Report",
    "Result",
    "Task",
    "TaskReport",
    "Variant",
    "Verdict",
    "best_of",
    "export_database",
    "import_database",
    "merge",
    "replay",
    "tasks",
    "tune",
    "tune_tasks",
    "workload_id",
]
