"""``tvmlab completion``: what a shell needs to complete command lines."""

from __future__ import annotations

import argparse

from . import arguments
from .answer import Answer

__all__ = ["add"]

ABOUT = """Print a script by which a shell completes command lines.

In ~/.bashrc or ~/.zshrc:  source <(tvmlab completion bash)"""
EXAMPLE = """tvmlab completion bash > tvmlab.bash
tvmlab completion zsh > _tvmlab"""

# Both look the word before the cursor up, then the command: the values of an option, if it takes
# any (where these are no choices, files); else a command's words and options, and files. The table
# is of lines `COMMAND[ OPTION]=WORDS`.
BASH = """\
_tvmlab() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
    local command="${{COMP_WORDS[1]}}" words=""
    [ "$COMP_CWORD" -eq 1 ] && command="" before=""
    case "$command $before" in
{options}
    *) case "$command" in
{commands}
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [ "$COMP_CWORD" -gt 1 ] && [ "${{current#-}}" = "$current" ]; then
        local IFS=$'\\n'  # a file's name may have spaces
        COMPREPLY+=($(compgen -f -- "$current"))
    fi
}}
complete -o filenames -F _tvmlab tvmlab
"""
ZSH = """\
#compdef tvmlab
_tvmlab() {{
    local command="$words[2]" before="$words[CURRENT-1]" found=""
    (( CURRENT == 2 )) && command="" before=""
    case "$command $before" in
{options}
    (*) case "$command" in
{commands}
        esac ;;
    esac
    compadd -- ${{=found}}
    (( CURRENT > 2 )) && _files
}}
compdef _tvmlab tvmlab
"""


def add(commands: arguments.Commands) -> None:
    """Add the command."""
    parser = arguments.command(commands, "completion", run, ABOUT, EXAMPLE)
    parser.add_argument("shell", choices=("bash", "zsh"), metavar="SHELL", help="bash or zsh")


def run(told: argparse.Namespace) -> Answer:
    """Print."""
    import shlex

    from . import parser

    options, commands = _tables(parser())
    bash = told.shell == "bash"
    case = "{indent}{opening}{what}) {name}={words} ;;".format
    name, opening = ("words", "") if bash else ("found", "(")

    def lines(table: dict[str, list[str]], indent: str) -> str:
        return "\n".join(
            case(
                indent=indent,
                opening=opening,
                what=shlex.quote(what),
                name=name,
                words=shlex.quote(" ".join(words)),
            )
            for what, words in table.items()
        )

    text = (BASH if bash else ZSH).format(
        options=lines(options, "    "), commands=lines(commands, "        ")
    )
    return Answer(text.rstrip("\n"), {"shell": told.shell, "text": text})


def _tables(parser: argparse.ArgumentParser) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Give the words after each option of each command, and those of each command."""
    options: dict[str, list[str]] = {}
    commands: dict[str, list[str]] = {"": []}
    for name, made in _commands(parser).items():
        commands[""].append(name)
        words: list[str] = []
        for action in made._actions:
            values = [str(one) for one in action.choices or ()]
            if action.dest in ("model", "program"):
                values = [*arguments.NETWORKS]
            words += action.option_strings or values
            for option in action.option_strings:
                if action.nargs != 0:
                    options[f"{name} {option}"] = values
        commands[name] = words
    commands[""] += [option for action in parser._actions for option in action.option_strings]
    return options, commands


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
