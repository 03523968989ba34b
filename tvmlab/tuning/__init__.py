"""Tuning: search better schedules by measuring them, and record the results in a file.

`tune` searches a module's functions and writes what it measures to a file of records;
`tvmlab.compile(mod, records=...)` uses the decisions in this file. You can also use the parts:
`tasks` lists the functions to tune, `LocalMeasurer` and `RemoteMeasurer` time kernels,
`tune_tasks` searches, `Records` is the file, and `merge`, `best_of`, `export_database` and
`import_database` copy records between files and to MetaSchedule.
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
