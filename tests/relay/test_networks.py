"""The workbook's networks as Relay text and back: equal as modules, and in what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm_ffi

import tvmlab
from tvmlab import models, relay

NETWORKS = {
    "digits_resnet": models.digits_resnet,
    "mobilenet_v2": models.mobilenet_v2,
    "resnet50_v2": lambda: models.resnet50_v2("seeded"),
}


@pytest.fixture(scope="module", params=NETWORKS)
def both(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A network's module, and the one that is read from its text."""
    mod = tvmlab.load(NETWORKS[request.param]())
    return mod, relay.fromtext(relay.astext(mod))


def test_a_network_is_read_as_it_was_printed(both: tuple[Any, Any]) -> None:
    mod, again = both
    assert tvm_ffi.structural_equal(again, mod, map_free_vars=True)


def test_a_network_read_from_text_gives_the_same_numbers() -> None:
    """The smallest of them: all are structurally equal, and the large are slow to compile twice."""
    mod = tvmlab.load(models.digits_resnet())
    again = relay.fromtext(relay.astext(mod))
    shape = [int(extent) for extent in mod["main"].params[0].ty.shape]
    image = np.random.default_rng(0).random(shape, dtype=np.float32)
    expected = tvmlab.compile(mod)(image)
    np.testing.assert_array_equal(tvmlab.compile(again)(image), expected)
    assert np.ptp(expected) > 0
