"""Speed of the simulator: bounds of `cutepy bench sim`, on a quiet machine."""

import pytest

from cutepy.suites import sim

pytestmark = [pytest.mark.dsl, pytest.mark.deep]

pytest.importorskip("cutlass")

_TIMES_NUMPY = 15
_TIMES_FASTER_THAN_TRITON = 5
_TRANSLATION_S = 0.3
_LARGE_S = 60
_LARGE_GIB = 4


def test_a_gemm_on_one_core_beside_numpy_and_tritons_interpreter():
    """512x512x1024 in tiles of 128x128x64, medians of 9 rounds."""
    gemm, numpys, tritons, translation = sim.small_product()
    assert gemm.right
    assert gemm.value <= _TIMES_NUMPY * numpys.value
    assert tritons.value is None or gemm.value * _TIMES_FASTER_THAN_TRITON <= tritons.value
    assert translation.value <= _TRANSLATION_S


def test_a_large_gemm_takes_a_minute_at_most_and_fits():
    """4096x4096x4096 on all cores."""
    gemm, memory = sim.large_product()
    assert gemm.right
    assert gemm.value <= _LARGE_S
    assert memory.value <= _LARGE_GIB
