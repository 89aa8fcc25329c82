"""Regions: nodes that run as one function, which all lanes that come to the first leave for the same node.

A warp runs through a region by itself, not in lockstep with other warps. Accesses of different warps to the same memory
without a barrier between them are races, unless they are strong or atomic. Strong and atomic operations that could
observe the order of warps end a region.

References
----------
PTX ISA, "Memory Consistency Model": strong operations, data races.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from cutepy.sim.machine.memory import PlainLoad
from cutepy.sim.native.nodes import Node, Nodes, needs_address, plain_load
from cutepy.sim.ptx.instruction_set import COMMUTATIVE, reduction_of
from cutepy.sim.ptx.memory_order import WEAK, strength
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import read, written

_MOST, _MOST_BARRIERS = 1500, 16
"""Instructions of a region, and barriers: what the compiler takes grows with them, and faster with many barriers."""


@dataclass(frozen=True)
class Region:
    """Nodes that run as one function.

    Attributes
    ----------
    nodes : Nodes
    entry, end : int
        The first node, and the one where all lanes go on, or EXIT.
    numbers : frozenset of int
        The nodes.
    """

    nodes: Nodes
    entry: int
    end: int
    numbers: frozenset[int]

    def __iter__(self) -> Iterator[Node]:
        return (self.nodes.all[n] for n in sorted(self.numbers))

    @cached_property
    def instructions(self) -> list[Instruction]:
        """All instructions."""
        return [i for node in self for i in node.instructions]

    @cached_property
    def inputs(self) -> list[int]:
        """The registers that are read before they are written, or may be left as they were."""
        touched = {r.index for i in self.instructions for r in (*read(i), *written(i))}
        touched |= {node.condition[0].index for node in self if node.condition is not None}
        return sorted(self.nodes.live_in[self.entry] & touched)

    @cached_property
    def outputs(self) -> list[int]:
        """The registers that are written and read afterwards."""
        if self.end == EXIT:
            return []
        return sorted({r.index for i in self.instructions for r in written(i)} & self.nodes.live_in[self.end])

    @cached_property
    def told(self) -> list[PlainLoad]:
        """The loads of which observers are to be told, in order; their addresses are among the inputs."""
        found = map(plain_load, self.instructions) if self.nodes.is_watched else ()
        return [load for load in found if load is not None]

    @cached_property
    def headers(self) -> frozenset[int]:
        """The nodes that loops come back to."""
        return frozenset(_headers(self.nodes, self.entry, self.numbers))

    @cached_property
    def barriers(self) -> list[Node]:
        """The barriers that all threads of a CTA come to."""
        return [node for node in self if node.kind == "barrier"]

    def within(self, node: Node) -> frozenset[int]:
        """Return the nodes where lanes that part at a node's end are apart."""
        found: set[int] = set()
        for successor in node.successors:
            if successor != EXIT:
                found |= self.nodes.between(successor, node.join)
        return frozenset(found & self.numbers)


def regions(nodes: Nodes, entry: int, stop: int) -> list[Region]:
    """Return the largest regions from a node on that do not go beyond another: across barriers, and up to one."""
    found = [_region(nodes, entry, stop, crosses) for crosses in (True, False)]
    if found[0] is not None and not found[0].barriers:
        del found[1]
    return [one for one in found if one is not None]


def _region(nodes: Nodes, entry: int, stop: int, crosses: bool) -> Region | None:
    end, found = entry, _GrowingRegion(nodes, crosses)
    while end not in (stop, EXIT) and nodes.all[end].is_native:
        further = nodes.all[end].join
        between = nodes.between(end, further)
        if stop in between or further in between | found.numbers or not found.grow(between):
            break
        end = further
    return Region(nodes, entry, end, frozenset(found.numbers)) if found.numbers else None


class _GrowingRegion:
    """Nodes that may be one region, and the properties that limit it.

    Parameters
    ----------
    nodes : Nodes
    crosses : bool
        True if barriers of a CTA may be within.
    """

    def __init__(self, nodes: Nodes, crosses: bool) -> None:
        self.numbers: set[int] = set()
        self._nodes, self._barriers = nodes, _MOST_BARRIERS if crosses else 0
        self._instructions = self._atomics = 0
        self._operations: set[str] = set()
        self._ordered: list[Node] = []
        self._strong: list[Node] = []
        self._made: set[int] = set()  # the registers that are written, where observers are told of loads

    def grow(self, numbers: set[int]) -> bool:
        """Add nodes; tells whether all of them may be one region: where they may not, it has no further use."""
        added = [self._nodes.all[n] for n in numbers - self.numbers]
        self.numbers, before = self.numbers | numbers, self.numbers
        if self._admits(added):
            return True
        self.numbers = before
        return False

    def _admits(self, added: list[Node]) -> bool:
        for node in added:
            atomics = [i for i in node.instructions if i.traits.is_atomic]
            self._instructions += len(node.instructions)
            self._barriers -= node.kind == "barrier"
            self._atomics += len(atomics)
            self._operations |= {reduction_of(i.parts) for i in atomics}
            self._ordered += [node] * any(_is_ordered(self._nodes, node, i) for i in atomics)
            loads = (i for i in node.instructions if i.traits.reads_memory and not i.traits.is_atomic)
            self._strong += [node] * any(strength(i.opcode).scope != WEAK for i in loads)
        if not all(node.is_native for node in added) or self._instructions > _MOST or self._barriers < 0:
            return False
        if self._nodes.is_watched:
            if any(needs_address(i, self._made) for node in added for i in node.instructions):
                return False
            self._made.update(r.index for node in added for i in node.instructions for r in written(i))
        if len(self._operations) > 1 or (self._ordered and self._atomics > 1):
            return False
        alone = (*self._ordered, *self._strong)
        return not any(node.number in _after(self._nodes, node, self.numbers) for node in alone)


def _is_ordered(nodes: Nodes, node: Node, i: Instruction) -> bool:
    """Return whether it matters in which order lanes execute an atomic operation, which is alone in its node."""
    is_used = i.traits.has_result and any(r.index in nodes.live_in[node.number + 1] for r in written(i))
    return is_used or reduction_of(i.parts) not in COMMUTATIVE


def _after(nodes: Nodes, node: Node, numbers: set[int]) -> set[int]:
    """Return the nodes of some that can run after one of them."""
    found: set[int] = set()
    stack = list(node.successors)
    while stack:
        number = stack.pop()
        if number in numbers and number not in found:
            found.add(number)
            stack.extend(nodes.all[number].successors)
    return found


def _headers(nodes: Nodes, entry: int, numbers: frozenset[int]) -> set[int]:
    found: set[int] = set()
    open_, seen = {entry}, {entry}
    stack = [(entry, iter(nodes.all[entry].successors))]
    while stack:
        number, rest = stack[-1]
        for successor in rest:
            if successor in open_:
                found.add(successor)
            elif successor in numbers and successor not in seen:
                seen.add(successor)
                open_.add(successor)
                stack.append((successor, iter(nodes.all[successor].successors)))
                break
        else:
            open_.discard(number)
            stack.pop()
    return found
