"""Registers of 128 bits, old orders of modifiers, what saturates, and what is refused by name."""

import numpy as np
import pytest

from cutepy import load_ptx
from cutepy.sim import UnknownInstructionError
from cutepy.sim.ptx.parser import PtxSyntaxError
from tests.messages import refuses

_HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def launch(body, *arrays, threads=32, known=()):
    parameters = ", ".join(f".param .u64 p{n}" for n in range(len(arrays)))
    loads = "".join(f"ld.param.u64 %rd{n}, [p{n}];" for n in range(len(arrays)))
    module = load_ptx(f"""{_HEAD}.visible .entry k({parameters}) {{ .reg .b128 %q<4>, one; .reg .b64 %rd<16>;
    .reg .b32 %r<16>, %t; .reg .f32 %f<4>; .reg .pred %p<4>; .reg .b16 %h<4>; mov.u32 %t, %tid.x; {loads} {body}
    ret; }}""")
    module.launch("k", 1, threads, arrays, known=known)


def test_loads_and_stores_of_128_bits():
    x = np.random.default_rng(0).integers(0, 2**63, (32, 2)).astype(np.uint64)
    out = np.zeros_like(x)
    body = """mad.wide.u32 %rd2, %t, 16, %rd0; mad.wide.u32 %rd3, %t, 16, %rd1; ld.global.b128 %q1, [%rd2];
    mov.b128 {%rd4, %rd5}, %q1; add.u64 %rd4, %rd4, 1; mov.b128 one, {%rd5, %rd4}; mov.b128 %q2, one;
    st.global.b128 [%rd3], %q2;"""
    launch(body, x, out)
    np.testing.assert_array_equal(out, np.stack([x[:, 1], x[:, 0] + np.uint64(1)], 1))


@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics_of_128_bits(space):
    """Each lane swaps its value in if it finds that of the lane before, or at first zeros."""
    memory, out = np.zeros((32, 2), np.uint64), np.zeros((32, 2), np.uint64)
    prepare = "mov.u64 %rd2, %rd0;" if space == "global" else ".shared .align 16 .b8 s[16]; mov.u64 %rd2, s;"
    body = f"""{prepare} cvt.u64.u32 %rd3, %t; add.u64 %rd4, %rd3, 1; mul.lo.u64 %rd5, %rd3, 10;
    mul.lo.u64 %rd6, %rd4, 10; mov.b128 %q1, {{%rd3, %rd5}}; mov.b128 %q2, {{%rd4, %rd6}};
    atom.{space}.cas.b128 %q3, [%rd2], %q1, %q2; mad.wide.u32 %rd7, %t, 16, %rd1; st.b128 [%rd7], %q3;
    setp.ne.u32 %p1, %t, 31; @%p1 bra END; atom.{space}.exch.b128 %q0, [%rd2], %q1; st.b128 [%rd0+16], %q0; END:"""
    launch(body, memory, out)
    t = np.arange(32, dtype=np.uint64)
    np.testing.assert_array_equal(out, np.stack([t, 10 * t], 1))
    assert memory[1].tolist() == [32, 320]
    if space == "global":
        assert memory[0].tolist() == [31, 310]


def test_an_atomic_may_be_of_several_allocations():
    first, second = np.zeros(4, np.uint32), np.zeros(4, np.uint32)
    body = """and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0; selp.u64 %rd2, %rd0, %rd1, %p1;
    atom.global.add.u32 %r2, [%rd2+4], %t;"""
    launch(body, first, second)
    assert (first[1], second[1]) == (sum(range(0, 32, 2)), sum(range(1, 32, 2)))


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        (
            "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];",
            "ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];",
        ),
        ("max.relu.s32 %r1, %r2, %r3;", "max.s32.relu %r1, %r2, %r3;"),
    ],
)
def test_modifiers_in_another_order(usual, other):
    def opcode(text):
        module = load_ptx(f"{_HEAD}.entry k() {{ .reg .b32 %r<9>; {text} }}")
        return module._loaded.module.functions["k"].instructions[0].opcode

    assert opcode(other) == opcode(usual) == usual.split()[0]


def test_saturation():
    a, b, c = (np.array(x, np.int32) for x in ([2**31 - 1, -(2**31), 7], [2**31 - 1, 2**31 - 1, 9], [2**31 - 1, -5, 1]))
    out = np.zeros((2, 3), np.int32)
    body = """mad.wide.u32 %rd4, %t, 4, %rd0; mad.wide.u32 %rd5, %t, 4, %rd1; mad.wide.u32 %rd6, %t, 4, %rd2;
    mad.wide.u32 %rd7, %t, 4, %rd3; ld.s32 %r1, [%rd4]; ld.s32 %r2, [%rd5]; ld.s32 %r3, [%rd6];
    mad.hi.sat.s32 %r4, %r1, %r2, %r3; st.s32 [%rd7], %r4; mad24.hi.sat.s32 %r4, %r1, %r2, %r3;
    st.s32 [%rd7+12], %r4;"""
    launch(body, a, b, c, out, threads=3)
    wide = [x.astype(object) for x in (a, b, c)]
    low = [((x & 0xFFFFFF) ^ 0x800000) - 0x800000 for x in wide[:2]]
    expected = [(wide[0] * wide[1] >> 32) + wide[2], (low[0] * low[1] >> 16) + wide[2]]
    np.testing.assert_array_equal(out, np.clip(np.array(expected), -(2**31), 2**31 - 1).astype(np.int64))


@pytest.mark.parametrize("kind", ["u2", "s2", "u4", "s4", "u8", "s8"])
def test_packing(kind):
    x = np.array([-200, -9, -8, -3, -2, -1, 0, 1, 2, 3, 7, 8, 15, 16, 127, 255, 300], np.int32)
    out = np.zeros_like(x)
    body = f"""mad.wide.u32 %rd2, %t, 4, %rd0; mad.wide.u32 %rd3, %t, 4, %rd1; ld.s32 %r1, [%rd2]; neg.s32 %r2, %r1;
    mov.b32 %r3, 5; cvt.pack.sat.{kind}.s32.b32 %r4, %r1, %r2, %r3; st.s32 [%rd3], %r4;"""
    launch(body, x, out, threads=len(x))
    bits = int(kind[1])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    a, b = (np.clip(y, low, high) & (1 << bits) - 1 for y in (x.astype(int), -x.astype(int)))
    np.testing.assert_array_equal(out, b | a << bits | 5 << 2 * bits)


@pytest.mark.parametrize(
    "line",
    [
        "mov.u32 %r1, %pm0;",
        "multimem.red.global.add.f32 [%rd1], %f1;",
    ],
)
def test_what_is_not_simulated_is_told_where_it_is_reached(line):
    with refuses(UnknownInstructionError):
        launch(line)
    launch(f"bra END; {line} END:")


@pytest.mark.parametrize(
    "line",
    [
        "shfl.up.b32 %r1, %r2, 1, 0;",
        "ld.global.v8.b32 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%rd1];",
        "st.bulk.weak.shared::cta [%rd1], 64, 0;",
        "mad.lo.sat.s32 %r1, %r2, %r3, %r4;",
    ],
)
def test_what_the_assembler_refuses_is_told_as_the_text_is_read(line):
    with refuses(PtxSyntaxError):
        launch(f"bra END; {line} END:")


def test_a_guarded_branch_by_an_index():
    out = np.zeros(32, np.uint32)
    body = """and.b32 %r1, %t, 1; setp.lt.u32 %p1, %t, 20; mad.wide.u32 %rd2, %t, 4, %rd0; mov.u32 %r2, 1;
    table: .branchtargets A, B; @%p1 brx.idx %r1, table; bra END; A: mov.u32 %r2, 2; bra END; B: mov.u32 %r2, 3;
    END: st.u32 [%rd2], %r2;"""
    launch(body, out)
    t = np.arange(32)
    np.testing.assert_array_equal(out, np.where(t < 20, 2 + t % 2, 1))


def test_moves_of_vectors():
    """Element by element: of special registers, of registers in braces, and of vectors by their names."""
    out = np.zeros((32, 8), np.uint32)
    body = """.reg .v2 .b32 u, v; .reg .v4 .u32 all; mad.wide.u32 %rd1, %t, 32, %rd0; setp.lt.u32 %p1, %t, 16;
    mov.v4.u32 {%r0, _, %r2, %r3}, %ntid; mov.v4.u32 all, %tid; mov.u32 %r1, %tid.w;
    mov.v2.b32 {%r0, %r1}, {%r1, %r0}; @%p1 mov.v2.b32 {%r0, %r1}, {%r1, 7}; mov.v2.b32 u, {%r0, %r1};
    mov.v2.b32 v, u; st.global.v4.u32 [%rd1], {v.x, v.y, %r2, %r3}; st.global.v4.u32 [%rd1+16], all;"""
    launch(body, out)
    lanes = np.arange(32, dtype=np.uint32)[:, None]
    swapped = np.where(lanes < 16, [[32, 7]], [[0, 32]])
    np.testing.assert_array_equal(out[:, :2], swapped)
    np.testing.assert_array_equal(out[:, 2:4], np.tile([1, 0], (32, 1)))
    np.testing.assert_array_equal(out[:, 4:], np.pad(lanes, ((0, 0), (0, 3))))


@pytest.mark.parametrize("source", ["%laneid", "%r1", "{%r1, %r2}", "5"])
def test_what_is_no_vector_of_so_many_elements(source):
    with refuses(PtxSyntaxError):
        launch(f"mov.v4.u32 {{%r0, %r1, %r2, %r3}}, {source};")
