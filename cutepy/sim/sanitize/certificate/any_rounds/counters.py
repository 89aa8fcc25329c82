"""Loop counters that are used only modulo n: their remainder is the state of a round, and not the count.

CUTLASS's epilogues choose a buffer by how many tiles there were before, modulo the buffers. What is followed: multiples
and sums of the counter with constants, up to a remainder, by `rem`, by `and` with a constant, or as compilers write the
remainder of a signed number by 2^n, x - ((x + (x >> 31 >>> 32 - n)) & -2^n), and by other numbers, as
x - (x * m >> n) * d. All but `and` is so of numbers that are not negative: what a million rounds take out of its bits
is not followed, nor what is less than the counter; and a counter that is negative, or begins with more than a million,
has no remainder.

References
----------
H. Warren, Hacker's Delight, 2nd edition, 10: division by constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.ptx.model import Immediate, Register
from cutepy.sim.sanitize.certificate.any_rounds.affine import is_plain
from cutepy.sim.sanitize.certificate.dependence import BEGUN
from cutepy.sim.translate.effects import written

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Instruction, Operand
    from cutepy.sim.sanitize.certificate.dependence import Dependence
    from cutepy.sim.sanitize.order.uses import Use


class _Form(NamedTuple):
    """Form of a register: `factor` x counter + `offset`, a sum; or a function of that; or 0.

    `of` is the instruction that made the sum, by index. It may be taken down to a multiple of `floored`; or multiplied
    by `high`, of which the lowest 32 bits and `shift` more are gone: a quotient.
    """

    factor: int
    offset: int
    of: int
    floored: int = 0
    high: int = 0
    shift: int = 0

    @property
    def is_sum(self) -> bool:
        """True if nothing was taken away."""
        return not self.floored and not self.high


_ZERO = _Form(0, 0, -2)
_HIGH = ("mul", "hi", "s32"), ("mul", "hi", "u32")
_MILLION = 1 << 20
"""Further rounds of which all is known that is said of any number, and what a counter may be in a run."""


def counts(register: Register, makers: Iterable[Instruction]) -> bool:
    """Tell whether all that gives a register a value in a loop adds a constant to it."""
    return all(
        i.parts[0] == "add"
        and is_plain(i)
        and i.predicate is None
        and i.operands[1] == register
        and isinstance(i.operands[2], Immediate)
        for i in makers
    )


def steps(register: Register, makers: Iterable[Instruction], code: Dependence) -> list[int] | None:
    """Return the most that each of what gives a register a value in a loop adds to it, which is never less than 0.

    What is added is a constant, or one of two by a condition, as compilers write `count += done`. None if it is not.
    """
    found = []
    for i in makers:
        if i.parts[0] != "add" or not is_plain(i) or i.predicate is not None or i.operands[1] != register:
            return None
        added = [i.operands[2]]
        if isinstance(added[0], Register):
            chosen = code.makers(code.block_of(i), i, added[0].index)
            if not all(x.parts[0] in ("mov", "selp") and is_plain(x) and x.predicate is None for x in chosen):
                return None
            added = [operand for x in chosen for operand in x.operands[1:3]]
        numbers = [operand.value for operand in added if isinstance(operand, Immediate)]
        if len(numbers) < len(added) or not all(0 <= number < 1 << 16 for number in numbers):
            return None
        found.append(max(numbers, default=0))
    return found


def modulus(
    head: int,
    register: Register,
    entering: Iterable[Use],
    makers: Sequence[Instruction],
    steers: Callable[[Use, int], bool],
    code: Dependence,
) -> int | None:
    """Return what a counter's remainder is to be taken by, for all that steers; None if that is not known.

    Parameters
    ----------
    head : int
        The block where rounds of the loop begin.
    register : Register
    entering : iterable of Use
        Of its value where a round begins.
    makers : sequence of Instruction
        What gives it a value in the loop.
    steers : callable
        Whether the value of a register, by number, reaches something that steers through a use.
    code : Dependence
    """
    makes = {i.index for i in makers}
    added = steps(register, makers, code)
    if added is None or not any(added):
        return None
    first = _Form(1, 0, -1)
    counter = {(maker, register.index) for maker in (BEGUN, *makes)}
    is_once = not any(_is_further_in(head, code.block_of(i), code) for i in makers)
    most = _MILLION * (1 + sum(added)) if is_once else 1 << 64
    waiting = [(use, register.index, first) for use in entering]
    waiting += [(use, register.index, first) for i in makers for use in code.uses.after(i, register.index)]
    forms: dict[int, _Form] = {}
    done: set[int] = set()
    given: dict[tuple[int, int], _Form] = {}
    later: list[tuple[Use, int, _Form]] = []
    found = 1

    def made(use: Use, index: int) -> set[int]:
        return code.makers_since(head, use.block, use.instruction, index)

    while waiting:
        use, index, form = waiting.pop()
        i = use.instruction
        if not steers(use, index) or (i is not None and i.index in makes):
            continue
        if i is None or i.predicate is not None or given.setdefault((i.index, index), form) != form:
            return None  # by one way to it something else than by another
        known = (forms.get(m, first if (m, index) in counter else None) == form for m in made(use, index))
        if not all(known):
            return None  # so it is, or by none that is followed in this round
        if i.index in done:
            continue
        other = _other(use, index, forms, made)
        result = _apply(i, index, form, other, most)
        if result is None:
            later.append((use, index, form))
            continue
        done.add(i.index)
        if isinstance(result, int):
            found = math.lcm(found, result)
        else:
            forms[i.index] = result
            waiting += [(u, r.index, result) for r in written(i) for u in code.uses.after(i, r.index)]
            waiting += later
            later = []
    is_followed = all(use.instruction is not None and use.instruction.index in done for use, _, _ in later)
    return found if is_followed and found < _MILLION else None


def _other(use: Use, index: int, forms: dict[int, _Form], made: Callable[[Use, int], set[int]]) -> int | _Form | None:
    """Return the other operand of an instruction with two: a constant, or what is known of a register."""
    assert use.instruction is not None
    others: list[Operand] = [
        o for o in use.instruction.operands[1:] if not (isinstance(o, Register) and o.index == index)
    ]
    if len(others) != 1:
        return None
    if isinstance(others[0], Immediate):
        return others[0].value
    if isinstance(others[0], Register):
        makers = made(use, others[0].index)
        return forms.get(makers.pop()) if len(makers) == 1 else None
    return None


def _is_further_in(head: int, block: int, code: Dependence) -> bool:
    """Tell whether a block of a loop is in another one inside of that, and so may run often in a round."""
    assert not isinstance(code.loops, int)
    return any(block in loop.blocks and head not in loop.blocks for loop in code.loops)


def remainder(held: Array, by: int) -> Array:
    """Return what is taken for a counter's remainder where it was followed; the counter itself elsewhere."""
    return np.where(held < _MILLION, held % by, held)


def _apply(i: Instruction, index: int, form: _Form, other: int | _Form | None, most: int) -> _Form | int | None:
    """Return what an instruction makes of a form, the modulus if it is a remainder, or None if that is not known.

    `most` is what the counter stays below.
    """
    name, bits = i.parts[0], 64 if "64" in i.parts[-1] else 32
    if not (is_plain(i) or i.parts in _HIGH):
        return None
    is_first = any(isinstance(operand, Register) and operand.index == index for operand in i.operands[1:2])
    if name == "mov" and is_first:  # and not one of several that make a wider number
        return form
    if isinstance(other, _Form):
        if name == "add" and other == _ZERO:
            return form
        whole, less = (form, other) if is_first else (other, form)
        if name == "sub" and less.floored and whole.is_sum and less.of == whole.of:
            return _by(form, less.floored)
        return None
    if other is None:
        return None
    signed = (other + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    if form == _ZERO:
        return _ZERO if name in ("shr", "shl", "and", "mul") else None
    if form.high:
        return _quotient(name, "lo" in i.parts, is_first, form, signed)
    if form.floored:
        return None
    is_small = form.offset >= 0 and form.factor * most + form.offset < 1 << bits - 1
    if name == "mul" and "hi" in i.parts and bits == 32 and signed > 0:
        return form._replace(high=signed) if is_small else None
    if name == "add" or (name == "sub" and is_first):
        return _Form(form.factor, form.offset + (signed if name == "add" else -signed), i.index)
    if name == "or" and 0 <= signed < (low := form.factor & -form.factor) and not form.offset % low & signed:
        return _Form(form.factor, form.offset + signed, i.index)
    if signed <= 0 and name != "and":
        return None
    if name == "shl" and is_first:
        return _Form(form.factor << signed, form.offset << signed, i.index)
    if name == "mul" and "lo" in i.parts:
        return _Form(form.factor * signed, form.offset * signed, i.index)
    if name == "shr" and is_first and signed == bits - 1:
        return _ZERO if is_small else None
    if name == "rem" and is_first:
        return _by(form, signed) if is_small else None
    if name == "and" and signed >= 0:
        return _by(form, 1 << signed.bit_length())
    if name == "and" and not -signed & (-signed - 1):
        return form._replace(floored=-signed)
    return None


def _quotient(name: str, is_low: bool, is_first: bool, form: _Form, number: int) -> _Form | None:
    """Return what comes of a quotient: it shifted, its sign, or it times what it is by."""
    if name == "shr" and is_first:
        return _ZERO if number == 31 else form._replace(shift=form.shift + number) if number in range(31) else None
    one = 1 << 32 + form.shift
    # Of 0 <= x < 2^31, x * high // one is x // number where high * number is one, or that little more.
    if name == "mul" and is_low and 0 <= form.high * number - one <= one >> 31:
        return form._replace(floored=number, high=0, shift=0)
    return None


def _by(form: _Form, number: int) -> int:
    """Return by what the counter's remainder says all of a sum's remainder."""
    return number // math.gcd(form.factor, number)
