"""Operands of MMAs in shared memory, and operands that walk out of their tile.

Such an operand comes into the other operand's tile, or into another tile of its tensor. Where the start or a stride of
a descriptor is wrong, the MMA goes on into what lies beyond the tile. If nothing has written that, or something writes
it meanwhile, the access itself is a hazard. What another copy has written in order reads well, and is wrong. It is told
where one instruction takes bytes for both operands, and one of them has bytes of another tensor besides: it began in
its own tile and came into the other's.

Both operands may share bytes by intent: a matrix with its own transpose (one tensor), or rows of two tensors below each
other with those of one of them, where one operand has all of the other's. The latter is a tile without gaps; one that
has all of the other's and leaves out rows on the way there is told.

Into another tile of its own tensor, such as a ring's next stage, an operand goes that leaves out 8 rows of what a copy
brought, from one 8 to the next, and takes rows of another copy, of another mbarrier, in their place. Copies that count
at one mbarrier may bring one tile, of which every other 8 rows are multiplied. Boxes of more modes than rows and
columns may have anything between two 8 rows, and are not judged; nor is what begins late and runs on without gaps, as
where a window slides over tiles below each other.

References
----------
PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions: Shared Memory Matrix Layout".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from cutepy.layouts.sm90.arch import CORE_MATRIX_ROWS, UNIT_BYTES
from cutepy.sim.advice import Diagnosis
from cutepy.sim.machine.events import WgmmaEvent
from cutepy.sim.machine.lanes import Array
from cutepy.sim.mechanisms.wgmma.operands import tile_units
from cutepy.sim.sanitize.byte_layouts.layouts import AccessLayout, Span, of_descriptor
from cutepy.sim.sanitize.memory.access_record import AccessRecord
from cutepy.sim.translate.wgmma_shapes import SharedTile


def may_stray(mine: Array, other: Array, through: AccessLayout) -> bool:
    """Return whether an operand takes some of the other's bytes, and may not be meant to.

    Examples
    --------
    >>> tile = np.arange(8)
    >>> dense, gaps = (AccessLayout("SW128", "f16", 0, 128, has_gaps=gaps) for gaps in (False, True))
    >>> [may_stray(tile, other, dense) for other in (tile + 8, tile + 4, tile, tile[4:])]
    [False, True, False, False]
    >>> may_stray(tile * 2, np.array([8, 10]), gaps)
    True
    """
    common = np.isin(other, mine)
    return bool(common.any() and not (common.all() and not through.has_gaps))


def leaves_out(bytes_read: Array, written: AccessLayout) -> bool:
    """Return whether the bytes read of a box, given by addresses, leave out 8 rows between others.

    Examples
    --------
    >>> box = AccessLayout("SW128", "f16", 0, 128, rows=64, is_matrix=True)
    >>> [leaves_out(np.arange(0, 8192, stride), box) for stride in (1024, 2048)]
    [False, True]
    """
    if not written.is_matrix:
        return False
    patterns = (bytes_read - written.start) // (CORE_MATRIX_ROWS * written.row_bytes)
    inside = np.unique(patterns[(patterns >= 0) & (patterns * CORE_MATRIX_ROWS < written.rows)])
    return bool((np.diff(inside) > 1).any())


def told_of_rows(name: str, through: AccessLayout) -> Diagnosis:
    """Return the diagnosis of an operand, such as "A", that leaves out rows of its tile."""
    leading, stride = through.strides
    return Diagnosis("rows-left-out", operand=name, leading=leading, stride=stride)


def told(name: str, other: str, through: AccessLayout) -> Diagnosis:
    """Return the diagnosis of an operand that takes bytes of the other one's tile."""
    leading, stride = through.strides
    return Diagnosis("bytes-of-other-operand", operand=name, other=other, leading=leading, stride=stride)


_ROWS_OF_A_WARP = 16
"""PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16": warp w of a group has rows 16 w to 16 w + 15 of D."""


class Operands(NamedTuple):
    """Operand bytes that a warpgroup reads.

    Attributes
    ----------
    flat : array of int, (CTA or 1, 1, n)
        The granules.
    spans : tuple of Span
        Through which layout each operand is read: B, and A if that is in shared memory.
    may_stray : tuple of int
        The operands that take bytes of the other one, or leave out some from one 8 rows to the next.
    warps : array of int, (n,)
        Of granules of A the warp of the group, 0 to 3, that has the sums of the same rows; -1 of those of B.
    """

    flat: Array
    spans: tuple[Span, ...]
    may_stray: tuple[int, ...]
    warps: Array


class ReadOperands:
    """The operands of MMAs.

    Parameters
    ----------
    granule : int
        Bytes that are watched as one.
    """

    def __init__(self, granule: int) -> None:
        self._granule = granule
        self._found: dict[object, list[Operands]] = {}

    def of(self, event: WgmmaEvent, groups: int) -> list[Operands]:
        """Return the operands that each warpgroup reads."""
        shape = event.shape
        key = shape, tuple((x.shape, x.tobytes()) for x in (event.b, event.a) if x is not None)
        found = self._found.get(key)
        if found is None:
            words = [(event.b, shape.b_tile, shape.b)]
            if event.a is not None:
                words.append((event.a, shape.a_tile, shape.a))
            found = self._found[key] = [
                self._of_group(
                    [(np.broadcast_to(w, (len(w), groups))[:, n], tile, element) for w, tile, element in words]
                )
                for n in range(groups)
            ]
        return found

    def _of_group(self, operands: list[tuple[Array, SharedTile, str]]) -> Operands:
        """Return the operands given by the descriptors of the CTAs, and the way in which each is read."""
        each = [(w[:1] if (w == w[0]).all() else w, tile, element) for w, tile, element in operands]
        units = [np.stack([tile_units(w, tile).reshape(-1) for w in words.tolist()]) for words, tile, _ in each]
        rows = max(map(len, units))
        flat = np.concatenate([np.broadcast_to(p, (rows, p.shape[1])) for p in units], axis=1)
        flat = granules_of(flat * UNIT_BYTES, UNIT_BYTES, self._granule).reshape(rows, 1, -1)
        ends = np.cumsum([p.shape[1] * -(-UNIT_BYTES // self._granule) for p in units]).tolist()
        through = [tuple(of_descriptor(w, element, tile) for w in words.tolist()) for words, tile, element in each]
        spans = tuple(map(Span, [0, *ends], ends, through))
        warps = np.full(flat.shape[-1], -1)
        for span, (_, tile, _) in zip(spans[1:], each[1:], strict=True):
            warps[span.start : span.end] = _warps_of_rows(tile, span.end - span.start)
        may_stray = tuple(n for n in range(len(spans)) if _may_stray(flat[:, 0], spans, n))
        return Operands(flat, spans, may_stray, warps)


def _warps_of_rows(tile: SharedTile, granules: int) -> Array:
    """Return the warp of a group that has the sums of the rows of A that granules are of, in the order of the tile."""
    rows = np.arange(tile.extent)
    if tile.major == "K":
        return np.repeat(rows // _ROWS_OF_A_WARP, granules // tile.extent)
    units = rows[:: 8 * UNIT_BYTES // tile.bits] // _ROWS_OF_A_WARP
    return np.tile(np.repeat(units, granules // (tile.k * len(units))), tile.k)


def granules_of(offsets: Array, size: int, granule: int) -> Array:
    """Return the granules of ranges of bytes, an axis more than there was."""
    return (offsets // granule)[..., None] + np.arange(-(-size // granule))


def _may_stray(flat: Array, spans: tuple[Span, ...], n: int) -> bool:
    if any(through.has_gaps for through in spans[n].through):
        return True
    if len(spans) < 2:
        return False
    own, others = (spans[k] for k in (n, 1 - n))
    return any(
        may_stray(row[own.start : own.end], row[others.start : others.end], own.through[min(k, len(own.through) - 1)])
        for k, row in enumerate(flat)
    )


Writers = Callable[[int, Array], Iterable[AccessRecord]]
"""A slot and granules -> the touches that wrote these last."""


def strayed(
    new: AccessRecord, n: int, writers: Writers, granule: int
) -> tuple[AccessRecord, int, int, Diagnosis] | None:
    """Find where an MMA's operand takes bytes of the other one, and of another tensor besides; or rows of two copies.

    Parameters
    ----------
    new : AccessRecord
        Bytes that the MMA reads.
    n : int
        The operand.
    writers : callable
    granule : int
        Bytes that are watched as one.

    Returns
    -------
    tuple or None
        Writer of bytes beyond the operand; the CTA, by position in `new.slots`; the first such granule; a description.
    """
    return _into_the_other(new, n, writers) or _into_the_next(new, n, writers, granule)


def _into_the_next(
    new: AccessRecord, n: int, writers: Writers, granule: int
) -> tuple[AccessRecord, int, int, Diagnosis] | None:
    """Find where an operand takes rows of copies that count at two mbarriers, and leaves out rows of one."""
    rows, span = new.granules.reshape(len(new.granules), -1), new.spans[n]
    for row, slot in enumerate(new.slots.tolist()):
        through = span.through[min(row, len(span.through) - 1)]
        own = rows[min(row, len(rows) - 1)][span.start : span.end]
        copies = [touch for touch in writers(slot, own) if touch.spans and touch.writes] if through.has_gaps else []
        stages = {column for copy in copies for column in copy.columns.tolist()}
        if len(stages) > 1 and any(leaves_out(own * granule, _box(copy, slot)) for copy in copies):
            beyond = int(own[np.argmax(np.abs(own * granule - through.start))])
            wrote = next(iter(writers(slot, np.array([beyond]))))
            return wrote, row, beyond, told_of_rows("A" if n else "B", through)
    return None


def _box(copy: AccessRecord, slot: int) -> AccessLayout:
    through = copy.spans[0].through
    return through[min(int(np.searchsorted(copy.slots, slot)), len(through) - 1)]


def _into_the_other(new: AccessRecord, n: int, writers: Writers) -> tuple[AccessRecord, int, int, Diagnosis] | None:
    """Find where an operand takes bytes of the other one, and of another tensor besides."""
    rows = new.granules.reshape(len(new.granules), -1)
    if len(new.spans) < 2:
        return None
    for row, slot in enumerate(new.slots.tolist()):
        flat = rows[min(row, len(rows) - 1)]
        own, others = (flat[new.spans[k].start : new.spans[k].end] for k in (n, 1 - n))
        common = np.intersect1d(own, others)
        if not len(common):
            continue
        mine, theirs = (_written_for(writers(slot, granules)) for granules in (own, others))
        wrote = next((mine[source] for source in mine if source in theirs), None)
        if wrote is not None and not mine.keys() <= theirs.keys():
            through = new.spans[n].through
            wrong = told("A" if n else "B", "B" if n else "A", through[min(row, len(through) - 1)])
            return wrote, row, int(common[0]), wrong
    return None


def _written_for(writers: Iterable[AccessRecord]) -> dict[object, AccessRecord]:
    """Return the copies that wrote some bytes by their source: a tensor, or a line where there is no map."""
    return {_source(touch): touch for touch in writers if touch.asynchronous and touch.writes}


def _source(touch: AccessRecord) -> object:
    if touch.spans:
        return touch.spans[0].through[0].tensor
    return touch.instruction.source or touch.instruction.index
