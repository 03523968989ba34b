"""Train the digits network. Import it only where torch is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import cross_entropy

from ..errors import DataError
from ..support.files import whole
from .onnx_form import to_onnx
from .resnet import DIGITS
from .samples import Digits
from .torch_form import Network, load_parameters, parameters_of
from .weights import seeded_parameters

__all__ = ["accuracy", "save", "train"]

_BATCH = 64
_PEAK_RATE = 0.1


def train(digits: Digits, *, epochs: int, seed: int, say: Callable[[str], None] = print) -> Network:
    """Train the digits network from scratch.

    Each picture is moved by up to one pixel in each direction, which is what keeps 75,000 weights
    from learning 1347 pictures by heart. The rate rises and falls once over the whole run.

    Parameters
    ----------
    digits : Digits
        The data; only its training half is used.
    epochs : int
        How often each picture is seen.
    seed : int
        Of the first weights, the order and the moves.
    say : callable, optional
        Gets a line on the way now and then.

    Returns
    -------
    Network
        The trained network, in evaluation mode.

    Notes
    -----
    One thread, and only operators that PyTorch calls deterministic: the same machine and the same
    packages give the same bytes. Another CPU adds in another order and gives slightly other ones.
    """
    threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        return _train(digits, epochs, seed, say)
    finally:
        torch.use_deterministic_algorithms(deterministic)
        torch.set_num_threads(threads)


def _train(digits: Digits, epochs: int, seed: int, say: Callable[[str], None]) -> Network:
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
    for epoch in range(epochs):
        losses = []
        order = torch.randperm(len(x), generator=random)
        for step in range(batches):
            chosen = order[step * _BATCH : (step + 1) * _BATCH]
            loss = cross_entropy(
                network(_moved(x[chosen], random)), y[chosen], label_smoothing=0.05
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        if epoch % 10 == 9 or epoch == epochs - 1:
            say(f"epoch {epoch + 1:3d} of {epochs}: loss {np.mean(losses):.3f}")
    return network.eval()  # type: ignore[no-any-return]


def _moved(pictures: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Move each picture by -1, 0 or 1 pixels in both directions; what comes in is paper."""
    count = len(pictures)
    wide = torch.nn.functional.pad(pictures, (1, 1, 1, 1))
    down, right = torch.randint(0, 3, (2, count), generator=random)
    rows = (down[:, None] + torch.arange(8))[:, :, None]
    columns = (right[:, None] + torch.arange(8))[:, None, :]
    return wide[torch.arange(count)[:, None, None], 0, rows, columns][:, None]


def accuracy(network: Network, x: npt.NDArray[np.float32], y: npt.NDArray[np.int64]) -> float:
    """Share of pictures that a network names right.

    Parameters
    ----------
    network : Network
        In evaluation mode.
    x : ndarray
        Pictures, float32 [n, 1, 8, 8].
    y : ndarray
        What they show, int64 [n].

    Returns
    -------
    float
        Between 0 and 1.
    """
    with torch.inference_mode():
        guessed = network(torch.from_numpy(x)).argmax(dim=1).numpy()
    return float(np.mean(guessed == y))


def save(network: Network, path: Path) -> int:
    """Write a network as ONNX: whole, or not at all.

    Parameters
    ----------
    network : Network
        A digits network.
    path : Path
        Where to; a file that is there is replaced.

    Returns
    -------
    int
        The file's length in bytes.

    Raises
    ------
    DataError
        If the file cannot be written.
    """
    content = to_onnx(network.spec, parameters_of(network), batch=1).SerializeToString(
        deterministic=True
    )
    try:
        with whole(path) as part:
            part.write_bytes(content)
    except OSError as error:
        raise DataError(
            f"The trained network cannot be written: {error.strerror}.",
            where=str(path),
            fix="Give a place that can be written with --output.",
        ) from error
    return len(content)
