"""Train what the package contains: `python -m tvmlab.models train-digits` or `train-decoder`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..support.extras import need
from .networks import DIGITS
from .onnx_form import to_onnx
from .samples import Digits, digits
from .weights import seeded_parameters

need("torch", extra="torch")
import torch  # noqa: E402 (after the check that says how to install it)

from .torch_form import Network, load_parameters, parameters_of  # noqa: E402
from .training import train_decoder  # noqa: E402

_ASSET = Path(__file__).parents[1] / "assets" / "digits_resnet.onnx"
_ENOUGH = 0.98
_BATCH = 64
_PEAK_RATE = 0.1


def main() -> None:
    """Train a model, and write it if its accuracy is high enough."""
    commands = {"train-digits": train_digits, "train-decoder": train_decoder}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(f"usage: python -m tvmlab.models {' | '.join(commands)}")
    commands[sys.argv[1]]()


def train_digits() -> None:
    """Train the digits network, and write it as ONNX if its accuracy is high enough."""
    # The same machine and packages produce the same bytes; another CPU sums in another order.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    split = digits()
    network = train(split)
    right = accuracy(network, split.x_test, split.y_test)
    print(f"{right:.2%} of {len(split.y_test)} held-out digits are right")
    if right < _ENOUGH:
        sys.exit(f"less than {_ENOUGH:.0%}: nothing is written")
    proto = to_onnx(network.spec, parameters_of(network))
    _ASSET.write_bytes(proto.SerializeToString(deterministic=True))
    print(f"wrote {_ASSET}")


def train(digits: Digits, *, epochs: int = 40, seed: int = 8) -> Network:
    """Train the digits network from scratch, on images shifted by up to one pixel."""
    network = Network(DIGITS).train()
    load_parameters(network, seeded_parameters(DIGITS, seed, identity_norms=True))
    x, y = torch.from_numpy(digits.x_train), torch.from_numpy(digits.y_train)
    random = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(
        network.parameters(), lr=_PEAK_RATE, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    batches = len(x) // _BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=_PEAK_RATE, total_steps=max(epochs * batches, 2)
    )
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=random)
        for step in range(batches):
            chosen = order[step * _BATCH : (step + 1) * _BATCH]
            logits = network(_moved(x[chosen], random))
            loss = torch.nn.functional.cross_entropy(logits, y[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network.eval()  # type: ignore[no-any-return]


def _moved(pictures: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Shift each image by -1, 0 or 1 pixels in both directions; paper fills the border."""
    count = len(pictures)
    wide = torch.nn.functional.pad(pictures, (1, 1, 1, 1))
    down, right = torch.randint(0, 3, (2, count), generator=random)
    rows = (down[:, None] + torch.arange(8))[:, :, None]
    columns = (right[:, None] + torch.arange(8))[:, None, :]
    return wide[torch.arange(count)[:, None, None], 0, rows, columns][:, None]


def accuracy(network: Network, x: npt.NDArray[np.float32], y: npt.NDArray[np.int64]) -> float:
    """Return the share of images that a network classifies correctly."""
    with torch.inference_mode():
        guessed = network(torch.from_numpy(x)).argmax(dim=1).numpy()
    return float(np.mean(guessed == y))


if __name__ == "__main__":
    main()
