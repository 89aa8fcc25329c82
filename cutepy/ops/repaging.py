"""Copies of paged caches to pages that TMA can copy, for kernels without threads that copy keys one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

ROWS_OF_COPY = 8
"""Keys of a page, or multiples of them, that TMA copies."""
_PAGE = 64
"""Keys of a page of copies: one number, since kernels are compiled for each."""


def is_repaged(page: int) -> bool:
    """Return whether pages of so many keys must be copied, since a copy of fewer than 8 rows ends within a swizzle.

    Examples
    --------
    >>> is_repaged(16), is_repaged(12), is_repaged(1)
    (False, True, True)
    """
    return page % ROWS_OF_COPY != 0


def repaged(
    caches: Sequence[torch.Tensor], table: torch.Tensor, used: torch.Tensor
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Copy the keys of each sequence, one after another, to pages of 64.

    It costs as much memory as all keys that the sequences may have. Pages behind a sequence's last key are not read,
    whatever the table says of them.

    Parameters
    ----------
    caches : sequence of Tensor (pages, keys of a page, ...)
        With one page at least.
    table : Tensor (batch, pages of a sequence), int32
    used : Tensor (batch,), int32
        Keys of each sequence.

    Returns
    -------
    list of Tensor (pages, 64, ...), and Tensor (batch, pages of a sequence) of int32
        The copies, and their table.

    Examples
    --------
    >>> cache = torch.arange(6).view(3, 2, 1)  # pages of two keys
    >>> (copy,), table = repaged([cache], torch.tensor([[2, 0], [1, 99]]), torch.tensor([3, 1]))
    >>> copy.shape, copy[0, :3].flatten().tolist(), copy[1, 0].item(), table.tolist()
    (torch.Size([2, 64, 1]), [4, 5, 0], 2, [[0], [1]])
    """
    batch, columns = table.shape
    page = caches[0].shape[1]
    unit = _PAGE // math.gcd(page, _PAGE)
    numbers = torch.nn.functional.pad(table, (0, -columns % unit))
    begins = torch.arange(0, numbers.shape[1] * page, page, device=table.device)
    numbers = torch.where(begins < used[:, None], numbers, 0).flatten()
    copies = []
    for cache in caches:
        cells = cache.view(torch.uint8) if cache.element_size() == 1 else cache
        rows = cells.index_select(0, numbers).view(-1, _PAGE, *cache.shape[2:])
        copies.append(rows.view(cache.dtype))
    count = numbers.numel() * page // _PAGE
    return copies, torch.arange(count, dtype=torch.int32, device=table.device).view(batch, -1)
