"""FlashAttention for SM90 at a small size: `flash_attention.py 256 256 --dim 64 --causal --backward`.

With `--lengths 100,156`, of as many sequences as there are numbers, one behind the other in one tensor.

Its sources, and QuACK's, are the user's to bring: `flash_attn.cute` and `quack` must be importable.
"""

import argparse

import torch
from flash_attn.cute.interface import flash_attn_func, flash_attn_varlen_func


def main() -> None:
    """Compute attention of random floats, and its gradients, and compare them with torch's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queries", type=int)
    parser.add_argument("keys", type=int)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--heads", type=int, default=1)
    parser.add_argument("--heads_of_keys", type=int, default=1)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--lengths", type=_numbers, default=())
    given = parser.parse_args()
    torch.manual_seed(0)
    extents = (given.queries, given.heads), (given.keys, given.heads_of_keys), (given.keys, given.heads_of_keys)
    q, k, v = (torch.randn(1, n, h, given.dim, device="cuda").bfloat16().requires_grad_() for n, h in extents)
    found = _found(q, k, v, given)
    out = found[0] if isinstance(found, tuple) else found
    expected = _expected(q, k, v, given)
    torch.testing.assert_close(out.float(), expected, atol=0.03, rtol=0.03)
    if given.backward:
        by = torch.randn_like(out)
        for mine, theirs in zip(
            torch.autograd.grad(out, (q, k, v), by),
            torch.autograd.grad(expected, (q, k, v), by.float()),
            strict=True,
        ):
            torch.testing.assert_close(mine.float(), theirs.float(), atol=0.1, rtol=0.05)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _found(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, given: argparse.Namespace) -> torch.Tensor:
    how = {"causal": given.causal, "deterministic": given.deterministic}
    if not given.lengths:
        return flash_attn_func(q, k, v, **how)
    ends = torch.tensor((0, *given.lengths), device="cuda", dtype=torch.int32).cumsum(0).to(torch.int32)
    longest = max(given.lengths)
    found = flash_attn_varlen_func(
        q[0], k[0], v[0], cu_seqlens_q=ends, cu_seqlens_k=ends, max_seqlen_q=longest, max_seqlen_k=longest, **how
    )
    return (found[0] if isinstance(found, tuple) else found)[None]


def _expected(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, given: argparse.Namespace) -> torch.Tensor:
    lengths = given.lengths
    parts = zip(*(x.split(lengths, 1) if lengths else [x] for x in (q, k, v)), strict=True)
    return torch.cat([_attention(*part, given.causal) for part in parts], 1)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    queries, keys, values = (x.float().transpose(1, 2) for x in (q, k, v))
    times = q.shape[2] // k.shape[2]
    keys, values = keys.repeat_interleave(times, 1), values.repeat_interleave(times, 1)
    scores = queries @ keys.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).tril(k.shape[1] - q.shape[1]) == 0, float("-inf"))
    return (scores.softmax(-1) @ values).transpose(1, 2)


if __name__ == "__main__":
    main()
