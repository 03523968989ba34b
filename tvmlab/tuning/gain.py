"""Which task a batch goes to: the one whose share of the network's time falls fastest."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["expected_gain", "kind_of"]

ALPHA = 0.2
"""How much of the forecast is the past; the rest is hope."""
BETA = 2.0
"""How much faster than the fastest similar task a task is hoped to become."""
WINDOW = 3
"""Batches of the past that count."""


def expected_gain(weight: float, history: Sequence[float], flops: float, speed: float) -> float:
    """Estimate what the next batch takes off the network's time.

    Parameters
    ----------
    weight : float
        How often the network calls the task.
    history : sequence of float
        The fastest time known after each batch, in seconds, the rule's first.
    flops : float
        Operations of one call.
    speed : float
        The highest throughput of this and similar tasks, in operations a second.

    Returns
    -------
    float
        Seconds a batch, at least 0; infinity where nothing ran yet.

    Notes
    -----
    The gradient of Ansor's task scheduler (Zheng et al. 2020, section 6): the mean of what the last
    batches brought and of what the next may bring, which is either the same share again (all gained
    so far in t batches is at most the time itself, so a t-th of it) or what is missing to
    a throughput near that of similar tasks.
    """
    now = history[-1]
    if now == float("inf"):
        return now
    past = [time for time in history[-1 - WINDOW :] if time < float("inf")]
    backward = (past[0] - now) / max(1, len(past) - 1)
    batches = max(1, len(history) - 1)
    forward = now / batches
    if speed > 0 and flops > 0:
        forward = max(forward, now - BETA * flops / speed)
    return weight * (ALPHA * backward + (1 - ALPHA) * forward)


def kind_of(name: str) -> str:
    """Name what similar tasks share: the operator that their names begin with."""
    return name.removeprefix("fused_").split("_", 1)[0].rstrip("0123456789")
