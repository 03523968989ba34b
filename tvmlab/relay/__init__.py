"""Relay lives on: its text, its names and its passes, over today's Relax."""
