"""Addresses of tensor copies: modulo 2^64, boxes over several tensors, swizzled by address.

References
----------
PTX ISA, "Tensors": "Tiled Mode", "Bounding-Box", "Swizzling Modes". Triton and QuACK rest their ragged tensors, whose
descriptors need not be written anew for each sequence, on addresses that wrap around at 2^64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cutepy.layouts.sm90 import TensorMap
from cutepy.sim import MemoryAccessError
from tests.messages import refuses

from .launching import launch

Array = np.ndarray[Any, Any]

LOAD = """
mov.u32 %r0, smem; add.u32 %r9, %r0, {barrier}; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0;
@%p1 bra END;
mbarrier.init.shared.b64 [%r9], 1;
mbarrier.arrive.expect_tx.shared.b64 %rd5, [%r9], {size};
{set}
cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0+{at}], [%rd0, {{{names}}}], [%r9];
WAIT: mbarrier.try_wait.shared.b64 %p2, [%r9], %rd5;
@!%p2 bra WAIT;
END:
"""
STORE = """
mov.u32 %r0, smem; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0;
@%p1 bra END;
{fill}
fence.proxy.async.shared::cta;
{set}
{opcode} [%rd0, {{{names}}}], [%r0];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:
"""
BARRIER = 8192


def aligned(size: int) -> Array:
    """Return bytes at a multiple of 128."""
    raw = np.zeros(size + 128, np.uint8)
    start = -raw.ctypes.data % 128
    return raw[start : start + size]


def described(tensor: TensorMap) -> Array:
    descriptor = aligned(128)
    descriptor[:64] = np.array(tensor.encode(), np.uint64).view(np.uint8)
    return descriptor


def _coordinates(at: tuple[int, ...]) -> dict[str, object]:
    names = [f"%r{20 + n}" for n in range(len(at))]
    moves = "".join(f"mov.u32 {name}, {c & 0xFFFFFFFF};" for name, c in zip(names, at, strict=True))
    return {"set": moves, "names": ", ".join(names), "rank": len(at)}


def load(tensor: TensorMap, at: tuple[int, ...], known: list[Array], offset: int = 0) -> Array:
    """Return the bytes of shared memory after a copy to `offset`."""
    body = LOAD.format(barrier=BARRIER, size=tensor.box_bytes, at=offset, **_coordinates(at))
    return launch(body, [described(tensor), *known], smem=BARRIER + 8).smem()[:BARRIER]


def store(tensor: TensorMap, at: tuple[int, ...], words: list[int], known: list[Array], reduction: str = "") -> None:
    """Store a box of these 32-bit words, or add it."""
    fill = "".join(f"st.shared.u32 [%r0+{4 * n}], {word};" for n, word in enumerate(words))
    opcode = f"cp.async.bulk.tensor.{len(at)}d.global.shared::cta.bulk_group"
    if reduction:
        opcode = f"cp.reduce.async.bulk.tensor.{len(at)}d.global.shared::cta.{reduction}.bulk_group"
    body = STORE.format(fill=fill, opcode=opcode, **_coordinates(at))
    launch(body, [described(tensor), *known], smem=1024)


BIG, MOST = 1 << 30, (1 << 31) - 1
ROW = 32
"""Bytes of a row of eight 32-bit elements."""


def ragged(data: Array) -> TensorMap:
    """Describe sequences of rows: what is past a sequence's end is outside, and the way back to it wraps around.

    At (x, BIG - length, BIG, start + length) is the first row of the sequence: the products of BIG and the strides
    of its dimensions sum up to 2^64.
    """
    strides = ROW, (1 << 34) - ROW, ROW
    return TensorMap("u32", (8, BIG, MOST, MOST), strides, (8, 4, 1, 1), global_address=data.ctypes.data)


def shifted(data: Array) -> TensorMap:
    """Describe them by a base that lies BIG rows before the tensor, and so below 0 for small enough addresses."""
    base = (data.ctypes.data - (BIG << 20)) % (1 << 64)
    assert base > 1 << 63
    return TensorMap("u32", (8, BIG, MOST), (1 << 20, 1 << 20), (8, 1, 1), global_address=base)


def rows(count: int) -> Array:
    data = aligned(ROW * count)
    data.view(np.uint32)[:] = np.arange(1, 8 * count + 1)
    return data


@pytest.mark.parametrize(("start", "length"), [(0, 16), (5, 11), (3, 2), (15, 1)])
def test_the_addresses_of_a_load_wrap_around(start, length):
    data = rows(16)
    found = load(ragged(data), (0, BIG - length, BIG, start + length), [data]).view(np.uint32)[:32].reshape(4, 8)
    expected = np.zeros((4, 8), np.uint32)
    taken = min(4, length)
    expected[:taken] = data.view(np.uint32).reshape(16, 8)[start : start + taken]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("reduction", ["", "add"])
@pytest.mark.parametrize(("start", "length"), [(0, 16), (5, 11), (3, 2)])
def test_the_addresses_of_a_store_wrap_around(start, length, reduction):
    data = rows(16)
    expected = data.view(np.uint32).reshape(16, 8).copy()
    words = np.arange(100, 132, dtype=np.uint32).reshape(4, 8)
    part = expected[start : start + min(4, length)]
    part[:] = words[: len(part)] + (part if reduction else 0)
    store(ragged(data), (0, BIG - length, BIG, start + length), words.reshape(-1).tolist(), [data], reduction)
    np.testing.assert_array_equal(data.view(np.uint32).reshape(16, 8), expected)


def test_a_store_from_a_base_below_zero():
    """Of stores only: QuACK found that loads fail where no memory is mapped at the base itself."""
    data = rows(1)
    words = list(range(50, 58))
    store(shifted(data), (0, BIG - 7, 7), words, [data])
    assert data.view(np.uint32).tolist() == words


def test_what_does_not_wrap_to_known_memory_is_refused():
    data = rows(16)
    with refuses(MemoryAccessError):
        load(ragged(data), (0, BIG - 1, BIG, 17), [data])
    with refuses(MemoryAccessError):
        load(ragged(data), (0, BIG - 1, BIG - 1, 1), [data])


def test_a_box_over_tensors_that_lie_apart():
    """One descriptor for a pair of tensors: the stride between them is the distance of their addresses."""
    whole = rows(512)
    low, high = whole[: ROW * 8], whole[ROW * 256 : ROW * 264]
    apart = high.ctypes.data - low.ctypes.data
    tensor = TensorMap("u32", (8, 2, 8), (apart, ROW), (8, 2, 4), global_address=low.ctypes.data)
    found = load(tensor, (0, 0, 2), [low, high]).view(np.uint32)[:64].reshape(4, 2, 8)
    expected = np.stack([x.view(np.uint32).reshape(8, 8)[2:6] for x in (low, high)], axis=1)
    np.testing.assert_array_equal(found, expected)
    store(tensor, (0, 0, 2), list(range(64)), [low, high])
    for n, x in enumerate((low, high)):
        got = x.view(np.uint32).reshape(8, 8)[2:6]
        np.testing.assert_array_equal(got, np.arange(64).reshape(4, 2, 8)[:, n])


WIDTHS = {"SW32": 32, "SW64": 64, "SW128": 128}


@pytest.mark.parametrize("offset", [0, 128, 256, 512, 640, 896])
@pytest.mark.parametrize("mode", WIDTHS)
def test_swizzles_are_of_the_address_not_of_the_box(mode, offset):
    """A box may start at any multiple of 128: bits 7 to 9 of each unit's address flip bits 4 to 6 all the same."""
    width, height = WIDTHS[mode], 8
    data = aligned(width * height)
    data[:] = np.random.default_rng(1).integers(1, 255, data.size)
    tensor = TensorMap("u8", (width, height), (width,), (width, height), global_address=data.ctypes.data, swizzle=mode)
    mask = width // 16 - 1
    expected = np.zeros(BARRIER, np.uint8)
    for byte in range(data.size):
        address = offset + byte
        expected[address ^ (address >> 7 & mask) << 4] = data[byte]
    np.testing.assert_array_equal(load(tensor, (0, 0), [data], offset), expected)


@pytest.mark.parametrize("offset", [128, 640])
@pytest.mark.parametrize("mode", WIDTHS)
def test_stores_read_where_loads_wrote(mode, offset):
    width, height = WIDTHS[mode], 8
    data, out = aligned(width * height), aligned(width * height)
    data[:] = np.random.default_rng(2).integers(1, 255, data.size)
    maps = [
        TensorMap("u8", (width, height), (width,), (width, height), global_address=x.ctypes.data, swizzle=mode)
        for x in (data, out)
    ]
    body = LOAD.format(barrier=BARRIER, size=data.size, at=offset, **_coordinates((0, 0)))
    body = body.replace(
        "END:",
        f"""mov.u32 %r20, 0; mov.u32 %r21, 0;
        cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {{%r20, %r21}}], [%r0+{offset}];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        END:""",
    )
    launch(body, [*map(described, maps), data, out], smem=BARRIER + 8)
    np.testing.assert_array_equal(out, data)
