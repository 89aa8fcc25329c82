"""The tensor core: products of every kind against numpy, with operands where descriptors say; copies, loads, stores."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cutepy import load_ptx, simulate
from cutepy.layouts.sm100 import (
    InstrDescriptor,
    SmemDescriptor,
    mma_kind,
    tmem_accumulator,
    tmem_operand,
    tmem_scale_factors,
)
from cutepy.sim import Observer, Run
from cutepy.sim.arithmetic.minifloat import table
from cutepy.sim.errors import DescriptorError, MemoryAccessError, SimulationError, UnknownInstructionError
from cutepy.sim.mechanisms.tcgen05 import products
from cutepy.sim.mechanisms.tcgen05.products import Products
from tests.messages import refuses
from tests.sim.mechanisms.tensor_core import COLUMNS, LANES, MMA, noise, run, run_pair
from tests.sim.opcode_runner import launch
from tests.sim.operands import assert_same_bits, float_bits
from tests.sim.test_opcodes_sm100 import extreme

NARROW = {"e2m1": 4, "e2m3": 6, "e3m2": 6}


def codes(rng, shape, dtype):
    """Return bits of an operand's elements at random, and their values."""
    if dtype in ("f16", "bf16", "tf32"):
        values = rng.integers(-8, 9, shape).astype(np.float32) / 4
        if dtype == "f16":
            return values.astype(np.float16).view(np.uint16), values
        bits = values.view(np.uint32)
        return (bits >> 16).astype(np.uint16) if dtype == "bf16" else bits, values
    if dtype in ("u8", "s8"):
        bits = rng.integers(0, 256, shape, np.uint8)
        return bits, bits.view(np.int8).astype(np.float64) if dtype == "s8" else bits.astype(np.float64)
    bits = rng.integers(0, len(table(dtype)), shape, np.uint8)
    if dtype == "e4m3":
        bits &= 0xBF  # none above 2, no NaN
    if dtype == "e5m2":
        bits = bits & 0x83 | 0x38
    return bits, table(dtype)[bits].astype(np.float64)


def put(image, word, major, bits, width, dtype):
    """Write elements to shared memory where a descriptor has them."""
    packs = dtype in NARROW and width == 8
    addresses = SmemDescriptor.decode(word).element_addresses(bits.shape, major=major, bits=width)
    for row, of_row in enumerate(addresses):
        for k, at in enumerate(of_row):
            if packs:  # 16 elements at the start of each 16 bytes
                set_bits(image, 8 * (at // 16 * 16) + NARROW[dtype] * (at % 16), int(bits[row, k]), NARROW[dtype])
            elif width == 4:
                set_bits(image, 8 * at + 4 * (k % 2), int(bits[row, k]), 4)
            else:
                image[at : at + width // 8] = np.array([bits[row, k]]).view(np.uint8)


def set_bits(image, first, value, count):
    for n in range(count):
        byte, bit = divmod(first + n, 8)
        image[byte] = image[byte] & ~np.uint8(1 << bit) | np.uint8((value >> n & 1) << bit)


def descriptor(start, major, extent, k_bytes, width, swizzle):
    """Return a descriptor of a tile: dense, and as its swizzle has it."""
    span = {"INTER": 16, "SW32": 32, "SW64": 64, "SW128": 128, "SW128_32B": 128}[swizzle]
    code = {"INTER": 0, "SW128_32B": 1, "SW128": 2, "SW64": 4, "SW32": 6}[swizzle]
    if major == "K":
        lbo, sbo = (128 * (extent // 8), 128) if swizzle == "INTER" else (16, 8 * span)
    else:
        rows = 4 if swizzle == "SW128_32B" else 8
        per_k = k_bytes // (width // 8)  # elements along K
        if swizzle == "INTER":
            lbo, sbo = 128 * (extent * width // 128), 128
        else:
            lbo, sbo = span * per_k, span * rows
    return int(SmemDescriptor(start, lbo, sbo, layout_type=code))


def product_of(rng, word, a_major, b_major, kind, swizzles, **modes):
    """Run one MMA with operands at random in shared memory; returns D, what it should be, and D before."""
    shape = InstrDescriptor.decode(word, kind=kind)
    before = noise(rng)
    image = np.zeros(1 << 16, np.uint8)
    words, values = [], []
    for start, extent, dtype, major, swizzle in (
        (0, shape.m, shape.a_dtype, a_major, swizzles[0]),
        (1 << 15, shape.n, shape.b_dtype, b_major, swizzles[1]),
    ):
        width = mma_kind(kind).element_bits(dtype)
        bits, numbers = codes(rng, (extent, shape.k), dtype)
        words.append(descriptor(start, major, extent, shape.k * width // 8, width, swizzle))
        put(image, words[-1], major, bits, width, dtype)
        values.append(numbers.astype(np.float64))
    after = run(MMA.format(modes.pop("ws", ""), kind), image, before, a=words[0], b=words[1], word=word, **modes)
    return shape, values, before, after


def at(tensor, rows, columns):
    places = np.array([[tensor.place((row, column))[:2] for column in range(columns)] for row in range(rows)])
    return places[..., 0], places[..., 1]


SWIZZLES = ("INTER", "SW32", "SW64", "SW128")
DENSE = [
    ("f16", "f16", "f32"),
    ("f16", "bf16", "f32"),
    ("f16", "f16", "f16"),
    ("tf32", "tf32", "f32"),
    ("f8f6f4", "e4m3", "f32"),
    ("f8f6f4", "e5m2", "f16"),
    ("f8f6f4", "e2m1", "f32"),
    ("f8f6f4", "e3m2", "f32"),
    ("f8f6f4", "e2m3", "f32"),
    ("i8", "s8", "s32"),
    ("i8", "u8", "s32"),
]


@pytest.mark.first(4)
@pytest.mark.parametrize(("kind", "dtype", "d_dtype"), DENSE)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 1 << 30), data=st.data())
def test_products_are_those_of_numpy(kind, dtype, d_dtype, seed, data):
    rng = np.random.default_rng(seed)
    m = data.draw(st.sampled_from((64, 128)))
    n = data.draw(st.sampled_from((16, 32, 64, 128)))
    mn_majors = mma_kind(kind).takes_mn_major(dtype)
    majors = [data.draw(st.sampled_from(("K", "MN") if mn_majors and n >= 64 else ("K",))) for _ in range(2)]
    width = mma_kind(kind).element_bits(dtype)
    swizzles = [
        data.draw(
            st.sampled_from(
                SWIZZLES
                if major == "K" or (width == 16 and kind == "f16")
                else (["SW128_32B"] if width == 32 else ["INTER", "SW128"])
            )
        )
        for major in majors
    ]
    if any(
        major == "MN" and extent * width // 8 < {"SW128": 128, "SW64": 64, "SW32": 32}.get(swizzle, 16)
        for major, extent, swizzle in zip(majors, (m, n), swizzles, strict=True)
    ):
        return
    accumulates = data.draw(st.booleans()) and d_dtype != "f16"
    negate = {"a_negate": data.draw(st.booleans())} if kind != "i8" else {}
    word = int(
        InstrDescriptor(
            kind, m, n, a_dtype=dtype, b_dtype=dtype, d_dtype=d_dtype, a_major=majors[0], b_major=majors[1], **negate
        )
    )
    shape, (a, b), before, after = product_of(rng, word, *majors, kind, swizzles, accumulates=accumulates)
    lanes, columns = at(tmem_accumulator(m, n), m, n)
    expected = (-a if shape.a_negate else a) @ b.T
    got = after[lanes, columns]
    if d_dtype == "s32":
        start = before[lanes, columns].view(np.int32).astype(np.int64) if accumulates else 0
        assert (got.view(np.int32) == (expected.astype(np.int64) + start).astype(np.int32)).all()
    else:
        numbers = got.view(np.float32) if d_dtype == "f32" else got.astype(np.uint16).view(np.float16)
        start = before[lanes, columns].view(np.float32).astype(np.float64) if accumulates else np.zeros_like(expected)
        assert np.allclose(numbers.astype(np.float64), expected + start, rtol=2e-3, atol=1e-3)
    untouched = np.ones((LANES, COLUMNS), bool)
    untouched[lanes, columns] = False
    assert (after[untouched] == before[untouched]).all()


@pytest.mark.parametrize("m", [32, 64, 128])
def test_products_of_ws_split_the_columns_over_the_lanes(m):
    rng = np.random.default_rng(m)
    word = int(InstrDescriptor("f16", m, 64))
    _, (a, b), _, after = product_of(rng, word, "K", "K", "f16", ("SW32", "INTER"), ws="ws.")
    lanes, columns = at(tmem_accumulator(m, 64, ws=True), m, 64)
    assert (after[lanes, columns].view(np.float32) == a @ b.T).all()


@pytest.mark.parametrize("m", [64, 128])
def test_a_may_be_in_tensor_memory(m):
    rng = np.random.default_rng(m)
    word, n = int(InstrDescriptor("f16", m, 32)), 32
    image, before = np.zeros(1 << 12, np.uint8), noise(rng)
    b_bits, b = codes(rng, (n, 16), "f16")
    of_b = descriptor(0, "K", n, 32, 16, "SW32")
    put(image, of_b, "K", b_bits, 16, "f16")
    a_bits, a = codes(rng, (m, 16), "f16")
    tensor = tmem_operand(m, 16, bits=16)
    for row in range(m):
        for k in range(0, 16, 2):
            place = tensor.place((row, k))
            before[place.lane, 256 + place.column] = int(a_bits[row, k]) | int(a_bits[row, k + 1]) << 16
    text = "add.u32 %r22, %r7, 256; tcgen05.mma.cta_group::1.kind::f16 [%r7], [%r22], %d9, %r20, %p3;"
    after = run(text, image, before, b=of_b, word=word)
    lanes, columns = at(tmem_accumulator(m, n), m, n)
    assert (after[lanes, columns].view(np.float32) == a @ b.T).all()


SCALED = [("mxf8f6f4", "e4m3", "ue8m0", "", 32), ("mxf4", "e2m1", "ue8m0", "", 32)]
SCALED += [("mxf4nvf4", "e2m1", "ue4m3", ".scale_vec::4X", 16), ("mxf4nvf4", "e2m1", "ue8m0", ".block32", 32)]


@pytest.mark.parametrize(("kind", "dtype", "scale_dtype", "said", "vector"), SCALED)
def test_block_scaled_products(kind, dtype, scale_dtype, said, vector):
    rng = np.random.default_rng(vector)
    m, n, k = 128, 64, mma_kind(kind).k
    word = int(InstrDescriptor(kind, m, n, a_dtype=dtype, b_dtype=dtype, scale_dtype=scale_dtype))
    width, count = mma_kind(kind).element_bits(dtype), k // vector
    image, before = np.zeros(1 << 16, np.uint8), noise(rng)
    words, values = [], []
    for start, extent, column in ((0, m, 256), (1 << 15, n, 300)):
        bits, numbers = codes(rng, (extent, k), dtype)
        words.append(descriptor(start, "K", extent, k * width // 8, width, "SW32"))
        put(image, words[-1], "K", bits, width, dtype)
        tensor = tmem_scale_factors(extent, count if count in (1, 2, 4) else 4, vector=vector)
        scales = np.ones((extent, count))
        for row in range(extent):
            for n_scale in range(count):
                place = tensor.place((row, vector * n_scale))
                code = int(rng.integers(120, 132)) if scale_dtype == "ue8m0" else int(rng.integers(1, 0x60))
                byte = int(before[place.lane, column + place.column]) & ~(0xFF << place.bit) | code << place.bit
                before[place.lane, column + place.column] = byte
                scales[row, n_scale] = 2.0 ** (code - 127) if scale_dtype == "ue8m0" else table("e4m3")[code]
        values.append(numbers * np.repeat(scales, vector, axis=1))
    text = (
        f"add.u32 %r22, %r7, 256; add.u32 %r23, %r7, 300; tcgen05.mma.cta_group::1.kind::{kind}.block_scale{said} "
        "[%r7], %d8, %d9, %r20, [%r22], [%r23], %p3;"
    )
    after = run(text, image, before, a=words[0], b=words[1], word=word)
    lanes, columns = at(tmem_accumulator(m, n), m, n)
    expected = values[0] @ values[1].T
    assert np.allclose(after[lanes, columns].view(np.float32), expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


# A sparse A. The ISA: 4 bits of metadata name the places of what is kept of a chunk, in order.

CHUNKS = {"tf32": (2, [0b0100, 0b1110])} | dict.fromkeys(
    ("f16", "bf16", "e4m3", "e5m2", "e2m1", "e3m2", "s8", "u8"), (4, [0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110])
)
"""Elements of a chunk, and its metadata: the first of the places in the lower bits."""


def metadata_at(m, width, row, chunk):
    """Return lane, column and bit of the metadata of a chunk, as the ISA's figures and CUTLASS have them."""
    lane = row if m == 128 else row // 16 * 32 + row % 16
    if width <= 8:
        return lane, chunk // 8, 4 * (chunk % 8)
    return lane - row % 16 + row % 8 + 8 * (chunk // 4), 0, 16 * (row % 16 // 8) + 4 * (chunk % 4)


def sparse(rng, before, m, k, dtype, packed, column):
    """Put metadata at random in tensor memory; return bits of what A keeps, (m, k / 2), and A with its zeros."""
    chunk, choices = CHUNKS[dtype]
    width = {"tf32": 32, "f16": 16, "bf16": 16}.get(dtype, 4 if packed else 8)
    pair = 2 if packed else 1  # elements that one place is of
    bits, numbers = codes(rng, (m, k // 2), dtype)
    whole = np.zeros((m, k))
    for row in range(m):
        for n in range(k // (chunk * pair)):
            word = int(rng.choice(choices))
            lane, at, bit = metadata_at(m, width, row, n)
            before[lane, column + at] = int(before[lane, column + at]) & ~(15 << bit) | word << bit
            places = [0 if word == 0b0100 else 1] if dtype == "tf32" else [word & 3, word >> 2]
            for number, place in enumerate(places):
                for one in range(pair):
                    kept = (n * len(places) + number) * pair + one
                    whole[row, (n * chunk + place) * pair + one] = numbers[row, kept]
    return bits, whole


SPARSE = [(kind, *rest) for kind, *rest in DENSE if rest != ["e2m3", "f32"]]


@pytest.mark.first(3)
@pytest.mark.parametrize("m", [128, 64])
@pytest.mark.parametrize(("kind", "dtype", "d_dtype"), SPARSE)
def test_sparse_products_are_those_of_numpy(kind, dtype, d_dtype, m):
    rng = np.random.default_rng(m + len(dtype))
    n, k, image, before = 32, 2 * mma_kind(kind).k, np.zeros(1 << 16, np.uint8), noise(rng)
    selector, width = m // 128 if kind in ("f16", "tf32") else 0, mma_kind(kind).element_bits(dtype)
    types = {"a_dtype": dtype, "b_dtype": dtype, "d_dtype": d_dtype}
    word = int(InstrDescriptor(kind, m, n, sparse=True, sparse_selector=selector, **types))
    bits, a = sparse(rng, before, m, k, dtype, False, 300 + selector)
    of_a = descriptor(0, "K", m, k // 2 * width // 8, width, "SW32")
    put(image, of_a, "K", bits, width, dtype)
    b_bits, b = codes(rng, (n, k), dtype)
    of_b = descriptor(1 << 15, "K", n, k * width // 8, width, "SW64")
    put(image, of_b, "K", b_bits, width, dtype)
    text = f"add.u32 %r22, %r7, 300; tcgen05.mma.sp.cta_group::1.kind::{kind} [%r7], %d8, %d9, [%r22], %r20, %p3;"
    after = run(text, image, before, a=of_a, b=of_b, word=word)
    lanes, columns = at(tmem_accumulator(m, n), m, n)
    got, expected = after[lanes, columns], a @ b.T.astype(np.float64)
    if d_dtype == "s32":
        assert (got.view(np.int32) == expected).all()
    else:
        numbers = got.view(np.float32) if d_dtype == "f32" else got.astype(np.uint16).view(np.float16)
        assert np.allclose(numbers.astype(np.float64), expected, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("m", [128, 64])
@pytest.mark.parametrize("source", ["MN", "tensor memory"])
def test_a_sparse_a_may_be_mn_major_or_in_tensor_memory(source, m):
    rng = np.random.default_rng(m)
    n, image, before = 32, np.zeros(1 << 16, np.uint8), noise(rng)
    word = int(InstrDescriptor("f16", m, n, sparse=True, a_major="MN" if source == "MN" else "K"))
    bits, a = sparse(rng, before, m, 32, "f16", False, 300)
    of_a = descriptor(0, "MN", m, 32, 16, "SW128")
    b_bits, b = codes(rng, (n, 32), "f16")
    of_b = descriptor(1 << 15, "K", n, 64, 16, "SW64")
    put(image, of_b, "K", b_bits, 16, "f16")
    if source == "MN":
        put(image, of_a, "MN", bits, 16, "f16")
    else:
        for row, column in np.ndindex(m, 8):
            lane = row if m == 128 else row // 16 * 32 + row % 16
            before[lane, 256 + column] = int(bits[row, 2 * column]) | int(bits[row, 2 * column + 1]) << 16
    text = "add.u32 %r22, %r7, 300; add.u32 %r23, %r7, 256; "
    operand = "%d8" if source == "MN" else "[%r23]"
    text += f"tcgen05.mma.sp.cta_group::1.kind::f16 [%r7], {operand}, %d9, [%r22], %r20, %p3;"
    after = run(text, image, before, a=of_a, b=of_b, word=word)
    lanes, columns = at(tmem_accumulator(m, n), m, n)
    assert (after[lanes, columns].view(np.float32) == a @ b.T).all()


@pytest.mark.first(1)
@pytest.mark.parametrize(("kind", "dtype", "scale_dtype", "said", "vector"), SCALED)
def test_sparse_block_scaled_products(kind, dtype, scale_dtype, said, vector):
    """A scale factor is of twice as many elements, of which A keeps half."""
    rng = np.random.default_rng(vector)
    m, n, k, vector, packed = 128, 64, 2 * mma_kind(kind).k, 2 * vector, kind != "mxf8f6f4"
    types = {"a_dtype": dtype, "b_dtype": dtype, "scale_dtype": scale_dtype}
    word, width, image, before = (
        int(InstrDescriptor(kind, m, n, sparse=True, **types)),
        mma_kind(kind).element_bits(dtype),
        np.zeros(1 << 16, np.uint8),
        noise(rng),
    )
    a_bits, a = sparse(rng, before, m, k, dtype, packed, 340)
    b_bits, b = codes(rng, (n, k), dtype)
    words = [descriptor(0, "K", m, k // 2 * width // 8, width, "SW32")]
    words.append(descriptor(1 << 15, "K", n, k * width // 8, width, "SW64"))
    values = []
    for of, bits, numbers, column in zip(words, (a_bits, b_bits), (a, b), (256, 300), strict=True):
        put(image, of, "K", bits, width, dtype)
        scales = np.ones((len(numbers), k // vector))
        for row, number in np.ndindex(scales.shape):
            code = int(rng.integers(120, 132)) if scale_dtype == "ue8m0" else int(rng.integers(1, 0x60))
            scales[row, number] = 2.0 ** (code - 127) if scale_dtype == "ue8m0" else table("e4m3")[code]
            place = column + row // 32
            for lane in range(row % 32, LANES, 32):
                before[lane, place] = int(before[lane, place]) & ~(0xFF << 8 * number) | code << 8 * number
        values.append(numbers * np.repeat(scales, vector, axis=1))
    text = (
        "add.u32 %r22, %r7, 256; add.u32 %r23, %r7, 300; add.u32 %r24, %r7, 340;"
        f"tcgen05.mma.sp.cta_group::1.kind::{kind}.block_scale{said} "
        "[%r7], %d8, %d9, [%r24], %r20, [%r22], [%r23], %p3;"
    )
    after = run(text, image, before, a=words[0], b=words[1], word=word)
    lanes, columns = at(tmem_accumulator(m, n), m, n)
    expected = values[0] @ values[1].T
    assert np.allclose(after[lanes, columns].view(np.float32), expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("kind", ["f16", "f8f6f4"])
def test_a_pair_has_half_of_a_sparse_a_and_its_metadata_each(kind):
    rng = np.random.default_rng(len(kind))
    dtype, width = ("f16", 16) if kind == "f16" else ("e4m3", 8)
    n, k, image = 64, 2 * mma_kind(kind).k, np.zeros((2, 1 << 14), np.uint8)
    before = np.stack([noise(rng), noise(rng)])
    of_a = descriptor(0, "K", 128, k // 2 * width // 8, width, "SW32")
    of_b = descriptor(8192, "K", n // 2, k * width // 8, width, "SW64")
    parts = []
    for rank in range(2):
        bits, a = sparse(rng, before[rank], 128, k, dtype, False, 300)
        put(image[rank], of_a, "K", bits, width, dtype)
        b_bits, b = codes(rng, (n // 2, k), dtype)
        put(image[rank], of_b, "K", b_bits, width, dtype)
        parts.append((a, b))
    word = int(InstrDescriptor(kind, 256, n, a_dtype=dtype, b_dtype=dtype, sparse=True))
    text = f"add.u32 %r22, %r7, 300; tcgen05.mma.sp.cta_group::2.kind::{kind} [%r7], %d8, %d9, [%r22], %r20, %p3;"
    after = run_pair(text, image, before, a=of_a, b=of_b, word=word)
    b = np.concatenate([of_b for _, of_b in parts]).astype(np.float64)
    for rank, (a, _) in enumerate(parts):
        assert np.allclose(after[rank, :, :n].view(np.float32), a @ b.T, rtol=1e-5, atol=1e-5)


def test_a_sparse_pair_of_128_rows_is_refused():
    word = int(InstrDescriptor("f16", 128, 64, sparse=True))
    text = "tcgen05.mma.sp.cta_group::2.kind::f16 [%r7], %d8, %d9, [%r7], %r20, %p3;"
    with refuses(UnknownInstructionError):
        run_pair(text, np.zeros((2, 1 << 13), np.uint8), np.zeros((2, LANES, COLUMNS)), a=0, b=0, word=word)


def sparse_f16(form="sp", m=128, *, metadata=0x4444EEEE, at="300", selector=0, image=None, more="", pair=(1, 2), **of):
    """Run a sparse product of f16 with the same metadata for all rows; B counts, and A repeats a pair."""
    n = 64
    word = int(InstrDescriptor("f16", m, n, sparse=True, sparse_selector=selector, **of))
    before = np.full((LANES, COLUMNS), metadata, np.uint32)
    image = np.zeros(1 << 14, np.uint8) if image is None else image
    of_a, of_b = descriptor(0, "K", m, 32, 16, "SW32"), descriptor(8192, "K", n, 64, 16, "SW64")
    put(image, of_a, "K", np.tile(np.float16(pair).view(np.uint16), (m, 8)), 16, "f16")
    put(image, of_b, "K", np.arange(n * 32).reshape(n, 32).astype(np.float16).view(np.uint16), 16, "f16")
    text = (
        f"add.u32 %r22, %r7, {at}; tcgen05.mma.{form}.cta_group::1.kind::f16 [%r7], %d8, %d9, [%r22], %r20, %p3{more};"
    )
    return run(text, image, before, a=of_a, b=of_b, word=word)


def test_sparse_ws_takes_the_metadata_of_128_rows():
    """Rows 0 to 7 of each 16 have the lower half of a word, 0xEEEE: of each chunk the last two elements are kept."""
    found = sparse_f16("ws.sp", metadata=0x4444EEEE)[:, :64].view(np.float32)
    b = np.arange(64 * 32).reshape(64, 8, 4)
    first, last = ((b[..., n] + 2 * b[..., n + 1]).sum(axis=1) for n in (0, 2))
    expected = np.where((np.arange(128) % 16 < 8)[:, None], last, first)
    assert (found == expected).all()


@pytest.mark.parametrize(
    ("error", "given"),
    [
        (MemoryAccessError, {"metadata": 0x44440000}),
        (MemoryAccessError, {"at": "301"}),
        (MemoryAccessError, {"at": "0x10012c"}),
        (MemoryAccessError, {"at": "512"}),
        (UnknownInstructionError, {"selector": 2}),
        (UnknownInstructionError, {"form": "ws.sp", "m": 64}),
    ],
    ids=["undefined", "odd column", "other lanes", "beyond", "selector", "ws"],
)
def test_metadata_that_cannot_be_read_are_refused(error, given):
    with refuses(error):
        sparse_f16(**given)


def test_metadata_of_zeros_may_be_undefined():
    assert (sparse_f16(metadata=0x44440000, pair=(0, 0))[:, :64] == 0).all()
    for pair in ((0, 1), (1, 0)):
        with pytest.raises(MemoryAccessError):
            sparse_f16(metadata=0x44440000, pair=pair)


def test_opcode_and_descriptor_say_alike_whether_a_is_sparse():
    rng = np.random.default_rng(0)
    word = int(InstrDescriptor("f16", 128, 16, sparse=True))
    with refuses(DescriptorError):
        run(MMA.format("", "f16"), np.zeros(1 << 13, np.uint8), noise(rng), word=word)
    with refuses(DescriptorError):
        word = int(InstrDescriptor("i8", 128, 16, sparse=True, sparse_selector=1))
        run(MMA.format("sp.", "i8").replace("%d9,", "%d9, [%r7],"), np.zeros(8192, np.uint8), noise(rng), word=word)


def test_a_row_of_64_rows_of_ws_in_tensor_memory_has_no_public_place():
    word = int(InstrDescriptor("f16", 64, 64))
    with refuses(UnknownInstructionError):
        run(
            "tcgen05.mma.ws.cta_group::1.kind::f16 [%r7], [%r7], %d9, %r20, %p3;",
            np.zeros(8192, np.uint8),
            noise(np.random.default_rng(0)),
            b=descriptor(0, "K", 64, 32, 16, "SW32"),
            word=word,
        )


# Zero columns of B. The ISA's examples: how many columns are used is the use span, and one more.


def column_mask(starts, first, is_masked, skip, use, shift):
    fields = [value << 8 * n for n, value in enumerate(starts)] + [value << 32 + n for n, value in enumerate(first)]
    return sum(fields) | is_masked << 39 | skip << 40 | use << 48 | shift << 56


EXAMPLES = [
    # PTX ISA, "Zero-Column Mask Descriptor", examples 1 to 4: the least significant column comes first.
    (128, [0], [0], 0, 4, 3, 0, [""]),
    (128, [0], [0], 1, 2, 3, 0, ["0000 111"]),
    (64, [0, 0], [1, 0], 1, 2, 3, 0, ["111 0000", "0000 111"]),
    (32, [0, 1, 2, 1], [1, 1, 0, 0], 1, 2, 3, 2, ["111 0000", "11 0000 1", "00 111 00", "000 111 0"]),
]


@pytest.mark.parametrize("major", ["K", "MN"])
@pytest.mark.parametrize("example", EXAMPLES, ids=range(1, 5))
def test_columns_of_b_are_zeros_as_the_examples_of_the_isa_have_it(example, major):
    m, starts, first, is_masked, skip, use, shift, patterns = example
    rng, n = np.random.default_rng(m), 128
    extra = 64 if shift else 0
    word = int(InstrDescriptor("f16", m, n, max_shift=8 if shift else 0, b_major=major))
    image, before = np.zeros(1 << 15, np.uint8), noise(rng)
    of_a = descriptor(0, "K", m, 32, 16, "SW32")
    a_bits, a = codes(rng, (m, 16), "f16")
    put(image, of_a, "K", a_bits, 16, "f16")
    of_b = descriptor(1 << 14, major, n + extra, 32, 16, "SW32" if major == "K" else "SW128")
    b_bits, b = codes(rng, (n + extra, 16), "f16")
    put(image, of_b, major, b_bits, 16, "f16")
    masked = []
    for pattern in patterns:
        period = [bit == "1" for bit in pattern.replace(" ", "")]
        count = n // len(patterns)
        masked += [bool(period) and period[at % 7] for at in range(count)]
    expected = a @ (b[shift : shift + n] * ~np.array(masked)[:, None]).T
    mask = column_mask(starts, first, is_masked, skip, use, shift)
    text = f"tcgen05.mma.ws.cta_group::1.kind::f16 [%r7], %d8, %d9, %r20, %p3, {mask};"
    after = run(text, image, before, a=of_a, b=of_b, word=word)
    lanes, columns = at(tmem_accumulator(m, n, ws=True), m, n)
    assert (after[lanes, columns].view(np.float32) == expected).all()


def test_zero_columns_are_not_read():
    """Those of the second half of B lie beyond shared memory, or hold infinities."""
    word, n = int(InstrDescriptor("f16", 128, 64)), 64
    mask = column_mask([0], [0], 1, 255, 31, 0)
    text = f"tcgen05.mma.ws.cta_group::1.kind::f16 [%r7], %d8, %d9, %r20, %p3, {mask};"
    image = np.zeros(4096 + 1024, np.uint8)
    of_a, of_b = descriptor(0, "K", 128, 32, 16, "SW32"), descriptor(4096, "K", n, 32, 16, "SW32")
    put(image, of_a, "K", np.full((128, 16), 0x3C00, np.uint16), 16, "f16")
    put(image, of_b, "K", np.full((32, 16), 0x3C00, np.uint16), 16, "f16")
    after = run(text, image, noise(np.random.default_rng(0)), a=of_a, b=of_b, word=word)[:, :n].view(np.float32)
    assert (after == np.repeat([16, 0], 32)).all()


@pytest.mark.parametrize(
    ("error", "mask"),
    [
        (DescriptorError, 1 << 36),
        (DescriptorError, column_mask([0], [0], 1, 2, 3, 9)),
        (UnknownInstructionError, column_mask([4], [0], 1, 2, 3, 0)),
    ],
    ids=["reserved", "shift", "start"],
)
def test_masks_without_a_meaning_are_refused(error, mask):
    word, image = int(InstrDescriptor("f16", 128, 64, max_shift=8)), np.zeros(1 << 14, np.uint8)
    of_a, of_b = descriptor(0, "K", 128, 32, 16, "SW32"), descriptor(8192, "K", 64, 32, 16, "SW32")
    with refuses(error):
        run(
            f"tcgen05.mma.ws.cta_group::1.kind::f16 [%r7], %d8, %d9, %r20, %p3, {mask};",
            image,
            noise(np.random.default_rng(0)),
            a=of_a,
            b=of_b,
            word=word,
        )


CP = {
    "128x256b": (128, 256, lambda row: [row]),
    "4x256b": (4, 256, lambda row: [32 * row]),
    "128x128b": (128, 128, lambda row: [row]),
    "64x128b.warpx2::02_13": (64, 128, lambda row: [row, row + 64]),
    "64x128b.warpx2::01_23": (64, 128, lambda row: [row % 32 + 64 * (row // 32), row % 32 + 64 * (row // 32) + 32]),
    "32x128b.warpx4": (32, 128, lambda row: [row + 32 * n for n in range(4)]),
}


@pytest.mark.parametrize("shape", CP)
def test_copies_write_rows_to_lanes(shape):
    rng = np.random.default_rng(1)
    rows, bits, lanes_of = CP[shape]
    image, before = rng.integers(0, 256, 1 << 13, np.uint8), noise(rng)
    word = descriptor(0, "K", max(rows, 8), bits // 8, 8, "INTER")
    after = run(f"add.u32 %r22, %r7, 16; tcgen05.cp.cta_group::1.{shape} [%r22], %d8;", image, before, a=word)
    expected = before.copy()
    addresses = SmemDescriptor.decode(word).element_addresses((rows, bits // 8), major="K", bits=8)
    for row in range(rows):
        words = image[addresses[row]].view(np.uint32)
        for lane in lanes_of(row):
            expected[lane, 16 : 16 + len(words)] = words
    assert (after == expected).all()


@pytest.mark.parametrize("bits", [4, 6])
def test_copies_decompress_narrow_elements(bits):
    rng = np.random.default_rng(bits)
    image, before = rng.integers(0, 256, 1 << 12, np.uint8), noise(rng)
    word = descriptor(0, "K", 128, 16, 8, "INTER")
    said = {4: "b4x16_p64", 6: "b6x16_p32"}[bits]
    after = run(f"tcgen05.cp.cta_group::1.128x128b.b8x16.{said} [%r7], %d8;", image, before, a=word)
    for row in range(128):
        start = row // 8 * 128 + row % 8 * 16
        number = int.from_bytes(image[start : start + 16].tobytes(), "little")
        elements = [number >> bits * n & (1 << bits) - 1 for n in range(16)]
        expected = np.array([e << 2 if bits == 4 else e for e in elements], np.uint8).view(np.uint32)
        assert (after[row, :4] == expected).all()


def test_lanes_whose_output_is_disabled_keep_what_they_have():
    rng = np.random.default_rng(0)
    word, image, before = int(InstrDescriptor("f16", 128, 16)), np.zeros(1 << 13, np.uint8), noise(rng)
    of_a, of_b = descriptor(0, "K", 128, 32, 16, "SW32"), descriptor(4096, "K", 16, 32, 16, "SW32")
    text = (
        "mov.u32 %r22, 0; mov.u32 %r23, 5; tcgen05.mma.cta_group::1.kind::f16 [%r7], %d8, %d9, %r20, "
        "{%r23, %r22, %r22, %r23}, %p3;"
    )
    after = run(text, image, before, a=of_a, b=of_b, word=word)
    kept = [0, 2, 96, 98]
    assert (after[kept] == before[kept]).all()
    others = np.delete(np.arange(LANES), kept)
    assert (after[others, :16] == 0).all()


def test_d_may_be_scaled_first():
    word, image = int(InstrDescriptor("f16", 128, 16)), np.zeros(1 << 13, np.uint8)
    before = np.full((LANES, COLUMNS), np.float32(12)).view(np.uint32)
    of_a, of_b = descriptor(0, "K", 128, 32, 16, "SW32"), descriptor(4096, "K", 16, 32, 16, "SW32")
    text = "tcgen05.mma.cta_group::1.kind::f16 [%r7], %d8, %d9, %r20, %p3, 2;"
    after = run(text, image, before, a=of_a, b=of_b, word=word, accumulates=True)
    assert (after[:, :16].view(np.float32) == 3).all()


def test_shift_moves_rows_down_by_one():
    before = noise(np.random.default_rng(2))
    after = run("add.u32 %r22, %r7, 0x200008; tcgen05.shift.cta_group::1.down [%r22];", np.zeros(16, np.uint8), before)
    expected = before.copy()
    expected[32:63, 8:16] = before[33:64, 8:16]
    assert (after == expected).all()


def test_what_a_policy_completes_late_is_not_there_before_its_commit():
    rng = np.random.default_rng(5)
    word = int(InstrDescriptor("f16", 128, 32))
    _, (a, b), _, after = product_of(rng, word, "K", "K", "f16", ("SW32", "SW32"), policy="late")
    assert (after[:, :32].view(np.float32) == a @ b.T).all()


def test_each_lane_that_commits_is_an_issuer_of_its_own():
    class Issuers(Observer):
        def __init__(self):
            self.seen = []

        def on_issue(self, operation):
            self.seen.append(operation.threads.ids.tolist())

    seen = Issuers()
    body = """mov.u32 %r1, %tid.x; mov.u32 %r2, smem; setp.eq.u32 %p1, %r1, 0; setp.lt.u32 %p2, %r1, 3;
    @%p1 mbarrier.init.shared.b64 [%r2], 3; bar.sync 0;
    @%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r2];
    AGAIN: mbarrier.try_wait.parity.shared.b64 %p3, [%r2], 0; @!%p3 bra AGAIN;"""
    launch(body, smem_bytes=64, target="sm_100a", run=Run((seen,), None))
    assert seen.seen == [[0], [1], [2]]


# Loads and stores.

_COPY = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) .reqntid 128 {{
.reg .b32 %r<20>; .reg .b64 %d<8>; .reg .pred %p<3>; .reg .b32 %v<{registers}>; .shared .align 4 .b32 base;
ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; setp.ne.u32 %p0, %r1, 0;
@%p0 bra A; mov.u32 %r2, base; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 512;
A: bar.sync 0; ld.shared.u32 %r3, [base]; shl.b32 %r4, %r1, 21; add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, {lane};
mul.lo.u32 %r5, %r0, {size}; cvt.u64.u32 %d2, %r5; add.u64 %d0, %d0, %d2; add.u64 %d1, %d1, %d2;
{body}
bar.sync 0; @%p0 bra E; ld.shared.u32 %r3, [base]; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 512;
E: ret; }}
"""
SHAPES = {
    "32x32b": (1, lambda t, j, _: (t, j)),
    "16x64b": (1, lambda t, j, _: (t // 4 + 8 * (t % 2), t // 2 % 2 + 2 * j)),
    "16x128b": (2, lambda t, j, _: (t // 4 + 8 * (j % 2), t % 4 + 4 * (j // 2))),
    "16x256b": (4, lambda t, j, _: (t // 4 + 8 * (j // 2 % 2), 2 * (t % 4) + j % 2 + 8 * (j // 4))),
    "16x32bx2": (1, lambda t, j, split: (t % 16, t // 16 * split + j)),
}
"""Registers of one repetition, and the lane and the column of a thread's register, as the ISA draws them."""


@pytest.mark.first(3)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("repeats", [1, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_loads_find_what_stores_of_another_shape_wrote(shape, repeats, packed):
    """A store of this shape, and loads of all columns by 32x32b."""
    each, place = SHAPES[shape]
    count, split = each * repeats, 9
    registers = ", ".join(f"%v{n}" for n in range(count))
    said = f", {split}" if shape == "16x32bx2" else ""
    body = "".join(f"ld.global.u32 %v{n}, [%d0+{4 * n}];\n" for n in range(count))
    pack = ".unpack::16b" if packed else ""
    body += f"tcgen05.st.sync.aligned.{shape}.x{repeats}{pack}.b32 [%r3]{said}, {{{registers}}};\n"
    body += "tcgen05.wait::st.sync.aligned;\n"
    pack = ".pack::16b" if packed else ""
    again = ", ".join(f"%v{n + count}" for n in range(count))
    body += f"tcgen05.ld.sync.aligned.{shape}.x{repeats}{pack}.b32 {{{again}}}, [%r3]{said};\n"
    body += "".join(f"st.global.u32 [%d1+{4 * n}], %v{n + count};\n" for n in range(count))
    body += "add.u64 %d1, %d1, 65536;\n"
    columns = 64
    body += f"tcgen05.ld.sync.aligned.32x32b.x{columns}.b32 {{{', '.join(f'%v{n}' for n in range(columns))}}}, [%r3];\n"
    body += "mul.lo.u32 %r5, %r0, 256; sub.u64 %d1, %d1, %d2; cvt.u64.u32 %d2, %r5; add.u64 %d1, %d1, %d2;\n"
    body += "".join(f"st.global.u32 [%d1+{4 * n}], %v{n};\n" for n in range(columns))
    text = _COPY.format(registers=max(columns, 2 * count), lane=0, size=4 * count, body=body)
    given_ = np.random.default_rng(repeats).integers(0, 1 << 32, (128, count), np.uint32)
    out = np.zeros(16384 + 128 * columns, np.uint32)
    with simulate():
        load_ptx(text).launch("k", 1, 128, [given_, out])
    back, memory = out[: 128 * count].reshape(128, count), out[16384:].reshape(128, columns)
    assert (back == given_).all()
    for thread in range(128):
        for n in range(count):
            lane, column = place(thread % 32, n, split)
            lane += thread // 32 * 32
            if packed:
                column = 2 * column if shape != "16x32bx2" else thread % 32 // 16 * split + 2 * n
                assert memory[lane, column] == given_[thread, n] & 0xFFFF
                assert memory[lane, column + 1] == given_[thread, n] >> 16
            else:
                assert memory[lane, column] == given_[thread, n]


# Loads that reduce.


def reduce_columns(operation, values):
    """Load 128 lanes' columns by tcgen05.ld.red; returns the reduced values and what was loaded."""
    count = values.shape[1]
    registers = ", ".join(f"%v{n}" for n in range(count))
    body = "".join(f"ld.global.u32 %v{n}, [%d0+{4 * n}];\n" for n in range(count))
    body += f"tcgen05.st.sync.aligned.32x32b.x{count}.b32 [%r3], {{{registers}}}; tcgen05.wait::st.sync.aligned;\n"
    body += f"tcgen05.ld.red.sync.aligned.32x32b.x{count}.{operation} {{{registers}}}, %r6, [%r3];\n"
    body += "tcgen05.wait::ld.sync.aligned;\n"
    body += "".join(f"st.global.u32 [%d1+{4 * n}], %v{n};\n" for n in range(count))
    body += "st.global.u32 [%d1+65536], %r6;\n"
    out = np.zeros((2, 1 << 14), np.uint32)
    with simulate():
        text = _COPY.replace("sm_100a", "sm_103a").format(registers=count, lane=0, size=4 * count, body=body)
        load_ptx(text).launch("k", 1, 128, [values, out])
    return out[1, : 128 * count : count], out[0, : 128 * count].reshape(128, count)


@pytest.mark.parametrize("modifiers", ["", ".abs", ".NaN", ".abs.NaN"])
@pytest.mark.parametrize("operation", ["min", "max"])
def test_floats_are_reduced_as_they_are_loaded(operation, modifiers):
    values = float_bits("f32", 128 * 4, operation + modifiers).reshape(128, 4)
    values[::5] = [0x80000000, 0, 0x80000000, 0]
    values[1::9] = 0xFFC00001
    found, loaded = reduce_columns(f"{operation}{modifiers}.f32", values)
    assert (loaded == values).all()
    assert_same_bits(found, [extreme(operation, row, modifiers) for row in values.tolist()], "f32")


@pytest.mark.parametrize("operation", ["min.u32", "max.s32", "u32.max"])
def test_integers_are_reduced_as_they_are_loaded(operation):
    values = np.random.default_rng(3).integers(0, 1 << 32, (128, 8), np.uint32)
    found, loaded = reduce_columns(operation, values)
    kind, function = np.int32 if "s32" in operation else np.uint32, np.min if "min" in operation else np.max
    assert (loaded == values).all()
    assert (found.view(kind) == function(values.view(kind), axis=1)).all()


# Mistakes.


def fails(body, error, registers=8, lane=0):
    with refuses(error), simulate():
        text = _COPY.format(registers=registers, lane=lane, size=4, body=body)
        load_ptx(text).launch("k", 1, 128, [np.zeros(128, np.uint32), np.zeros(128, np.uint32)])


def test_another_warps_lanes_are_refused():
    fails("add.u32 %r3, %r3, 0x200000; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v0}, [%r3];", MemoryAccessError)


def test_addresses_that_differ_in_a_warp_are_refused():
    fails("add.u32 %r3, %r3, %r0; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v0}, [%r3];", MemoryAccessError)


def test_halves_that_share_lanes_are_not_reduced():
    with refuses(UnknownInstructionError), simulate():
        body = "tcgen05.ld.red.sync.aligned.16x32bx2.x2.max.f32 {%v0, %v1}, %v2, [%r3], 4;"
        text = _COPY.replace("sm_100a", "sm_103a").format(registers=8, lane=0, size=4, body=body)
        load_ptx(text).launch("k", 1, 128, [np.zeros(128, np.uint32), np.zeros(128, np.uint32)])


def test_columns_that_are_not_allocated_are_refused():
    fails("add.u32 %r3, %r3, 511; tcgen05.ld.sync.aligned.32x32b.x2.b32 {%v0, %v1}, [%r3];", MemoryAccessError)


def test_allocations_are_powers_of_two_and_freed_as_they_were_made():
    fails("@%p0 bra B; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 256;\nB:", SimulationError)
    alloc = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"
    fails(f"@%p0 bra B; mov.u32 %r0, 48; {alloc} [%r2], %r0;\nB:", SimulationError)
    text = (
        "@%p0 bra B; tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 512;\n"
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 32;\nB:"
    )
    fails(text, SimulationError)


def test_all_threads_that_allocate_or_free_have_one_address():
    for address in ("%r3", "%r6"):  # of the last lane, or of all but the first
        body = "@%p0 bra B; setp.eq.u32 %p1, %r0, 31; @%p1 add.u32 %r3, %r3, 32; add.u32 %r6, %r3, %r0;\n"
        fails(f"{body}tcgen05.dealloc.cta_group::1.sync.aligned.b32 {address}, 512;\nB:", SimulationError)
    body = ".shared .align 4 .b8 more[128]; mov.u32 %r2, more; shl.b32 %r6, %r0, 2; add.u32 %r2, %r2, %r6; @%p0 bra B;"
    fails(f"{body}\ntcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 512;\nB:", SimulationError)


def test_columns_are_freed_before_the_end():
    fails("ret;", SimulationError)


def test_an_allocation_waits_for_columns():
    """Of all columns, which are taken: nobody frees any."""
    from cutepy.sim.errors import DeadlockError

    fails("@%p0 bra B; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 32;\nB:", DeadlockError)


def test_descriptors_without_meaning_are_refused():
    rng = np.random.default_rng(0)
    image = np.zeros(1 << 13, np.uint8)
    good = descriptor(0, "K", 128, 32, 16, "SW32")
    for a, word in ((good, 0), (good & ~(7 << 46), int(InstrDescriptor("f16", 128, 16)))):
        with refuses(DescriptorError):
            run(MMA.format("", "f16"), image, noise(rng), a=a, b=good, word=word)
    with refuses(MemoryAccessError):
        run(MMA.format("", "f16"), image[:2048], noise(rng), a=good, b=good, word=int(InstrDescriptor("f16", 128, 16)))


@pytest.mark.parametrize("kind", ["mxf4", "mxf4nvf4.block_scale.block16"])
def test_k_of_96_is_of_another_gpu(kind):
    """Bit 31 of the descriptor: packed fp4 of sm_103 alone."""
    name, _, scaled = kind.partition(".")
    mma = MMA.format("", f"{name}.{scaled or 'block_scale'}").replace("%r20,", "%r20, [%r7], [%r7],")
    given = {"a": descriptor(0, "K", 128, 48, 4, "SW64"), "b": descriptor(1 << 15, "K", 16, 48, 4, "SW64")}
    given["word"] = int(InstrDescriptor(name, 128, 16, k=96))
    image, before = np.zeros(1 << 16, np.uint8), np.zeros((LANES, COLUMNS), np.uint32)
    assert not run(mma, image, before, **given)[:, :16].any()
    with refuses(DescriptorError):
        run(mma, image, before, target="sm_100a", **given)


_OUTSIDE = {
    "D of 128 rows": ("add.u32 %r7, %r7, {}; tcgen05.mma.cta_group::1.kind::f16 [%r7], %d8, %d9, %r20, %p3;", (16,)),
    "D of 64 rows": (
        "add.u32 %r7, %r7, {}; mov.u32 %r20, M64; tcgen05.mma.cta_group::1.kind::f16 [%r7], %d8, %d9, %r20, %p3;",
        (1, 8, 17, 32, 1 << 14),
    ),
    "A of 128 rows": (
        "add.u32 %r22, %r7, {}; tcgen05.mma.cta_group::1.kind::f16 [%r7], [%r22], %d9, %r20, %p3;",
        (32,),
    ),
    "the scale factors of A": (
        "add.u32 %r22, %r7, {}; mov.u32 %r20, MX; tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%r7], %d8, %d9, "
        "%r20, [%r22], [%r7], %p3;",
        (1, 16, 32, 64),
    ),
    "a copy of 32x128b.warpx4": ("add.u32 %r7, %r7, {}; tcgen05.cp.cta_group::1.32x128b.warpx4 [%r7], %d8;", (32,)),
    "a copy of 4x256b": ("add.u32 %r7, %r7, {}; tcgen05.cp.cta_group::1.4x256b [%r7], %d8;", (32,)),
    "a shift": ("add.u32 %r7, %r7, {}; tcgen05.shift.cta_group::1.down [%r7];", (8, 128, 160)),
}
"""Operands, an instruction with a place for what is added to an address, and lanes that the operand cannot begin at."""


def test_scale_factors_lie_in_columns_that_are_allocated():
    with refuses(MemoryAccessError):
        at_lane(_OUTSIDE["the scale factors of A"][0].replace("{}", "510"), 0)


def at_lane(instruction, lane):
    words = {"M64": ("f16", 64, 16), "MX": ("mxf8f6f4", 128, 16)}
    text = instruction.format(lane << 16)
    for name, of in words.items():
        text = text.replace(name, str(int(InstrDescriptor(*of))))
    given = {"a": descriptor(0, "K", 128, 32, 16, "SW32"), "b": descriptor(4096, "K", 16, 32, 16, "SW32")}
    image, before = np.zeros(1 << 14, np.uint8), np.zeros((LANES, COLUMNS), np.uint32)
    return run(text, image, before, word=int(InstrDescriptor("f16", 128, 16)), **given)


@pytest.mark.parametrize(
    ("name", "lane"), [(name, lane) for name, (_, lanes) in _OUTSIDE.items() for lane in lanes], ids=str
)
def test_operands_begin_at_lanes_where_their_layouts_lie(name, lane):
    with refuses(MemoryAccessError) as told:
        at_lane(_OUTSIDE[name][0], lane)
    assert name in str(told.value)


@pytest.mark.parametrize(
    ("name", "lane"),
    [("D of 64 rows", 16), ("a copy of 4x256b", 31), ("a shift", 96), ("the scale factors of A", 3 << 14)],
)
def test_operands_that_leave_lanes_out_begin_at_others_too(name, lane):
    """Of an address of scale factors the two highest bits are no lane."""
    at_lane(_OUTSIDE[name][0], 0)
    at_lane(_OUTSIDE[name][0].replace("add.u32", "or.b32"), lane)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("rows", [64, 128, 256])
def test_scale_factors_of_b_come_in_halves_where_two_ctas_have_64_rows_each(monkeypatch, group, rows):
    asked = []

    def factors(words, extent, count, number, name, *, halves, address):
        asked.append((extent, count, number, name, halves, address))
        return np.full((extent, count), len(asked) + 1.0)

    monkeypatch.setattr(products, "scale_factors", factors)
    shape = SimpleNamespace(k=64, m=rows, a_sf_id=1, b_sf_id=3, scale_dtype="ue8m0", d_dtype="f32")
    a, b = np.ones((rows, 64)), np.ones((16, 64))
    found = Products._product(shape, 32, np.zeros(1, np.uint32), a, b, None, (40, 50), group)
    assert asked == [(rows, 2, 1, "ue8m0", False, 40), (16, 2, 3, "ue8m0", group == 2 and rows == 128, 50)]
    assert (found == 64 * 2 * 3).all()
