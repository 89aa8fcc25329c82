"""Register spills of a kernel: PTX lines, and loops, from `nvdisasm`'s output."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from cutepy.binaries.sass import print_code

_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_LABEL = re.compile(r"^(\.L\w+):")
_PTX_LINE = re.compile(r'^\s*//## File "\.nv_debug_ptx_txt", line (\d+)')
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?P<guard>@!?U?P\w+\s+)?(?P<opcode>[\w.]+)(?P<rest>.*)")
_TARGET = re.compile(r"`\((\.L\w+)\)")
_SPILL = '(*"SpillRefill"*)'
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
_ENDS = ("BRA", "EXIT", "RET", "BRX", "JMP", "JMX", "KILL")


@dataclass(frozen=True)
class Spill:
    """Instruction that spills a register to local memory, or fills it.

    Attributes
    ----------
    line : int or None
        Of the PTX: what the instruction was put at.
    stored_bytes, loaded_bytes : int
        By a thread, each time; one of them is 0.
    is_in_loop : bool
        Whether it may be executed again.
    is_with_mmas : bool
        Whether that loop has MMAs: a main loop.
    """

    line: int | None
    stored_bytes: int
    loaded_bytes: int
    is_in_loop: bool
    is_with_mmas: bool


@dataclass(frozen=True)
class _Step:
    """Instruction of machine code, with the fields used here."""

    opcode: str
    line: int | None
    target: str
    is_guarded: bool
    is_spill: bool


def spills(cubin: bytes, kernel: str, cuda_home: Path | None = None) -> tuple[Spill, ...]:
    """List the spills of a kernel, in the order of its code.

    Parameters
    ----------
    cubin : bytes
        Assembled with ``-lineinfo``, for the lines of PTX.
    kernel : str
        The mangled name.
    cuda_home : Path, optional
        A CUDA toolkit to look for the disassembler in.

    Raises
    ------
    DisassemblyError
        If there is no disassembler, or it can't read the cubin.
    """
    steps, labels = _read(print_code(cubin, "--print-line-info-ptx", cuda_home), kernel)
    following = [_following(n, step, labels, len(steps)) for n, step in enumerate(steps)]
    found = []
    for n, step in enumerate(steps):
        if step.is_spill:
            size = next((_WIDTHS[part] for part in step.opcode.split(".") if part in _WIDTHS), 4)
            loop = _loop(n, following)
            is_store = step.opcode.startswith("ST")
            with_mmas = any(steps[m].opcode.partition(".")[0] in ("HGMMA", "IGMMA", "QGMMA", "BGMMA") for m in loop)
            found.append(Spill(step.line, size * is_store, size * (not is_store), bool(loop), with_mmas))
    return tuple(found)


def _read(text: str, kernel: str) -> tuple[list[_Step], dict[str, int]]:
    """Read the instructions of a kernel, and those at labels."""
    steps: list[_Step] = []
    labels: dict[str, int] = {}
    line, inside = None, False
    for row in text.splitlines():
        if section := _SECTION.match(row):
            inside, line = section[1] == kernel, None
        elif inside and (label := _LABEL.match(row)):
            labels[label[1]] = len(steps)
        elif inside and (named := _PTX_LINE.match(row)):
            line = int(named[1])
        elif inside and (found := _INSTRUCTION.match(row)):
            target = _TARGET.search(found["rest"])
            named_label = target[1] if target else ""
            steps.append(_Step(found["opcode"], line, named_label, bool(found["guard"]), _SPILL in row))
    return steps, labels


def _following(n: int, step: _Step, labels: Mapping[str, int], count: int) -> tuple[int, ...]:
    """Return the possible successors of an instruction."""
    verb = step.opcode.partition(".")[0]
    ends = verb in _ENDS and not step.is_guarded and ".U" not in step.opcode.removesuffix(".UNI")
    found = [] if ends or n + 1 == count else [n + 1]
    if verb in ("BRA", "JMP") and step.target in labels:
        found.append(labels[step.target])
    elif verb == "BRX":  # a branch table: any label
        found += labels.values()
    return tuple(found)


def _loop(start: int, following: Sequence[tuple[int, ...]]) -> set[int]:
    """Return the instructions of the loop around one: those on a path from it back to it."""
    backwards: list[list[int]] = [[] for _ in following]
    for n, successors in enumerate(following):
        for successor in successors:
            backwards[successor].append(n)
    return reduce(set.intersection, (_reached(start, edges) for edges in (following, backwards)))


def _reached(start: int, edges: Sequence[Sequence[int]]) -> set[int]:
    found: set[int] = set()
    waiting = [*edges[start]]
    while waiting:
        n = waiting.pop()
        if n not in found:
            found.add(n)
            waiting += edges[n]
    return found
