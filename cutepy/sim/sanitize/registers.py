"""Registers of MMAs in flight, checked over all paths of the code without an execution.

An MMA reads and writes its accumulators, and reads A where that is in registers, until its group has been waited for.
Before it, wgmma.fence must come after the last access to these registers by anything else, by an MMA too; but MMAs of
one shape that accumulate in the same registers need neither between them, nor those that read the same A.

A move gives another name to a value, or makes a constant: compilers write those where they like, after wgmma.fence too,
and assemblers put them where they belong, but not out of the way of an MMA in flight: see `accumulator_aliases`. A
register that only ever is a constant has no place of its own: one zero may begin sums, and be half of a descriptor
between MMAs.

References
----------
PTX ISA, "wgmma.mma_async", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from cutepy.sim.ptx.model import Immediate, Instruction, Register, Vector
from cutepy.sim.sanitize.accumulator_aliases import AccumulatorAlias, Names, absorb, is_rename, makes_constant
from cutepy.sim.translate.effects import accumulators, is_wgmma, read, written

if TYPE_CHECKING:
    from cutepy.sim.translate.control_flow import ControlFlow

_OLDEST = 1 << 9
"""The age of groups after which eight or more were committed."""


@dataclass(frozen=True)
class RegisterHazard:
    """A register used too early, or without a fence.

    Attributes
    ----------
    kind : str
        "accumulator-in-flight", "fragment-in-flight" or "missing-wgmma-fence", or an advisory's: see `repairs`.
    before, after : Instruction
        `before` is None where the registers have their values from the kernel's beginning.
    left_by : Instruction or None
        Last wait between both, on some path, which leaves the MMA's group in flight.
    """

    kind: str
    before: Instruction | None
    after: Instruction
    left_by: Instruction | None = None


@dataclass
class _State:
    """State before an instruction on some path: MMAs in flight, and registers that they use.

    Attributes
    ----------
    flying : dict of int to int
        Register that an MMA writes -> ages that its group may have, as bits: not committed, then how many are younger.
    read : dict of int to int
        The same for registers that MMAs read.
    touched : dict of int to Instruction or None
        Register -> the access after the last fence that is no MMA; None as the kernel begins.
    used : dict of int to dict of str to Instruction
        Register -> its uses by MMAs after the last fence, or in flight: "A", or sums of some shape; and the MMA.
    replaced : dict of int to AccumulatorAlias
        Register -> the value in the place of a sum in flight that no instruction has read yet.
    left_by : dict of int to Instruction
        Register that MMAs in flight write or read -> the last wait that has left their group in flight.
    constant : set of int
        Registers that hold a constant on every path: assemblers read the constant itself.
    """

    flying: dict[int, int] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)
    touched: dict[int, Instruction | None] = field(default_factory=dict)
    used: dict[int, dict[str, Instruction]] = field(default_factory=dict)
    replaced: dict[int, AccumulatorAlias] = field(default_factory=dict)
    left_by: dict[int, Instruction] = field(default_factory=dict)
    constant: set[int] = field(default_factory=set)

    def copy(self) -> _State:
        return _State(
            dict(self.flying),
            dict(self.read),
            dict(self.touched),
            dict(self.used),
            dict(self.replaced),
            dict(self.left_by),
            set(self.constant),
        )

    def absorb(self, other: _State) -> bool:
        """Join the state of another path; tells whether this state has changed."""
        changed = False
        for mine, theirs in ((self.flying, other.flying), (self.read, other.read)):
            for register, ages in theirs.items():
                if ages & ~mine.get(register, 0):
                    mine[register] = mine.get(register, 0) | ages
                    changed = True
        for register, i in other.touched.items():
            if register not in self.touched:
                self.touched[register] = i
                changed = True
        for register, wait in other.left_by.items():
            if register not in self.left_by:
                self.left_by[register] = wait
                changed = True
        if not self.constant <= other.constant:
            self.constant &= other.constant
            changed = True
        for register, uses in other.used.items():
            mine_of = self.used.get(register, {})
            if not uses.keys() <= mine_of.keys():
                self.used[register] = {**uses, **mine_of}
                changed = True
        return absorb(self.replaced, other.replaced) or changed


@lru_cache(maxsize=16)
def register_hazards(flow: ControlFlow) -> list[RegisterHazard]:
    """Find the hazards of a kernel's registers."""
    instructions = [i for block in flow.blocks for i in block.instructions]
    mmas = [i for i in instructions if is_wgmma(i)]
    if not mmas:
        return []
    names = Names(instructions)
    users: dict[int, Instruction] = {}
    for i in mmas:
        for register in (*accumulators(i), *_fragments(i)):
            users.setdefault(register.index, i)
    _add_sources(instructions, names, users)
    found: dict[tuple[str, int, int], RegisterHazard] = {}
    before = {0: _State(touched=dict.fromkeys(users))}
    waiting = [0]
    while waiting:
        number = waiting.pop()
        state = before[number].copy()
        for i in flow.blocks[number].instructions:
            for hazard in _step(state, i, users, names):
                before_it = -1 if hazard.before is None else hazard.before.index
                found.setdefault((hazard.kind, before_it, hazard.after.index), hazard)
        for successor in flow.blocks[number].successors:
            if successor < 0:
                continue
            if successor not in before:
                before[successor] = state.copy()
                waiting.append(successor)
            elif before[successor].absorb(state) and successor not in waiting:
                waiting.append(successor)
    return list(found.values())


def _add_sources(instructions: Iterable[Instruction], names: Names, users: dict[int, Instruction]) -> None:
    """Add the registers whose values become those of MMAs by moves, but for constants."""
    moves = [i for i in instructions if is_rename(i)]
    more = True
    while more:
        more = False
        for i in moves:
            to, source = _renamed(i)
            if to in users and source not in users and not names.is_constant(source):
                users[source] = users[to]
                more = True


def _renamed(i: Instruction) -> tuple[int, int]:
    """Return the registers of a move, to and from."""
    to, source = (operand.index for operand in i.operands if isinstance(operand, Register))
    return to, source


def _fragments(i: Instruction) -> tuple[Register, ...]:
    a = i.operands[1]
    return tuple(r for r in a.items if isinstance(r, Register)) if isinstance(a, Vector) else ()


def _step(state: _State, i: Instruction, users: Mapping[int, Instruction], names: Names) -> Iterator[RegisterHazard]:
    if i.traits.kind == "wgmma":
        if is_wgmma(i):
            yield from _mma(state, i, names)
        elif i.parts[1] == "fence":
            state.touched.clear()
            state.used = {r: uses for r, uses in state.used.items() if r in state.flying or r in state.read}
        elif i.parts[1] == "commit_group":
            for ages in (state.flying, state.read):
                ages.update({r: min_age(bits) for r, bits in ages.items()})
        else:
            _wait(state, i)
    elif is_rename(i):
        _rename(state, i, users, names)
    elif makes_constant(i):
        yield from _constant(state, i, users, names)
    else:
        yield from _use(state, i, users, names)


def _rename(state: _State, i: Instruction, users: Mapping[int, Instruction], names: Names) -> None:
    to, source = _renamed(i)
    _hold(state, to, source in state.constant, i)
    if source in state.flying or source in state.replaced:
        state.replaced.pop(to, None)
    else:
        _replace(state, to, i, users, names)
    for of in (state.flying, state.used):
        of.pop(to, None)
    if source in state.used:
        state.used[to] = state.used[source]
    if source in state.flying:
        state.flying[to] = state.flying[source]
    if source in state.touched:
        state.touched[to] = state.touched[source]
    if source in state.replaced:
        state.replaced[to] = state.replaced[source]
    if source in state.left_by:
        state.left_by[to] = state.left_by[source]


def _constant(
    state: _State, i: Instruction, users: Mapping[int, Instruction], names: Names
) -> Iterator[RegisterHazard]:
    for register in (r.index for r in written(i)):
        _hold(state, register, True, i)
        if register in state.read and register not in names.constants:
            yield RegisterHazard("fragment-in-flight", users.get(register, i), i, state.left_by.get(register))
            state.read.pop(register)
        _replace(state, register, i, users, names)
        if register not in state.flying and register not in state.read:
            state.used.pop(register, None)


def _hold(state: _State, register: int, is_constant: bool, i: Instruction) -> None:
    """Note if a register holds a constant once a move is done, which a predicate may keep from being done."""
    if not is_constant:
        state.constant.discard(register)
    elif i.predicate is None:
        state.constant.add(register)


def _replace(state: _State, register: int, i: Instruction, users: Mapping[int, Instruction], names: Names) -> None:
    """Note that a register is given a value that is no sum in flight, if it may have the place of one."""
    place = names.place(register, state.flying.keys())
    if place is None:
        if i.predicate is None:
            state.replaced.pop(register, None)
        return
    is_lost = register in names.sums and register in state.flying
    state.replaced[register] = AccumulatorAlias(users[place], i, is_lost)
    if i.predicate is None and not is_lost:
        state.flying.pop(register, None)


def _use(state: _State, i: Instruction, users: Mapping[int, Instruction], names: Names) -> Iterator[RegisterHazard]:
    for register in read(i):
        yield from _lost(state, register.index)
        if register.index in state.flying:
            left_by = state.left_by.get(register.index)
            yield RegisterHazard("accumulator-in-flight", users.get(register.index, i), i, left_by)
            state.flying.pop(register.index)
        if register.index in users and register.index not in state.constant:
            state.touched[register.index] = i
    for register in written(i):
        state.constant.discard(register.index)
        left_by = state.left_by.get(register.index)
        if register.index in state.flying:
            if register.index in users:
                yield RegisterHazard("accumulator-in-flight", users[register.index], i, left_by)
            state.flying.pop(register.index)
        if register.index in state.read:
            yield RegisterHazard("fragment-in-flight", users.get(register.index, i), i, left_by)
            state.read.pop(register.index)
        state.used.pop(register.index, None)
        _replace(state, register.index, i, users, names)
        if register.index in users:
            state.touched[register.index] = i


def _lost(state: _State, register: int, *, is_met: bool = False) -> Iterator[RegisterHazard]:
    """Report a read value that an MMA may overwrite; `is_met`: the value is read while accumulators are in flight."""
    replaced = state.replaced.get(register)
    if replaced is not None and (replaced.is_lost or is_met):
        yield RegisterHazard("accumulator-in-flight", replaced.mma, replaced.by)
        state.flying.pop(register, None)
        del state.replaced[register]


def _mma(state: _State, i: Instruction, names: Names) -> Iterator[RegisterHazard]:
    sums, fragments = accumulators(i), _fragments(i)
    shape = next(part for part in i.parts if part.startswith("m64n"))
    is_met = any(r.index in state.flying for r in sums)
    for summand in fragments if names.begins(i) else (*sums, *fragments):
        yield from _lost(state, summand.index, is_met=is_met)
    for summand in sums:
        state.replaced.pop(summand.index, None)
        state.constant.discard(summand.index)
    touched = [state.touched[r.index] for r in (*sums, *fragments) if r.index in state.touched]
    if touched:
        yield RegisterHazard("missing-wgmma-fence", touched[0], i)
    for register, use in (*((r.index, "A") for r in fragments), *((r.index, shape) for r in sums)):
        before = next((x for used, x in state.used.get(register, {}).items() if used != use), None)
        if before is not None:
            yield RegisterHazard(_between(state, register), before, i, state.left_by.get(register))
            state.flying.pop(register, None)
            state.read.pop(register, None)
        state.used[register] = {use: i}
        state.touched.pop(register, None)
    for summand in (*sums, *fragments):
        state.left_by.pop(summand.index, None)
    state.flying.update((r.index, 1) for r in sums)
    state.read.update((r.index, 1) for r in fragments)


def _between(state: _State, register: int) -> str:
    """Name the operation missing between two MMAs that use a register differently."""
    if register in state.flying:
        return "accumulator-in-flight"
    return "fragment-in-flight" if register in state.read else "missing-wgmma-fence"


def min_age(bits: int) -> int:
    """Return the ages of a group after another commit."""
    older = bits << 1
    return older if older < _OLDEST << 1 else (older & (_OLDEST - 1)) | _OLDEST


def _wait(state: _State, i: Instruction) -> None:
    """Forget groups that are complete once no more are in flight than the youngest ones that a wait leaves."""
    # Bit 0 is a group that is not committed, which no wait covers; bit k + 1 one with k younger groups.
    kept = (1 << (groups_left(i) + 1)) - 1
    for register, replaced in state.replaced.items():
        if register in state.flying:  # paths have met, of which one has the sum here, and one the value
            state.replaced[register] = replaced._replace(is_lost=True)
    for ages in (state.flying, state.read):
        for register, bits in list(ages.items()):
            if bits & kept:
                ages[register] = bits & kept
            else:
                del ages[register]
    state.left_by = {r: i for ages in (state.flying, state.read) for r, bits in ages.items() if not bits & 1}


def groups_left(wait: Instruction) -> int:
    """Return how many of the youngest groups of MMAs a wgmma.wait_group leaves in flight."""
    count = wait.operands[0]
    assert isinstance(count, Immediate)
    return count.value
