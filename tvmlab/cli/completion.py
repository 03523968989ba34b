"""``tvmlab completion``: what a shell needs to complete command lines."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from . import arguments, compile
from .answer import Answer

__all__ = ["add"]

ABOUT = """Print a script by which a shell completes command lines.

In ~/.bashrc or ~/.zshrc:  source <(tvmlab completion bash)"""
EXAMPLE = """tvmlab completion bash > tvmlab.bash
tvmlab completion zsh > _tvmlab"""

# Both look the word before the cursor up, then the command: the values of an option, if it takes
# any; else a command's words and options. The table is of lines `COMMAND[ OPTION]) WORDS FILES`:
# files are offered where one can stand. In a list it is the word after the last comma that is
# completed. bash parts --fill=ones into three words.
BASH = """\
_tvmlab() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
    local command="${{COMP_WORDS[1]}}" words="" files="" list="" listed=""
    if [ "$current" = "=" ]; then
        current=""
    elif [ "$before" = "=" ]; then
        before="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi
    [ "$COMP_CWORD" -eq 1 ] && command="" before=""
    case "$command $before" in
{options}
    *) case "$command" in
{commands}
        esac ;;
    esac
    if [ -n "$list" ]; then
        listed="${{current%"${{current##*,}}"}}"
        current="${{current##*,}}"
    fi
    COMPREPLY=($(compgen -P "$listed" -W "$words" -- "$current"))
    if [ -n "$files" ] && [ "${{current#-}}" = "$current" ]; then
        local IFS=$'\\n'  # a file's name may have spaces
        COMPREPLY+=($(compgen -f -- "$current"))
        compopt -o filenames 2> /dev/null  # bash 3 has no compopt
    fi
}}
complete -F _tvmlab tvmlab
"""
ZSH = """\
#compdef tvmlab
_tvmlab() {{
    local command="$words[2]" before="$words[CURRENT-1]" found="" files="" list=""
    if [[ "$words[CURRENT]" == --*=* ]]; then
        before="${{words[CURRENT]%%=*}}"
        compset -P '*='
    fi
    (( CURRENT == 2 )) && command="" before=""
    case "$command $before" in
{options}
    (*) case "$command" in
{commands}
        esac ;;
    esac
    [[ -n "$list" ]] && compset -P '*,'
    compadd -- ${{=found}}
    [[ -n "$files" ]] && _files
}}
compdef _tvmlab tvmlab
"""

# What an argument is called that a file can stand for.
_FILES = ("FILE", "MODEL", "PROGRAM")


# Values that the parser has not as choices, by what it calls the argument.
_SAID = {"model": arguments.NETWORKS, "program": arguments.NETWORKS, "dump_code": compile.CODE}
# Of these several, with commas between them.
_LISTS = ("dump_code",)


class _Offer(NamedTuple):
    """What can stand in a place: words, whether files can, and whether it is a list of words."""

    words: list[str]
    files: bool
    list: bool = False


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
    case = "{indent}{opening}{what}) {name}={words}{files}{list} ;;".format
    name, opening = ("words", "") if bash else ("found", "(")

    def lines(table: dict[str, _Offer], indent: str) -> str:
        return "\n".join(
            case(
                indent=indent,
                opening=opening,
                what=shlex.quote(what),
                name=name,
                words=shlex.quote(" ".join(offer.words)),
                files=" files=yes" * offer.files,
                list=" list=yes" * offer.list,
            )
            for what, offer in table.items()
        )

    text = (BASH if bash else ZSH).format(
        options=lines(options, "    "), commands=lines(commands, "        ")
    )
    return Answer(text.rstrip("\n"), {"shell": told.shell, "text": text})


def _tables(parser: argparse.ArgumentParser) -> tuple[dict[str, _Offer], dict[str, _Offer]]:
    """Give what can follow each option of each command, and each command."""
    options: dict[str, _Offer] = {}
    commands = {"": _Offer([], False)}
    for name, made in _commands(parser).items():
        commands[""].words.append(name)
        words: list[str] = []
        anywhere = False
        for action in made._actions:
            values = [str(one) for one in _SAID.get(action.dest, action.choices) or ()]
            files = action.metavar in _FILES
            words += action.option_strings or values
            anywhere |= files and not action.option_strings
            for option in action.option_strings:
                if action.nargs != 0:
                    options[f"{name} {option}"] = _Offer(values, files, action.dest in _LISTS)
        commands[name] = _Offer(words, anywhere)
    commands[""].words.extend(
        option for action in parser._actions for option in action.option_strings
    )
    return options, commands


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
