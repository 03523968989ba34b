"""Helpers of the notebooks alone: checks of exercises, and the tools of notebook 09."""
