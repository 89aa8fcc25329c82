"""`rotary` in the simulator, sanitized, against products of complex numbers; and as an operation of torch."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.ops import batch_invariant, rotary  # noqa: E402
from tests.ops.rows import DTYPES, check_close, rows  # noqa: E402

ROWS = 20


def tables(width, dtype=torch.float32, apart=0):
    angles = torch.rand(ROWS, width, generator=torch.Generator().manual_seed(width), dtype=torch.float64) * 6
    return [torch.nn.functional.pad(each, (0, apart)).to(dtype)[:, :width] for each in (angles.cos(), angles.sin())]


def heads(batch, tokens, count, head, dtype, order="token", apart=0):
    """Draw heads (batch, tokens, count, head) with one or the other extent first in memory."""
    x = rows(batch * tokens * count, head, dtype, apart=apart)
    if order == "token":
        return x.unflatten(0, (batch, tokens, count))
    return x.unflatten(0, (batch, count, tokens)).transpose(1, 2)


def expected(x, cos, sin, positions, interleaved, inverse):
    """Multiply pairs, as complex numbers, by those of the angles."""
    factors = torch.complex(cos.double(), sin.double())[positions][:, :, None]
    factors = factors.conj() if inverse else factors
    width = cos.shape[1]
    turned, rest = x[..., : 2 * width], x[..., 2 * width :]
    pairs = turned.unflatten(-1, (width, 2)) if interleaved else turned.unflatten(-1, (2, width)).transpose(-1, -2)
    found = torch.view_as_real(torch.complex(pairs[..., 0], pairs[..., 1]) * factors)
    return torch.cat(((found if interleaved else found.transpose(-1, -2)).flatten(-2), rest), -1)


def check(x, cos, sin, positions, interleaved, inverse):
    """Compare heads and gradients with float64's, of the kernel and of plain torch."""
    batch, tokens = x.shape[:2]
    places = positions
    if not isinstance(positions, torch.Tensor):
        places = torch.arange(tokens) + (positions or 0)
    wide = x.double().requires_grad_()
    want = expected(wide, cos, sin, places.expand(batch, tokens), interleaved, inverse)
    dy = heads(batch, tokens, x.shape[2], x.shape[3], x.dtype, "head")
    want.backward(dy.double())
    for simulates in (False, True):
        own = x.detach().requires_grad_()
        with cutepy.simulate(sanitize=True) if simulates else batch_invariant() as run:
            y = rotary(own, cos, sin, positions, interleaved, inverse)
            y.backward(dy)
        if simulates:
            assert not run.hazards
        check_close(y, want)
        check_close(own.grad, wide.grad)
        assert torch.equal(y[..., 2 * cos.shape[1] :], x[..., 2 * cos.shape[1] :])
        assert y.is_contiguous()


@pytest.mark.integration
@pytest.mark.first(5)
@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "interleaved"])
@pytest.mark.parametrize(
    ("shape", "width", "dtype", "order", "table"),
    [
        pytest.param((2, 3, 5, 128), 64, torch.bfloat16, "token", torch.float32, id="whole heads"),
        pytest.param((1, 4, 3, 96), 24, torch.float16, "head", torch.float16, id="a part of each head"),
        pytest.param((2, 2, 2, 11), 3, torch.float32, "head", torch.bfloat16, id="odd"),
        pytest.param((1, 2, 9, 256), 8, torch.bfloat16, "token", torch.float32, id="a small part"),
    ],
)
def test_heads_and_gradients_are_those_of_complex_numbers(shape, width, dtype, order, table, interleaved):
    x, (cos, sin) = heads(*shape, dtype, order), tables(width, table)
    check(x, cos, sin, None, interleaved, False)
    check(x, cos, sin, 7, interleaved, True)
    check(x, cos, sin, torch.arange(shape[1]) * 3, interleaved, False)


@pytest.mark.deep
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_heads(data):
    shape = [data.draw(st.integers(1, most)) for most in (3, 5, 9)]
    head = data.draw(st.one_of(st.integers(2, 80), st.sampled_from([64, 96, 128, 192, 256, 512])))
    width = data.draw(st.one_of(st.just(head // 2), st.integers(1, head // 2)))
    dtype, order = data.draw(st.sampled_from(DTYPES)), data.draw(st.sampled_from(["token", "head"]))
    cos, sin = tables(width, data.draw(st.sampled_from(DTYPES)), data.draw(st.sampled_from([0, 1, 8])))
    positions = data.draw(st.sampled_from([None, 3, torch.int32, torch.int64]))
    if isinstance(positions, torch.dtype):
        positions = torch.randint(ROWS, shape[:2], generator=torch.Generator().manual_seed(head)).to(positions)
    x = heads(*shape, head, dtype, order, data.draw(st.sampled_from([0, 1, 8])))
    check(x, cos, sin, positions, data.draw(st.booleans()), data.draw(st.booleans()))


@pytest.mark.integration
@pytest.mark.parametrize("simulates", [False, True], ids=["torch", "kernel"])
def test_positions_that_tables_do_not_have_give_nan_and_others_stay(simulates):
    x, (cos, sin) = heads(1, 5, 2, 16, torch.float32), tables(4)
    x[0, 1, 1, 9:] = torch.inf
    positions = torch.tensor([[0, 3, ROWS, -1, 2**40]])
    with cutepy.simulate(sanitize=True) if simulates else batch_invariant():
        y = rotary(x, cos, sin, positions, True)
    assert y[0, 2:, :, :8].isnan().all()
    assert y[0, :2, :, :8].isfinite().all()
    assert torch.equal(y[..., 8:], x[..., 8:])


def test_without_heads_nothing_is_launched():
    cos, sin = tables(4)
    with cutepy.simulate() as run:
        assert rotary(torch.ones(2, 0, 3, 8), cos, sin).shape == (2, 0, 3, 8)
        assert rotary(torch.ones(2, 3, 0, 8), cos, sin, 17).shape == (2, 3, 0, 8)
    assert not run.launches


@pytest.mark.integration
def test_columns_that_are_not_contiguous_are_copied():
    x, (cos, sin) = heads(2, 3, 4, 16, torch.float32), tables(4)
    with cutepy.simulate(sanitize=True):
        y = rotary(x.mT.contiguous().mT, cos.T.contiguous().T, sin)
        assert torch.equal(y, rotary(x, cos, sin))


def test_it_is_an_operation_of_torch():
    x, (cos, sin) = heads(2, 3, 4, 8, torch.float32).requires_grad_(), tables(3)
    positions = torch.tensor([[0, 1, 2], [4, 5, 9]])
    for rest in ((positions, 0, True, False), (None, 4, False, True)):
        torch.library.opcheck(torch.ops.cutepy.rotary.default, (x, cos, sin, *rest))
    y = rotary(x, cos, sin, positions)
    back = rotary(y, cos, sin, positions, inverse=True)
    torch.testing.assert_close(back, x)
    (first,) = torch.autograd.grad(y.square().sum() / 2, x, create_graph=True)
    torch.testing.assert_close(first, x)  # a rotation keeps the square
    torch.testing.assert_close(torch.autograd.grad(first.sum(), x)[0], torch.ones_like(x))
    mapped = torch.func.vmap(lambda x, p: rotary(x[None], cos, sin, p)[0])(x.detach(), positions)
    torch.testing.assert_close(mapped, y.detach())


def test_what_it_does_not_take_is_refused():
    x, (cos, sin) = torch.ones(2, 3, 4, 8), tables(4)
    for bad in (
        {"x": x[0]},
        {"cos": cos[:, :3]},
        {"cos": torch.ones(ROWS, 5), "sin": torch.ones(ROWS, 5)},
        {"cos": cos[0], "sin": sin[0]},
        {"cos": cos[:0], "sin": sin[:0], "positions": torch.zeros(3, dtype=torch.int64)},
        {"cos": cos.clone().requires_grad_()},
        {"positions": 18},
        {"positions": -1},
        {"positions": torch.zeros(2, dtype=torch.int64)},
        {"positions": torch.zeros(3, 2, dtype=torch.int64)},
        {"x": torch.ones(1, 1, 1, 1026)},
    ):
        with refuses(ValueError):
            rotary(**{"x": x, "cos": cos, "sin": sin, **bad})
    for bad in ({"x": x.double()}, {"cos": cos.double()}, {"positions": torch.ones(2, 3)}):
        with refuses(TypeError):
            rotary(**{"x": x, "cos": cos, "sin": sin, **bad})
