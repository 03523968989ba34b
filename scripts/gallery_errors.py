"""What stops the gallery: one exception, which says what, where and what to do."""

from __future__ import annotations


class GalleryError(Exception):
    """The site cannot be built, or is not as it must be."""
