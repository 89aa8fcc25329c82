"""Register spills of a kernel: PTX lines, and loops, from `nvdisasm`'s output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cutepy.binaries.sass import Row, list_kernel, print_code

_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
_MMAS = ("HGMMA", "IGMMA", "QGMMA", "BGMMA")
_ENDS = ("BRA", "EXIT", "RET", "BRX", "JMP", "JMX", "KILL")


@dataclass(frozen=True)
class Spill:
    """Instruction that spills a register to local memory, or fills it.

    Attributes
    ----------
    line : int or None
        Line of the PTX whose place the instruction has.
    stored_bytes, loaded_bytes : int
        By a thread, each time; one of them is 0.
    is_in_loop : bool
        True if it may be executed again.
    is_with_mmas : bool
        True if that loop has MMAs: a main loop.
    """

    line: int | None
    stored_bytes: int
    loaded_bytes: int
    is_in_loop: bool
    is_with_mmas: bool


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
    rows, labels, _ = list_kernel(print_code(cubin, "--print-line-info-ptx", cuda_home), kernel)
    loops = _loops([_following(n, row, labels, len(rows)) for n, row in enumerate(rows)])
    with_mmas = {loop: any(rows[n].opcode.partition(".")[0] in _MMAS for n in loop) for loop in {*loops.values()}}
    found = []
    for n, row in enumerate(rows):
        if row.is_spill:
            size = next((_WIDTHS[part] for part in row.opcode.split(".") if part in _WIDTHS), 4)
            loop, is_store = loops.get(n), row.opcode.startswith("ST")
            is_with_mmas = loop is not None and with_mmas[loop]
            found.append(Spill(row.line, size * is_store, size * (not is_store), loop is not None, is_with_mmas))
    return tuple(found)


def _following(n: int, row: Row, labels: Mapping[str, int], count: int) -> tuple[int, ...]:
    """Return the possible successors of an instruction."""
    verb = row.opcode.partition(".")[0]
    ends = verb in _ENDS and not row.is_guarded and ".U" not in row.opcode.removesuffix(".UNI")
    found = [] if ends or n + 1 == count else [n + 1]
    if verb in ("BRA", "JMP") and row.label in labels:
        found.append(labels[row.label])
    elif verb == "BRX":  # a branch table: any label
        found += labels.values()
    return tuple(found)


def _loops(following: Sequence[tuple[int, ...]]) -> dict[int, frozenset[int]]:
    """Return by instruction the loop around it, those on a path from it back to it, if there is one.

    Loops are strongly connected components: Tarjan, "Depth-first search and linear graph algorithms".
    """
    found: dict[int, frozenset[int]] = {}
    reached: dict[int, int] = {}
    lowest: dict[int, int] = {}
    places: dict[int, int] = {}  # in the stack
    stack: list[int] = []
    inside: set[int] = set()
    for root in range(len(following)):
        path = [] if root in reached else [(root, iter(following[root]))]
        while path:
            n, rest = path[-1]
            if n not in reached:
                reached[n] = lowest[n] = len(reached)
                places[n] = len(stack)
                stack.append(n)
                inside.add(n)
            for successor in rest:
                if successor not in reached:
                    path.append((successor, iter(following[successor])))
                    break
                if successor in inside:
                    lowest[n] = min(lowest[n], lowest[successor])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[n])
                if lowest[n] == reached[n]:
                    component = frozenset(stack[places[n] :])
                    del stack[places[n] :]
                    inside -= component
                    if len(component) > 1 or n in following[n]:
                        found.update(dict.fromkeys(component, component))
    return found
