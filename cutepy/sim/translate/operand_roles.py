"""Operand roles: the operands of an instruction that affect control flow, addresses, lanes or synchronisation.

The condition of a hazard reads such values: one that differs in another schedule, or another round, may make something
undefined there that is defined here. The forms of instructions (`ptx.forms`) name each operand's role. Of an
instruction that has no form, all operands are taken to affect synchronisation.

References
----------
PTX ISA, "Instruction Set": the operands of each instruction, and what is undefined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cutepy.sim.ptx.model import Address, Instruction, Operand, Register, registers_in
from cutepy.sim.translate.effects import has_destination, is_wgmma, written
from cutepy.sim.translate.state_spaces import state_spaces

ADDRESS, BRANCH, LANES = "an address", "a branch", "the lanes that take part"
SYNCHRONISATION = "synchronisation"


class ControlOperand(NamedTuple):
    """A register that decides something.

    Attributes
    ----------
    register : Register
    role : str
        What as: `ADDRESS`, `BRANCH`, `LANES`, `SYNCHRONISATION`.
    is_elsewhere : bool
        Whether it decides nothing but what is accessed in other memory than shared memory.
    """

    register: Register
    role: str
    is_elsewhere: bool


_ROLES = {
    "stride": ADDRESS,
    "elsewhere": ADDRESS,
    "descriptor": ADDRESS,
    "branch": BRANCH,
    "lanes": LANES,
    **dict.fromkeys(("barrier", "bytes", "mask", "alike"), SYNCHRONISATION),  # "alike" must be so in all threads
}
_BEYOND_SHARED = frozenset(("global", "local", "param", "const", "frame"))


def is_relevant(i: Instruction) -> bool:
    """Tell whether it matters who executes an instruction, beyond results and accesses outside of shared memory.

    Examples
    --------
    >>> opcodes = "add.u32", "ld.global.u32", "ld.shared.u32", "mma.sync.aligned", "trap", "something.new"
    >>> [is_relevant(Instruction(0, opcode, ())) for opcode in opcodes]
    [False, False, True, True, True, True]
    """
    return not i.traits.is_plain and (i.traits.threads > 1 or not _is_access_elsewhere(i))


def is_tensor_copy(i: Instruction) -> bool:
    """Tell whether an instruction copies as a tensor map says."""
    return i.parts[0] == "cp" and "tensor" in i.parts and "prefetch" not in i.parts


def acquires_maps(instructions: Iterable[Instruction]) -> bool:
    """Tell whether a kernel shows tensor maps to copies that it has changed: any other change of one is a hazard."""
    return any(i.parts[0] == "fence" and {"tensormap::generic", "acquire"} <= {*i.parts} for i in instructions)


def control_operands(i: Instruction) -> Iterator[ControlOperand]:
    """Yield the registers of operands that decide something beside results.

    Examples
    --------
    >>> registers = [Register(f"%r{n}", "b32", n) for n in range(3)]
    >>> [(one.register.name, one.role) for one in control_operands(Instruction(0, "match.any.sync.b32", (*registers,)))]
    [('%r2', 'the lanes that take part')]
    """
    form = i.traits.form
    words = None if form is None else [w for w in form.words if w not in ("result", "address", "policy")]
    if words is not None and "red" in i.parts and i.parts[0] in ("bar", "barrier"):
        words = [*words[: len(i.operands) - 2], "value"]
    spaces = _spaces(i)
    first = 1 if has_destination(i) or is_wgmma(i) else 0
    places = values = 0
    for n, operand in enumerate(i.operands):
        if isinstance(operand, Address):
            is_map = operand.coordinates is not None and i.parts[0] == "cp"
            is_elsewhere = not is_map and spaces[min(places, len(spaces) - 1)] in _BEYOND_SHARED
            places += 1
            yield from (ControlOperand(r, ADDRESS, is_elsewhere) for r in registers_in(operand.base))
            for at in operand.coordinates or ():
                yield from (ControlOperand(r, ADDRESS, True) for r in registers_in(at))
        elif n >= first and not (_is_hinted(i) and n == len(i.operands) - 1):
            word = _word(i, words, values, operand)
            values += 1
            if word in _ROLES:
                yield from (ControlOperand(r, _ROLES[word], word == "elsewhere") for r in registers_in(operand))


def _word(i: Instruction, words: list[str] | None, n: int, operand: Operand) -> str:
    """Return what an operand is that is no result, address or cache policy."""
    if i.traits.is_plain:
        return "value"
    if words is None or n >= len(words):
        return "bytes"
    if words[n] == "descriptor" and not isinstance(operand, Register):
        return "value"  # a fragment of A
    if words[n] == "stride" and _is_access_elsewhere(i):
        return "elsewhere"
    if words[n] == "bytes" and i.parts[:3] in _THREADS_OWN and isinstance(operand, Register):
        return {"pred": "elsewhere", "b64": "value"}.get(operand.type, "bytes")
    return words[n]


_THREADS_OWN = (("cp", "async", "ca"), ("cp", "async", "cg"))
"""Copies with an operand that is how much to take, or whether to take nothing, or a cache policy, by its type."""


def _is_hinted(i: Instruction) -> bool:
    """Tell whether the last operand is a cache policy."""
    return any(part.endswith("cache_hint") for part in i.parts)


def _is_access_elsewhere(i: Instruction) -> bool:
    """Tell whether an instruction accesses memory outside of shared memory, and does nothing else."""
    if not i.traits.is_access:
        return False
    return not {*state_spaces(i).loads, *state_spaces(i).stores} - _BEYOND_SHARED


def _spaces(i: Instruction) -> list[str]:
    """Return where an instruction's addresses are, one by one; the last for all others."""
    if i.parts[0] in ("cp", "st", "red") and not {"bulk", "async"}.isdisjoint(i.parts):
        named = [part.partition("::")[0] for part in i.parts]
        return [*(part for part in named if part in ("shared", "global")), "shared"]  # and the mbarrier
    return ["global" if _is_access_elsewhere(i) else "shared"]


_SYNCHRONISES = frozenset("mbarrier bar barrier cp".split())
_CONSTANT = frozenset(("param", "const"))


def synchronises(i: Instruction) -> bool:
    """Tell whether an instruction is an operation on a barrier, or a copy."""
    return i.parts[0] in _SYNCHRONISES


def loads(i: Instruction) -> bool:
    """Tell whether an instruction takes what somebody may write, or what others give `bar.red`, into registers."""
    return bool(written(i)) and not _CONSTANT.issuperset(state_spaces(i).loads)


def steering_operands(i: Instruction) -> Iterator[tuple[Register, str]]:
    """Yield the registers that steer synchronisation or accesses to shared memory, and as what."""
    yield from ((one.register, one.role) for one in control_operands(i) if not one.is_elsewhere)
