"""Basic blocks in nodes: runs of instructions that are written as machine code, runs of others, and blocks' ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from cutepy.sim.mechanisms.named_barriers import BARRIERS
from cutepy.sim.native.instructions import is_native
from cutepy.sim.ptx.model import Immediate, Instruction, Register
from cutepy.sim.translate import Program
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import read, written

_LONGEST = 500
"""Instructions of a node: those of a long block may be of several regions."""


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """Some instructions of a block, or its end.

    Attributes
    ----------
    number : int
        Among all nodes.
    block : int
    instructions : tuple of Instruction
        None of a block's end.
    kind : str
        "native"; "barrier", of a CTA; "numpy"; "end", where a block goes on to others; "last", an end that regions do
        not cross; or "whole", a block that is not cut.
    is_first : bool
        Whether it begins its block.
    condition : (Register, bool) or None
        Of an end with two ways: the predicate, and whether it is negated.
    successors : tuple of int
        Nodes, or EXIT.
    join : int
        The node that all paths from here come to first, or EXIT.
    """

    number: int
    block: int
    instructions: tuple[Instruction, ...]
    kind: str
    is_first: bool
    condition: tuple[Register, bool] | None
    successors: tuple[int, ...]
    join: int

    @property
    def is_native(self) -> bool:
        """True if machine code can be written for it."""
        return self.kind in ("native", "barrier", "end")


class Nodes:
    """All nodes of a program.

    Parameters
    ----------
    program : Program
    is_watched : bool
        Whether observers see each access: arithmetic alone is native then, and what is between the accesses of a block
        comes after them, as far as they do not need it.

    Attributes
    ----------
    all : list of Node
    starts : list of int
        By block, its first node.
    """

    def __init__(self, program: Program, is_watched: bool = False) -> None:
        self._program, self._is_watched = program, is_watched
        runs = [self._runs(number) for number in range(len(program.blocks))]
        self.starts: list[int] = []
        count = 0
        for parts in runs:
            self.starts.append(count)
            count += len(parts)
        self.all: list[Node] = []
        for block, parts in enumerate(runs):
            for kind, instructions in parts:
                self._add(block, kind, tuple(instructions))

    def _runs(self, number: int) -> list[tuple[str, list[Instruction]]]:
        """Cut a block into runs, of which the last is its end."""
        program = self._program
        block = program.flow.blocks[number]
        instructions = block.instructions
        # A call is the end of its block, and says where that goes on.
        if f"ERROR_{number}" in program.names or any(i.parts[0] == "call" for i in instructions):
            return [("whole", list(instructions))]
        avoided = program.sets_with
        runs: list[tuple[str, list[Instruction]]] = []
        kinds = [(self._kind(i), i) for i in instructions]
        for kind, i in _gathered(kinds) if self._is_watched else kinds:
            is_other = not runs or runs[-1][0] != kind or returns_old(i) or returns_old(runs[-1][1][-1])
            if is_other or len(runs[-1][1]) >= _LONGEST:
                runs.append((kind, []))
            runs[-1][1].append(i)
        if block.condition is not None and block.condition[0].index in avoided:
            return [("whole", list(instructions))]
        return [*runs, ("last" if self._is_watched else "end", [])]

    def _kind(self, i: Instruction) -> str:
        program = self._program
        if any(r.index in program.sets_with for r in (*read(i), *written(i))):
            return "numpy"
        if self._is_watched:
            return "native" if _is_unseen(i) and is_native(i, program.kinds) else "numpy"
        return "barrier" if self._is_barrier(i) else "native" if is_native(i, program.kinds) else "numpy"

    def _is_barrier(self, i: Instruction) -> bool:
        """Tell whether an instruction is one of the barriers that all threads of a CTA come to."""
        if i.parts[0] not in ("bar", "barrier") or not set(i.parts[1:]) <= {"cta", "sync", "aligned"}:
            return False
        (identity, *count) = i.operands
        number = self.constants.get(identity.index) if isinstance(identity, Register) else identity
        return isinstance(number, Immediate) and 0 <= number.value < BARRIERS and not count

    def _add(self, number: int, kind: str, instructions: tuple[Instruction, ...]) -> None:
        block, n = self._program.flow.blocks[number], len(self.all)
        is_first = n == self.starts[number]
        if kind not in ("end", "last", "whole"):
            self.all.append(Node(n, number, instructions, kind, is_first, None, (n + 1,), n + 1))
            return
        places = tuple(EXIT if s == EXIT else self.starts[s] for s in block.successors)
        join = self._program.flow.join[number]
        meets = places[0] if block.condition is None else EXIT if join == EXIT else self.starts[join]
        self.all.append(Node(n, number, instructions, kind, is_first, block.condition, places, meets))

    def main_of(self, block: int) -> int:
        """Return the node that a block's time is put down to: one that numpy runs if there is one, or the first."""
        start = self.starts[block]
        end = self.starts[block + 1] if block + 1 < len(self.starts) else len(self.all)
        return next((n for n in range(start, end) if not self.all[n].is_native), start)

    def is_plain(self, block: int) -> bool:
        """Tell whether all of a block can be machine code whenever lanes come to it: at a barrier all must come."""
        first = self.all[self.main_of(block)]
        return first.is_native and first.kind != "barrier"

    def between(self, start: int, end: int) -> set[int]:
        """Return the nodes that can run from `start` on before `end`."""
        seen: set[int] = set()
        stack = [start]
        while stack:
            node = stack.pop()
            if node in (end, EXIT) or node in seen:
                continue
            seen.add(node)
            stack.extend(self.all[node].successors)
        return seen

    @cached_property
    def constants(self) -> dict[int, Immediate]:
        """The registers that one instruction writes, and that only with a number."""
        found: dict[int, Immediate | None] = {}
        for i in self._program.function.instructions:
            number = i.operands[1] if i.parts[0] == "mov" and i.predicate is None and len(i.operands) == 2 else None
            for register in written(i):
                is_first = register.index not in found
                found[register.index] = number if is_first and isinstance(number, Immediate) else None
        return {index: number for index, number in found.items() if number is not None}

    @cached_property
    def live_in(self) -> list[frozenset[int]]:
        """By node, the registers that it or its successors read before they write."""
        found: list[frozenset[int]] = [frozenset()] * len(self.all)
        for node in reversed(self.all):
            if node.kind in ("end", "last", "whole"):
                live: frozenset[int] = frozenset()
                for successor in self._program.flow.blocks[node.block].successors:
                    if successor != EXIT:
                        live |= self._program.flow.live_in[successor]
                if node.condition is not None:
                    live |= {node.condition[0].index}
            else:
                live = found[node.number + 1]
            for i in reversed(node.instructions):
                live = (live - {r.index for r in written(i)}) | {r.index for r in read(i)}
            found[node.number] = live
        return found


def _is_unseen(i: Instruction) -> bool:
    """Tell whether all that an instruction does is to compute results of its own lanes' values: no observer sees it."""
    traits = i.traits
    seen = traits.effects or traits.loads or traits.stores or traits.exchanges or traits.threads > 1
    return traits.is_known and not seen


def _gathered(kinds: list[tuple[str, Instruction]]) -> Iterator[tuple[str, Instruction]]:
    """Let native instructions wait for the others behind them that need nothing of them: they become longer runs."""
    waiting: list[tuple[str, Instruction]] = []
    needed: set[int] = set()
    given: set[int] = set()
    for kind, i in kinds:
        reads, writes = {r.index for r in read(i)}, {r.index for r in written(i)}
        if kind == "native":
            waiting.append((kind, i))
            needed, given = needed | reads, given | writes
            continue
        if reads & given or writes & (given | needed) or not i.traits.is_access or i.traits.stores:
            yield from waiting
            waiting, needed, given = [], set(), set()
        yield kind, i
    yield from waiting


def returns_old(i: Instruction) -> bool:
    """Tell whether an instruction is an atomic operation that returns what was there."""
    return i.parts[0] == "atom"
