"""Attention by the signatures of torch and flash-attn: masks, broadcasting, alignment and widths, against torch's."""

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from torch.nn.attention.bias import causal_lower_right, causal_upper_left  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import cutepy  # noqa: E402
from cutepy.ops import (  # noqa: E402
    attention,
    attention_varlen,
    block_mask,
    dot_product_attention,
    flash_attn_func,
    flash_attn_varlen_func,
    scaled_dot_product_attention,
)
from tests.messages import refuses  # noqa: E402

pytestmark = pytest.mark.usefixtures("complete_launches")
ROUNDOFF = 2.0**-8


def apart(found, wanted):
    found, wanted = found.detach().double(), wanted.detach().double()
    return float((found - wanted).norm() / wanted.norm().clamp(min=1e-9))


def tensors(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).bfloat16() for shape in shapes]


def check(q, k, v, **options):
    """Compare results and gradients with those of torch in float64."""
    given = [each.clone().requires_grad_() for each in (q, k, v)]
    wide = [each.double().requires_grad_() for each in (q, k, v)]
    o = scaled_dot_product_attention(*given, **options)
    mask = options.get("attn_mask")
    if mask is not None and mask.dtype != torch.bool:
        options = {**options, "attn_mask": mask.double()}
    wanted = torch.nn.functional.scaled_dot_product_attention(*wide, **options)
    assert o.shape == wanted.shape
    assert apart(o, wanted) < ROUNDOFF
    do = torch.randn_like(o)
    found, expected = torch.autograd.grad(o, given, do), torch.autograd.grad(wanted, wide, do.double())
    for grad, want in zip(found, expected, strict=True):
        assert apart(grad, want) < 2 * ROUNDOFF


MASK = torch.rand(2, 1, 9, 13, generator=torch.Generator().manual_seed(1)) > 0.5


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        (((2, 4, 9, 64), (2, 2, 13, 64), (2, 2, 13, 64)), {"attn_mask": MASK, "enable_gqa": True}),
        (((2, 2, 9, 64), (2, 2, 13, 64), (2, 2, 13, 64)), {"attn_mask": MASK[0, 0].float()}),
        (((3, 9, 64), (3, 13, 64), (3, 13, 64)), {"attn_mask": MASK[:1, 0], "scale": 0.3}),
        (((2, 9, 64), (2, 13, 64), (2, 13, 64)), {"attn_mask": MASK[:, 0]}),
        (((3, 9, 64), (3, 13, 64), (3, 13, 64)), {"attn_mask": MASK[0, 0]}),
        (((2, 3, 1, 9, 64), (3, 1, 13, 64), (3, 1, 13, 64)), {"attn_mask": MASK[0]}),
        (((1, 1, 9, 64), (1, 1, 13, 64), (1, 1, 13, 64)), {"is_causal": True}),
        (((1, 1, 13, 64), (1, 1, 9, 64), (1, 1, 9, 64)), {"is_causal": True}),
        (((1, 2, 9, 5), (1, 2, 13, 5), (1, 2, 13, 40)), {}),
    ],
)
def test_torchs_calls(shapes, options):
    check(*tensors(*shapes), **options)


@pytest.mark.parametrize(
    ("bias", "queries", "keys"),
    [(causal_upper_left, 9, 13), (causal_upper_left, 13, 9), (causal_lower_right, 9, 13)],
)
def test_torchs_causal_biases(bias, queries, keys):
    q, k = tensors((1, 2, queries, 16), (1, 2, keys, 16))
    mask = bias(queries, keys)
    o = scaled_dot_product_attention(q, k, k, attn_mask=mask)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        *(each.double() for each in (q, k, k)), attn_mask=mask._materialize(q.device)
    )
    assert apart(o, wanted) < ROUNDOFF


@pytest.mark.deep
@pytest.mark.integration
def test_masks_and_the_alignment_of_the_first_query_in_kernels():
    q, k = tensors((1, 2, 30, 64), (1, 2, 70, 64))
    with cutepy.simulate(sanitize=True) as run:
        check(q, k, k, attn_mask=torch.rand(30, 70) > 0.5)
        check(q, k, k, attn_mask=torch.randn(1, 1, 1, 70))
        check(q, k, k, is_causal=True)
    assert not run.hazards


@pytest.mark.parametrize(
    ("options", "way"),
    [
        ({}, "_output"),
        ({"causal": True, "scale": 0.5, "window": (3, 4), "deterministic": True}, "_output"),
        ({"return_lse": True}, "_attention"),
        ({"soft_cap": 3.0}, "scored_attention"),
        ({"alibi_slopes": torch.ones(2)}, "scored_attention"),
        ({"score": lambda s, b, h, i, j: s}, "scored_attention"),
        ({"mask": lambda b, h, i, j: i > j}, "scored_attention"),
        ({"operands": {}}, "scored_attention"),
        ({"block_mask": object()}, "scored_attention"),
        ({"sinks": torch.ones(2)}, "scored_attention"),
        ({"dropout_p": 0.5}, "scored_attention"),
        ({"sinks": torch.ones(2), "block_mask": object()}, "scored_attention"),
        ({"dtype": torch.float8_e4m3fn}, "quantised_attention"),
        ({"dtype": torch.float8_e4m3fn, "return_lse": True, "q_scale": torch.ones(1)}, "quantised_attention"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value,
)
def test_every_option_has_its_way(monkeypatch, options, way):
    """Stand-ins compute: that of the output alone gives a tensor, and the others the logarithms too."""
    options = dict(options)
    dtype, called = options.pop("dtype", torch.bfloat16), []
    for name in ("_output", "_attention", "scored_attention", "quantised_attention"):
        found = "o" if name == "_output" else ("o", "lse")
        monkeypatch.setattr(dot_product_attention, name, lambda *_, n=name, f=found: called.append(n) or f)
    q, k = (torch.zeros(1, rows, 2, 16, dtype=dtype) for rows in (3, 5))
    assert attention(q, k, k, **options) == (("o", "lse") if options.get("return_lse") else "o")
    assert called == [way]


@pytest.mark.parametrize("name", ["q_scale", "k_scale", "v_scale", "out_dtype"])
def test_scales_and_another_type_are_refused_but_of_8_bits(name):
    q = torch.zeros(1, 3, 2, 16, dtype=torch.bfloat16)
    with refuses((TypeError, ValueError)):
        attention(q, q, q, **{name: torch.float16 if name == "out_dtype" else torch.ones(1)})


def test_rows_that_a_mask_hides_are_zeros():
    q, mask = tensors((1, 1, 4, 16))[0], torch.ones(4, 4, dtype=torch.bool)
    mask[2] = False
    o = scaled_dot_product_attention(q, q, q, attn_mask=mask)
    assert not o[0, 0, 2].any()
    assert o.isfinite().all()


@pytest.mark.parametrize(
    ("shape", "options", "kind"),
    [
        ((1, 2, 4, 16), {"dropout_p": 1.1}, ValueError),
        ((1, 2, 4, 16), {"attn_mask": MASK[0, 0, :4, :4], "is_causal": True}, ValueError),
        ((4, 16), {}, ValueError),
        ((1, 2, 4, 16), {"attn_mask": torch.ones(4, 5)}, ValueError),
        ((1, 2, 4, 16), {"attn_mask": torch.ones(1, 1, 1, 4, 4)}, ValueError),
        ((1, 2, 4, 16), {"attn_mask": torch.ones(4, 4, dtype=torch.int32)}, TypeError),
    ],
)
def test_torchs_calls_that_are_refused(shape, options, kind):
    q = torch.zeros(shape, dtype=torch.float16)
    with refuses(kind):
        scaled_dot_product_attention(q, q, q, **options)


def test_a_mask_that_is_added_has_a_gradient_summed_over_what_it_is_broadcast_along():
    q, k = tensors((2, 3, 9, 64), (2, 3, 13, 64))
    mask = torch.randn(3, 1, 13, dtype=torch.float16, requires_grad=True)
    do = torch.randn(q.shape).half()
    (found,) = torch.autograd.grad(scaled_dot_product_attention(q, k, k, attn_mask=mask), mask, do)
    wide, wide_mask = [each.double() for each in (q, k, k)], mask.detach().double().requires_grad_()
    o = torch.nn.functional.scaled_dot_product_attention(*wide, attn_mask=wide_mask)
    (wanted,) = torch.autograd.grad(o, wide_mask, do.double())
    assert found.dtype == mask.dtype
    assert apart(found, wanted) < 4 * ROUNDOFF


@pytest.mark.parametrize("window", [(None, -3), (-3, None), (4, -2), (None, None), (-1, 2)])
def test_windows_that_end_before_a_query_or_begin_behind_it(window):
    q, k = tensors((1, 9, 1, 16), (1, 13, 1, 16))
    o, lse = attention(q, k, k, window=window, return_lse=True)
    left, right = (99 if each in (None, -1) else each for each in window)
    seen = torch.tensor([[-left <= j - (i + 4) <= right for j in range(13)] for i in range(9)])
    scores = (q[0, :, 0].double() @ k[0, :, 0].double().T * 0.25).masked_fill(~seen, -math.inf)
    assert torch.allclose(lse[0, 0].double(), scores.logsumexp(-1), atol=1e-5)
    assert apart(o[0, :, 0], scores.softmax(-1).nan_to_num(0.0) @ k[0, :, 0].double()) < ROUNDOFF


def test_the_gradient_of_sinks_has_their_dtype():
    q, sinks = tensors((1, 3, 2, 16))[0], torch.tensor([0.5, 2.0], dtype=torch.bfloat16, requires_grad=True)
    attention(q, q, q, sinks=sinks).sum().backward()
    assert sinks.grad.dtype == torch.bfloat16
    assert sinks.grad.abs().max() > 0


def test_gradients_of_unused_results_are_not_made():
    """Zeros for the logarithms would be a kernel more, and one that reads them."""
    seen = []

    class Sees(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if "attention_backward" in str(function):
                seen.append(args[6])
            return function(*args, **(kwargs or {}))

    q = tensors((1, 3, 2, 16))[0].requires_grad_()
    o = attention(q, q, q)
    with Sees():
        o.sum().backward()
    assert seen == [None]


def test_a_deterministic_gradient_of_a_block_mask_is_refused():
    q = tensors((1, 128, 1, 16))[0].requires_grad_()
    blocks = block_mask(lambda b, h, i, j: i >= j, 128, 128, device="cpu")
    with cutepy.simulate():
        o = attention(q, q, q, block_mask=blocks, deterministic=True)
        with refuses(NotImplementedError):
            o.sum().backward()


def test_flash_attns_arguments():
    q, slopes = tensors((2, 5, 2, 16))[0], torch.tensor([0.5, 0.25])
    o, lse, none = flash_attn_func(
        q, q, q, softcap=2.0, alibi_slopes=slopes, window_size=(3, 1), return_attn_probs=True
    )
    found = attention(q, q, q, soft_cap=2.0, alibi_slopes=slopes, window=(3, 1), return_lse=True)
    assert none is None
    assert torch.equal(o, found[0])
    assert torch.equal(lse, found[1])
    bounds = torch.tensor([0, 5, 10], dtype=torch.int32)
    rows = q.flatten(0, 1)
    given = {"cu_seqlens_q": bounds, "cu_seqlens_k": bounds}
    o, lse, none = flash_attn_varlen_func(rows, rows, rows, **given, causal=True, return_attn_probs=True)
    found = attention_varlen(rows, rows, rows, **given, causal=True, return_lse=True)
    assert torch.equal(o, found[0])
    assert torch.equal(lse, found[1])
