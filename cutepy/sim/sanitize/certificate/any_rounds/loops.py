"""Loops that synchronise, and their state: registers that come around and affect synchronisation or shared memory.

A register is in the state if it reaches, over all paths of the code, a branch over synchronisation or accesses to
shared memory, an address there, or an operand of synchronisation. If the state has the values that it had some rounds
before, all that it affects repeats from there on. The loop's own exits are left out of its state.

Memory may tell how often a loop has gone around: a count, the last store, a sum. Any thread may load that once it has
waited for those that go around. So a load is a constant only if nothing is stored where it loads from, or if it is of
the beginning: it does not come after the loop, and no thread has waited by then for what others do later.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.machine.lanes import WARP, WARPGROUP
from cutepy.sim.ptx.model import Immediate, Label, Register, registers_in
from cutepy.sim.ptx.places import line_of
from cutepy.sim.sanitize.certificate.any_rounds.bounds import Bounded, Bounds
from cutepy.sim.sanitize.certificate.any_rounds.comparisons import Counting, Thresholds
from cutepy.sim.sanitize.certificate.any_rounds.counters import counts, modulus, remainder
from cutepy.sim.sanitize.certificate.dependence import Dependence, Walk
from cutepy.sim.sanitize.certificate.steering import is_arrival
from cutepy.sim.sanitize.order.tries import is_try
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import read, written
from cutepy.sim.translate.operand_roles import loads, synchronises
from cutepy.sim.translate.state_spaces import may_be_same, state_spaces

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Instruction, SourceLine
    from cutepy.sim.sanitize.certificate.any_rounds.comparisons import Comparison
    from cutepy.sim.sanitize.certificate.dependence import NaturalLoop
    from cutepy.sim.sanitize.order.uses import Use
    from cutepy.sim.translate.control_flow import ControlFlow


_GUARDED = "its first instruction, `{}` ({}), has a guard, so that it is not seen of all lanes where a round begins"
_UNSEEN = "it is in a loop that goes back, at {}, to what is further on, so that its rounds are not seen"
_LEADS = ("bra", "ret", "exit")
_CARRIES = frozenset("addc subc madc".split())


class Steered(NamedTuple):
    """Use of a register that affects a branch, an address or an operand, and its role there."""

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
    unit : int
        How many threads go around it together, since they execute something that takes all: a warp, a warpgroup, or 0.
    meets : frozenset of int
        Where lanes of a warp may be for whom it waits at a bar.warp.sync, if it does: by index, in it and elsewhere.
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
    unit: int = 0
    meets: frozenset[int] = frozenset()

    def noted(self, value: Callable[[Register], Array]) -> list[Array]:
        """Return what matters where a round begins: the state, and then all of what is compared.

        Parameters
        ----------
        value : callable
            Returns what a register holds, by lane.
        """
        state = ((value(register), self.moduli.get(register)) for register in self.state)
        remainders = [held if by is None else remainder(held, by) for held, by in state]
        return [*remainders, *map(value, self.counting.noted)]


def heads(instructions: Iterable[Instruction]) -> frozenset[int]:
    """Return where rounds of loops may be seen to begin, by index: a little more than the loops that synchronise."""
    known = sorted(instructions, key=attrgetter("index"))
    synchronising = [i.index for i in known if synchronises(i) and not is_try(i)]
    jumps = [(i.index, label.target) for i in known for label in i.operands if type(label) is Label]
    return frozenset(
        target for index, target in jumps if bisect_left(synchronising, target) < bisect_right(synchronising, index)
    )


def loops(flow: ControlFlow) -> list[Loop] | str:
    """Find the loops of a kernel that synchronise, inner ones first; or say why they are not known."""
    if any(i.parts[0] == "call" for block in flow.blocks for i in block.instructions):
        return "it calls functions"
    code = Dependence(flow)
    found = code.loops
    if isinstance(found, int):
        return f"a loop has two entries ({line_of(_last(flow, found))})"
    made = _made_again([one.blocks for one in found], flow)
    if made:
        return made
    steering = _Steering(code, found)
    unseen = _unseen(found, flow)
    result: list[Loop] = []
    callers: dict[int, SourceLine | None] = {}
    for head, back, blocks in sorted(found, key=lambda one: len(one.blocks)):
        body = [i for b in blocks for i in flow.blocks[b].instructions]
        if any(synchronises(i) and not is_try(i) for i in body):
            indices = {i.index for b in blocks for i in (*flow.blocks[b].instructions, flow.blocks[b].branch) if i}
            inner = frozenset().union(*(one.blocks for one in found if one.blocks < blocks))
            state, moduli, counters, unknown, _, counting = steering.of(head, blocks, inner)
            counting = steering.limited(counting, head, blocks)
            own = [i for i in body if not any(i.index in inner.instructions for inner in result)]
            where = _place(own, _last(flow, back))
            first = _first(flow, head)
            unknown = next((why for around, why in unseen if blocks <= around), unknown)
            bounded = Bounded(head, blocks, frozenset(one.instruction.index for one in counting.comparisons))
            found_of = state, moduli, counters, unknown, counting, bounded, steering.bounds, _unit(body)
            meets = [i.index for i in code.instructions.values() if _meets(i)] if any(map(_meets, body)) else ()
            result.append(Loop(first.index, frozenset(indices), where, *found_of, frozenset(meets)))
            callers[result[-1].head] = next((i.source.caller for i in own if i.source and str(i.source) == where), None)
    return _told_apart(result, callers)


def _unseen(found: Sequence[NaturalLoop], flow: ControlFlow) -> list[tuple[frozenset[int], str]]:
    """Return the loops of which it is not seen where each round begins, and why: one further in may end unseen, too."""
    seen = heads(i for block in flow.blocks for i in (*block.instructions, block.branch) if i is not None)
    result = []
    for head, back, blocks in found:
        first = _first(flow, head)
        if first.predicate is not None and first.parts[0] not in _LEADS:
            result.append((blocks, _GUARDED.format(first.text.strip(), line_of(first))))
        elif first.index not in seen:
            result.append((blocks, _UNSEEN.format(line_of(_last(flow, back)))))
    return result


def _unit(body: Iterable[Instruction]) -> int:
    """Return how many threads some of a loop's instructions take together."""
    names = {i.parts[0] for i in body if _meets(i) or ("sync" in i.parts and i.parts[0] not in ("bar", "barrier"))}
    return WARPGROUP if names & {"wgmma", "setmaxnreg"} else WARP if names else 0


def _meets(i: Instruction) -> bool:
    return i.parts[:2] == ("bar", "warp")


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
                return f"mbarriers change while loops go around (`{i.text.strip()}`, {line_of(i)})"
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
    return line_of(back)


def _last(flow: ControlFlow, block: int) -> Instruction:
    return flow.blocks[block].branch or flow.blocks[block].instructions[-1]


def _first(flow: ControlFlow, block: int) -> Instruction:
    here = flow.blocks[block]
    first = here.instructions[0] if here.instructions else here.branch
    assert first is not None
    return first


# What steers.


class _Steers(NamedTuple):
    """State of a loop as of `Loop`, and the comparisons that are looked at apart."""

    state: dict[Register, Steered]
    moduli: dict[Register, int]
    counters: tuple[Register, ...]
    unknown: str | None
    comparisons: tuple[Comparison, ...]
    counting: Counting = Counting()


class _Steering:
    """Follows what steers back to where it comes from."""

    def __init__(self, code: Dependence, loops: list[NaturalLoop]) -> None:
        self._code = code
        self._thresholds, self._left = Thresholds(code, loops), LeftInMemory(code)
        self.bounds = Bounds(code)

    def of(self, head: int, blocks: frozenset[int], inner: frozenset[int]) -> _Steers:
        """Return what of a loop steers; counters by comparisons alone, where that is so."""
        leaving = {n for n in self._code.leaving(blocks) if n not in inner}
        found = self._follow(head, blocks, leaving, {})
        if found.counters and found.unknown is None:
            comparisons, out = self._thresholds.of(head, blocks)
            again = self._follow(head, blocks, leaving, comparisons)
            if not again.counters:
                return again._replace(counting=self._thresholds.counting(head, blocks, again.comparisons, out))
        return found

    def limited(self, counting: Counting, head: int, blocks: frozenset[int]) -> Counting:
        """Add the comparisons with constants that end a loop."""
        limits = self._thresholds.limits(head, blocks)
        return counting.with_limits(limits, self._thresholds.registers_of(one.comparison for one in limits))

    def _follow(
        self, head: int, blocks: frozenset[int], leaving: set[int], comparisons: dict[int, Comparison]
    ) -> _Steers:
        """Follow what steers back to where a loop begins, but for the sides of comparisons that are looked at apart."""
        code = self._code
        used: dict[int, Comparison] = {}
        unknown: str | None = None

        def is_free(over: int, block: int) -> bool:
            """Leave out what says how often the loop goes around; where it leads to different places, it steers."""
            return over in leaving and block in blocks

        walk: Walk[Steered] = Walk(code, is_free, lambda over: Steered(_last(code.flow, over), "a branch"))
        after = code.flow.blocks_between(head, EXIT)
        for n in code.above:  # all that others do, too: what the loop leaves in memory may steer there
            if code.is_relevant[n]:
                walk.decide(n)
            for i in code.flow.blocks[n].instructions:
                for register, role in code.steering_operands(i):
                    walk.begin(n, i, register, Steered(i, role))
        for i, _, steered in walk.values():
            at = code.block_of(i)
            if i.parts[0] in _CARRIES and at in after:
                unknown = unknown or f"a carry steers {steered.role} (`{i.text.strip()}`, {line_of(i)})"
            if loads(i) and (at in blocks or not self._left.is_constant(i, head)):
                unknown = unknown or (
                    f"what is loaded at {line_of(i)} steers {steered.role} (`{steered.instruction.text.strip()}`, "
                    f"{line_of(steered.instruction)})"
                )
                continue
            walk.decide(at)
            compared: frozenset[int] = frozenset()
            if i.index in comparisons:
                used[i.index] = comparisons[i.index]
                compared = frozenset(r.index for o in i.operands[1:3] for r in registers_in(o))
                for r in comparisons[i.index].registers:
                    for maker in code.writers(r, blocks):
                        walk.decide(code.block_of(maker))
            walk.pass_on(i, steered, but=compared)
        state = self._carried(head, blocks, walk.reached)
        makers = {r: code.writers(r.index, blocks) for r in state}
        moduli = self._moduli(head, makers, walk.reached)
        counters = tuple(r for r, some in makers.items() if r not in moduli and counts(r, some))
        return _Steers(state, moduli, counters, unknown, tuple(used.values()))

    def _moduli(
        self,
        head: int,
        made: dict[Register, list[Instruction]],
        reached: dict[tuple[int, int | None, int], Steered],
    ) -> dict[Register, int]:
        """Return of what grows the remainder by which it steers, where it does so by nothing else."""

        def steers(use: Use, register: int) -> bool:
            return (use.block, None if use.instruction is None else use.instruction.index, register) in reached

        found = {}
        for register, makers in made.items():
            entering = self._code.uses.on_entry(head, register.index)
            number = modulus(head, register, entering, makers, steers, self._code)
            if number is not None:
                found[register] = number
        return found

    def _carried(
        self, head: int, blocks: frozenset[int], reached: dict[tuple[int, int | None, int], Steered]
    ) -> dict[Register, Steered]:
        """Return what comes around a loop, of what is reached."""
        found = {}
        code = self._code
        inside = {r.index: r for b in blocks for i in code.flow.blocks[b].instructions for r in written(i)}
        for index in sorted(inside.keys() & code.flow.live_in[head]):
            makers = code.writers(index, blocks)
            if all(i.index in code.outcomes or not read(i) for i in makers) and any(
                i.index in code.outcomes for i in makers
            ):
                continue  # whether a wait is over already
            if all(map(is_arrival, makers)):
                continue  # a state, which is to be waited for only: for which phase the rounds show
            for block, use in code.uses.on_entry(head, index):
                steered = reached.get((block, None if use is None else use.index, index))
                if steered is not None:
                    found[inside[index]] = steered
                    break
        return found


class LeftInMemory:
    """Tells loads that are constants from others.

    Parameters
    ----------
    code : Dependence
    """

    def __init__(self, code: Dependence) -> None:
        self._code = code
        instructions = code.instructions.values()
        self._stored = {space for i in instructions for space in state_spaces(i).stores}
        self._waits = [i for i in instructions if _waits(i)]
        self._after: dict[int, set[int]] = {}

    def is_constant(self, load: Instruction, head: int) -> bool:
        """Tell whether what is loaded does not depend on how often a loop goes around.

        Parameters
        ----------
        load : Instruction
        head : int
            The block where rounds of the loop begin.
        """
        spaces, block = set(state_spaces(load).loads), self._code.block_of(load)
        comes_after = block == head or block in self._following(head)
        if spaces == {"local"}:
            return not comes_after
        if spaces != {"global"}:
            return False
        if "nc" in load.parts or not any(may_be_same(space, "global") for space in self._stored):
            return True
        return not comes_after and all(self._is_of_all(i, head) for i in self._waits if self._may_precede(i, load))

    def _is_of_all(self, wait: Instruction, head: int) -> bool:
        """Tell whether whoever goes around a loop has come to a barrier before, as often as all others."""
        block, loops = self._code.block_of(wait), self._code.loops
        assert not isinstance(loops, int)
        is_once = not any(block in loop.blocks for loop in loops)
        is_one = not is_try(wait) and all(isinstance(operand, Immediate) for operand in wait.operands)
        return is_one and is_once and wait.predicate is None and block != head and block in self._code.above[head]

    def _may_precede(self, one: Instruction, other: Instruction) -> bool:
        first, second = self._code.block_of(one), self._code.block_of(other)
        return second in self._following(first) or (first == second and one.index < other.index)

    def _following(self, block: int) -> set[int]:
        """Return the blocks that may run after one."""
        if block not in self._after:
            flow = self._code.flow
            sides = (flow.blocks_between(side, EXIT) for side in flow.blocks[block].successors)
            self._after[block] = set[int]().union(*sides)
        return self._after[block]


def _waits(i: Instruction) -> bool:
    """Tell whether a thread may wait at an instruction for what others do."""
    return is_try(i) or (i.parts[0] in ("bar", "barrier") and "arrive" not in i.parts)
