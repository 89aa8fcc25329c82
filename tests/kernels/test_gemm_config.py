"""GEMM configurations: accepted, refused and chosen; needs neither torch nor the DSL."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cutepy.epilogues import epilogue
from cutepy.kernels.gemm import GemmConfig, GemmSignature, select_config
from cutepy.kernels.gemm.gpu import H100, H200, Gpu
from cutepy.kernels.gemm.heuristic.model import Choice
from cutepy.kernels.gemm.heuristic.tiles import MORE_TILES, PROMOTED_TILES, TILES, OutputTile
from cutepy.kernels.gemm.limits import MOST_EXTENT
from cutepy.layouts.sm90 import arch
from tests.messages import refuses

HALVES = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"}
HALF = GemmSignature(**HALVES)
SCALED = GemmSignature(a_dtype="float8_e4m3fn", b_dtype="float8_e4m3fn", out_dtype="bfloat16", scale_rows=(1, 128))
SIGNATURES = [
    HALF,
    GemmSignature(a_dtype="bfloat16", b_dtype="bfloat16", out_dtype="float32", a_major="mn", b_major="mn"),
    GemmSignature.standard(a_dtype="float16", b_dtype="float16", out_dtype="float32", c_dtype="float32", c_major="col"),
    GemmSignature(a_dtype="float8_e4m3fn", b_dtype="float8_e5m2", out_dtype="bfloat16", out_major="col"),
    GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16", batch_modes=2),
]


@pytest.mark.parametrize(
    "changes",
    [
        {"a_dtype": "float64"},
        {"b_dtype": "bfloat16"},
        {"b_dtype": "float8_e4m3fn"},
        {"out_dtype": "float8_e4m3fn"},
        {"a_major": "row"},
        {"out_major": "k"},
        {"c_dtype": "float16"},
        {"c_major": "row"},
        {"batch_modes": 4},
        {"a_dtype": "float8_e5m2", "b_dtype": "float8_e4m3fn", "b_major": "mn"},
    ],
)
def test_signatures_that_no_instruction_has_are_refused(changes):
    with refuses(ValueError):
        GemmSignature.standard(**({"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"} | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"warpgroups": 4},
        {"consumers": 3},
        {"consumers": 2},
        {"warpgroups": 3, "tile_m": 192},
        {"warpgroups": 3, "tile_m": 192, "tile_n": 224},
        {"consumers": 2, "warpgroups": 1, "tile_n": 128, "split_k": 2},
        {"split_k": 3},
        {"split_k": 8, "cluster_m": 2},
        {"split_k": 8},
        {"tile_m": 64},
        {"tile_n": 48},
        {"tile_n": 168},
        {"tile_n": 288},
        {"tile_k": 24},
        {"epi_n": 4},
        {"cluster_m": 3},
        {"cluster_m": 4, "cluster_n": 2},
        {"tile_m": 256, "tile_n": 256},
        {"stages": 5},
        {"stages": 1},
        {"tile_k": 512},
        {"epi_stages": 1},
        {"c_stages": 2},
        {"band_rows": 0},
        {"epi_n": 0},
        {"epi_stages": 100},
        {"epi_stages": 100, "stages": 4},
        {"stages": -8},
        {"epi_stages": -1},
    ],
)
def test_configurations_that_the_hardware_cannot_run_say_why(changes):
    with refuses(ValueError):
        GemmConfig(**({"signature": HALF, "tile_m": 128, "tile_n": 256, "warpgroups": 2} | changes))


def test_a_cluster_splits_the_tile_that_it_shares():
    """CTAs along M share B, of tile_n rows; those along N share A, of tile_m."""
    tiles = {"signature": HALF, "tile_m": 128, "tile_n": 48, "epi_n": 16, "warpgroups": 2}
    assert GemmConfig(**tiles, cluster_n=4).epi_tile == (128, 16)
    assert GemmConfig(**tiles, cluster_m=2).subtiles == 3
    assert GemmConfig(**tiles, cluster_m=4).subtiles == 3
    narrow = tiles | {"tile_n": 24, "epi_n": 8, "tile_k": 16}
    with refuses(ValueError):
        GemmConfig(**narrow, cluster_m=4)


@pytest.mark.parametrize("signature", [SIGNATURES[0], SIGNATURES[2]], ids=["alone", "beside C"])
@pytest.mark.parametrize("tile", [{"warpgroups": 2}, {"consumers": 2, "warpgroups": 1}], ids=["one", "in turns"])
def test_consumers_have_named_barriers_of_their_own_for_each_use(signature, tile):
    config = GemmConfig(signature=signature, tile_m=64 * tile["warpgroups"], tile_n=64, **tile)
    uses = [
        "store",
        *["multiply"] * (config.consumers > 1),
        *["read"] * (config.consumers > 1 and signature.added != ()),
    ]
    taken = [config.named_barriers[use] + consumer for use in uses for consumer in range(config.consumers)]
    assert taken == [*range(1, 1 + len(taken))]


@pytest.mark.parametrize(
    ("name", "value"), [("tile_m", 128.0), ("stages", 2.5), ("tile_n", "a"), ("band_rows", 1.5), ("cluster_m", True)]
)
def test_extents_are_ints(name, value):
    with refuses(TypeError):
        GemmConfig(**({"signature": HALF, "tile_m": 128, "tile_n": 256, "warpgroups": 2} | {name: value}))


def test_a_configuration_is_a_value():
    config = GemmConfig(signature=HALF, tile_m=128, tile_n=256, warpgroups=2)
    spelled_out = {"stages": 4, "tile_k": 64, "epi_stages": 4}
    assert config == GemmConfig(signature=HALF, tile_m=128, tile_n=256, warpgroups=2, **spelled_out)
    assert len({config, GemmConfig(signature=HALF, tile_m=128, tile_n=256, warpgroups=2)}) == 1
    with pytest.raises(AttributeError):
        config.tile_m = 64


def test_the_layouts_are_the_tutorials_with_atoms_along_k_first():
    config = GemmConfig(signature=HALF, tile_m=128, tile_n=128, warpgroups=2, stages=3)
    assert str(config.a_layout) == "Sw<3,4,3> o smem_ptr[16b](unset) o ((8,16),(64,1),(1,3)):((64,512),(1,0),(0,8192))"
    transposed = GemmConfig(
        signature=GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16", a_major="mn"),
        tile_m=128,
        tile_n=128,
        warpgroups=2,
        stages=3,
    )
    assert (
        str(transposed.a_layout)
        == "Sw<3,4,3> o smem_ptr[16b](unset) o ((64,2),(8,8),(1,3)):((1,4096),(64,512),(0,8192))"
    )


@given(
    signature=st.sampled_from(SIGNATURES),
    m=st.integers(1, 20_000),
    n=st.integers(1, 20_000),
    k=st.integers(1, 20_000),
    gpu=st.sampled_from([H200, H100, Gpu(114, 2.04)]),
    batch=st.integers(1, 300),
)
def test_every_problem_gets_a_possible_configuration(signature, m, n, k, gpu, batch):
    config = select_config(signature, m, n, k, batch=batch, gpu=gpu)
    assert config.smem_bytes <= arch.SMEM_BYTES_PER_CTA
    assert config.stages >= 2
    assert config.signature == signature
    assert config.cluster_m == 1 or m > config.tile_m, "a cluster along M needs two rows of tiles"
    assert config.cluster_n == 1 or n > config.tile_n, "a cluster along N needs two columns of tiles"


def test_large_problems_take_large_tiles_and_small_ones_spread():
    large, small = select_config(HALF, 8192, 8192, 8192), select_config(HALF, 512, 512, 512)
    assert large.tile_m * large.tile_n >= 128 * 192
    assert small.tile_m * small.tile_n <= 64 * 64
    with refuses(ValueError):
        select_config(HALF, 0, 1, 1)


@pytest.mark.parametrize("mnk", [(1.5, 8, 8), (8, "8", 8), (8, 8, None)])
def test_extents_that_are_no_integers_are_refused(mnk):
    with refuses(TypeError):
        select_config(HALF, *mnk)
    with refuses(TypeError):
        select_config(HALF, 8, 8, 8, batch=2.0)


@pytest.mark.parametrize("place", range(3))
def test_extents_that_no_kernel_takes_are_refused(place):
    mnk = [64, 64, 64]
    mnk[place] = MOST_EXTENT
    assert select_config(HALF, *mnk).tile_m
    for more in (MOST_EXTENT + 1, 2**40):
        mnk[place] = more
        with refuses(ValueError):
            select_config(HALF, *mnk)


def test_integers_of_numpy_are_extents():
    assert select_config(HALF, *map(np.int64, (512, 512, 512))) == select_config(HALF, 512, 512, 512)


def test_the_tiles_of_a_batch_fill_the_gpu_together():
    alone, many = select_config(HALF, 512, 512, 512), select_config(HALF, 512, 512, 512, batch=64)
    assert alone.tile_m * alone.tile_n < many.tile_m * many.tile_n
    with refuses(ValueError):
        select_config(HALF, 1, 1, 1, batch=0)


def test_the_configuration_needs_neither_torch_nor_the_dsl():
    code = "import sys, cutepy.kernels.gemm; print(sorted({'torch', 'cutlass', 'numpy'} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("tiles", "signature"), [((*TILES, *MORE_TILES), HALF), (PROMOTED_TILES, SCALED)], ids=["plain", "promoted"]
)
def test_every_tile_of_the_heuristic_has_a_kernel(tiles, signature):
    for tile in tiles:
        assert Choice(tile, 1, 1).config(signature, 4096).tile_n == tile.n


def has_kernel(tile):
    try:
        Choice(tile, 1, 1).config(HALF, 4096)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("m", [128, 192, 256])
@pytest.mark.parametrize("consumers", [1, 2])
def test_tiles_of_many_rows_are_tried_up_to_the_widest_that_has_a_kernel(m, consumers):
    tried = {tile.n for tile in (*TILES, *MORE_TILES) if tile == OutputTile(m, tile.n, consumers=consumers)}
    assert max(tried) == max(n for n in range(8, 257, 8) if has_kernel(OutputTile(m, n, consumers=consumers)))
    assert tried == set(range(min(tried), max(tried) + 1, 8))


@pytest.mark.parametrize(
    ("finish", "names"),
    [
        (lambda acc: acc * 2, ["sD"]),
        (lambda acc: {"y": acc, "z": acc + 1}, ["sD0", "sD1"]),
        (lambda acc: {"y": acc, "most": acc.max(1)}, ["sD0"]),
        (lambda acc: {"least": acc.min(1), "y": acc, "z": acc * acc}, ["sD1", "sD2"]),
    ],
    ids=lambda case: None if callable(case) else "-".join(case),
)
def test_each_result_that_is_stored_has_a_buffer_of_its_own(finish, names):
    signature = replace(HALF, epilogue=epilogue(finish).text)
    assert [kind.name for kind in signature.stored] == names
    assert [kind.place for kind in signature.stored] == [int(name[2:] or 0) for name in names]
