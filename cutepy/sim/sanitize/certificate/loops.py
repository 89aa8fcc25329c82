"""The loops of a kernel that synchronise, and what a round of one takes from the round before to steer.

Of each loop, the registers are found that come around it and reach, over all paths of the code, a branch that decides
about synchronisation or accesses to shared memory, an address there, or an operand of synchronisation. If they have
the values again that they had some rounds before, all that steers repeats from there on. How often a loop goes around
is not asked: the branches that leave it are left out, for that loop and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.ptx.model import Label, Register, registers_in
from cutepy.sim.sanitize.certificate.bounds import Bounded, Bounds
from cutepy.sim.sanitize.certificate.counters import counts, modulus, remainder
from cutepy.sim.sanitize.certificate.counting import Counting
from cutepy.sim.sanitize.certificate.natural_loops import natural_loops
from cutepy.sim.sanitize.certificate.sinks import is_relevant, loads, sinks, synchronises
from cutepy.sim.sanitize.certificate.thresholds import Thresholds
from cutepy.sim.sanitize.order.failing import is_try
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import read, written

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Function, Instruction, SourceLine
    from cutepy.sim.sanitize.certificate.comparisons import Comparison
    from cutepy.sim.sanitize.order.uses import Use, Uses
    from cutepy.sim.translate.control_flow import ControlFlow

_CARRIES = frozenset("addc subc madc".split())
_PASSES_ON = frozenset("mov selp setp set not and or xor cvt".split())


class Steered(NamedTuple):
    """What a register steers: a branch, or an instruction's address or operand, and as what."""

    instruction: Instruction
    role: str


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop that synchronises.

    Attributes
    ----------
    head : int
        The instruction where its rounds begin, by index.
    instructions : frozenset of int
        All that are in it, by index.
    where : str
        A line of Python in it, and not in a loop inside.
    state : dict of Register to Steered
        The registers that come around it and steer.
    moduli : dict of Register to int
        Of those that count, where all that they steer depends on the remainder by this.
    counters : tuple of Register
        Those that count, and steer in another way.
    unknown : str or None
        What steers and can't be followed.
    counting : Counting
        The comparisons by which other counters steer, and nothing but them.
    bounded : Bounded or None
    bounds : Bounds or None
        What the number that bounds it steers besides, with those of other loops.
    """

    head: int
    instructions: frozenset[int]
    where: str
    state: dict[Register, Steered] = field(default_factory=dict)
    moduli: dict[Register, int] = field(default_factory=dict)
    counters: tuple[Register, ...] = ()
    unknown: str | None = None
    counting: Counting = field(default_factory=Counting)
    bounded: Bounded | None = None
    bounds: Bounds | None = None

    def noted(self, value: Callable[[Register], Array]) -> list[Array]:
        """Return what matters where a round begins: the state, and then all of what is compared.

        Parameters
        ----------
        value : callable
            Returns what a register holds, by lane.
        """
        state = ((value(register), self.moduli.get(register)) for register in self.state)
        remainders = [held if by is None else remainder(held, by) for held, by in state]
        return [*remainders, *map(value, self.counting.registers)]


def line(i: Instruction) -> str:
    """Return where an instruction came from."""
    return str(i.source) if i.source is not None else f"line {i.line} of the PTX"


def heads(function: Function) -> frozenset[int]:
    """Return where rounds of a function's loops may begin, by index: a little more than its loops that synchronise."""
    found = set()
    for i in function.instructions:
        for label in i.operands:
            if isinstance(label, Label) and label.target <= i.index:
                body = function.instructions[label.target : i.index + 1]
                if any(synchronises(x) and not is_try(x) for x in body):
                    found.add(label.target)
    return frozenset(found)


def loops(flow: ControlFlow, uses: Uses) -> list[Loop] | str:
    """Find the loops of a kernel that synchronise, inner ones first; or say why they are not known."""
    if any(i.parts[0] == "call" for block in flow.blocks for i in block.instructions):
        return "it calls functions"
    found = natural_loops(flow)
    if isinstance(found, int):
        return f"a loop has two entries ({line(_last(flow, found))})"
    made = _made_again([one[2] for one in found], flow)
    if made:
        return made
    steering = _Steering(flow, uses, [(head, blocks) for head, _, blocks in found])
    result: list[Loop] = []
    callers: dict[int, SourceLine | None] = {}
    for head, back, blocks in sorted(found, key=lambda one: len(one[2])):
        body = [i for b in blocks for i in flow.blocks[b].instructions]
        if any(synchronises(i) and not is_try(i) for i in body):
            indices = {i.index for b in blocks for i in (*flow.blocks[b].instructions, flow.blocks[b].branch) if i}
            inner = frozenset().union(*(one[2] for one in found if one[2] < blocks))
            state, moduli, counters, unknown, _, counting = steering.of(head, blocks, inner)
            own = [i for i in body if not any(i.index in inner.instructions for inner in result)]
            where = _place(own, _last(flow, back))
            first = _first(flow, head)
            bounded = Bounded(head, blocks, frozenset(one.instruction.index for one in counting.comparisons))
            found_of = state, moduli, counters, unknown, counting, bounded, steering.bounds
            result.append(Loop(first, frozenset(indices), where, *found_of))
            callers[result[-1].head] = next((i.source.caller for i in own if i.source and str(i.source) == where), None)
    return _told_apart(result, callers)


def _told_apart(found: list[Loop], callers: dict[int, SourceLine | None]) -> list[Loop]:
    """Name loops that have the same line after what calls them, and by number if that is the same."""
    result: list[Loop] = []
    for one in found:
        caller = callers[one.head]
        alike = [callers[other.head] for other in found if other.where == one.where]
        if alike[1:] and caller is not None:
            one = replace(one, where=f"{one.where} (called at {caller})")
        result.append(one)
    for n, one in enumerate(result):
        before = sum(other.where == one.where for other in result[:n])
        if before:
            result[n] = replace(one, where=f"{one.where} ({before + 1})")
    return result


def _made_again(found: list[frozenset[int]], flow: ControlFlow) -> str:
    """Say whether mbarriers are made, or expect another count, while loops go around."""
    around = frozenset().union(*found)
    for n, block in enumerate(flow.blocks):
        for i in block.instructions:
            if i.parts[0] == "mbarrier" and (
                i.parts[1] == "inval" or (n in around and i.parts[1] in ("init", "arrive_drop"))
            ):
                return f"mbarriers change while loops go around (`{i.text.strip()}`, {line(i)})"
    return ""


def _place(own: list[Instruction], back: Instruction) -> str:
    """Name a line of a loop, in the file of the branch that goes around; that itself has the line of the kernel."""
    if back.source is not None:
        for i in sorted(own, key=lambda i: i.index):
            if (
                i.source is not None
                and i.source.file == back.source.file
                and i.source.line not in (0, back.source.line)
            ):
                return str(i.source)
    return line(back)


def _last(flow: ControlFlow, block: int) -> Instruction:
    return flow.blocks[block].branch or flow.blocks[block].instructions[-1]


def _first(flow: ControlFlow, block: int) -> int:
    here = flow.blocks[block]
    first = here.instructions[0] if here.instructions else here.branch
    assert first is not None
    return first.index


# What steers.


class _Steers(NamedTuple):
    """What of a loop steers: as of `Loop`, and which comparisons were looked at apart."""

    state: dict[Register, Steered]
    moduli: dict[Register, int]
    counters: tuple[Register, ...]
    unknown: str | None
    comparisons: tuple[Comparison, ...]
    counting: Counting = Counting()


class _Steering:
    """Follows what steers back to where it comes from."""

    def __init__(self, flow: ControlFlow, uses: Uses, loops: list[tuple[int, frozenset[int]]]) -> None:
        self._flow, self._uses = flow, uses
        self._thresholds = Thresholds(flow, loops, self._reaching)
        self._instructions = [i for block in flow.blocks for i in block.instructions]
        self._block = {i.index: n for n, block in enumerate(flow.blocks) for i in block.instructions}
        self._defines: dict[int, list[Instruction]] = {}
        for i in self._instructions:
            for register in written(i):
                self._defines.setdefault(register.index, []).append(i)
        self._relevant = [any(map(is_relevant, block.instructions)) for block in flow.blocks]
        self._over = self._over_all()
        self._outcomes = self._of_tries()
        self.bounds = Bounds(flow, uses, self._reaching, self._over, self._relevant, self._outcomes)

    def _over_all(self) -> list[list[int]]:
        """Return, of each block, those whose branch decides whether it runs."""
        found: list[list[int]] = [[] for _ in self._flow.blocks]
        for n, block in enumerate(self._flow.blocks):
            if block.condition is not None:
                sides = (self._flow.blocks_between(side, self._flow.join[n]) for side in block.successors)
                for inside in set().union(*sides):
                    found[inside].append(n)
        return found

    def _reaching(self, block: int, use: Instruction | None, register: int) -> Iterator[Instruction]:
        """Yield what may have written a register that is read somewhere."""
        for i in self._defines.get(register, ()):
            if any(u.block == block and u.instruction is use for u in self._uses.after(i, register)):
                yield i

    def _of_tries(self) -> set[int]:
        """Return the instructions that do nothing but pass on the outcomes of tries, by index."""
        found = {i.index for i in self._instructions if is_try(i)}
        changed = True
        while changed:
            changed = False
            for i in self._instructions:
                if i.index in found or i.parts[0] not in _PASSES_ON or not read(i):
                    continue
                defined = [self._defines.get(r.index, []) for r in read(i)]
                if all(some and all(d.index in found for d in some) for some in defined):
                    found.add(i.index)
                    changed = True
        return found

    def of(self, head: int, blocks: frozenset[int], inner: frozenset[int]) -> _Steers:
        """Return what of a loop steers; counters by comparisons alone, where that is so."""
        leaving = {n for n in blocks - inner if set(self._flow.blocks[n].successors) - blocks}
        found = self._follow(head, blocks, leaving, {})
        if found.counters and found.unknown is None:
            comparisons, out = self._thresholds.of(head, blocks)
            again = self._follow(head, blocks, leaving, comparisons)
            if not again.counters:
                return again._replace(counting=self._thresholds.counting(head, blocks, again.comparisons, out))
        return found

    def _follow(
        self, head: int, blocks: frozenset[int], leaving: set[int], comparisons: dict[int, Comparison]
    ) -> _Steers:
        """Follow what steers back to where a loop begins, but for the sides of comparisons that are looked at apart."""
        reached: dict[tuple[int, int | None, int], Steered] = {}
        used: dict[int, Comparison] = {}
        unknown: str | None = None
        waiting: list[tuple[int, Instruction | None, Register, Steered]] = []
        decided: set[int] = set()

        def decide(block: int) -> None:
            """Take the branches that decide whether a block runs for such as steer.

            Where a loop may be left to different places, that is such a branch of what is there.
            """
            for over in self._over[block]:
                if over not in decided and not (over in leaving and block in blocks):
                    decided.add(over)
                    here = self._flow.blocks[over]
                    assert here.condition is not None
                    branch = _last(self._flow, over)
                    waiting.append((over, None, here.condition[0], Steered(branch, "a branch")))

        for n in self._flow.blocks_between(head, EXIT):
            if self._relevant[n]:
                decide(n)
            for i in self._flow.blocks[n].instructions:
                waiting += [(n, i, register, Steered(i, role)) for register, role in sinks(i)]
        while waiting:
            at, use, register, steered = waiting.pop()
            key = at, None if use is None else use.index, register.index
            if key in reached:
                continue
            reached[key] = steered
            for i in self._reaching(at, use, register.index):
                if i.index in self._outcomes:
                    continue
                if i.parts[0] in _CARRIES:
                    unknown = unknown or f"a carry steers {steered.role} (`{i.text.strip()}`, {line(i)})"
                if loads(i) and (self._block[i.index] in blocks or "global" not in i.parts):
                    unknown = unknown or (
                        f"what is loaded at {line(i)} steers {steered.role} (`{steered.instruction.text.strip()}`, "
                        f"{line(steered.instruction)})"
                    )
                    continue
                decide(self._block[i.index])
                compared: frozenset[int] = frozenset()
                if i.index in comparisons:
                    used[i.index] = comparisons[i.index]
                    compared = frozenset(r.index for o in i.operands[1:3] for r in registers_in(o))
                    for r in comparisons[i.index].registers:
                        for maker in self._defines.get(r, ()):
                            if self._block[maker.index] in blocks:
                                decide(self._block[maker.index])
                waiting += [(self._block[i.index], i, r, steered) for r in read(i) if r.index not in compared]
        state = self._carried(head, blocks, reached)
        makers = {r: [i for i in self._defines[r.index] if self._block[i.index] in blocks] for r in state}
        counting = {r: some for r, some in makers.items() if counts(r, some)}
        moduli = self._moduli(head, counting, reached)
        return _Steers(state, moduli, tuple(r for r in counting if r not in moduli), unknown, tuple(used.values()))

    def _moduli(
        self,
        head: int,
        counting: dict[Register, list[Instruction]],
        reached: dict[tuple[int, int | None, int], Steered],
    ) -> dict[Register, int]:
        """Return of which counters only a remainder steers."""

        def steers(use: Use, register: int) -> bool:
            return (use.block, None if use.instruction is None else use.instruction.index, register) in reached

        def made_by(use: Use, register: int) -> list[Instruction]:
            return list(self._reaching(use.block, use.instruction, register))

        found = {}
        for register, makers in counting.items():
            entering = self._uses.on_entry(head, register.index)
            number = modulus(register, entering, makers, steers, self._uses, made_by)
            if number is not None:
                found[register] = number
        return found

    def _carried(
        self, head: int, blocks: frozenset[int], reached: dict[tuple[int, int | None, int], Steered]
    ) -> dict[Register, Steered]:
        """Return what comes around a loop, of what is reached."""
        found = {}
        inside = {r.index: r for b in blocks for i in self._flow.blocks[b].instructions for r in written(i)}
        for index in sorted(inside.keys() & self._flow.live_in[head]):
            makers = [i for i in self._defines[index] if self._block[i.index] in blocks]
            if all(i.index in self._outcomes or not read(i) for i in makers) and any(
                i.index in self._outcomes for i in makers
            ):
                continue  # whether a wait is over already
            for block, use in self._uses.on_entry(head, index):
                steered = reached.get((block, None if use is None else use.index, index))
                if steered is not None:
                    found[inside[index]] = steered
                    break
        return found
