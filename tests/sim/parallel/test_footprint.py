"""Sets of bytes, against Python's sets."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cutepy.sim.machine.activity import Traffic
from cutepy.sim.machine.lanes import Ctas, Residents, Threads
from cutepy.sim.parallel import footprint
from cutepy.sim.parallel.footprint import Footprint, Ranges, meets_others, put, take

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=8)


def ranges(pairs):
    starts = np.array([start for start, _ in pairs], np.int64)
    return Ranges.union([starts], [starts + np.array([size for _, size in pairs], np.int64)])


def bytes_of(ranges):
    return {b for start, end in zip(ranges.starts, ranges.ends, strict=True) for b in range(start, end)}


@given(pairs)
def test_a_union_has_the_bytes_of_its_ranges_which_are_apart(pairs):
    found = ranges(pairs)
    assert bytes_of(found) == {b for start, size in pairs for b in range(start, start + size)}
    assert (found.starts[1:] > found.ends[:-1]).all()
    assert found.size_bytes == len(bytes_of(found))


@given(pairs, pairs, pairs)
def test_reads_meet_others_where_another_has_written(reads, own, others):
    reads, own, others = ranges(reads), ranges(own), ranges(others)
    every = tuple(np.sort(np.concatenate(x)) for x in ([own.starts, others.starts], [own.ends, others.ends]))
    assert meets_others(reads, own, every) == bool(bytes_of(reads) & bytes_of(others))


@given(pairs, st.sampled_from([1, 2, 16]))
def test_bytes_taken_can_be_put(pairs, unit):
    block = np.random.default_rng(0).integers(0, 255, 70 * unit + 16).astype(np.uint8)
    base = -block.ctypes.data % 16
    found = ranges(pairs)
    at = Ranges(found.starts * unit + block.ctypes.data + base, found.ends * unit + block.ctypes.data + base)
    before, data = block.copy(), take(at)
    assert data.nbytes == at.size_bytes
    block[:] = 0
    put(at, data)
    expected = np.zeros_like(block)
    for start, end in zip(found.starts * unit + base, found.ends * unit + base, strict=True):
        expected[start:end] = before[start:end]
    np.testing.assert_array_equal(block, expected)


@pytest.fixture
def lanes():
    ctas = Ctas(np.arange(2), Residents((2, 1, 1), (1, 1, 1), np.arange(2)))
    return SimpleNamespace(ctas=ctas, threads=Threads(np.arange(32), (32, 1, 1)))


@given(st.lists(st.sampled_from([0, 255, 0b10110001]), max_size=9), st.integers(1, 4))
def test_runs_of_bits_are_found_however_they_are_scanned(numbers, scanned):
    bits = np.array(numbers, np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(footprint, "_SCANNED", scanned)
        starts, ends = footprint._runs(bits)
    found = {b for start, end in zip(starts, ends, strict=True) for b in range(start, end)}
    assert found == {8 * n + b for n, number in enumerate(numbers) for b in range(8) if number >> b & 1}
    assert (starts[1:] > ends[:-1]).all()


@pytest.mark.parametrize(("kind", "reads", "writes"), [("load", 1, 0), ("store", 0, 1), ("atomic", 1, 1)])
def test_every_kind_of_access_is_noted(lanes, kind, reads, writes):
    footprint = Footprint({})
    addresses = np.arange(64, dtype=np.uint64).reshape(2, 32)
    some = np.eye(2, 32, dtype=np.int64) * 5
    cases = {
        "spread": (
            lambda: footprint.access(kind, lanes, 256 + addresses * np.uint64(8), 4),
            {256 + 8 * n + b for n in range(64) for b in range(4)},
        ),
        "one a CTA": (lambda: footprint.access(kind, lanes, 1024 + addresses[:, :1], 1), {1024, 1056}),
        "partial": (
            lambda: footprint.partial(kind, lanes, 2048 + addresses * np.uint64(16), some),
            {2048 + lane * 16 + b for lane in (0, 33) for b in range(5)},
        ),
        "run": (lambda: footprint.run(kind, 4096, 48), set(range(4096, 4144))),
        "nothing": (lambda: footprint.run(kind, 5000, 0), set()),
        "box": (
            lambda: footprint.box(kind, 8192, (8, 3, 2), (2, 100, 1000), 2),
            {8192 + 1000 * z + 100 * y + x for z in range(2) for y in range(3) for x in range(16)},
        ),
    }
    expected = set()
    for note, noted in cases.values():
        note()
        expected |= noted
        assert bytes_of(footprint.reads) == (expected if reads else set())
        assert bytes_of(footprint.writes) == (expected if writes else set())


def test_many_ranges_are_united_on_the_way(lanes, monkeypatch):
    monkeypatch.setattr("cutepy.sim.parallel.footprint._HELD", 100)
    footprint = Footprint({})
    expected = set()
    steps = np.arange(64, dtype=np.uint64).reshape(2, 32) * np.uint64(64)
    for n in range(50):
        footprint.access("load", lanes, np.uint64(4 * n) + steps, 4)
        expected |= {4 * n + 64 * lane + b for lane in range(64) for b in range(4)}
    assert bytes_of(footprint.reads) == expected


@pytest.mark.parametrize("kind", ["load", "store", "atomic"])
def test_what_is_noted_is_counted_too(lanes, kind):
    addresses = np.arange(64, dtype=np.uint64).reshape(2, 32) * np.uint64(8)
    for note in (
        lambda traffic: traffic.access(kind, lanes, addresses, 4),
        lambda traffic: traffic.partial(kind, lanes, addresses, np.full((2, 32), 3)),
        lambda traffic: traffic.run(kind, 4096, 48),
        lambda traffic: traffic.box(kind, 8192, (8, 3, 2), (2, 100, 1000), 2),
    ):
        noted, counted = Counter(), Counter()
        note(Footprint(noted))
        note(Traffic(counted))
        assert noted == counted
        assert sum(counted.values()) > 0


@pytest.mark.parametrize("size", [1, 7, 8, 1000, 1 << 16])
def test_a_map_has_a_bit_for_each_byte(size):
    """And for an access of 16 bytes that begins at the last one."""
    footprint = Footprint({})
    for bits, ranges_of in zip(footprint.maps(4096, 4096 + size), ("reads", "writes"), strict=True):
        assert 8 * len(bits) >= size + 15
        bits[(size - 1) // 8] |= 1 << (size - 1) % 8
        assert bytes_of(getattr(footprint, ranges_of)) == {4096 + size - 1}
