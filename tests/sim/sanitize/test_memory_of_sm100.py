"""Accesses of 256 bits, st.bulk and matrices of bytes: each touches all of its bytes, and no others."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.sim.opcode_runner import launch
from tests.sim.operands import aligned

EIGHT = "{%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}"
START = """mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 32; mov.u32 %r2, smem;
ld.param.u64 %rd1, [p0]; mov.u64 %rd2, 64;"""
START += "".join(f"mov.u32 %r{n}, %r1;" for n in range(10, 18))


def kinds(body, threads=64):
    run = Run((), None, sanitize=True)
    launch(START + body, aligned(4096), block=threads, smem_bytes=1024, target="sm_100a", run=run)
    return [hazard.kind for hazard in run.hazards]


@pytest.mark.parametrize(("offset", "races"), [(-4, False), (0, True), (12, True), (16, True), (28, True), (32, False)])
@pytest.mark.parametrize(
    "first", ["@%p1 st.global.v8.b32 [%rd1+64], EIGHT;", "@%p1 ld.global.v8.b32 EIGHT, [%rd1+64];"]
)
def test_accesses_of_256_bits_race_with_what_they_overlap(first, offset, races):
    first = first.replace("EIGHT", EIGHT)
    second = f"@%p2 st.global.u32 [%rd1+{64 + offset}], %r1;"
    assert kinds(f"{first}\n{second}") == ["unordered-write"] * races
    assert kinds(f"{first}\nbar.sync 0;\n{second}") == []


def test_long_runs_of_256_bits_are_compared():
    """Lanes of many CTAs write rows of 32 bytes, and each reads its neighbour's."""
    body = f"""mov.u32 %r3, %ctaid.x; mad.lo.u32 %r4, %r3, 64, %r1; mul.wide.u32 %rd3, %r4, 32;
    add.u64 %rd4, %rd1, %rd3; st.global.v8.b32 [%rd4], {EIGHT};
    BARRIER
    xor.b32 %r5, %r4, 33; mul.wide.u32 %rd3, %r5, 32; add.u64 %rd4, %rd1, %rd3; ld.global.v8.b32 {EIGHT}, [%rd4];"""
    for barrier, expected in (("", ["unordered-read"]), ("bar.sync 0;", [])):
        run = Run((), None, sanitize=True)
        data = aligned(96 * 64 * 32)
        launch(START + body.replace("BARRIER", barrier), data, grid=96, block=64, target="sm_100a", run=run)
        assert [hazard.kind for hazard in run.hazards] == expected


@pytest.mark.parametrize(("offset", "races"), [(124, False), (128, True), (160, True), (188, True), (192, False)])
def test_zeros_in_bulk_race_with_what_they_overlap(offset, races):
    first, second = "@%p1 st.bulk.weak.shared::cta [%r2+128], %rd2, 0;", f"@%p2 st.shared.u32 [%r2+{offset}], %r1;"
    assert kinds(f"{first}\n{second}") == ["unordered-write"] * races
    assert kinds(f"{first}\nbar.sync 0;\n{second}\nld.shared.u32 %r3, [%r2+128];".replace("ld", "@%p2 ld")) == []


@pytest.mark.parametrize(("zeros", "told"), [("", True), ("@%p1 st.bulk [%rd4], %rd2, 0; bar.sync 0;", False)])
def test_matrices_of_bytes_carry_what_has_no_value(zeros, told):
    """A register that nothing wrote goes through shared memory, and is stored; zeros over it have values."""
    body = f"""mov.u64 %rd2, 128; shl.b32 %r3, %r1, 4; and.b32 %r3, %r3, 0x70; add.u32 %r3, %r3, %r2;
    add.u64 %rd3, %rd1, 0; cvt.u64.u32 %rd4, %r2; cvta.shared.u64 %rd4, %rd4;
    stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r3], {{%r200}};
    bar.sync 0;
    {zeros}
    ld.shared.u32 %r5, [%r3];
    @%p1 st.global.u32 [%rd1], %r5;"""
    assert bool(kinds(body, 32)) == told


@pytest.mark.parametrize("lane", [0, 5])
def test_bytes_without_a_value_are_found_where_ldmatrix_brings_them(lane):
    """One byte of shared memory has no value: the lane whose register brings it stores what has none, no other does."""
    body = f"""shl.b32 %r3, %r1, 4; and.b32 %r3, %r3, 0xF0; add.u32 %r3, %r3, %r2;
    mov.u32 %r4, 0; st.shared.v4.u32 [%r3], {{%r4, %r4, %r4, %r4}};
    bar.sync 0;
    @%p1 st.shared.u8 [%r2+{16 * (4 * (lane % 4) + 2) + lane // 4}], %rs9;
    bar.sync 0;
    ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {{%r5, %r6}}, [%r3];
    setp.eq.u32 %p3, %r1, WHO;
    @%p3 st.global.u32 [%rd1], %r5;"""
    assert kinds(body.replace("WHO", str(lane)), 32) != []
    assert kinds(body.replace("WHO", str(lane + 1)), 32) == []
    assert kinds(body.replace("WHO", str(lane)).replace("%r5;", "%r6;"), 32) == []


def test_a_size_without_a_value_is_told():
    assert kinds("@%p1 st.bulk.weak.shared::cta [%r2], %rd40, 0;", 32) != []


def test_columns_of_matrices_of_bytes_race():
    """A warp stores a column that another loads."""
    body = """shl.b32 %r3, %r1, 4; and.b32 %r3, %r3, 0x70; add.u32 %r3, %r3, %r2; setp.lt.u32 %p3, %r1, 32;
    @!%p3 bra READ;
    stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r3], {%r10};
    BARRIER bra.uni END;
    READ: BARRIER ld.shared.u32 %r4, [%r2+64];
    END:"""
    assert np.array_equal([*map(len, (kinds(body.replace("BARRIER", x)) for x in ("", "bar.sync 0;")))], [1, 0])
