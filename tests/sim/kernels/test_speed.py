"""How long a GEMM takes in the simulator, against numpy's float32 product in the same run."""

import statistics
import time

import numpy as np
import pytest

from cutepy.sim import simulate
from cutepy.sim.translate import load_module, translate_function
from tests.sim.kernels.test_gemm import compiled, multiply

pytestmark = [pytest.mark.dsl, pytest.mark.deep]

pytest.importorskip("cutlass")

_ROUNDS = 9
_TIMES_NUMPY = 15
_TRANSLATION_S = 0.3


def test_a_gemm_takes_at_most_15_times_numpys_product():
    """512x512x1024 in tiles of 128x128x64; run with OPENBLAS_NUM_THREADS=1, on a quiet machine."""
    a, b = (np.ones(shape, "f4") for shape in ((512, 1024), (1024, 512)))
    ours, numpys = [], []
    with simulate() as run:
        function, signature = compiled(out_dtype="float16")
        multiply(function, signature, run, 512, 512, 1024)
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            a @ b
            numpys.append(time.perf_counter() - start)
            before = sum(launch.seconds for launch in run.launches)
            multiply(function, signature, run, 512, 512, 1024)
            ours.append(sum(launch.seconds for launch in run.launches) - before)
    assert statistics.median(ours) <= _TIMES_NUMPY * statistics.median(numpys)


def test_translation_takes_at_most_300_ms():
    with simulate() as run:
        function, signature = compiled()
        multiply(function, signature, run, 128, 128, 64)
    times = []
    for _ in range(3):
        start = time.process_time()
        for parsed in load_module(run.launches[0].ptx).functions.values():
            translate_function(parsed)
        times.append(time.process_time() - start)
    assert min(times) <= _TRANSLATION_S
