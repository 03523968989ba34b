"""Searching one space: MetaSchedule's parts, driven by a loop of ours."""
