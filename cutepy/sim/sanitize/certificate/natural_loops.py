"""The natural loops of a function: blocks that go around, and a head that all come in by.

References
----------
Aho, Lam, Sethi and Ullman, Compilers, 2nd edition, 9.6: dominators, natural loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.translate.control_flow import EXIT

if TYPE_CHECKING:
    from cutepy.sim.translate.control_flow import ControlFlow


class NaturalLoop(NamedTuple):
    """Blocks that go around.

    Attributes
    ----------
    head : int
        The block where rounds begin.
    last : int
        The last of the blocks that go back.
    blocks : frozenset of int
    """

    head: int
    last: int
    blocks: frozenset[int]


def natural_loops(flow: ControlFlow, order: Sequence[int], above: dict[int, set[int]]) -> list[NaturalLoop] | int:
    """Return the loops; or a block that goes back to where none begins.

    Parameters
    ----------
    flow : ControlFlow
    order, above
        As `dominators` gives them.
    """
    place = {block: n for n, block in enumerate(order)}
    back: dict[int, list[int]] = {}
    for block in order:
        for to in flow.blocks[block].successors:
            if to != EXIT and place[to] <= place[block]:
                if to not in above[block]:
                    return block
                back.setdefault(to, []).append(block)
    before = predecessors(flow, order)
    found = []
    for head, lasts in back.items():
        blocks, waiting = {head}, list(lasts)
        while waiting:
            one = waiting.pop()
            if one not in blocks:
                blocks.add(one)
                waiting += before.get(one, ())
        found.append(NaturalLoop(head, max(lasts, key=place.__getitem__), frozenset(blocks)))
    return found


def predecessors(flow: ControlFlow, order: Iterable[int]) -> dict[int, list[int]]:
    """Return of each block those that lead to it, of some blocks."""
    found: dict[int, list[int]] = {}
    for block in order:
        for to in flow.blocks[block].successors:
            found.setdefault(to, []).append(block)
    return found


def dominators(flow: ControlFlow) -> tuple[list[int], dict[int, set[int]]]:
    """Return the blocks that are reached, in reverse postorder, and of each those that it can't be reached without."""
    order: list[int] = []
    seen, stack = {0}, [(0, iter(flow.blocks[0].successors))]
    while stack:
        block, rest = stack[-1]
        to = next((x for x in rest if x != EXIT and x not in seen), None)
        if to is None:
            order.append(block)
            stack.pop()
        else:
            seen.add(to)
            stack.append((to, iter(flow.blocks[to].successors)))
    order.reverse()
    before = predecessors(flow, order)
    found: dict[int, set[int]] = {0: {0}}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            new = set.intersection(*(found[x] for x in before[block] if x in found)) | {block}
            if found.get(block) != new:
                found[block] = new
                changed = True
    return order, found
