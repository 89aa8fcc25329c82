"""Programs of nested branches and loops, drawn at random, against the same program lane by lane in Python."""

from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings, strategies as st

from .launching import launch

_REGISTERS, _THREADS, _CTAS = 4, 40, 5

# A statement is (register, register, constant), an if, or a loop: (condition, body, body), (count of a lane, body).
_updates = st.tuples(st.integers(0, _REGISTERS - 1), st.integers(0, _REGISTERS - 1), st.integers(0, 9))
_conditions = st.tuples(st.integers(0, _REGISTERS), st.sampled_from([2, 3, 5, 64]), st.integers(0, 2))


def _blocks(statements):
    bodies = st.lists(statements, max_size=3)
    return st.one_of(
        st.tuples(st.just("if"), _conditions, bodies, bodies),
        st.tuples(st.just("loop"), _conditions, bodies),
        st.tuples(st.just("leave"), _conditions),
    )


_programs = st.lists(st.recursive(_updates, _blocks, max_leaves=10), min_size=1, max_size=4)


def text_of(program: list, names: Iterator[int], out: str, depth: int = 0) -> str:
    """Write statements as PTX: values are in %r10 and on, the number of the lane in %r0, counters in %r20 and on."""
    lines = []
    for statement in program:
        if isinstance(statement[0], int):
            to, source, constant = statement
            own = f"%r{10 + to}"
            lines.append(f"mad.lo.u32 {own}, {own}, 3, %r{10 + source}; add.u32 {own}, {own}, {constant};")
            continue
        source, modulus, rest = statement[1]
        value = f"%r{10 + source}" if source < _REGISTERS else "%r0"
        name = next(names)
        test = f"rem.u32 %r9, {value}, {modulus}; setp.eq.u32 %p0, %r9, {rest};"
        if statement[0] == "if":
            yes, no = (text_of(part, names, out, depth) for part in statement[2:])
            lines.append(f"{test} @!%p0 bra NO{name}; {yes} bra END{name}; NO{name}: {no} END{name}:")
        elif statement[0] == "leave":
            lines.append(f"{test} @%p0 bra {out};")
        else:
            body = text_of(statement[2], names, f"END{name}", depth + 1)
            counter = f"%r{20 + depth}"
            lines.append(
                f"""rem.u32 {counter}, {value}, {modulus};
                LOOP{name}: setp.eq.u32 %p1, {counter}, 0; @%p1 bra END{name};
                sub.u32 {counter}, {counter}, 1; {body} bra LOOP{name}; END{name}:"""
            )
    return "\n".join(lines)


class Leave(Exception):
    """The innermost loop, or the program, ends."""


def run(program, values, lane):
    """Run statements for one lane."""
    for statement in program:
        if isinstance(statement[0], int):
            to, source, constant = statement
            values[to] = (values[to] * 3 + values[source] + constant) % 2**32
            continue
        source, modulus, rest = statement[1]
        value = (values[source] if source < _REGISTERS else lane) % modulus
        if statement[0] == "if":
            run(statement[2] if value == rest else statement[3], values, lane)
        elif statement[0] == "leave":
            if value == rest:
                raise Leave
        else:
            try:
                for _ in range(value):
                    run(statement[2], values, lane)
            except Leave:
                pass


@given(_programs)
@settings(max_examples=60, deadline=None)
def test_nested_divergence(program):
    out = np.zeros((_CTAS, _THREADS, _REGISTERS + 1), np.uint32)
    names = iter(range(10**6))
    stores = " ".join(f"st.global.u32 [%rd2+{4 * n}], %r{10 + n};" for n in range(_REGISTERS))
    body = f"""mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r0, %r2, {_THREADS}, %r1;
        mad.wide.u32 %rd2, %r0, {4 * (_REGISTERS + 1)}, %rd0;
        mov.u32 %r10, 1; mov.u32 %r11, %r1; mov.u32 %r12, %r2; mov.u32 %r13, %r0;
        {text_of(program, names, "OUT")}
        OUT: activemask.b32 %r5; {stores} st.global.u32 [%rd2+{4 * _REGISTERS}], %r5;"""
    launch(body, [out], block=(_THREADS, 1, 1), grid=(_CTAS, 1, 1))
    for cta in range(_CTAS):
        for thread in range(_THREADS):
            lane = cta * _THREADS + thread
            values = [1, thread, cta, lane]
            try:
                run(program, values, lane)
            except Leave:
                pass
            together = 0xFFFFFFFF if thread < 32 else 0xFF
            assert out[cta, thread].tolist() == [*values, together]


def test_lanes_of_a_block_of_two_keep_their_own_values_where_only_ctas_part():
    out = np.zeros(4, np.uint32)
    body = """mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; setp.eq.u32 %p0, %r1, 0; mad.lo.u32 %r3, %r1, 2, %r0;
    @%p0 bra FIRST;
    add.u32 %r2, %r0, 10; bra END;
    FIRST: add.u32 %r2, %r0, 20;
    END: mul.wide.u32 %rd1, %r3, 4; add.u64 %rd1, %rd1, %rd0; st.global.u32 [%rd1], %r2;"""
    launch(body, [out], grid=(2, 1, 1), block=(2, 1, 1))
    assert out.tolist() == [20, 21, 10, 11]
