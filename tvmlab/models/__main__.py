"""Train what the package ships: `python -m tvmlab.models train-digits`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..errors import TvmlabError
from ..support.extras import need
from .samples import digits

_ASSET = Path(__file__).parents[1] / "assets" / "digits_resnet.onnx"
_ENOUGH = 0.98


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : sequence of str, optional
        What stands behind the command's name; by default the process's own.

    Returns
    -------
    int
        0; 1 if something failed or the network is not good enough, and nothing is written then.
    """
    parser = argparse.ArgumentParser(prog="python -m tvmlab.models", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "train-digits", help="train the digits network and write it as ONNX"
    )
    command.add_argument("--output", type=Path, default=_ASSET, help="default: the package's own")
    command.add_argument("--epochs", type=int, default=40)
    command.add_argument("--seed", type=int, default=8)
    options = parser.parse_args(arguments)
    if options.epochs < 1 or options.seed < 0:
        parser.error("--epochs is at least 1, --seed at least 0")
    try:
        return _train_digits(options.output, options.epochs, options.seed)
    except TvmlabError as error:
        print(error, file=sys.stderr)
        return 1


def _train_digits(output: Path, epochs: int, seed: int) -> int:
    need("torch", extra="torch")
    need("onnx", extra="models")
    from . import training

    split = digits()
    start = time.perf_counter()
    network = training.train(split, epochs=epochs, seed=seed)
    seconds = time.perf_counter() - start
    right = training.accuracy(network, split.x_test, split.y_test)
    count = len(split.y_test)
    print(f"trained in {seconds:.0f} s; {right:.2%} of {count} held-out digits are right")
    if right < _ENOUGH:
        print(f"less than {_ENOUGH:.0%}: nothing is written", file=sys.stderr)
        return 1
    size = training.save(network, output)
    print(f"wrote {output} ({size / 1000:.0f} kB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
