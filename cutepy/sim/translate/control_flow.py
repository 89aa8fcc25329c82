"""Basic blocks of a function, where lanes that part meet again, and which registers live where.

A block that begins with an instruction that may have to wait is run again when its lanes are woken, so such
instructions come first in their blocks. An instruction with side effects and a guard gets a block of its own behind a
branch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cutepy.sim.ptx.model import Function, Instruction, Label, Register
from cutepy.sim.translate.effects import read, written

EXIT = -1
"""Pseudo-block: the end of the thread."""


@dataclass
class Block:
    """Instructions that run together.

    Attributes
    ----------
    instructions : list
        In order; without the branch that ends them.
    condition : (Register, bool) or None
        With two successors: the predicate, and whether it is negated; the first successor is where it holds.
    successors : list of int
        Block numbers, or EXIT.
    """

    instructions: list[Instruction]
    condition: tuple[Register, bool] | None = None
    successors: list[int] = field(default_factory=list)
    branch: Instruction | None = None


@dataclass(eq=False)
class ControlFlow:
    """A function's blocks, and facts that follow from their links.

    Attributes
    ----------
    blocks : list of Block
    join : list of int
        The block where all paths from a block meet first (its immediate post-dominator), or EXIT; threads that only
        exit there do so without the others.
    live_in : list of frozenset of int
        Registers, by index, that a block or its successors read before they write.
    units : dict of int to int
        Threads that execute the instructions from a block on together, once it has been asked for.
    """

    blocks: list[Block]
    join: list[int]
    live_in: list[frozenset[int]]
    _uses: list[frozenset[int]]
    units: dict[int, int] = field(default_factory=dict)
    _regions: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)
    _touched: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)
    _operations: dict[tuple[int, int], frozenset[str]] = field(default_factory=dict)

    def blocks_between(self, start: int, end: int) -> set[int]:
        """Return the blocks that can run from `start` on before `end`."""
        seen: set[int] = set()
        stack = [start]
        while stack:
            block = stack.pop()
            if block in (end, EXIT) or block in seen:
                continue
            seen.add(block)
            stack.extend(self.blocks[block].successors)
        return seen

    def touched_between(self, start: int, end: int) -> frozenset[int]:
        """Return the registers that may be read or written from `start` on before `end`."""
        key = start, end
        if key not in self._touched:
            found: set[int] = set()
            for block in self.blocks_between(start, end):
                for instruction in self.blocks[block].instructions:
                    found.update(r.index for r in (*read(instruction), *written(instruction)))
            self._touched[key] = frozenset(found)
        return self._touched[key]

    def has_between(self, start: int, end: int, operation: str) -> bool:
        """Return whether an instruction with this first part of its opcode can run from `start` on before `end`."""
        key = start, end
        if key not in self._operations:
            blocks = (self.blocks[number] for number in self.blocks_between(start, end))
            self._operations[key] = frozenset(i.parts[0] for block in blocks for i in block.instructions)
        return operation in self._operations[key]

    def used_between(self, start: int, end: int) -> frozenset[int]:
        """Return the registers whose values at `start` may be read before `end`."""
        key = start, end
        if key not in self._regions:
            used: frozenset[int] = frozenset()
            for block in self.blocks_between(start, end):
                used |= self._uses[block]
            self._regions[key] = used & self.live_in[start]
        return self._regions[key]


def analyse(
    function: Function,
    waits: Callable[[Instruction], bool],
    has_effects: Callable[[Instruction], bool],
    starts: Iterable[int] = (),
) -> ControlFlow:
    """Cut a function into blocks.

    Parameters
    ----------
    function : Function
    waits : callable
        True if an instruction may have to wait, or must start a block for another reason.
    has_effects : callable
        True if an instruction does more than write registers.
    starts : iterable of int
        Further instructions that begin blocks, by index.
    """
    blocks = _blocks(function, waits, has_effects, starts)
    return ControlFlow(blocks, _post_dominators(blocks), *_liveness(blocks))


def _blocks(
    function: Function,
    waits: Callable[[Instruction], bool],
    has_effects: Callable[[Instruction], bool],
    begins: Iterable[int],
) -> list[Block]:
    instructions = function.instructions
    leaders = {0, *begins, *(op.target for i in instructions for op in i.operands if isinstance(op, Label))}
    guarded = set()
    for i in instructions:
        if waits(i):
            leaders.add(i.index)
        if i.traits.branches or i.traits.calls:
            leaders.add(i.index + 1)
        if i.traits.branches:
            continue
        if i.predicate is not None and has_effects(i):
            guarded.add(i.index)
            leaders.update((i.index, i.index + 1))
    starts = sorted({*leaders, len(instructions)})
    # A guarded instruction takes two blocks: the branch, and itself.
    number: dict[int, int] = {}
    count = 0
    for start in starts[:-1]:
        number[start] = count
        count += 2 if start in guarded else 1
    number[len(instructions)] = EXIT
    blocks: list[Block] = []
    for start, end in itertools.pairwise(starts):
        if start in guarded:
            i = instructions[start]
            assert i.predicate is not None
            after = number[end]
            blocks.append(Block([], i.predicate, [len(blocks) + 1, after], i))
            bare = Instruction(i.index, i.opcode, i.operands, None, i.text, i.source, i.line)
            blocks.append(_finish(bare, [], after, number))
        else:
            blocks.append(_finish(instructions[end - 1], list(instructions[start : end - 1]), number[end], number))
    return blocks


def _finish(last: Instruction, body: list[Instruction], after: int, number: dict[int, int]) -> Block:
    """Make the block whose last instruction is given."""
    operation = last.parts[0]
    if operation == "bra":
        target = last.operands[0]
        assert isinstance(target, Label)
        if last.predicate is None:
            return Block(body, None, [number[target.target]], last)
        return Block(body, last.predicate, [number[target.target], after], last)
    if operation in ("ret", "exit"):
        # What returns from a function that was called names where its lanes meet.
        to = next((number[place.target] for place in last.operands if isinstance(place, Label)), EXIT)
        if last.predicate is None:
            return Block(body, None, [to], last)
        return Block(body, last.predicate, [to, after], last)
    return Block([*body, last], None, [after])


def _post_dominators(blocks: list[Block]) -> list[int]:
    """Return each block's immediate post-dominator (Cooper, Harvey and Kennedy, on the reversed graph)."""
    exit_node = len(blocks)
    predecessors: list[list[int]] = [[] for _ in range(exit_node + 1)]
    for index, block in enumerate(blocks):
        for successor in block.successors:
            predecessors[exit_node if successor == EXIT else successor].append(index)
    order: list[int] = []
    seen = {exit_node}
    stack = [(exit_node, iter(predecessors[exit_node]))]
    while stack:
        node, rest = stack[-1]
        for following in rest:
            if following not in seen:
                seen.add(following)
                stack.append((following, iter(predecessors[following])))
                break
        else:
            order.append(node)
            stack.pop()
    rank = {node: index for index, node in enumerate(order)}
    dominator = {exit_node: exit_node}
    changed = True
    while changed:
        changed = False
        for node in reversed(order[:-1]):
            candidates = [exit_node if s == EXIT else s for s in blocks[node].successors]
            known = [c for c in candidates if c in dominator]
            new = known[0]
            for other in known[1:]:
                new = _intersect(new, other, dominator, rank)
            if dominator.get(node) != new:
                dominator[node] = new
                changed = True
    found = [dominator.get(index, exit_node) for index in range(exit_node)]
    only_exits = {n for n, block in enumerate(blocks) if block.successors == [EXIT] and not block.instructions}
    # A guard of what whole warps execute is no way to the end: they meet after it, or the guard is a mistake.
    guards = {n for n, block in enumerate(blocks) if block.branch is not None and block.branch.traits.threads > 1}
    return [EXIT if x == exit_node or (x in only_exits and n not in guards) else x for n, x in enumerate(found)]


def _intersect(a: int, b: int, dominator: dict[int, int], rank: dict[int, int]) -> int:
    while a != b:
        while rank[a] < rank[b]:
            a = dominator[a]
        while rank[b] < rank[a]:
            b = dominator[b]
    return a


def _liveness(blocks: list[Block]) -> tuple[list[frozenset[int]], list[frozenset[int]]]:
    """Return the registers live on entry to each block, and those each reads at all."""
    uses, exposed, defined = [], [], []
    for block in blocks:
        seen: set[int] = set()
        first: set[int] = set()
        every: set[int] = set()
        for instruction in block.instructions:
            names = {r.index for r in read(instruction)}
            every |= names
            first |= names - seen
            seen |= {r.index for r in written(instruction)}
        if block.condition is not None:
            every.add(block.condition[0].index)
            if block.condition[0].index not in seen:
                first.add(block.condition[0].index)
        uses.append(frozenset(every))
        exposed.append(_mask(first))
        defined.append(_mask(seen))
    live = list(exposed)
    changed = True
    while changed:
        changed = False
        for index in range(len(blocks) - 1, -1, -1):
            out = 0
            for successor in blocks[index].successors:
                if successor != EXIT:
                    out |= live[successor]
            new = exposed[index] | (out & ~defined[index])
            if new != live[index]:
                live[index] = new
                changed = True
    return [frozenset(_members(mask)) for mask in live], uses


def _mask(indices: set[int]) -> int:
    mask = 0
    for index in indices:
        mask |= 1 << index
    return mask


def _members(mask: int) -> list[int]:
    return [i for i, bit in enumerate(bin(mask)[:1:-1]) if bit == "1"]
