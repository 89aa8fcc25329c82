"""Attention on a Hopper GPU: 300 random problems against float64, gradients too; bits, NaN, infinity, poisoned pages.

`python -m pytest -n 12 tests/kernels/test_attention_gpu.py` takes less than 200 s with 16 cores, most of it to compile.
"""

import math
import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.gpu

from cutepy.kernels.attention import reference  # noqa: E402
from cutepy.ops import attention, attention_decode, attention_mla, attention_varlen  # noqa: E402

F16, BF16, E4M3 = torch.float16, torch.bfloat16, torch.float8_e4m3fn
ROUNDOFF = {F16: 2.0**-11, BF16: 2.0**-8, E4M3: 2.0**-5}
"""Of an element; of e4m3, of the norm, since probabilities are rounded to it too."""
PROBLEMS = 10
"""Problems of each kind."""
BANDS = {"full": (None, None), "causal": (None, 0), "window": (70, 30), "after": (-5, 90), "before": (40, -3)}
DENSE = [
    *(
        (dtype, (head, head), band)
        for dtype, head in ((BF16, 64), (BF16, 128))
        for band in ("full", "causal", "window")
    ),
    (F16, (128, 128), "after"),
    (F16, (64, 64), "before"),
    (F16, (96, 96), "causal"),
    (BF16, (256, 256), "causal"),
    (BF16, (256, 256), "full"),
    (BF16, (192, 128), "full"),
    (BF16, (192, 128), "causal"),
    (F16, (48, 112), "window"),
]
SCORES = ("soft cap", "slopes", "mask", "sinks")
VARLEN = [(BF16, 128, (4, 4), True), (BF16, 128, (8, 1), False), (F16, 64, (4, 2), True), (BF16, 256, (2, 2), False)]
PAGES = [(BF16, 128, 16), (BF16, 64, 64), (F16, 128, 1), (BF16, 256, 12)]


def drawn(kind):
    """Return the numbers of a kind's problems, the same in every run."""
    return random.Random(f"attention {kind}")


def randn(*shape, dtype=BF16):
    return torch.randn(*shape, device="cuda").to(dtype)


def apart(found, wanted):
    """Return the norm of the difference, relative to that of what is wanted, or of elements of 1e-3.

    Of a single key the gradients of Q and K are 0, and the difference of two equal sums is not: some 1e-6.
    """
    least = 1e-3 * wanted.numel() ** 0.5
    return float((found.double() - wanted.double()).norm() / wanted.double().norm().clamp(min=max(least, 1e-9)))


def check_lse(found, wanted):
    assert torch.equal(found == -math.inf, wanted == -math.inf)
    assert (found - wanted).nan_to_num(0.0).abs().max() < 1e-4


def extents(draw):
    return (draw.randint(1, draw.choice([3, 130, 700, 1500])) for _ in range(2))


def heads(draw):
    return draw.choice([(1, 1), (2, 1), (3, 3), (8, 2)])


@pytest.mark.parametrize(("dtype", "head", "band"), DENSE, ids=str)
def test_random_problems_and_their_gradients(dtype, head, band):
    draw, (left, right), scale = drawn((str(dtype), head, band)), BANDS[band], head[0] ** -0.5
    for number in range(PROBLEMS):
        torch.manual_seed(number)
        (m, n), (count, kv) = extents(draw), heads(draw)
        batch = draw.randint(1, 3)
        shapes = (m, count, head[0]), (n, kv, head[0]), (n, kv, head[1])
        given = [randn(batch, *shape, dtype=dtype).requires_grad_() for shape in shapes]
        wide = [each.detach().double() for each in given]
        o, lse = attention(*given, window=(left, right), return_lse=True)
        do, dlse = randn(*o.shape, dtype=dtype), torch.randn_like(lse)
        grads = torch.autograd.grad((o, lse), given, (do, dlse))
        want, want_lse = reference.forward(*wide, scale, left, right)
        assert apart(o.detach(), want) < ROUNDOFF[dtype], (number, m, n, count, kv)
        check_lse(lse.detach(), want_lse)
        wanted = reference.backward(do, *wide, dlse.where(want_lse > -math.inf, 0.0), scale, left, right)
        for name, grad, each in zip(("dq", "dk", "dv"), grads, wanted, strict=True):
            assert apart(grad, each) < 2 * ROUNDOFF[dtype], (name, number, m, n, count, kv)


def scored(kind, tensors, bias, causal):
    """Compute by torch in float64: q, k, v (batch, tokens, heads, head), of as many heads."""
    q, k, v = (each.double().transpose(1, 2) for each in tensors)
    scores = q @ k.mT * q.shape[-1] ** -0.5
    m, n = scores.shape[-2:]
    i, j = (torch.arange(extent, device="cuda") for extent in (m, n))
    away = (j[None] - i[:, None] - (n - m)).double()
    if kind == "soft cap":
        scores = 3.0 * torch.tanh(scores / 3.0)
    elif kind == "slopes":
        scores = scores - bias.double()[:, None, None] * away.abs()
    elif kind == "mask":
        scores = scores.masked_fill((i[:, None] * 7 + j[None]) % 3 == 0, -math.inf)
    if causal:
        scores = scores.masked_fill(away > 0, -math.inf)
    if kind == "sinks":
        scores = torch.cat([scores, bias.double()[None, :, None, None].expand(*scores.shape[:-1], 1)], -1)
        return (scores.softmax(-1)[..., :-1] @ v).transpose(1, 2)
    return (scores.softmax(-1).nan_to_num(0.0) @ v).transpose(1, 2)


@pytest.mark.parametrize("kind", SCORES)
def test_random_problems_of_functions_of_scores(kind):
    draw = drawn(kind)
    for number in range(PROBLEMS):
        torch.manual_seed(number)
        m, n = extents(draw)
        causal = number % 2 == 1
        given = [randn(2, extent, 4, 128).requires_grad_() for extent in (m, n, n)]
        bias = torch.rand(4, device="cuda")
        options = {
            "soft cap": {"soft_cap": 3.0},
            "slopes": {"alibi_slopes": bias},
            "mask": {"mask": lambda b, h, i, j: (i * 7 + j) % 3 != 0},
            "sinks": {"sinks": bias},
        }[kind]
        o = attention(*given, causal=causal, **options)
        do = randn(*o.shape)
        grads = torch.autograd.grad(o, given, do)
        wide = [each.detach().double().requires_grad_() for each in given]
        want = scored(kind, wide, bias, causal)
        # tanh is exact to 2^-11 of the cap, as much as an element of bfloat16 is, several times
        least = 3 if kind == "soft cap" else 1
        assert apart(o.detach(), want.detach()) < least * ROUNDOFF[BF16], (number, m, n)
        for grad, each in zip(grads, torch.autograd.grad(want, wide, do.double()), strict=True):
            assert apart(grad, each) < 2 * least * ROUNDOFF[BF16], (number, m, n)


@pytest.mark.parametrize(("dtype", "head", "counts", "causal"), VARLEN, ids=str)
def test_random_sequences_and_their_gradients(dtype, head, counts, causal):
    draw = drawn((str(dtype), head, counts))
    for number in range(PROBLEMS):
        torch.manual_seed(number)
        lengths = [[draw.choice([0, 1, draw.randint(2, 600)]) for _ in range(draw.randint(1, 9))] for _ in range(2)]
        lengths[1] = [draw.choice([m, m + draw.randint(0, 200)]) for m in lengths[0]]
        bounds = [torch.tensor([0, *each], device="cuda").cumsum(0).int() for each in lengths]
        totals = [max(sum(each), 1) for each in lengths]
        shapes = (totals[0], counts[0], head), (totals[1], counts[1], head), (totals[1], counts[1], head)
        given = [randn(*shape, dtype=dtype).requires_grad_() for shape in shapes]
        of_lengths = {"cu_seqlens_q": bounds[0], "cu_seqlens_k": bounds[1], "max_seqlen_q": max(lengths[0])}
        o = attention_varlen(*given, **of_lengths, causal=causal)
        do = randn(*o.shape, dtype=dtype)
        grads = torch.autograd.grad(o, given, do)
        begins = [0, 0]
        for m, n in zip(*lengths, strict=True):
            q, k, v, own_o, own_do, dq, dk, dv = (
                each.detach()[begins[of_keys] : begins[of_keys] + (n if of_keys else m)][None]
                for each, of_keys in zip((*given, o, do, *grads), (0, 1, 1, 0, 0, 0, 1, 1), strict=True)
            )
            begins = [begins[0] + m, begins[1] + n]
            if not m or not n:
                assert not any(each.any() for each in (own_o, dq, dk, dv))
                continue
            wide = [each.double() for each in (q, k, v)]
            how = head**-0.5, None, 0 if causal else None
            assert apart(own_o, reference.forward(*wide, *how)[0]) < ROUNDOFF[dtype], (number, m, n)
            for grad, each in zip((dq, dk, dv), reference.backward(own_do, *wide, None, *how), strict=True):
                assert apart(grad, each) < 3 * ROUNDOFF[dtype], (number, m, n)


def in_pages(keys, lengths, page):
    """Return caches whose pages are in any order, and the table; what no sequence uses is NaN, or no page."""
    numbers = torch.randperm(sum(-(-length // page) for length in lengths)).tolist()
    caches = [torch.full((len(numbers) + 1, page, *each.shape[2:]), math.nan, device="cuda").to(each) for each in keys]
    table = torch.full((len(lengths), -(-max(1, *lengths) // page)), 10**6, dtype=torch.int32)
    for sequence, length in enumerate(lengths):
        for place in range(-(-length // page)):
            number = table[sequence, place] = numbers.pop()
            rows = min(page, length - place * page)
            for cache, each in zip(caches, keys, strict=True):
                cache[int(number), :rows] = each[sequence, place * page : place * page + rows]
    return caches, table.cuda()


def drawn_lengths(draw):
    return [draw.choice([0, 1, draw.randint(2, 900), draw.randint(2, 3000)]) for _ in range(draw.randint(2, 6))]


@pytest.mark.parametrize(("dtype", "head", "page"), PAGES, ids=str)
def test_random_caches_in_poisoned_pages(dtype, head, page):
    draw = drawn((str(dtype), head, page))
    for number in range(PROBLEMS):
        torch.manual_seed(number)
        lengths, (count, kv), new = drawn_lengths(draw), draw.choice([(8, 1), (4, 2)]), draw.choice([1, 1, 2, 8])
        q = randn(len(lengths), new, count, head, dtype=dtype)
        keys = [randn(len(lengths), max(1, *lengths), kv, head, dtype=dtype) for _ in range(2)]
        caches, table = in_pages(keys, lengths, page)
        used = torch.tensor(lengths, dtype=torch.int32, device="cuda")
        o, lse = attention_decode(q, *caches, cache_seqlens=used, block_table=table, causal=True, return_lse=True)
        for sequence, length in enumerate(lengths):
            wide = [each[sequence : sequence + 1].double() for each in (q, *(each[:, :length] for each in keys))]
            want, want_lse = reference.forward(*wide, head**-0.5, None, 0)
            assert apart(o[sequence], want[0]) < ROUNDOFF[dtype], (number, length)
            check_lse(lse[sequence], want_lse[0])


@pytest.mark.parametrize("count", [16, 128])
def test_random_latent_caches_in_poisoned_pages(count):
    draw = drawn(("mla", count))
    for number in range(PROBLEMS):
        torch.manual_seed(number)
        lengths, new = drawn_lengths(draw), draw.choice([1, 2])
        q, rows = randn(len(lengths), new, count, 576), randn(len(lengths), max(1, *lengths), 1, 576)
        (cache,), table = in_pages([rows], lengths, 64)
        used = torch.tensor(lengths, dtype=torch.int32, device="cuda")
        o = attention_mla(q, cache, cache_seqlens=used, block_table=table, causal=True)
        for sequence, length in enumerate(lengths):
            k = rows[sequence : sequence + 1, :length].double()
            want, _ = reference.forward(q[sequence : sequence + 1].double(), k, k[..., :512], 576**-0.5, None, 0)
            assert apart(o[sequence], want[0]) < ROUNDOFF[BF16], (number, length)


@pytest.mark.parametrize(("head", "causal"), [(128, False), (128, True), (256, True)])
def test_random_problems_of_8_bits(head, causal):
    draw = drawn((head, causal))
    for number in range(PROBLEMS):
        torch.manual_seed(number)
        m, n = extents(draw)
        given = [randn(2, extent, 2, head, dtype=E4M3) for extent in (m, n, n)]
        scales = [torch.rand(2, 2, device="cuda") + 0.5 for _ in range(3)]
        names = ("q_scale", "k_scale", "v_scale")
        o = attention(*given, causal=causal, **dict(zip(names, scales, strict=True)))
        wide = [each.double() * scale[:, None, :, None].double() for each, scale in zip(given, scales, strict=True)]
        want, _ = reference.forward(*wide, head**-0.5, None, 0 if causal else None)
        assert apart(o, want) < ROUNDOFF[E4M3], (number, m, n)


def test_there_are_300_problems():
    kinds = len(DENSE) + len(SCORES) + len(VARLEN) + len(PAGES) + 2 + 3
    assert kinds * PROBLEMS >= 300


@pytest.mark.parametrize("head", [64, 128, 256])
def test_deterministic_gradients_have_the_same_bits(head):
    torch.manual_seed(0)
    q, k, v = (randn(2, 1500, 4, head).requires_grad_() for _ in range(3))
    do = randn(2, 1500, 4, head)
    runs = [torch.autograd.grad(attention(q, k, v, causal=True, deterministic=True), (q, k, v), do) for _ in range(5)]
    for run in runs[1:]:
        assert all(map(torch.equal, run, runs[0]))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_where_torch_has_them(value):
    torch.manual_seed(0)
    for place in range(3):
        tensors = [randn(1, 200, 2, 64, dtype=F16) for _ in range(3)]
        tensors[place][0, 7, 1, 3] = value
        # On the CPU: fp32 on a GPU takes infinity apart into the difference of two, which is NaN.
        wide = (each.cpu().float().transpose(1, 2) for each in tensors)
        wanted = torch.nn.functional.scaled_dot_product_attention(*wide)
        found = attention(*tensors).cpu()
        assert torch.equal(found.isfinite(), wanted.transpose(1, 2).isfinite())
