"""Comparing models and runtimes, and listing what a model computes."""
