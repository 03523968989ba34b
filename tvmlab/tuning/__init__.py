"""Tuning: schedules found by measuring, and the records of them."""
