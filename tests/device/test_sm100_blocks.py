"""Rules of Blackwell's blocks: what doesn't fit an MMA, or its launch, is refused in one line."""

import pytest

import cutepy
from cutepy.device.sm100 import rules
from cutepy.layouts import sm100
from tests.messages import refuses

cutlass = pytest.importorskip("cutlass")
cute = pytest.importorskip("cutlass.cute")
from cutepy.device.sm100.accumulators import make_accumulator_load, make_row_load  # noqa: E402 - imports the DSL

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


@pytest.mark.parametrize("majors", [("K", "K"), ("K", "MN"), ("MN", "K"), ("MN", "MN")])
@pytest.mark.parametrize("group", [1, 2])
def test_stages_are_of_the_major_that_the_mma_reads_of_them(majors, group):
    """Of each operand its own."""
    traits = sm100.umma_traits("f16", 128 * group, 64, cta_group=group, a_major=majors[0], b_major=majors[1])
    for name, rows, major in zip("AB", (128, 64 // group), majors, strict=True):
        for given in ("K", "MN", None):
            if given in (major, None):
                rules.check_stages(name, traits, (rows, 64), "float16", given)
            else:
                with pytest.raises(ValueError, match=name):
                    rules.check_stages(name, traits, (rows, 64), "float16", given)


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


@cute.kernel
def _loads(rows: cutlass.Constexpr):
    tidx = cute.arch.thread_idx()[0]
    if cutlass.const_expr(rows):
        stages = cute.make_layout((rules.LANES, 32, 2), stride=(32, 1, 32 * rules.LANES))
        make_row_load(cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, stages, 128), tidx)
    else:
        base = cute.make_ptr(cutlass.Float32, 0, cute.AddressSpace.tmem, assumed_align=16)
        layout = cute.make_layout(((rules.LANES, 64), 1, 1, 2), stride=((1 << 16, 1), 0, 0, 64))
        make_accumulator_load(cute.make_tensor(base, layout), 32, tidx)


@cute.jit
def _launch(rows: cutlass.Constexpr, threads: cutlass.Constexpr):
    _loads(rows).launch(grid=(1, 1, 1), block=(threads, 1, 1))


@pytest.mark.dsl
@pytest.mark.integration
@pytest.mark.parametrize("rows", [True, False])
def test_rows_of_accumulators_need_a_thread_each(rows):
    with cutepy.simulate(arch="sm_100a"):
        cute.compile(_launch, rows, 192)
        with refuses(ValueError):
            cute.compile(_launch, rows, 96)
