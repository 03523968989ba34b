"""A parser that says what is wrong with an option before anything else, and what to write."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence

from .retired import retired

__all__ = ["Parser"]

# Options of a target, which the shell parts from it where the quotation marks are missing.
_OF_A_TARGET = re.compile(r"-(m\w[\w-]*|device|keys|libs|model|num-cores)")


class Parser(argparse.ArgumentParser):
    """The parser of one command: its own usage stands above what it refuses.

    argparse would first take the word after an unknown option for an argument, and complain of that
    one, or of another that is then missing.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the words of a command; none is left over."""
        words = sys.argv[1:] if args is None else list(args)
        if not {"-h", "--help"} & set(words):
            for option in self._unknown(words):
                self.error(self._refusal(option))
        told, left = super().parse_known_args(words, namespace)
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return told, left

    def _unknown(self, words: Sequence[str]) -> Iterator[str]:
        """Find what looks like an option, for argparse too, and is none of this command's."""
        known = self._option_string_actions
        valued = {name for name, action in known.items() if action.nargs != 0}
        before = ""
        for word in words:
            if word == "--":
                return
            option = word.partition("=")[0]
            looks = re.match(r"-[^\d.\s]", word) and " " not in word and before not in valued
            joined = word[:2] in known and word[1] != "-"  # as in -oFILE
            if looks and option not in known and not joined:
                yield option
            before = word

    def _refusal(self, option: str) -> str:
        command = self.prog.rpartition(" ")[2]
        if now := retired(command, option):
            return f"tvmc's {option} is gone; today: {now}"
        if _OF_A_TARGET.fullmatch(option):
            return (
                f"{option} is no option of the command; an option of a target stands in quotation "
                'marks with it: --target "llvm -mcpu=x86-64-v3"'
            )
        import difflib

        known = list(self._option_string_actions)
        # tvmc took the beginning of an option for all of it.
        near = [name for name in known if len(option) > 2 and name.startswith(option)]
        near = near or difflib.get_close_matches(option, known, 1)
        return f"there is no option {option}" + (f"; did you mean {near[0]}?" if near else "")
