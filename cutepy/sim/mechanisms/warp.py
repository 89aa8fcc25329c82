"""Exchange between the lanes of a warp: shuffles, votes, matches, reductions, elections.

References
----------
PTX ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "activemask", "elect.sync", "bar.warp.sync".
"""

from __future__ import annotations

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.arithmetic import floats
from cutepy.sim.errors import Place, SimulationError
from cutepy.sim.machine.activity import Activity, PickedLanes
from cutepy.sim.machine.events import WarpSync
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import WARP, Array, Threads, mask_of
from cutepy.sim.ptx.model import Instruction

_ALL = 0xFFFFFFFF


class Warp:
    """Collectives over the lanes of each warp."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self._sources: dict[tuple[object, ...], tuple[Array, Array]] = {}

    def sync(self, g: Group, i: Instruction, mask: Array) -> None:
        """Synchronise the lanes of each mask, which have come; masks of a warp may differ, as those of its tiles do."""
        self._check_mask(g, i, mask)
        if mask.shape[1] == 1:
            self._tell_sync(g, i)
            return
        first = mask & (~mask + np.uint32(1))  # the lowest lane of each mask, which no other mask of the warp has
        for row in range(len(mask)) if (mask != mask[:1]).any() else [slice(None)]:
            here = np.zeros((g.ctas.count if len(mask) > 1 else 1, 1), bool)
            here[row] = True
            for leader in np.unique(first[row]):
                self._tell_sync(g, i, here & (first[row] == leader))

    def _tell_sync(self, g: Group, i: Instruction, lanes: Array | None = None) -> None:
        if self._activity.observers:
            picked = PickedLanes.of_group(g, lanes)
            self._activity.tell(WarpSync(i, picked.ctas, picked.threads))

    def shuffle(
        self, g: Group, i: Instruction, mode: str, a: Array, b: Array, c: Array, mask: Array
    ) -> tuple[Array, Array]:
        """Return the value of another lane, and whether that lane is in range."""
        self._check_mask(g, i, mask)
        if self._activity.observers and not (g.threads.full and mask.size == 1 and mask.item() == _ALL):
            self._check_sources(g, i, mode, b, c, mask)
        if b.shape[0] > 1 or c.shape[0] > 1:
            return self._shuffle_by_cta(g, mode, a, b, c)
        key = (mode, b.tobytes(), b.shape, c.tobytes(), c.shape, id(g.threads))
        if key not in self._sources:
            lane, inside = source_lane(
                mode, g.threads.special["laneid"].astype(np.int64), b.astype(np.int64), c.astype(np.int64)
            )
            self._sources[key] = _columns(g.threads, lane), inside
        columns, inside = self._sources[key]
        return (a if a.shape[1] == 1 else a[:, columns[0]]), inside

    def _check_mask(self, g: Group, i: Instruction, mask: Array) -> None:
        """Stop where a lane is outside of its own mask, or two lanes of a mask name different ones: both undefined."""
        if mask.size == 1 and mask.item() == _ALL:
            return
        within = mask >> g.threads.special["laneid"] & np.uint32(1)
        if not within.all():
            row, place = (int(x[0]) for x in np.nonzero(within == 0))
            named = int(np.broadcast_to(mask, within.shape)[row, place])
            lane, warp = (int(g.threads.special[name][0, place]) for name in ("laneid", "warpid"))
            raise SimulationError(
                f"{i.opcode} by lane {lane} of warp {warp}, which is outside of its mask {named:#010x}",
                i,
                g.lane(row, place),
                fix=Diagnosis("mask-of-executing-lanes"),
                kind="mismatched-mask",
                at=Place("a mask of lanes"),
            )
        if mask.shape[1] == 1:
            return
        masks, members = g.threads.by_warp(mask, 0), self._members(g, mask)
        in_own = np.diagonal(members, axis1=2, axis2=3)[..., None]
        apart = members & in_own & (masks[..., :, None] != masks[..., None, :])
        if apart.any():
            row, place, *lanes = (int(x[0]) for x in np.nonzero(apart))
            (lane, own), (other, theirs) = ((lane, f"{masks[row, place, lane]:#010x}") for lane in lanes)
            raise SimulationError(
                f"{i.opcode} of lane {lane} of warp {g.threads.warps[place]} names lanes {own}, and lane {other} "
                f"of them names {theirs}",
                i,
                g.describe(),
                fix=Diagnosis("one-mask"),
                kind="mismatched-mask",
                at=Place("a mask of lanes"),
            )

    def _check_sources(self, g: Group, i: Instruction, mode: str, b: Array, c: Array, mask: Array) -> None:
        """Report lanes that read from a lane outside of the mask: their result is undefined."""
        own = g.threads.special["laneid"].astype(np.int64)
        lane, inside = source_lane(mode, own, b.astype(np.int64), c.astype(np.int64))
        named = mask.astype(np.int64) >> lane & 1 == 1
        here = np.isin(g.threads.ids // WARP * WARP + lane, g.threads.ids)
        stray = np.broadcast_to(inside & ~(named & here), (g.ctas.count, g.threads.count))
        if stray.any():
            row, place = (int(x[0]) for x in np.nonzero(stray))
            source = int(np.broadcast_to(lane, stray.shape)[row, place])
            is_named = bool(np.broadcast_to(named, stray.shape)[row, place])
            warp, reader = divmod(int(g.threads.ids[place]), WARP)
            why = "has ended, or never began" if is_named else "is not in its mask"
            wrong = SimulationError(
                f"{i.opcode} of lane {reader} of warp {warp} reads from lane {source}, which {why}: what it gets is "
                "undefined",
                i,
                g.lane(row, place),
                fix=Diagnosis("undefined-shuffle"),
                kind="undefined-shuffle",
                at=Place(f"lane {source} of warp {warp}"),
            )
            self._activity.fault(wrong, stops=False)

    def _shuffle_by_cta(self, g: Group, mode: str, a: Array, b: Array, c: Array) -> tuple[Array, Array]:
        lane, inside = source_lane(
            mode, g.threads.special["laneid"].astype(np.int64), b.astype(np.int64), c.astype(np.int64)
        )
        columns = _columns(g.threads, lane)
        if a.shape[1] == 1:
            return a, inside
        wide = np.broadcast_to(a, (columns.shape[0], a.shape[1]))
        return np.take_along_axis(wide, columns, axis=1), inside

    def _to_lanes(self, g: Group, by_mask: Array) -> Array:
        """Return a value by (CTA, warp, mask), of one mask or of each lane's own, as one by (CTA, thread)."""
        position = g.threads.position
        if by_mask.shape[2] == 1:
            return by_mask[:, position // WARP, 0]
        return by_mask.reshape(by_mask.shape[0], -1)[:, position]

    def _members(self, g: Group, mask: Array) -> Array:
        """Return the participants, by (CTA, warp, mask, lane): of one mask, or of each lane's own, as in tiles."""
        masks = mask[:, :, None, None] if mask.shape[1] == 1 else g.threads.by_warp(mask, 0)[..., None]
        return (masks >> np.arange(WARP, dtype=np.uint32) & np.uint32(1)).astype(bool) & g.threads.present[:, None]

    def vote_all(self, g: Group, i: Instruction, a: Array, mask: Array) -> Array:
        """Return whether a predicate holds in all lanes of each one's mask."""
        self._check_mask(g, i, mask)
        holds: Array = g.threads.by_warp(a, True)[:, :, None] | ~self._members(g, mask)
        return self._to_lanes(g, np.logical_and.reduce(holds, axis=3))

    def vote_any(self, g: Group, i: Instruction, a: Array, mask: Array) -> Array:
        """Return whether a predicate holds in any lane."""
        self._check_mask(g, i, mask)
        holds: Array = g.threads.by_warp(a, False)[:, :, None] & self._members(g, mask)
        return self._to_lanes(g, np.logical_or.reduce(holds, axis=3))

    def vote_uni(self, g: Group, i: Instruction, a: Array, mask: Array) -> Array:
        """Return whether a predicate is the same in all lanes."""
        return self.vote_all(g, i, a, mask) | ~self.vote_any(g, i, a, mask)

    def vote_ballot(self, g: Group, i: Instruction, a: Array, mask: Array) -> Array:
        """Return the mask of lanes in which a predicate holds."""
        self._check_mask(g, i, mask)
        return self._to_lanes(g, mask_of(g.threads.by_warp(a, False)[:, :, None] & self._members(g, mask)))

    def match_any(self, g: Group, i: Instruction, a: Array, mask: Array) -> tuple[Array, None]:
        """Return the mask of lanes with the same value."""
        self._check_mask(g, i, mask)
        return self._to_lanes(g, mask_of(self._equal(g, a) & self._members(g, mask))), None

    def match_all(self, g: Group, i: Instruction, a: Array, mask: Array) -> tuple[Array, Array]:
        """Return the mask if all lanes have the same value, else 0; and whether they have."""
        self._check_mask(g, i, mask)
        members = self._members(g, mask)
        same = self._to_lanes(g, np.logical_and.reduce(self._equal(g, a) | ~members, axis=3))
        return np.where(same, self._to_lanes(g, mask_of(members)), np.uint32(0)), same

    def _equal(self, g: Group, a: Array) -> Array:
        """Return, by (CTA, warp, lane, lane), whether two lanes have the same value."""
        values = g.threads.by_warp(a, 0)
        equal: Array = values[..., :, None] == values[..., None, :]
        return equal

    def reduce(self, g: Group, i: Instruction, operation: str, a: Array, mask: Array) -> Array:
        """Combine the values of all lanes."""
        self._check_mask(g, i, mask)
        if a.dtype == np.float32:
            return self._extreme(g, operation, np.abs(a) if "abs" in i.parts else a, mask, "NaN" in i.parts)
        info = np.iinfo(a.dtype)
        neutral = {"add": 0, "or": 0, "xor": 0, "and": -1, "min": info.max, "max": info.min}[operation]
        neutral_value = np.array(neutral).astype(a.dtype)
        values = np.where(self._members(g, mask), g.threads.by_warp(a, neutral_value)[:, :, None], neutral_value)
        function = {
            "add": np.add,
            "or": np.bitwise_or,
            "xor": np.bitwise_xor,
            "and": np.bitwise_and,
            "min": np.minimum,
            "max": np.maximum,
        }[operation]
        return self._to_lanes(g, function.reduce(values, axis=3, dtype=a.dtype))

    def _extreme(self, g: Group, operation: str, a: Array, mask: Array, nan_wins: bool) -> Array:
        """Return the least or the greatest of the float32 of all lanes that a mask names."""
        neutral = np.float32(np.nan)  # loses to a number
        if nan_wins:
            neutral = np.float32(-np.inf if operation == "max" else np.inf)
        values = np.where(self._members(g, mask), g.threads.by_warp(a, neutral)[:, :, None], neutral)
        function = floats.EXTREMES[operation, nan_wins]
        while values.shape[3] > 1:
            values = function(values[..., ::2], values[..., 1::2])
        return self._to_lanes(g, values[..., 0])

    def active(self, g: Group) -> Array:
        """Return the mask of the lanes that run here."""
        masks = np.array(g.threads.masks, np.uint32)
        return masks[g.threads.position // WARP][None, :]

    def elect(self, g: Group, i: Instruction, mask: Array) -> tuple[Array, Array]:
        """Pick the first lane of each one's mask; returns its lane and whether it is this one."""
        self._check_mask(g, i, mask)
        members = self._members(g, mask)
        leader = self._to_lanes(g, members.argmax(axis=3).astype(np.uint32))
        return leader, g.threads.special["laneid"] == leader


def source_lane(mode: str, lane: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """Return the lane that each lane reads, and whether it is in range (PTX's own formula)."""
    clamp, segment, b = c & 31, c >> 8 & 31, b & 31
    highest = (lane & segment) | (clamp & ~segment)
    lowest = lane & segment
    if mode == "up":
        source = lane - b
        inside = source >= highest
    elif mode == "down":
        source = lane + b
        inside = source <= highest
    elif mode == "bfly":
        source = lane ^ b
        inside = source <= highest
    else:
        source = lowest | (b & ~segment)
        inside = source <= highest
    return np.where(inside, source, lane), inside


def _columns(threads: Threads, lane: Array) -> Array:
    """Return the column of the lane of each thread's own warp; the thread's own where that lane is not here."""
    wanted = threads.ids[None, :] // WARP * WARP + lane
    found = np.searchsorted(threads.ids, wanted).clip(0, threads.count - 1)
    return np.where(threads.ids[found] == wanted, found, np.arange(threads.count)[None, :])
