"""Attention of e4m3 with scales, in the simulator: against float64, and against what plain torch makes of e4m3."""

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.kernels.attention import reference  # noqa: E402
from cutepy.kernels.attention.choice import choose_batches, choose_forward  # noqa: E402
from cutepy.kernels.attention.op import compile_forward  # noqa: E402
from cutepy.ops import attention  # noqa: E402
from tests.messages import refuses  # noqa: E402

pytestmark = pytest.mark.usefixtures("complete_launches")

E4M3 = torch.float8_e4m3fn


def quantise(x, block=0):
    """Give (batch, tokens, heads, head) in e4m3, and the scale of each head, or of each `block` tokens of it."""
    tokens = x.shape[1]
    each = block or tokens
    padded = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, -tokens % each)).unflatten(1, (-1, each))
    scale = padded.abs().amax((2, 4)).clamp(min=1e-9) / 448  # (batch, blocks, heads)
    within = (padded / scale[:, :, None, :, None]).flatten(1, 2)[:, :tokens].to(E4M3)
    scale = scale.transpose(1, 2)
    return within, scale if block else scale[..., 0]


def problem(batch, queries, keys, heads, kv_heads, head, head_v=None, grows=0.0):
    torch.manual_seed(queries * 1000 + keys)
    shapes = (queries, heads, head), (keys, kv_heads, head), (keys, kv_heads, head_v or head)
    drawn = [torch.randn(batch, *shape) for shape in shapes]
    return [x * (1 + grows * torch.arange(x.shape[1]) / x.shape[1])[:, None, None] for x in drawn]


def apart(found, wanted):
    """Return the norm of the difference, relative to that of what is wanted."""
    return float((found.double() - wanted.double()).norm() / wanted.double().norm().clamp(min=1e-9))


def plain(q, k, v, scale, left, right):
    """Compute attention as plain torch would with e4m3 probabilities; q, k and v are what quantised ones stand for."""
    wide_q, wide_k, wide_v = reference.heads_first(q, k, v)
    scores = wide_q @ wide_k.mT * scale
    scores = scores.masked_fill(reference.hidden_by_band(scores, left, right), -math.inf)
    powers = torch.exp(scores - scores.amax(-1, keepdim=True).clamp(min=-1e30))
    sums = powers.sum(-1, keepdim=True)
    return ((powers.to(E4M3).double() @ wide_v) / sums.clamp(min=1e-30)).transpose(1, 2)


def check(x, *, causal=False, window=(-1, -1), block=0, out_dtype=None, is_certified=False, **how):
    """Compare the kernel, sanitized, with float64 and with plain torch; return its relative error of all."""
    (q, q_scale), (k, k_scale), (v, v_scale) = (quantise(each, block) for each in x)
    q_scale = q_scale if block or q_scale.shape[1] == k_scale.shape[1] else q_scale[:, :, None]
    scales = {"q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}
    how |= {"causal": causal, "window": window, "out_dtype": out_dtype, **scales, "return_lse": True}
    exact, exact_lse = attention(q, k, v, **how)
    with cutepy.simulate(sanitize=True) as run:
        o, lse = attention(q, k, v, **how)
    assert not run.hazards
    assert not run.advisories
    if is_certified:
        assert all(certificate.is_certified for certificate in run.certificates)
    assert o.dtype == (out_dtype or torch.bfloat16)
    assert torch.equal(lse == -math.inf, exact_lse == -math.inf)
    assert (lse - exact_lse).nan_to_num(0.0).abs().max() < 1e-3
    assert apart(o, exact) < 2.0**-5  # of probabilities, in e4m3: 2^-4 at most, and 2^-5 in the mean, of each
    left, right = (None if each == -1 else each for each in window)
    given = (q.shape[-1] ** -0.5, left, 0 if causal else right)
    if how.keys() == {"causal", "window", "out_dtype", *scales, "return_lse"}:
        wanted, _ = reference.forward(*(each.double() for each in x), *given)
        stands_for = (dequantised(each, scale, block) for each, scale in ((q, q_scale), (k, k_scale), (v, v_scale)))
        assert apart(o, wanted) <= 1.02 * apart(plain(*stands_for, *given), wanted) + 2.0**-9
    return o


def dequantised(x, scale, block):
    """Give what e4m3 stands for, in float64."""
    scale = scale if scale.dim() == 3 else scale[..., None]
    each = scale.double().repeat_interleave(block or x.shape[1], 2)[..., : x.shape[1]]
    return x.double() * each.transpose(1, 2)[..., None]


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("batch", "extents", "heads", "head", "options"),
    [
        (1, (70, 240), (2, 1), 64, {"causal": True, "is_certified": True}),
        pytest.param(2, (130, 300), (2, 2), 128, {"window": (100, 20)}, marks=pytest.mark.integration),
        pytest.param(1, (40, 150), (2, 1), 256, {"out_dtype": torch.float16}, marks=pytest.mark.integration),
        pytest.param(1, (130, 100), (2, 1), (80, 48), {}, marks=pytest.mark.integration),
        pytest.param(1, (65, 170), (1, 1), (192, 128), {"causal": True}, marks=pytest.mark.integration),
    ],
)
def test_results_of_a_scale_for_each_head(batch, extents, heads, head, options):
    check(problem(batch, *extents, *heads, *(head if isinstance(head, tuple) else (head,))), **options)


@pytest.mark.integration
def test_results_of_a_scale_for_each_128_tokens():
    check(problem(2, 140, 300, 4, 2, 64, grows=30.0), causal=True, block=128, is_certified=True)


@pytest.mark.deep
@pytest.mark.integration
def test_three_warpgroups_have_their_own_blocks_of_queries():
    x = problem(1, 1100, 200, 1, 1, 64, grows=30.0)
    check(x, block=128)
    check(x, window=(-1, -950))


@pytest.mark.deep
@pytest.mark.integration
def test_functions_of_scores_and_sinks():
    x = problem(1, 100, 280, 2, 1, 64, grows=10.0)
    check(x, block=128, soft_cap=3.0, sinks=torch.randn(2))
    check(x, block=128, mask=lambda b, h, i, j: i >= j - 90)
    check(x, soft_cap=3.0, alibi_slopes=torch.rand(2))


@pytest.mark.deep
@pytest.mark.parametrize("head", [16, 64, 128, 160])
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_any_shape_and_band(head, data):
    heads = data.draw(st.sampled_from([(1, 1), (2, 1), (4, 2)]))
    extents = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 300))
    window = data.draw(st.integers(-90, 200)), data.draw(st.integers(-90, 200))
    how = {"causal": data.draw(st.booleans()), "block": data.draw(st.sampled_from([0, 128]))}
    check(problem(1, *extents, *heads, head, grows=data.draw(st.sampled_from([0.0, 10.0]))), **how, window=window)


def test_probabilities_fill_the_range():
    # All of the keys but one have a probability that is denormal in e4m3, unless powers of 2 raise it.
    q, k = torch.zeros(1, 1, 1, 64), torch.zeros(1, 200, 1, 64)
    q[..., 0], k[:, 0, :, 0] = 8.0, 7.0
    v = torch.randn(1, 200, 1, 64)
    exact, _ = reference.forward(*(each.to(E4M3).double() for each in (q, k, v)), 64**-0.5, None, None)
    with cutepy.simulate():
        o = attention(*(each.to(E4M3) for each in (q, k, v)))
    assert apart(o, exact) < 2.0**-5


def test_a_row_with_a_nan_is_nan_and_the_others_are_not():
    q, k, v = (each.to(E4M3) for each in problem(1, 64, 64, 1, 1, 128))
    q[0, 5, 0, 3] = math.nan
    with cutepy.simulate():
        o = attention(q, k, v)
    assert o[0, 5].isnan().all()
    assert not o[0, :5].isnan().any()
    assert not o[0, 6:].isnan().any()


def test_tensors_without_elements():
    q, k, v = (each.to(E4M3) for each in problem(2, 3, 5, 2, 2, 64))
    with cutepy.simulate():
        assert attention(q[:, :0], k, v, out_dtype=torch.float16).dtype == torch.float16
        o, lse = attention(q, k[:, :0], v[:, :0], return_lse=True)
    assert not o.any()
    assert (lse == -math.inf).all()


def test_torch_compiles_and_checks_it():
    from torch.utils.flop_counter import FlopCounterMode

    q, k, v = (each.to(E4M3) for each in problem(1, 20, 20, 2, 2, 64))
    scale = torch.rand(1, 2)
    compiled = torch.compile(lambda *x: attention(*x, k_scale=scale), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, k, v), attention(q, k, v, k_scale=scale))
    given = (q, k, v, None, scale[..., None], None, None, [], [], "", [], 0.125, None, 0, torch.bfloat16)
    with FlopCounterMode(display=False) as counter:
        attention(q, k, v)
    assert counter.get_total_flops() == 4 * 2 * 20 * 20 * 64
    # Of others torch multiplies the inputs by numbers, which it can't of 8 bits.
    tested = ("test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.cutepy.quantised_attention.default, given, test_utils=tested)


def test_arguments_that_are_refused():
    q, k, v = (torch.zeros(1, 140, heads, 64, dtype=E4M3) for heads in (4, 2, 2))
    for kind, options in (
        (ValueError, {"q_scale": torch.ones(1, 3)}),
        (ValueError, {"q_scale": torch.ones(3)}),
        (ValueError, {"k_scale": torch.ones(1, 2, 3)}),
        (ValueError, {"v_scale": torch.ones(1, 4)}),
        (TypeError, {"v_scale": torch.ones(1, 2).half()}),
        (TypeError, {"out_dtype": torch.float32}),
        (NotImplementedError, {"dropout_p": 0.5}),
        (NotImplementedError, {"sinks": torch.ones(4, requires_grad=True)}),
    ):
        with refuses(kind):
            attention(q, k, v, **options)
    with refuses(TypeError):
        attention(q, k, v.half())
    with refuses(TypeError):
        attention(q.half(), k.half(), v.half(), k_scale=torch.ones(1, 2))


@pytest.mark.first(3)
@pytest.mark.integration
@pytest.mark.parametrize("head", [64, 96, 128, 192, 224, 256])
@pytest.mark.parametrize("right", [False, True])
def test_chosen_kernels_do_not_spill(head, right):
    of_all = "float8_e4m3fn", head, head
    sequences = choose_forward(*of_all, 4096, left=False, right=right)
    batches = (choose_batches(*of_all, queries, 1, left=False, right=right) for queries in (512, 4096))
    for config in {sequences, *batches}:
        assert compile_forward(config, scales=(True, True, True)).resources[0].spill_store_bytes == 0


@pytest.mark.first(2)
@pytest.mark.integration
@pytest.mark.parametrize("head", [64, 128, 192, 256])
@pytest.mark.parametrize(("left", "right"), [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize("queries", [512, 4096])
def test_ends_and_beginnings_of_tiles(head, left, right, queries):
    config = choose_batches("float8_e4m3fn", head, head, queries, 1, left=left, right=right)
    q, k, v = (each.to(E4M3) for each in problem(1, 500, 500, 2, 2, head))
    o, lse = torch.full((1, 500, 2, head), math.nan, dtype=torch.bfloat16), torch.full((1, 2, 500), math.nan)
    with cutepy.simulate(sanitize=True) as run:  # each of two CTAs has several tiles
        taken = torch.zeros(1, dtype=torch.int32)
        counter = taken if config.dynamic else None
        compile_forward(config)(q, k, v, o, lse, head**-0.5, 200, 0, 2, *[None] * 9, counter)
    assert not taken.any(), "the counter is as it was"
    assert not run.hazards
    band = 200 if left else None, 0 if right else None
    wanted, wanted_lse = reference.forward(*(each.double() for each in (q, k, v)), head**-0.5, *band)
    assert apart(o, wanted) < 2.0**-5
    assert (lse - wanted_lse).abs().max() < 1e-4
