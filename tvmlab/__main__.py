"""``python -m tvmlab``: the same as the program `tvmlab`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
