import pytest
from hypothesis import given, strategies as st

from cutepy.profiling import Record, Recording, ScopeCall, tree
from cutepy.profiling.names import short_name


def kernel(name, start_us, end_us, scope=None, **rest):
    return Record(name, start_ns=1000 * start_us, end_ns=1000 * end_us, scope=scope, **rest)


def test_times_calls_and_shares():
    scopes = (ScopeCall("layer"), ScopeCall("mm", 0), ScopeCall("layer"), ScopeCall("mm", 2))
    records = (kernel("gemm", 0, 4, 1), kernel("relu", 4, 5, 0), kernel("gemm", 5, 9, 3), kernel("copy", 9, 10))
    root = tree(Recording(records, scopes))
    assert (root.calls, root.time_ns, root.launches) == (1, 10_000, 4)
    layer = root["layer"]
    assert (layer.calls, layer.launches, layer.time_ns) == (2, 3, 9000)
    assert (layer["mm"]["gemm"].calls, layer["mm"].time_ns) == (2, 8000)
    assert [node.name for node in root.walk()] == ["", "layer", "mm", "gemm", "relu", "copy"]


@pytest.mark.parametrize(("name", "short"), [("_Z5scalePff", "scale"), ("_Zone", "_Zone"), ("_Z", "_Z")])
def test_names_of_cpp_are_short_and_others_stay(name, short):
    assert short_name(name) == short


def test_a_gap_is_of_the_innermost_pass_around_it():
    scopes = (ScopeCall("a"), ScopeCall("b", 0), ScopeCall("a"))
    records = (kernel("k", 0, 1, 1), kernel("k", 3, 4, 1), kernel("k", 9, 10, 0), kernel("k", 20, 21, 2))
    root = tree(Recording(records, scopes))
    assert root["a"]["b"].gap_ns == 2000
    assert root["a"].gap_ns == 2000 + 5000
    assert root.gap_ns == 2000 + 5000 + 10_000


def test_streams_have_gaps_of_their_own():
    records = (kernel("k", 0, 1), kernel("k", 0, 10, stream=7), kernel("k", 4, 5), kernel("k", 4, 5, device=1))
    assert tree(Recording(records)).gap_ns == 3000
    assert tree(Recording(records)).overlap_ns == 0


def test_programmatic_launches_overlap_in_their_stream():
    records = (kernel("k", 0, 10), kernel("k", 8, 12), kernel("k", 9, 11), kernel("k", 14, 15))
    root = tree(Recording(records))
    assert (root.overlap_ns, root.gap_ns) == (2000 + 2000, 2000)


def test_rates_of_a_scope_that_states_its_needs_are_without_the_backward_pass():
    scopes = (ScopeCall("attention", flops=8e9, bytes=2e6), ScopeCall("backward", 0))
    recording = Recording((kernel("f", 0, 10, 0), kernel("b", 10, 40, 1)), scopes, gpu="NVIDIA H200")
    node = tree(recording)["attention"]
    assert (node.time_ns, node.rated_ns) == (40_000, 10_000)
    assert (node.tflops, node.tbytes) == (800.0, 0.2)
    assert node.roofline == pytest.approx(800 / 989)


def test_scopes_without_needs_have_the_sum_of_those_below():
    scopes = (ScopeCall("step"), ScopeCall("a", 0, flops=1e6), ScopeCall("b", 0, flops=2e6, bytes=5))
    root = tree(Recording((kernel("k", 0, 1, 1), kernel("k", 1, 3, 2)), scopes))
    node = root["step"]
    assert (node.flops, node.bytes, node.tflops, node.roofline) == (3e6, 5, 1.0, None)
    assert (root.flops, root.bytes, root.tflops, root.roofline) == (3e6, 5, 1.0, None)


def test_the_whole_has_the_sum_of_the_outermost_scopes():
    scopes = (ScopeCall("a", flops=1e6, bytes=7), ScopeCall("b"), ScopeCall("c", flops=2e6))
    root = tree(Recording((kernel("k", 0, 1, 0), kernel("k", 1, 3, 2)), scopes))
    assert (root.flops, root.bytes, root.tflops) == (3e6, 7, 1.0)


def test_replays_repeat_the_needs_of_a_captured_scope():
    scopes = (ScopeCall("replay"), ScopeCall("captured", flops=1e6))
    records = tuple(kernel("k", n, n + 1, 1, graph_launch=n) for n in range(3))
    node = tree(Recording(records, scopes))["captured"]
    assert (node.calls, node.flops, node.tflops) == (3, 3e6, 1.0)


def test_copies_tell_their_rate():
    node = tree(Recording((kernel("copy HTOD", 0, 1, kind="copy", bytes=5_000_000),)))["copy HTOD"]
    assert (node.kind, node.tbytes) == ("copy", 5.0)


def test_simulated_launches_have_no_time():
    root = tree(Recording((Record("k"), Record("k"))))
    assert (root.launches, root.simulated, root.time_ns, root["k"].calls) == (2, 2, 0, 2)


@st.composite
def recordings(draw):
    calls = []
    for n in range(draw(st.integers(0, 6))):
        parent = draw(st.none() | st.integers(0, n - 1)) if n else None
        calls.append(ScopeCall(draw(st.sampled_from("abc")), parent, draw(st.none() | st.integers(1, 9))))
    records, scopes = [], st.none() | st.integers(0, len(calls) - 1) if calls else st.none()
    for _ in range(draw(st.integers(0, 8))):
        start, us = draw(st.integers(0, 50)), draw(st.integers(1, 9))
        records.append(
            kernel(draw(st.sampled_from("xyz")), start, start + us, draw(scopes), stream=draw(st.integers(0, 1)))
        )
    return Recording(tuple(records), tuple(calls))


@given(recordings())
def test_a_scope_is_the_sum_of_what_is_below(recording):
    root = tree(recording)
    assert root.launches == len(recording.records)
    for node in root.walk():
        below = node.children.values()
        if node.kind == "scope":
            assert node.time_ns == sum(child.time_ns for child in below)
            assert node.launches == sum(child.launches for child in below)
            assert node.gap_ns >= sum(child.gap_ns for child in below)


@given(recordings())
def test_busy_time_gaps_and_overlaps_fill_a_stream(recording):
    root, streams = tree(recording), {record.stream for record in recording.records}
    spans = 0
    for stream in streams:
        own = [record for record in recording.records if record.stream == stream]
        spans += max(r.end_ns for r in own) - min(r.start_ns for r in own)
    assert root.time_ns - root.overlap_ns + root.gap_ns == spans


@given(recordings())
def test_a_saved_recording_is_read_as_it_was(recording):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json"
        recording.save(path)
        assert Recording.load(path) == recording
