"""Rules of Blackwell's blocks: stages, accumulators and rings that don't fit an MMA are refused in one line."""

import pytest

from cutepy.device.sm100 import rules
from cutepy.layouts import sm100
from tests.messages import refuses

PAIR = sm100.umma_traits("f16", 256, 64, cta_group=2)


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "major", "error"),
    [
        ("A", (128, 64), "bfloat16", "K", TypeError),
        ("A", (256, 64), "float16", "K", ValueError),
        ("B", (64, 64), "float16", "K", ValueError),
        ("B", (32, 40), "float16", "K", ValueError),
        ("B", (32, 64), "float16", "MN", ValueError),
    ],
)
def test_stages_that_an_mma_does_not_read(name, shape, dtype, major, error):
    with refuses(error):
        rules.check_stages(name, PAIR, shape, dtype, major)


@pytest.mark.parametrize(
    ("traits", "columns", "sets"),
    [(PAIR, 64, 2), (PAIR, 64, 0), (sm100.umma_traits("f16", 64, 64), 64, 1)],
    ids=["columns", "sets", "rows"],
)
def test_regions_that_hold_no_accumulators(traits, columns, sets):
    with refuses(ValueError):
        rules.check_accumulators(traits, sm100.TmemPlan.of(C=columns), "C", sets)


@pytest.mark.parametrize(("columns", "accumulators"), [(24, 96), (64, 96)])
def test_subtiles_that_no_load_reads(columns, accumulators):
    with refuses(ValueError):
        rules.check_loaded_columns(columns, accumulators)


def test_a_ring_without_readers():
    with refuses(ValueError):
        rules.check_accumulator_ring(2, 0, 1)
