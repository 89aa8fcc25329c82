"""The benchmark protocol's arithmetic and reports; needs no GPU."""

import json
import sys
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from cutepy.benchmark import Protocol, Report, Row, buffer_sets, compare, protocol as protocol_module, regressions
from tests.messages import refuses


@given(st.floats(0.1, 1e6), st.integers(1, 300))
def test_a_turn_uses_every_buffer_set_equally_often(estimate_us, sets):
    protocol = Protocol()
    launches = protocol.launches(estimate_us, sets)
    assert launches >= sets
    assert launches % sets == 0
    assert launches <= max(protocol.max_launches, sets, protocol.turn_us / estimate_us + sets)


@pytest.mark.parametrize(
    ("estimate_us", "sets", "launches"),
    [(21.0, 3, 192), (20.0, 3, 198), (0.0, 3, 198), (1e6, 7, 7), (1.0, 300, 300)],
)
def test_a_turn_has_about_the_time_that_it_aims_at(estimate_us, sets, launches):
    assert Protocol().launches(estimate_us, sets) == launches


class Cuda:
    """Stand-in for `torch.cuda`: only launches advance its clock, in microseconds; one replay is slow."""

    SLOW = 6

    def __init__(self):
        self.now, self.captured, self.replays, self.launches = 0.0, None, [], []

    def kernel(self, name, us):
        def launch(index):
            self.launches.append((name, index))
            if self.captured is None:
                self.now += us
            else:
                self.captured.append((name, us))

        return launch

    def Stream(self):
        return SimpleNamespace(wait_stream=lambda _: None, synchronize=lambda: None)

    def current_stream(self):
        return None

    def stream(self, _):
        return nullcontext()

    def synchronize(self):
        pass

    def CUDAGraph(self):
        nodes = []

        def replay():
            self.replays.append(nodes[0][0])
            self.now += sum(us for _, us in nodes) * (9 if len(self.replays) == self.SLOW else 1)

        return SimpleNamespace(nodes=nodes, replay=replay)

    @contextmanager
    def graph(self, graph, stream):
        self.captured = graph.nodes
        yield
        self.captured = None

    def Event(self, enable_timing):
        event = SimpleNamespace(synchronize=lambda: None)
        event.record = lambda: setattr(event, "at", self.now)
        event.elapsed_time = lambda end: (end.at - event.at) / 1e3
        return event


def test_contenders_take_turns_on_all_buffers_and_company_is_subtracted(monkeypatch):
    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(protocol_module, "time", SimpleNamespace(perf_counter=lambda: cuda.now / 1e6))
    contenders = {"a": cuda.kernel("a", 10.0), "b": cuda.kernel("b", 30.0)}
    lengths = Protocol(rounds=3, turn_us=60.0)

    found = compare(contenders, sets=3, protocol=lengths, company=cuda.kernel("company", 4.0))

    assert cuda.replays == ["a", "b", "company", *["company", "a", "b"] * 3]
    for name, us in (("a", 10.0), ("b", 30.0)):
        assert (found[name].device_us, found[name].call_us) == (pytest.approx(us), pytest.approx(us))
    assert [index for name, index in cuda.launches if name == "a"] == [0, 1, 2] * (2 + 2 + 3 * 2)
    # behind each captured launch of both, and as a contender of its own
    assert [index for name, index in cuda.launches if name == "company"] == [0, 1, 2] * (2 + 1 + 2 + 5)


def test_launches_that_no_graph_takes_are_timed_without_one(monkeypatch):
    """One that waits for the GPU fails in a capture; the others of a turn are captured as ever."""
    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(protocol_module, "time", SimpleNamespace(perf_counter=lambda: cuda.now / 1e6))
    launch = cuda.kernel("waits", 40.0)

    def waits(index):
        if cuda.captured is not None:
            cuda.captured = None
            raise RuntimeError("operation not permitted when stream is capturing")
        launch(index)

    contenders, lengths = {"a": cuda.kernel("a", 10.0), "waits": waits}, Protocol(rounds=3, turn_us=60.0)
    with pytest.warns(UserWarning, match="CUDA graph"):
        found = compare(contenders, sets=2, protocol=lengths)

    assert found["a"].device_us == pytest.approx(10.0)
    assert (found["waits"].device_us, found["waits"].call_us) == (pytest.approx(40.0), pytest.approx(40.0))
    assert set(cuda.replays) == {"a"}


@given(st.integers(1, 10**9))
def test_buffer_sets_exceed_the_cache(bytes_per_set):
    sets = buffer_sets(bytes_per_set)
    assert sets >= 2
    assert sets * bytes_per_set > Protocol().cache_bytes


@pytest.mark.parametrize("field", ["rounds", "turn_us", "max_launches"])
def test_protocols_that_measure_nothing_are_refused(field):
    with refuses(ValueError):
        Protocol(**{field: 0})
    assert getattr(Protocol(**{field: 1}), field) == 1


ROWS = [
    Row("float16 64x64x64", "cutepy", 10.0, 12.0, 1e9, 1e6, 2e-4),
    Row("float16 64x64x64", "cuBLAS", 8.0, 9.0, 1e9, 1e6, 2e-4),
    Row("float16 8x8x8", "cutepy", 5.0, 6.0, 1e6, 1e6, 3e-4),
]


def test_the_report_divides_the_best_peer_by_us():
    report = Report(ROWS, {"gpu": "none"})
    assert report.ratio("float16 64x64x64") == pytest.approx(0.8)
    assert report.ratio("float16 8x8x8") is None
    table = report.table().splitlines()
    assert table[0] == "gpu: none"
    assert "0.800 ################" in table[2]
    assert "100.0" in table[2], "TFLOP/s"


def test_the_report_is_saved_as_json(tmp_path):
    path = tmp_path / "report.json"
    Report(ROWS, {"gpu": "none"}).save(path)
    saved = json.loads(path.read_text())
    assert saved["environment"] == {"gpu": "none"}
    assert [row["ratio"] for row in saved["rows"]] == [pytest.approx(0.8), None, None]
    assert saved["rows"][1]["contender"] == "cuBLAS"


def test_a_saved_report_is_read_again(tmp_path):
    path = tmp_path / "report.json"
    rows = [*ROWS, Row("float16 8x8x8", "cuBLAS", 5.0, 6.0, 1e6, 1e6, 3e-4, 0.01)]
    Report(rows, {"gpu": "none"}).save(path)
    assert Report.load(path) == Report(rows, {"gpu": "none"})


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"rows": [{}], "environment": {}}', '{"rows": [1], "environment": {}}']
)
def test_what_is_no_report_is_refused(tmp_path, text):
    path = tmp_path / "report.json"
    path.write_text(text)
    with refuses(ValueError):
        Report.load(path)


def test_what_is_slower_than_it_was_is_told_beyond_the_noise():
    def report(ours, theirs, noise=0.0):
        rows = [Row("p", "cutepy", ours, 1.0, 1.0, 1.0, 0.0, noise), Row("q", "cutepy", 1.0, 1.0, 1.0, 1.0, 0.0)]
        return Report([*rows, *([Row("p", "cuBLAS", theirs, 1.0, 1.0, 1.0, 0.0)] if theirs else [])])

    assert regressions(report(20.0, 20.0), report(10.0, 10.0)) == []  # the clock was lower
    assert regressions(report(10.0, 9.0), report(10.0, 10.0)) == [
        "p: 0.900 of the best peer, 1.000 before (0.900 times as fast)"
    ]
    assert regressions(report(10.0, 9.0, noise=0.11), report(10.0, 10.0)) == []
    assert regressions(report(11.0, 9.0), report(10.0, None)) == ["p: 11.0 us, 10.0 before (0.909 times as fast)"]
    assert regressions(report(11.0, None), Report([])) == []
