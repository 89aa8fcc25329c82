"""What accesses, MMAs and asynchronous operations touch of shared memory, and what those know who do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.layouts.sm90.arch import UNIT_BYTES
from cutepy.sim.machine.lanes import WARP, WARPGROUP, Array
from cutepy.sim.mechanisms.wgmma.operands import tile_units
from cutepy.sim.sanitize.hazards import Side
from cutepy.sim.sanitize.meaning.layouts import Span, Through, described, misread, of_descriptor
from cutepy.sim.sanitize.memory.shadow import Conflict, Shadow, Touch
from cutepy.sim.sanitize.order.clocks import View
from cutepy.sim.sanitize.order.strength import WEAK, strength
from cutepy.sim.sanitize.order.wave import BULK, COPIES, MMAS, Issued, Wave

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, AsyncOperation, WgmmaEvent
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.synchronisation import Report as Tell
    from cutepy.sim.translate.wgmma_shapes import SharedTile


_Operands = tuple[tuple[tuple[int, ...], "SharedTile", str], ...]
"""Of an MMA: the descriptors by CTA, the tile, the type of its elements."""


class _Signal(NamedTuple):
    """The mbarriers that count an operation's bytes: their offset; and of each CTA that it touches, whose and when."""

    address: int
    slots: Array
    phases: Array


class SharedTouches:
    """Hands the shadow of shared memory what is done to it.

    Parameters
    ----------
    wave : Wave
    granule : int
        Bytes that are watched as one.
    slot_bytes : int
        Of shared memory, from one CTA to the next.
    report, unwritten : callable
        As of `Shadow`.
    tell : callable
        Takes what is wrong beside that.
    """

    def __init__(
        self,
        wave: Wave,
        granule: int,
        slot_bytes: int,
        report: Callable[[Conflict], None],
        unwritten: Callable[[Touch, int, int], None],
        tell: Tell,
    ) -> None:
        self._tell = tell
        self._wave, self._granule, self._slot_bytes = wave, granule, slot_bytes
        granules = -(-slot_bytes // granule)
        self._of_operands: dict[_Operands, tuple[Array, tuple[Span, ...]]] = {}
        self._shadow = Shadow(wave.clocks, wave.residents.count, granules, report, unwritten, self._misread)

    def access(self, access: Access) -> None:
        """Take an access by threads."""
        wave = self._wave
        slots, threads = access.ctas.slots, access.threads.ids
        addresses = np.broadcast_to(access.addresses, (len(slots), access.addresses.shape[1]))
        if addresses.shape[1] not in (1, len(threads)):  # rows of matrices, which the first lanes of each warp address
            warps = np.unique(threads // WARP)
            rows = addresses.shape[1] // len(warps)
            threads = (warps[:, None] * WARP + np.arange(rows)).reshape(-1)
        where, offsets = np.divmod(addresses, self._slot_bytes)
        where, offsets = (np.broadcast_to(x, (len(slots), len(threads))) for x in (where, offsets))
        if (where == slots[:, None]).all():
            self._by_threads(access, slots, slots, threads, offsets)
            return
        for rank in range(wave.clocks.cluster):
            mine = np.flatnonzero(slots % wave.clocks.cluster == rank)
            for target in np.unique(where[mine] % wave.clocks.cluster).tolist() if len(mine) else ():
                for row in mine.tolist():
                    here = where[row] % wave.clocks.cluster == target
                    if here.any():
                        at = where[row, here][:1]
                        if not wave.peers.access(access.instruction, int(at[0]), int(slots[row]), threads[here]):
                            self._unstarted(access, int(at[0]), int(slots[row]), threads[here])
                        self._by_threads(access, at, slots[row : row + 1], threads[here], offsets[row : row + 1, here])

    def _by_threads(self, access: Access, slots: Array, agents: Array, threads: Array, offsets: Array) -> None:
        wave, clocks = self._wave, self._wave.clocks
        copies = access.part_of is not None
        columns = threads
        if copies:
            columns = np.array([clocks.column((COPIES, t), t) for t in threads.tolist()])
            counts = wave.closed[COPIES][agents[:, None], threads] + 1
        else:
            counts = clocks.counts(agents, threads)
        view, row_of = clocks.view(agents, threads)
        places = self._places(offsets, access.size_bytes)
        i = access.instruction
        what = f"{i.parts[0]} {access.operation}" if not copies else "cp.async write"
        if access.operation != "read" and i.parts[0] != "st":  # the simulator refuses stores
            last = int(offsets.max()) + access.size_bytes
            self._overwritten(i, what, slots, int(offsets.min()), last)
        touch = Touch(
            what,
            i,
            access.operation != "read",
            False,
            WEAK if copies else strength(i.opcode).scope,
            slots,
            agents,
            threads,
            columns,
            counts,
            places,
            view,
            row_of,
        )
        self._shadow.touch(touch)

    def _unstarted(self, access: Access, target: int, agent: int, threads: Array) -> None:
        coordinate = self._wave.residents.coordinate
        warp, lane = divmod(int(threads[0]), WARP)
        who, i = f"warp {warp}, lane {lane} of CTA {coordinate(agent)}", access.instruction
        where = f"shared memory of CTA {coordinate(target)}"
        side = Side(f"{i.parts[0]} {access.operation}", who, i, coordinate(agent), warp, lane)
        self._tell("unstarted-peer", where, None, side, None)

    def _overwritten(self, i: Instruction, what: str, slots: Array, first: int, last: int) -> None:
        """Report a write over an mbarrier."""
        objects, coordinate = self._wave.objects, self._wave.residents.coordinate
        address = objects.written(slots, first, last)
        if address is not None:
            cta = coordinate(int(slots[0]))
            before = Side("mbarrier.init", f"CTA {cta}", objects.made_by[address], cta)
            after = Side(what, f"CTA {cta}", i, cta)
            self._tell("overwritten-mbarrier", f"mbarrier {address:#x}", before, after, None)

    def _misread(self, old: Touch, new: Touch, row: int, granules: Array, written: Through, read: Through) -> bool:
        kind = misread(written, read, granules * self._granule)
        if kind is None:
            return False
        coordinate = self._wave.residents.coordinate
        cta = coordinate(int(new.agents[row]))
        before, after = (Side(t.what, f"the async proxy for CTA {cta}", t.instruction, cta) for t in (old, new))
        where = f"shared memory at {int(granules[0]) * self._granule:#x}"
        self._tell(kind, where, before, after, described(written, read))
        return True

    def _places(self, offsets: Array, size: int) -> Array:
        """Return the granules of ranges of bytes, (CTA or 1, lane, n)."""
        if len(offsets) > 1 and (offsets == offsets[:1]).all():
            offsets = offsets[:1]
        count = -(-size // self._granule)
        return (offsets // self._granule)[..., None] + np.arange(count)

    def wgmma(self, event: WgmmaEvent) -> None:
        """Take what an MMA reads."""
        wave = self._wave
        clocks, shape, slots = wave.clocks, event.shape, event.ctas.slots
        groups = np.unique(event.threads.ids // WARPGROUP)
        words = [(event.b, shape.b_tile, shape.b)]
        if event.a is not None:
            words.append((event.a, shape.a_tile, shape.a))
        for n, group in enumerate(groups.tolist()):
            threads = np.arange(group * WARPGROUP, (group + 1) * WARPGROUP)
            column = np.array([clocks.column((MMAS, group))])
            counts = wave.closed[MMAS][slots, group * WARPGROUP][:, None] + 1
            wave.mma_groups.issue(slots, group, counts[:, 0])
            together = View(clocks.common(slots, threads)[:, :, None], None)
            operands = []
            for word, tile, element in words:
                of_group = np.broadcast_to(word, (word.shape[0], len(groups)))[:, n]
                of_group = of_group[:1] if (of_group == of_group[0]).all() else of_group
                operands.append((tuple(of_group.tolist()), tile, element))
            flat, spans = self._operands(tuple(operands))
            touch = Touch(
                "wgmma read",
                event.instruction,
                False,
                True,
                WEAK,
                slots,
                slots,
                None,
                column,
                counts,
                flat,
                together,
                np.zeros((1, 1), int),
                spans,
            )
            self._shadow.touch(touch)
            wave.note(int(column[0]), event.instruction, slots, counts)

    def _operands(self, operands: _Operands) -> tuple[Array, tuple[Span, ...]]:
        """Return the granules of an MMA's operands, (CTA or 1, 1, n), and through which layout each is read."""
        found = self._of_operands.get(operands)
        if found is None:
            places = [np.stack([tile_units(w, tile).reshape(-1) for w in words]) for words, tile, _ in operands]
            rows = max(map(len, places))
            flat = np.concatenate([np.broadcast_to(p, (rows, p.shape[1])) for p in places], axis=1)
            flat = self._places(flat * UNIT_BYTES, UNIT_BYTES).reshape(rows, 1, -1)
            ends = np.cumsum([p.shape[1] * -(-UNIT_BYTES // self._granule) for p in places]).tolist()
            through = [of_descriptor(words[0], element) for words, _, element in operands]
            found = self._of_operands[operands] = flat, tuple(map(Span, [0, *ends], ends, through))
        return found

    def completed(self, operation: AsyncOperation, issued: Issued) -> None:
        """Take what an operation has read and written."""
        by_place: dict[tuple[str, int, int, int | None, int], list[int]] = {}
        issuers, lanes = operation.ctas.slots.tolist(), operation.threads.count
        for access in issued.accesses:
            by_lane = access.addresses.size == len(issuers) * lanes
            for n, position in enumerate(access.addresses.reshape(-1).tolist()):
                slot, offset = divmod(position, self._slot_bytes)
                lane = n if by_lane and access.issuer is None else access.issuer
                row, column = (None, 0) if lane is None else divmod(lane, lanes)
                apart = None if row is None else issuers[row] - slot  # a multicast, or a copy to a peer
                by_place.setdefault((access.operation, offset, access.size_bytes, apart, column), []).append(slot)
        for (what, offset, size, apart, column), found in by_place.items():
            for channel, slots in self._channels(operation, issued, np.unique(found)):
                of = operation.ctas.slots
                rows = self._wave.issuers(of, slots) if apart is None else np.searchsorted(of, slots + apart)
                self._by_proxy(operation, issued, what, offset, size, slots, channel, rows, column)

    @staticmethod
    def _channels(operation: AsyncOperation, issued: Issued, slots: Array) -> list[tuple[_Signal | None, Array]]:
        """Part the CTAs that an operation touches by the mbarrier that says so; a store of a group has none."""
        if operation.kind in ("tma_store", "bulk_store"):
            return [(None, slots)]
        signals = [
            (int(slot), place, int(phase))
            for place, of, phases in issued.signals
            for slot, phase in zip(of, np.broadcast_to(phases, of.shape), strict=True)
        ]
        by_slot = {slot: (slot, place, phase) for slot, place, phase in signals}
        parted: dict[int, list[tuple[int, int, int]]] = {}
        for slot in slots.tolist():
            # What a copy to a peer reads here is told there.
            agent, place, phase = by_slot.get(slot, signals[-1])
            parted.setdefault(place, []).append((slot, agent, phase))
        result: list[tuple[_Signal | None, Array]] = []
        for place, each in parted.items():
            of, agents, phases = (np.array(x) for x in zip(*each, strict=True))
            result.append((_Signal(place, agents, phases), of))
        return result

    def _by_proxy(
        self,
        operation: AsyncOperation,
        issued: Issued,
        what: str,
        offset: int,
        size: int,
        slots: Array,
        channel: _Signal | None,
        issuer_of: Array,
        lane: int,
    ) -> None:
        wave, clocks, issuers = self._wave, self._wave.clocks, operation.ctas.slots
        if channel is None:
            thread = int(operation.threads.ids[0])
            column = clocks.column((BULK, "read", thread), thread)
            agents = issuers[issuer_of]
            counts = wave.closed[BULK][agents, thread][:, None] + 1
            wave.note(column, operation.instruction, agents, counts)
        else:
            column = clocks.column(("mbarrier", channel.address))
            agents, counts = channel.slots, channel.phases[:, None] + 1
            wave.note(column, operation.instruction, agents, counts)
            for slot, agent, count in zip(slots.tolist(), agents.tolist(), counts[:, 0].tolist(), strict=True):
                if slot != agent:
                    wave.lent[slot, agent, column] = operation.instruction, count
        one = len(issued.threads) == 1
        known = issued.known[:, issuer_of] if one else issued.lanes(issuer_of, np.full(len(issuer_of), lane))
        view = View(known[:, :, None], None)
        places = self._places(np.array([[offset]]), size)
        if what != "read":
            self._overwritten(operation.instruction, f"{operation.kind} {what}", slots, offset, offset + size)
        name = {"tma_load": "TMA", "tma_store": "TMA store", "st_async": "st.async"}.get(operation.kind, "bulk copy")
        touch = Touch(
            f"{name} {what}",
            operation.instruction,
            what != "read",
            True,
            WEAK if what == "read" else strength(operation.instruction.opcode).scope,
            slots,
            agents,
            None,
            np.array([column]),
            counts,
            places,
            view,
            np.zeros((1, 1), int),
            () if issued.through is None else (Span(0, places.shape[-1], issued.through),),
        )
        self._shadow.touch(touch)
