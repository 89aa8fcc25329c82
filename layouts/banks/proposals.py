"""Proposals of conflict-free layouts for a tile: swizzles and paddings, each evaluated by the rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..composed import ComposedLayout, SmemPtr, Swizzle
from ..errors import LayoutError
from ..hardware import SMEM_BANK_BYTES, SMEM_BANKS
from ..int_tuple import IntTuple, flatten_to_tuple, transform_leaf
from ..layout import Layout
from .access import WarpAccess, as_accesses
from .measure import AccessReport, count, measure, size_bytes
from .rule import wavefronts

_LINE_BITS = SMEM_BANKS * SMEM_BANK_BYTES * 8


@dataclass(frozen=True)
class Proposal:
    """Another layout of a tile, with the reports of its accesses.

    Parameters
    ----------
    what : str
        Name of the change.
    extra_bytes : int
        Bytes of shared memory beyond those of the layout in use.
    layout : Layout or ComposedLayout
        The proposed layout.
    proof : tuple of AccessReport
        Reports of the accesses with it, as of `bank_conflicts`.
    """

    what: str
    extra_bytes: int
    layout: Any
    proof: tuple[AccessReport, ...]

    @property
    def wavefronts(self) -> int:
        """Number of wavefronts of all accesses with this layout."""
        return sum(report.wavefronts for report in self.proof)

    def __str__(self) -> str:
        cost = f"{count(abs(self.extra_bytes), 'byte')} {'less' if self.extra_bytes < 0 else 'more'}"
        return f"{self.what}: {count(self.wavefronts, 'wavefront')}, {cost}: {self.layout}"


def propose(access: WarpAccess | Sequence[WarpAccess], layout: Any, bits: int) -> tuple[Proposal, ...]:  # noqa: ANN401
    """Return swizzles and paddings of a tile with which its accesses take fewer wavefronts, the best first.

    Tried are all swizzles that keep the accesses' vectors whole and act within the 128 bytes of a row of banks and
    within the tile, and paddings of each stride by whole vectors, up to a row of banks. A swizzle in the given layout
    is taken off first. Of each kind there is one proposal for each number of wavefronts that costs fewer bytes than
    the ones before it; each is evaluated as by `bank_conflicts`.

    Parameters
    ----------
    access, layout, bits
        As in `bank_conflicts`. Give all accesses to the tile, the writing and the reading ones.

    Returns
    -------
    tuple of Proposal
        By wavefronts, then by bytes. Empty where nothing is better, or the layout is not one of a plain layout and a
        swizzle.

    Examples
    --------
    >>> from cutepy.layouts.banks import warp_access
    >>> rows = warp_access("ldmatrix", lambda lane: (lane, 0), vector=8, along=1)
    >>> for proposal in propose(rows, Layout((64, 64), (64, 1)), 16):
    ...     print(proposal)
    swizzle Sw<3,3,3>: 4 wavefronts, 0 bytes more: Sw<3,3,3> o 0 o (64,64):(64,1)
    padding of 8 after 64 elements: 4 wavefronts, 1008 bytes more: (64,64):(72,1)
    """
    accesses = as_accesses("propose", access)
    reports = [measure(one, layout, bits) for one in accesses]
    now, ideal = sum(report.wavefronts for report in reports), sum(report.ideal for report in reports)
    plain = _plain(layout)
    if plain is None or now == ideal:
        return ()
    vector = _power_of_two(max(one.vector for one in accesses))
    found: list[Proposal] = []
    for candidates in (_swizzles(plain, bits, vector), _paddings(plain, bits, vector)):
        found += _best(list(candidates), accesses, bits, now, _bytes(_elements(layout), bits))
    return tuple(sorted(found, key=lambda proposal: (proposal.wavefronts, proposal.extra_bytes)))


def _plain(layout: object) -> Layout | None:
    """Return the layout under a swizzle, if it is a plain one of non-negative integer strides."""
    if isinstance(layout, ComposedLayout) and isinstance(layout.layoutB, Swizzle):
        layout = layout.layoutA if layout.offset == 0 or isinstance(layout.offset, SmemPtr) else None
    if not isinstance(layout, Layout):
        return None
    strides = flatten_to_tuple(layout.stride)
    return layout if all(isinstance(stride, int) and stride >= 0 for stride in strides) else None


def _swizzles(plain: Layout, bits: int, vector: int) -> Iterator[tuple[str, Any, int]]:
    """Yield (name, layout, elements of memory) of every swizzle that can help; simple ones first."""
    if _LINE_BITS % bits:
        return
    low, line = vector.bit_length() - 1, (_LINE_BITS // bits).bit_length() - 1
    cosize = plain.cosize()
    high = (cosize - 1).bit_length()
    for width in range(1, line - low + 1):
        for base in range(line - width, low - 1, -1):
            for shift in range(width, high - base - width + 1):
                swizzle = Swizzle(width, base, shift)
                block = 1 << (base + width)  # the indices that it permutes stay in their block
                yield f"swizzle {swizzle}", ComposedLayout(swizzle, 0, plain), -(-cosize // block) * block


def _paddings(plain: Layout, bits: int, vector: int) -> Iterator[tuple[str, Any, int]]:
    """Yield (name, layout, elements of memory) of paddings of each stride, short ones first."""
    strides = flatten_to_tuple(plain.stride)
    for padding in range(vector, _LINE_BITS // bits + 1, vector):
        for run in sorted({stride for stride in strides if stride > 1}):
            if all(stride % run == 0 for stride in strides if stride >= run):
                padded = Layout(plain.shape, _padded(plain.stride, run, padding))
                yield f"padding of {padding} after {count(run, 'element')}", padded, padded.cosize()


def _padded(strides: IntTuple, run: int, padding: int) -> IntTuple:
    return transform_leaf(lambda stride: stride + padding * (stride // run) if stride >= run else stride, strides)


def _best(
    candidates: list[tuple[str, Any, int]], accesses: tuple[WarpAccess, ...], bits: int, now: int, bytes_now: int
) -> Iterator[Proposal]:
    """Yield the cheapest candidate for each number of wavefronts, as long as fewer wavefronts cost more."""
    estimated = [
        (taken, elements, i)
        for i, (_, layout, elements) in enumerate(candidates)
        if (taken := _estimate(accesses, layout, bits)) < now
    ]
    fewest_bytes = None
    for _, elements, i in sorted(estimated):
        if fewest_bytes is not None and elements >= fewest_bytes:
            continue
        what, layout, _ = candidates[i]
        try:
            proof = tuple(measure(one, layout, bits) for one in accesses)
        except LayoutError:  # a vector that is no longer whole
            continue
        if sum(report.wavefronts for report in proof) < now:
            fewest_bytes = elements
            yield Proposal(what, _bytes(elements, bits) - bytes_now, layout, proof)


def _estimate(accesses: tuple[WarpAccess, ...], layout: Any, bits: int) -> int:  # noqa: ANN401 - any layout
    """Count wavefronts from each lane's first element alone."""
    total = 0
    for access in accesses:
        size = size_bytes(access, layout, bits)
        starts = [None if elements is None else layout(elements[0]) * bits // 8 for elements in access.elements]
        total += wavefronts(access.kind, size, starts)
    return total


def _elements(layout: Any) -> int:  # noqa: ANN401 - any layout
    """Return the number of elements of memory that a layout spans."""
    plain = _plain(layout)
    assert plain is not None
    if isinstance(layout, ComposedLayout):
        function = layout.position_independent()
        swizzle = function.layoutB if isinstance(function, ComposedLayout) else Swizzle(0, 0, 0)
        block = max(1, swizzle.zzz_msk + (swizzle.zzz_msk & -swizzle.zzz_msk))
        return -(-plain.cosize() // block) * block
    return plain.cosize()


def _bytes(elements: int, bits: int) -> int:
    return -(-elements * bits // 8)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
