"""Uses of values: instructions and branches that may read the result of an instruction."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from functools import wraps
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cutepy.sim.translate.control_flow import EXIT, analyse
from cutepy.sim.translate.effects import read, written

if TYPE_CHECKING:
    from collections.abc import Callable

    from cutepy.sim.ptx.model import Function, Instruction
    from cutepy.sim.translate.control_flow import ControlFlow


_Derived = TypeVar("_Derived")

_KEPT = 16
"""Functions of which an analysis keeps its results."""


def once(analysis: Callable[[Function], _Derived]) -> Callable[[Function], _Derived]:
    """Keep the result of an analysis by function: it analyses a function once, however often that is launched.

    A function is known by its identity, since `linked` returns the same object for the same text. Results are shared,
    so callers must not change them.
    """
    kept: OrderedDict[int, tuple[Function, _Derived]] = OrderedDict()

    @wraps(analysis)
    def of(function: Function) -> _Derived:
        known = kept.get(id(function))
        if known is None:
            known = kept[id(function)] = function, analysis(function)
            while len(kept) > _KEPT:
                kept.popitem(last=False)
        return known[1]

    return of


@once
def whole_flow(function: Function) -> ControlFlow:
    """Return the control flow of a function, with blocks that nothing parts but its branches."""
    return analyse(function, lambda i: False, lambda i: True)


@once
def uses_of(function: Function) -> Uses:
    """Return the uses of the values of a function."""
    return Uses(whole_flow(function))


class Use(NamedTuple):
    """The place where a value is read.

    Attributes
    ----------
    block : int
    instruction : Instruction or None
        None where the block's end branches by it.
    """

    block: int
    instruction: Instruction | None


class Uses:
    """The uses of values in a kernel.

    Parameters
    ----------
    flow : ControlFlow
    """

    def __init__(self, flow: ControlFlow) -> None:
        self._flow = flow
        self._at = {i.index: (b, n) for b, block in enumerate(flow.blocks) for n, i in enumerate(block.instructions)}
        # By block and register, where in the block it is read, and where it is written in any case, in order.
        self._reads: list[dict[int, list[int]]] = [{} for _ in flow.blocks]
        self._writes: list[dict[int, list[int]]] = [{} for _ in flow.blocks]
        for b, block in enumerate(flow.blocks):
            for n, i in enumerate(block.instructions):
                for register in {r.index for r in read(i)}:
                    self._reads[b].setdefault(register, []).append(n)
                for register in {r.index for r in written(i)} if i.predicate is None else ():
                    self._writes[b].setdefault(register, []).append(n)
        self._written = set().union(*self._writes)
        self._kept: dict[tuple[int, int], list[Use]] = {}

    def after(self, i: Instruction, register: int) -> list[Use]:
        """Return the possible reads of the value that an instruction gives to a register."""
        block, place = self._at[i.index]
        return self._from(block, place + 1, register)

    def after_unseen(self, i: Instruction, register: int, seen: set[tuple[int, int]]) -> list[Use]:
        """Return the possible reads of the value that an instruction gives to a register, except on followed paths.

        Many values of one register may reach the same uses. Who follows them all meets each use by a few of them only,
        so the effort grows with the code, and not with the pairs of values and uses.

        Parameters
        ----------
        i : Instruction
        register : int
            By index.
        seen : set of (int, int)
            The blocks from whose beginning a register, by index, was followed; those that are followed now are added.
        """
        block, place = self._at[i.index]
        return self._walk(block, place + 1, register, seen)

    def on_entry(self, block: int, register: int) -> list[Use]:
        """Return the possible reads of a register's value at the beginning of a block."""
        return self._from(block, 0, register)

    def spread(
        self, start: Instruction | int, register: int, seen: set[tuple[int, int]]
    ) -> tuple[list[Use], list[Instruction]]:
        """Return the possible reads of a value, as `after_unseen` does, and the instructions that surely overwrite it.

        Parameters
        ----------
        start : Instruction or int
            Definition of the register, or the block at whose begin it is live.
        register : int
            By index.
        seen : set of (int, int)
            As of `after_unseen`.
        """
        block, place = (start, 0) if isinstance(start, int) else self._at[start.index]
        ends: list[Instruction] = []
        return self._walk(block, place + (not isinstance(start, int)), register, seen, ends), ends

    def _from(self, block: int, place: int, register: int) -> list[Use]:
        key = block << 20 | place, register
        if key not in self._kept:
            self._kept[key] = self._walk(block, place, register, set())
        return self._kept[key]

    def _walk(
        self,
        block: int,
        place: int,
        register: int,
        seen: set[tuple[int, int]],
        ends: list[Instruction] | None = None,
    ) -> list[Use]:
        found: list[Use] = []
        waiting = [(block, place)]
        while waiting:
            number, start = waiting.pop()
            here = self._flow.blocks[number]
            reads, writes = self._reads[number].get(register, []), self._writes[number].get(register, [])
            overwritten = bisect_left(writes, start)
            end = writes[overwritten] if overwritten < len(writes) else len(here.instructions)
            found += [Use(number, here.instructions[n]) for n in reads[bisect_left(reads, start) :] if n <= end]
            if overwritten < len(writes):
                if ends is not None:
                    ends.append(here.instructions[end])
                continue
            if here.condition is not None and here.condition[0].index == register:
                found.append(Use(number, None))
            for following in here.successors:
                at = following, register
                if following == EXIT or at in seen:
                    continue
                # Where it isn't read any more it may be overwritten still.
                may_end = ends is not None and register in self._written
                if may_end or register in self._flow.live_in[following]:
                    seen.add(at)
                    waiting.append((following, 0))
        return found
