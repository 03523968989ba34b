"""Which of many results and verdicts hold, and which of those decides."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import tvm

import tvmlab

from .result import Result, target_data
from .verdict import Verdict

__all__ = ["Fitting", "fastest", "fits", "newest"]

_Entry = TypeVar("_Entry", Result, Verdict)


def newest(verdicts: Iterable[Verdict]) -> Verdict | None:
    """Take the last word: by date, for files that were merged are not in order."""
    return max(reversed(list(verdicts)), key=lambda verdict: verdict.date, default=None)


def fastest(results: Iterable[Result]) -> Result | None:
    """Choose among a function's results for one target where no verdict is recorded.

    Parameters
    ----------
    results : iterable of Result
        Of one function.

    Returns
    -------
    Result or None
        The fastest of those that were imported. Of what is measured here, the fastest of many is
        the one that noise favoured the most: it has to meet the rule first.
    """
    imported = [result for result in results if result.times and not result.how]
    return min(imported, key=lambda result: result.seconds, default=None)


def fits(entry: Result | Verdict, target: tvm.target.Target) -> str:
    """Say why an entry does not hold for a target; empty where it does.

    Parameters
    ----------
    entry : Result or Verdict
        From a file.
    target : tvm.target.Target
        What is to be compiled for.

    Returns
    -------
    str
        The kind, the architecture, the processor, its features or the number of cores differ, or
        the version of TVM; of a verdict the version of tvmlab too, since the rules that lost to it
        may have changed. A number of cores that is not said on one side differs from none.
    """
    if entry.tvm != tvm.__version__:
        return f"made with TVM {entry.tvm[:40]}, and this is {tvm.__version__}"
    if isinstance(entry, Verdict) and entry.tvmlab != tvmlab.__version__:
        return f"made with tvmlab {entry.tvmlab[:40]}, and this is {tvmlab.__version__}"
    theirs, ours = _about(entry.target), _about(target_data(target))
    for name, mine in ours.items():
        if theirs[name] != mine and not (name == "num-cores" and None in (theirs[name], mine)):
            return f"made for {name} {str(theirs[name])[:80] or 'none'}, not {mine or 'none'}"
    return ""


def _about(target: Mapping[str, Any]) -> dict[str, Any]:
    """Take what a schedule depends on."""
    triple = str(target.get("mtriple") or tvm.get_global_func("target.llvm_get_system_triple")())
    features = target.get("mattr") or []
    return {
        "kind": target.get("kind"),
        "architecture": triple.partition("-")[0],
        "mcpu": str(target.get("mcpu", "")),
        "mattr": ",".join(sorted(map(str, features if isinstance(features, list) else [features]))),
        "num-cores": target.get("num-cores"),
    }


class Fitting:
    """Which entries hold for a target, asked once for all that are alike."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[Any, ...], str] = {}

    def take(self, entries: Iterable[_Entry], target: tvm.target.Target) -> list[_Entry]:
        """Take those that hold."""
        return [entry for entry in entries if not self.reason(entry, target)]

    def reason(self, entry: Result | Verdict, target: tvm.target.Target) -> str:
        """Say why one does not hold, in the words of `fits`."""
        made = json.dumps(entry.target, sort_keys=True)
        key = (type(entry), entry.tvm, entry.tvmlab, made, str(target))
        if key not in self._reasons:
            self._reasons[key] = fits(entry, target)
        return self._reasons[key]
