"""Block masks are those that torch makes of the same functions, made in parts, and kept where that is right."""

from types import SimpleNamespace

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import create_block_mask  # noqa: E402

from cutepy.ops import block_mask, block_masks  # noqa: E402

OFFSETS = torch.tensor([0, 200, 333, 700])
DOCUMENT_OF = torch.repeat_interleave(torch.arange(3), OFFSETS.diff())

MASKS = {
    "causal": lambda b, h, i, j: i >= j,
    "window": lambda b, h, i, j: (i - j).abs() < 150 + 20 * h,
    "documents": lambda b, h, i, j: DOCUMENT_OF[i] == DOCUMENT_OF[j],
    "of the batch": lambda b, h, i, j: i + 100 * b > j,
    "all": lambda b, h, i, j: i >= 0,
    "nothing": lambda b, h, i, j: i < 0,
}


@pytest.mark.parametrize("size", [128, (256, 128)])
@pytest.mark.parametrize("name", MASKS)
def test_lists_are_those_of_torch(name, size, monkeypatch):
    monkeypatch.setattr(block_masks, "_AT_ONCE", 1 << 18)  # a few rows of blocks at once
    found = block_mask(MASKS[name], 640, 700, batch=2, heads=3, device="cpu", block_size=size)
    wanted = create_block_mask(MASKS[name], 2, 3, 640, 700, device="cpu", BLOCK_SIZE=size)
    assert found.shape == wanted.shape
    for kind in ("kv", "full_kv", "q", "full_q"):
        counts = getattr(found, f"{kind}_num_blocks")
        assert torch.equal(counts, getattr(wanted, f"{kind}_num_blocks"))
        indices, others = (getattr(each, f"{kind}_indices") for each in (found, wanted))
        listed = torch.arange(indices.shape[-1]) < counts[..., None]
        assert indices.dtype == torch.int32
        assert torch.equal(
            indices.masked_fill(~listed, -1).sort().values, others.masked_fill(~listed, -1).sort().values
        )


def test_a_function_without_tensors_is_computed_once(monkeypatch):
    computed = []
    original = block_masks._counts
    monkeypatch.setattr(block_masks, "_counts", lambda *given: computed.append(given) or original(*given))
    for _ in range(2):
        block_mask(lambda b, h, i, j: i - j < 77, 200, 200, device="cpu")
    assert len(computed) == 1
    seen = torch.ones(200, dtype=torch.bool)
    first = block_mask(lambda b, h, i, j: seen[j], 200, 200, device="cpu")
    seen[:] = False
    second = block_mask(lambda b, h, i, j: seen[j], 200, 200, device="cpu")
    assert first.kv_num_blocks.any()
    assert not second.kv_num_blocks.any()


def test_lists_that_are_missing_have_no_blocks():
    given = block_mask(MASKS["causal"], 256, 300, device="cpu")
    names = [f"{kind}_{what}" for kind in ("kv", "full_kv", "q", "full_q") for what in ("num_blocks", "indices")]
    parts = dict.fromkeys(names) | {name: getattr(given, name) for name in names[:2]}
    few = SimpleNamespace(BLOCK_SIZE=(128, 128), seq_lengths=(256, 300), **parts)
    q, k = torch.zeros(2, 256, 3, 64), torch.zeros(2, 300, 3, 64)
    found, size = block_masks.lists_of(few, q, k)
    assert size == [128, 128]
    assert [tuple(each.shape) for each in found] == [(2, 3, 2), (2, 3, 2, 3)] * 2 + [(2, 3, 1), (2, 3, 1, 1)] * 2
    for each, own in zip(found[:2], (given.kv_num_blocks, given.kv_indices), strict=True):
        assert torch.equal(each, own.expand_as(each))
    assert not any(found[n].any() for n in (2, 4, 5, 6))
    with refuses(ValueError):
        block_masks.lists_of(few, q.requires_grad_(), k)


@pytest.mark.parametrize("size", [64, 100, (128, 192), (128,)])
def test_extents_of_blocks_that_are_refused(size):
    with refuses(ValueError):
        block_mask(MASKS["causal"], 256, 256, device="cpu", block_size=size)
