"""Ranks of distributed tuning: torchrun's processes, one GPU each, on one host or several."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cutepy.host import environment

_T = TypeVar("_T")


@dataclass(frozen=True)
class Ranks:
    """Rank of a process among the processes that tune together.

    Attributes
    ----------
    rank, size : int
        Among all; (0, 1) for one alone.
    local_rank, local_size : int
        Among those of this host; the local rank is the number of its GPU.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    def share(self, items: Sequence[_T]) -> list[_T]:
        """Return this rank's share of a list that all have in the same order.

        Examples
        --------
        >>> Ranks(1, 3).share("abcdefg")
        ['b', 'e']
        """
        return list(items[self.rank :: self.size])

    def gather(self, mine: _T) -> list[_T]:
        """Return each rank's value, by rank; all ranks must call."""
        if self.size == 1:
            return [mine]
        import torch.distributed as dist

        gathered: list[_T | None] = [None] * self.size
        dist.all_gather_object(gathered, mine)
        return [part for part in gathered if part is not None]


@contextlib.contextmanager
def ranks() -> Iterator[Ranks]:
    """Join torchrun's processes over gloo; without torchrun return a single rank.

    Uses the default process group where there is one, and leaves none behind that it made.
    """
    started = environment.torchrun()
    if started is None:
        yield Ranks()
        return
    import torch
    import torch.distributed as dist

    made = not dist.is_initialized()
    if made:
        dist.init_process_group("gloo")
    if torch.cuda.is_available():
        torch.cuda.set_device(started.local_rank % torch.cuda.device_count())
    try:
        yield Ranks(*started)
    finally:
        if made:
            dist.destroy_process_group()
