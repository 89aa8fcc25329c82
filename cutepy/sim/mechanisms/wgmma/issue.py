"""MMAs as they are issued, committed, and waited for.

An MMA is computed when its group completes. Accumulators stay a matrix until another instruction reads their registers.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from cutepy.sim.errors import DescriptorError
from cutepy.sim.machine.alignment import check_uniform
from cutepy.sim.machine.deadlock import PartOfAUnit
from cutepy.sim.machine.events import AsyncOperation, Fence, GroupCommit, GroupWait, WgmmaEvent
from cutepy.sim.machine.group import AccumulatorTile, IssuedMma
from cutepy.sim.machine.lanes import WARPGROUP, Array
from cutepy.sim.machine.schedule import Mechanism, left_by
from cutepy.sim.mechanisms.wgmma.products import Products
from cutepy.sim.mechanisms.wgmma.registers import fragments, kept_places, read_accumulators, write_accumulators
from cutepy.sim.translate.wgmma_shapes import Shape, parse_shape

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.memory import Memory
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate import Program


class Wgmma(Mechanism):
    """The MMAs of all groups of lanes."""

    def __init__(self, activity: Activity, memory: Memory, program: Program, exact: bool) -> None:
        self._activity = activity
        self._program = program
        self._products = Products(activity, memory, exact)
        self._shapes: dict[int, Shape] = {}
        self._conflicts: dict[int, tuple[int, ...]] = {}

    def _shape(self, i: Instruction) -> Shape:
        shape = self._shapes.get(i.index)
        if shape is None:
            shape = self._shapes[i.index] = parse_shape(i, self._program.set_of[i.index])
            sets = self._program.accumulator_sets
            mine = set(sets[shape.registers])
            self._conflicts[shape.registers] = tuple(
                n for n, other in enumerate(sets) if n != shape.registers and mine & set(other)
            )
        return shape

    def fence(self, g: Group, i: Instruction) -> None:
        """Order register accesses before MMAs: for observers to see."""
        if self._activity.observers:
            self._activity.tell(Fence(i, g.ctas, g.threads))

    def issue(
        self,
        g: Group,
        i: Instruction,
        a: Array | tuple[Array, ...],
        b: Array,
        scale: Array,
        metadata: Array | None = None,
    ) -> None:
        """Take an MMA; it is computed when its group completes. A sparse A has metadata, by (CTA, thread)."""
        if g.threads.warpgroups is None:
            raise PartOfAUnit(g, i, WARPGROUP, "wgmma needs all 128 threads of a warpgroup")
        shape = self._shape(i)
        for other in self._conflicts[shape.registers]:
            if other in g.tiles:
                self.drain(g)
                self.flush(g, other)
        for value, name in ((a, "the descriptor of A"), (b, "the descriptor of B"), (scale, "scale-d")):
            if not isinstance(value, tuple):
                check_uniform(self._activity, g, i, value, name, DescriptorError)
        accumulate = _by_warpgroup(scale)
        tile = g.tiles.get(shape.registers)
        if tile is None:
            registers = self._program.accumulator_sets[shape.registers]
            matrix = read_accumulators(g, shape, registers) if accumulate.any() else None
            tile = g.tiles[shape.registers] = AccumulatorTile(shape, matrix)
        tile.in_flight += 1
        first = fragments(g, shape, a) if isinstance(a, tuple) else _by_warpgroup(a)
        second = _by_warpgroup(b)
        where = None if metadata is None else kept_places(g, shape, metadata)
        g.issued.append(IssuedMma(shape, i, first, second, accumulate, tile, where))
        for observer in self._activity.observers:
            a_of = None if shape.from_registers else first
            observer.on_wgmma(WgmmaEvent(shape, a_of, second, accumulate != 0, i, g.ctas, g.threads))

    def commit(self, g: Group, i: Instruction) -> None:
        """Close a group of MMAs; an empty or complete one counts where an older one may be incomplete."""
        issued, g.issued = g.issued, []
        if i.parts[1] == "commit_group" and self._activity.observers:
            self._activity.tell(GroupCommit(i, g.ctas, g.threads, "wgmma group"))
        if not issued:
            if g.committed:
                g.committed.append(AsyncOperation("wgmma", i, g.ctas, g.threads, "no MMAs", lambda: None, done=True))
            return
        slots = g.ctas
        groups = len(g.threads.warpgroups) if g.threads.warpgroups is not None else 0

        def apply() -> None:
            self._products.compute(issued, slots.index, slots.count, groups, g)

        operation = AsyncOperation("wgmma", i, g.ctas, g.threads, f"{len(issued)} MMAs", apply, tuple(g.committed))
        self._activity.issue(operation)
        if g.committed or not operation.done:
            g.committed.append(operation)

    def wait(self, g: Group, i: Instruction, remaining: int) -> None:
        """Complete all but the youngest `remaining` groups."""
        while len(g.committed) > remaining:
            self._activity.complete(g.committed.pop(0))
        if self._activity.observers:
            self._activity.tell(GroupWait(i, g.ctas, g.threads, "wgmma group", remaining))

    def drain(self, g: Group) -> None:
        """Complete everything."""
        if g.issued:
            self.commit(g, g.issued[-1].instruction)
        while g.committed:
            self._activity.complete(g.committed.pop(0))

    # Schedule.

    def awaited(self, g: Group, i: Instruction) -> list[AsyncOperation]:
        """Return the groups of MMAs that a wait completes."""
        if not i.opcode.startswith("wgmma.wait_group"):
            return []
        return g.committed[: max(len(g.committed) - left_by(i), 0)]

    def before_parting(self, g: Group, blocks: Collection[int], join_block: int) -> None:
        """Bring back to registers the accumulators that a part may touch, once their MMAs are complete.

        MMAs stay with the group that parted: they complete too where a part may commit them or wait for them.
        """
        if not (g.tiles or g.issued or g.committed):
            return
        apart = join_block < 0 or (g.join is not None and g.join.block == join_block)
        sets_with, flow = self._program.sets_with, self._program.flow
        if apart or any(index in sets_with for b in blocks for index in flow.touched_between(b, join_block)):
            self.to_registers(g)
        elif any(flow.has_between(b, join_block, "wgmma") for b in blocks):
            self.drain(g)

    def to_registers(self, g: Group) -> None:
        """Complete a group's MMAs, and bring its accumulators back to registers."""
        if g.tiles or g.issued or g.committed:
            self.drain(g)
            for number in list(g.tiles):
                self.flush(g, number)

    def leave(self, g: Group) -> None:
        """Complete the MMAs of lanes that end."""
        if g.issued or g.committed:
            self.drain(g)

    def flush(self, g: Group, number: int) -> None:
        """Write accumulators to their registers, where something else is about to touch them.

        MMAs that are not committed complete first: there ptxas injects a wait (its advisory C7517). Those that are
        committed and not waited for have not arrived yet.
        """
        tile = g.tiles.get(number)
        if tile is None:
            return
        if any(one.tile is tile for one in g.issued):
            self.drain(g)
        if tile.in_flight == 0:
            del g.tiles[number]
        if tile.matrix is not None:
            registers = self._program.accumulator_sets[number]
            write_accumulators(g, tile.shape, tile.matrix, registers, self._program.kinds)


def _by_warpgroup(value: Array) -> Array:
    """Return a value by (CTA, warpgroup) of one by (CTA, thread)."""
    return value if value.shape[1] == 1 else value[:, ::WARPGROUP]
