"""Effects of an instruction: registers that it reads and writes, its state spaces, and the roles of its operands.

Beside PTX's own state spaces there are "generic", which is any of them; "frame", where arguments and results of calls
are; and "barrier", where the predicates of `bar.red` meet, of whatever instructions.

Operand roles name the operands of an instruction that affect control flow, addresses, lanes or synchronisation. The
sanitizer and the certificate follow such operands. If their values differ in another schedule or another iteration of a
loop, a hazard may occur there that does not occur in this run. The forms of instructions (`ptx.forms`) name each
operand's role. An instruction without a form counts as if all its operands affected synchronisation.

References
----------
PTX ISA, "State Spaces"; "Instruction Set": the syntax line and the operands of each instruction, and what is undefined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cutepy.sim.ptx.instruction_set import SPACES
from cutepy.sim.ptx.model import Address, FrameSlot, Instruction, Operand, Register, Vector, registers_in


def is_wgmma(instruction: Instruction) -> bool:
    """Return whether an instruction is an asynchronous warpgroup MMA."""
    return instruction.traits.is_warpgroup_mma


def accumulators(instruction: Instruction) -> tuple[Register, ...]:
    """Return the accumulator registers of a wgmma, in order."""
    vector = instruction.operands[0]
    assert isinstance(vector, Vector)
    return tuple(item for item in vector.items if isinstance(item, Register))


def results(instruction: Instruction) -> int:
    """Return how many operands are written; they are the first."""
    operands = instruction.operands
    if not operands or isinstance(operands[0], Address) or is_wgmma(instruction):
        return 0
    form = instruction.traits.form
    if form is None:
        return 1
    return next((n for n, word in enumerate(form.words) if word != "result"), len(form.words))


def has_destination(instruction: Instruction) -> bool:
    """Return whether the first operand is written."""
    return results(instruction) > 0


def written(instruction: Instruction) -> tuple[Register, ...]:
    """Return the registers that an instruction writes."""
    found: tuple[Register, ...] | None = instruction.derived.get("written")
    if found is None:
        found = instruction.derived["written"] = _written(instruction)
    return found


def _written(instruction: Instruction) -> tuple[Register, ...]:
    if is_wgmma(instruction):
        return accumulators(instruction)
    return tuple([r for operand in instruction.operands[: results(instruction)] for r in registers_in(operand)])


def read(instruction: Instruction) -> tuple[Register, ...]:
    """Return the registers that an instruction reads; a guarded one also reads its destinations."""
    found: tuple[Register, ...] | None = instruction.derived.get("read")
    if found is None:
        found = instruction.derived["read"] = _read(instruction)
    return found


def _read(instruction: Instruction) -> tuple[Register, ...]:
    found: list[Register] = []
    count = results(instruction)
    for n, operand in enumerate(instruction.operands):
        if n >= count or instruction.predicate is not None:
            found.extend(registers_in(operand))
    if instruction.predicate is not None:
        found.append(instruction.predicate[0])
    return tuple(found)


_OF_PROGRAM = frozenset((*SPACES, "generic"))


class StateSpaces(NamedTuple):
    """State spaces that an instruction loads from, and stores to."""

    loads: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()


def state_spaces(i: Instruction) -> StateSpaces:
    """Return the state spaces that an instruction reads and writes; of an unknown one, all.

    Examples
    --------
    >>> state_spaces(Instruction(0, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", ()))
    StateSpaces(loads=('global',), stores=('shared',))
    """
    loads, stores = i.traits.loads, i.traits.stores
    if "param" in (*loads, *stores):
        if any(isinstance(operand, Address) and isinstance(operand.base, FrameSlot) for operand in i.operands):
            return StateSpaces(*(tuple("frame" if x == "param" else x for x in some) for some in (loads, stores)))
    return StateSpaces(loads, stores)


def space_of(i: Instruction) -> str:
    """Return the state space of an access, of a copy the one that it writes; "generic" if that is not said."""
    found = state_spaces(i)
    return (*found.stores, *found.loads, "generic")[0]


def may_be_same(one: str, other: str) -> bool:
    """Return whether there may be memory that is of two spaces.

    Examples
    --------
    >>> may_be_same("generic", "shared"), may_be_same("global", "shared"), may_be_same("generic", "barrier")
    (True, False, False)
    """
    return one == other or ("generic" in (one, other) and _OF_PROGRAM.issuperset((one, other)))


ADDRESS, BRANCH, LANES = "an address", "a branch", "the lanes that take part"
SYNCHRONISATION = "synchronisation"


class ControlOperand(NamedTuple):
    """A register that affects more than results.

    Attributes
    ----------
    register : Register
    role : str
        The effect of its value: `ADDRESS`, `BRANCH`, `LANES` or `SYNCHRONISATION`.
    """

    register: Register
    role: str


_ROLES = {
    "stride": ADDRESS,
    "elsewhere": ADDRESS,
    "descriptor": ADDRESS,
    "branch": BRANCH,
    "lanes": LANES,
    **dict.fromkeys(("barrier", "bytes", "mask", "alike"), SYNCHRONISATION),  # "alike" must be so in all threads
}


def is_tensor_copy(i: Instruction) -> bool:
    """Return whether an instruction copies as a tensor map says."""
    return i.traits.has_tensor_map


def acquires_maps(instructions: Iterable[Instruction]) -> bool:
    """Return whether a kernel shows tensor maps to copies that it has changed: any other change of one is a hazard."""
    return any(i.traits.fences and {"tensormap::generic", "acquire"} <= {*i.parts} for i in instructions)


def control_operands(i: Instruction) -> Iterator[ControlOperand]:
    """Yield the registers of operands that affect more than results.

    Examples
    --------
    >>> registers = [Register(f"%r{n}", "b32", n) for n in range(3)]
    >>> [(one.register.name, one.role) for one in control_operands(Instruction(0, "match.any.sync.b32", (*registers,)))]
    [('%r2', 'the lanes that take part')]
    """
    form = i.traits.form
    words = None if form is None else [w for w in form.words if w not in ("result", "address", "policy")]
    if words is not None and "votes" in i.traits.effects:
        words = [*words[: len(i.operands) - 2], "value"]
    first = 1 if is_wgmma(i) else results(i)
    values = 0
    for n, operand in enumerate(i.operands):
        if isinstance(operand, Address):
            for at in (operand.base, *(operand.coordinates or ())):
                yield from (ControlOperand(r, ADDRESS) for r in registers_in(at))
        elif n >= first and not (_is_hinted(i) and n == len(i.operands) - 1):
            word = _word(i, words, values, operand)
            values += 1
            if word in _ROLES:
                yield from (ControlOperand(r, _ROLES[word]) for r in registers_in(operand))


def _word(i: Instruction, words: list[str] | None, n: int, operand: Operand) -> str:
    """Return the role of an operand that is no result, address or cache policy."""
    if i.traits.is_plain:
        return "value"
    if words is None or n >= len(words):
        return "bytes"
    if i.parts[:2] == ("tcgen05", "mma") and (words[n] == "matrix" or isinstance(operand, Vector)):
        return "elsewhere"  # a descriptor, or the lanes that are left as they are
    if words[n] == "descriptor" and not isinstance(operand, Register):
        return "value"  # a fragment of A
    if words[n] == "bytes" and i.traits.is_copy_of_thread and isinstance(operand, Register):
        # By its type the operand is a count of bytes, a predicate that ignores the source, or a cache policy.
        return {"pred": "elsewhere", "b64": "value"}.get(operand.type, "bytes")
    return words[n]


def _is_hinted(i: Instruction) -> bool:
    """Return whether the last operand is a cache policy."""
    return any(part.endswith("cache_hint") for part in i.parts)
