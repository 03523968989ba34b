"""Count the models that tvmlab imports and runs correctly, and write docs/scoreboard.md.

    make scoreboard                                # all: ONNX's backend tests, and networks
    make scoreboard ARGS="--groups node simple"    # these groups; other results are kept
    make scoreboard ARGS="--only 'test_lstm*'"     # print the results of these tests
    make scoreboard ARGS="--relay-tests FOLDER"    # Relay's own tests too, of TVM 0.18's sources

Every case runs in a child process, so that a crash or a hang costs only this case. The networks
are those of networks.py, which needs the packages of requirements-networks.txt.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import importlib.util
import itertools
import json
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

# TVM reads them when it starts its threads: one per worker, on any processor.
os.environ.update(TVM_NUM_THREADS="1", TVM_BIND_THREADS="0")

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["ONNX_MODELS"] = str(ROOT / "build" / "onnx")  # ONNX's runner makes folders there

from tests.oracles.onnx_backend import ONNX, Different, Model, backend_tests, onnx_graph, shape_like  # noqa: E402

PAGE = ROOT / "docs" / "scoreboard.md"
RECORD = ROOT / "tests" / "data" / "scoreboard.txt"
RESULTS = ROOT / "build" / "scoreboard.json"
GROUPS = (*ONNX, "networks")
STATUSES = ("right", "refused", "wrong", "failed", "crashed", "hung")
LIMIT = 200  # seconds of processor time for a case


class Case(NamedTuple):
    """A test in one form on one side, with its first operator and its result."""

    group: str
    name: str
    form: str
    side: str
    operator: str = ""
    status: str = ""
    reason: str = ""


# Cases in child processes


def run_network(case: Case) -> None:
    """Run a network and compare it with PyTorch."""
    import torch
    from networks import CLOSE, difference

    torch.set_num_threads(1)
    if not difference(case.name, onnx=case.form == "onnx") <= CLOSE:
        raise Different("the outputs are not PyTorch's")


def run(case: Case) -> Case:
    """Return a case with its status, and with the reason if it is not right."""
    from tvmlab.errors import TvmlabError

    Model.form, Model.side = case.form, case.side
    try:
        if case.group == "networks":
            run_network(case)
        else:
            backend_tests()[case.group][case.name](None)
    except Different as error:
        status, reason = "wrong", differing(str(error))
    except TvmlabError as error:
        status, reason = "refused", error.what
    except Exception as error:
        status = "refused" if case.side == "upstream" else "failed"
        reason = f"{type(error).__name__}: {error}"
    else:
        return case._replace(status="right")
    return case._replace(status=status, reason=short(reason))


def short(text: str) -> str:
    """Return a message in one line, without paths and addresses."""
    text = re.sub(r"0x[0-9a-f]+|(?<![\w.])/[\w./+-]+", "...", " ".join(text.split()))
    return text if len(text) <= 200 else f"{text[:197]}..."


def differing(text: str) -> str:
    """Return how results differ, without values, which can vary from run to run."""
    for pattern, words in (
        (r"incorrect shape", "another shape"),
        (r"ACTUAL: dtype\('(.+)'\) DESIRED: dtype\('(.+)'\)", r"\1, not \2"),
        (r"(\w+) location mismatch", r"\1 in other places"),
        (r"Mismatched elements: (\d+) / (\d+)", r"\1 of \2 values differ"),
    ):
        if found := re.search(pattern, text):
            return found.expand(words)
    return text


def serve(connection: Connection, folder: str) -> None:
    """Run the cases that the parent sends; ONNX's runner writes files into the folder."""
    os.environ["ONNX_MODELS"] = f"{folder}/{os.getpid()}"
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    while True:
        # The signals end the process, even inside a kernel.
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        signal.alarm(10 * LIMIT)
        if (case := connection.recv()) is None:
            break
        connection.send(run(case))


class Worker:
    """A child process, forked after the imports and before the first kernel."""

    def __init__(self, folder: str) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, folder), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, case: Case) -> None:
        """Start a case."""
        self.case = case
        self.connection.send(case)

    def take(self) -> Case:
        """Return the result of the case; if the process ended, say how."""
        try:
            return self.connection.recv()
        except EOFError:
            self.process.join()
        code = self.process.exitcode or 0
        if -code in (signal.SIGALRM, signal.SIGPROF):
            return self.case._replace(status="hung", reason=f"more than {LIMIT} seconds")
        reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return self.case._replace(status="crashed", reason=reason)


def run_all(cases: Sequence[Case], jobs: int) -> Iterator[Case]:
    """Run cases in `jobs` processes, and yield each as it ends."""
    from tvm.relax.frontend.onnx import from_onnx

    import tvmlab

    # The workers inherit the tests, and what these imports load.
    backend_tests()
    assert all(map(callable, (from_onnx, tvmlab.load, tvmlab.compile)))
    todo, busy = list(reversed(cases)), {}
    idle: list[Worker] = []
    with tempfile.TemporaryDirectory() as folder:
        while todo or busy:
            while todo and len(busy) < jobs:
                worker = idle.pop() if idle else Worker(folder)
                worker.give(todo.pop())
                busy[worker.connection] = worker
            for connection in wait(list(busy)):
                worker = busy.pop(connection)
                yield worker.take()
                if worker.process.exitcode is None:
                    idle.append(worker)
        for worker in idle:
            worker.connection.send(None)
            worker.process.join()


def select(groups: Iterable[str], only: Sequence[str]) -> Iterator[Case]:
    """Yield the cases of some groups in a stable order; `only` are patterns of names."""
    for group in groups:
        if group == "networks":
            from networks import NETWORKS as tests
        else:
            tests = backend_tests()[group]
        for name in sorted(tests):
            if only and not any(fnmatch.fnmatch(name, pattern) for pattern in only):
                continue
            if group == "networks":
                yield from (Case(group, name, form, "tvmlab") for form in ("export", "onnx"))
                continue
            graph = onnx_graph(group, name)
            forms = ("given", "bound") if shape_like(graph) else ("given",)
            for form, side in itertools.product(forms, ("tvmlab", "upstream")):
                yield Case(group, name, form, side, graph.node[0].op_type)


def relay_tests(folder: Path) -> Iterator[Case]:
    """Run Relay's own tests, each file in a process."""
    for path in sorted(folder.rglob("test_*.py")):
        file = Case("relay", path.relative_to(folder).as_posix(), "", "tvmlab")
        with tempfile.NamedTemporaryFile() as junit:
            command = [sys.executable, "-m", "tvmlab.relay", "-m", "pytest", str(path), "-q"]
            subprocess.run([*command, f"--junitxml={junit.name}"], capture_output=True, check=False)
            text = Path(junit.name).read_text(encoding="utf-8")
        if not text:
            yield file._replace(status="crashed", reason="pytest did not finish")
            continue
        for number, test in enumerate(ElementTree.fromstring(text).iter("testcase")):
            case = file._replace(operator=str(number))
            bad = [child for child in test if child.tag in ("failure", "error")]
            reason = bad[0].get("message", "") if bad else ""
            kind = "refused" if reason.startswith("tvmlab.") else "failed"
            if test.find("skipped") is None:
                yield case._replace(status=kind if bad else "right", reason=short(reason))


# The page and the record


def counts(cases: Iterable[Case]) -> str:
    """Return the columns with the number of cases with each status."""
    found = collections.Counter(case.status for case in cases)
    return " | ".join(str(found[status]) for status in STATUSES)


def plain(text: str) -> str:
    """Escape the characters that have a meaning in Markdown."""
    return re.sub(r"([\\`*_\[\]<>|{}#$~^])", r"\\\1", text)


def tables(results: Iterable[Case]) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each table of the page, and its rows."""
    by: dict[tuple[str, ...], list[Case]] = collections.defaultdict(list)
    for case in results:
        by[case.group, case.form, case.side].append(case)
        by[case.group, case.form, case.side, case.operator].append(case)
        by[case.group,].append(case)

    def right(*key: str) -> str:
        return f"{sum(r.status == 'right' for r in by[key])} of {len(by[key])}" if by[key] else ""

    keys = sorted({key for key in by if len(key) == 3})
    rows = [f"| {' | '.join(key)} | {counts(by[key])} |" for key in keys]
    yield "groups", rows
    rows = []
    for name in sorted({case.operator for case in by["node",]}):
        cells = [
            right("node", f, s, name) for f in ("given", "bound") for s in ("tvmlab", "upstream")
        ]
        ours = [by["node", form, "tvmlab", name] for form in ("given", "bound")]
        said = {f"{case.status}: {case.reason}" for case in itertools.chain(*ours) if case.reason}
        rows.append(f"| {name} | {' | '.join(cells)} | {plain('; '.join(sorted(said)))} |")
    yield "operators", rows
    rows = []
    for case in sorted(itertools.chain(*(by[group,] for group in ("networks", *list(ONNX)[1:])))):
        if case.side == "tvmlab":
            row = case.group, case.name, case.form, case.status, plain(case.reason)
            rows.append(f"| {' | '.join(row)} |")
    yield "networks", rows
    files = itertools.groupby(sorted(by["relay",]), lambda case: case.name)
    rows = [f"| {name} | {counts(tests)} |" for name, tests in files]
    yield "relay", rows or ["| The sources were not there for this run |||||||"]


def write(results: Sequence[Case]) -> None:
    """Write the rows into the page, and the record of tvmlab's results for `--check`."""
    page = PAGE.read_text(encoding="utf-8")
    for name, rows in tables(results):
        pattern = rf"(\| *{name} [^\n]*\n\|-[^\n]*\n)(?:\|[^\n]*\n)*"
        text = "".join(f"{row}\n" for row in rows)
        page = re.sub(pattern, lambda found, text=text: found[1] + text, page, flags=re.I)
    PAGE.write_text(page, encoding="utf-8")
    ours = (case for case in results if case.side == "tvmlab" and case.group != "relay")
    lines = [f"{case.group} {case.name} {case.form} {case.status}\n" for case in ours]
    RECORD.write_text("".join(lines), encoding="utf-8")


def check(record: Path, jobs: int, everything: bool) -> int:
    """Run ONNX's cases of a record, or a tenth of them; return 1 if one is worse than recorded.

    A right case must stay right, and a refused case can only become right.
    """
    groups, step = (list(ONNX), 1) if everything else (list(ONNX)[:4], 10)
    rows = [line.split() for line in record.read_text(encoding="utf-8").splitlines()]
    chosen = []
    for status in ("right", "refused"):
        same = [row for row in rows if row[0] in groups and row[3] == status]
        chosen += [Case(*row[:3], "tvmlab", "", status) for row in same[::step]]
    expected = {case[:4]: case.status for case in chosen}
    worse = [
        f"{' '.join(case[:3])}: {expected[case[:4]]}, now {case.status}: {case.reason}"
        for case in run_all(chosen, jobs)
        if case.status not in ("right", expected[case[:4]])
    ]
    print(*worse, f"{len(chosen)} cases, {len(worse)} worse than recorded", sep="\n")
    return 1 if worse else 0


def main() -> int:
    """Run the command; see the module's documentation."""
    parser = argparse.ArgumentParser(description="Write docs/scoreboard.md.")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, help="default: all that can run")
    parser.add_argument("--only", nargs="+", default=(), metavar="PATTERN", help="names of tests")
    parser.add_argument("--side", choices=("tvmlab", "upstream"), help="default: both")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--relay-tests", type=Path, metavar="FOLDER")
    parser.add_argument("--check", type=Path, metavar="RECORD", help="find regressions in a tenth")
    parser.add_argument("--all", action="store_true", help="check all of ONNX's cases")
    options = parser.parse_args()
    if options.check:
        return check(options.check, options.jobs, options.all)
    networks = importlib.util.find_spec("torchvision")
    groups = options.groups or (GROUPS if networks else list(ONNX))
    chosen = [c for c in select(groups, options.only) if options.side in (None, c.side)]
    results = []
    for case in run_all(chosen, options.jobs):
        results.append(case)
        print(f"{len(results)} of {len(chosen)}:", *case, flush=True)
    if options.only:
        return 0
    results += relay_tests(options.relay_tests) if options.relay_tests else []
    done = {(case.group, case.side) for case in results}
    earlier = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    results += [Case(*row) for row in earlier if (row[0], row[3]) not in done]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(sorted(results), indent=0), encoding="utf-8")
    write(sorted(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
