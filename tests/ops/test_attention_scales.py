"""Scales of 8-bit Q, K and V: each element is multiplied by the scale of its head and block."""

import itertools

import pytest

torch = pytest.importorskip("torch")

from cutepy.ops.attention_scales import BLOCK, dequantised  # noqa: E402


@pytest.mark.parametrize("tokens", [1, BLOCK, BLOCK + 1, 3 * BLOCK])
@pytest.mark.parametrize(("heads", "scaled"), [(4, 4), (4, 2), (6, 1), (1, 1)])
@pytest.mark.parametrize("is_blocked", [True, False])
def test_each_element_has_the_scale_of_its_head_and_block(tokens, heads, scaled, is_blocked):
    batch, blocks = 2, -(-tokens // BLOCK) if is_blocked else 1
    tensor = torch.randn(batch, tokens, heads, 3).to(torch.float8_e4m3fn)
    scale = torch.rand(batch, scaled, blocks) + 0.5
    wide = dequantised(tensor, scale)
    assert wide.dtype == torch.float64
    expected = tensor.double()
    for sequence, head, block in itertools.product(range(batch), range(heads), range(blocks)):
        part = slice(block * BLOCK, (block + 1) * BLOCK) if is_blocked else slice(None)
        expected[sequence, part, head] *= scale[sequence, head // (heads // scaled), block].double()
    assert torch.equal(wide, expected)


def test_without_scales_or_elements_it_is_the_tensor():
    tensor = torch.randn(2, 5, 4, 8).to(torch.float8_e4m3fn)
    assert torch.equal(dequantised(tensor, None), tensor.double())
    for shape in ((0, 5, 4, 8), (2, 0, 4, 8), (2, 5, 0, 8)):
        empty = torch.empty(shape, dtype=torch.float8_e4m3fn)
        assert dequantised(empty, torch.ones(shape[0], shape[2], 1)).shape == shape
