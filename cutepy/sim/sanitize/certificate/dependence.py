"""Data and control dependence of a kernel's code, over its flow graph and the natural loops in it.

A value depends on the values that it is made of, and on the branches that lead to its instruction. A natural loop has
one head, through which all paths enter it.

References
----------
Aho, Lam, Sethi and Ullman, Compilers, 2nd edition, 9.6: dominators, natural loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from cutepy.sim.ptx.model import Immediate
from cutepy.sim.sanitize.order.tries import is_try
from cutepy.sim.sanitize.order.uses import Uses
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import read, written
from cutepy.sim.translate.operand_roles import is_relevant, steering_operands

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction, Register
    from cutepy.sim.translate.control_flow import ControlFlow


T = TypeVar("T")

BEGUN, NEVER = -1, -2

_PASSES_ON = frozenset("mov selp setp set not and or xor cvt".split())


class Dependence:
    """The values and branches of a kernel, and what each depends on.

    Parameters
    ----------
    flow : ControlFlow

    Attributes
    ----------
    flow : ControlFlow
    uses : Uses
    instructions : dict of int to Instruction
        All but branches, by index.
    loops : list of NaturalLoop or int
        Or a block that goes back to where no loop begins.
    before : dict of int to list of int
        Of each block, those that lead to it.
    above : dict of int to set of int
        Of each block, those that it can't be reached without.
    over : list of list of int
        Of each block, those whose branch decides whether it runs.
    is_relevant : list of bool
        Whether it matters who runs a block: it synchronises, accesses shared memory, or is for whole warps.
    outcomes : set of int
        The instructions that do nothing but pass on the outcomes of tries, by index.
    """

    def __init__(self, flow: ControlFlow) -> None:
        self.flow, self.uses = flow, Uses(flow)
        self.instructions = {i.index: i for block in flow.blocks for i in block.instructions}
        self._at = {i.index: (b, n) for b, block in enumerate(flow.blocks) for n, i in enumerate(block.instructions)}
        self._writers: dict[int, list[Instruction]] = {}
        for i in self.instructions.values():
            for register in written(i):
                self._writers.setdefault(register.index, []).append(i)
        order, self.above = dominators(flow)
        self.before = predecessors(flow, order)
        self.loops = natural_loops(flow, order, self.above)
        self.over = self._over_all()
        self.is_relevant = [any(map(is_relevant, block.instructions)) for block in flow.blocks]
        self.outcomes = self._of_tries()

    def block_of(self, i: Instruction) -> int:
        """Return the block that an instruction is in."""
        return self._at[i.index][0]

    def dominates(self, one: Instruction, other: Instruction) -> bool:
        """Tell whether an instruction runs on each way to another one."""
        (first, n), (second, m) = self._at[one.index], self._at[other.index]
        return n < m if first == second else first in self.above[second]

    def writers(self, register: int, blocks: Iterable[int] | None = None) -> list[Instruction]:
        """Return all that gives a register a value, in some blocks or anywhere."""
        found = self._writers.get(register, [])
        return found if blocks is None else [i for i in found if self.block_of(i) in blocks]

    def makers(self, block: int, use: Instruction | None, register: int) -> list[Instruction]:
        """Return what may have made the value that an instruction, or a block's branch, reads in a register."""
        reads = self.uses.after
        return [
            i
            for i in self.writers(register)
            if any(u.block == block and u.instruction is use for u in reads(i, register))
        ]

    def makers_since(self, head: int, block: int, use: Instruction | None, register: int) -> set[int]:
        """Return what made the value that an instruction, or a block's branch, reads, since a block began, by index.

        `BEGUN` is among them if it may be what the register held there, and `NEVER` if that block may not have run.
        """
        here = self.flow.blocks[block].instructions
        place = len(here) if use is None else self._at[use.index][1]
        found: set[int] = set()
        seen: set[int] = set()
        waiting = [(block, here[:place])]
        while waiting:
            at, instructions = waiting.pop()
            for i in reversed(instructions):
                if any(r.index == register for r in written(i)):
                    found.add(i.index)
                    if i.predicate is None:
                        break
            else:
                if at == head:
                    found.add(BEGUN)
                    continue
                if not at:
                    found.add(NEVER)
                waiting += [(b, self.flow.blocks[b].instructions) for b in self.before.get(at, ()) if b not in seen]
                seen.update(self.before.get(at, ()))
        return found

    def made_of(self, i: Instruction) -> Iterator[Instruction]:
        """Yield what may have made the values that an instruction reads."""
        for register in read(i):
            yield from self.makers(self.block_of(i), i, register.index)

    def steering_operands(self, i: Instruction) -> Iterator[tuple[Register, str]]:
        """Yield the registers that steer an instruction, and as what; no numbers of bytes that any way leaves valid."""
        for register, role in steering_operands(i):
            if not (i.parts[:2] == ("cp", "async") and self._takes_no_more(i, register)):
                yield register, role

    def _takes_no_more(self, i: Instruction, register: Register) -> bool:
        """Tell whether a register is the src-size of a cp.async, and one of constants up to its cp-size."""
        if "bulk" in i.parts or register not in i.operands[3:4]:
            return False
        size = i.operands[2]
        makers = self.makers(self.block_of(i), i, register.index)
        values = [operand for m in makers for operand in m.operands[1 : 3 if m.parts[0] == "selp" else 2]]
        return (
            isinstance(size, Immediate)
            and bool(makers)
            and all(m.parts[0] in ("mov", "selp") and m.predicate is None for m in makers)
            and all(isinstance(value, Immediate) and 0 <= value.value <= size.value for value in values)
        )

    def behind(self, i: Instruction) -> Iterator[Instruction]:
        """Yield what has a part in the values that an instruction reads."""
        done: set[int] = set()
        waiting = [i]
        while waiting:
            for maker in self.made_of(waiting.pop()):
                if maker.index not in done:
                    done.add(maker.index)
                    waiting.append(maker)
                    yield maker

    def made_from(self, values: Iterable[tuple[Instruction, int]]) -> set[tuple[int, int]]:
        """Return the values in which some have a part, and these: by index of their instructions, and registers."""
        waiting = list(values)
        found = {(i.index, register) for i, register in waiting}
        while waiting:
            for use in (use for _, use in self.uses.after(*waiting.pop()) if use is not None):
                for r in written(use):
                    if (use.index, r.index) not in found:
                        found.add((use.index, r.index))
                        waiting.append((use, r.index))
        return found

    def leaving(self, blocks: frozenset[int]) -> list[int]:
        """Return those of a loop's blocks that may leave it."""
        return [n for n in blocks if set(self.flow.blocks[n].successors) - blocks]

    def _over_all(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.flow.blocks]
        for n, block in enumerate(self.flow.blocks):
            if block.condition is not None:
                sides = (self.flow.blocks_between(side, self.flow.join[n]) for side in block.successors)
                for inside in set().union(*sides):
                    found[inside].append(n)
        return found

    def _of_tries(self) -> set[int]:
        found = {i.index for i in self.instructions.values() if is_try(i)}
        passing = [i for i in self.instructions.values() if i.parts[0] in _PASSES_ON and read(i)]
        before = -1
        while len(found) > before:
            before = len(found)
            for i in passing:
                writers = [self.writers(r.index) for r in read(i)]
                if all(some and all(one.index in found for one in some) for some in writers):
                    found.add(i.index)
        return found


class Walk(Generic[T]):
    """From what is read to all that it depends on; what each is followed for goes with it.

    Parameters
    ----------
    code : Dependence
    is_free : callable
        Whether a block's branch, which decides whether another block runs, is not followed.
    why : callable
        Returns what the branch of a block is followed for.

    Attributes
    ----------
    reached : dict of (int, int or None, int) to T
        What is read: the block, the instruction by its index, or None for the branch, and the register.
    """

    def __init__(self, code: Dependence, is_free: Callable[[int, int], bool], why: Callable[[int], T]) -> None:
        self._code, self._is_free, self._why = code, is_free, why
        self.reached: dict[tuple[int, int | None, int], T] = {}
        self._decided: set[int] = set()
        self._waiting: list[tuple[int, Instruction | None, Register, T]] = []

    def begin(self, block: int, use: Instruction | None, register: Register, why: T) -> None:
        """Follow what an instruction reads, or a block's branch."""
        self._waiting.append((block, use, register, why))

    def decide(self, block: int) -> None:
        """Follow the branches that decide whether a block runs."""
        for over in self._code.over[block]:
            condition = self._code.flow.blocks[over].condition
            if over not in self._decided and condition is not None and not self._is_free(over, block):
                self._decided.add(over)
                self.begin(over, None, condition[0], self._why(over))

    def values(self) -> Iterator[tuple[Instruction, int, T]]:
        """Yield the instructions that make what is followed, in which register, and why; `pass_on` goes behind one.

        The outcomes of tries are left out.
        """
        while self._waiting:
            block, use, register, why = self._waiting.pop()
            key = block, None if use is None else use.index, register.index
            if key not in self.reached:
                self.reached[key] = why
                for i in self._code.makers(block, use, register.index):
                    if i.index not in self._code.outcomes:
                        yield i, register.index, why

    def pass_on(self, i: Instruction, why: T, *, but: frozenset[int] = frozenset()) -> None:
        """Follow what an instruction reads, but for some registers."""
        for register in read(i):
            if register.index not in but:
                self.begin(self._code.block_of(i), i, register, why)


class NaturalLoop(NamedTuple):
    """Blocks that go around.

    Attributes
    ----------
    head : int
        The block where rounds begin.
    last : int
        The last of the blocks that go back.
    blocks : frozenset of int
    """

    head: int
    last: int
    blocks: frozenset[int]


def natural_loops(flow: ControlFlow, order: Sequence[int], above: dict[int, set[int]]) -> list[NaturalLoop] | int:
    """Return the loops; or a block that goes back to where none begins.

    Parameters
    ----------
    flow : ControlFlow
    order, above
        As `dominators` gives them.
    """
    place = {block: n for n, block in enumerate(order)}
    back: dict[int, list[int]] = {}
    for block in order:
        for to in flow.blocks[block].successors:
            if to != EXIT and place[to] <= place[block]:
                if to not in above[block]:
                    return block
                back.setdefault(to, []).append(block)
    before = predecessors(flow, order)
    found = []
    for head, lasts in back.items():
        blocks, waiting = {head}, list(lasts)
        while waiting:
            one = waiting.pop()
            if one not in blocks:
                blocks.add(one)
                waiting += before.get(one, ())
        found.append(NaturalLoop(head, max(lasts, key=place.__getitem__), frozenset(blocks)))
    return found


def predecessors(flow: ControlFlow, order: Iterable[int]) -> dict[int, list[int]]:
    """Return of each block those that lead to it, of some blocks."""
    found: dict[int, list[int]] = {}
    for block in order:
        for to in flow.blocks[block].successors:
            found.setdefault(to, []).append(block)
    return found


def dominators(flow: ControlFlow) -> tuple[list[int], dict[int, set[int]]]:
    """Return the blocks that are reached, in reverse postorder, and of each those that it can't be reached without."""
    order: list[int] = []
    seen, stack = {0}, [(0, iter(flow.blocks[0].successors))]
    while stack:
        block, rest = stack[-1]
        to = next((x for x in rest if x != EXIT and x not in seen), None)
        if to is None:
            order.append(block)
            stack.pop()
        else:
            seen.add(to)
            stack.append((to, iter(flow.blocks[to].successors)))
    order.reverse()
    before = predecessors(flow, order)
    found: dict[int, set[int]] = {0: {0}}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            new = set.intersection(*(found[x] for x in before[block] if x in found)) | {block}
            if found.get(block) != new:
                found[block] = new
                changed = True
    return order, found
