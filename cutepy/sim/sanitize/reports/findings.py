"""Findings: the hazards of a run's launches, each defect once, put into words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import REGISTERS, Place
from cutepy.sim.machine.events import MbarrierAt
from cutepy.sim.machine.lanes import WARP
from cutepy.sim.ptx.model import Label
from cutepy.sim.sanitize.hazards import Hazard, NearMiss, Side, Where
from cutepy.sim.sanitize.kinds import KINDS, RACES
from cutepy.sim.sanitize.memory.access_record import unfenced
from cutepy.sim.sanitize.registers import RegisterHazard, groups_left
from cutepy.sim.sanitize.reports.allowances import Allowances
from cutepy.sim.sanitize.reports.collection import Hazards, rank
from cutepy.sim.sanitize.reports.insertion_points import between
from cutepy.sim.sanitize.reports.near_misses import left_in_flight
from cutepy.sim.translate import Kernel

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Residents
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.hazards import WaitingThreads
    from cutepy.sim.sanitize.memory.access_record import AccessRecord, Conflict
    from cutepy.sim.sanitize.reports.mistakes import MistakeHazard
    from cutepy.sim.sanitize.reports.reasons import Reason
    from cutepy.sim.sanitize.reports.scene import Scene, SceneRecorder


Key = tuple[object, ...]
"""By what hazards of one defect are known."""
_UNWRITTEN = KINDS["uninitialised-read"].diagnosis
_PADDING = Diagnosis("shared-memory-beside-values")


class Findings:
    """The hazards of a run.

    Parameters
    ----------
    surroundings : SceneRecorder
        Source of names.
    allow : mapping of str to str, optional
        Kinds that are allowed everywhere, and why.

    Attributes
    ----------
    of_launch : int
        Hazards reported of the launch that runs, or ran last.
    """

    def __init__(self, surroundings: SceneRecorder, allow: Mapping[str, str] | None = None) -> None:
        self._surroundings = surroundings
        self._found: dict[Key, tuple[Hazard, Scene]] = {}
        self._counts: Counter[Key] = Counter()
        self._of_cause: dict[Key, Key] = {}
        self._races: dict[Key, Key] = {}
        self._both_ways: set[Key] = set()
        self._following: set[Key] = set()
        self._explained: set[Key] = set()
        self._new: list[Key] = []
        self._kernel = ""
        self._launch: Launch | None = None
        self.of_launch = 0
        self._allowances = Allowances(allow)

    @property
    def hazards(self) -> Hazards:
        """Hazards found, each pair of lines once, the likeliest causes first: mostly in the order of discovery."""
        explained = {kernel for kernel, _ in self._of_cause}
        every = [
            self._told(hazard, scene)
            for key, (hazard, scene) in self._found.items()
            if key not in self._following or hazard.kernel not in explained
        ]
        every.sort(key=lambda hazard: rank(hazard.kind))
        return Hazards([*map(self._allowances.applied, every)], self._allowances.unused)

    def _told(self, hazard: Hazard, scene: Scene) -> Hazard:
        """Return a hazard with names, and how often it was found."""
        diagnosis = hazard.diagnosis
        if hazard.key in self._both_ways:
            diagnosis = Diagnosis("race-both-ways", race=diagnosis)
        return replace(scene.described(hazard), count=self._counts[hazard.key], diagnosis=diagnosis)

    def begin(self, launch: Launch) -> None:
        """Begin with a launch.

        Raises
        ------
        AllowanceError
            If a line of the kernel allows an unknown kind, or gives no reason.
        """
        self._kernel, self._launch = launch.name, launch
        self.of_launch = 0
        self._new.clear()
        self._allowances.read(launch)

    def tell(
        self,
        kind: str,
        where: Where,
        before: Side | None,
        after: Side,
        diagnosis: Diagnosis | None = None,
        address: int | None = None,
        size_bytes: int | None = None,
        explains: Key | None = None,
        cause: Instruction | None = None,
        follows: bool = False,
        waits: Sequence[WaitingThreads] = (),
        near_misses: Sequence[NearMiss] = (),
    ) -> None:
        """Add a hazard.

        `diagnosis` is that of the kind, if it isn't given; the address is of shared memory, and a
        name for it is found later. `waits` and `near_misses` are as of `Hazard`. What it explains, another hazard by
        its key, it takes the place of. Of those with one cause the first is told, and if any is, what may follow from
        it is not.
        """
        before, after = before and self._written(before), self._written(after)
        near_misses = tuple(replace(one, side=one.side and self._written(one.side)) for one in near_misses)
        place = _place(where)
        hazard = Hazard(kind, self._kernel, place.name, before, after, diagnosis or KINDS[kind].diagnosis)
        hazard = replace(hazard, address=address, size_bytes=size_bytes, waits=tuple(waits), near_misses=near_misses)
        hazard = replace(hazard, place=place)
        self.of_launch += KINDS[kind].severity == "hazard"
        if hazard.key in self._explained:
            return
        mine = self._known_as(hazard, cause)
        self._counts[mine] += cause is None or mine == hazard.key
        if mine not in self._found and self._launch is not None:
            flow = self._launch.entry.flow
            hazard = replace(hazard, between=between(hazard, flow))
        one = hazard, self._surroundings.scene
        if mine not in self._found:
            self._new.append(mine)
            self._following |= {mine} if follows else set()
        if explains in self._found and mine not in self._found:
            found = ((mine, one) if key == explains else (key, other) for key, other in self._found.items())
            self._found = dict(found)
        self._found.setdefault(mine, one)
        if explains is not None:
            self._explained.add(explains)
            self._found.pop(explains, None)

    def _known_as(self, hazard: Hazard, cause: Instruction | None) -> Key:
        """Return the key of the hazard that is told of the same defect, or its own."""
        if cause is not None:
            return self._of_cause.setdefault((self._kernel, cause.source or cause.index), hazard.key)
        if hazard.before is None or hazard.kind not in RACES:
            return hazard.key
        sites = [(side.place, side.what) for side in hazard.sides]
        other = self._races.get((self._kernel, *reversed(sites)))
        if other is not None and hazard.key not in self._found:
            self._both_ways.add(other)
            return other
        return self._races.setdefault((self._kernel, *sites), hazard.key)

    def _written(self, side: Side) -> Side:
        """Return a side with the PTX that its instruction is written in."""
        launch = side.launch or self._launch
        if side.instruction is None or launch is None:
            return side
        run = runs(launch.entry).get(side.instruction.index)
        return replace(side, ptx=launch.ptx, ptx_file=launch.ptx_file, run=run)

    @property
    def unwritten_reads(self) -> list[Hazard]:
        """The reads of shared memory that nothing wrote which the last launch was the first to have."""
        new = [self._found[key][0] for key in self._new if key in self._found]
        return [hazard for hazard in new if hazard.kind == "uninitialised-read" and hazard.address is not None]

    def discard_unwritten(self) -> None:
        """Report these by their own kind if nothing depends on the read bytes."""
        for key in [hazard.key for hazard in self.unwritten_reads]:
            (hazard, scene), count = self._found.pop(key), self._counts.pop(key)
            hazard = replace(hazard, kind="discarded-read", diagnosis=KINDS["discarded-read"].diagnosis)
            self._found.setdefault(hazard.key, (hazard, scene))
            self._counts[hazard.key] += count
        self._new.clear()

    def relate(self, hang: MistakeHazard) -> None:
        """Report missing bytes as their cause, if threads wait for them and near misses name it."""
        awaited = {wait.mbarrier for wait in hang.waits} - {None}
        for key in (
            [key for key in self._found if key[:2] == ("uneven-bytes", self._kernel)] if hang.near_misses else ()
        ):
            hazard, scene = self._found[key]
            if hazard.place is not None and hazard.place.mbarrier in awaited:
                diagnosis = Diagnosis("bytes-of-a-deadlock", bytes=hazard.diagnosis, deadlock=hang.diagnosis)
                self._found[key] = (
                    replace(hazard, diagnosis=diagnosis, near_misses=hang.near_misses, between=None),
                    scene,
                )

    def registers(self, found: RegisterHazard) -> None:
        """Report registers that something uses beside the MMAs."""
        before = None if found.before is None else Side(found.before.parts[0], "a warpgroup", found.before)
        after = Side(found.after.parts[0], "a warpgroup", found.after)
        near: list[NearMiss] = []
        if found.left_by is not None:
            wait = Side(found.left_by.name, "a warpgroup", found.left_by)
            near = [NearMiss("leaves-groups", left_in_flight(groups_left(found.left_by)), wait)]
        self.tell(found.kind, REGISTERS, before, after, near_misses=near)

    def conflict(
        self,
        found: Conflict,
        residents: Residents,
        granule_bytes: int,
        reason: Reason | None = None,
        near: Sequence[NearMiss] = (),
    ) -> None:
        """Report two touches that nothing orders, with the reason if it is known."""
        before, after = found.before, found.after
        unfenced_only = found.lacks == "fence"
        kind = unfenced(before.writes) if unfenced_only else "unordered-" + ("write" if after.writes else "read")
        narrow = found.narrow or (found.lacks == "scope" and not before.asynchronous)
        by_warps = found.lacks == "warps"
        kind = "unmet-warps" if by_warps else kind
        kind = "too-narrow-scope" if narrow else "partial-overlap" if found.partial else kind
        old = side(residents, before, found.before_lane, int(np.searchsorted(before.slots, after.slots[found.row])))
        new = side(residents, after, found.after_lane, found.row)
        mate = None if _are_of_a_warp(found) else found.mate
        diagnosis = _advice(before, after, mate) if kind in RACES else None
        if reason is not None and not (unfenced_only or by_warps or found.partial) and found.mate is None:
            kind, diagnosis = reason.kind or kind, reason.diagnosis
        unwritten, cause = None, reason and reason.cause
        if found.read_first:
            if reason is not None and reason.is_early:
                diagnosis = Diagnosis("read-first-by-phase", otherwise=reason.diagnosis)
            else:
                diagnosis = Diagnosis("read-first", otherwise=_advice(after, before, None))
            kind, old, new = "unordered-read", new, old
            unwritten = Hazard("uninitialised-read", self._kernel, "", None, self._written(new), _UNWRITTEN).key
        address, size = (x * granule_bytes for x in _shared_granules(found))
        where = Place.of_shared(address)
        near = () if reason is not None and diagnosis == reason.diagnosis else near  # the reason says it
        self.tell(kind, where, old, new, diagnosis, address, size, unwritten, cause, near_misses=near)

    def unwritten(
        self, touch: AccessRecord, row: int, residents: Residents, address: int, is_padding: bool = False
    ) -> None:
        """Report a touch that reads unwritten memory, which may be padding of its source."""
        reader, where = side(residents, touch, 0, row), Place.of_shared(address)
        if is_padding:
            self.tell("undefined-output", where, None, reader, _PADDING)
        else:
            self.tell("uninitialised-read", where, None, reader, None, address)

    def filled(self, read: AccessRecord, write: AccessRecord, row: int, residents: Residents, address: int) -> None:
        """Report a touch that reads memory that is written first later, by a thread that knows of the read."""
        at = int(np.searchsorted(read.slots, write.slots[row]))
        reader, writer = side(residents, read, 0, at), side(residents, write, 0, row)
        said = ("uninitialised-read", _UNWRITTEN), ("undefined-output", _PADDING)
        keys = [Hazard(kind, self._kernel, "", None, self._written(reader), missing).key for kind, missing in said]
        for unwritten in filter(self._found.__contains__, keys):
            otherwise = _advice(write, read, None) if write.asynchronous else _UNWRITTEN
            told = Diagnosis("read-first", otherwise=otherwise)
            where = Place.of_shared(address)
            self.tell("uninitialised-read", where, writer, reader, told, address, None, unwritten)

    def explain(self, read: Hazard, found: Hazard) -> None:
        """Report a read of unwritten memory as a hazard that another schedule shows."""
        if read.key in self._found:
            _, scene = self._found[read.key]
            if not found.diagnosis.read_first:
                found = replace(found, diagnosis=Diagnosis("read-first-in-this-schedule", otherwise=found.diagnosis))
            same = read.key
            every = ((found.key, (found, scene)) if key == same else (key, one) for key, one in self._found.items())
            self._found = dict(every)
            self._counts[found.key] += self._counts.pop(read.key)


@lru_cache(8)
def runs(kernel: Kernel) -> dict[int, int]:
    """Map each instruction to the first one of its run: no branch enters or leaves between the two."""
    instructions = kernel.instructions
    targets = {label.target for i in instructions for label in i.operands if isinstance(label, Label)}
    found, first, is_over = {}, 0, False
    for i in sorted(instructions, key=lambda i: i.index):
        if is_over or i.index in targets:
            first = i.index
        found[i.index], is_over = first, i.traits.branches
    return found


def _place(where: Where) -> Place:
    """Return the place of a hazard, with its name.

    Examples
    --------
    >>> from cutepy.sim.machine.events import ClusterBarrier
    >>> _place(MbarrierAt(8)).name, _place(MbarrierAt(8)).mbarrier, _place(ClusterBarrier()).name
    ('mbarrier 0x8', 8, 'barrier.cluster')
    """
    if isinstance(where, MbarrierAt):
        return Place.of_mbarrier(where.address)
    return where if isinstance(where, Place) else Place(str(where))


def _shared_granules(found: Conflict) -> tuple[int, int]:
    """Return the first granule that both lanes touched, and how many there are from that to the last."""
    before, after = found.before, found.after
    row = int(np.searchsorted(before.slots, after.slots[found.row]))
    sides = (before, row, found.before_lane), (after, found.row, found.after_lane)
    touched = ((*touch.touched(at), lane) for touch, at, lane in sides)
    both = np.intersect1d(*(granules[lanes == lane] for granules, lanes, lane in touched))
    return int(both[0]), int(both[-1] - both[0]) + 1


def _are_of_a_warp(found: Conflict) -> bool:
    """Return whether both are threads of one warp."""
    before, after = found.before, found.after
    if before.threads is None or after.threads is None:
        return False
    row = int(np.searchsorted(before.slots, after.slots[found.row]))
    warps = before.threads[found.before_lane] // WARP, after.threads[found.after_lane] // WARP
    return bool(before.agents[row] == after.agents[found.row] and warps[0] == warps[1])


def side(residents: Residents, touch: AccessRecord, lane: int, row: int) -> Side:
    """Return the operation of a lane of a touch, of the CTA in a row of it."""
    cta = residents.coordinate(int(touch.agents[row]))
    if touch.threads is None:
        return touch.of_proxy(cta)
    return Side.of_thread(touch.name, cta, int(touch.threads[lane]), touch.instruction, touch.access)


def _advice(before: AccessRecord, after: AccessRecord, mate: int | None) -> Diagnosis:
    """Name the operation missing between two touches."""
    if mate is not None and before.threads is not None:
        return Diagnosis("elected-lane-alone", lane=int(before.threads[mate]) % WARP)
    if before.instruction is after.instruction and (before.name, before.access) == ("st.async", "write"):
        return Diagnosis("st-async-in-no-order")
    if before.threads is None and before.writes:
        return Diagnosis("copy-may-be-in-flight")
    if before.instruction.traits.kind == "wgmma":
        return Diagnosis("mmas-may-be-reading")
    if before.asynchronous and before.instruction.traits.brings_bytes:
        return Diagnosis("copy-may-be-reading")
    if before.asynchronous:
        return Diagnosis("store-may-be-reading")
    if before.name == "cp.async":
        return Diagnosis("cp-async-may-be-in-flight")
    return KINDS["unordered-read"].diagnosis
