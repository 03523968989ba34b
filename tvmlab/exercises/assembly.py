"""The instructions that LLVM makes of a module, for one processor whatever runs here."""

from __future__ import annotations

import re

import tvm

__all__ = ["assembly", "multiply_add_loop"]


def assembly(mod: tvm.IRModule, processor: str) -> list[str]:
    """Compile a module for a processor of the x86-64 family.

    Parameters
    ----------
    mod : tvm.IRModule
        Functions of TIR.
    processor : str
        What LLVM calls it, for example ``"x86-64-v3"``.

    Returns
    -------
    list of str
        The lines of the assembly.
    """
    target = {"kind": "llvm", "mcpu": processor, "mtriple": "x86_64-unknown-linux-gnu"}
    text: str = tvm.compile(mod, tvm.target.Target(target)).mod.inspect_source("asm")
    return text.splitlines()


def multiply_add_loop(lines: list[str]) -> list[str]:
    """Return the loop with the most multiply-adds for its length: its instructions, one each.

    Without a loop there are none.
    """
    start: dict[str, int] = {}
    loops: list[list[str]] = []
    for number, line in enumerate(lines):
        if label := re.match(r"(\.LBB\w+):", line):
            start[label[1]] = number
        if (jump := re.match(r"\tj\w+\s+(\.LBB\w+)", line)) and jump[1] in start:
            loops.append([one.strip() for one in lines[start[jump[1]] + 1 : number + 1]])
    return max(
        loops, key=lambda loop: sum("vfmadd" in line for line in loop) / len(loop), default=[]
    )
