"""Groups of 8-bit operands: sums promoted every 128 of K, with scales of groups, bit for bit, and certified."""

import pytest
from hypothesis import given, settings, strategies as st

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = [pytest.mark.integration, pytest.mark.dsl]

import cutepy  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature  # noqa: E402
from cutepy.kernels.grouped import GroupedConfig, compile_grouped, select_grouped  # noqa: E402
from cutepy.kernels.grouped.reference import grouped_reference  # noqa: E402

E4M3 = torch.float8_e4m3fn
UNTOUCHED = 77.0


def configured(along, rows, padded=False, out_major="row", **tiling):
    signature = GemmSignature(
        a_dtype="float8_e4m3fn",
        b_dtype="float8_e4m3fn",
        out_dtype="float32",
        out_major=out_major,
        scale_rows=rows,
    )
    tiling = {"tile_m": 128, "tile_n": 32, "warpgroups": 2, "epi_n": 16, "stages": 3, "band_rows": 2, **tiling}
    return GroupedConfig(gemm=GemmConfig(signature=signature, **tiling), along=along, padded=padded)


CONFIGS = {
    "rows": configured("m", (1, 128)),
    "rows, split k": configured("m", (1, 1), tile_m=64, tile_k=256, warpgroups=1, split_k=2, cluster_n=2),
    "masked": configured("m", (1, 128), padded=True),
    "columns": configured("n", (128, 1), out_major="col"),
    "k": configured("k", (1, 1), cluster_m=2),
}
SPLIT = [name for name in CONFIGS if "split" in name]
ALONE = [name for name in CONFIGS if name not in SPLIT]


def operand(config, name, rows, k, groups):
    """Draw small whole numbers, and powers of two as scales, NaN and infinity behind them; and what both stand for."""
    place = "AB".index(name[1])
    shape = (groups, rows, k) if config.grouping(name).batched else (rows, k)
    x, by = torch.randint(-3, 4, shape).to(E4M3), config.gemm.signature.scale_rows[place]
    blocks = -(-k // 128)
    whole = torch.full((*shape[:-2], -(-rows // by), blocks + 2), float("nan"))
    scale = whole[..., :blocks]
    scale.copy_(2.0 ** torch.randint(-2, 3, scale.shape))
    each = scale.double().repeat_interleave(by, -2)[..., :rows, :].repeat_interleave(128, -1)[..., :k]
    return x, scale, x.double() * each


def check(name, groups, mnk, sms=3, certified=False):
    """Run in the simulator, and compare, what belongs to no group too."""
    config, (m, n, k) = CONFIGS[name], mnk
    a, scale_a, wide_a = operand(config, "sA", m, k, len(groups))
    b, scale_b, wide_b = operand(config, "sB", n, k, len(groups))
    shape = (len(groups), m, n) if config.grouping("sD").batched else (m, n)
    out = torch.full(shape, UNTOUCHED) if config.along != "n" else torch.full((n, m), UNTOUCHED).mT
    ends = torch.tensor(groups, dtype=torch.int32)
    expected = grouped_reference(wide_a, wide_b, ends, out.clone(), config.along)
    with cutepy.simulate(sanitize=True) as run:
        compile_grouped(config)(a, b, ends, None, (out,), sms, scale_a, scale_b)
    assert torch.equal(out, expected)
    assert not run.hazards
    assert not certified or all(each.is_certified for each in run.certificates)


@pytest.mark.first(2)
@pytest.mark.parametrize("name", ALONE)
@settings(max_examples=3)
@given(data=st.data())
def test_groups_of_any_extents(name, data):
    """Empty ones, of one row, of more than a tile; K of less than 128, of 128, and ragged."""
    along, padded = CONFIGS[name].along, CONFIGS[name].padded
    lengths = data.draw(st.lists(st.sampled_from([0, 0, 1, 17, 128, 129]), min_size=1, max_size=4))
    mnk = [4 * data.draw(st.integers(1, 20)) for _ in range(3)]
    mnk[2] = data.draw(st.sampled_from([16, 128, 272, 400]))
    if along == "k":
        lengths = [-(-length // 128) * 128 for length in lengths]
        lengths[-1] -= data.draw(st.sampled_from([0, 16])) if lengths[-1] else 0  # the last may end with K
    groups = torch.tensor(lengths).cumsum(0).tolist()
    total = max(lengths) if padded else groups[-1]
    more = 0 if along == "k" else data.draw(st.integers(0, 40))
    mnk["mnk".index(along)] = max(total, 16) + more
    check(name, lengths if padded else groups, mnk, data.draw(st.sampled_from([2, 5, 132])))


@pytest.mark.parametrize("name", [*ALONE, *(pytest.param(name, marks=pytest.mark.deep) for name in SPLIT)])
def test_one_schedule_speaks_for_all(name):
    groups = {"masked": [70, 0, 5], "k": [256, 256, 384, 400]}.get(name, [70, 70, 75, 140])
    mnk = [72, 80, 400]
    mnk["mnk".index(CONFIGS[name].along)] = {"masked": 72, "k": 400}.get(name, 144)
    check(name, groups, mnk, sms=4, certified=True)


def test_an_end_within_128_of_k_is_taken_for_the_next_multiple():
    """On the GPU nobody looks: what lies between belongs to the group before, and nothing is computed twice."""
    config = CONFIGS["k"]
    a, scale_a, wide_a = operand(config, "sA", 72, 400, 3)
    b, scale_b, wide_b = operand(config, "sB", 80, 400, 3)
    found = []
    for ends in ([1, 130, 400], [128, 256, 400]):
        out = torch.full((3, 72, 80), UNTOUCHED)
        with cutepy.simulate():
            compile_grouped(config)(a, b, torch.tensor(ends).int(), None, (out,), 4, scale_a, scale_b)
        found.append(out)
    assert torch.equal(*found)
    assert torch.equal(found[0].double().sum(0), wide_a @ wide_b.mT)


def test_a_stage_of_two_blocks_along_k_is_refused():
    with refuses(ValueError):
        configured("k", (1, 1), tile_m=64, tile_k=256, warpgroups=1)


@given(
    along=st.sampled_from("mnk"),
    mnk=st.tuples(*[st.integers(1, 20000)] * 3),
    groups=st.integers(1, 300),
    rows=st.tuples(*[st.sampled_from([0, 1, 128])] * 2) | st.none(),
)
@settings(max_examples=30)
def test_everything_has_a_configuration(along, mnk, groups, rows):
    major = "col" if along == "n" else "row"
    types = {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e5m2", "out_dtype": "bfloat16"}
    signature = GemmSignature(**types, out_major=major, scale_rows=rows)
    config = select_grouped(signature, along, mnk, groups).config
    assert config.unit == (128 if along == "k" else 1)


@pytest.mark.deep
@pytest.mark.parametrize("tokens", [4096, 16384])
@pytest.mark.parametrize(("along", "rows"), [("m", (1, 128)), ("k", (1, 1))])
def test_what_is_chosen_for_experts_spills_nothing_and_no_mma_waits_for_another(along, rows, tokens):
    from cutepy.binaries.ptxas import assemble

    types = {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e4m3fn", "out_dtype": "bfloat16"}
    _, config = select_grouped(GemmSignature(**types, scale_rows=rows), along, (tokens, 4096, 7168), 8)
    compiled = compile_grouped(config)
    assert [each.spill_store_bytes for each in compiled.resources] == [0]
    assert assemble(compiled.ptx).advice == ()
