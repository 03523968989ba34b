"""An option that is none of a command's: what is said of it, and that tvmc's are all known."""

from __future__ import annotations

import pkgutil
import re
import shlex

import pytest
from helpers_cli import Program, commands

from tvmlab import cli
from tvmlab.cli.retired import ROWS, Retired, retired

# What the commands of tvmc took in TVM 0.18: its python/tvm/driver/tvmc, one or two of a family.
TVMC = {
    "compile": """--cross-compiler --cross-compiler-options --desired-layout --desired-layout-ops
        --mixed-precision --mixed-precision-ops --mixed-precision-calculation-type
        --mixed-precision-acc-type --dump-code --dump-offloads --model-format -o --output -f
        --output-format --pass-config --target --target-llvm-mcpu --target-cuda-arch
        --tuning-records --executor --executor-aot-interface-api --executor-graph-link-params
        --runtime --runtime-crt-system-lib -v --verbose -O --opt-level --input-shapes
        --disabled-pass --module-name --print-pass-times --use-vm --print-ir-before
        --print-ir-after --workspace-pools --workspace-pools-size-hint-bytes""",
    "run": """--device --fill-mode -i --inputs -o --outputs --print-time --print-top --profile
        --end-to-end --repeat --number --rpc-key --rpc-tracker --list-options --project-option""",
    "tune": """--early-stopping --min-repeat-ms --model-format --number -o --output -v --verbose
        --parallel --repeat --rpc-key --rpc-tracker --target --target-llvm-mattr --target-host
        --timeout --trials --tuning-records --desired-layout --desired-layout-ops
        --mixed-precision --mixed-precision-ops --enable-autoscheduler --tasks --cache-line-bytes
        --num-cores --vector-unit-bytes --max-shared-memory-per-block --max-local-memory-per-block
        --max-threads-per-block --max-vthread-extent --warp-size --include-simple-tasks
        --log-estimated-latency --tuner --input-shapes""",
}


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)


def refusal(program: Program, line: str) -> str:
    """The last line of a refusal: above it stands the command's own usage."""
    done = program(line)
    command = line.split()[0]
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith(f"usage: tvmlab {command} ")
    last = done.err.splitlines()[-1]
    before = f"tvmlab {command}: error: "
    assert last.startswith(before)
    return last.removeprefix(before)


@pytest.mark.parametrize("command", TVMC)
def test_each_option_of_tvmc_is_here_or_is_told_about(command: str, program: Program) -> None:
    known = commands()[command]._option_string_actions
    for option in TVMC[command].split():
        said = retired(command, option)
        assert (option in known) != bool(said), option
        if said:
            assert refusal(program, f"{command} {option} x MODEL") == (
                f"tvmc's {option} is gone; today: {said}"
            )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.options[0])
def test_what_is_advised_is_there(row: Retired) -> None:
    commands_of, options, now = row
    assert set(commands_of) <= set(TVMC)
    every = {option for command in commands_of for option in TVMC[command].split()}
    for option in options:  # none is there that tvmc had not
        assert any(re.fullmatch(option.replace("*", ".*"), one) for one in every), option
    for quoted in re.findall(r"`([^`]*)`", now):
        if quoted.startswith("tvm.") or quoted.startswith("tvmlab."):
            assert pkgutil.resolve_name(quoted)
        elif quoted.startswith("tvmlab "):
            cli.parser().parse_args(shlex.split(quoted)[1:])
        else:
            line = f"{commands_of[-1]} MODEL {quoted}"
            needs = " -o FILE" if commands_of[-1] == "tune" and "-o" not in quoted else ""
            cli.parser().parse_args(shlex.split(line + needs))


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("tune m.onnx --trails 3 -o x", "there is no option --trails; did you mean --trials?"),
        ("run d.tar --pirnt-top 1", "there is no option --pirnt-top; did you mean --print-top?"),
        ("compile m --tuning x", "there is no option --tuning; did you mean --tuning-records?"),
        ("show m --colour", "there is no option --colour"),
        ("show m -q", "there is no option -q"),
        ("show m --profile", "there is no option --profile"),  # of another command
        ("compile m -O3", f"tvmc's -O3 is gone; today: {retired('compile', '-O')}"),
        ("run m --device=cpu", f"tvmc's --device is gone; today: {retired('run', '--device')}"),
        ("compile one two", "unrecognized arguments: two"),
    ],
)
def test_what_is_said(line: str, wanted: str, program: Program) -> None:
    assert refusal(program, line) == wanted


def test_a_model_is_not_lost_in_the_complaint(program: Program) -> None:
    said = refusal(program, "tune --tuning-records old.json model.onnx -o new.jsonl")
    assert "model.onnx" not in said
    assert "`-o FILE`" in said


def test_a_target_without_quotation_marks(program: Program) -> None:
    said = refusal(program, "compile m.onnx --target npu, llvm -mcpu=x86-64-v3")
    assert said.startswith("-mcpu is no option of the command; an option of a target stands in")
    assert said.endswith('--target "llvm -mcpu=x86-64-v3"')


def test_what_only_looks_like_an_option(program: Program) -> None:
    parse = cli.parser().parse_args
    assert parse(["compile", "--", "--model"]).model == "--model"
    assert parse(["compile", "m", "-ofile.tar"]).output == "file.tar"
    assert parse(["compile", "m", "--cross-compiler-options", "-O2 -g"]).cross_compiler_options
    assert parse(["compile", "m", "--cross-compiler-options=-s"]).cross_compiler_options == "-s"
    assert parse(["show", "-"]).model == "-"
    assert parse(["run", "x", "--seed", "-1"]).seed == -1
    said = refusal(program, "compile m --cross-compiler-options -Wl,--build-id")
    assert said == "argument --cross-compiler-options: expected one argument"
    assert program("compile --bogus --help").code == 0
