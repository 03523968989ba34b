"""Limits of a machine that need not be measured, for profiles: `known_limits` of conftest.py."""

#: Operations a second in float32; in int8 four times as many. Bytes a second.
PEAK, BANDWIDTH = 1e11, 1e10
