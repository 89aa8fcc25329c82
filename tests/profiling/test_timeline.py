"""Timelines: the events of warps in the simulator, and how they are read."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cutepy.profiling.timeline_text import rows
from cutepy.profiling.warps import NOMINAL_GHZ, Range, Warp, clock_ghz, events, probe_clocks, read
from cutepy.runtime.timeline_state import EVENT_BYTES, HEADER_BYTES, TimelineBuffer
from tests.messages import pins

NAMES = ["load", "wait", "multiply"]


def written(parts, *, ctas=2, warps=2, capacity=4):
    """Return memory as probes write it: (CTA, warp) -> (grid, SM, readings, events)."""
    memory = np.zeros(ctas * warps * (HEADER_BYTES + EVENT_BYTES * capacity) // 4, np.uint32)
    buffer = TimelineBuffer(memory, memory.ctypes.data, ctas, warps, capacity, [*NAMES])
    for (cta, warp), (grid, sm, readings, told) in parts.items():
        part = memory.reshape(ctas * warps, -1)[cta * warps + warp]
        part[:3] = len(told), grid, sm
        part[4:12] = np.array([value for reading in readings for value in reading], np.uint64).view(np.uint32)
        for n, (clock, tag, argument) in enumerate(told[:capacity]):
            low = HEADER_BYTES // 4 + 4 * n
            part[low : low + 4] = clock & 0xFFFFFFFF, clock >> 32, tag, argument
    return memory, buffer


READINGS = (1000, 50), (1000, 50)


def test_events_are_read_as_ranges():
    late = 1 << 40
    told = [(late, 0, 7), (late + 10, 2, 1), (late + 30, 3, 1), (late + 40, 1, 7), (late + 50, 4, 2), (late + 60, 5, 2)]
    (warp,) = read(*written({(1, 0): (9, 17, READINGS, told)}, capacity=6))
    assert (warp.launch, warp.cta, warp.warp, warp.sm, warp.dropped) == (9, 1, 0, 17, 0)
    assert warp.ranges == (
        Range("load", 7, late, late + 40, 0),
        Range("wait", 1, late + 10, late + 30, 1),
        Range("multiply", 2, late + 50, late + 60, 0),
    )


def test_the_tag_of_a_range_is_that_of_its_name():
    _, buffer = written({})
    assert [buffer.tag(name) for name in ("multiply", "store", "load", "store", "sum")] == [4, 6, 0, 6, 8]
    assert buffer.names == [*NAMES, "store", "sum"]


def test_a_full_buffer_drops_events_and_open_ranges():
    told = [(0, 0, 0), (1, 2, 0), (2, 3, 0), (3, 4, 0), (4, 5, 0), (5, 1, 0)]
    (warp,) = read(*written({(0, 1): (1, 0, READINGS, told)}))
    assert warp.dropped == 2
    assert warp.ranges == (Range("wait", 0, 1, 2, 1),)


@given(st.recursive(st.just([]), lambda inner: st.lists(st.tuples(st.sampled_from(range(3)), inner), max_size=3)))
def test_nested_ranges_come_back(nested):
    told, expected = [], []

    def write(level, depth):
        for name, inner in level:
            begin = len(told)
            told.append((begin, 2 * name, begin))
            write(inner, depth + 1)
            expected.append(Range(NAMES[name], begin, begin, len(told), depth))
            told.append((len(told), 2 * name + 1, begin))

    write(nested, 0)
    memory, buffer = written({(0, 0): (1, 0, READINGS, told)}, ctas=1, warps=1, capacity=max(1, len(told)))
    found = [warp.ranges for warp in read(memory, buffer)]
    assert found == ([tuple(sorted(expected, key=lambda each: (each.begin, each.depth)))] if told else [])


def warp(number, ranges, readings=READINGS, cta=0, sm=0):
    return Warp(1, cta, number, sm, tuple(ranges), 0, readings)


def test_the_clock_is_told_by_the_readings_that_are_furthest_apart():
    near = warp(0, [], ((0, 0), (1000, 5000)))
    assert clock_ghz([near]) == NOMINAL_GHZ
    far = warp(1, [], ((10_000, 18_000), (10_000, 18_000)))
    assert clock_ghz([near, far]) == pytest.approx(1.8)
    assert clock_ghz([near, warp(1, [], ((10_000, 18_000),) * 2, sm=1)]) == NOMINAL_GHZ


def test_a_trace_aligns_sms_by_the_global_timer():
    one = warp(0, [Range("load", 3, 100, 280)], ((5000, 100), (15_000, 18_100)))
    other = warp(0, [Range("load", 4, 9_000_000, 9_000_180)], ((6000, 9_000_000),) * 2, cta=1, sm=1)
    told = events([one, other])
    names = [(each["name"], each["args"]["name"], each["tid"]) for each in told if each["ph"] == "M"]
    assert names == [
        ("process_name", "CTA 0 of grid 1, SM 0", 0),
        ("thread_name", "warp 0", 0),
        ("process_name", "CTA 1 of grid 1, SM 1", 0),
        ("thread_name", "warp 0", 0),
    ]
    found = [each for each in told if each["ph"] == "X"]
    assert [(each["ts"], each["dur"], each["args"]["argument"]) for each in found] == [(0, 0.1, 3), (1.0, 0.1, 4)]


def test_warps_that_do_the_same_are_a_role():
    warps = [
        warp(0, [Range("load", 0, 0, 30), Range("load", 1, 30, 40)]),
        warp(1, [Range("wait", 0, 0, 60), Range("multiply", 0, 60, 80)]),
        warp(2, [Range("wait", 0, 0, 20), Range("multiply", 0, 20, 80)]),
    ]
    assert [(row.warps, row.name, row.calls, row.clocks, row.share) for row in rows(warps)] == [
        ("0", "load", 2, 40, 1.0),
        ("1-2", "wait", 2, 80, 0.5),
        ("1-2", "multiply", 2, 80, 0.5),
    ]
    assert probe_clocks(warps) == 0  # one range ends where the next begins
    assert probe_clocks([warp(0, [Range("load", 0, 0, 30), Range("load", 1, 42, 60)])]) == 12


@pytest.fixture
def cutepy():
    for name in ("torch", "cutlass"):
        pytest.importorskip(name)
    import cutepy

    return cutepy


@pytest.mark.dsl
@pytest.mark.integration
class TestTraced:
    """Kernels of the DSL, compiled with and without their ranges."""

    def test_without_a_timeline_ranges_leave_no_trace(self, cutepy, monkeypatch):
        from tests.profiling import marked

        spec = cutepy.TensorSpec("int32", (128,))
        plain = cutepy.compile(marked.marked, spec, cache=False)
        with cutepy.profiling.timeline():
            off = cutepy.compile(marked.marked, spec, cache=False, timeline=False)
            on = cutepy.compile(marked.marked, spec, timeline=True)
        assert plain.ptx == off.ptx
        assert "globaltimer" in on.ptx
        # Nor does a source that has no ranges at all give another program.
        monkeypatch.setattr(marked, "mark", marked.unmarked)
        assert cutepy.compile(marked.marked, spec, cache=False).ptx == plain.ptx

    def test_warps_tell_what_they_do(self, cutepy):
        import torch

        from tests.profiling import marked

        with cutepy.simulate(sanitize=True), cutepy.profiling.timeline(ctas=2, events=32) as timeline:
            function = cutepy.compile(marked.marked, cutepy.TensorSpec("int32", (128,)))
            x = torch.zeros(128, dtype=torch.int32)
            function(x)
            first = timeline.warps()
            function(x)
            again = timeline.warps()
            timeline.clear()
            function(x)
            third = timeline.warps()
        assert x.tolist() == ([9] * 32 + [0] * 32) * 2
        assert again == first
        assert {warp.launch for warp in third} == {3}
        assert [(warp.cta, warp.warp) for warp in first] == [(0, 0), (0, 1), (1, 0), (1, 1)]
        names = [(each.name, each.argument, each.depth) for each in first[0].ranges]
        loops = [each for i in range(3) for each in (("loop", i, 0), ("inner", i + 7, 1))]
        assert names == [("load", 0, 0), *loops, ("store", 0, 0)]
        assert [each.name for each in first[1].ranges] == ["load", "loop", "loop", "loop", "store"]

    def test_blocks_of_a_product(self, cutepy, tmp_path, capsys):
        import torch

        with cutepy.simulate(), cutepy.profiling.timeline(ctas=2, events=256) as timeline:
            a, b = (torch.randn(64, 96, dtype=torch.bfloat16) for _ in range(2))
            cutepy.ops.gemm(a, b)
            timeline.print()
            timeline.save_trace(tmp_path / "trace.json")
        roles = {}
        for row in rows(timeline.warps()):
            roles.setdefault(row.warps, set()).add(row.name)
        assert {"acquire", "load"} in roles.values()
        assert any({"wait", "multiply", "epilogue", "store"} <= names for names in roles.values())
        found = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        assert {each["name"] for each in found if each["ph"] == "X"} >= {"acquire", "load", "multiply"}
        assert "multiply" in capsys.readouterr().out

    def test_refusals(self, cutepy):
        from tests.messages import refuses
        from tests.profiling import marked

        with refuses(ValueError):
            cutepy.compile(marked.marked, cutepy.TensorSpec("int32", (128,)), timeline=True)
        with cutepy.profiling.timeline(), refuses(RuntimeError), cutepy.profiling.timeline():
            pass


def test_a_timeline_without_events(capsys):
    from cutepy.profiling.timeline_text import print_timeline

    print_timeline([], simulated=True)
    pins(capsys.readouterr().out)
