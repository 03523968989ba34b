"""What the unit tests share."""

import signal

import pytest
from hypothesis import settings

# Examples are the same in every run, and no example is failed for being slow: a test fails because
# of the code, not of the machine or of the day.
settings.register_profile("tvmlab", deadline=None, derandomize=True)
settings.load_profile("tvmlab")

# A shell without job control starts what it puts in the background with SIGINT ignored, and so are
# all children's: tests that send it would wait for nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: The files that take longest, the longest first: begun at the end they would run alone, the other
#: processors idle.
LONG = (
    "test_schedule_convolution.py",
    "test_schedule.py",
    "test_qnn_transform_random.py",
    "test_schedule_dot.py",
    "test_schedule_winograd.py",
    "test_npu_random.py",
    "test_npu_lower.py",
    "test_npu_simulator.py",
    "test_npu_simulator_damaged.py",
    "test_tuning_remote.py",
    "test_rpc.py",
    "test_cli_examples.py",
    "test_cli_commands.py",
    "test_tuning_real.py",
    "test_tuning_shipped.py",
    "test_gallery.py",
    "test_recipes.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONG)))
