"""The accelerator's cycles and regions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.networks import INT8, case, network
from tvmlab import npu


@pytest.mark.parametrize("sram", [32 << 10, 256 << 10])
@pytest.mark.parametrize("name", [case(name) for name in INT8])
def test_cycles_are_within_a_percent(name: str, sram: int, kept: Callable[..., Any]) -> None:
    cut = npu.partition(network(name), npu.Config(sram_bytes=sram))
    found = {"cycles": npu.report(cut).cycles, "regions": npu.coverage(cut).regions}
    expected = kept("cycles", f"{name}, {sram >> 10} KiB", found)
    assert found["regions"] == expected["regions"]
    assert found["cycles"] == pytest.approx(expected["cycles"], rel=0.01)
