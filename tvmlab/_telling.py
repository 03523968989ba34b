"""Words for messages: what another library's error says in one line, and nouns with numbers."""

from __future__ import annotations

__all__ = ["several", "telling"]

_SCHEDULES = "Error message: "  # what TVM's errors of a schedule put before what is wrong


def several(number: int, noun: str) -> str:
    """Count things in words: "1 trial", "2 trials"."""
    return f"{number} {noun}{'s' * (number != 1)}"


def telling(error: BaseException) -> str:
    """Give the line of another library's error that says what went wrong.

    Parameters
    ----------
    error : BaseException
        What was raised. TVM says first what is wrong, then may print the call, the module, or that
        it left metadata out; of a schedule it prints the module before it says so; where there is a
        traceback in the text, the last line says it.

    Returns
    -------
    str
        One line, with the operator that TVM calls offending; the error's class if it says nothing.
    """
    lines = [line.strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        return type(error).__name__
    for line in lines:
        if line.startswith(_SCHEDULES):
            return line.removeprefix(_SCHEDULES).strip()
    if lines[0].startswith("Traceback"):
        return lines[-1]
    if "Offending call:" in lines[:-1]:
        operator = lines[lines.index("Offending call:") + 1].partition("(")[0]
        return f"{operator}: {lines[0]}"
    return lines[0]
