"""Orders in which warps ask for registers, searched for one that leaves some of them waiting forever.

Warps change how many registers they have, each in its own order, and after changes of others that are given. Whoever
gives some back does so at once, which never harms; so schedules differ in who is served first. That is a search over
sets of requests that have been served.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MOST_STATES = 20_000


class Change(NamedTuple):
    """A setmaxnreg of a warp.

    Attributes
    ----------
    amount : int
        Registers a thread that it takes; below 0 what it gives back.
    after : tuple of int
        Of each warp, how many of its changes come before.
    """

    amount: int
    after: tuple[int, ...]


class Starved(NamedTuple):
    """A warp that may wait forever.

    Attributes
    ----------
    waits : (int, int)
        The warp, and which of its changes that is.
    took : (int, int)
        The last one of the same pool that was served before.
    """

    waits: tuple[int, int]
    took: tuple[int, int]


def starved(warps: Sequence[Sequence[Change]], pools: Sequence[int], most: int = MOST_STATES) -> Starved | bool:
    """Return a warp that waits forever in some order; False if there is none, True if that takes too long to say.

    Parameters
    ----------
    warps : sequence of sequence of Change
    pools : sequence of int
        The pool of each warp, in which there are 0 registers at first.
    most : int
        States to look at.

    Examples
    --------
    Two warps ask for 8 registers, a third gives 8 back, and 8 more when the first has got its own:

    >>> first, second, third = [Change(8, (0, 0, 0))], [Change(8, (0, 0, 0))], [Change(-8, (0, 0, 0))]
    >>> starved([first, second, [*third, Change(-8, (1, 0, 1))]], [0, 0, 0])
    Starved(waits=(0, 0), took=(1, 0))
    >>> starved([first, second, [*third, Change(-8, (0, 0, 1))]], [0, 0, 0])
    False
    """
    start = _given_back(warps, (0,) * len(warps))
    waiting: list[tuple[tuple[int, ...], tuple[tuple[int, int], ...]]] = [(start, ())]
    seen = {start}
    while waiting:
        state, path = waiting.pop()
        free = _free(warps, pools, state)
        asking = [w for w, n in enumerate(state) if n < len(warps[w]) and _may(warps[w][n], state)]
        served = [w for w in asking if warps[w][state[w]].amount <= free[pools[w]]]
        if asking and not served:
            w = asking[0]
            took = next((one for one in reversed(path) if pools[one[0]] == pools[w]), (w, state[w]))
            return Starved((w, state[w]), took)
        for w in served:
            following = _given_back(warps, (*state[:w], state[w] + 1, *state[w + 1 :]))
            if following not in seen:
                if len(seen) >= most:
                    return True
                seen.add(following)
                waiting.append((following, (*path, (w, state[w]))))
    return False


def _may(change: Change, state: tuple[int, ...]) -> bool:
    return all(had >= need for had, need in zip(state, change.after, strict=True))


def _given_back(warps: Sequence[Sequence[Change]], state: tuple[int, ...]) -> tuple[int, ...]:
    """Return a state with all that gives registers back, as far as that waits for nobody who asks."""
    now, is_done = list(state), False
    while not is_done:
        is_done = True
        for w, changes in enumerate(warps):
            while now[w] < len(changes) and changes[now[w]].amount <= 0 and _may(changes[now[w]], tuple(now)):
                now[w] += 1
                is_done = False
    return tuple(now)


def _free(warps: Sequence[Sequence[Change]], pools: Sequence[int], state: tuple[int, ...]) -> dict[int, int]:
    free = dict.fromkeys(pools, 0)
    for changes, pool, n in zip(warps, pools, state, strict=True):
        free[pool] -= sum(change.amount for change in changes[:n])
    return free
