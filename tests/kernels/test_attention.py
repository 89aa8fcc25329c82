"""Attention in the simulator: results and gradients against float64, sanitized; and what ptxas makes of the kernels."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.kernels.attention import reference  # noqa: E402
from cutepy.kernels.attention.choice import choose_backward, choose_batches, choose_forward  # noqa: E402
from cutepy.kernels.attention.config import ForwardConfig, Lengths  # noqa: E402
from cutepy.kernels.attention.op import compile_backward, compile_forward  # noqa: E402
from cutepy.ops import attention  # noqa: E402

pytestmark = pytest.mark.usefixtures("complete_launches")

ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def tensors(dtype, batch, queries, keys, heads, kv_heads, head, head_v=None):
    torch.manual_seed(queries * 1000 + keys)
    shapes = (queries, heads, head), (keys, kv_heads, head), (keys, kv_heads, head_v or head)
    return [torch.randn(batch, *shape).to(dtype) for shape in shapes]


def apart(found, wanted):
    """Return the norm of the difference, relative to that of what is wanted."""
    return float((found.double() - wanted.double()).norm() / wanted.double().norm().clamp(min=1e-9))


def check(q, k, v, *, causal=False, window=(-1, -1), gradients=True, deterministic=False):
    """Compare with float64, in the simulator, sanitized; also the gradients, of the logarithms too."""
    dtype, names = q.dtype, (q, k, v)
    left, right = (None if each == -1 else each for each in window)
    right = 0 if causal else right
    scale = q.shape[-1] ** -0.5
    wide = [each.double() for each in names]
    o, lse = reference.forward(*wide, scale, left, right)
    given_q, given_k, given_v = (each.clone().requires_grad_(gradients) for each in names)
    with cutepy.simulate(sanitize=True) as run:
        how = {"causal": causal, "window": window, "deterministic": deterministic}
        found, found_lse = attention(given_q, given_k, given_v, **how, return_lse=True)
        if gradients:
            do, dlse = torch.randn_like(found), torch.randn_like(found_lse)
            grads = torch.autograd.grad((found, found_lse), (given_q, given_k, given_v), (do, dlse))
    assert not run.hazards
    assert not run.advisories
    found, found_lse = found.detach(), found_lse.detach()
    assert apart(found, o) < ROUNDOFF[dtype]
    assert torch.equal(found_lse == -math.inf, lse == -math.inf)
    assert (found_lse - lse).nan_to_num(0.0).abs().max() < 1e-4
    if gradients:
        wanted = reference.backward(do, *wide, dlse.nan_to_num(0.0), scale, left, right)
        for grad, want in zip(grads, wanted, strict=True):
            assert apart(grad, want) < 2 * ROUNDOFF[dtype]


@pytest.mark.first(3)
@pytest.mark.parametrize(
    ("dtype", "batch", "extents", "heads", "head", "causal", "window"),
    [
        (torch.bfloat16, 2, (70, 130), (4, 2), 64, True, (-1, -1)),
        pytest.param(torch.float16, 1, (1, 33), (2, 1), 128, False, (-1, -1), marks=pytest.mark.integration),
        pytest.param(torch.float16, 1, (65, 40), (2, 2), 112, False, (10, -5), marks=pytest.mark.integration),
        (torch.bfloat16, 1, (3, 5), (2, 1), 48, False, (1, -1)),
        pytest.param(torch.bfloat16, 1, (150, 60), (1, 1), 16, True, (-1, -1), marks=pytest.mark.integration),
        pytest.param(torch.float16, 1, (65, 40), (2, 2), 96, False, (-1, 7), marks=pytest.mark.integration),
        pytest.param(torch.bfloat16, 1, (300, 300), (2, 2), 128, True, (140, -1), marks=pytest.mark.integration),
    ],
)
def test_results_and_gradients_are_those_of_float64(dtype, batch, extents, heads, head, causal, window):
    check(*tensors(dtype, batch, *extents, *heads, head), causal=causal, window=window)


def test_heads_that_share_keys_are_rows_of_tiles_with_a_window():
    """Of three warpgroups, whose tiles are dealt in turns."""
    q, k, v = tensors(torch.bfloat16, 1, 50, 50, 8, 1, 64)
    check(q, k, v, causal=True, window=(30, -1), gradients=False)
    config = choose_batches("bfloat16", 64, 64, 50, 8, left=True, right=True)
    assert (config.packed, config.warpgroups) == (8, 3)


@pytest.mark.parametrize(
    ("window", "masks"), [((59, 0), "_right"), ((100, 39), ""), ((58, 0), "_left_right"), ((59, 38), "_right")]
)
def test_bounds_of_windows_that_hide_nothing_cost_no_mask(window, masks):
    q, k, v = tensors(torch.bfloat16, 1, 40, 60, 1, 1, 64)
    with cutepy.simulate() as run:
        attention(q, k, v, window=window)
    (launch,) = run.launches
    assert re.search(r"_\d+x\d+((_left)?(_right)?)", launch.name)[1] == masks


@pytest.mark.first(2)
@pytest.mark.integration
@pytest.mark.parametrize(
    ("dtype", "extents", "heads", "head", "head_v", "options"),
    [
        (torch.bfloat16, (70, 140), (2, 1), 192, 128, {"causal": True}),
        (torch.float16, (70, 130), (1, 1), 256, 256, {"window": (20, 10), "deterministic": True}),
        pytest.param(torch.float16, (130, 70), (1, 1), 48, 96, {}, marks=pytest.mark.deep),
        pytest.param(torch.bfloat16, (65, 40), (2, 1), 16, 208, {"window": (10, -5)}, marks=pytest.mark.deep),
    ],
)
def test_wide_rows_and_rows_that_differ(dtype, extents, heads, head, head_v, options):
    check(*tensors(dtype, 1, *extents, *heads, head, head_v), **options)


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("head", "head_v", "causal"),
    [(128, 128, False), pytest.param(128, 128, True, marks=pytest.mark.deep), (192, 128, False)],
)
def test_a_cta_of_several_tiles_has_the_gradients_of_float64(head, head_v, causal, monkeypatch):
    # The warps that send dQ are ahead of the warpgroups between two tiles, where both meet at one barrier.
    monkeypatch.setattr("cutepy.kernels.attention.op.gpu_of", lambda device: SimpleNamespace(sm_count=1))
    check(*tensors(torch.bfloat16, 1, 20, 130, 1, 1, head, head_v), causal=causal)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("head", "head_v"), [(16, 16), (48, 48), (64, 64), (112, 112), (128, 128), (192, 128), (256, 256)]
)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_any_shape_and_band(head, head_v, data):
    heads = data.draw(st.sampled_from([(1, 1), (2, 1), (3, 3), (4, 2)]))
    extents = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 300))
    window = data.draw(st.integers(-90, 200)), data.draw(st.integers(-90, 200))
    dtype = data.draw(st.sampled_from([torch.float16, torch.bfloat16]))
    how = {"causal": data.draw(st.booleans()), "deterministic": data.draw(st.booleans())}
    check(*tensors(dtype, 1, *extents, *heads, head, head_v), **how, window=window)


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.parametrize(
    ("extents", "options"),
    [
        ((260, 130), {"causal": True}),
        ((140, 300), {"window": (-20, 150)}),
        pytest.param((130, 260), {"window": (-1, -1)}, marks=pytest.mark.deep),
        pytest.param((300, 140), {"window": (10, -1)}, marks=pytest.mark.deep),
        pytest.param((140, 300), {"window": (None, -150)}, marks=pytest.mark.deep),
        pytest.param((140, 300), {"window": (20, -50)}, marks=pytest.mark.deep),
    ],
)
def test_deterministic_gradients_are_those_of_float64(extents, options):
    check(*tensors(torch.float16, 1, *extents, 2, 1, 64), **options, deterministic=True)


@pytest.mark.first(1)
@pytest.mark.parametrize("window", [(-1, -1), pytest.param((-1, 300), marks=pytest.mark.integration)])
def test_deterministic_gradients_have_the_same_bits_in_every_schedule(window):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, extent, 1, 64).half().requires_grad_() for extent in (128, 640, 640))
    do = torch.randn(1, 128, 1, 64).half()

    def gradients(policy):
        with cutepy.simulate(policy=policy):
            return torch.autograd.grad(attention(q, k, v, window=window), (q, k, v), do)

    found = [gradients(policy) for policy in ("late", "schedule:1")]
    assert not torch.equal(found[0][0], found[1][0])
    torch.use_deterministic_algorithms(True)
    try:
        found = [gradients(policy) for policy in ("late", "schedule:1")]
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(map(torch.equal, *found))


@pytest.mark.integration
def test_grids_hold_more_than_65535_batches_and_heads():
    q, k, v = (each.requires_grad_() for each in tensors(torch.bfloat16, 3, 70, 40, 2, 1, 16))
    with cutepy.simulate() as run:
        attention(q, k, v).sum().backward()
    assert [launch.grid[1:] for launch in run.launches] == [(1, 1)] * 4


def test_views_that_tma_reaches_are_not_copied():
    q, k, v = (torch.randn(1, 2, 40, 64).bfloat16().transpose(1, 2) for _ in range(3))
    check(q, k, v, gradients=False)
    check(q[..., :48], k[..., :48], v[..., :48], gradients=False)


@pytest.mark.parametrize("options", [{}, {"soft_cap": 3.0}])
@pytest.mark.parametrize("value", [torch.sum, lambda lse: lse.mT.contiguous().square().sum()])
def test_gradients_of_the_logarithms_may_have_any_strides(value, options):
    q, k, v = (each.requires_grad_() for each in tensors(torch.bfloat16, 1, 20, 20, 2, 1, 64))

    def gradient():
        _, lse = attention(q, k, v, return_lse=True, **options)
        return torch.autograd.grad(value(lse), q)[0]

    with cutepy.simulate():
        found = gradient()
    assert apart(found, gradient()) < 2 * ROUNDOFF[torch.bfloat16]


def test_a_row_with_a_nan_is_nan_and_the_others_are_not():
    q, k, v = tensors(torch.bfloat16, 1, 64, 64, 1, 1, 64)
    q[0, 5, 0, 3] = math.nan
    with cutepy.simulate():
        o = attention(q, k, v)
    assert o[0, 5].isnan().all()
    assert not o[0, :5].isnan().any()
    assert not o[0, 6:].isnan().any()


def test_tensors_without_elements():
    q, k, v = tensors(torch.bfloat16, 2, 3, 5, 2, 2, 64)
    with cutepy.simulate():
        assert attention(q[:, :0], k, v).shape == (2, 0, 2, 64)
        headless = [each[:, :, :0].requires_grad_() for each in (q, k, v)]
        attention(*headless).sum().backward()
        assert [each.grad.shape for each in headless] == [(2, 3, 0, 64), (2, 5, 0, 64), (2, 5, 0, 64)]
        o, lse = attention(q, k[:, :0], v[:, :0], return_lse=True)
    assert not o.any()
    assert (lse == -math.inf).all()


@pytest.mark.parametrize("window", [(2**31 - 1, 2**31 - 1), (5, 2**40), (2**31 - 1, 0)])
def test_bounds_beyond_all_keys(window):
    q, k = torch.randn(1, 70, 2, 32).bfloat16().requires_grad_(), torch.randn(1, 150, 1, 32).bfloat16()
    narrow = tuple(min(bound, 1000) for bound in window)
    with cutepy.simulate():
        results = [attention(q, k, k, window=each) for each in (window, narrow)]
        grads = [torch.autograd.grad(each.sum(), q)[0] for each in results]
    assert torch.equal(*results)
    assert torch.equal(*grads)


def test_functions_compile_with_dynamic_shapes():
    def capped(q, k):
        return attention(q, k, k, soft_cap=20.0, score=lambda s, b, h, i, j: s + 0.1 * (j - i))

    compiled = torch.compile(capped, fullgraph=True, dynamic=True, backend="eager")
    for tokens in (7, 9):
        q = torch.randn(1, tokens, 2, 32).bfloat16()
        assert torch.equal(compiled(q, q), capped(q, q))


def test_torch_compiles_and_checks_it():
    q, k, v = (each.requires_grad_() for each in tensors(torch.float16, 1, 20, 20, 2, 2, 64))
    compiled = torch.compile(lambda *given: attention(*given, causal=True), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, k, v), attention(q, k, v, causal=True))
    scale = 64**-0.5
    torch.library.opcheck(torch.ops.cutepy.attention.default, (q, k, v, scale, None, 0, True))


@pytest.mark.parametrize(
    ("shapes", "dtype", "options", "kind"),
    [
        (((1, 4, 2, 64), (1, 4, 2, 64), (1, 5, 2, 64)), torch.float16, {}, ValueError),
        (((1, 4, 3, 64), (1, 4, 2, 64), (1, 4, 2, 64)), torch.float16, {}, ValueError),
        (((1, 4, 2, 60), (1, 4, 2, 60), (1, 4, 2, 60)), torch.float16, {}, ValueError),
        (((1, 4, 2, 320), (1, 4, 2, 320), (1, 4, 2, 320)), torch.float16, {}, ValueError),
        (((4, 2, 64), (4, 2, 64), (4, 2, 64)), torch.float16, {}, ValueError),
        (((1, 4, 2, 64),) * 3, torch.float32, {}, TypeError),
        (((1, 4, 2, 64),) * 3, torch.float16, {"scale": -1.0}, ValueError),
        (((1, 4, 2, 64),) * 3, torch.float16, {"window": (True, 3)}, ValueError),
    ],
)
def test_arguments_that_are_refused(shapes, dtype, options, kind):
    with pytest.raises(kind):
        attention(*(torch.zeros(shape, dtype=dtype) for shape in shapes), **options)


EARLY = {"q_stages": 2, "begins_early": True, "divides_fast": True, "masks_parts": True}


@pytest.mark.first(1)
@pytest.mark.integration
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("head", "changes"),
    [
        (64, {**EARLY, "o_stages": 2}),
        (64, {**EARLY, "tile_m": 192, "warpgroups": 3, "stages": 3, "ordered": False}),
        (128, {**EARLY, "o_stages": 4}),
        (256, {"o_stages": 4, "divides_fast": True}),
        (256, {"o_stages": 8, "o_over_q": True, "tile_n": 80}),
        (256, {"o_stages": 8, "o_over_q": True, "tile_n": 80, "rescales_late": True, "ordered": False}),
        (128, {"o_stages": 4, "q_stages": 2, "dynamic": True}),
    ],
)
def test_ends_and_beginnings_of_tiles(head, changes, causal):
    config = replace(choose_forward("bfloat16", head, head, 300, left=False, right=causal), **changes)
    q, k, v = tensors(torch.bfloat16, 1, 300, 300, 2, 2, head)
    o, lse = torch.full_like(q, math.nan), torch.full((1, 2, 300), math.nan)
    with cutepy.simulate(sanitize=True) as run:  # each of two CTAs has several tiles
        taken = torch.zeros(1, dtype=torch.int32)
        counter = taken if config.dynamic else None
        compile_forward(config)(q, k, v, o, lse, head**-0.5, 0, 0, 2, *[None] * 9, counter)
    assert not taken.any(), "the counter is as it was"
    assert not run.hazards
    assert not run.advisories
    wide = [each.double() for each in (q, k, v)]
    wanted, wanted_lse = reference.forward(*wide, head**-0.5, None, 0 if causal else None)
    assert apart(o, wanted) < ROUNDOFF[torch.bfloat16]
    assert (lse - wanted_lse).abs().max() < 1e-4


@pytest.mark.first(3)
@pytest.mark.integration
@pytest.mark.parametrize("tile_n", [80, 96, 112, 144, 160, 176])
def test_probabilities_are_not_packed_again_nor_spilled(tile_n):
    config = ForwardConfig(dtype="bfloat16", head=128, head_v=128, tile_m=128, tile_n=tile_n, warpgroups=2)
    function = compile_forward(config)
    assert not re.search(r"mov\.b32\s+%r\d+, \{%rs", function.ptx)
    assert function.resources[0].spill_store_bytes == 0


@pytest.mark.first(1)
@pytest.mark.integration
@pytest.mark.parametrize(
    ("head", "right"), [(64, False), (64, True), (128, False), (128, True), (192, True), (256, False)]
)
def test_chosen_kernels_do_not_spill(head, right):
    backward = choose_backward("bfloat16", head, head, left=False, right=right)
    for function in (
        compile_forward(choose_forward("bfloat16", head, head, 4096, left=False, right=right)),
        compile_forward(
            replace(choose_forward("bfloat16", head, head, 4096, left=False, right=right), packed=8),
            Lengths(True, True),
        ),
        compile_backward(backward),
        compile_backward(replace(backward, ordered=True)),
    ):
        assert function.resources[0].spill_store_bytes == 0
