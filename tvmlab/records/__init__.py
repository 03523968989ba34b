"""Tuning records: their file, their schedules as data, and what a compilation takes from them."""
