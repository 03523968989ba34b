"""The program `tvmlab`, also available as ``python -m tvmlab``."""

import sys

from .cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
