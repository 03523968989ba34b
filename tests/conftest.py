"""What the unit tests share."""

from hypothesis import settings

# Examples are the same in every run, and no example is failed for being slow: a test fails because
# of the code, not of the machine or of the day.
settings.register_profile("tvmlab", deadline=None, derandomize=True)
settings.load_profile("tvmlab")
