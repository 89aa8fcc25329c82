"""Loads, stores, atomics, address spaces, matrices of 8x8 and copies by threads, against numpy."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from cutepy.sim import DescriptorError, MemoryAccessError, Run
from tests.messages import pins, refuses
from tests.sim.opcode_runner import apply, launch
from tests.sim.operands import KINDS, assert_same_bits, float_bits, flushed, integers, round_bits, value_of

TYPES = ["b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"]
REGISTERS = {8: "%rs", 16: "%rs", 32: "%r", 64: "%rd"}


def register(kind, n):
    bits = int(kind[1:])
    name = {"f32": "%f", "f64": "%fd"}.get(kind, REGISTERS[bits])
    return f"{name}{n}"


def items(kind, count, start=10):
    names = [register(kind, start + n) for n in range(count)]
    return names[0] if count == 1 else "{" + ", ".join(names) + "}"


VECTORS = [(t, n) for t in TYPES for n in (1, 2, 4) if n * int(t[1:]) <= 128]


@pytest.mark.parametrize(("kind", "count"), VECTORS)
@pytest.mark.parametrize("space", ["global", "shared", "local", "generic"])
def test_load_and_store(kind, count, space):
    """Each lane copies a vector from global memory, through another space, back to global memory."""
    size = int(kind[1:]) // 8 * count
    data = np.random.default_rng(1).integers(0, 256, 64 * size).astype(np.uint8)
    out = np.zeros_like(data)
    vector = "" if count == 1 else f".v{count}"
    names = items(kind, count)
    again = items(kind, count, 20)
    middle = {
        "global": f"st.global{vector}.{kind} [%rd3], {names}; ld.global{vector}.{kind} {again}, [%rd3];",
        "shared": f"st.shared{vector}.{kind} [%r3], {names};\nld.shared{vector}.{kind} {again}, [%r3];",
        "local": f"st.local{vector}.{kind} [%rd5+16], {names};\nld.local{vector}.{kind} {again}, [%rd5+16];",
        "generic": f"st{vector}.{kind} [%rd4], {names};\nld{vector}.{kind} {again}, [%rd4];",
    }[space]
    before = f""".local .align 16 .b8 depot[64];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r2, 32, %r1;
    ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
    mad.wide.u32 %rd1, %r1, {size}, %rd1; mad.wide.u32 %rd3, %r1, {size}, %rd2;
    mov.u32 %r4, %tid.x; mov.u32 %r3, smem; mad.lo.u32 %r3, %r4, {size}, %r3;
    cvt.u64.u32 %rd4, %r3; cvta.shared.u64 %rd4, %rd4; mov.u64 %rd5, depot;"""
    body = f"""ld.global{vector}.{kind} {names}, [%rd1];
    {middle}
    st.global{vector}.{kind} [%rd3], {again};"""
    launch(body, data, out, grid=2, before=before, smem_bytes=32 * size)
    np.testing.assert_array_equal(out, data)


@pytest.mark.parametrize("kind", ["s8", "u8", "s16", "u16", "s32", "u32"])
@pytest.mark.parametrize("bits", [32, 64])
def test_load_extends(kind, bits):
    """A load into a wider register extends by sign or zeros."""
    if int(kind[1:]) == bits:
        pytest.skip("as wide as the register")
    data = integers(KINDS[kind], 32, kind)
    out = np.zeros(32, f"u{bits // 8}")
    body = f"""ld.global.{kind} {REGISTERS[bits]}9, [%rd1];
    st.global.b{bits} [%rd2], {REGISTERS[bits]}9;"""
    before = f"""mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
    mad.wide.u32 %rd1, %r1, {data.itemsize}, %rd1; mad.wide.u32 %rd2, %r1, {bits // 8}, %rd2;"""
    launch(body, data, out, before=before)
    np.testing.assert_array_equal(out, data.astype(f"{kind[0].replace('s', 'i')}{bits // 8}").view(out.dtype))


LOADS = [
    "ld.global.nc.b32",
    "ld.global.ca.b32",
    "ld.global.cg.u32",
    "ld.global.cs.b32",
    "ld.global.lu.b32",
    "ld.global.cv.b32",
    "ld.volatile.global.b32",
    "ld.relaxed.gpu.global.b32",
    "ld.acquire.gpu.global.b32",
    "ld.acquire.sys.global.u32",
    "ld.weak.global.b32",
    "ld.global.nc.L1::no_allocate.L2::128B.b32",
    "ld.global.L1::evict_last.b32",
    "ld.global.L2::256B.b32",
    "ldu.global.b32",
    "ld.acquire.cluster.b32",
    "ld.relaxed.cta.b32",
    "ld.volatile.b32",
]
STORES = [
    "st.global.wb.b32",
    "st.global.cg.b32",
    "st.global.cs.b32",
    "st.global.wt.b32",
    "st.volatile.global.b32",
    "st.relaxed.gpu.global.b32",
    "st.release.gpu.global.u32",
    "st.release.sys.b32",
    "st.weak.global.b32",
    "st.global.L1::no_allocate.b32",
]


@pytest.mark.parametrize("spelling", [*LOADS, *STORES])
def test_orders_and_caches(spelling):
    data = integers("u4", 32, spelling)
    out = np.zeros_like(data)
    load, store = (spelling, "st.global.b32") if spelling.startswith("ld") else ("ld.global.b32", spelling)
    body = f"{load} %r9, [%rd1];\n{store} [%rd2], %r9;"
    launch(body, data, out, before=ADDRESSES)
    np.testing.assert_array_equal(out, data)


ADDRESSES = """mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
mad.wide.u32 %rd1, %r1, 4, %rd1; mad.wide.u32 %rd2, %r1, 4, %rd2;"""


def test_cache_hints():
    data = integers("u4", 32, "hints")
    out = np.zeros_like(data)
    body = """createpolicy.fractional.L2::evict_last.b64 %rd9, 1.0;
    createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %rd8, 0.5;
    prefetch.global.L1 [%rd1];
    prefetch.global.L2 [%rd1];
    prefetch.global.L2::evict_last [%rd1];
    prefetch.global.L2::evict_normal [%rd1];
    prefetchu.L1 [%rd1];
    ld.global.L2::cache_hint.b32 %r9, [%rd1], %rd9;
    st.global.L2::cache_hint.b32 [%rd2], %r9, %rd8;"""
    launch(body, data, out, before=ADDRESSES)
    np.testing.assert_array_equal(out, data)


def test_applypriority_and_discard():
    data = np.zeros(128, np.uint8)
    whole = np.zeros(512, np.uint8)
    start = -whole.ctypes.data % 128
    data = whole[start : start + 128]
    body = (
        "ld.param.u64 %rd1, [p0];\napplypriority.global.L2::evict_normal [%rd1], 128;\ndiscard.global.L2 [%rd1], 128;"
    )
    launch(body, data)
    with refuses(MemoryAccessError):
        launch("ld.param.u64 %rd1, [p0];\nadd.u64 %rd1, %rd1, 4;\ndiscard.global.L2 [%rd1], 128;", data)


def test_parameters():
    """Parameters of all widths, by symbol and by address."""
    raw = bytes(range(64))
    out = np.zeros(16, np.uint32)
    body = """ld.param.b64 %rd1, [p0];
    ld.param.b8 %rs1, [p1+3];
    ld.param.v2.b8 {%rs2, %rs3}, [p1+6];
    ld.param.b16 %rs4, [p1+8];
    ld.param.b32 %r1, [p1+12];
    ld.param.v2.b32 {%r2, %r3}, [p1+16];
    ld.param.v4.b32 {%r4, %r5, %r6, %r7}, [p1+32];
    ld.param.v2.b64 {%rd2, %rd3}, [p1+48];
    ld.param.u32 %r20, [p2];
    mov.b64 %rd4, p1;
    cvta.param.u64 %rd5, %rd4;
    ld.b32 %r21, [%rd5+20];
    cvt.u32.u16 %r8, %rs1;
    cvt.u32.u16 %r9, %rs2;
    cvt.u32.u16 %r10, %rs3;
    cvt.u32.u16 %r11, %rs4;"""
    store = "st.global.v4.b32 [%rd1], {%r8, %r9, %r10, %r11}; st.global.v4.b32 [%rd1+16], {%r1, %r2, %r3, %r4};"
    store += "mov.b64 {%r12, %r13}, %rd2; mov.b64 {%r14, %r15}, %rd3;"
    store += "st.global.v4.b32 [%rd1+32], {%r12, %r13, %r14, %r15}; st.global.v2.b32 [%rd1+48], {%r20, %r21};"
    launch(body, out, raw, 0x12345678, after=store)
    words = np.frombuffer(raw, np.uint32)
    expected = [3, 6, 7, 0x0908, words[3], words[4], words[5], words[8], *words[12:16], 0x12345678, words[5]]
    np.testing.assert_array_equal(out[:14], expected)


def test_variables():
    """Variables of a module: initial values, constants, static shared memory before the dynamic one."""
    module = """.global .align 4 .b8 table[8] = {1, 2, 3, 4, 255, 6, 7, 8};
    .const .align 4 .u32 weights[2] = {100000, 7};
    .global .align 4 .u32 counter;
    .shared .align 16 .b8 fixed[64];"""
    out = np.zeros(8, np.uint32)
    body = """ld.param.u64 %rd1, [p0];
    mov.u64 %rd2, table;
    cvta.global.u64 %rd3, %rd2;
    ld.u8 %r1, [%rd3+4];
    ld.const.u32 %r2, [weights];
    ld.const.u32 %r3, [weights+4];
    st.global.u32 [counter], 17;
    ld.global.u32 %r4, [counter];
    mov.u32 %r5, fixed;
    mov.u32 %r6, smem;
    st.shared.u32 [fixed+8], 55;
    ld.shared.u32 %r7, [%r5+8];
    sub.u32 %r8, %r6, %r5;
    setp.ge.u32 %p1, %r8, 64;
    selp.u32 %r8, 1, 0, %p1;"""
    after = "st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4}; st.global.v2.u32 [%rd1+16], {%r7, %r8};"
    launch(body, out, module=module, after=after, block=1, smem_bytes=64)
    np.testing.assert_array_equal(out[:6], [255, 100000, 7, 17, 55, 1])


def test_windows_of_constants_and_parameters():
    """That of parameters is a part of the global window, that of constants is none; nothing else is in them."""
    out = np.zeros(12, np.uint32)
    body = "ld.param.u64 %rd1, [p0];\nmov.b64 %rd2, p0;\ncvta.param.u64 %rd2, %rd2;\n"
    body += "mov.b64 %rd3, table;\ncvta.const.u64 %rd3, %rd3;\n"
    spaces = ["param", "param::entry", "const", "global"]
    body += "".join(f"isspacep.{space} %p{4 * n + m}, %rd{n};\n" for n in (1, 2, 3) for m, space in enumerate(spaces))
    after = "".join(f"selp.u32 %r9, 1, 0, %p{n + 4}; st.global.u32 [%rd1+{4 * n}], %r9;" for n in range(12))
    launch(body, out, module=".const .align 4 .b8 table[8] = {1, 2};", after=after, block=1)
    np.testing.assert_array_equal(out.reshape(3, 4), [[0, 0, 0, 1], [1, 1, 0, 1], [0, 0, 1, 0]])


def test_spaces():
    out = np.zeros(10, np.uint32)
    body = """ld.param.u64 %rd1, [p0];
    mov.u32 %r1, smem;
    cvt.u64.u32 %rd2, %r1;
    cvta.shared.u64 %rd3, %rd2;
    cvta.to.shared.u64 %rd4, %rd3;
    mov.u64 %rd5, depot;
    cvta.local.u64 %rd6, %rd5;
    cvta.to.local.u64 %rd7, %rd6;
    cvta.to.global.u64 %rd8, %rd1;
    cvta.global.u64 %rd9, %rd8;
    isspacep.shared %p1, %rd3;
    isspacep.global %p2, %rd1;
    isspacep.local %p3, %rd6;
    isspacep.global %p4, %rd3;
    isspacep.shared::cta %p5, %rd3;
    isspacep.shared::cluster %p6, %rd3;
    st.b32 [%rd3], 21;
    ld.shared.b32 %r2, [smem];
    st.b32 [%rd6+8], 22;
    ld.local.b32 %r3, [%rd7+8];
    sub.u64 %rd10, %rd4, %rd2;
    sub.u64 %rd11, %rd9, %rd1;
    cvta.to.shared::cluster.u64 %rd12, %rd3;
    sub.u64 %rd12, %rd12, %rd2;
    or.b64 %rd10, %rd10, %rd11;
    or.b64 %rd10, %rd10, %rd12;
    cvt.u32.u64 %r4, %rd10;"""
    after = "".join(f"selp.u32 %r9, 1, 0, %p{n + 1}; st.global.u32 [%rd1+{4 * n}], %r9;" for n in range(6))
    after += "st.global.v2.u32 [%rd1+24], {%r2, %r3}; st.global.u32 [%rd1+32], %r4;"
    launch(body, out, before=".local .align 8 .b8 depot[32];", after=after, block=1, smem_bytes=64)
    np.testing.assert_array_equal(out, [1, 1, 1, 0, 1, 1, 21, 22, 0, 0])


def test_local_memory_is_each_threads_own():
    out = np.zeros(64, np.uint32)
    body = """mov.u32 %r1, %tid.x;
    mov.u64 %rd5, depot;
    st.local.u32 [%rd5+4], %r1;
    ld.local.u32 %r0, [%rd5+4];"""
    after = "ld.param.u64 %rd1, [p0]; mad.wide.u32 %rd1, %r1, 4, %rd1; st.global.u32 [%rd1], %r0;"
    launch(body, out, before=".local .align 4 .b8 depot[8];", after=after, block=64)
    np.testing.assert_array_equal(out, np.arange(64))


@pytest.mark.parametrize(
    "line",
    [
        "ld.global.b32 %r9, [%rd1+1];",
        "ld.global.v2.b32 {%r9, %r8}, [%rd1+4];",
        "st.global.b32 [%rd1+128], %r9;",
        "ld.global.b32 %r9, [%rd9];",
        "st.shared.b32 [%r2+64], %r9;",
        "ld.shared.v4.b32 {%r9, %r8, %r7, %r6}, [%r2+8];",
        "ld.global.b32 %r9, [%rd8];",
        "atom.global.add.u32 %r9, [%rd1+2], 1;",
        "atom.shared.add.u32 %r9, [%r2+64], 1;",
        "ld.local.b32 %r9, [%rd7+4096];",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r9}, [%r2+4];",
    ],
)
def test_access_errors(line):
    data = np.zeros(32, np.uint32)
    before = """.local .align 8 .b8 depot[8]; ld.param.u64 %rd1, [p0]; mov.u64 %rd9, 0x1000; mov.u32 %r2, smem;
    cvt.u64.u32 %rd8, %r2; cvta.shared.u64 %rd8, %rd8; mov.u64 %rd7, depot;"""
    with refuses(MemoryAccessError) as caught:
        launch(line, data, before=before, smem_bytes=64)
    pins(str(caught.value))


def test_prefetch_of_a_tensor_map():
    launch(
        "mov.b64 %rd1, p0;\ncvta.param.u64 %rd2, %rd1;\nprefetch.tensormap [%rd2];\nprefetch.param.tensormap [%rd1];",
        bytes(128),
    )
    with refuses(DescriptorError):
        launch("mov.u64 %rd2, 4096;\nprefetch.tensormap [%rd2];")


# Atomics.


def wrapped(value, kind):
    bits = int(kind[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind[0] == "s" and value >> bits - 1 else value


OPERATIONS = {
    "add": lambda old, x, y: old + x,
    "and": lambda old, x, y: old & x,
    "or": lambda old, x, y: old | x,
    "xor": lambda old, x, y: old ^ x,
    "exch": lambda old, x, y: x,
    "cas": lambda old, x, y: y if old == x else old,
    "inc": lambda old, x, y: 0 if old >= x else old + 1,
    "dec": lambda old, x, y: x if old == 0 or old > x else old - 1,
    "min": lambda old, x, y: min(old, x),
    "max": lambda old, x, y: max(old, x),
}
ATOMICS = [
    f"{op}.{t}" for op in ("add", "min", "max") for t in ("u32", "s32", "u64", "s64") if (op, t) != ("add", "s64")
]
ATOMICS += [f"{op}.{t}" for op in ("and", "or", "xor", "exch", "cas") for t in ("b32", "b64")]
ATOMICS += ["inc.u32", "dec.u32", "cas.b16"]


@pytest.mark.parametrize("spelling", ATOMICS)
@pytest.mark.parametrize("space", ["global", "shared", ""])
@pytest.mark.parametrize("collide", [False, True])
def test_atom(spelling, space, collide):
    """Lanes with addresses of their own, or three to an address: the latter one after the other."""
    operation, kind = spelling.split(".")
    numpy_kind = KINDS[kind]
    size = np.dtype(numpy_kind).itemsize
    memory = integers(numpy_kind, 32, spelling)
    a, b = (integers(numpy_kind, 32, spelling, n) for n in (1, 2))
    if operation in ("inc", "dec"):
        memory, a = memory % 7, a % 5
    if operation == "cas":
        a[::2] = memory[np.arange(32) // 3 if collide else np.arange(32)][::2]
    old, after = np.zeros_like(a), np.zeros_like(a)
    name = REGISTERS[8 * size]
    arrays = f"[%rd5], {name}41" + (f", {name}42" if operation == "cas" else "")
    if space == "shared":
        arrays = arrays.replace("%rd5", "%r5")
    where = f".{space}" if space else ""
    before = f"""mov.u32 %r1, %tid.x; mov.u32 %r2, %r1; {"div.u32 %r2, %r1, 3;" if collide else ""}
    ld.param.u64 %rd1, [p0]; mad.wide.u32 %rd5, %r2, {size}, %rd1; mad.wide.u32 %rd1, %r1, {size}, %rd1;
    ld.param.u64 %rd2, [p1]; mad.wide.u32 %rd2, %r1, {size}, %rd2; ld.param.u64 %rd3, [p2];
    mad.wide.u32 %rd3, %r1, {size}, %rd3; ld.param.u64 %rd4, [p3]; mad.wide.u32 %rd4, %r1, {size}, %rd4;
    mov.u32 %r6, smem; mad.lo.u32 %r5, %r2, {size}, %r6; mad.lo.u32 %r6, %r1, {size}, %r6;
    ld.global.b{8 * size} {name}49, [%rd1]; st.shared.b{8 * size} [%r6], {name}49; bar.sync 0;"""
    body = f"""ld.global.b{8 * size} {name}41, [%rd2];
    ld.global.b{8 * size} {name}42, [%rd3];
    atom{where}.{spelling} {name}43, {arrays};
    st.global.b{8 * size} [%rd4], {name}43;"""
    tail = f"bar.sync 0; ld.shared.b{8 * size} {name}49, [%r6]; st.global.b{8 * size} [%rd1], {name}49;"
    launch(
        body,
        found := memory.copy(),
        a,
        b,
        old,
        before=before,
        after=tail if space == "shared" else "",
        smem_bytes=32 * size,
    )
    expected, returned = memory.tolist(), []
    for lane, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        at = lane // 3 if collide else lane
        returned.append(expected[at])
        expected[at] = wrapped(OPERATIONS[operation](expected[at], x, y), kind)
    np.testing.assert_array_equal(old, np.array(returned, numpy_kind))
    np.testing.assert_array_equal(found, np.array(expected, numpy_kind))
    assert after.any() == 0


ORDERED = [
    "atom.relaxed.gpu.global.add.u32",
    "atom.acq_rel.cluster.global.cas.b32",
    "atom.acquire.sys.global.exch.b32",
    "atom.release.cta.global.max.s32",
    "atom.global.gpu.add.u32",
    "red.global.add.u32",
    "red.add.u32",
    "red.relaxed.gpu.global.add.s32",
    "red.release.sys.global.or.b32",
    "red.global.inc.u32",
    "red.global.dec.u32",
    "red.global.min.s32",
    "red.global.max.u32",
    "red.global.and.b32",
    "red.global.xor.b32",
    "red.release.gpu.global.add.u64",
    "atom.global.add.L2::cache_hint.u32",
]


@pytest.mark.parametrize("spelling", ORDERED)
def test_atomics_of_every_order(spelling):
    parts = spelling.split(".")
    operation = next(p for p in parts[1:] if p in OPERATIONS)
    kind = parts[-1]
    numpy_kind, name = KINDS[kind], REGISTERS[int(kind[1:])]
    memory, a = integers(numpy_kind, 32, spelling), integers(numpy_kind, 32, spelling, 1)
    found = memory.copy()
    size = memory.itemsize
    before = f"""mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; mov.b64 %rd8, 0;
    mad.wide.u32 %rd1, %r1, {size}, %rd1; mad.wide.u32 %rd2, %r1, {size}, %rd2;
    ld.global.b{8 * size} {name}9, [%rd2];"""
    d = f"{name}3, " if parts[0] == "atom" else ""
    more = f", {name}9" if operation == "cas" else ", %rd8" if "L2::cache_hint" in parts else ""
    if "L2::cache_hint" in parts:
        before += "createpolicy.fractional.L2::evict_last.b64 %rd8, 1.0;"
    launch(f"{spelling} {d}[%rd1], {name}9{more};", found, a, before=before)
    expected = [wrapped(OPERATIONS[operation](m, x, x), kind) for m, x in zip(memory.tolist(), a.tolist(), strict=True)]
    np.testing.assert_array_equal(found, np.array(expected, numpy_kind))


def float_add(kind, a, b, flush):
    if flush:
        a, b = flushed(a, kind), flushed(b, kind)
    x, y = value_of(a, kind), value_of(b, kind)
    if all(not isinstance(v, float) or v == 0 for v in (x, y)):
        total = Fraction(x) + Fraction(y)
        minus = a == b and a >> (len(bin(a)) - 3) and total == 0 and isinstance(x, float) and isinstance(y, float)
        result = round_bits(-0.0 if minus else total, kind)
    else:
        result = round_bits(float(x) + float(y), kind)
    return flushed(result, kind) if flush else result


@pytest.mark.parametrize(
    "spelling",
    [
        "global.add.f32",
        "shared.add.f32",
        "global.add.f64",
        "global.add.noftz.f16",
        "global.add.noftz.bf16",
        "global.add.noftz.f16x2",
        "global.add.noftz.bf16x2",
        "shared.add.noftz.f16x2",
    ],
)
@pytest.mark.parametrize("instruction", ["atom", "red"])
def test_atomic_float_addition(spelling, instruction):
    suffix = spelling.split(".")[-1]
    kind = suffix.removesuffix("x2")
    packed = suffix.endswith("x2")
    count = 64 if packed else 32
    memory, a = (float_bits(kind, count, spelling, n) for n in range(2))
    size = memory.itemsize * (2 if packed else 1)
    shared = spelling.startswith("shared")
    name = {"f32": "%f", "f64": "%fd", "f16": "%rs", "bf16": "%rs"}.get(suffix, "%r")
    found = memory.copy()
    before = f"""mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
    mad.wide.u32 %rd1, %r1, {size}, %rd1; mad.wide.u32 %rd2, %r1, {size}, %rd2; ld.global.b{8 * size} {name}9, [%rd2];
    mov.u32 %r6, smem; mad.lo.u32 %r6, %r1, {size}, %r6; ld.global.b{8 * size} {name}8, [%rd1];
    st.shared.b{8 * size} [%r6], {name}8;"""
    tail = f"ld.shared.b{8 * size} {name}9, [%r6]; st.global.b{8 * size} [%rd1], {name}9;" if shared else ""
    d = f"{name}3, " if instruction == "atom" else ""
    body = f"{instruction}.{spelling} {d}[{'%r6' if shared else '%rd1'}], {name}9;"
    launch(body, found, a, before=before, after=tail, smem_bytes=32 * size)
    flush = spelling == "global.add.f32"
    expected = [float_add(kind, x, y, flush) for x, y in zip(memory.tolist(), a.tolist(), strict=True)]
    keep = [n for n, e in enumerate(expected) if e & ~(1 << 8 * memory.itemsize - 1)]
    assert_same_bits(found[keep], [expected[n] for n in keep], kind, (memory[keep], a[keep]))


@pytest.mark.parametrize(
    "spelling",
    [
        "add.v2.f32",
        "add.v4.f32",
        "add.noftz.v2.f16",
        "add.noftz.v8.f16",
        "min.noftz.v4.f16",
        "max.noftz.v4.bf16",
        "add.noftz.v2.bf16x2",
        "add.noftz.v4.f16x2",
    ],
)
@pytest.mark.parametrize("instruction", ["atom", "red"])
def test_vector_atomics(spelling, instruction):
    operation, *_, vector, suffix = spelling.split(".")
    count = int(vector[1])
    kind = suffix.removesuffix("x2")
    each = 4 if suffix.endswith("x2") or kind == "f32" else 2
    rng = np.random.default_rng(1)
    elements = 32 * count * (2 if suffix.endswith("x2") else 1)
    memory, a = (rng.integers(-8, 8, elements).astype(np.float32) for _ in range(2))
    as_bits = lambda x: np.array([round_bits(float(v), kind) for v in x], KINDS[kind])  # noqa: E731
    found, added = as_bits(memory), as_bits(a)
    name = {"f32": "%f", "f16": "%rs", "bf16": "%rs"}.get(suffix, "%r")
    before = f"""mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
    mad.wide.u32 %rd1, %r1, {each * count}, %rd1; mad.wide.u32 %rd2, %r1, {each * count}, %rd2;"""
    before += "".join(f"ld.global.b{8 * each} {name}{n}, [%rd2+{n * each}];" for n in range(count))
    values = "{" + ", ".join(f"{name}{n}" for n in range(count)) + "}"
    results = "{" + ", ".join(f"{name}{n + 20}" for n in range(count)) + "}, " if instruction == "atom" else ""
    after = (
        "".join(f"st.global.b{8 * each} [%rd2+{n * each}], {name}{n + 20};" for n in range(count)) if results else ""
    )
    launch(f"{instruction}.global.{spelling} {results}[%rd1], {values};", found, added, before=before, after=after)
    rule = {"add": np.add, "min": np.minimum, "max": np.maximum}[operation]
    np.testing.assert_array_equal([float(value_of(x, kind)) for x in found.tolist()], rule(memory, a))
    if instruction == "atom":
        np.testing.assert_array_equal(added, as_bits(memory))


# Matrices of 8x8.


def fragments(matrices, transpose):
    """Return the registers of a warp: (lane, register), by the ISA's figure of a fragment."""
    words = np.zeros((32, len(matrices)), np.uint32)
    for n, matrix in enumerate(matrices):
        m = matrix.T if transpose else matrix
        for lane in range(32):
            row, column = lane // 4, lane % 4 * 2
            words[lane, n] = int(m[row, column]) | int(m[row, column + 1]) << 16
    return words


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("instruction", ["ldmatrix", "stmatrix"])
@pytest.mark.parametrize("space", [".shared", ".shared::cta", ""])
def test_matrices(count, trans, instruction, space):
    rng = np.random.default_rng(2)
    matrices = rng.integers(0, 2**16, (2, count, 8, 8)).astype(np.uint16)
    registers = np.stack([fragments(m, bool(trans)) for m in matrices])  # warp, lane, register
    order = rng.permutation(2 * count * 8)  # where in shared memory each row lies
    rows = np.zeros((2 * count * 8, 8), np.uint16)
    rows[order] = matrices.reshape(-1, 8)
    addresses = np.full((2, 32), 0xFFFFFFF0, np.uint32)  # of the lanes that are not asked for theirs
    addresses[:, : 8 * count] = 16 * order.reshape(2, -1)
    names = "{" + ", ".join(f"%r{n}" for n in range(count)) + "}"
    opcode = f"{instruction}.sync.aligned.m8n8.x{count}{trans}{space}.b16"
    before = f"""mov.u32 %r50, %tid.x; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2];
    mad.wide.u32 %rd2, %r50, 4, %rd2; mad.wide.u32 %rd3, %r50, {4 * count}, %rd3; ld.global.b32 %r51, [%rd2];
    mov.u32 %r52, smem; add.u32 %r53, %r51, %r52; mad.lo.u32 %r54, %r50, {4 * count}, %r52;
    mad.wide.u32 %rd4, %r50, {4 * count}, %rd1; cvt.u64.u32 %rd5, %r53; cvta.shared.u64 %rd5, %rd5;
    """
    copy = "".join(f"ld.global.b32 %r60, [%rd4+{4 * n}]; st.shared.b32 [%r54+{4 * n}], %r60;" for n in range(count))
    back = "".join(f"ld.shared.b32 %r60, [%r54+{4 * n}]; st.global.b32 [%rd4+{4 * n}], %r60;" for n in range(count))
    load = "".join(f"ld.global.b32 %r{n}, [%rd3+{4 * n}];" for n in range(count))
    store = "".join(f"st.global.b32 [%rd3+{4 * n}], %r{n};" for n in range(count))
    where = "[%r53]" if space else "[%rd5]"
    if instruction == "ldmatrix":
        found = np.zeros_like(registers)
        launch(
            f"{opcode} {names}, {where};",
            rows,
            addresses,
            found,
            block=64,
            before=before + copy + "bar.sync 0;",
            after=store,
            smem_bytes=256 * count,
        )
        np.testing.assert_array_equal(found, registers)
    else:
        found = np.zeros_like(rows)
        launch(
            f"{opcode} {where}, {names};",
            found,
            addresses,
            registers,
            block=64,
            before=before + load,
            after="bar.sync 0;" + back,
            smem_bytes=256 * count,
        )
        np.testing.assert_array_equal(found, rows)


# Copies by threads.


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("cache", ["ca", "cg"])
@pytest.mark.parametrize("form", ["plain", "source size", "ignored", "prefetch", "hint", "short"])
def test_cp_async(size, cache, form):
    if cache == "cg" and size != 16:
        pytest.skip("cg copies 16 bytes")
    data = np.random.default_rng(3).integers(1, 256, 32 * size).astype(np.uint8)
    out = np.zeros_like(data)
    tail = {"plain": "", "source size": ", %r8", "ignored": ", %p1", "prefetch": "", "hint": ", %rd8", "short": ", 2"}[
        form
    ]
    extra = {"prefetch": ".L2::128B", "hint": ".L2::cache_hint"}.get(form, "")
    before = f"""mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
    mad.wide.u32 %rd1, %r1, {size}, %rd1; mad.wide.u32 %rd2, %r1, {size}, %rd2; mov.u32 %r2, smem;
    mad.lo.u32 %r2, %r1, {size}, %r2; rem.u32 %r8, %r1, {size + 1}; setp.lt.u32 %p1, %r1, 9;
    createpolicy.fractional.L2::evict_last.b64 %rd8, 1.0;"""
    body = f"""cp.async.{cache}.shared.global{extra} [%r2], [%rd1], {size}{tail};
    cp.async.commit_group;
    cp.async.wait_group 0;"""
    after = "".join(f"ld.shared.u8 %rs1, [%r2+{n}]; st.global.u8 [%rd2+{n}], %rs1;" for n in range(size))
    launch(body, data, out, before=before, after=after, smem_bytes=32 * size)
    expected = data.reshape(32, size).copy()
    for lane in range(32):
        taken = {"source size": lane % (size + 1), "ignored": 0 if lane < 9 else size, "short": 2}.get(form, size)
        expected[lane, taken:] = 0
    np.testing.assert_array_equal(out.reshape(32, size), expected)


def test_cp_async_takes_no_more_than_it_copies():
    data = np.arange(64, dtype=np.uint32)
    body = """mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [p0]; mov.u32 %r2, smem; mad.lo.u32 %r2, %r1, 4, %r2;
    setp.eq.u32 %p1, %r1, 5; selp.u32 %r8, 8, 4, %p1; cp.async.ca.shared.global [%r2], [%rd1], 4, %r8;"""
    with refuses(MemoryAccessError) as stopped:
        launch(body, data, smem_bytes=256, assembles=False)
    assert stopped.value.who.lane == 5
    run = Run((), None, sanitize=True)
    with pytest.raises(MemoryAccessError):
        launch(body, data, smem_bytes=256, assembles=False, run=run)
    assert [hazard.kind for hazard in run.hazards] == ["invalid-access"]


def test_cp_async_arrives_at_an_mbarrier():
    data = np.arange(32, dtype=np.uint32)
    out = np.zeros_like(data)
    before = ADDRESSES + "mov.u32 %r2, smem; mad.lo.u32 %r3, %r1, 4, %r2; add.u32 %r3, %r3, 64;"
    body = """setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared.b64 [%r2], 32;
    @%p1 mbarrier.init.shared.b64 [%r2+8], 32;
    bar.sync 0;
    cp.async.ca.shared.global [%r3], [%rd1], 4;
    cp.async.mbarrier.arrive.noinc.shared.b64 [%r2];
    cp.async.mbarrier.arrive.shared.b64 [%r2+8];
    mbarrier.arrive.shared.b64 _, [%r2+8];
    W1: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
    @!%p2 bra W1;
    W2: mbarrier.try_wait.parity.shared.b64 %p2, [%r2+8], 0;
    @!%p2 bra W2;
    cp.async.wait_all;
    ld.shared.b32 %r9, [%r3];
    st.global.b32 [%rd2], %r9;"""
    launch(body, data, out, before=before, smem_bytes=256)
    np.testing.assert_array_equal(out, data)


def test_apply_needs_no_padding():
    assert apply("add.u32 %d, %a, 1;", np.arange(3, dtype=np.uint32)).tolist() == [1, 2, 3]


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("vector", ["u32 %r10", "v2.u32 {%r10, %r11}"])
def test_a_load_outside_of_all_arrays_is_refused_as_the_loads_before_it_were_taken(vector, watched):
    """Under the sanitizer the second load has the addresses of the first one, further on."""
    kind, to = vector.split(" ", 1)
    data, run = np.zeros(64, np.uint32), Run((), None, sanitize=True) if watched else None
    before = "ld.param.u64 %rd1, [p0]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 8, %rd1;\n"
    body = f"ld.global.{kind} {to}, [%rd2]; add.u64 %rd3, %rd2, {1 << 30}; ld.global.{kind} {to}, [WHERE];\n"
    launch(body.replace("WHERE", "%rd2"), data, before=before, run=run)
    with pytest.raises(MemoryAccessError):
        launch(body.replace("WHERE", "%rd3"), data, before=before, run=run)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_lanes_of_one_load_may_read_several_arrays(count):
    arrays = [np.arange(n, n + 128, dtype=np.uint32) for n in (1000, 2000)]
    out = np.zeros(32 * count, np.uint32)
    vector, names = ("" if count == 1 else f".v{count}"), items("u32", count)
    before = f"""ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2]; mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0; selp.b64 %rd1, %rd1, %rd2, %p1;
    mad.wide.u32 %rd1, %r1, {4 * count}, %rd1; mad.wide.u32 %rd3, %r1, {4 * count}, %rd3;\n"""
    body = f"ld.global{vector}.u32 {names}, [%rd1]; st.global{vector}.u32 [%rd3], {names};\n"
    launch(body, *arrays, out, before=before)
    even, odd = (array[: 32 * count].reshape(32, count) for array in arrays)
    np.testing.assert_array_equal(out.reshape(32, count)[::2], even[::2])
    np.testing.assert_array_equal(out.reshape(32, count)[1::2], odd[1::2])


def test_lanes_of_one_load_may_read_their_own_ctas_words_and_a_peers():
    out = np.zeros(128, np.uint32)
    body = """mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, smem; mad.lo.u32 %r4, %r1, 4, %r3;
    mad.lo.u32 %r5, %r2, 100, %r1; st.shared.u32 [%r4], %r5; barrier.cluster.arrive; barrier.cluster.wait;
    xor.b32 %r6, %r2, 1; and.b32 %r6, %r6, 1; mapa.shared::cluster.u32 %r7, %r4, %r6;
    and.b32 %r8, %r1, 1; setp.eq.u32 %p1, %r8, 0; selp.b32 %r7, %r4, %r7, %p1;
    ld.shared::cluster.u32 %r9, [%r7]; barrier.cluster.arrive; barrier.cluster.wait;
    ld.param.u64 %rd1, [p0]; mad.lo.u32 %r5, %r2, 32, %r1; mad.wide.u32 %rd1, %r5, 4, %rd1; st.global.u32 [%rd1], %r9;
    """
    launch(body, out, grid=4, cluster=2, smem_bytes=128)
    ctas, lanes = np.arange(4)[:, None], np.arange(32)
    np.testing.assert_array_equal(out.reshape(4, 32), np.where(lanes % 2, ctas ^ 1, ctas) * 100 + lanes)
