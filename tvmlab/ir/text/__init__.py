"""Relay's text, read and printed."""
