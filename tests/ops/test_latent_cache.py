"""Cached latent rows of 8-bit floats: each byte at FlashMLA's place, and the rows that they stand for."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")

from cutepy.ops import dequantise_mla_cache, latent_attention, quantise_mla_cache  # noqa: E402


def test_bytes_are_at_flash_mlas_places():
    rows = torch.randn(3, 8, 1, 576, dtype=torch.float64) * torch.logspace(-6, 6, 24, dtype=torch.float64).view(
        3, 8, 1, 1
    )
    quantised = quantise_mla_cache(rows.float())
    assert (quantised.shape, quantised.dtype) == ((3, 8, 1, 656), torch.uint8)
    values = quantised[..., :512].view(torch.float8_e4m3fn).double().unflatten(-1, (4, 128))
    scales = quantised[..., 512:528].contiguous().view(torch.float32).double()
    latent = rows[..., :512].unflatten(-1, (4, 128))
    assert torch.equal(values.abs().amax(-1), torch.full(scales.shape, 448.0, dtype=torch.float64))
    error = values * scales[..., None] - latent
    assert bool((error.abs() <= 2**-4 * (1 + 2**-20) * latent.abs() + 2**-10 * scales[..., None]).all())
    rest = quantised[..., 528:].contiguous().view(torch.bfloat16)
    assert torch.equal(rest, rows[..., 512:].float().bfloat16())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float8_e4m3fn])
def test_rows_are_values_times_scales_rounded_once(dtype):
    quantised = torch.randint(0, 256, (5, 656), dtype=torch.uint8)
    scales = torch.rand(5, 4)
    quantised[:, 512:528] = scales.view(torch.uint8)
    rest = torch.randn(5, 64, dtype=torch.bfloat16)
    quantised[:, 528:] = rest.view(torch.uint8)
    got = dequantise_mla_cache(quantised.view(dtype))
    want = quantised[:, :512].view(torch.float8_e4m3fn).float() * scales.repeat_interleave(128, 1)
    assert torch.equal(got.nan_to_num(nan=-1.0), torch.cat((want.bfloat16(), rest), 1).nan_to_num(nan=-1.0))


def test_other_rows_are_refused():
    for function, rows in ((quantise_mla_cache, torch.ones(2, 512)), (dequantise_mla_cache, torch.ones(2, 576).byte())):
        with refuses(ValueError):
            function(rows)
    with refuses(TypeError):
        dequantise_mla_cache(torch.ones(2, 656))
    with refuses(TypeError):
        quantise_mla_cache(torch.ones(2, 576).int())


@pytest.mark.parametrize("lengths", [None, torch.int32])
@pytest.mark.parametrize(
    ("q", "cache", "table"),
    [
        ((0, 1, 4), (0, 8), None),
        ((2, 0, 4), (2, 8), None),
        ((2, 1, 0), (2, 8), None),
        ((2, 1, 4), (2, 0), None),
        ((2, 1, 4), (3, 16), (2, 0)),
        ((2, 1, 4), (0, 16), (2, 1)),
        ((0, 1, 4), (3, 16), (0, 1)),
    ],
)
def test_without_rows_or_keys_nothing_is_launched(q, cache, table, lengths):
    """Queries that see no key get zeros, and the logarithm of 0; no kernel is compiled, which a CPU has none of."""
    queries, keys = torch.randn(*q, 576).half(), torch.randn(*cache, 576).half()
    pages = None if table is None else torch.zeros(table, dtype=torch.int32)
    given = queries, keys, None if lengths is None else torch.zeros(q[0], dtype=lengths), pages
    o, lse = latent_attention._find_launch(*given, 0.5, causal=False)(*given)
    assert torch.equal(o, torch.zeros(*q, 512).half())
    assert torch.equal(lse, torch.full((q[0], q[2], q[1]), -torch.inf))
