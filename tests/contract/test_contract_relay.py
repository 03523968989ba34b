"""Relay's text: what is printed for Relay's own texts and for the workbook's networks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.networks import TEXTS, network
from tvmlab import relay

PRINTED = (
    *("digits", "digits of any batch", "digits from PyTorch", "digits int8 QDQ"),
    *("digits int8 QOperator", "digits int8 PT2E", "resnet8 int8"),
)


@pytest.mark.parametrize("name", TEXTS)
def test_relays_texts_are_printed_alike(name: str, kept: Callable[..., Any]) -> None:
    mod = relay.fromtext(TEXTS[name].read_text(encoding="utf-8"))
    texts = (relay.astext(mod, types=types) for types in (False, True))
    found = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts]
    assert found == kept("relay_digests", name, found)


@pytest.mark.parametrize("name", PRINTED)
def test_networks_are_printed_alike(name: str, kept: Callable[..., Any]) -> None:
    text = relay.astext(network(name), types=False, show_meta_data=False)
    assert text.splitlines() == kept("relay_networks", name, text.splitlines())
