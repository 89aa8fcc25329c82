"""Grouped products: the kernel in the simulator, bit for bit, sanitized and certified, over groups of any extents."""

import pytest
from hypothesis import given, settings, strategies as st

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = [pytest.mark.integration, pytest.mark.dsl]

import cutepy  # noqa: E402
from cutepy.epilogues import Column, Row, Scalar, Tile  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature  # noqa: E402
from cutepy.kernels.grouped import GroupedConfig, compile_grouped, select_grouped  # noqa: E402
from cutepy.kernels.grouped.reference import grouped_reference  # noqa: E402
from cutepy.sim.sanitize.reports.collection import HazardError  # noqa: E402

MAJORS = {"m": {}, "n": {"out_major": "col"}, "k": {"a_major": "mn", "b_major": "mn"}}
UNTOUCHED = 77.0


def configured(along, padded=False, dtype="float16", out_dtype=None, majors=None, **tiling):
    signature = GemmSignature(
        a_dtype=dtype, b_dtype=dtype, out_dtype=out_dtype or dtype, **MAJORS[along], **(majors or {})
    )
    tiling = {"tile_m": 64, "tile_n": 64, "stages": 2, "band_rows": 2, **tiling}
    return GroupedConfig(gemm=GemmConfig(signature=signature, **tiling), along=along, padded=padded)


def stored(shape, contiguous_mode, dtype, fill=None):
    """Make small integers, whose sums are exact, with one of the last two modes contiguous."""
    if contiguous_mode == 0:
        return stored((*shape[:-2], shape[-1], shape[-2]), 1, dtype, fill).mT
    values = torch.randint(-3, 4, shape) if fill is None else torch.full(shape, fill)
    return values.to(dtype)


def check(config, groups, mnk, sms=3, sanitize=True):
    """Run in the simulator on tensors of these extents, and compare, what belongs to no group too; gives the run."""
    signature, (m, n, k) = config.gemm.signature, mnk
    ends = torch.tensor(groups, dtype=torch.int32)
    dtype, out_dtype = getattr(torch, signature.a_dtype), getattr(torch, signature.out_dtype)
    extents = {"sA": (m, k), "sB": (n, k), "sD": (m, n)}
    shapes = {
        name: (len(groups), *extent) if config.grouping(name).batched else extent for name, extent in extents.items()
    }
    a = stored(shapes["sA"], int(signature.a_major == "k"), dtype)
    b = stored(shapes["sB"], int(signature.b_major == "k"), dtype)
    out = stored(shapes["sD"], int(signature.out_major == "row"), out_dtype, UNTOUCHED)
    expected = grouped_reference(a, b, ends, out.clone(), config.along)
    with cutepy.simulate(sanitize=sanitize) as run:
        compile_grouped(config)(a, b, ends, None, (out,), sms)
    assert torch.equal(out, expected)
    assert not run.hazards
    return run


CONFIGS = {
    "m": configured("m"),
    "m, b along n, two consumers": configured("m", majors={"b_major": "mn"}, consumers=2, stages=3),
    "m, clusters along m": configured("m", cluster_m=2, dtype="bfloat16"),
    "m, clusters along n": configured("m", cluster_n=2, out_dtype="float32"),
    "m, split k": configured("m", split_k=2, tile_n=32),
    "m, padded": configured("m", padded=True),
    "n": configured("n", tile_n=48, epi_n=16),
    "n, clusters": configured("n", cluster_m=2, consumers=2),
    "n, padded": configured("n", padded=True, tile_m=128, warpgroups=2),
    "k": configured("k"),
    "k, clusters": configured("k", cluster_m=2, out_dtype="float32", majors={"out_major": "col"}),
    "k, padded": configured("k", padded=True),
}


SIMILAR = "m, clusters along n", "n, clusters", "n, padded", "k, clusters"
NAMES = [pytest.param(name, marks=pytest.mark.deep) if name in SIMILAR else name for name in CONFIGS]


@pytest.mark.first(4)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=3)
@given(data=st.data())
def test_groups_of_any_extents(name, data):
    config = CONFIGS[name]
    lengths = data.draw(st.lists(st.integers(0, 90) | st.sampled_from([0, 1, 63, 64, 65]), min_size=1, max_size=8))
    groups = torch.tensor(lengths).cumsum(0).tolist()
    total = max(lengths) if config.padded else groups[-1]
    # What is contiguous must be in whole units of 16 bytes.
    extents = [8 * data.draw(st.integers(1, 12)) for _ in range(3)]
    extents["mnk".index(config.along)] = max(total, 1) + data.draw(st.integers(0, 40))
    check(config, lengths if config.padded else groups, extents, data.draw(st.sampled_from([2, 5, 132])))


@pytest.mark.first(3)
@pytest.mark.parametrize("name", NAMES)
def test_one_schedule_speaks_for_all(name):
    config = CONFIGS[name]
    groups, total = ([70, 0, 5], 72) if config.padded else ([70, 70, 75, 140], 144)
    extents = [72, 80, 136]
    extents["mnk".index(config.along)] = total
    (certificate,) = check(config, groups, extents, sms=4).certificates
    assert certificate.is_certified, certificate.reasons


@pytest.mark.deep
def test_more_than_32_groups_and_more_ctas_than_tiles():
    lengths = [(7 * g) % 40 for g in range(100)]
    groups = torch.tensor(lengths).cumsum(0).tolist()
    for name in ("m", "n", "k"):
        extents = [72, 80, 8]
        extents["mnk".index(name)] = groups[-1]
        check(CONFIGS[name], groups, extents, sms=1000, sanitize=False)


@pytest.mark.parametrize("name", ["m", "n", "k"])
@pytest.mark.parametrize("groups", [[0, 0, 0], [200, 200, 200]])
def test_empty_groups_and_all_in_one(name, groups):
    extents = [72, 80, 136]
    extents["mnk".index(name)] = 200
    check(CONFIGS[name], groups, extents)


def test_rows_beyond_the_tensor_are_neither_read_nor_written():
    """An end behind the matrix is taken for its own, in a buffer that goes on."""
    config = CONFIGS["m"]
    whole = torch.full((160, 64), UNTOUCHED).half()
    a, b, out = stored((100, 64), 1, torch.float16), stored((2, 64, 64), 1, torch.float16), whole[:100]
    expected = grouped_reference(a, b, torch.tensor([40, 100]), out.clone(), "m")
    with cutepy.simulate():
        compile_grouped(config)(a, b, torch.tensor([40, 150], dtype=torch.int32), None, (out,), 2)
    assert torch.equal(out, expected)
    assert (whole[100:] == UNTOUCHED).all()


def test_a_group_never_reads_what_is_not_its_own():
    """NaN in all other rows, or columns, changes nothing: K beyond a group's end counts as zero."""
    nan = float("nan")
    for name in ("m", "k"):
        config = CONFIGS[name]
        a, b = stored((90, 72), 1, torch.float16), stored((90, 80), 1, torch.float16)
        a[:3], a[70:] = nan, nan
        groups = torch.tensor([3, 70, 90], dtype=torch.int32)
        if name == "m":
            b = stored((3, 80, 72), 1, torch.float16)
            out = torch.zeros(90, 80).half()
            arguments = (a, b, groups, None, (out,), 2)
            kept = slice(3, 70)
            expected = a[3:70].double() @ b[1].double().mT
        else:
            out = torch.zeros(3, 72, 80).half()
            arguments = (a.mT, b.mT, groups, None, (out,), 2)
            kept = 1
            expected = a[3:70].double().mT @ b[3:70].double()
        with cutepy.simulate():
            compile_grouped(config)(*arguments)
        assert torch.equal(out[kept], expected.half())
        assert out.isnan().any()


@cutepy.epilogue
def weighted(acc, bias: Row, weight: Column, residual: Tile, scale: Scalar):
    """An expert's epilogue: a bias of each expert, a weight of each token, and a residual."""
    return (acc + bias) * weight + residual * scale


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("along", "padded"),
    [
        *((along, False) for along in "mnk"),
        ("m", True),
        *(pytest.param(along, True, marks=pytest.mark.deep) for along in "nk"),
    ],
)
def test_epilogues_meet_rows_and_columns_of_their_group(along, padded):
    major = "col" if along == "n" else "row"
    types = (("float32", ""), ("float16", ""), ("float16", major), ("", ""))
    config = configured(along, padded, out_dtype="float32", majors={"epilogue": weighted.text, "operand_types": types})
    groups = torch.tensor([0, 70, 5, 64] if padded else [5, 5, 80, 90], dtype=torch.int32)
    m, n, k = {"m": (96, 72, 40), "n": (72, 96, 40), "k": (72, 80, 96)}[along]

    def made(name, *extents, is_transposed=False):
        shape = (len(groups), *extents) if config.grouping(name).batched else extents
        return stored(shape, int(not is_transposed), torch.float16)

    a, b = (made(name, extent, k, is_transposed=along == "k") for name, extent in (("sA", m), ("sB", n)))
    residual = made("sC", m, n, is_transposed=along == "n")
    bias, weight = made("row", n).float(), made("column", m)
    out = torch.full_like(residual, UNTOUCHED, dtype=torch.float32)
    acc = grouped_reference(a, b, groups, torch.zeros(residual.shape, dtype=torch.float64), along)
    terms = grouped_reference(torch.ones_like(a), torch.ones_like(b), groups, torch.zeros_like(acc), along)
    owned = (terms != 0) | (along == "k")
    of = torch.bucketize(torch.arange(96), groups, right=True).clamp(max=len(groups) - 1)
    rows = bias[of] if along == "m" and not padded else bias[:, None] if bias.dim() == 2 else bias
    columns = weight[of].T if along == "n" and not padded else weight[..., None]
    expected = torch.where(owned, (acc + rows) * columns + residual * 2, UNTOUCHED).float()
    with cutepy.simulate(sanitize=True) as run:
        compile_grouped(config)(a, b, groups, (bias, weight, residual, 2.0), (out,), 3)
    assert torch.equal(out, expected)
    assert not run.hazards


@pytest.mark.parametrize(
    "change",
    [
        {"along": "x"},
        {"along": "k"},
        {"along": "n"},
        {"along": "m", "batch_modes": 1},
        {"along": "m", "a_major": "mn"},
        {"along": "k", "a_major": "mn", "b_major": "mn", "split_k": 2},
        {"along": "k", "a_major": "mn", "b_major": "mn", "consumers": 2},
        {"along": "m", "stream_k": True},
        {"along": "m", "dynamic": True},
    ],
)
def test_what_has_no_kernel_is_refused(change):
    change = dict(change)
    along = change.pop("along")
    tiling = {name: change.pop(name) for name in ("split_k", "stream_k", "dynamic", "consumers") if name in change}
    signature = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16", **change)
    gemm = GemmConfig(signature=signature, tile_m=64, tile_n=64, **tiling)
    with refuses(ValueError):
        GroupedConfig(gemm=gemm, along=along)


@given(
    along=st.sampled_from("mnk"),
    mnk=st.tuples(*[st.integers(1, 20000)] * 3),
    groups=st.integers(1, 300),
    padded=st.booleans(),
)
@settings(max_examples=30)
def test_everything_has_a_configuration(along, mnk, groups, padded):
    signature = CONFIGS[along].gemm.signature
    chosen = select_grouped(signature, along, mnk, groups, padded=padded)
    is_transposed = {"m": "n", "n": "m", "k": "k"}[along] if chosen.transposed else along
    assert (chosen.config.along, chosen.config.padded) == (is_transposed, padded)


@pytest.mark.parametrize("name", ["float16", "float8_e4m3fn"])
@pytest.mark.parametrize("mean", [40, 64, 100, 128])
def test_a_cluster_covers_twice_the_mean_of_few_rows(name, mean):
    signature = GemmSignature(a_dtype=name, b_dtype=name, out_dtype="float16")
    is_transposed, config = select_grouped(signature, "m", (64 * mean, 4096, 7168), 64)
    gemm = config.gemm
    tile, cluster = (gemm.tile_n, gemm.cluster_n) if is_transposed else (gemm.tile_m, gemm.cluster_m)
    rows = mean // 16 * 16  # as choices are for means that are about as large
    assert 2 * rows <= tile * cluster
    assert tile < max(2 * mean, 65)


def test_ends_that_descend_touch_nothing_beyond_and_the_sanitizer_sees_what_is_written_twice():
    whole = torch.full((160, 64), UNTOUCHED).half()
    a, b = stored((100, 64), 1, torch.float16), stored((3, 64, 64), 1, torch.float16)
    ends, kernel = torch.tensor([80, -40, 400], dtype=torch.int32), compile_grouped(CONFIGS["m"])
    with cutepy.simulate():
        kernel(a, b, ends, None, (whole[:100],), 8)
    assert (whole[:100] != UNTOUCHED).any(1).all()
    assert (whole[100:] == UNTOUCHED).all()
    run = cutepy.simulate(sanitize=True)
    with pytest.raises(HazardError) as caught, run:
        kernel(a, b, ends, None, (whole[:100],), 8)
    assert "unordered-write" in {hazard.kind for hazard in caught.value.hazards}
