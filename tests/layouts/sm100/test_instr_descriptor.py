"""Instruction descriptors of tcgen05.mma: bits by kind, refusals, limits of the shapes."""

from itertools import product

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import LayoutError, sm100
from cutepy.layouts.sm100.kinds import KINDS, mma_kind
from tests.messages import pins, refuses

F8 = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
CODES = {"f16": {"f16": 0, "bf16": 1}, "tf32": {"tf32": 2}, "i8": {"u8": 0, "s8": 1}, "f8f6f4": F8, "mxf8f6f4": F8}
CODES |= {"mxf4": {"e2m1": 1}, "mxf4nvf4": {"e2m1": 1}}


def word_of(kind, m, n, a, b, d, a_mn, b_mn, a_neg, b_neg, extra):
    """The word by the ISA's tables, written apart from the code."""
    word = CODES[kind][a] << 7 | CODES[kind][b] << 10 | a_neg << 13 | b_neg << 14 | a_mn << 15 | b_mn << 16
    word |= n // 8 << 17 | m // 16 << 24 | extra
    return word | ({"f16": 0, "f32": 1, "s32": 2}[d] << 4 if not kind.startswith("mx") else 0)


@pytest.mark.parametrize("kind", list(KINDS))
@given(data=st.data())
def test_words_are_those_of_the_isa(kind, data):
    known = mma_kind(kind)
    group = data.draw(st.sampled_from((1, 2)))
    a, b = (data.draw(st.sampled_from(list(CODES[kind]))) for _ in "AB")
    narrow = ("e2m3", "e3m2", "e2m1")
    a_mn, b_mn = (dtype not in narrow and data.draw(st.booleans()) for dtype in (a, b))
    m = data.draw(st.sampled_from(known.m_choices(cta_group=group)))
    n = data.draw(st.sampled_from(known.n_choices(cta_group=group, b_major="MN" if b_mn else "K")))
    a_neg, b_neg = (kind != "i8" and data.draw(st.booleans()) for _ in "AB")
    choices = {"f16": ("f16", "f32") if a == b == "f16" else ("f32",), "f8f6f4": ("f16", "f32"), "i8": ("s32",)}
    d = data.draw(st.sampled_from(choices.get(kind, ("f32",))))
    said, extra = {}, 0
    if kind.startswith("mx"):
        scale = data.draw(st.sampled_from(list(known.scale_codes)))
        a_id, b_id = (data.draw(st.integers(0, 3)) for _ in "AB")
        said = {"scale_dtype": scale, "a_sf_id": a_id, "b_sf_id": b_id}
        extra = b_id << 4 | (scale == "ue8m0") << 23 | a_id << 29
    if kind.startswith("mxf4") and m == 128 * group and data.draw(st.booleans()):
        said["k"], extra = 96, extra | 1 << 31
    made = sm100.InstrDescriptor(
        kind, m, n, a_dtype=a, b_dtype=b, d_dtype=d, a_negate=a_neg, b_negate=b_neg,
        a_major="MN" if a_mn else "K", b_major="MN" if b_mn else "K", **said,
    )  # fmt: skip
    assert int(made) == word_of(kind, m, n, a, b, d, a_mn, b_mn, a_neg, b_neg, extra)
    assert sm100.InstrDescriptor.decode(int(made), kind=kind) == made
    made.check(cta_group=group)


@pytest.mark.parametrize("kind", list(KINDS))
@given(word=st.integers(0, 2**32 - 1))
def test_a_word_is_a_descriptor_or_an_error(kind, word):
    try:
        found = sm100.InstrDescriptor.decode(word, kind=kind)
    except LayoutError:
        return
    assert int(found) == word


SHAPES = [
    # PTX ISA, "Matrix Shape" of tcgen05: kind, CTAs, ws, sparse, M, N, K.
    *(("f16", 1, False, sparse, (64, 128), range(8, 257, 8), 16 << sparse) for sparse in (0, 1)),
    *(("f16", 2, False, sparse, (128, 256), range(16, 257, 16), 16 << sparse) for sparse in (0, 1)),
    ("f16", 1, True, 0, (32, 64, 128), (64, 128, 256), 16),
    ("tf32", 1, True, 1, (32, 64, 128), (64, 128), 16),
    ("tf32", 1, False, 0, (64, 128), range(8, 257, 8), 8),
    ("f8f6f4", 2, False, 1, (128, 256), range(16, 257, 16), 64),
    ("i8", 1, False, 0, (64, 128), (8, 16, 24, *range(32, 257, 16)), 32),
    ("i8", 2, False, 1, (128, 256), range(32, 257, 32), 64),
    ("mxf8f6f4", 1, False, 0, (128,), range(8, 257, 8), 32),
    ("mxf8f6f4", 2, False, 0, (128, 256), range(16, 257, 16), 32),
    ("mxf8f6f4", 2, False, 1, (256,), range(16, 257, 16), 64),
    ("mxf4nvf4", 1, False, 1, (128,), range(8, 257, 8), 128),
]


@pytest.mark.parametrize(("kind", "group", "ws", "sparse", "ms", "ns", "k"), SHAPES)
def test_shapes_are_those_of_the_isas_table(kind, group, ws, sparse, ms, ns, k):
    known = mma_kind(kind)
    assert known.m_choices(cta_group=group, ws=ws, sparse=bool(sparse)) == tuple(ms)
    assert known.n_choices(cta_group=group, ws=ws, sparse=bool(sparse)) == tuple(ns)
    assert known.k_choices(m=ms[0], cta_group=group, sparse=bool(sparse))[0] == k


def test_qualifiers_of_scale_factors_are_those_of_the_isas_table():
    """PTX ISA, "Block Scaling": factors of a row for the kind's K, by qualifier."""
    want = {
        "mxf8f6f4": {"scale_vec::1X": 1, "block32": 1},
        "mxf4": {"scale_vec::2X": 2, "block32": 2},
        "mxf4nvf4": {"scale_vec::2X": 2, "block32": 2, "scale_vec::4X": 4, "block16": 4},
    }
    for name, kind in KINDS.items():
        assert {qualifier: kind.k // each for qualifier, each in kind.scale_vectors.items()} == want.get(name, {})


def test_no_weight_stationary_mma_has_two_ctas_or_scales():
    for kind, group in product(KINDS, (1, 2)):
        assert bool(mma_kind(kind).m_choices(cta_group=group, ws=True)) == (group == 1 and not kind.startswith("mx"))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "f17"},
        {"m": 96},
        {"n": 12},
        {"m": 32, "n": 8},
        {"a_dtype": "e4m3"},
        {"a_dtype": "bf16", "d_dtype": "f16"},
        {"saturate": True},
        {"sparse_selector": 1},
        {"scale_dtype": "ue8m0"},
        {"k": 32},
        {"max_shift": 4},
        {"kind": "i8", "a_negate": True},
        {"kind": "f8f6f4", "a_dtype": "e2m1", "a_major": "MN"},
        {"kind": "mxf4", "m": 64},
        {"kind": "mxf4", "sparse": True, "k": 96},
        {"kind": "mxf4nvf4", "a_sf_id": 4},
        {"kind": "mxf8f6f4", "d_dtype": "f16"},
    ],
    ids=str,
)
def test_values_that_no_mma_has_are_refused(change):
    with refuses(LayoutError):
        sm100.InstrDescriptor(**{"kind": "f16", "m": 128, "n": 128} | change)


@pytest.mark.parametrize(
    ("word", "kind"),
    [(1 << 6, "f16"), (1 << 23, "f16"), (1 << 29, "i8"), (7 << 7, "f8f6f4"), (1 << 3, "mxf4"), (1 << 31, "mxf8f6f4")],
)
def test_words_that_are_none_of_the_kind_are_refused(word, kind):
    with refuses(LayoutError):
        sm100.InstrDescriptor.decode(int(sm100.InstrDescriptor(kind, 128, 64)) | word, kind=kind)


def test_8_bit_operands_along_n_take_n_in_steps_of_16():
    """CuTe ``atom/mma_traits_sm100.hpp``, SM100_MMA_F8F6F4_SS."""
    assert sm100.InstrDescriptor("f8f6f4", 64, 24).n == 24
    with refuses(LayoutError):
        sm100.InstrDescriptor("f8f6f4", 64, 24, b_major="MN")


def test_arguments_of_other_types_are_refused():
    for wrong in ({"m": "128"}, {"n": 1.5}, {"a_dtype": ["f16"]}, {"k": "16"}, {"max_shift": None}):
        with refuses(TypeError):
            sm100.InstrDescriptor(**{"kind": "f16", "m": 128, "n": 64} | wrong)
    with refuses(LayoutError):
        sm100.InstrDescriptor("f16", 128, 64, a_major="M")
    assert sm100.InstrDescriptor("f16", 128, 64, a_major="mn").a_major == "MN"


def test_a_descriptor_has_32_bits():
    with refuses(LayoutError):
        sm100.InstrDescriptor.decode(1 << 32, kind="f16")


def test_qualifiers_restrict_further():
    with refuses(LayoutError):
        sm100.InstrDescriptor("f16", 128, 24).check(cta_group=2)
    with refuses(LayoutError):
        sm100.InstrDescriptor("f16", 128, 24).check(cta_group=1, ws=True)
    with refuses(LayoutError):
        sm100.InstrDescriptor("f16", 128, 64, max_shift=8).check(cta_group=1)
    with refuses(LayoutError):
        sm100.InstrDescriptor("f16", 128, 64).check(cta_group=3)
    with refuses(LayoutError):
        sm100.InstrDescriptor("mxf4nvf4", 128, 64, a_sf_id=2).check(cta_group=1, scale_vector=16)
    sm100.InstrDescriptor("mxf4nvf4", 128, 64, a_sf_id=2).check(cta_group=1, scale_vector=32)
    sm100.InstrDescriptor("mxf8f6f4", 128, 64, a_sf_id=3, b_sf_id=3).check(cta_group=1, scale_vector=32)
    sm100.InstrDescriptor("mxf4nvf4", 128, 64, a_sf_id=2, k=96).check(cta_group=1, scale_vector=16)


@pytest.mark.parametrize("kind", list(KINDS))
def test_explanations(kind):
    pins(sm100.InstrDescriptor(kind, 128, 64).explain())
