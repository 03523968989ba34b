"""Helpers for all rooms: files, targets, tools, downloads, and text for messages."""
