"""Names of a launch's actors and objects: roles of warps, barriers, and tensors in shared memory.

Most of it is declared nowhere, so it is read from what happens: a warp that issues TMA loads is a producer, and a
region that TMA fills is the tile that the line of the copy names. Copies of one line that signal different mbarriers
fill different stages, in the order of these. Where the kernel's PTX has remarks on the regions of a plan, memory has
their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from cutepy.layouts.sm90 import TensorMap
from cutepy.sim.errors import Place
from cutepy.sim.machine.events import MbarrierAt, MbarrierCompleteTx, MbarrierInit
from cutepy.sim.machine.lanes import WARP, WARPGROUP
from cutepy.sim.machine.observer import Observer
from cutepy.sim.machine.shared_memory import planned_regions
from cutepy.sim.ptx.barrier_names import barrier_name, holder_name, made_at, ring, stage_of
from cutepy.sim.ptx.model import type_bits
from cutepy.sim.sanitize.reports.excerpts import GLOBAL, SHARED, function_at, operand_of

if TYPE_CHECKING:
    from cutepy.layouts.sm90.smem_remarks import NamedRegion
    from cutepy.sim.machine.events import Access, AsyncOperation, BarrierEvent, TmaEvent, WgmmaEvent
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.hazards import Hazard, Side

_PARTS = {
    "tma_load": "TMA",
    "tma_store": "TMA store",
    "bulk_load": "bulk copy",
    "bulk_store": "bulk store",
    "bulk_peer": "copy to a peer",
    "st_async": "st.async",
    "launch_control": "launch control",
}
"""Names of copies for which threads do not do the work themselves."""
_WRITERS = {"st_async": ("st.async", "stores"), "launch_control": ("launch control", "answers")}
"""Writers other than TMA: the name of their region, and the verb."""
_FILLS = ("tma_load", "bulk_load", "bulk_peer")
_OF_COMPILERS = re.compile(r"__dynamic|\$|global_smem$|extern_shared|_\d")
_TYPE = re.compile(r"[bfsu](?:8|16|32|64)")
_LOCAL = re.compile(r"_ZZ\w*?E(\d+)(\w+)")


@dataclass(frozen=True)
class Box:
    """A region of shared memory that a copy fills or reads.

    Attributes
    ----------
    address, size_bytes : int
    row_bytes : int
        Of its contiguous dimension, 0 where it has none.
    instruction : Instruction
    loads : bool
    """

    address: int
    size_bytes: int
    row_bytes: int
    instruction: Instruction
    loads: bool


_OF_COUNTS = ("misused-barrier", "uneven-bytes", "deadlock")
"""Kinds of hazards that may come of what a barrier was made with."""


class Scene:
    """Roles and names observed in a launch.

    Parameters
    ----------
    launch : Launch, optional
        None before the first one: the host alone has touched memory.
    """

    def __init__(self, launch: Launch | None = None) -> None:
        x, y, z = (0, 0, 0) if launch is None else launch.block
        self._launch, self._threads = launch, x * y * z
        self.boxes: dict[tuple[int, int], Box] = {}  # by instruction and address
        self.signals: dict[tuple[int, int], int] = {}  # the same -> the mbarrier that counts its bytes
        self.made: dict[int, Instruction] = {}  # mbarriers by address
        self.issuers: dict[int, set[int]] = {}  # by instruction, warps
        self.kinds: dict[int, str] = {}
        self.producers: set[int] = set()
        self.warpgroups: set[int] = set()

    def described(self, hazard: Hazard) -> Hazard:
        """Return a hazard with the names of its buffers, barriers and threads."""
        before, made = None if hazard.before is None else self._side(hazard.before), None
        where, buffer = hazard.where, hazard.buffer
        place, holder = hazard.place or Place(where), ""
        address = place.mbarrier
        if address in self.made and where == str(MbarrierAt(address)):
            where = barrier_name(address, self.made)
        if address is not None and hazard.kind in _OF_COUNTS:
            if address in self.made:
                made, holder = made_at(address, self.made), holder_name(address, self.made)
        elif hazard.address is not None and not buffer:
            buffer = self._buffer(hazard)
        elif place.global_address is not None:
            buffer = _operand(hazard, GLOBAL)
        near = tuple(replace(one, side=one.side and self._side(one.side)) for one in hazard.near_misses)
        found = replace(hazard, where=where, buffer=buffer, made_at=made, holder=holder, near_misses=near)
        return replace(found, before=before, after=self._side(hazard.after))

    # Roles.

    def _side(self, side: Side) -> Side:
        i = side.instruction
        if side.role or i is None:
            return side
        if side.warp is not None and not side.of_warps:
            return replace(side, role=self.role(side.warp))
        warps = sorted(self.issuers.get(i.index, ()))
        if not warps:
            return side
        if not side.is_async:
            return replace(side, who=self._warps(warps), warp=warps[0])
        part = {**_PARTS, "wgmma": "MMA"}[self.kinds[i.index]]
        function = function_at(side.chain[0].file, side.chain[0].line) if side.chain else ""
        role = f"{part} of {function}" if function else part
        cta = "" if side.cta is None else f", for CTA {side.cta}"
        issuers = f"{self._warps(warps)}{cta}"
        return replace(side, who=f"{role}, issued by {issuers}", warp=warps[0], role=role, issuers=issuers)

    def _warps(self, warps: list[int]) -> str:
        """Name the warps, and their role."""
        groups = sorted({warp * WARP // WARPGROUP for warp in warps})
        if self._threads > WARPGROUP and self.warpgroups.issuperset(groups) and len(warps) == 4 * len(groups):
            return f"MMA warpgroup{'s' * (len(groups) > 1)} {' and '.join(map(str, groups))}"
        roles = {self.role(warp) for warp in warps}
        role = roles.pop() if len(roles) == 1 else ""
        first, last = warps[0], warps[-1]
        if len(warps) == 1:
            words = f"warp {first}"
        elif last - first + 1 == len(warps):
            words = f"warps {first}-{last}"
        else:
            words = f"warps {', '.join(map(str, warps))}"
        return f"{words} ({role})" if role else words

    def role(self, warp: int) -> str:
        """Return the role of a warp, in a kernel whose warps have different roles; "" if that doesn't show."""
        group = warp * WARP // WARPGROUP
        if not self.warpgroups or self._threads <= WARPGROUP:
            return ""
        if group in self.warpgroups:
            return f"MMA warpgroup {group}"
        return "producer" if warp in self.producers else ""

    # Shared memory.

    def _buffer(self, hazard: Hazard) -> str:
        assert hazard.address is not None
        address, size = hazard.address, hazard.size_bytes or 1
        # Shared memory is reused, so what the two operations call it comes before what others do.
        here = [box for box in self.boxes.values() if box.address <= address < box.address + box.size_bytes]
        acting = [side.instruction.index for side in hazard.sides if side.instruction is not None]
        box = _named_by([box for box in here if box.instruction.index in acting])
        if regions := [region for region in self._regions if region.stage_of(address) is not None]:
            called = {_called(side, SHARED) for side in hazard.sides if side.instruction is not None}
            own = [region for region in regions if called == {region.name}] or regions
            return self._planned(own, box or _named_by(here), address, size)
        if box is None:
            if found := self._variable(address, hazard.after) or _operand(hazard, SHARED):
                return found
            box = _named_by(here)
        return "" if box is None else self._name(box) + self._ring(box) + self._stage(box) + _rows(box, address, size)

    @cached_property
    def _regions(self) -> tuple[NamedRegion, ...]:
        assert self._launch is not None, "shared memory is a launch's"
        entry = self._launch.entry
        return planned_regions(self._launch.ptx, entry.module, entry.function, self._launch.symbols)

    def _planned(self, regions: list[NamedRegion], box: Box | None, address: int, size: int) -> str:
        """Name a place in a region of a plan, or in one of those that lie in each other."""
        region = regions[0]
        name = " or ".join(each.name for each in regions)
        if len(regions) == 1 and region.stages > 1:
            name += f" stage {region.stage_of(address)}"
        if box is None:
            return name
        stage = region.stage_of(address)
        parts = sorted({b.address for b in self._fellows(box) if region.stage_of(b.address) == stage})
        return name + (f" part {parts.index(box.address)}" if len(parts) > 1 else "") + _rows(box, address, size)

    def _name(self, box: Box) -> str:
        """Name the tile that a copy fills or reads, as its line does."""
        source = box.instruction.source
        if source is not None and (name := operand_of(source, box.loads)):
            return name
        function = function_at(source.file, source.line) if source is not None else ""
        part, verb = _WRITERS.get(self.kinds[box.instruction.index], ("TMA", "loads" if box.loads else "stores"))
        name = f"what {part}{f' of {function}' if function else ''} {verb}"
        if source is not None and not function:
            name += f" at {source}"
        return name

    def _fellows(self, box: Box) -> list[Box]:
        """List the boxes of copies of the same line."""
        source = box.instruction.source
        return [b for b in self.boxes.values() if b.instruction.source == source and b.loads == box.loads]

    def _signal(self, box: Box) -> int | None:
        """Return the mbarrier that counts the bytes of a box."""
        return self.signals.get((box.instruction.index, box.address))

    def _ring(self, box: Box) -> str:
        """Name the ring that a line copies for, if the line copies for several rings."""
        signals = {at for b in self._fellows(box) if (at := self._signal(b)) is not None and at in self.made}
        holders = {at: holder_name(at, self.made) for at in signals if stage_of(at, self.made)[0]}
        own = self._signal(box)
        return f" for {holders[own]}" if own in holders and len({*holders.values()}) > 1 else ""

    def _stage(self, box: Box) -> str:
        """Name the stage of a region among the stages that one line fills, and the part of a stage."""
        fellows, own = self._fellows(box), self._signal(box)
        turns = sorted({b.address for b in fellows if b.instruction.index == box.instruction.index})
        if own is None and len(turns) > 1:  # no barrier tells: what one instruction goes through is a ring
            return f" stage {turns.index(box.address)}"
        stages = {at for b in fellows if (at := self._signal(b)) is not None}
        if own in self.made and stage_of(own, self.made)[0]:
            stages &= {*ring(own, self.made)}
        parts = sorted({b.address for b in fellows if self._signal(b) == own})
        stage = f" stage {sorted(stages).index(own)}" if own is not None and len(stages) > 1 else ""
        return stage + (f" part {parts.index(box.address)}" if len(parts) > 1 else "")

    def _variable(self, address: int, side: Side) -> str:
        """Name the variable that holds an address, where it has a name that people gave it."""
        assert self._launch is not None, "shared memory is a launch's"
        declared = (*self._launch.entry.module.variables, *self._launch.entry.function.variables)
        for variable in declared:
            start = self._launch.symbols.get(variable.name)
            if variable.space != "shared" or start is None or not variable.size_bytes:
                continue
            inside = address - start
            if 0 <= inside < variable.size_bytes and not _OF_COMPILERS.match(variable.name):
                # nvcc declares bytes, whatever they are of: an access tells.
                element = variable.element_bytes if variable.element_bytes > 1 else _element_bytes(side)
                index, rest = divmod(inside, element)
                name = _unmangled(variable.name)
                return f"{name}, byte {inside}" if rest or element == 1 else f"{name}[{index}]"
        return ""


def _named_by(boxes: Iterable[Box]) -> Box | None:
    """Return the box whose copy names memory: one that fills it, or else one that reads it."""
    return min(boxes, key=lambda box: (not box.loads, box.instruction.index), default=None)


def _rows(box: Box, address: int, size: int) -> str:
    """Name the rows of a box; empty if all rows are meant, or the box has no rows."""
    if not box.row_bytes or size >= box.size_bytes:
        return ""
    first = (address - box.address) // box.row_bytes
    last = (min(address + size, box.address + box.size_bytes) - 1 - box.address) // box.row_bytes
    return f", row {first}" if first == last else f", rows {first}..{last}"


def _element_bytes(side: Side) -> int:
    """Return the bytes of an element as an access has it; 1 where that doesn't tell."""
    kind = "" if side.instruction is None else side.instruction.parts[-1]
    return max(type_bits(kind) // 8, 1) if _TYPE.fullmatch(kind) else 1


def _operand(hazard: Hazard, space: str) -> str:
    """Name the object that the lines of both sides touch, if one names it."""
    return next(filter(None, (_called(side, space) for side in hazard.sides)), "")


def _called(side: Side, space: str) -> str:
    """Name the object that the line of a side touches, if the line names it."""
    i = side.instruction
    return "" if i is None or i.source is None else operand_of(i.source, side.access != "read", space)


def _unmangled(name: str) -> str:
    """Return the name of a variable that a function of C++ declares.

    Examples
    --------
    >>> _unmangled("_ZZ6kernelPfE6buffer"), _unmangled("tile")
    ('buffer', 'tile')
    """
    found = _LOCAL.fullmatch(name)
    return found[2][: int(found[1])] if found and len(found[2]) >= int(found[1]) else name


class SceneRecorder(Observer):
    """Records which threads and CTAs the launch that runs has.

    Attributes
    ----------
    scene : Scene
    """

    def __init__(self) -> None:
        self.scene = Scene()

    def on_launch(self, launch: Launch) -> None:
        """Begin with a launch."""
        self.scene = Scene(launch)
        self._slot_bytes = launch.slot_bytes
        self._touched: dict[int, set[tuple[int, int]]] = {}  # by operation, instruction and address
        self._signalled: dict[int, set[int]] = {}

    def on_tma(self, event: TmaEvent) -> None:
        """Note the boxes of tensor copies."""
        key = event.instruction.index, event.shared_address
        if key not in self.scene.boxes:
            box = event.tensor_map
            row_bytes = box.box[0] * box.bits // 8 if isinstance(box, TensorMap) else 0
            loads = event.operation == "load"
            self.scene.boxes[key] = Box(event.shared_address, box.box_bytes, row_bytes, event.instruction, loads)

    def on_issue(self, operation: AsyncOperation) -> None:
        """Record the threads that issue an operation."""
        if operation.kind in _PARTS:
            warps = {*(operation.threads.ids // WARP).tolist()}
            scene, index = self.scene, operation.instruction.index
            scene.kinds[index] = operation.kind
            scene.issuers.setdefault(index, set()).update(warps)
            if operation.kind in _FILLS:
                scene.producers.update(warps)

    def on_wgmma(self, event: WgmmaEvent) -> None:
        """Record the threads that issue MMAs."""
        warps = {*(event.threads.ids // WARP).tolist()}
        scene, index = self.scene, event.instruction.index
        scene.kinds[index] = "wgmma"
        scene.issuers.setdefault(index, set()).update(warps)
        scene.warpgroups.update(warp * WARP // WARPGROUP for warp in warps)

    def on_access(self, access: Access) -> None:
        """Note the shared memory that copies touch."""
        operation = access.part_of
        if operation is None or access.space != "shared" or operation.kind not in _PARTS:
            return
        for address in (access.addresses.reshape(-1) % self._slot_bytes).tolist():
            key, loads = (operation.instruction.index, address), access.operation != "read"
            self._touched.setdefault(id(operation), set()).add(key)
            if key not in self.scene.boxes:
                self.scene.boxes[key] = Box(address, access.size_bytes, 0, operation.instruction, loads)

    def on_barrier(self, event: BarrierEvent) -> None:
        """Note how mbarriers are made, and which of them count the bytes of which copies."""
        if isinstance(event, MbarrierInit):
            self.scene.made.setdefault(event.state.address, event.instruction)
        elif isinstance(event, MbarrierCompleteTx) and event.part_of is not None:
            self._signalled.setdefault(id(event.part_of), set()).add(event.state.address)

    def on_complete(self, operation: AsyncOperation) -> None:
        """Note which mbarrier an operation has signalled, if all its copies signal that."""
        touched, signalled = self._touched.pop(id(operation), set()), self._signalled.pop(id(operation), set())
        if len(signalled) == 1:
            self.scene.signals.update(dict.fromkeys(touched, *signalled))
