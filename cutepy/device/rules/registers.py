"""Register budgets of producer and consumer warpgroups."""

from typing import NamedTuple

from cutepy.layouts.sm90 import arch

_UNIT = 8
"""Granularity of setmaxnreg."""
_ADDRESSING = 40
"""Registers of a consumer beside its accumulators: addresses, counters, conversions."""
_BESIDE_ONE_MMA = 26
"""Registers of ptxas 13.0 beside the sums of one MMA, within the CTA's registers at launch."""


class RegisterBudget(NamedTuple):
    """Registers of a producer thread and of a consumer thread, set by setmaxnreg.

    Attributes
    ----------
    producer, consumer : int
        Multiples of 8.
    dealt : bool
        True if they are dealt out: with one consumer warpgroup the compiler's own limit is as high.
    """

    producer: int
    consumer: int
    dealt: bool


def register_budget(consumer_warpgroups: int, producer: int = 0) -> RegisterBudget:
    """Allocate the registers of an SM to one producer warpgroup and the consumers of its only CTA.

    Parameters
    ----------
    consumer_warpgroups : int
    producer : int
        Registers of a producer thread, a multiple of 8 from 24 on; if 0, what a producer with threads' copies needs.

    Raises
    ------
    ValueError
        If there are none, or more than can hold accumulators.

    Examples
    --------
    >>> register_budget(2)
    RegisterBudget(producer=40, consumer=232, dealt=True)
    >>> register_budget(3)
    RegisterBudget(producer=32, consumer=160, dealt=True)
    >>> register_budget(2, producer=24)
    RegisterBudget(producer=24, consumer=240, dealt=True)
    >>> register_budget(2, producer=32)
    RegisterBudget(producer=32, consumer=232, dealt=True)
    """
    if not 1 <= consumer_warpgroups <= 3:
        raise ValueError(f"1 to 3 warpgroups can multiply beside a producer, got {consumer_warpgroups}")
    producer = producer or (40 if consumer_warpgroups < 3 else 32)
    # Registers are dealt out of those that the CTA is launched with, the same number for each thread.
    sharers = 1 + max(consumer_warpgroups, 2)
    at_launch = arch.REGISTERS_PER_SM // (sharers * arch.WARPGROUP_THREADS) // _UNIT * _UNIT
    fitting = (sharers * at_launch - producer) // max(consumer_warpgroups, 2) // _UNIT * _UNIT
    return RegisterBudget(producer, fitting, consumer_warpgroups > 1)


def check_accumulators(tile_mn: tuple[int, int], warpgroups: int, consumers: int = 1, mma_n: int = 0) -> None:
    """Check that the accumulators of a tile fit into the registers of the warpgroups that share it.

    An MMA has `mma_n` of the tile's columns; all if 0.

    Raises
    ------
    ValueError
        If the compiler would have to spill them to local memory.

    Examples
    --------
    >>> check_accumulators((128, 256), 2)
    """
    tile_m, tile_n = tile_mn
    budget = register_budget(warpgroups * consumers)
    held = tile_m * tile_n // (warpgroups * arch.WARPGROUP_THREADS)
    needed = held + _ADDRESSING
    if needed > budget.consumer:
        raise ValueError(
            f"{tile_m}x{tile_n} accumulators over {warpgroups} warpgroups take {held} registers a thread, and "
            f"{_ADDRESSING} more are needed for addresses: {needed} exceed the {budget.consumer} that a thread of "
            f"{1 + warpgroups * consumers} warpgroups can have; use a smaller tile_m or tile_n"
        )
    threads = arch.WARPGROUP_THREADS * (1 + warpgroups * consumers)
    launched = arch.REGISTERS_PER_SM // threads // _UNIT * _UNIT
    mma_n = mma_n or tile_n
    if mma_n // 2 + _BESIDE_ONE_MMA > launched:
        raise ValueError(
            f"an MMA of {mma_n} columns has {mma_n // 2} sums a thread, and ptxas needs {_BESIDE_ONE_MMA} registers "
            f"more within the {launched} that each of {threads} threads is launched with; use a tile_n of at most "
            f"{(launched - _BESIDE_ONE_MMA) * 2 // _UNIT * _UNIT}"
        )
