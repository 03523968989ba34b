from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tvmlab.models import torch_form
from tvmlab.models.cost import ARCHITECTURES, flops, layer_costs


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_pytorch_counts_the_same_operations(name: str) -> None:
    spec = ARCHITECTURES[name]
    network = torch_form.Network(spec).eval()
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, *spec.image))
    # Its count of an addition to a product is two operations, too.
    assert flops(spec) == counter.get_total_flops()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_pytorch_gives_the_same_sizes(name: str) -> None:
    spec = ARCHITECTURES[name]
    network = torch_form.Network(spec).eval()
    seen: dict[str, tuple[int, ...]] = {}
    for layer in network.layers:
        network.get_submodule(layer.name).register_forward_hook(
            lambda _module, _inputs, output, name=layer.name: seen.update({name: output.shape})
        )
    with torch.inference_mode():
        network(torch.zeros(1, *spec.image))
    for cost in layer_costs(spec):
        shape = seen[cost.layer.name]
        assert shape[1] == cost.layer.channels[1]
        assert tuple(shape[2:]) == (cost.out_size if len(shape) == 4 else ())


def test_resnet50_is_the_size_that_is_known() -> None:
    assert round(flops(ARCHITECTURES["resnet50_v2"]) / 1e9, 1) == 8.2


def test_only_products_count() -> None:
    for cost in layer_costs(ARCHITECTURES["mobilenet_v2"]):
        assert (cost.flops > 0) == (cost.layer.op in ("conv", "dense")), cost
