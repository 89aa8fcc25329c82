"""What is said to be of a counter's remainder only, against what the same instructions compute of many counters."""

import pytest
from hypothesis import assume, given, strategies as st

from cutepy.sim.sanitize.certificate.any_rounds import loops
from cutepy.sim.translate import translate
from tests.sim.sanitize.certificate.test_steering import TEXT

LOOP = """mov.u32 %r2, 0; ld.param.u32 %r9, [p0];
AGAIN: {body}
mbarrier.arrive.shared.b64 _, [%r1]; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r9; @%p1 bra AGAIN;"""
WORD, SIGN = 1 << 32, 1 << 31


def signed(value):
    return value - WORD if value & SIGN else value


def rem(a, b):
    """Truncate, as C does."""
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


COMPUTE = {
    "mov.b32": lambda a: a,
    "neg.s32": lambda a: -a,
    "add.s32": lambda a, b: a + b,
    "sub.s32": lambda a, b: a - b,
    "or.b32": lambda a, b: a | b,
    "and.b32": lambda a, b: a & b,
    "shl.b32": lambda a, b: a << b if b < 32 else 0,
    "shr.u32": lambda a, b: a >> b if b < 32 else 0,
    "shr.s32": lambda a, b: signed(a) >> min(b, 31),
    "mul.lo.s32": lambda a, b: a * b,
    "mul.hi.u32": lambda a, b: a * b >> 32,
    "mul.hi.s32": lambda a, b: signed(a) * signed(b) >> 32,
    "rem.u32": lambda a, b: a % b,
    "rem.s32": lambda a, b: rem(signed(a), signed(b)),
}


def computed(program, counter):
    """Return what a program leaves in its last register."""
    held = {"%r2": counter}
    for name, to, *operands in program:
        values = [held[o] if isinstance(o, str) else o % WORD for o in operands]
        held[to] = COMPUTE[name](*values) % WORD
    return held[program[-1][1]]


def modulus_of(program):
    """Return by what the counter's remainder is said to tell all, or None."""
    lines = [f"{name} {to}, {', '.join(map(str, operands))};" for name, to, *operands in program]
    lines.append(f"st.shared.u32 [{program[-1][1]}], %r1;")
    (found,) = loops.loops(translate(TEXT.format(body=LOOP.format(body=" ".join(lines))), "kernel").flow)
    return {r.name: by for r, by in found.moduli.items()}.get("%r2")


SMALL = st.integers(-9, 9)
SUMS = st.one_of(
    st.tuples(st.just("mov.b32")),
    st.tuples(st.just("neg.s32")),
    st.tuples(st.sampled_from(["add.s32", "sub.s32", "mul.lo.s32"]), SMALL),
    st.tuples(st.just("or.b32"), st.integers(0, 9)),
    st.tuples(st.just("shl.b32"), st.integers(0, 34)),
)


@st.composite
def programs(draw):
    """Draw sums of a counter, and a remainder of one as compilers write it, or what is nearly that."""
    names = (f"%r{n}" for n in range(20, 60))
    program, x = [], "%r2"

    def add(name, *operands):
        program.append((name, next(names), *operands))
        return program[-1][1]

    for name, *other in draw(st.lists(SUMS, max_size=2)):
        x = add(name, x, *other)
    if draw(st.integers(0, 9)) == 0:
        x = add("sub.s32", draw(SMALL), x)
    which = draw(st.sampled_from(["rem", "and", "power", "quotient", "none"]))
    by = draw(st.integers(1, 12))
    if which == "rem":
        x = add(draw(st.sampled_from(["rem.u32", "rem.s32"])), x, by)
    elif which == "and":
        x = add("and.b32", x, draw(st.sampled_from([-8, -1, 0, 1, 3, 5, 7, 8, by])))
    elif which == "power":
        power = draw(st.integers(1, 4))
        sign = add("shr.s32", x, draw(st.sampled_from([31, 31, 31, 30, 3])))
        more = add("shr.u32", sign, draw(st.sampled_from([32 - power, 32 - power, 1])))
        more = add("add.s32", *draw(st.permutations([x, more])))
        less = add("and.b32", more, draw(st.sampled_from([-(1 << power), -(1 << power), -3, (1 << power) - 1])))
        x = add("sub.s32", *draw(st.sampled_from([(x, less), (x, less), (less, x)])))
    elif which == "quotient":
        shift = draw(st.integers(0, 3))
        high = -(-(WORD << shift) // by) + draw(st.sampled_from([0, 0, 0, 1, -1, 9]))
        assume(0 < high < SIGN)
        quotient = add(draw(st.sampled_from(["mul.hi.s32", "mul.hi.u32"])), x, high)
        sign = add("shr.u32", quotient, 31) if draw(st.booleans()) else None
        if shift or draw(st.booleans()):
            quotient = add(draw(st.sampled_from(["shr.s32", "shr.u32"])), quotient, shift)
        if sign is not None:
            quotient = add("add.s32", quotient, sign)
        times = draw(st.sampled_from([by, by, by, by + 1, 0, -by]))
        less = add(draw(st.sampled_from(["mul.lo.s32", "mul.lo.s32", "mul.hi.s32"])), quotient, times)
        x = add("sub.s32", *draw(st.sampled_from([(x, less), (x, less), (less, x)])))
    if draw(st.booleans()):
        x = add("shl.b32", x, 3)
    assume(program)
    return program


COUNTERS = [*range(100), *range(1 << 15, 1 << 21, 9973), *range((1 << 21) - 40, 1 << 21)]
"""What a counter may come to: a million, and after a million rounds more."""


@pytest.mark.deep
@pytest.mark.integration
@given(programs())
def test_what_is_said_to_be_of_a_remainder_is(program):
    by = modulus_of(program)
    if by is not None:
        assert all(computed(program, n) == computed(program, n % by) for n in COUNTERS), (by, program)
