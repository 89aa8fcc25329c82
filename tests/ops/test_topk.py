"""`topk` in the simulator, sanitized, against a stable sort; and as an operation of torch."""

import math

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.ops import topk  # noqa: E402
from tests.ops.rows import DTYPES, WIDTHS, rows  # noqa: E402


def drawn(count, columns, dtype, apart=0):
    """Draw rows of which the last has many equal elements."""
    x = rows(count, columns, dtype, apart=apart)
    x[-1] = (2 * x[-1]).round()
    return x


def equal(found, wanted):
    return torch.equal(found.float().nan_to_num(nan=7e37), wanted.float().nan_to_num(nan=7e37))


def check(x, k, largest=True):
    """Compare with the first of a stable sort; torch's own has no order of equal elements."""
    with cutepy.simulate(sanitize=True) as run:
        values, indices = topk(x, k, largest=largest)
    assert not run.hazards
    assert all(each.is_certified for each in run.certificates)
    want = torch.sort(x, dim=-1, descending=largest, stable=True)
    assert torch.equal(indices, want.indices[..., :k])
    assert equal(values, want.values[..., :k])
    assert torch.equal(
        values.isnan() | (values == torch.topk(x, k, largest=largest).values), torch.ones_like(indices) > 0
    )
    return run


@pytest.mark.integration
@pytest.mark.first(5)
@pytest.mark.parametrize(
    ("count", "columns", "k", "dtype", "largest"),
    [
        pytest.param(5, 300, 8, torch.bfloat16, True, id="several rows of a CTA"),
        pytest.param(3, 77, 77, torch.float32, False, id="all of odd rows"),
        pytest.param(3, 1024, 32, torch.float16, True, id="lanes that are full"),
        pytest.param(1, 1100, 300, torch.bfloat16, True, id="two warps that sort"),
        pytest.param(2, 5000, 100, torch.float16, True, id="pieces"),
        pytest.param(1, 20000, 1024, torch.bfloat16, True, id="the most"),
    ],
)
def test_the_largest_are_those_of_a_stable_sort(count, columns, k, dtype, largest):
    run = check(drawn(count, columns, dtype), k, largest)
    assert len(run.launches) == (1 if columns < 5000 else 2)


@pytest.mark.integration
@pytest.mark.parametrize("largest", [True, False])
def test_more_equal_elements_than_there_is_room_for(largest):
    """The least that is selected has equal ones, of which the first are found by their columns."""
    x = torch.zeros(3, 1500)
    x[0, ::2], x[1, 700:], x[2, -1] = 1.0, -1.0, 2.0
    check(x, 40, largest)
    check(torch.cat((x[:, :70], x[:, -1:]), 1), 35, largest)


@pytest.mark.deep
@settings(max_examples=8, deadline=None)
@given(
    data=st.data(),
    count=st.integers(1, 40),
    columns=WIDTHS,
    dtype=st.sampled_from(DTYPES),
    apart=st.sampled_from([0, 1, 8]),
    largest=st.booleans(),
)
def test_any_rows(data, count, columns, dtype, apart, largest):
    check(drawn(count, columns, dtype, apart), data.draw(st.integers(1, min(columns, 300))), largest)


@pytest.mark.integration
@pytest.mark.parametrize("largest", [True, False])
def test_nan_infinities_and_zeros_are_ordered_as_torchs(largest):
    inf, nan = math.inf, math.nan
    x = torch.tensor([[0, nan, 1, -nan, 2], [inf, 0.0, -inf, -0.0, 1e-42], [nan] * 5, [-inf] * 5])
    check(x, 5, largest)
    check(x.bfloat16(), 3, largest)


def test_any_dimension_and_gradients_as_torch():
    x = rows(6, 20, torch.float32).reshape(2, 3, 20)
    for dim in (0, 1, 2, -2):
        own, theirs = (x.clone().requires_grad_() for _ in range(2))
        found, wanted = topk(own, 2, dim), torch.topk(theirs, 2, dim)
        for one, other in zip(found, wanted, strict=True):
            assert torch.equal(one, other)
        found.values.square().sum().backward()
        wanted.values.square().sum().backward()
        assert torch.equal(own.grad, theirs.grad)
    assert topk(torch.tensor(3.0), 1).values == 3
    with cutepy.simulate() as run:
        assert topk(x, 0).values.shape == (2, 3, 0)
        assert topk(x[:0], 2).indices.shape == (0, 3, 2)
    assert not run.launches


@pytest.mark.integration
def test_it_is_an_operation_of_torch():
    x = rows(4, 6, torch.float32).clone().requires_grad_()
    torch.library.opcheck(torch.ops.cutepy.topk.default, (x, 3, True))
    mapped = torch.func.vmap(torch.func.grad(lambda row: topk(row, 2).values.square().sum()))(x.detach())
    torch.topk(x, 2).values.square().sum().backward()
    assert torch.equal(mapped, x.grad)


def test_what_it_does_not_take_is_refused():
    with refuses(TypeError):
        topk(torch.ones(2, 3, dtype=torch.float64), 1)
    for x, k in ((torch.ones(2, 3), 4), (torch.ones(2, 3), -1), (torch.ones(2, 2000), 1025)):
        with refuses(ValueError):
            topk(x, k)
    for dim in (2, -3):
        with pytest.raises(IndexError):
            topk(torch.ones(2, 3), 1, dim)
    with refuses(ValueError):
        topk(torch.empty(1, 2**18 + 1, device="meta"), 1)
