"""Traits of tcgen05.mma: laws of their layouts, names, limits, and where the operands lie."""

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import LayoutError, size, sm100
from cutepy.layouts.sm100.kinds import KINDS, mma_kind
from tests.messages import pins, refuses


@st.composite
def traits(draw):
    kind = mma_kind(draw(st.sampled_from(list(KINDS))))
    group, ws = draw(st.sampled_from((1, 2))), False
    if group == 1 and not kind.block_scaled:
        ws = draw(st.booleans())
    sparse = draw(st.booleans())
    said = {"cta_group": group, "ws": ws, "sparse": sparse}
    m = draw(st.sampled_from(kind.m_choices(**said)))
    n = draw(st.sampled_from(kind.n_choices(**said)))
    source = draw(st.sampled_from(("smem", "tmem")))
    return sm100.umma_traits(kind.name, m, n, a_source=source, **said)


@given(traits())
def test_operands_are_covered_once(made):
    m, n, k = made.shape_mnk
    for layout, extent in ((made.a_layout, m * k), (made.b_layout, n * k), (made.c_layout, m * n)):
        assert {layout(0, 0)} == {0}
        assert size(layout) == extent
        ends = {layout(cta, size(layout, 1) - 1) for cta in range(made.cta_group)}
        assert max(ends) == extent - 1
    assert size(made.thr_id) == made.cta_group


@given(traits())
def test_the_descriptor_is_of_the_same_mma(made):
    found = sm100.InstrDescriptor.decode(int(made.descriptor), kind=made.kind.name)
    assert (found.m, found.n, found.k) == made.shape_mnk
    found.check(cta_group=made.cta_group, ws=made.ws, scale_vector=made.scale_vector)
    assert made.accumulator.layout.size() == made.shape_mnk[0] // made.cta_group * made.shape_mnk[1]
    assert made.source("A") == made.a_source
    assert (made.source("B"), made.source("C")) == ("smem", "tmem")


@given(traits())
def test_names_of_cute_read_back(made):
    if made.name.startswith("SM100_"):
        assert sm100.traits_named(made.name) == made
    else:
        with pytest.raises(LayoutError):
            sm100.traits_named(made.name)


def test_instructions_without_an_atom_have_ptxs_name():
    for kind, said in (
        ("f16", {"ws": True}),
        ("mxf8f6f4", {"a_source": "tmem"}),
        ("tf32", {"a_source": "tmem", "sparse": True}),
        ("mxf4", {"k": 96}),
    ):
        assert sm100.umma_traits(kind, 128, 128, **said).name.startswith("tcgen05.mma")


def test_scale_factors_are_those_of_the_vectors():
    nv = sm100.umma_traits("mxf4nvf4", 128, 96)
    assert (nv.scale_vector, nv.scales_a.columns, nv.scales_b.columns) == (16, 4, 4)
    mx = sm100.umma_traits("mxf8f6f4", 256, 256, cta_group=2)
    assert (mx.scale_vector, mx.scales_a.columns, mx.scales_b.columns) == (32, 4, 8)
    # K = 96 reads 6 or 3 factors, which may begin at any byte that leaves them whole columns.
    for kind, count in (("mxf4nvf4", 8), ("mxf4", 4)):
        long = sm100.umma_traits(kind, 128, 128, k=96)
        assert (long.scales_a.layout.size() // (128 * 4 * long.scale_vector), long.scales_a.columns) == (count, count)
    with refuses(LayoutError):
        _ = sm100.umma_traits("f16", 128, 128).scales_a
    with refuses(LayoutError):
        _ = sm100.umma_traits("f16", 128, 128).a_in_tmem
    with refuses(LayoutError):
        _ = sm100.umma_traits("f16", 64, 64, ws=True, a_source="tmem").a_in_tmem
    assert sm100.umma_traits("f8f6f4", 128, 128, a_dtype="e2m1", a_source="tmem").a_in_tmem.columns == 8


@pytest.mark.parametrize(
    ("kind", "dtype", "bits"),
    [
        ("f16", "f16", 16), ("f16", "bf16", 16), ("tf32", "tf32", 32), ("i8", "u8", 8), ("f8f6f4", "e2m1", 8),
        ("f8f6f4", "e3m2", 8), ("mxf8f6f4", "e5m2", 8), ("mxf4", "e2m1", 4),
    ],
)  # fmt: skip
def test_elements_take_8_bits_or_more_except_packed_fp4(kind, dtype, bits):
    made = sm100.umma_traits(kind, 128, 64, a_dtype=dtype)
    assert (made.a_bits, made.b_bits) == (bits, bits)
    assert made.c_bits == 32
    assert sm100.umma_traits("f16", 128, 64, d_dtype="f16").c_bits == 16


@pytest.mark.parametrize(
    "said",
    [
        {"m": 96},
        {"m": 256},
        {"n": 264},
        {"ws": True, "cta_group": 2, "m": 128},
        {"a_source": "rmem"},
        {"a_source": "tmem", "a_major": "MN"},
        {"scale_vector": 32},
        {"kind": "mxf4", "scale_vector": 16},
        {"kind": "mxf4nvf4", "scale_vector": 32},
        {"kind": "mxf4", "k": 96, "m": 128, "cta_group": 2},
    ],
    ids=str,
)
def test_mmas_that_do_not_exist_are_refused(said):
    with refuses(LayoutError):
        sm100.umma_traits(**{"kind": "f16", "m": 128, "n": 128} | said)


@pytest.mark.parametrize(
    "name",
    [
        "SM90_64x64x16_F32F16F16_SS",
        "SM100_MMA_F16BF16_SS<half_t,half_t,float,128,128,K>",
        "SM100_MMA_F16BF16_SS<half,half_t,float,128,128,K,K>",
        "SM100_MMA_F16BF16_SS<half_t,half_t,float,many,128,K,K>",
        "SM100_MMA_F16BF16_SS<half_t,half_t,float,128,128,K,N>",
        "SM100_MMA_TF32_SS<half_t,half_t,float,128,128,K,K>",
        "SM100_MMA_MXF8F6F4_TS<float_e4m3_t,float_e4m3_t,float,float_ue8m0_t,128,64,K,K>",
        "SM100_MMA_F16BF16_TS_SPARSE<half_t,half_t,float,128,128,K,K>",
    ],
)
def test_names_of_no_atom_are_refused(name):
    with refuses(LayoutError):
        sm100.traits_named(name)


def test_ptx():
    pins(
        "\n".join(
            made.ptx
            for made in (
                sm100.umma_traits("f16", 128, 128),
                sm100.umma_traits("i8", 64, 64, ws=True),
                sm100.umma_traits("tf32", 256, 64, cta_group=2, sparse=True),
                sm100.umma_traits("mxf4nvf4", 128, 64),
            )
        )
    )
