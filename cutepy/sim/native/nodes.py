"""Basic blocks in nodes: runs of instructions that are written as machine code, runs of others, and blocks' ends."""

from __future__ import annotations

from collections.abc import Iterator, Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from cutepy.sim.machine.memory import PlainLoad
from cutepy.sim.mechanisms.named_barriers import BARRIERS
from cutepy.sim.native.instructions import is_native
from cutepy.sim.ptx.memory_order import WEAK, strength
from cutepy.sim.ptx.model import Address, Immediate, Instruction, Register, Vector
from cutepy.sim.semantics.types import kind_of
from cutepy.sim.translate import Program
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import read, written
from cutepy.sim.translate.memory import space_of

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
        True if it begins its block.
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
        True if observers see each access: arithmetic and plain loads alone are native then, and what is between the
        accesses of a block comes after them, as far as they do not need it.

    Attributes
    ----------
    all : list of Node
    starts : list of int
        By block, its first node.
    is_watched : bool
    """

    def __init__(self, program: Program, is_watched: bool = False) -> None:
        self._program, self.is_watched = program, is_watched
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
        if f"ERROR_{number}" in program.names or any(i.traits.calls for i in instructions):
            return [("whole", list(instructions))]
        avoided = program.sets_with
        runs: list[tuple[str, list[Instruction]]] = []
        kinds = [(self._kind(i), i) for i in instructions]
        made: set[int] = set()  # the registers that the last run writes
        for kind, i in _gathered(kinds) if self.is_watched else kinds:
            is_other = not runs or runs[-1][0] != kind or returns_old(i) or returns_old(runs[-1][1][-1])
            if is_other or len(runs[-1][1]) >= _LONGEST or (kind == "native" and needs_address(i, made)):
                runs.append((kind, []))
                made = set()
            runs[-1][1].append(i)
            if self.is_watched:
                made.update(r.index for r in written(i))
        if block.condition is not None and block.condition[0].index in avoided:
            return [("whole", list(instructions))]
        return [*runs, ("last" if self.is_watched else "end", [])]

    def _kind(self, i: Instruction) -> str:
        program = self._program
        if any(r.index in program.sets_with for r in (*read(i), *written(i))):
            return "numpy"
        if self.is_watched:
            is_told = _is_unseen(i) or plain_load(i) is not None
            return "native" if is_told and is_native(i, program.kinds) else "numpy"
        return "barrier" if self._is_barrier(i) else "native" if is_native(i, program.kinds) else "numpy"

    def _is_barrier(self, i: Instruction) -> bool:
        """Return whether an instruction is one of the barriers that all threads of a CTA come to."""
        if i.traits.barrier != "named" or not set(i.parts[1:]) <= {"cta", "sync", "aligned"}:
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
        """Return whether all of a block can be machine code whenever lanes come to it: at a barrier all must come."""
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

    @property
    def is_ranked(self) -> bool:
        """True if addresses of shared memory may have the rank of their CTA."""
        return self._program.linked.is_ranked

    @cached_property
    def constants(self) -> dict[int, Immediate]:
        """The registers that one instruction writes, and that only with a number."""
        found: dict[int, Immediate | None] = {}
        for i in self._program.function.instructions:
            number = i.operands[1] if i.traits.renames and i.predicate is None and len(i.operands) == 2 else None
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


def plain_load(i: Instruction) -> PlainLoad | None:
    """Return a load of which observers need no more than its address, to be told of it once machine code has done it.

    It is weak and unconditional, and its address is in a register. None of other instructions.
    """
    if i.parts[0] != "ld" or i.predicate is not None or strength(i.opcode).scope != WEAK:
        return None
    (d, address), space = i.operands[:2], space_of(i)
    if not isinstance(address, Address) or not isinstance(address.base, Register):
        return None
    size = int(kind_of(i.parts[-1])[1:]) * (len(d.items) if isinstance(d, Vector) else 1)
    where = address.base.index, address.offset
    if space == "global":
        return PlainLoad(i, *where, "global", size)
    return PlainLoad(i, *where, "shared", size) if space == "shared" else None


def needs_address(i: Instruction, made: AbstractSet[int]) -> bool:
    """Return whether a plain load has its address in one of some registers."""
    load = plain_load(i) if made else None
    return load is not None and load.base in made


def _gathered(kinds: list[tuple[str, Instruction]]) -> Iterator[tuple[str, Instruction]]:
    """Let native arithmetic wait for the others after it that need nothing of it: it becomes a longer run."""
    waiting: list[tuple[str, Instruction]] = []
    needed: set[int] = set()
    given: set[int] = set()
    has_load = False
    for kind, i in kinds:
        reads, writes = {r.index for r in read(i)}, {r.index for r in written(i)}
        if kind == "native":
            waiting.append((kind, i))
            needed, given, has_load = needed | reads, given | writes, has_load or plain_load(i) is not None
            continue
        is_needed = bool(reads & given or writes & (given | needed))
        if is_needed or has_load or not i.traits.is_access or i.traits.stores:
            yield from waiting
            waiting, needed, given, has_load = [], set(), set(), False
        yield kind, i
    yield from waiting


def returns_old(i: Instruction) -> bool:
    """Return whether an instruction is an atomic operation that returns the old value."""
    return i.traits.is_atomic and i.traits.has_result
