"""Operand roles: the operands of an instruction that affect control flow, addresses, lanes or synchronisation.

The sanitizer and the certificate follow such operands. If their values differ in another schedule or another iteration
of a loop, a hazard may occur there that does not occur in this run. The forms of instructions (`ptx.forms`) name each
operand's role. An instruction without a form counts as if all its operands affected synchronisation.

References
----------
PTX ISA, "Instruction Set": the operands of each instruction, and what is undefined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cutepy.sim.ptx.model import Address, Instruction, Operand, Register, Vector, registers_in
from cutepy.sim.translate.effects import is_wgmma, results

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
