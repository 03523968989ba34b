"""Tuning: better schedules found by measuring, and records of them that last.

`tune` searches a module's functions and writes what it measures to a file of records;
`tvmlab.compile(mod, records=...)` takes the best from it. The parts can be had one by one: `tasks`
file, `merge`, `best_of`, `export_database` and `import_database` carry records elsewhere.
"""

from .database import best_of, export_database, import_database, merge
from .extract import tasks
from .local import LocalMeasurer
from .measure import Measure, Measurer, Outcome
from .records import Records
from .remote import RemoteMeasurer
from .report import Report, TaskReport
from .result import Result
from .session import tune, tune_tasks
from .task import Task, Variant
from .traces import replay
from .tuners import TUNERS
from .workloads import workload_id

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
