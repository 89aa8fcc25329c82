"""Attention of sequences of different lengths, in the simulator, sanitized: results and gradients against float64."""

import itertools
import math
from dataclasses import replace

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device.sequences import tiles_of  # noqa: E402
from cutepy.kernels.attention import reference  # noqa: E402
from cutepy.kernels.attention.choice import choose_backward  # noqa: E402
from cutepy.kernels.attention.config import Lengths  # noqa: E402
from cutepy.kernels.attention.op import compile_backward  # noqa: E402
from cutepy.ops import attention_varlen, flash_attn_varlen_func  # noqa: E402
from tests.kernels.test_attention import ROUNDOFF, apart  # noqa: E402

pytestmark = pytest.mark.usefixtures("complete_launches")


def bounds_of(lengths):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)


def packed(lengths, heads, head, dtype=torch.bfloat16, tail=0):
    torch.manual_seed(sum(lengths) + heads)
    return torch.randn(sum(lengths) + tail, heads, head).to(dtype)


def check(
    q_lengths,
    k_lengths,
    heads=(2, 1),
    head=64,
    dtype=torch.bfloat16,
    tail=0,
    *,
    causal=False,
    window=(-1, -1),
    deterministic=False,
):
    """Compare each sequence with float64, and what no sequence has with zeros; also the gradients."""
    left, right = (None if each == -1 else each for each in window)
    right, scale = 0 if causal else right, head**-0.5
    q = packed(q_lengths, heads[0], head, dtype, tail).requires_grad_()
    k, v = (packed(k_lengths, heads[1], head, dtype, tail).requires_grad_() for _ in range(2))
    do = torch.randn_like(q)
    q_bounds, k_bounds = bounds_of(q_lengths), bounds_of(k_lengths)
    with cutepy.simulate(sanitize=True) as run:
        o, lse = attention_varlen(
            q,
            k,
            v,
            cu_seqlens_q=q_bounds,
            cu_seqlens_k=k_bounds,
            causal=causal,
            window=window,
            return_lse=True,
            deterministic=deterministic,
        )
        dlse = torch.randn_like(lse).masked_fill(lse == -math.inf, 0.0)
        grads = torch.autograd.grad((o, lse), (q, k, v), (do, dlse))
    assert not run.hazards
    assert not run.advisories
    o, lse = o.detach(), lse.detach()
    wide = [each.detach().double() for each in (do, q, k, v)]
    pairs = (itertools.pairwise(bounds.tolist()) for bounds in (q_bounds, k_bounds))
    for (q_first, q_end), (k_first, k_end) in zip(*pairs, strict=True):
        rows, keys = slice(q_first, q_end), slice(k_first, k_end)
        given = [wide[0][None, rows], wide[1][None, rows], wide[2][None, keys], wide[3][None, keys]]
        want, want_lse = reference.forward(*given[1:], scale, left, right)
        wanted = reference.backward(given[0], *given[1:], dlse[None, :, rows], scale, left, right)
        assert torch.equal(lse[:, rows] == -math.inf, want_lse[0] == -math.inf)
        assert torch.allclose(lse[:, rows], want_lse[0], rtol=0, atol=1e-4)
        found = o[rows], grads[0][rows], grads[1][keys], grads[2][keys]
        for each, other, bits in zip(found, (want, *wanted), (1, 2, 2, 2), strict=True):
            # One key has a gradient of nothing but rounding errors.
            assert apart(each, other[0]) < bits * ROUNDOFF[dtype] or (each - other[0]).abs().max() < 0.02
    for each, end in zip((o, *grads), (q_bounds[-1], q_bounds[-1], k_bounds[-1], k_bounds[-1]), strict=True):
        assert not each[end:].any()


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("q_lengths", "k_lengths", "options"),
    [
        ([5, 0, 130, 64, 1], [70, 3, 0, 200, 1], {"causal": True, "tail": 3}),
        pytest.param(
            [65, 7],
            [65, 7],
            {"dtype": torch.float16, "head": 128, "window": (20, 10)},
            marks=pytest.mark.integration,
        ),
        pytest.param([130, 0, 7], [300, 140, 0], {"deterministic": True, "tail": 140}, marks=pytest.mark.integration),
        pytest.param(
            [130, 9, 7, 200],
            [300, 140, 0, 150],
            {"deterministic": True, "causal": True, "tail": 3},
            marks=pytest.mark.integration,
        ),
        pytest.param(
            [70, 0, 9],
            [5, 70, 130],
            {"head": 192, "causal": True, "tail": 3, "deterministic": True},
            marks=pytest.mark.deep,
        ),
        pytest.param([40, 0, 7], [70, 3, 20], {"heads": (12, 1), "window": (20, 10)}, marks=pytest.mark.integration),
        pytest.param([1] * 36, [n * 2 for n in range(36)], {"heads": (1, 1)}, marks=pytest.mark.integration),
    ],
)
def test_results_and_gradients_are_those_of_float64(q_lengths, k_lengths, options):
    check(q_lengths, k_lengths, **options)


def test_without_a_gpu_each_sequence_has_the_results_of_float64():
    q, k, v = packed([5, 0, 9], 2, 64), packed([7, 3, 9], 1, 64), packed([7, 3, 9], 1, 64)
    o = attention_varlen(q, k, v, cu_seqlens_q=bounds_of([5, 0, 9]), cu_seqlens_k=bounds_of([7, 3, 9]))
    for rows, keys in ((slice(5), slice(7)), (slice(5, 14), slice(10, 19))):
        given = [each.double()[None] for each in (q[rows], k[keys], v[keys])]
        assert apart(o[rows], reference.forward(*given, 64**-0.5, None, None)[0][0]) < ROUNDOFF[q.dtype]


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("left", "right"), [(False, True), (True, False), (True, True)])
def test_chosen_kernels_of_gradients_do_not_spill(dtype, left, right):
    config = choose_backward(dtype, 64, 64, left=left, right=right, is_ragged=True)
    for ordered in (False, True):
        function = compile_backward(replace(config, ordered=ordered), Lengths(True, True))
        assert function.resources[0].spill_store_bytes == 0


@pytest.mark.deep
@pytest.mark.parametrize("head", [16, 64, 80, 128])
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_any_lengths_and_band(head, data):
    count = data.draw(st.integers(1, 5))
    lengths = [data.draw(st.lists(st.integers(0, 150), min_size=count, max_size=count)) for _ in range(2)]
    if not all(map(sum, lengths)):
        return
    window = data.draw(st.integers(-60, 100)), data.draw(st.integers(-60, 100))
    heads = data.draw(st.sampled_from([(1, 1), (2, 1), (4, 2), (6, 1), (8, 1)]))
    how = {"window": window, "deterministic": data.draw(st.booleans())}
    check(*lengths, heads, head, tail=data.draw(st.integers(0, 5)), **how)


def test_tokens_that_are_not_used_are_not_read():
    q, k = torch.randn(2, 3, 2, 64).bfloat16(), torch.randn(2, 100, 2, 64).bfloat16()
    used = torch.tensor([100, 41], dtype=torch.int32)
    poisoned = k.clone()
    poisoned[1, 41:] = math.nan
    with cutepy.simulate(sanitize=True) as run:
        o, lse = attention_varlen(q, poisoned, poisoned, seqused_k=used, causal=True, return_lse=True)
    assert not run.hazards
    for batch, keys in enumerate(used):
        given = (each[batch][None].double() for each in (q, k[:, :keys], k[:, :keys]))
        want, want_lse = reference.forward(*given, 0.125, None, 0)
        assert apart(o[batch], want[0]) < ROUNDOFF[torch.bfloat16]
        assert (lse[batch] - want_lse[0]).abs().max() < 1e-4


@pytest.mark.integration
def test_queries_that_are_not_used_have_zeros():
    q, k = (torch.randn(2, n, 1, 64).bfloat16().requires_grad_() for n in (70, 30))
    used = torch.tensor([0, 66], dtype=torch.int32)
    with cutepy.simulate():
        o = attention_varlen(q, k, k, seqused_q=used)
        dq, dk = torch.autograd.grad(o, (q, k), torch.randn_like(o))
    assert not o[0].any()
    assert not o[1, 66:].any()
    assert o[1, :66].any()
    assert not dq[0].any()
    assert not dq[1, 66:].any()
    assert not dk[0].any()
    assert dk[1].any()


def test_sequences_end_where_the_tensor_does():
    q = packed([20], 1, 64)
    found = []
    with cutepy.simulate(sanitize=True) as run:
        for end in (20, 40):
            bounds = torch.tensor([0, 7, end], dtype=torch.int32)
            found.append(attention_varlen(q, q, q, cu_seqlens_q=bounds, cu_seqlens_k=bounds, return_lse=True))
    assert not run.hazards
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_flash_attn_varlen_func_passes_each_argument_on():
    q, k = packed([5, 9], 2, 64), packed([8, 12], 2, 64)
    v = torch.randn_like(k)
    q_bounds, k_bounds = bounds_of([5, 9]), bounds_of([8, 12])
    options = {"cu_seqlens_q": q_bounds, "cu_seqlens_k": k_bounds}
    found = flash_attn_varlen_func(q, k, v, q_bounds, k_bounds, 9, 12, 0.0, 0.3, window_size=(4, 1))
    assert torch.equal(found, attention_varlen(q, k, v, **options, window=(4, 1), scale=0.3))
    found = flash_attn_varlen_func(q, k, v, q_bounds, k_bounds, causal=True)
    assert torch.equal(found, attention_varlen(q, k, v, **options, causal=True))


def test_torch_compiles_and_checks_it():
    q = packed([5, 20], 2, 64).requires_grad_()
    bounds = bounds_of([5, 20])
    call = lambda q: attention_varlen(q, q, q, cu_seqlens_q=bounds, cu_seqlens_k=bounds, causal=True)  # noqa: E731
    assert torch.equal(torch.compile(call, fullgraph=True, backend="aot_eager")(q), call(q))
    arguments = (q, q, q, bounds, bounds, None, None, None, None, [], "", 0, 20, 20, 0.125, None, 0, False)
    torch.library.opcheck(torch.ops.cutepy.attention_varlen.default, arguments)


@pytest.mark.parametrize("lengths", [[0, 0, 0], [1, 64, 65], [200], [63, 1, 0, 64]])
def test_whole_tiles_hold_all_sequences(lengths):
    first = [begin // 64 + n for n, begin in enumerate(bounds_of(lengths).tolist())]
    assert all(
        end - begin >= -(-length // 64) for (begin, end), length in zip(itertools.pairwise(first), lengths, strict=True)
    )
    assert first[-2] + -(-lengths[-1] // 64) <= tiles_of(sum(lengths), len(lengths), 64)


@pytest.mark.parametrize(
    "options",
    [
        {"cu_seqlens_q": torch.zeros(3, dtype=torch.int64)},
        {"cu_seqlens_q": torch.zeros(0, dtype=torch.int32), "cu_seqlens_k": torch.zeros(0, dtype=torch.int32)},
        {"cu_seqlens_q": torch.zeros(3, dtype=torch.int32), "cu_seqlens_k": torch.zeros(4, dtype=torch.int32)},
        {"seqused_k": torch.zeros(5, dtype=torch.int32)},
        {"seqused_k": torch.ones(2, dtype=torch.int32), "scale": 0.0},
        {},
        {"seqused_k": torch.ones(2, dtype=torch.int32), "max_seqlen_k": torch.tensor(4)},
        {"seqused_k": torch.ones(2, dtype=torch.int32), "max_seqlen_q": "4"},
    ],
)
def test_arguments_that_are_refused(options):
    q, k = ((4, 2, 64) if f"cu_seqlens_{n}" in options else (2, 4, 2, 64) for n in "qk")
    with refuses((TypeError, ValueError)):
        attention_varlen(*(torch.zeros(shape, dtype=torch.float16) for shape in (q, k, k)), **options)
