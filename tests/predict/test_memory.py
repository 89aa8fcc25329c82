"""Traffic of a launch from that of sampled CTAs."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cutepy.predict import gpu_named
from cutepy.predict.memory import slowdown, traffic_of
from cutepy.predict.trace import LINE_BYTES, Region, Tracer, _part_sectors


def region(size_bytes, lines, *, ctas, uses=1, written=False):
    """Make a region of which each of two CTAs reads or writes some lines, so often."""
    each = np.arange(lines)
    moved = Counter({block: uses * lines * LINE_BYTES for block in (0, ctas - 1)})
    if written:
        return Region("y", size_bytes, writes=moved, written_lines=[each, each + lines])
    return Region("x", size_bytes, reads=moved, read_lines=[each, each + lines] * uses)


def sampled(ctas):
    """Two CTAs that stand for all."""
    return {0: ctas - 1.0, ctas - 1: 1.0}


@given(st.integers(1, 1 << 12), st.integers(1, 4), st.integers(2, 1 << 12), st.booleans())
def test_device_memory_moves_no_more_than_l2_and_no_less_than_is_touched(lines, uses, ctas, written):
    size = lines * LINE_BYTES * ctas
    (found,) = traffic_of([region(size, lines, ctas=ctas, uses=uses, written=written)], sampled(ctas), min(ctas, 132))
    asked, moved = found.l2_read_bytes + found.l2_write_bytes, found.dram_read_bytes + found.dram_write_bytes
    assert asked == uses * lines * LINE_BYTES * ctas
    assert min(size, asked) <= moved <= asked
    assert 0.0 <= found.late <= 1.0


def test_a_sample_at_the_edge_stands_for_itself():
    full = region(1 << 27, 1 << 10, ctas=1024)
    full.reads[1023] = 0
    (found,) = traffic_of([full], sampled(1024), 132)
    assert found.l2_read_bytes == 1023 * (1 << 10) * LINE_BYTES
    assert found.miss == 1.0


def test_a_stream_is_read_once_and_a_shared_operand_that_fits_too():
    stream, shared = traffic_of([region(size, 1 << 10, ctas=1024) for size in (1 << 27, 1 << 20)], sampled(1024), 132)
    assert stream.miss == 1.0
    assert 1 << 20 <= shared.dram_read_bytes < 0.06 * shared.l2_read_bytes


@pytest.mark.parametrize("in_order", [True, False])
def test_neighbours_that_read_the_same_rows_share_them(in_order):
    ctas, lines = 1 << 18, 8
    size = ctas * lines * LINE_BYTES  # far beyond L2
    picks = [0, ctas // 2, ctas - 1]
    found = Region("x", size, reads=Counter(dict.fromkeys(picks, 3 * lines * LINE_BYTES)), by_threads=True)
    for n, block in enumerate(picks):
        first = lines * (block if in_order else picks[-1 - n])
        found.read_lines.append(np.arange(first, first + 3 * lines))
        found.first_lines[block] = first
    (made,) = traffic_of([found], dict(zip(picks, [1.0, ctas - 2.0, 1.0], strict=True)), 1056)
    assert (made.dram_read_bytes < 1.02 * size) == in_order
    assert made.l2_read_bytes == 3 * size


def test_reads_and_writes_that_alternate_take_a_copys_time():
    gpu = gpu_named("h200")
    reads, writes = (
        traffic_of([region(1 << 27, 1 << 10, ctas=1024, written=w)], sampled(1024), 132) for w in (False, True)
    )
    assert slowdown(gpu, reads) == slowdown(gpu, writes) == 1.0
    apart = 1 / gpu.value("dram.bandwidth") + 1 / gpu.value("dram.write_bandwidth")
    assert slowdown(gpu, [*reads, *writes]) * apart == 2 / gpu.value("dram.copy_bandwidth")


@given(
    st.lists(st.lists(st.integers(0, 40 * LINE_BYTES), max_size=5), min_size=1, max_size=3),
    st.integers(1, 4 * LINE_BYTES),
    st.booleans(),
)
def test_runs_of_bytes_are_in_all_lines_that_they_reach(steps, size, reads):
    tracer, found = object.__new__(Tracer), Region("x", 1 << 20)
    tracer.trace = SimpleNamespace(regions=[found])
    touched = [{byte // LINE_BYTES for start in starts for byte in range(start, start + size)} for starts in steps]
    for starts, lines in zip(steps, touched, strict=True):
        assert tracer._touch(0, 7, np.array(starts, np.int64), size, reads) == len(lines)
    kept, moved = (found.read_lines, found.reads) if reads else (found.written_lines, found.writes)
    assert [set(lines.tolist()) for lines in kept] == touched
    assert moved == {7: size * sum(map(len, steps))}
    assert not (found.writes if reads else found.reads)
    first = [min(lines) for lines in touched if lines]
    assert found.first_lines == ({7: min(first)} if reads and first else {})


@given(st.sets(st.integers(0, 40), min_size=1, max_size=8), st.integers(1, 12))
def test_parts_of_sectors_are_those_that_some_bytes_of_are_not_written(places, words):
    """By counting bytes; runs begin at multiples of four bytes and do not overlap."""
    starts, end = [], 0
    for place in sorted(places):
        if 4 * place >= end:
            starts.append(4 * place)
            end = 4 * place + 4 * words
    written = Counter(byte // 32 for start in starts for byte in range(start, start + 4 * words))
    assert _part_sectors(np.array(starts), 4 * words) == sum(count < 32 for count in written.values())
