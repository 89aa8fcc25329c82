"""Block masks: which blocks of an attention matrix a mask function leaves empty, fills, or cuts.

They are torch's `BlockMask`, and FlexAttention takes them too. Here they are made from the graph of the mask function,
some rows at a time, where torch's `create_block_mask` makes the whole matrix at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from cutepy.epilogues.graph import Graph
from cutepy.epilogues.reference import compute_scores
from cutepy.epilogues.scores import MaskFunction, trace_scores

BLOCK = 128
"""Queries and keys of a block that kernels can go through must be multiples of this."""
_AT_ONCE = 1 << 26
"""Elements of the matrix that are computed at once."""


def block_mask(
    mask: MaskFunction,
    queries: int,
    keys: int,
    *,
    batch: int = 1,
    heads: int = 1,
    device: torch.device | str = "cuda",
    operands: Mapping[str, Any] | None = None,
    block_size: int | tuple[int, int] = BLOCK,
) -> Any:  # noqa: ANN401
    """Make the block mask of a mask function, for `cutepy.ops.attention` and `cutepy.ops.flex_attention`.

    The result for a function that uses no tensors is kept, and made once for its text and extents.

    Parameters
    ----------
    mask : callable
        ``mask(b, h, i, j)``, true where query i sees key j.
    queries, keys : int
    batch, heads : int
        Extents along which the mask differs; 1 where it does not.
    device : device
        Of the lists.
    operands : mapping of str to Tensor or number, optional
        Passed to the function by name.
    block_size : int or (int, int)
        Queries and keys of a block: multiples of 128.

    Returns
    -------
    torch.nn.attention.flex_attention.BlockMask

    Raises
    ------
    ValueError
        If blocks have other extents.
    EpilogueError
        If no kernel can compute the function; the message has the line.

    Examples
    --------
    >>> found = block_mask(lambda b, h, i, j: (i >= j) & (i - j < 200), 512, 512, device="cpu")
    >>> found.kv_num_blocks.tolist(), found.full_kv_num_blocks.tolist()
    ([[[1, 2, 3, 3]]], [[[0, 0, 0, 0]]])
    """
    size = _checked(block_size)
    traced = trace_scores(None, mask, operands)
    graph = traced.graph if traced else None
    extents = (batch, heads, queries, keys)
    if traced.tensors:
        counts = _counts(graph, traced.tensors, extents, size, torch.device(device))
    else:
        counts = _counts_of_text("" if graph is None else graph.text, extents, size, torch.device(device))
    return _from_counts(counts, (queries, keys), size, mask)


def lists_of(given: Any, q: torch.Tensor, k: torch.Tensor) -> tuple[list[torch.Tensor], list[int]]:  # noqa: ANN401
    """Return the eight lists of a `BlockMask` for tensors (batch, tokens, heads, head), and the extents of a block.

    Raises
    ------
    ValueError
        If it was made for others.
    """
    size = _checked(given.BLOCK_SIZE)
    batch, queries, heads, _ = q.shape
    keys = k.shape[1]
    lengths = tuple(given.seq_lengths)
    if lengths != (queries, keys):
        raise ValueError(
            f"a block mask must be made for the {queries} queries and {keys} keys, got one for {lengths[0]} and "
            f"{lengths[1]}; make a new one"
        )
    of_keys = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
    names = (*of_keys, *(name.replace("kv", "q") for name in of_keys))
    found = [getattr(given, name) for name in names]
    if found[4] is None:
        if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad):
            raise ValueError(
                "gradients need a block mask with the lists of queries, got one without; make it with them"
            )
        found[4:6] = torch.zeros_like(found[0][..., :1]), torch.zeros_like(found[1][..., :1, :1])
    for first in (0, 4):
        if found[first + 2] is None:
            found[first + 2 : first + 4] = torch.zeros_like(found[first]), found[first + 1]
    for name, each in zip(names, found, strict=True):
        if each.device != q.device:
            raise ValueError(f"{name} of a block mask must be on {q.device}, got {each.device}; move it")
        if each.shape[0] not in (1, batch) or each.shape[1] not in (1, heads):
            raise ValueError(
                f"{name} of a block mask must be for a batch of 1 or {batch}, and 1 or {heads} heads, got shape "
                f"{tuple(each.shape)}; make a new one"
            )
    return [each.to(torch.int32).expand(batch, heads, *each.shape[2:]) for each in found], [*size]


def _checked(size: int | Sequence[int]) -> tuple[int, int]:
    """Return the queries and keys of a block, which kernels can go through."""
    extents = (size, size) if isinstance(size, int) else tuple(size)
    if len(extents) != 2 or any(extent < BLOCK or extent % BLOCK for extent in extents):
        raise ValueError(
            f"blocks must be multiples of {BLOCK} queries and {BLOCK} keys, got {extents}; make the block mask with "
            f"BLOCK_SIZE={BLOCK}"
        )
    return extents[0], extents[1]


@lru_cache(maxsize=64)
def _counts_of_text(
    text: str, extents: tuple[int, int, int, int], size: tuple[int, int], device: torch.device
) -> torch.Tensor:
    """Count the seen scores in each block, by a function that uses no tensors."""
    return _counts(Graph.parse(text) if text else None, (), extents, size, device)


def _counts(
    graph: Graph | None,
    tables: tuple[torch.Tensor, ...],
    extents: tuple[int, int, int, int],
    size: tuple[int, int],
    device: torch.device,
) -> torch.Tensor:
    """Count the seen scores in each block: (batch, heads, rows of blocks, columns of blocks)."""
    batch, heads, queries, keys = extents
    columns = -(-keys // size[1])
    at_once = max(_AT_ONCE // (batch * heads * columns * size[1] * size[0]), 1) * size[0]
    found = []
    for first in range(0, queries, at_once):
        count = min(at_once, queries - first)
        shape = (batch, heads, count, keys)
        seen = torch.ones((), dtype=torch.bool, device=device)
        if graph is not None:
            products = torch.zeros((), device=device).expand(shape)
            seen = compute_scores(graph, products, tables, first=first, queries=queries)["mask"]
        padded = torch.nn.functional.pad(
            seen.expand(shape), (0, columns * size[1] - keys, 0, -(-count // size[0]) * size[0] - count)
        )
        blocks = padded.unflatten(3, (columns, size[1])).unflatten(2, (-1, size[0]))
        found.append(blocks.sum((3, 5), dtype=torch.int32))
    return torch.cat(found, 2) if found else torch.zeros(batch, heads, 0, columns, dtype=torch.int32, device=device)


def _from_counts(counts: torch.Tensor, lengths: tuple[int, int], size: tuple[int, int], mask: MaskFunction) -> Any:  # noqa: ANN401
    """Make torch's block mask of the counts of seen scores: a block is full if all of its scores are seen."""
    from torch.nn.attention.flex_attention import BlockMask

    full = counts == size[0] * size[1]
    partial = (counts > 0) & ~full
    of_keys, of_queries = (*_listed(partial), *_listed(full)), (*_listed(partial.mT), *_listed(full.mT))
    return BlockMask(lengths, *of_keys, *of_queries, BLOCK_SIZE=size, mask_mod=mask)


def _listed(chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how many of each row are chosen, and their columns in order, those that are not after them."""
    return chosen.sum(-1, dtype=torch.int32), (~chosen).to(torch.int8).argsort(dim=-1, stable=True).to(torch.int32)
