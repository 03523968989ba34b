"""Another processor: compiled for it, linked for it, and run under an emulator of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvmlab
from tests.oracles.models import model, node, weight
from tests.short import absent
from tvmlab import models
from tvmlab.errors import ToolchainError
from tvmlab.runtime import deploy

CROSS, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
# Where Debian's cross compiler has the C library of the other processor.
SYSTEM = "/usr/aarch64-linux-gnu"
TARGET = {
    "kind": "llvm",
    "mtriple": "aarch64-linux-gnu",
    "mcpu": "cortex-a72",
    "num-cores": 2,
}
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def program() -> Path:
    for tool, debian in ((CROSS, "g++-aarch64-linux-gnu"), (EMULATOR, "qemu-user")):
        if shutil.which(tool) is None:
            absent(f"{tool} is not here (Debian: apt-get install {debian})")
    try:
        runtime = deploy.packages("aarch64")
    except ToolchainError:
        absent("TVM's runtime for aarch64 is not here (make cross)")
    return deploy.program(cross_compiler=CROSS, packages=runtime)


def emulated(program: Path, path: Path, *inputs: np.ndarray) -> tuple[np.ndarray, str]:
    """Run a package under the emulator: its first output, and what was printed."""
    files = [path.with_name(f"{place}-in.npy") for place in range(len(inputs))]
    for file, value in zip(files, inputs, strict=True):
        np.save(file, value)
    line = [EMULATOR, "-L", SYSTEM, program, path, *files, "--output", path.parent]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return np.load(path.with_name("0.npy")), done.stdout


def test_whole_numbers_have_the_same_bits(program: Path, tmp_path: Path) -> None:
    """Sums of small whole numbers are exact, in whatever order a processor adds them."""
    rng = np.random.default_rng(0)
    weights = rng.integers(-9, 10, (8, 4, 3, 3)).astype("float32")
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("MaxPool", ["r"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    mod = tvmlab.load(model(nodes, {"x": (1, 4, 12, 12)}, ["y"], [weight("w", weights)]))
    path = tvmlab.compile(mod, TARGET).save(tmp_path / "whole.so", cross_compiler=CROSS)
    x = rng.integers(-9, 10, (1, 4, 12, 12)).astype("float32")
    assert emulated(program, path, x)[0].tobytes() == tvmlab.compile(mod)(x).tobytes()


def test_the_digits_are_read(program: Path, tmp_path: Path) -> None:
    """The same classes in the same order; sums in another order round in the last bits."""
    mod = tvmlab.load(models.digits_resnet())
    path = tvmlab.compile(mod, TARGET).save(tmp_path / "digits.so", cross_compiler=CROSS)
    here = tvmlab.compile(mod)
    for image in models.digits().x_test[:3]:
        wanted = here(image[None])
        found, printed = emulated(program, path, image[None])
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        classes = re.findall(r"^ *(\d+)  ", printed, re.MULTILINE)
        assert classes == [str(place) for place in np.argsort(-wanted[0])[:5]]
