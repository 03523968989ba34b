"""The program `tvmlab`, which is ``python -m tvmlab``, too."""

import sys

__all__ = ["main"]


def main() -> int:
    """Run the program and return its exit code, see `tvmlab.cli`."""
    try:
        # Here: Ctrl-C can come before the commands are imported.
        from . import cli

        return cli.main()
    except KeyboardInterrupt:
        print("tvmlab: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
