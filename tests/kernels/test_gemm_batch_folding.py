"""Views that make a product of any tensors one of matrices or of a batch, against the product itself."""

import math
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

from hypothesis import assume, given, strategies as st  # noqa: E402

from cutepy.epilogues.standard import standard  # noqa: E402
from cutepy.kernels.gemm import op  # noqa: E402
from cutepy.kernels.gemm.batch_folding import join  # noqa: E402
from cutepy.kernels.gemm.operands import Description, Problem  # noqa: E402

F16 = torch.float16


def describe(tensor):
    return Description(tuple(tensor.shape), tensor.stride(), F16, tensor.device)


def problem(out, a, b, c=None):
    operands = () if c is None else (describe(c),)
    return Problem(standard(c=c is not None).text, describe(a), describe(b), operands, (describe(out),))


def joined(out, a, b, c=None):
    """Give the views of the tensors."""
    views, tensors = join(problem(out, a, b, c)), [each for each in (out, a, b, c) if each is not None]
    seen = zip(tensors, (*views.results, views.a, views.b, *views.operands), strict=True)
    return [t.as_strided(v.shape, v.stride) for t, v in seen]


def numbered(*shape):
    return torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)


@st.composite
def tensors(draw, shape):
    """Draw a tensor of a shape, its dimensions in memory in any order, with gaps or broadcast."""
    gaps = [draw(st.sampled_from([0, 0, 1, 3])) for _ in shape]
    broadcast = [extent > 1 and n < len(shape) - 2 and draw(st.integers(0, 4)) == 0 for n, extent in enumerate(shape)]
    order = draw(st.permutations(range(len(shape))))
    stored = [1 if broadcast[d] else shape[d] + gaps[d] for d in order]
    back = [order.index(d) for d in range(len(shape))]
    values = torch.randint(-9, 10, stored, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))).double()
    whole = values.permute(back)
    return whole[tuple(slice(0, extent) for extent in shape)].expand(shape)


@st.composite
def products(draw):
    """Draw out, a and b, whose batches are broadcast."""
    batch = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(0, 4)))]
    m, n, k = (draw(st.integers(1, 4)) for _ in range(3))
    a_batch, b_batch = (
        [1 if draw(st.booleans()) and draw(st.booleans()) else extent for extent in batch][draw(st.integers(0, 4)) :]
        for _ in range(2)
    )
    extents = torch.broadcast_shapes(a_batch, b_batch)
    a, b = draw(tensors((*a_batch, m, k))), draw(tensors((*b_batch, n, k)))
    order = draw(st.permutations(range(len(extents) + 2)))
    shape = (*extents, m, n)
    out = torch.zeros([shape[d] for d in order], dtype=torch.float64).permute(
        [order.index(d) for d in range(len(order))]
    )
    return out, a, b


@given(products(), st.data())
def test_the_product_of_the_views_is_the_product(drawn, data):
    out, a, b = drawn
    shape = [1 if data.draw(st.integers(0, 3)) == 0 else extent for extent in out.shape]
    c = data.draw(tensors(tuple(shape[data.draw(st.integers(0, out.dim())) :])))
    expected = a @ b.mT + c
    assume(join(problem(out, a, b, c)) is not None)
    seen, left, right, added = joined(out, a, b, c)
    assert seen.shape[:-2] == left.shape[:-2] == right.shape[:-2]
    assert seen.numel() == out.numel()
    assert added.shape == seen.shape
    seen.copy_(left @ right.mT + added)
    assert torch.equal(out, expected)


@given(products())
def test_rows_that_share_b_are_joined(drawn):
    """A contiguous a with one b is one product of matrices, whatever its leading dimensions."""
    _, a, b = drawn
    a = a.contiguous()
    out = torch.zeros(*a.shape[:-1], b.shape[-2])
    _, left, right = joined(out, a, b[(0,) * (b.dim() - 2)])
    assert left.dim() == right.dim() == 2


def multiplied(smaller):
    """Stand for the launch of a part: plain torch, of operands and results as they are described."""

    def launch(a, b, operands, into, scales):
        given = (smaller.a, a), (smaller.b, b), (smaller.operands[0], operands[0]), (smaller.results[0], into[0])
        assert all(described.shape == tuple(tensor.shape) for described, tensor in given)
        into[0].copy_(a @ b.mT + operands[0])

    return launch


@given(products(), st.data())
def test_the_parts_of_a_product_are_those_of_its_tensors(drawn, data):
    """One after another along the shortest dimension, of whatever each tensor has of it."""
    out, a, b = drawn
    assume(out.dim() > 2)
    shape = [1 if data.draw(st.integers(0, 3)) == 0 else extent for extent in out.shape]
    c = data.draw(tensors(tuple(shape[data.draw(st.integers(0, out.dim() - 2)) :])))
    with mock.patch.object(op, "planned", multiplied):
        op._part_by_part(problem(out, a, b, c))(a, b, (c,), (out,))
    assert torch.equal(out, a @ b.mT + c)


CASES = {
    "a batch": ((3, 4, 8), (3, 5, 8), (3, 4, 8), (3, 5, 8)),
    "batches that join": ((2, 3, 4, 8), (2, 3, 5, 8), (6, 4, 8), (6, 5, 8)),
    "one product": ((1, 1, 4, 8), (1, 1, 5, 8), (4, 8), (5, 8)),
    "b with batches of 1": ((2, 3, 4, 8), (1, 1, 5, 8), (24, 8), (5, 8)),
    "a shared": ((4, 8), (3, 5, 8), (3, 4, 8), (3, 5, 8)),
    "b shared by some": ((2, 3, 4, 8), (2, 1, 5, 8), (2, 12, 8), (2, 5, 8)),
    "a shared by some": ((2, 1, 4, 8), (2, 3, 5, 8), (2, 3, 4, 8), (2, 3, 5, 8)),
    "a row for each": ((6, 1, 8), (6, 5, 8), (6, 1, 8), (6, 5, 8)),
    "a vector": ((8,), (5, 8), (1, 8), (5, 8)),
}


@pytest.mark.parametrize("name", CASES)
def test_as_few_modes_as_possible(name):
    a_shape, b_shape, left, right = CASES[name]
    a, b = numbered(*a_shape), numbered(*b_shape)
    found = joined(a @ b.mT, a, b)
    assert (found[1].shape, found[2].shape) == (left, right)


def test_modes_join_in_the_order_of_the_result_where_a_repeats():
    a, b = numbered(16).expand(2, 3, 16), numbered(8, 16)
    out, left, right = joined(torch.zeros(3, 2, 8).transpose(0, 1), a, b)
    assert (out.shape, left.shape, right.shape) == ((6, 8), (6, 16), (8, 16))


def test_the_longest_of_several_modes_becomes_the_rows():
    a, b = numbered(8, 3, 16).transpose(0, 1), numbered(24, 16)
    _, left, right = joined(torch.zeros(3, 8, 24), a, b)
    assert (left.shape, left.stride(), right.stride()) == ((3, 8, 16), (16, 48, 1), (0, 16, 1))
    a = numbered(3, 8, 16).transpose(0, 1)
    _, left, _ = joined(torch.zeros(8, 3, 24), a, b)
    assert (left.shape, left.stride()) == ((3, 8, 16), (128, 16, 1))


def test_rows_must_be_such_as_tma_reaches():
    """Along M a is contiguous, so no other mode can be the rows, though it be longer."""
    a, b = numbered(24, 16, 8).mT, numbered(8, 16)  # (24, 8, 16) along M
    _, left, _ = joined(torch.zeros(24, 8, 8), a, b)
    assert (left.shape, left.stride()) == ((24, 8, 16), (128, 1, 8))


def test_rows_that_c_repeats_are_a_batch():
    """TMA reaches no matrix that repeats one row, and any batch that repeats one matrix."""
    a, b, c = numbered(8, 3, 16).transpose(0, 1), numbered(24, 16), numbered(3, 1, 24)
    _, left, _, added = joined(torch.zeros(3, 8, 24), a, b, c)
    assert (left.shape, added.stride()) == ((8, 3, 16), (0, 24, 1))


def test_more_modes_than_a_kernel_takes_are_not_joined():
    a, b = numbered(2, 1, 2, 1, 4, 8), numbered(1, 2, 1, 2, 5, 8)
    assert join(problem(a @ b.mT, a, b)) is None
