"""Dropout of attention: what is dropped, against the same hash in numpy; results and gradients with it."""

import math

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.ops import attention, flash_attn_func, scaled_dot_product_attention  # noqa: E402
from tests.messages import refuses  # noqa: E402

pytestmark = pytest.mark.usefixtures("complete_launches")
ROUNDOFF = 2.0**-8


def drawn():
    """Return the seeds that a call draws after `torch.manual_seed(7)`."""
    torch.manual_seed(7)
    return torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32)


def mixed(x):
    """Mix 32 bits by murmur3's finaliser."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return x ^ (x >> np.uint32(16))


def kept(probability, seeds, *shape):
    """Return which keys are kept, (batch, heads, queries, keys)."""
    seeds = seeds.numpy().view(np.uint32)
    batch, head, query, key = np.meshgrid(*(np.arange(n, dtype=np.uint32) for n in shape), indexing="ij")
    place = mixed(query ^ mixed(head ^ mixed(batch ^ mixed(seeds[:1]) ^ seeds[1:])))
    return torch.from_numpy(mixed(key ^ place).view(np.int32) >= round(probability * 2**32) - 2**31)


def apart(found, wanted):
    found, wanted = found.detach().double(), wanted.detach().double()
    return float((found - wanted).norm() / wanted.norm())


def tensors(batch, queries, keys, heads, kv_heads, head):
    generator = torch.Generator().manual_seed(queries * 1000 + keys)
    shapes = (queries, heads, head), (keys, kv_heads, head), (keys, kv_heads, head), (queries, heads, head)
    return [torch.randn(batch, *shape, generator=generator).bfloat16() for shape in shapes]


def check(q, k, v, do, probability, *, simulated, causal=False, **options):
    seeds = drawn()
    given = [each.clone().requires_grad_() for each in (q, k, v)]

    def compute():
        torch.manual_seed(7)
        o = attention(*given, causal=causal, dropout_p=probability, **options)
        return o, torch.autograd.grad(o, given, do)

    if simulated:
        with cutepy.simulate(sanitize=True) as run:
            o, grads = compute()
        assert not run.hazards
        assert not run.advisories
    else:
        o, grads = compute()
    wide = [each.double().requires_grad_() for each in (q, k, v)]
    wide_k, wide_v = (each.repeat_interleave(q.shape[2] // k.shape[2], 2) for each in wide[1:])
    scores = torch.einsum("bihd,bjhd->bhij", wide[0], wide_k) * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(scores.shape[2:], dtype=torch.bool).triu(scores.shape[3] - scores.shape[2] + 1)
        scores = scores.masked_fill(hidden, -math.inf)
    p = scores.softmax(-1) * kept(probability, seeds, *scores.shape) / (1 - probability)
    wanted = torch.einsum("bhij,bjhd->bihd", p, wide_v)
    for found, want in zip((o, *grads), (wanted, *torch.autograd.grad(wanted, wide, do.double())), strict=True):
        assert apart(found, want) < ROUNDOFF


def test_what_is_dropped_follows_from_seeds_and_places():
    check(*tensors(2, 30, 50, 4, 2, 16), 0.3, simulated=False)


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("shape", "probability", "options"),
    [
        ((2, 33, 70, 2, 1, 64), 0.3, {}),
        pytest.param((1, 140, 140, 1, 1, 64), 0.1, {"causal": True}, marks=pytest.mark.integration),
        pytest.param((1, 70, 130, 2, 1, 192), 0.3, {"causal": True}, marks=pytest.mark.deep),
        pytest.param((1, 40, 150, 1, 1, 64), 0.6, {"deterministic": True}, marks=pytest.mark.integration),
    ],
)
def test_kernels_drop_the_same(shape, probability, options):
    check(*tensors(*shape), probability, simulated=True, **options)


@pytest.mark.parametrize("probability", [0.05, 0.5, 0.9])
def test_as_many_are_kept_as_the_probability_says(probability):
    found = kept(probability, drawn(), 2, 3, 300, 500).double()
    assert abs(found.mean() - (1 - probability)) < 0.003
    bound = 6 * math.sqrt(probability * (1 - probability) / 500)
    assert (found.mean(-1) - (1 - probability)).abs().max() < bound
    # Neighbours, and the same place of other rows and heads, are as good as independent.
    centred = found - found.mean()
    for dim in range(4):
        other = centred.roll(1, dim)
        assert (centred * other).mean().abs() < 6 * probability * (1 - probability) / math.sqrt(found.numel())


def test_calls_draw_seeds_of_torchs_generator():
    q, *_ = tensors(1, 9, 9, 1, 1, 16)
    torch.manual_seed(0)
    first, second = (attention(q, q, q, dropout_p=0.5) for _ in range(2))
    assert not torch.equal(first, second)
    turned = q.transpose(1, 2)
    torch.manual_seed(0)
    assert torch.equal(first, scaled_dot_product_attention(turned, turned, turned, dropout_p=0.5).transpose(1, 2))
    assert torch.equal(second, flash_attn_func(q, q, q, 0.5))


def test_it_is_compiled_as_a_whole_and_drops_anew_in_each_call():
    q, *_ = tensors(1, 9, 9, 1, 1, 16)
    compiled = torch.compile(lambda q: attention(q, q, q, dropout_p=0.5), fullgraph=True, backend="aot_eager")
    torch.manual_seed(0)
    found = [compiled(q.requires_grad_()) for _ in range(2)]
    torch.manual_seed(0)
    assert all(torch.equal(each, attention(q, q, q, dropout_p=0.5)) for each in found)
    assert not torch.equal(*found)


def test_the_ends_of_the_probability():
    q, *_ = tensors(1, 9, 9, 1, 1, 16)
    assert torch.equal(attention(q, q, q, dropout_p=0.0), attention(q, q, q))
    assert not attention(q, q, q, dropout_p=1.0).any()
    assert torch.equal(attention(q, q, q, dropout_p=1e-12), attention(q, q, q))
    assert not attention(q, q, q, dropout_p=1 - 1e-12).any()
    for probability in (1.5, None):
        with refuses(ValueError):
            attention(q, q, q, dropout_p=probability)
