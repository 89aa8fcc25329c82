"""Registers computed without a launch, against the same arithmetic in Python."""

from hypothesis import given, strategies as st

from cutepy.anatomy.values import Values
from cutepy.sim.ptx import parse_module

MASK = (1 << 32) - 1
OPERATIONS = {
    "add.s32": lambda a, b: a + b,
    "sub.s32": lambda a, b: a - b,
    "mul.lo.s32": lambda a, b: a * b,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "xor.b32": lambda a, b: a ^ b,
    "shl.b32": lambda a, b: a << min(b, 32),
    "shr.u32": lambda a, b: a >> min(b, 32),
    "min.u32": min,
    "max.u32": max,
}


def last_of(lines, shared=None):
    body = " ".join(lines)
    registers = ".reg .b32 %r<99>; .reg .b64 %d<9>; .reg .pred %q<9>;"
    text = f".target sm_90a\n.visible .entry k(.param .u32 p) {{ {registers} {body} ret; }}"
    function = parse_module(text).functions["k"]
    return Values(function, shared or {}), function.instructions[-2].operands[0]


@given(
    st.lists(st.integers(0, MASK), min_size=2, max_size=4),
    st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 99), st.integers(0, 99)), max_size=12),
)
def test_constants_are_computed_as_python_does(constants, steps):
    values = list(constants)
    lines = [f"mov.b32 %r{n}, {value};" for n, value in enumerate(values)]
    for opcode, a, b in steps:
        a, b = a % len(values), b % len(values)
        lines.append(f"{opcode} %r{len(values)}, %r{a}, %r{b};")
        values.append(OPERATIONS[opcode](values[a], values[b]) & MASK)
    known, register = last_of(lines)
    assert known.always(register) == known.first(register) == values[-1]


def test_threads_and_parameters_are_not_known_but_masks_of_them_are():
    known, register = last_of(["mov.u32 %r1, %tid.x;", "and.b32 %r2, %r1, 0;", "or.b32 %r3, %r2, 5;"])
    assert known.always(register) == 5
    known, register = last_of(["mov.u32 %r1, %tid.x;", "add.s32 %r3, %r1, 5;"])
    assert known.always(register) is None
    known, register = last_of(["ld.param.u32 %r1, [p];"])
    assert known.always(register) is None


def test_a_loop_keeps_what_it_enters_with():
    lines = [
        "mov.b32 %r1, 7;",
        "$L: add.s32 %r2, %r1, 1;",
        "setp.eq.s32 %q1, %r2, 9;",
        "mov.b32 %r1, %r2;",
        "@!%q1 bra $L;",
    ]
    known, register = last_of([*lines, "add.s32 %r5, %r1, 0;"])
    assert known.first(register) == 7
    assert known.always(register) is None


def test_halves_make_a_word_and_a_word_halves():
    known, register = last_of(["mov.b32 %r1, 5;", "mov.b32 %r2, 6;", "mov.b64 %d1, {%r1, %r2};"])
    assert known.always(register) == 6 << 32 | 5
    known, register = last_of(["mov.b64 %d1, 25769803781;", "mov.b64 {%r1, %r2}, %d1;", "mov.b32 %r3, %r2;"])
    assert known.always(register) == 6


def test_signs_are_extended_and_wide_products_are_wide():
    known, register = last_of(["mov.b32 %r1, 4294967295;", "cvt.s64.s32 %d1, %r1;"])
    assert known.always(register) == (1 << 64) - 1
    known, register = last_of(["mov.b32 %r1, 65536;", "mul.wide.u32 %d1, %r1, 65536;"])
    assert known.always(register) == 1 << 32


def test_variables_are_where_they_are_placed():
    lines = [".shared .b8 tile[64];", "mov.b32 %r1, tile+8;", "add.s32 %r2, %r1, 8;"]
    known, register = last_of(lines, {"tile": 1024})
    assert known.always(register) == 1040


def test_a_long_chain_is_not_followed():
    lines = ["mov.b32 %r1, 0;"]
    text = "".join(f".reg .b32 %x{n}; add.s32 %x{n}, {'%r1' if n == 0 else f'%x{n - 1}'}, 1; " for n in range(4000))
    known, register = last_of([*lines, text, "add.s32 %r2, %x3999, 1;"])
    assert known.always(register) in (None, 4001)


def test_registers_that_need_each_other_end():
    names = [f"%r{n}" for n in range(1, 20)]
    lines = [f"mov.b32 {name}, {n};" for n, name in enumerate(names)]
    lines += [
        f"add.s32 {name}, {a}, {b};"
        for name, a, b in zip(names, names[1:] + names[:1], names[2:] + names[:2], strict=True)
    ]
    known, register = last_of([*lines, "add.s32 %r50, %r1, 0;"])
    assert known.first(register) == 0
    assert known.always(register) is None
