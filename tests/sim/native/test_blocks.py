"""Machine code of hot blocks, against numpy's execution of the same: values, counts and errors."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cutepy.sim import Observer, translate
from cutepy.sim.arithmetic import minifloat
from cutepy.sim.machine.events import Access
from cutepy.sim.native import compiler, ledger, machine_code, writer
from cutepy.sim.native.instructions import is_native
from cutepy.sim.native.machine_code import MachineCode
from tests.sim.kernels.launching import launch, ptx_module
from tests.sim.native.programs import FLOATS, LOAD, TEMPLATES, TEMPLATES_OF_SM100, filled, inputs, same
from tests.sim.operands import aligned

pytest.importorskip("cutlass")

pytestmark = pytest.mark.dsl


def _program(rng, chosen):
    lines = [LOAD]
    for n in range(8):
        # Some values are the same for all threads of a CTA, for all CTAs, or everywhere.
        where = ["%rd6", "%rd6", "%rd0", "%rd8", "%rd9"][rng.integers(5)]
        lines.append("mul.wide.u32 %rd8, %r20, 4; add.u64 %rd8, %rd8, %rd0;")
        lines.append("mul.wide.u32 %rd9, %r22, 4; add.u64 %rd9, %rd9, %rd0;")
        lines.append(f"ld.global.u32 %r{n}, [{where}+{4 * n}];")
        lines.append(f"ld.global.f32 %f{n}, [{where}+{4 * int(rng.integers(16))}];")
        if n < 4:
            lines.append(f"cvt.u64.u32 %rd2{n}, %r{n}; setp.lt.u32 %p{n}, %r{n}, 0x40000000; cvt.u16.u32 %h{n}, %r{n};")
    lines += chosen
    lines.append("add.u64 %rd10, %rd1, %rd5;")
    for n in range(8):
        lines.append(f"st.global.u32 [%rd10], %r{n}; add.u64 %rd10, %rd10, %rd7;")
        lines.append(f"st.global.f32 [%rd10], %f{n}; add.u64 %rd10, %rd10, %rd7;")
        if n < 4:
            lines.append(f"cvt.u32.u64 %r30, %rd2{n}; shr.u64 %rd11, %rd2{n}, 32; cvt.u32.u64 %r31, %rd11;")
            lines.append(f"selp.u32 %r32, 1, 0, %p{n}; cvt.u32.u16 %r33, %h{n};")
            for register in ("%r30", "%r31", "%r32", "%r33"):
                lines.append(f"st.global.u32 [%rd10], {register}; add.u64 %rd10, %rd10, %rd7;")
    return "\n".join(lines)


_BY_NUMPY = {"ex2.approx.f32"}
"""Powers are the mathematics library's."""


def _instructions(statements, target="sm_90a"):
    """Return instructions, and the kinds of their registers."""
    program = translate.Kernel(ptx_module("\n".join(statements), 0, target), "k").program()
    return program.function.instructions, program.kinds


def test_what_machine_code_is_written_for():
    rng = np.random.default_rng(0)
    instructions, kinds = _instructions([".reg .f64 %fd<3>;", *(filled(template, rng) for template in TEMPLATES)])
    assert {i.opcode for i in instructions[:-1] if not is_native(i, kinds)} == _BY_NUMPY
    others = [
        ".local .align 8 .b8 a[8]; mov.u64 %rd0, a;",
        "cvt.u32.u64 %r0, %rd0; lop3.or.b32 %r0|%p0, %r1, %r2, %r3, 0x80, %p1;",
        "lop3.and.b32 %r0|%p0, %r1, %r2, %r3, 0x80, %p1;",
        "cvt.f64.f32 %rd0, %f0;",
    ]
    instructions, kinds = _instructions(others)
    assert [i.parts[0] for i in instructions if is_native(i, kinds)] == ["cvt", "lop3", "lop3", "cvt"]


def test_which_stores_machine_code_is_written_for():
    stores = {
        "st.global.u8 [%rd0], %r0;": True,
        "st.shared.v2.u32 [%r0+4], {%r1, %r2};": True,
        "st.local.u32 [%rd0], %r0;": False,
    }
    instructions, kinds = _instructions(stores)
    assert [is_native(i, kinds) for i in instructions[:-1]] == list(stores.values())


@pytest.mark.parametrize("number", [-1, 0x1FF])
def test_constants_are_cut_to_their_bits(number):
    assert writer.Writer().constant(8, number).number == 255


def test_all_pairs_of_special_floats(patched):
    """Zeros of both signs, subnormals, infinities, NaNs: each with each."""
    count = len(FLOATS)
    operations = [f"{op}{ftz}.f32" for op in ("min", "max", "add", "mul") for ftz in ("", ".ftz")]
    operations += [
        "sub.f32",
        "div.rn.f32",
        *(f"div.{how}{ftz}.f32" for how in ("approx", "full") for ftz in ("", ".ftz")),
    ]
    body = f"""
    mov.u32 %r0, %tid.x; div.u32 %r1, %r0, {count}; rem.u32 %r2, %r0, {count};
    mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd0, %rd2; ld.global.f32 %f0, [%rd2];
    mul.wide.u32 %rd3, %r2, 4; add.u64 %rd3, %rd0, %rd3; ld.global.f32 %f1, [%rd3];
    mul.wide.u32 %rd4, %r0, 4; add.u64 %rd4, %rd1, %rd4;
    """
    for n, operation in enumerate(operations):
        body += f"{operation} %f2, %f0, %f1; st.global.f32 [%rd4+{4 * count**2 * n}], %f2;"
    arrays = [np.array(FLOATS, np.uint32), np.zeros(len(operations) * count**2, np.uint32)]
    same(patched, body, arrays, block=(count**2, 1, 1))


def test_addresses_in_windows_and_of_variables(patched):
    body = "mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 8; add.u64 %rd3, %rd0, %rd2; mov.u64 %rd4, smem+16;"
    body += "add.u64 %rd4, %rd4, %rd2; st.global.u64 [%rd3], %rd4;"
    for n, space in enumerate(("global", "shared", "local", "to.global", "to.shared", "to.local"), 1):
        body += f"cvta.{space}.u64 %rd5, %rd2; st.global.u64 [%rd3+{256 * n}], %rd5;"
    same(patched, body, [np.zeros(32 * 7, np.uint64)], smem=512)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles_by_distances_of_lanes(patched, mode):
    """Each lane has a distance, and a segment or a clamp, of its own."""
    body = """
    mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;
    ld.global.u32 %r1, [%rd3]; ld.global.u32 %r2, [%rd3+384]; and.b32 %r2, %r2, 0x1F1F;
    """
    for n, clamp in enumerate(["0", "31", "0x1807", "0x1C03", "%r2"]):
        body += f"shfl.sync.{mode}.b32 %r3|%p0, %r0, %r1, {clamp}, -1; selp.u32 %r4, 1000, 0, %p0;"
        body += f"add.u32 %r3, %r3, %r4; st.global.u32 [%rd4+{384 * n}], %r3;"
    arrays = [np.random.default_rng(0).integers(0, 1 << 16, 192).astype(np.uint32), np.zeros(5 * 96, np.uint32)]
    same(patched, body, arrays, block=(96, 1, 1))


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles_by_one_distance(patched, mode):
    """All lanes have a distance, a segment and a clamp, which are numbers of the instruction."""
    body = """
    mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd0, %rd2; ld.global.u32 %r1, [%rd3];
    add.u64 %rd4, %rd1, %rd2;
    """
    cases = list(itertools.product((0, 1, 5, 16, 31), ("0", "31", "0x1807", "0x1C03")))
    for n, (distance, clamp) in enumerate(cases):
        body += f"shfl.sync.{mode}.b32 %r3|%p0, %r1, {distance}, {clamp}, -1; selp.u32 %r4, 1, 0, %p0;"
        body += f"mad.lo.u32 %r3, %r3, 2, %r4; st.global.u32 [%rd4+{256 * n}], %r3;"
    arrays = [np.random.default_rng(0).integers(0, 1 << 16, 64).astype(np.uint32), np.zeros(64 * len(cases), np.uint32)]
    same(patched, body, arrays, block=(64, 1, 1))


EXCHANGES = [
    "vote.sync.ballot.b32 %r3, %p1, -1;",
    "vote.sync.any.pred %p0, %p1, -1;",
    "vote.sync.all.pred %p0, %p1, -1;",
    "vote.sync.uni.pred %p0, %p1, -1;",
    *(f"redux.sync.{op}.{kind}32 %r3, %r1, -1;" for op in ("add", "min", "max") for kind in "us"),
    *(f"redux.sync.{op}.b32 %r3, %r1, -1;" for op in ("and", "or", "xor")),
    "match.all.sync.b32 %r3|%p0, %r1, -1;",
    "elect.sync %r3|%p0, -1;",
    "activemask.b32 %r3;",
]
EXCHANGES_OF_SM100 = [
    f"redux.sync.{op}{modifiers}.f32 %f3, %f1, -1; mov.b32 %r3, %f3;"
    for op in ("min", "max")
    for modifiers in ("", ".NaN", ".abs", ".abs.NaN")
]


@pytest.mark.parametrize(("exchanges", "target"), [(EXCHANGES, "sm_90a"), (EXCHANGES_OF_SM100, "sm_100a")])
def test_each_exchange_of_lanes(patched, exchanges, target):
    """The lanes of a warp have one value, and those of others values of their own, whose least is negative."""
    body = """mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;
    ld.global.u32 %r1, [%rd3]; mov.b32 %f1, %r1; setp.lt.s32 %p1, %r1, 0;"""
    for n, exchange in enumerate(exchanges):
        body += f"mov.u32 %r3, 7; setp.eq.u32 %p0, %r0, 40; {exchange} selp.u32 %r4, 1000, 0, %p0;"
        body += f"add.u32 %r3, %r3, %r4; st.global.u32 [%rd4+{512 * n}], %r3;"
    rng = np.random.default_rng(0)
    values = rng.uniform(-2, 8, 128).astype(np.float32)
    values[:32], values[64:96], values[100] = -3, 5, np.nan
    arrays = [values.view(np.uint32), np.zeros(128 * len(exchanges), np.uint32)]
    same(patched, body, arrays, block=(128, 1, 1), target=target)


def test_signed_parameters_are_extended(patched):
    """The last bytes of the address that is passed are negative numbers."""
    room = np.zeros(1 << 15, np.uint64)
    start = (0x8F80 - room.ctypes.data) % (1 << 16) // 8
    body = "mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 8; add.u64 %rd3, %rd0, %rd2;"
    for n, kind in enumerate(("s8", "u8", "s16", "u16")):
        body += f"ld.param.{kind} %r1, [p0]; ld.param.{kind} %rd4, [p0]; cvt.u64.u32 %rd5, %r1;"
        body += f"st.global.u64 [%rd3+{512 * n}], %rd4; st.global.u64 [%rd3+{512 * n + 256}], %rd5;"
    (after,), *_ = same(patched, body, [room[start : start + 256]])
    signed = np.array([-0x80, -0x80, 0x80, 0x80, 0x8F80 - 0x10000, 0x8F80 - 0x10000, 0x8F80, 0x8F80])
    expected = np.where(np.arange(8) % 2, signed & 0xFFFFFFFF, signed)
    np.testing.assert_array_equal(np.frombuffer(after, np.int64).reshape(8, 32)[:, 0], expected)


def test_stores_beside_barriers_are_seen(patched):
    """Shared memory that has mbarriers in it is written by numpy, which looks for them."""
    body = """
    mov.u32 %r0, %tid.x; mul.lo.u32 %r1, %r0, 4; mov.u32 %r2, smem; add.u32 %r3, %r2, %r1;
    setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [%r2], 1; bar.sync 0;
    st.shared.u32 [%r3+8], %r0; st.shared.u32 [%r3+136], %r1; bar.sync 0;
    ld.shared.u32 %r4, [%r3+8]; ld.shared.u32 %r5, [%r3+136]; add.u32 %r6, %r4, %r5;
    mul.wide.u32 %rd1, %r0, 4; add.u64 %rd2, %rd0, %rd1; st.global.u32 [%rd2], %r6;
    """
    (after,), *_ = same(patched, body, [np.zeros(32, np.uint32)], gives_up=True, smem=512)
    np.testing.assert_array_equal(np.frombuffer(after, np.uint32), 5 * np.arange(32))


@pytest.mark.parametrize("start", range(0, len(TEMPLATES), 60))
def test_every_instruction(patched, start):
    """Each changes registers of 96 lanes, half of whose inputs are special numbers."""
    rng = np.random.default_rng(start)
    chosen = [filled(template, rng) for template in TEMPLATES[start : start + 60]]
    for n in range(0, len(chosen), 15):
        body = _program(rng, chosen[n : n + 15])
        arrays = [inputs(rng, 96), np.zeros(32 * 96, np.uint32)]
        same(patched, body, arrays, block=(96, 1, 1))


@pytest.mark.parametrize("start", range(0, len(TEMPLATES_OF_SM100), 15))
def test_every_instruction_of_sm100(patched, start):
    rng = np.random.default_rng(start)
    chosen = [filled(template, rng) for template in TEMPLATES_OF_SM100[start : start + 15]]
    arrays = [inputs(rng, 96), np.zeros(32 * 96, np.uint32)]
    same(patched, _program(rng, chosen), arrays, block=(96, 1, 1), target="sm_100a")
    instructions, kinds = _instructions(chosen, "sm_100a")
    assert all(is_native(i, kinds) for i in instructions[:-1])


@pytest.mark.parametrize("narrow", ["e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "e2m1x2"])
def test_every_number_between_narrow_ones(patched, narrow):
    """Numbers of each format, between them, beyond the last and next to all of these, rounded and widened again."""
    table = minifloat.table(narrow.removesuffix("x2"))
    numbers = np.unique(np.abs(table[np.isfinite(table)]))
    middles = (numbers[1:] + numbers[:-1]) / np.float32(2)
    edges = np.concatenate(
        [numbers, middles, numbers[-1:] * np.float32(1.25), np.float32([np.inf, np.nan, 1e-45, 1e-30])]
    )
    with np.errstate(invalid="ignore"):
        near = np.concatenate([edges, np.nextafter(edges, np.float32(0)), np.nextafter(edges, np.float32(np.inf))])
    values = np.concatenate([near, -near]).astype(np.float32)
    count = -(-len(values) // 96) * 96
    register, kind = ("%e", ".reg .b8 %e;") if narrow == "e2m1x2" else ("%h0", "")
    bits = 8 if narrow == "e2m1x2" else 16
    body = f"""{kind} mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r0, %r1, 96, %r0;
    mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd0, %rd2; ld.global.f32 %f0, [%rd3]; neg.f32 %f1, %f0;
    mul.wide.u32 %rd2, %r0, 8; add.u64 %rd4, %rd1, %rd2; cvt.rn.satfinite.{narrow}.f32 {register}, %f1, %f0;
    cvt.u32.u{bits} %r2, {register}; cvt.rn.f16x2.{narrow} %r3, {register};
    st.global.u32 [%rd4], %r2; st.global.u32 [%rd4+4], %r3;"""
    arrays = [np.resize(values, count), np.zeros(2 * count, np.uint32)]
    same(patched, body, arrays, block=(96, 1, 1), grid=(count // 96, 1, 1), target="sm_100a")


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32), block=st.sampled_from([1, 7, 32, 40, 64]), grid=st.integers(1, 3))
def test_random_programs(patched, seed, block, grid):
    rng = np.random.default_rng(seed)
    program = _program(rng, [filled(TEMPLATES[rng.integers(len(TEMPLATES))], rng) for _ in range(40)])
    arrays = [inputs(rng, block * grid), np.zeros(32 * block * grid, np.uint32)]
    same(patched, program, arrays, block=(block, 1, 1), grid=(grid, 1, 1))


def _access(bits, count, space, offset=""):
    kind = {8: "u8", 16: "u16", 32: "u32", 64: "u64"}[bits]
    vector = "" if count == 1 else f".v{count}"
    register = {8: "%h", 16: "%h", 32: "%r", 64: "%rd1"}[bits]
    items = ", ".join(f"{register}{n}" for n in range(count))
    items = items if count == 1 else f"{{{items}}}"
    return f"{space}{vector}.{kind}", items


@pytest.mark.parametrize(
    ("bits", "count", "pattern", "block"),
    [
        (8, 1, "rows", 45),
        (16, 2, "mixed", 64),
        (32, 1, "rows", 64),
        (32, 1, "reversed", 45),
        (64, 1, "same", 64),
        (32, 4, "mixed", 64),
        (32, 4, "reversed", 45),
    ],
)
def test_loads_and_stores(patched, bits, count, pattern, block):
    """Global to shared memory and back, with the traffic that numpy counts."""
    size = bits // 8 * count
    order = {
        "rows": "mov.u32 %r20, %tid.x;",
        "same": "mov.u32 %r20, 3;",
        "reversed": f"mov.u32 %r20, %tid.x; sub.u32 %r20, {block - 1}, %r20;",
        "mixed": f"mov.u32 %r20, %tid.x; mul.lo.u32 %r20, %r20, 7; shr.u32 %r20, %r20, 1; rem.u32 %r20, %r20, {block};",
    }[pattern]
    load, items = _access(bits, count, "global")
    body = f"""
    {order}
    mul.lo.u32 %r21, %r20, {size}; mov.u32 %r22, %ctaid.x; mul.lo.u32 %r23, %r22, {64 * size};
    cvt.u64.u32 %rd20, %r21; cvt.u64.u32 %rd21, %r23; add.u64 %rd22, %rd0, %rd20;
    mov.u32 %r24, smem; add.u32 %r25, %r24, %r21;
    mov.u32 %r26, %tid.x; mul.lo.u32 %r26, %r26, {size}; add.u32 %r27, %r24, %r26; cvt.u64.u32 %rd25, %r26;
    ld.{load} {items}, [%rd22];
    st.{load.replace("global", "shared")} [%r27], {items};
    bar.sync 0;
    ld.{load.replace("global", "shared")} {items}, [%r25+{size}];
    add.u64 %rd23, %rd21, %rd20; add.u64 %rd24, %rd1, %rd23;
    st.{load} [%rd24], {items};
    add.u64 %rd26, %rd1, %rd25;
    add.u64 %rd26, %rd26, {3 * 64 * size};
    st.{load} [%rd26+-{64 * size}], {items};
    """
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 256, 64 * size, dtype=np.uint8), np.zeros(3 * 64 * size, np.uint8)]
    same(patched, body, arrays, block=(block, 1, 1), grid=(2, 1, 1), smem=66 * size)


@pytest.mark.parametrize("kind", ["v8.u32", "v4.u64"])
@pytest.mark.parametrize("order", ["mov.u32 %r20, 3;", "xor.b32 %r20, %r21, 5;", "mov.u32 %r20, %r21;"])
def test_loads_and_stores_of_256_bits(patched, kind, order):
    """The same place, places in another order, and one after the other; by 45 lanes, and by all of two warps."""
    items = ", ".join(f"%r{n}" for n in range(8)) if kind == "v8.u32" else ", ".join(f"%rd1{n}" for n in range(4))
    body = f"""
    mov.u32 %r21, %tid.x; {order} mul.wide.u32 %rd20, %r20, 32; mul.wide.u32 %rd21, %r21, 32;
    add.u64 %rd20, %rd0, %rd20; add.u64 %rd22, %rd1, %rd21;
    ld.global.{kind} {{{items}}}, [%rd20+32]; st.global.{kind} [%rd22], {{{items}}};
    add.u64 %rd23, %rd1, %rd20; sub.u64 %rd23, %rd23, %rd0; st.global.{kind} [%rd23+2048], {{{items}}};
    """
    source, result = aligned(66 * 32), aligned(64 * 64)
    source[:] = np.random.default_rng(0).integers(0, 256, source.size)
    for block in (45, 64):
        same(patched, body, [source, result], block=(block, 1, 1), target="sm_100a")


@pytest.mark.parametrize(
    "wrong",
    [
        "ld.global.u32 %r1, [%rd3+512];",
        "ld.global.u32 %r1, [%rd3+2];",
        "ld.global.u32 %r1, [%rd4];",  # of one lane in the middle
        "st.global.u32 [%rd4], %r1;",
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd3];",
        "st.global.u32 [%rd3+512], %r0;",
        "st.global.u32 [%rd3+1], %r0;",
        "ld.shared.u32 %r1, [%r3+128];",
        "ld.shared.u32 %r1, [%r3+1];",
        "st.shared.u32 [%r3+128], %r0;",
        "ld.u32 %r1, [%rd3+512];",
    ],
)
def test_errors_are_numpys(patched, wrong):
    body = f"""
    mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd0, %rd2; mul.lo.u32 %r3, %r0, 4;
    setp.eq.u32 %p0, %r0, 5; selp.u64 %rd4, 512, 0, %p0; add.u64 %rd4, %rd3, %rd4;
    st.global.u32 [%rd3], %r0;
    .loc 1 7 0
    {wrong}
    st.global.u32 [%rd3], %r1;
    """
    around = np.zeros(4096, np.uint32)  # what lies beside what is known is known to nobody
    _, found, runs = same(patched, body, [around[2048:2112]], False, block=(64, 1, 1), smem=256)
    assert runs == {True: 0, False: 1}
    assert isinstance(found, str)
    assert "kernel.py:7" in found


def test_ranges_that_are_read_and_written_are_numpys(patched):
    """Recorded ranges equal numpy's: each byte, for all sizes of accesses."""
    from cutepy.sim.engine import Engine
    from cutepy.sim.parallel.footprint import Footprint

    body = """
    mov.u32 %r0, %tid.x; mul.lo.u32 %r1, %r0, 24; cvt.u64.u32 %rd2, %r1; add.u64 %rd3, %rd0, %rd2;
    ld.global.u8 %h1, [%rd3+3]; ld.global.u16 %h2, [%rd3+6]; ld.global.u32 %r2, [%rd3+12];
    ld.global.u64 %rd4, [%rd3+16]; ld.global.v2.u64 {%rd5, %rd6}, [%rd1];
    add.u64 %rd7, %rd1, %rd2;
    st.global.u16 [%rd7+64], %h2; st.global.u64 [%rd7+72], %rd4;
    """
    made = []

    def footprint(engine, *arguments):
        made.append(Footprint(engine.activity.stats))
        engine.activity.traffic = made[-1]
        return run(engine, *arguments)

    run = Engine.run
    arrays = [np.zeros(32 * 24, np.uint8), np.zeros(2048, np.uint8)]
    with patched.context() as inner:
        inner.setattr(Engine, "run", footprint)
        same(patched, body, arrays, block=(32, 1, 1))
    (reads, writes), (native_reads, native_writes) = ((f.reads, f.writes) for f in made)
    for one, other in ((reads, native_reads), (writes, native_writes)):
        assert one.starts.tolist() == other.starts.tolist()
        assert one.ends.tolist() == other.ends.tolist()


@pytest.mark.integration
def test_a_loop_of_loads_and_sums_takes_a_few_nanoseconds_a_lane():
    """A product of 512x512x512 by threads of their own takes 0.3 s; numpy took 4 s."""
    body = """
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd3, %r1, 2048; add.u64 %rd4, %rd0, %rd3;
    mul.wide.u32 %rd5, %r0, 4; add.u64 %rd6, %rd1, %rd5;
    mov.f32 %f0, 0f00000000; mov.u32 %r2, 0;
    LOOP:
    ld.global.f32 %f1, [%rd4]; ld.global.f32 %f2, [%rd6];
    fma.rn.f32 %f0, %f1, %f2, %f0;
    add.u64 %rd4, %rd4, 4; add.u64 %rd6, %rd6, 2048; add.u32 %r2, %r2, 1;
    setp.lt.u32 %p0, %r2, 512;
    @%p0 bra LOOP;
    add.u64 %rd7, %rd2, %rd3; add.u64 %rd7, %rd7, %rd5;
    st.global.f32 [%rd7], %f0;
    """
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((512, 512)).astype(np.float32) for _ in "ab")
    c = np.zeros_like(a)
    start = time.process_time()
    launch(body, [a, b, c], block=(512, 1, 1), grid=(512, 1, 1), processes=1)
    assert time.process_time() - start < 1.5
    np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)


class Seen(Observer):
    """Notes each access: by which instruction, and the address of each lane of each CTA."""

    def __init__(self) -> None:
        self.accesses: list[tuple[object, ...]] = []

    def on_access(self, access: Access) -> None:
        shape = access.ctas.count, access.threads.count
        where = np.broadcast_to(access.addresses, shape).astype(np.int64)
        i = access.instruction
        self.accesses.append((i.index, access.operation, access.space, access.size_bytes, where.tolist()))


LOADS = """mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; shl.b32 %r2, %r0, 4; mov.u32 %r3, smem; add.u32 %r4, %r3, %r2;
mad.lo.u32 %r5, %r1, 64, %r0; mul.wide.u32 %rd2, %r5, 16; add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;
st.shared.v4.u32 [%r4], {%r0, %r1, %r2, %r5}; mov.f32 %f0, 0f00000000; mov.u32 %r6, 0; bar.sync 0;
LOOP: ld.global.v2.f32 {%f1, %f2}, [%rd3]; ld.shared.f32 %f3, [%r4+4]; ld.shared.v2.f32 {%f4, %f5}, [%r3+-0];
fma.rn.f32 %f0, %f1, %f3, %f0; add.u32 %r7, %r4, 8; ld.shared.f32 %f6, [%r7]; fma.rn.f32 %f0, %f2, %f4, %f0;
ld.shared.u32 %r7, [%r7+4]; setp.lt.u32 %p1, %r0, 7; @%p1 ld.shared.f32 %f7, [%r4]; ld.global.u32 %r8, [%rd3+8];
ld.volatile.shared.u32 %r9, [%r4]; ld.global.u32 %r10, [%rd3+-0]; xor.b32 %r7, %r7, %r8; add.u32 %r10, %r10, %r7;
add.u32 %r6, %r6, 1; setp.lt.u32 %p0, %r6, 3; @%p0 bra LOOP;
st.global.v2.f32 [%rd4], {%f0, %f6}; st.global.v2.u32 [%rd4+8], {%r10, %r9};"""
"""Plain loads, whose addresses may be made beside them, and among them a strong one and one of some lanes."""


@pytest.mark.parametrize("block", [64, 45])
def test_observers_see_loads_of_machine_code_as_numpys(patched, block):
    told, original = [], MachineCode.run
    patched.setattr(
        MachineCode,
        "run",
        lambda self, *given: original(self, *given) and (told.append(len(self.region.told)), True)[1],
    )
    rng = np.random.default_rng(0)
    source, found = rng.integers(0, 1 << 30, 4 * 128, dtype=np.uint32), {}
    for worth in (float("inf"), 0.0):
        patched.setattr(ledger, "WORTH", worth)
        seen, result = Seen(), np.zeros_like(source)
        body = f"mov.u32 %r30, {block}; {LOADS}"  # a program of its own: what is compiled once is kept
        launch(body, [source, result], block=(block, 1, 1), grid=(2, 1, 1), smem=16 * block, observers=[seen])
        base = source.ctypes.data, result.ctypes.data
        accesses = [
            (*head, [[a - base[what == "write"] * (space == "global") for a in row] for row in where])
            for *head, where in seen.accesses
            for what, space in [head[1:3]]
        ]
        found[worth] = accesses, result.tolist()
        assert sum(told) >= (6 * 3 if worth == 0.0 else 0), told  # of seven plain loads each round
        assert worth == 0.0 or not told
    assert found[0.0] == found[float("inf")]
    assert len(found[0.0][0]) == 2 + 1 + 3 * 9


@pytest.mark.parametrize("names", ["all", "halves"])
def test_masks_that_each_lane_has(patched, names):
    """Masks are read from memory; where they do not name the whole warp, numpy brings together those that they name."""
    body = """mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;
    ld.global.u32 %r1, [%rd3]; setp.gt.u32 %p1, %r0, 5;
    vote.sync.ballot.b32 %r3, %p1, %r1; st.global.u32 [%rd4], %r3;"""
    lanes = np.arange(32)
    masks = np.where(lanes < 16, 0xFFFF, 0xFFFF0000) if names == "halves" else np.full(32, 0xFFFFFFFF)
    arrays = [masks.astype(np.uint32), np.zeros(32, np.uint32)]
    (_, after), *_ = same(patched, body, arrays, gives_up=names == "halves", runs=names == "all")
    np.testing.assert_array_equal(np.frombuffer(after, np.uint32), 0xFFFFFFC0 & masks)


@pytest.mark.parametrize("exchange", ["activemask.b32 %r3;", "vote.sync.ballot.b32 %r3, %p1, %r1;"])
def test_exchanges_of_warps_that_are_not_whole_are_numpys(patched, exchange):
    """Nothing is tried as machine code of which some warps would be left to numpy."""
    body = f"""mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;
    ld.global.u32 %r1, [%rd3]; setp.ge.u32 %p1, %r0, 0; {exchange} xor.b32 %r3, %r3, %r0; st.global.u32 [%rd4], %r3;"""
    lanes = np.arange(40)
    masks = np.where(lanes < 32, 0xFFFFFFFF, 0xFF)
    (_, after), *_ = same(patched, body, [masks.astype(np.uint32), np.zeros(40, np.uint32)], False, block=(40, 1, 1))
    np.testing.assert_array_equal(np.frombuffer(after, np.uint32), lanes ^ masks)


def test_a_region_costs_its_own_code_and_that_of_accesses_that_nobody_compiled(monkeypatch):
    accesses = [("load", "shared", 32, 1), ("load", "shared", 32, 4), ("store", "local", 64, 1)]
    monkeypatch.setattr(machine_code, "_source", lambda *key: " ".join(map(str, key)))
    monkeypatch.setattr(compiler, "seconds", list)
    for count in range(len(accesses) + 1):
        monkeypatch.setattr(machine_code, "_helpers", dict.fromkeys(accesses[:count]))
        compiled = object.__new__(machine_code._Compiled)
        compiled._text, compiled._helpers = "region", {key: n for n, key in enumerate(accesses)}
        assert compiled.cost() == ["region", *(" ".join(map(str, key)) for key in accesses[count:])]
