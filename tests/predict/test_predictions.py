"""Whole predictions, pinned: a change of the model shows which times, uses and waits it moves."""

import json
from collections import Counter

import pytest

from cutepy.predict import Timer
from cutepy.predict.report import as_json, lines, timeline
from tests.messages import pins
from tests.predict.kernels import COPY, HEAD, MIXED, UNEVEN, chain, predicted, ring, strided, zeros
from tests.predict.test_known_times import MISSING

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "has tools")

LAUNCHES = {
    "copy, one round": (COPY, "copy", 300, 256, 300 << 14),
    "copy, many rounds": (COPY, "copy", 20000, 256, 20000 << 14),
    "chain": (chain(64), "chain", 132, 128, 4096),
    "ring": (ring(2, 8, 2048), "ring", 132, 64, 132 << 14),
    "large ring": (ring(4, 8, 32768), "ring", 300, 64, 300 << 18),
    "strided": (strided(2, 8), "strided", 4, 1024, 4096),
    "mixed": (MIXED, "mixed", 8, 128, 1 << 15),
    "uneven, rounds": (UNEVEN, "uneven", 2560, 128, 1 << 14),
    "uneven, at once": (UNEVEN, "uneven", 1024, 128, 1 << 14),
}


def launch(case, gpu):
    text, name, grid, block, size = LAUNCHES[case]
    count = 2 if name in ("copy", "mixed") else 1
    arrays = [zeros(size) for _ in range(count)]
    return predicted(text, name, grid, block, *arrays, *([32] if name == "chain" else []), gpu=gpu)


def rounded(value):
    """Keep four digits: libraries of other machines differ in the last ones."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items() if name not in ("name", "seconds")}
    return [rounded(each) for each in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("case", LAUNCHES)
def test_predictions_stay(case):
    found = launch(case, "h200")
    (plain,) = as_json([found])
    pins("\n".join([*(f"{name}: {json.dumps(each)}" for name, each in rounded(plain).items()), *lines(found)]))


def test_another_gpu_takes_another_time():
    told = {case: launch(case, "h100") for case in ("copy, many rounds", "mixed", "chain")}
    pins("\n".join(f"{case}: {found.us:.4g} us, {found.clock_hz:.4g} Hz" for case, found in told.items()))


SHORT = f"""{HEAD}.visible .entry short(.param .u64 y)
{{
    .reg .b64 %d; .reg .b32 %r;
    ld.param.u64 %d, [y]; mov.u32 %r, 0; st.global.u32 [%d], %r;
    ret;
}}
"""


@pytest.mark.parametrize("block", [(1024, 1, 1), (32, 32, 1), (16, 8, 8)])
@pytest.mark.parametrize("rounds", [1, 3, 8, 9])
def test_the_tail_is_told_of_launches_whose_rounds_are_all_simulated(rounds, block):
    """SMs hold two CTAs of 1024 threads, and four times as many are simulated: the half round at the end is idle."""
    found = predicted(SHORT, "short", 132 * rounds - 66, block, zeros(4))
    assert found.tail == pytest.approx(0.5 / rounds if rounds <= 8 else 0.0)


def test_a_timeline_has_the_events_of_each_track():
    timer = Timer("h200", keeps_events=True)
    for case in ("mixed", "chain", "ring"):
        launch(case, timer)
    told = timeline(timer.predictions)["traceEvents"]
    names = {(each["pid"], each["tid"]): each["args"]["name"] for each in told if each["name"] == "thread_name"}
    spans = [each for each in told if each["ph"] == "X"]
    counts = Counter((each["pid"], names[each["pid"], each["tid"]], each["name"]) for each in spans)
    pins("\n".join(f"{pid} {track}: {count} x {name}" for (pid, track, name), count in sorted(counts.items())))
    pins("\n".join(each["args"]["name"] for each in told if each["name"] == "process_name"))
    ends: dict[int, float] = {}
    for each in spans:
        assert each["dur"] >= 0
        ends[each["pid"]] = max(ends.get(each["pid"], 0.0), each["ts"] + each["dur"])
    pins("\n".join(f"{pid}: {end:.4g} us" for pid, end in sorted(ends.items())))
