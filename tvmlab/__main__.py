"""The program `tvmlab`, which is ``python -m tvmlab``, too."""

import sys

from .cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
