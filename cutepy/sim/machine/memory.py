"""Global, shared and local memory: known ranges and checked accesses.

Global memory is the host's: kernels get real addresses, and only ranges that were registered may be touched. The
shared memory of all resident CTAs is one array, `slot_bytes` each.

References
----------
PTX ISA, "State Spaces", "Data Movement and Conversion Instructions: ld, st"; "Generic Addressing".
"""

from __future__ import annotations

import bisect
import ctypes
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import MemoryAccessError, Place, ReadOnlyMemoryError
from cutepy.sim.machine.address_patterns import AddressPatterns, InOwnCta, LocatedPattern
from cutepy.sim.machine.events import Access, LocalCopy, Proxy, Space
from cutepy.sim.machine.lanes import Array, Ctas, Residents, Threads, as_index
from cutepy.sim.machine.opaque_objects import OpaqueObjects
from cutepy.sim.machine.shared_memory import MemoryContents, SharedMemory, leftover
from cutepy.sim.semantics.movement import LOCAL_WINDOW, SHARED_WINDOW

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cutepy.sim.errors import NamedLanes
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate.wgmma_shapes import SharedTile

RANK_SHIFT = 24
"""The bit of a shared::cluster address from which on it has the rank of a CTA in its cluster.

Code for sm_100 and later clears the lowest bit of its own mbarriers' addresses to name those of the even CTA of a
pair: there all addresses of a cluster's shared memory have the rank (`Residents.ranked`). In code for sm_90 own
addresses are the same in all CTAs, and those of `mapa` have the rank plus one.
"""

OFFSET_MASK = (1 << RANK_SHIFT) - 1
_ALIGN = 32
"""Bytes of the widest access of a lane, which is to global memory."""
_HOST_ALIGNMENT = 16
"""Bytes to which numpy aligns arrays."""
_ROW = 16
"""Bytes of the widest access of a lane to shared and local memory."""
_ZEROS = 8
"""Bytes that the address and the size of st.bulk are multiples of."""
MAX_LOCAL_BYTES = 512 << 10
"""Of a thread: CUDA C++ Programming Guide, "Compute Capabilities"."""


def own_field(ctas: Ctas) -> Array:
    """Return the bits from `RANK_SHIFT` on in addresses of each CTA's own shared memory, in place: (CTAs, 1)."""
    ranks = ctas.special["cluster_ctarank"]
    return ranks << np.uint32(RANK_SHIFT) if ctas.residents.ranked else np.zeros_like(ranks)


def ranks_in(ctas: Ctas, field: Array) -> Array:
    """Return the ranks that shared addresses name, given the bits from `RANK_SHIFT` on."""
    if ctas.residents.ranked:
        return field
    own = ctas.special["cluster_ctarank"]
    ranks: Array = np.where(field > 0, field - 1, own.astype(np.int64))
    return ranks


class PlainLoad(NamedTuple):
    """A weak, unconditional load from an address in a register.

    Attributes
    ----------
    instruction : Instruction
    base : int
        The register.
    offset : int
        From there.
    space : "global" or "shared"
    size_bytes : int
        Of a lane.
    """

    instruction: Instruction
    base: int
    offset: int
    space: Space
    size_bytes: int


class GlobalMemory:
    """Ranges of host memory that kernels may touch.

    Attributes
    ----------
    inputs : tuple of (int, int, str)
        Start, end and description of the running kernel's read-only memory.
    """

    def __init__(self) -> None:
        self.inputs: tuple[tuple[int, int, str], ...] = ()
        self._starts: list[int] = []
        self._regions: list[Region] = []

    def register(self, address: int, size_bytes: int, owner: object = None, name: str = "") -> bool:
        """Make a range known; ranges that overlap become one, and keep their owners alive. Tells if it was unknown."""
        if size_bytes <= 0:
            return False
        start, end = address, address + size_bytes
        first = bisect.bisect_right(self._starts, start)
        if first and self._regions[first - 1].end > start:
            first -= 1
        last = max(first, bisect.bisect_left(self._starts, end))
        overlapping = self._regions[first:last]
        if len(overlapping) == 1 and overlapping[0].start <= start and end <= overlapping[0].end:
            return False  # its owners keep this memory alive
        owners = [owner]
        for region in overlapping:
            start, end = min(start, region.start), max(end, region.end)
            owners += region.owners
            name = name or region.name
        self._regions[first:last] = [Region(start, end, owners, name)]
        self._starts[first:last] = [start]
        return True

    def forget(self, address: int) -> None:
        """Make the range that starts at an address unknown again."""
        index = bisect.bisect_left(self._starts, address)
        if index < len(self._starts) and self._starts[index] == address:
            del self._starts[index], self._regions[index]

    def ranges(self) -> list[tuple[int, int]]:
        """Return start and end of each known range."""
        return [(region.start, region.end) for region in self._regions]

    def writable(self) -> list[tuple[int, int, int]]:
        """Return start and end of each part of a known range that may be written to, and the start of the range."""
        parts = [(region.start, region.end, region.start) for region in self._regions]
        for low, high, _ in self.inputs:
            parts = [
                part
                for start, end, first in parts
                for part in ((start, min(end, low), first), (max(start, high), end, first))
                if part[0] < part[1]
            ]
        return parts

    def find(self, low: int, high: int) -> Region | None:
        """Return the region that holds the bytes from `low` up to `high`, or None."""
        index = bisect.bisect_right(self._starts, low) - 1
        if index >= 0 and high <= self._regions[index].end:
            return self._regions[index]
        return None

    def nearest(self, address: int) -> str:
        """Describe the place of an address relative to the known ranges."""
        if not self._regions:
            return "no global memory is known"
        region = min(self._regions, key=lambda r: min(abs(address - r.start), abs(address - r.end)))
        if address >= region.end:
            return f"{address - region.end} bytes past the end of {region}"
        if address < region.start:
            return f"{region.start - address} bytes before the start of {region}"
        return f"reaching past the end of {region}"


class Region:
    """A range of host memory, seen as arrays whose start is aligned to the widest access."""

    def __init__(self, start: int, end: int, owners: list[Any], name: str) -> None:
        self.start, self.end, self.owners, self.name = start, end, owners, name
        self.base = start & -_ALIGN
        size = ((end + _ALIGN - 1) & -_ALIGN) - self.base
        self.bytes: Array = np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(self.base)), np.uint8)
        self._views: dict[tuple[str, int], Array] = {}

    def view(self, kind: np.dtype[Any], count: int) -> Array:
        """Return the region as rows of `count` elements, of 32 bytes at most."""
        key = kind.str, count
        if key not in self._views:
            flat = self.bytes.view(kind)
            self._views[key] = flat if count == 1 else flat.reshape(-1, count)
        return self._views[key]

    def __str__(self) -> str:
        return f"{self.name or 'a known range'} of {self.end - self.start} bytes at {self.start:#x}"


class Memory:
    """The memory that a launch sees; `windows` says from where to where constants and parameters are."""

    residents: Residents
    used_bytes: int

    def __init__(self, activity: Activity, global_memory: GlobalMemory, slot_bytes: int, local_bytes: int) -> None:
        self._activity = activity
        self.known = global_memory
        self.slot_bytes, self._local_bytes = slot_bytes, local_bytes
        self.shared: Array = np.zeros(0, np.uint8)
        self.unwritten: MemoryContents = 0  # what bytes of shared memory hold where a CTA begins
        self.absent: Array | None = (
            None  # CTAs, by slot, whose memory others can't reach: it is not yet, or no longer, theirs
        )
        self._local: Array = np.zeros(0, np.uint8)
        self._shared_views: dict[tuple[str, int], Array] = {}
        self._patterns = AddressPatterns()
        self._loaded: dict[
            int, tuple[Array, Ctas, Array | LocatedPattern | InOwnCta]
        ] = {}  # by instruction, the last time
        self.objects = OpaqueObjects(activity, 0, slot_bytes)
        self.windows: dict[str, list[tuple[int, int]]] = {"const": [], "param": []}

    def start(self, residents: Residents, used_bytes: int, threads: int) -> None:
        """Make the shared and local memory of CTAs that become resident."""
        slots = residents.count
        self.residents = residents
        self.used_bytes = used_bytes
        self.shared = leftover(slots * self.slot_bytes, self.unwritten)
        self._threads, self._lanes = threads, slots * threads
        self._local = np.zeros(0, np.uint8)
        self._shared_views, self._loaded = {}, {}
        self.objects = OpaqueObjects(self._activity, slots, self.slot_bytes)

    def now(self) -> SharedMemory:
        """Return the shared memory of the resident CTAs, as it is and will become."""
        return SharedMemory(self.residents, self.slot_bytes, self.used_bytes, self.shared)

    def left(self) -> Array:
        """Return the shared memory that a CTA finds after these, if each comes after the one before it."""
        return np.roll(self.shared, self.slot_bytes)

    def shared_view(self, kind: np.dtype[Any], count: int) -> Array:
        """Return shared memory as rows of `count` elements."""
        key = kind.str, count
        if key not in self._shared_views:
            flat = self.shared.view(kind)
            self._shared_views[key] = flat if count == 1 else flat.reshape(-1, count)
        return self._shared_views[key]

    # Addresses.

    def resolve(self, space: str, address: Array) -> tuple[Space, Array]:
        """Return the space that a generic address is in, and the address there."""
        if space in ("shared", "shared_cluster"):
            return "shared", address
        if space == "local":
            return "local", address
        if space == "generic":
            high = int(address.max())
            if high >= SHARED_WINDOW:
                if high >= LOCAL_WINDOW:
                    return "local", address - np.uint64(LOCAL_WINDOW)
                return "shared", address - np.uint64(SHARED_WINDOW)
        return "global", address

    def _resolved(self, g: Group, i: Instruction, space: str, address: Array, size: int) -> tuple[Space, Array]:
        """Return the space and the address there of a load or store, the widest of which are to global memory only."""
        place, address = self.resolve(space, address)
        if size > _ROW and place != "global":
            every = np.ones((1, 1), bool)
            self._fail(
                g, i, place, address, every, size, f"is not in global memory, which alone takes more than {_ROW} bytes"
            )
        return place, address

    def in_space(self, g: Group, address: Array, space: str) -> Array:
        """Return whether generic addresses are in a space (isspacep)."""
        if space.startswith("shared"):
            inside: Array = (address >= SHARED_WINDOW) & (address < LOCAL_WINDOW)
            if space == "shared::cluster":
                return inside
            own: Array = self.rank_of(g, address) == g.ctas.special["cluster_ctarank"]
            return np.logical_and(inside, own)
        if space == "local":
            return address >= LOCAL_WINDOW
        if space in ("const", "param"):
            windows = np.array(self.windows[space], np.uint64).reshape(-1, 2)
            found = (address[..., None] >= windows[:, 0]) & (address[..., None] < windows[:, 1])
            return np.asarray(found.any(axis=-1))
        # Of the global space the window of parameters is a part, that of constants is none, as measured on an H200.
        return np.logical_and(address < SHARED_WINDOW, ~self.in_space(g, address, "const"))

    def map_address(self, address: Array, rank: Array, generic: bool) -> Array:
        """Return the address of the same variable in the CTA of a rank."""
        kind = address.dtype.type
        base = kind(SHARED_WINDOW) if generic else kind(0)
        offset = (address - base) & kind(OFFSET_MASK)
        field = rank.astype(address.dtype) + kind(not self.residents.ranked)
        result: Array = base + (offset | (field << kind(RANK_SHIFT)))
        return result

    def own_field(self, g: Group) -> Array:
        """Return the address of a variable in shared memory without its offset: the own rank, if any."""
        return own_field(g.ctas)

    def slot_starts(self, g: Group) -> Array:
        """Return where each CTA's shared memory is on the host, and from bit 56 on the rank that own addresses have."""
        start: Array = self.slot_bytes * g.ctas.column + self.shared.ctypes.data
        return start + (own_field(g.ctas).astype(np.int64) << (56 - RANK_SHIFT)) if g.ctas.residents.ranked else start

    def rank_of(self, g: Group, address: Array) -> Array:
        """Return the rank of the CTA that a shared address is in."""
        offset = address.astype(np.uint64) & np.uint64(SHARED_WINDOW - 1)
        rank = ranks_in(g.ctas, (offset >> np.uint64(RANK_SHIFT)).astype(np.int64))
        found: Array = np.broadcast_to(rank, np.broadcast_shapes(rank.shape, (g.ctas.count, 1))).astype(np.uint32)
        return found

    def locate(self, g: Group, i: Instruction, address: Array, size: int, alignment: int) -> Array:
        """Return the positions of shared addresses in `shared`, checked."""
        where = self._place(g, i, address, size, alignment)
        return where.addresses() if isinstance(where, InOwnCta) else where

    def _place(self, g: Group, i: Instruction, address: Array, size: int, alignment: int) -> Array | InOwnCta:
        """Return the checked addresses from which the positions of shared addresses follow."""
        offset = address.astype(np.int64)
        slot = g.ctas.column
        highest = int(offset.max())
        if self.residents.ranked:
            offset = offset ^ own_field(g.ctas).astype(np.int64)  # own addresses have nothing beside the offset left
            highest = int(offset.max())
            offset = offset if highest < 1 << RANK_SHIFT else address.astype(np.int64)
        is_own = highest < 1 << RANK_SHIFT
        if is_own:
            if len(offset) > 1 and self.residents.ranked and (offset == offset[:1]).all():
                offset = offset[:1]
        else:
            size_of_cluster = self.residents.cluster_size
            rank = ranks_in(g.ctas, offset >> RANK_SHIFT)
            if int(rank.max()) >= size_of_cluster:
                self._fail(g, i, "shared", address, rank >= size_of_cluster, size, "names no CTA of the cluster")
            slot = slot - slot % size_of_cluster + rank
            if self.absent is not None and self.absent[slot].any():
                bad = self.absent[slot]
                self._fail(g, i, "shared", address, bad, size, "is of a CTA that has not begun, or has ended")
            offset = offset & OFFSET_MASK
            highest = int(offset.max())
        if highest + size > self.used_bytes:
            outside = offset + size > self.used_bytes
            self._fail(g, i, "shared", address, outside, size, f"is beyond the CTA's {self.used_bytes} bytes")
        if alignment > 1 and (offset & (alignment - 1)).any():
            self._fail(g, i, "shared", address, (offset & (alignment - 1)) != 0, size, f"is no multiple of {alignment}")
        if is_own:
            return InOwnCta(offset, slot, self.slot_bytes)
        result: Array = offset + slot * self.slot_bytes
        return result

    def _locate_local(self, g: Group, i: Instruction, address: Array, size: int) -> Array:
        """Return the positions of local addresses in `_local`: rows of 16 bytes of each lane, which grow in number."""
        offset = address.astype(np.int64)
        end = int(offset.max()) + size
        if end > self._local_bytes or int(offset.min()) < 0:
            outside = (offset + size > self._local_bytes) | (offset < 0)
            self._fail(g, i, "local", address, outside, size, f"is beyond {self._local_bytes} bytes")
        if (offset & (size - 1)).any():
            self._fail(g, i, "local", address, (offset & (size - 1)) != 0, size, f"is no multiple of {size}")
        row_bytes = self._lanes * _ROW
        if end * self._lanes > len(self._local):
            rows = max(-(-end // _ROW), 2 * len(self._local) // row_bytes)
            grown = np.zeros(rows * row_bytes, np.uint8)
            grown[: len(self._local)] = self._local
            self._local = grown
        lane = g.ctas.column * self._threads + g.threads.ids[None, :]
        return (offset >> 4) * row_bytes + lane * _ROW + (offset & (_ROW - 1))

    def copy_local(self, g: Group, i: Instruction, source: Array, to: Array, size: int) -> None:
        """Copy the contents at an address of each lane's local memory to another, in units of 16 bytes."""
        for start in range(0, size, _ROW):
            at = np.uint64(start)
            place = self._locate_local(g, i, to + at, _ROW)  # may make the memory grow
            rows = self._locate_local(g, i, source + at, _ROW) // _ROW
            view = self._local.reshape(-1, _ROW)
            view[place // _ROW] = view[rows]
            for observer in self._activity.observers:
                observer.on_local_copy(LocalCopy(i, g.ctas, g.threads, rows * _ROW, place, _ROW))
        self._activity.changes += 1

    def region(self, g: Group, i: Instruction, address: Array, size: int, alignment: int) -> Region | None:
        """Return the one region that holds all addresses, or None if they are in several; checked."""
        if alignment > 1 and (address & np.uint64(alignment - 1)).any():
            bad = (address & np.uint64(alignment - 1)) != 0
            reason = f"is no multiple of {alignment}"
            if alignment == _ALIGN:
                reason += (
                    f"; numpy aligns arrays to {_HOST_ALIGNMENT}, so take tensors of torch, which are aligned to 64"
                )
            self._fail(g, i, "global", address, bad, size, reason)
        found = self.known.find(int(address.min()), int(address.max()) + size)
        if found is None:
            bad = np.array([self.known.find(int(a), int(a) + size) is None for a in address.flat]).reshape(
                address.shape
            )
            if bad.any():
                first = int(address[bad].flat[0])
                self._fail(g, i, "global", address, bad, size, f"is not in known memory: {self.known.nearest(first)}")
        return found

    def check_writable(
        self, g: Group, i: Instruction, address: Array, size: int, who: NamedLanes | None = None
    ) -> None:
        """Raise an error where written bytes, `size` at each address, are part of a read-only array.

        Raises
        ------
        ReadOnlyMemoryError
        """
        for low, high, name in self.known.inputs:
            bad = (address < high) & (address + address.dtype.type(size) > low)
            if not bad.any():
                continue
            shape = g.ctas.count, g.threads.count
            if who is None:
                row, column = (int(x[0]) for x in np.nonzero(np.broadcast_to(bad, shape)))
                who = g.lane(row, column)
            value = int(address[bad].flat[0])
            raise ReadOnlyMemoryError(
                f"{i.parts[0]} of {size} bytes at global address {value:#x} wrote to a read-only array of {name}",
                i,
                who,
                fix=Diagnosis("writable-array"),
                at=Place.of_global(value),
            )

    def discard(self, g: Group, i: Instruction, address: Array, size: int) -> None:
        """Let observers see global memory whose contents become undefined: to leave them is as good as anything."""
        place, address = self.resolve("generic", address)
        if place == "global":
            self.region(g, i, address, size, size)
            self.check_writable(g, i, address, size)
            if self._activity.observers:
                self.observe(g, i, "write", "global", "generic", address, size)

    def clear(self, g: Group, i: Instruction, space: str, address: Array, size: Array) -> None:
        """Store zeros in shared memory, a multiple of 8 bytes of each lane's own (st.bulk)."""
        place, address = self.resolve(space, address)
        sizes = np.broadcast_to(size.astype(np.int64), (g.ctas.count, g.threads.count))
        most = int(sizes.max())
        if place != "shared":
            self._fail(
                g, i, place, address, np.ones((1, 1), bool), most, "is not in shared memory, as st.bulk needs it"
            )
        if (sizes % _ZEROS).any():
            self._fail(g, i, place, address, sizes % _ZEROS != 0, most, f"needs a size that is a multiple of {_ZEROS}")
        starts = np.broadcast_to(self.locate(g, i, address, min(most, _ZEROS), _ZEROS), sizes.shape)
        outside = starts % self.slot_bytes + sizes > self.used_bytes
        if outside.any():
            self._fail(g, i, place, address, outside, most, f"is beyond the CTA's {self.used_bytes} bytes")
        self._activity.changes += 1
        parts = [(slice(r, r + 1), slice(c, c + 1)) for r, c in np.ndindex(sizes.shape)]
        if (sizes == most).all():
            parts = [(slice(None), slice(None))]
        for rows, lanes in parts:
            at, count = starts[rows, lanes], int(sizes[rows, lanes][0, 0])
            if self.objects:
                self.objects.check_store(g, i, at, count)
            for start in at.ravel().tolist():
                self.shared[start : start + count] = 0
            who = Ctas(g.ctas.slots[rows], g.ctas.residents), Threads(g.threads.ids[lanes], g.threads.block)
            for observer in self._activity.observers if count else ():
                observer.on_access(Access("write", place, "generic", i, *who, at, count))

    def _fail(
        self, g: Group, i: Instruction, space: str, address: Array, bad: Array, size: int, reason: str
    ) -> NoReturn:
        row, column = (int(x[0]) for x in np.nonzero(np.broadcast_to(bad, (g.ctas.count, g.threads.count))))
        value = int(np.broadcast_to(address, (g.ctas.count, g.threads.count))[row, column])
        offset = value & OFFSET_MASK if space == "shared" else None
        at = Place(f"{space} memory at {value:#x}", offset, None if offset is None else size)
        at = Place.of_global(value) if space == "global" else at
        raise MemoryAccessError(f"{space} address {value:#x} ({size} bytes) {reason}", i, g.lane(row, column), at=at)

    # Accesses.

    def load(
        self, g: Group, i: Instruction, space: str, address: Array, kind: np.dtype[Any], count: int, shift: int = 0
    ) -> Any:  # noqa: ANN401
        """Load `count` elements of each lane, `shift` bytes behind an address: one value, or a list of them."""
        size = kind.itemsize * count
        if space == "global" and self._activity.observers:
            value = self._load_pattern(g, i, address, kind, count, shift)
            if value is not None:
                return value if count == 1 else [value[..., n] for n in range(count)]
        if shift:
            address = address + address.dtype.type(shift % (1 << 64))
        place, address = self._resolved(g, i, space, address, size)
        where: Array | InOwnCta = address
        if place == "global":
            region = self.region(g, i, address, size, size)
            if space not in ("const", "param"):
                self._activity.traffic.access("load", g, address, size)
            if region is None:
                value = self._gather(address, kind, count)
            else:
                value = region.view(kind, count)[(address - np.uint64(region.base)).astype(np.int64) // size]
        else:
            if place == "shared":
                where = self._place(g, i, address, size, size)
                value = self._load_shared(g, where, kind, count)
            else:
                where = address = self._locate_local(g, i, address, size)
                value = self._local[: len(self._local) // size * size].view(kind).reshape(-1, count)[address // size]
                value = value[..., 0] if count == 1 else value
        if self._activity.observers:
            self.observe(g, i, "read", place, "generic", where, size)
        return value if count == 1 else [value[..., n] for n in range(count)]

    def tell_loaded(self, g: Group, loads: Iterable[tuple[PlainLoad, Array]]) -> None:
        """Tell the observers of loads that machine code made, each with the value of its address register."""
        told = []
        for load, base in loads:
            known = self._loaded.get(load.instruction.index)
            if known is not None and known[0] is base and known[1] is g.ctas:
                where = known[2]
            else:
                where = self._where_loaded(g, load, base)
                if base.flags.owndata:  # nobody changes it in place
                    self._loaded[load.instruction.index] = base, g.ctas, where
            i, size = load.instruction, load.size_bytes
            told.append(Access("read", load.space, "generic", i, g.ctas, g.threads, where, size))
        for observer in self._activity.observers:
            observer.on_accesses(told)

    def _where_loaded(self, g: Group, load: PlainLoad, base: Array) -> Array | LocatedPattern | InOwnCta:
        """Return the addresses of a load, given the value of its address register."""
        address, size, shift = base, load.size_bytes, load.offset
        if address.dtype.kind != "u":
            address = address.view(f"u{base.itemsize}")
        known = self._patterns.of(address) if load.space == "global" and base.itemsize == 8 else None
        if known is not None:
            return LocatedPattern(known.pattern, known.low + shift)
        if shift:
            address = address + address.dtype.type(shift % (1 << 8 * base.itemsize))
        return self._place(g, load.instruction, address, size, size) if load.space == "shared" else address

    def _load_shared(self, g: Group, where: Array | InOwnCta, kind: np.dtype[Any], count: int) -> Array:
        """Load from shared memory."""
        size, view = kind.itemsize * count, self.shared_view(kind, count)
        if isinstance(where, InOwnCta) and len(where.offsets) == 1:  # the same place of each CTA
            by_cta = view.reshape(-1, self.slot_bytes // size, *view.shape[1:])
            same: Array = by_cta[as_index(g.ctas.slots)].take(where.offsets[0] // size, axis=1)  # in the order of lanes
            return same
        at = where.addresses() if isinstance(where, InOwnCta) else where
        value: Array = view[at // size]
        return value

    def _load_pattern(
        self, g: Group, i: Instruction, address: Array, kind: np.dtype[Any], count: int, shift: int
    ) -> Array | None:
        """Load from one region by a pattern that other accesses have had; None where there is none, or a mistake."""
        located, size = self._patterns.of(address), kind.itemsize * count
        if located is None:
            return None
        pattern, low = located.pattern, located.low + shift
        if not pattern.is_aligned(low, size):
            return None
        region = self.known.find(low, low + pattern.highest + size)
        if region is None:
            return None
        at = LocatedPattern(pattern, low)
        self._activity.traffic.access_pattern("load", g, at, size)
        value: Array = region.view(kind, count)[(low - region.base) // size :][pattern.rows(size)]
        self.observe(g, i, "read", "global", "generic", at, size)
        return value

    def _gather(self, address: Array, kind: np.dtype[Any], count: int) -> Array:
        size = kind.itemsize * count
        flat = np.empty((address.size, count), kind)
        for n, value in enumerate(address.flat):
            region = self.known.find(int(value), int(value) + size)
            assert region is not None
            start = int(value) - region.base
            flat[n] = region.bytes[start : start + size].view(kind)
        shaped = flat.reshape(*address.shape, count)
        return shaped[..., 0] if count == 1 else shaped

    def store(self, g: Group, i: Instruction, space: str, address: Array, values: tuple[Array, ...]) -> None:
        """Store elements of each lane; of lanes that hit the same address, the last wins."""
        kind, count = values[0].dtype, len(values)
        size = kind.itemsize * count
        place, address = self._resolved(g, i, space, address, size)
        self._activity.changes += 1
        where: Array | LocatedPattern | InOwnCta = address
        shape = np.broadcast_shapes((g.ctas.count, address.shape[1]), *(v.shape for v in values), address.shape)
        value = values[0] if count == 1 else np.stack([np.broadcast_to(v, shape) for v in values], axis=-1)
        if place == "global":
            region = self.region(g, i, address, size, size)
            if self.known.inputs:
                self.check_writable(g, i, address, size)
            self._activity.traffic.access("store", g, address, size)
            if region is None:
                self._scatter(address, value, shape, size)
            else:
                index = (address - np.uint64(region.base)).astype(np.int64) // size
                region.view(kind, count)[np.broadcast_to(index, shape) if index.shape != shape else index] = value
        elif place == "shared":
            where = self._place(g, i, address, size, size)
            self._store_shared(g, i, where, value, shape, size)
        else:
            where = address = self._locate_local(g, i, address, size)
            view = self._local[: len(self._local) // size * size].view(kind).reshape(-1, count)
            view[address // size] = value if count > 1 else value[..., None]
        if self._activity.observers:
            if place == "global":
                where = self._patterns.of(address) or address
            self.observe(g, i, "write", place, "generic", where, size, values=values)

    def _store_shared(
        self, g: Group, i: Instruction, where: Array | InOwnCta, value: Array, shape: tuple[int, ...], size: int
    ) -> None:
        """Store rows of elements to shared memory."""
        view = self.shared_view(value.dtype, value.shape[-1] if value.ndim > len(shape) else 1)
        if isinstance(where, InOwnCta) and len(where.offsets) == 1 and not self.objects:  # the same place of each CTA
            by_cta = view.reshape(-1, self.slot_bytes // size, *view.shape[1:])
            rows, columns = as_index(g.ctas.slots), as_index(np.broadcast_to(where.offsets // size, (1, shape[1]))[0])
            if isinstance(rows, slice) or isinstance(columns, slice):
                by_cta[rows, columns] = value
                return
        address = where.addresses() if isinstance(where, InOwnCta) else where
        if self.objects:
            self.objects.check_store(g, i, address, size)
        view[np.broadcast_to(address // size, shape)] = value

    def _scatter(self, address: Array, value: Array, shape: tuple[int, ...], size: int) -> None:
        rows = np.ascontiguousarray(np.broadcast_to(value, (*shape, *value.shape[len(shape) :])))
        data = rows.view(np.uint8).reshape(-1, size)
        for row, a in zip(data, np.broadcast_to(address, shape).flat, strict=True):
            region = self.known.find(int(a), int(a) + size)
            assert region is not None
            region.bytes[int(a) - region.base : int(a) - region.base + size] = row

    def observe(
        self,
        g: Group,
        i: Instruction,
        operation: Literal["read", "write", "atomic"],
        space: Space,
        proxy: Proxy,
        where: Array | LocatedPattern | InOwnCta,
        size: int,
        stores: Array | None = None,
        values: tuple[Array, ...] | None = None,
        operand: tuple[int, str, SharedTile] | None = None,
    ) -> None:
        """Tell the observers of an access; a copy of no bytes is not one."""
        if not size:
            return
        completing = self._activity.completing
        who = g.ctas, g.threads
        access = Access(
            operation, space, proxy, i, *who, where, size, completing, stores, values=values, operand=operand
        )
        for observer in self._activity.observers:
            observer.on_access(access)
