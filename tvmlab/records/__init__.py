"""Tuning records: their file, schedules as data, and the lookup during compilation."""
