"""A workbook about Apache TVM, and the small package behind it."""

__version__ = "0.1.0"
