"""What a GEMM configuration accepts, refuses and chooses; needs neither torch nor the DSL."""

import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cutepy.kernels.gemm import GemmConfig, GemmSignature, select_config
from cutepy.kernels.gemm.gpu import H100, H200, Gpu
from cutepy.kernels.gemm.limits import MOST_EXTENT
from cutepy.layouts.sm90 import arch

HALVES = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"}
HALF = GemmSignature(**HALVES)
SIGNATURES = [
    HALF,
    GemmSignature(a_dtype="bfloat16", b_dtype="bfloat16", out_dtype="float32", a_major="mn", b_major="mn"),
    GemmSignature.standard(a_dtype="float16", b_dtype="float16", out_dtype="float32", c_dtype="float32", c_major="col"),
    GemmSignature(a_dtype="float8_e4m3fn", b_dtype="float8_e5m2", out_dtype="bfloat16", out_major="col"),
    GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16", batch_modes=2),
]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"a_dtype": "float64"}, ["a_dtype must be one of", "got float64"]),
        ({"b_dtype": "bfloat16"}, ["a and b must have one dtype", "float16 and bfloat16"]),
        ({"b_dtype": "float8_e4m3fn"}, ["a and b must have one dtype"]),
        ({"out_dtype": "float8_e4m3fn"}, ["out_dtype must be one of float16, bfloat16, float32"]),
        ({"a_major": "row"}, ["a_major must be one of k, mn, got row"]),
        ({"out_major": "k"}, ["out_major must be one of row, col"]),
        ({"c_dtype": "float16"}, ["c_major must be one of row, col, got None"]),
        ({"c_major": "row"}, ["c_major must be one of None, got row"]),
        ({"batch_modes": 4}, ["batch_modes must be one of 0, 1, 2, 3, got 4"]),
        ({"a_dtype": "float8_e5m2", "b_dtype": "float8_e4m3fn", "b_major": "mn"}, ["b must be K-major", "8-bit"]),
    ],
)
def test_signatures_that_no_instruction_has_are_refused(changes, words):
    with pytest.raises(ValueError, match=re.escape(words[0])) as caught:
        GemmSignature.standard(**({"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"} | changes))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"warpgroups": 4}, ["warpgroups must be from 1 to 3, got 4"]),
        ({"consumers": 3}, ["consumers must be from 1 to 2, got 3"]),
        ({"consumers": 2}, ["at most 3", "160 registers", "got 2 * 2"]),
        ({"warpgroups": 3, "tile_m": 192}, ["192x256 accumulators over 3 warpgroups", "exceed the 160"]),
        (
            {"warpgroups": 3, "tile_m": 192, "tile_n": 224},
            ["112 sums a thread", "within the 128 that each of 512 threads", "at most 200"],
        ),
        ({"consumers": 2, "warpgroups": 1, "tile_n": 128, "split_k": 2}, ["split_k 1, got 2"]),
        ({"split_k": 3}, ["split_k must be 1, 2, 4 or 8, got 3"]),
        ({"split_k": 8, "cluster_m": 2}, ["at most 8 CTAs, got 2 x 1 x 8"]),
        ({"split_k": 8}, ["there is room for 1", "the sums of 7 peers 114688"]),
        ({"tile_m": 64}, ["tile_m must be a positive multiple of 128, got 64"]),
        ({"tile_n": 48}, ["tile_n must be a positive multiple of 32, got 48", "use an epi_n of 8, 16, 24, 48"]),
        ({"tile_n": 168}, ["tile_n must be a positive multiple of 32, got 168", "use an epi_n of 8, 24, 56, 168"]),
        ({"tile_n": 288}, ["tile_n must be at most 256"]),
        ({"tile_k": 24}, ["tile_k must be a positive multiple of 16, got 24", "32 bytes of K"]),
        ({"epi_n": 4}, ["epi_n must be a positive multiple of 8"]),
        ({"cluster_m": 3}, ["cluster_m must be 1, 2 or 4"]),
        ({"cluster_m": 4, "cluster_n": 2}, ["at most 4 CTAs, got 4 x 2"]),
        ({"tile_m": 256, "tile_n": 256}, ["256 registers a thread", "exceed the 232"]),
        ({"stages": 5}, ["5 stages of 49152 bytes", "more than the 232448", "use 4 stages"]),
        ({"stages": 1}, ["stages must be at least 2"]),
        ({"tile_k": 512}, ["stages must be at least 2", "use a smaller tile"]),
        ({"epi_stages": 1}, ["epi_stages must be at least 2"]),
        ({"c_stages": 2}, ["c_stages must be 0 without C"]),
        ({"band_rows": 0}, ["band_rows must be at least 1"]),
        ({"epi_n": 0}, ["epi_n must be a positive multiple of 8, got 0"]),
        ({"epi_stages": 100}, ["room for 0", "100 + 0 stages", "use fewer epi_stages"]),
        ({"epi_stages": 100, "stages": 4}, ["room for 0", "use fewer epi_stages"]),
        ({"stages": -8}, ["stages must be at least 2", "got -8"]),
        ({"epi_stages": -1}, ["epi_stages must be at least 2, got -1"]),
    ],
)
def test_configurations_that_the_hardware_cannot_run_say_why(changes, words):
    with pytest.raises(ValueError, match=re.escape(words[0])) as caught:
        GemmConfig(**({"signature": HALF, "tile_m": 128, "tile_n": 256, "warpgroups": 2} | changes))
    for word in words:
        assert word in str(caught.value)


def test_a_cluster_splits_the_tile_that_it_shares():
    """CTAs along M share B, of tile_n rows; those along N share A, of tile_m."""
    tiles = {"signature": HALF, "tile_m": 128, "tile_n": 48, "epi_n": 16, "warpgroups": 2}
    assert GemmConfig(**tiles, cluster_n=4).epi_tile == (128, 16)
    assert GemmConfig(**tiles, cluster_m=2).subtiles == 3
    assert GemmConfig(**tiles, cluster_m=4).subtiles == 3
    narrow = tiles | {"tile_n": 24, "epi_n": 8, "tile_k": 16}
    with pytest.raises(ValueError, match=r"4 CTAs .* parts of whole 128 bytes, got 24 lines of 32 bytes"):
        GemmConfig(**narrow, cluster_m=4)


@pytest.mark.parametrize(
    ("name", "value"), [("tile_m", 128.0), ("stages", 2.5), ("tile_n", "a"), ("band_rows", 1.5), ("cluster_m", True)]
)
def test_extents_are_ints(name, value):
    with pytest.raises(TypeError, match=f"{name} must be an int, got {value!r}"):
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
    with pytest.raises(ValueError, match="must be positive"):
        select_config(HALF, 0, 1, 1)


@pytest.mark.parametrize("mnk", [(1.5, 8, 8), (8, "8", 8), (8, 8, None)])
def test_extents_that_are_no_integers_are_refused(mnk):
    with pytest.raises(TypeError, match=r"^m, n, k and batch must be integers, got .*; round them"):
        select_config(HALF, *mnk)
    with pytest.raises(TypeError, match="must be integers"):
        select_config(HALF, 8, 8, 8, batch=2.0)


@pytest.mark.parametrize("place", range(3))
def test_extents_that_no_kernel_takes_are_refused(place):
    mnk = [64, 64, 64]
    mnk[place] = MOST_EXTENT
    assert select_config(HALF, *mnk).tile_m
    for more in (MOST_EXTENT + 1, 2**40):
        mnk[place] = more
        with pytest.raises(ValueError, match=f"^{'mnk'[place]} must be at most {MOST_EXTENT}, .* got {more}; split it"):
            select_config(HALF, *mnk)


def test_integers_of_numpy_are_extents():
    assert select_config(HALF, *map(np.int64, (512, 512, 512))) == select_config(HALF, 512, 512, 512)


def test_the_tiles_of_a_batch_fill_the_gpu_together():
    alone, many = select_config(HALF, 512, 512, 512), select_config(HALF, 512, 512, 512, batch=64)
    assert alone.tile_m * alone.tile_n < many.tile_m * many.tile_n
    with pytest.raises(ValueError, match=r"batch must be positive, got 1, 1, 1, 0; an empty product"):
        select_config(HALF, 1, 1, 1, batch=0)


def test_the_configuration_needs_neither_torch_nor_the_dsl():
    code = "import sys, cutepy.kernels.gemm; print(sorted({'torch', 'cutlass', 'numpy'} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"
