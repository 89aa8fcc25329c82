"""`sample` in the simulator, sanitized, against Philox and Gumbel's noise in float64; its distribution; its order."""

import math

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.ops import batch_invariant, sample  # noqa: E402
from cutepy.ops.samples import random_numbers  # noqa: E402
from tests.ops.rows import DTYPES, WIDTHS, rows  # noqa: E402

ONES = 2**32 - 1


def check(x, **options):
    """Compare with plain torch."""
    with cutepy.simulate(sanitize=True) as run:
        found = sample(x, **options)
    assert not run.hazards
    assert all(each.is_certified for each in run.certificates)
    wanted = sample(x, **options)
    assert found.shape == x.shape[:-1]
    # A class at the end of those that may be drawn is in or out by a rounding.
    assert int((found != wanted).sum()) <= (0 if options.get("top_p") in (None, 0.0, 1.0) else 1 + x.shape[0] // 10)
    return found


@pytest.mark.integration
@pytest.mark.first(6)
@pytest.mark.parametrize(
    ("count", "columns", "dtype", "options"),
    [
        pytest.param(5, 300, torch.bfloat16, {"temperature": 0.7, "top_k": 20, "top_p": 0.8}, id="k and p"),
        pytest.param(9, 77, torch.float32, {"seed": torch.tensor([7]), "offset": 2**40}, id="all of odd rows"),
        pytest.param(2, 5000, torch.float16, {"top_p": 0.9}, id="p"),
        pytest.param(1, 33000, torch.bfloat16, {"top_k": 500}, id="k, a cluster"),
        pytest.param(4, 300, torch.bfloat16, {"temperature": 0}, id="greedy"),
        pytest.param(4, 300, torch.bfloat16, {"top_p": 0.0}, id="the largest"),
    ],
)
def test_samples_are_those_of_plain_torch(count, columns, dtype, options):
    check(rows(count, columns, dtype) * 3, **{"seed": -(2**35) + 5, **options})


@pytest.mark.deep
@settings(max_examples=8, deadline=None)
@given(
    count=st.integers(1, 40),
    columns=WIDTHS,
    dtype=st.sampled_from(DTYPES),
    temperature=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    top_k=st.sampled_from([None, 1, 7]),
    top_p=st.sampled_from([None, 0.0, 0.5, 1.0]),
    seed=st.integers(-(2**63), 2**63 - 1),
    offset=st.integers(0, 2**63 - 1),
)
def test_any_rows(count, columns, dtype, temperature, top_k, top_p, seed, offset):
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed, "offset": offset}
    check(rows(count, columns, dtype) * 3, **options)


def test_random_numbers_are_those_of_philox():
    # Known answers of Random123 (kat_vectors, philox4x32 10).
    assert random_numbers(torch.Size((1, 4)), 0, 0, "cpu")[0].tolist() == [
        0x6627E8D5,
        0xE169C58D,
        0xBC57AC4C,
        0x9B00DBD8,
    ]
    words = random_numbers(torch.Size((3, 9)), 2**40 + 1, 2**33 + 5, "cpu")
    assert torch.equal(words[:, :5], random_numbers(torch.Size((3, 5)), 2**40 + 1, 2**33 + 5, "cpu"))
    assert int(words.min()) >= 0
    assert int(words.max()) <= ONES


@pytest.mark.integration
def test_classes_are_drawn_with_the_probabilities_of_softmax():
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5]).expand(20000, 5)
    for options in ({}, {"temperature": 2.0}, {"top_k": 3}, {"top_p": 0.7}):
        found = sample(logits, seed=3, **options)
        scaled = logits[0] / options.get("temperature", 1.0)
        kept = {"top_k": [1, 2, 4], "top_p": [1, 2]}.get(next(iter(options), ""), range(5))
        wanted = torch.zeros(5).index_copy(0, torch.tensor(kept), scaled[kept].softmax(0))
        counts = torch.bincount(found, minlength=5)
        # Five standard deviations of each count.
        assert ((counts - 20000 * wanted).abs() <= 5 * (20000 * wanted * (1 - wanted)).sqrt()).all()


@pytest.mark.integration
def test_a_row_draws_by_its_index_and_offset_alone():
    x = rows(9, 500, torch.float32)
    with batch_invariant(), cutepy.simulate():
        whole, first = sample(x, seed=1), sample(x[:4], seed=1)
        others = sample(x, seed=1, offset=1), sample(x, seed=2)
        wider = torch.cat((x, torch.full((9, 4000), -math.inf)), 1)
        assert torch.equal(sample(wider, seed=1), whole)  # of another tiling
    assert torch.equal(whole[:4], first)
    assert all((other != whole).any() for other in others)


@pytest.mark.integration
@pytest.mark.parametrize("simulates", [False, True], ids=["torch", "kernel"])
def test_numbers_that_are_none(simulates):
    inf, nan = math.inf, math.nan
    x = torch.tensor([[nan, 0, -inf], [-inf, nan, -inf], [-inf, inf, 0], [1, 1, 1]])
    with cutepy.simulate(sanitize=True) if simulates else batch_invariant():
        for options in ({}, {"top_k": 2}, {"temperature": 0}, {"top_k": 2, "top_p": 0.5}):
            assert sample(x, seed=0, **options)[:3].tolist() == [1, -1, 1]
        assert sample(x, temperature=0).tolist() == [1, -1, 1, 0]


def test_seeds_come_from_generators():
    x = torch.zeros(50, 100)
    first, second, third = (sample(x, generator=torch.Generator().manual_seed(n)) for n in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)
    torch.manual_seed(0)
    assert not torch.equal(sample(x), sample(x))
    assert torch.equal(sample(x, seed=5), sample(x, seed=torch.tensor(5)))


@pytest.mark.integration
def test_it_is_an_operation_of_torch():
    x = rows(4, 6, torch.float32)
    torch.library.opcheck(torch.ops.cutepy.sample.default, (x, None, 3, 0, 1.0, 2, 0.5))
    torch.library.opcheck(torch.ops.cutepy.sample.default, (x, torch.tensor([3]), 0, 0, 1.0, 0, 1.0))
    compiled = torch.compile(lambda x: sample(x + 1, seed=4), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), sample(x + 1, seed=4))
    assert torch.equal(torch.func.vmap(lambda row: sample(row, seed=4))(x), sample(x, seed=4))


def test_what_it_does_not_take_is_refused():
    x = torch.ones(2, 3)
    for bad in (
        {"temperature": -1.0},
        {"top_k": 0},
        {"top_p": 1.5},
        {"seed": torch.tensor([1, 2])},
        {"logits": torch.ones(2, 0)},
        {"logits": torch.empty(1, 2**18 + 1, device="meta"), "seed": 1},
    ):
        with refuses(ValueError):
            sample(**({"logits": x} | bad))
    with refuses(TypeError):
        sample(x.double())


@pytest.mark.parametrize("shape", [(5,), (2, 5), (2, 3, 5)])
def test_a_sample_of_each_row_without_values(shape):
    found = sample(torch.empty(shape, device="meta"), seed=1)
    assert (found.shape, found.dtype) == (shape[:-1], torch.int64)
