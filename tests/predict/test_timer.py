"""`simulate(time=...)`: which CTAs run, what is refused, what a run keeps."""

import numpy as np
import pytest

from cutepy import load_ptx, simulate
from cutepy.predict import ConstantError, Timer, gpu_named
from tests.messages import refuses
from tests.predict.kernels import COPY
from tests.predict.test_known_times import MISSING

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.integration,
    pytest.mark.skipif(bool(MISSING), reason=MISSING or "has tools"),
]


def launch(grid, **options):
    x, y = np.ones(grid << 14, np.uint8), np.zeros(grid << 14, np.uint8)
    with simulate(**options) as run:
        load_ptx(COPY).launch("copy", grid=grid, block=256, args=(x, y))
    return run, sorted(set((np.flatnonzero(y) >> 14).tolist()))


def test_sampled_ctas_run_and_no_others():
    run, ran = launch(1024, time="h100")
    assert (ran[0], ran[-1], len(ran)) == (0, 1023, 9)
    assert [found.sampled_ctas for found in run.predictions] == [9]


@pytest.mark.parametrize(("grid", "expected"), [(132, [0, 66, 131]), (2, [0, 1])])
def test_of_ctas_that_begin_at_once_the_ends_and_the_middle_run(grid, expected):
    _, ran = launch(grid, time="h200")
    assert ran == expected


def test_ctas_that_are_named_run():
    run, ran = launch(64, time=True, ctas=[3, 7])
    assert ran == [3, 7]
    assert run.predictions[0].gpu == "h200"


def test_without_time_all_run_and_nothing_is_predicted():
    run, ran = launch(16)
    assert ran == [*range(16)]
    assert run.predictions == []


def test_a_timer_is_shared_by_runs():
    timer = Timer("h200")
    for _ in range(2):
        launch(8, time=timer)
    assert len(timer.predictions) == 2


def test_what_is_no_gpu_is_refused():
    with refuses(ConstantError):
        gpu_named("v100")
    with refuses(TypeError), simulate(time=3):
        pass
