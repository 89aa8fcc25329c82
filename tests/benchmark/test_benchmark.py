"""The benchmark protocol's arithmetic and reports; needs no GPU."""

import json

import pytest
from hypothesis import given, strategies as st

from cutepy.benchmark import Protocol, Report, Row, buffer_sets


@given(st.floats(0.1, 1e6), st.integers(1, 300))
def test_a_turn_uses_every_buffer_set_equally_often(estimate_us, sets):
    protocol = Protocol()
    launches = protocol.launches(estimate_us, sets)
    assert launches >= sets
    assert launches % sets == 0
    assert launches <= max(protocol.max_launches, sets, protocol.turn_us / estimate_us + sets)


@given(st.integers(1, 10**9))
def test_buffer_sets_exceed_the_cache(bytes_per_set):
    sets = buffer_sets(bytes_per_set)
    assert sets >= 2
    assert sets * bytes_per_set > Protocol().cache_bytes


@pytest.mark.parametrize("field", ["rounds", "turn_us", "max_launches"])
def test_protocols_that_measure_nothing_are_refused(field):
    with pytest.raises(ValueError, match="must be positive"):
        Protocol(**{field: 0})


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
