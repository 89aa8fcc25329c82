"""wgmma: asynchronous matrix multiply-accumulate of a warpgroup.

The MMAs of a committed group that accumulate in the same registers are one matrix product: their K slices are
gathered side by side, for all CTAs and warpgroups at once. Accumulators stay a matrix until something else reads
their registers. Operand tiles are found with `GmmaDescriptor`, fragments with the thread-value layouts of
`wgmma_traits`.

Products are summed in float32, in an order that is not the hardware's, or one instruction after the other as the
hardware does it (`tensor_core`), which takes much longer; f16 accumulators are rounded by each instruction.

References
----------
PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cutepy.layouts import LayoutError, sm90
from cutepy.layouts.sm90.arch import DTYPE_BITS
from cutepy.layouts.sm90.gmma import byte_swizzle
from cutepy.sim.arithmetic import floats, minifloat, tensor_core
from cutepy.sim.errors import DescriptorError, MemoryAccessError
from cutepy.sim.machine.deadlock import PartOfAUnit
from cutepy.sim.machine.events import AsyncOperation, WgmmaEvent
from cutepy.sim.machine.lanes import WARPGROUP, Array, Index
from cutepy.sim.machine.layout_tables import by_value_and_thread
from cutepy.sim.machine.mechanism import Mechanism
from cutepy.sim.machine.tiles import Issued, Tile
from cutepy.sim.translate.wgmma_shapes import M, Major, Shape, parse_shape

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.memory import Memory
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate import Program

_UNIT = 16
_EXACT_F32 = 1 << 24


@cache
def _traits(shape: Shape) -> sm90.WgmmaTraits:
    types = (shape.d + shape.a + shape.b).upper()
    source = "RS" if shape.from_registers else "SS"
    suffix = "" if shape.a in ("f16", "bf16") else "_TN"
    return sm90.wgmma_traits(f"SM90_64x{shape.n}x{shape.k}_{types}_{source}{suffix}")


@cache
def accumulator_index(shape: Shape) -> Array:
    """Return (value, thread) -> position in a row-major (64, N) matrix."""
    colex = by_value_and_thread(_traits(shape).c_layout)
    position: Array = colex % M * shape.n + colex // M
    return position


@cache
def _operand_index(shape: Shape) -> Array:
    """Return (value, thread) -> position in a row-major (64, K) matrix of A in registers."""
    colex = by_value_and_thread(_traits(shape).a_layout)
    position: Array = colex % M * shape.k + colex // M
    return position


@cache
def tile_units(word: int, major: Major, extent: int, k: int, bits: int) -> Array:
    """Return the 16-byte units of an operand tile, by position in shared memory in units.

    (MN, K / T) for K-major, (K, MN / T) for MN-major, with T elements in a unit.
    """
    descriptor = sm90.GmmaDescriptor.decode(word)
    linear = _linear_units(
        descriptor.leading_byte_offset, descriptor.stride_byte_offset, descriptor.layout_type, major, extent, k, bits
    )
    address = linear + descriptor.start_address
    if descriptor.base_offset:
        raise LayoutError("wgmma", (descriptor,), "base_offset must be 0", "align the tile to its pattern")
    swizzle: Any = byte_swizzle(descriptor.swizzle)  # bit operations, which arrays have too
    result: Array = swizzle(address) // _UNIT
    return result


@cache
def _linear_units(lbo: int, sbo: int, layout_type: int, major: Major, extent: int, k: int, bits: int) -> Array:
    """Return the byte offsets of a tile's units, before swizzling."""
    at_zero = sm90.GmmaDescriptor(0, lbo, sbo, layout_type=layout_type)
    pattern = byte_swizzle(at_zero.swizzle)
    per_unit = 8 * _UNIT // bits
    if major == "K":
        places = [[at_zero.address(r, c, major="K", bits=bits) for c in range(0, k, per_unit)] for r in range(extent)]
    else:
        places = [[at_zero.address(c, r, major="MN", bits=bits) for c in range(0, extent, per_unit)] for r in range(k)]
    # A swizzle is its own inverse.
    return np.array([[pattern(place) for place in row] for row in places])


class Wgmma(Mechanism):
    """The MMAs of all groups of lanes."""

    def __init__(self, activity: Activity, memory: Memory, program: Program, exact: bool) -> None:
        self._activity = activity
        self._memory = memory
        self._program = program
        self._exact = exact
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
        self._activity.notify("fence", i.opcode, g, i)

    def issue(self, g: Group, i: Instruction, a: Array | tuple[Array, ...], b: Array, scale: Array) -> None:
        """Take an MMA; it is computed when its group completes."""
        if g.threads.warpgroups is None:
            raise PartOfAUnit(g, i, WARPGROUP, "wgmma needs all 128 threads of a warpgroup")
        shape = self._shape(i)
        for other in self._conflicts[shape.registers]:
            if other in g.tiles:
                self.drain(g)
                self.flush(g, other)
        accumulate = _by_warpgroup(scale)
        tile = g.tiles.get(shape.registers)
        if tile is None:
            fresh = not accumulate.any()
            tile = g.tiles[shape.registers] = Tile(shape, None if fresh else self._gather(g, shape))
        tile.in_flight += 1
        first = self._fragments(g, shape, a) if isinstance(a, tuple) else _by_warpgroup(a)
        second = _by_warpgroup(b)
        g.issued.append(Issued(shape, i, first, second, accumulate, tile))
        for observer in self._activity.observers:
            observer.on_wgmma(WgmmaEvent(shape, None if shape.from_registers else first, second, i, g.ctas, g.threads))

    def commit(self, g: Group, i: Instruction) -> None:
        """Close a group of MMAs; an empty or complete one counts where an older one may be incomplete."""
        issued, g.issued = g.issued, []
        if not issued:
            if g.committed:
                g.committed.append(AsyncOperation("wgmma", i, g.ctas, g.threads, "no MMAs", lambda: None, done=True))
            return
        slots = g.ctas
        groups = len(g.threads.warpgroups) if g.threads.warpgroups is not None else 0

        def apply() -> None:
            self._execute(issued, slots.index, slots.count, groups, g)

        operation = AsyncOperation("wgmma", i, g.ctas, g.threads, f"{len(issued)} MMAs", apply, tuple(g.committed))
        self._activity.issue(operation)
        if g.committed or not operation.done:
            g.committed.append(operation)

    def wait(self, g: Group, i: Instruction, remaining: int) -> None:
        """Complete all but the youngest `remaining` groups."""
        while len(g.committed) > remaining:
            self._activity.complete(g.committed.pop(0))
        if self._activity.observers:
            self._activity.notify("wait", f"wgmma.wait_group {remaining}", g, i)

    def drain(self, g: Group) -> None:
        """Complete everything."""
        if g.issued:
            self.commit(g, g.issued[-1].instruction)
        while g.committed:
            self._activity.complete(g.committed.pop(0))

    # What the schedule tells.

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

    # Registers and matrices.

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
        if tile.matrix is None:
            return
        shape, matrix = tile.shape, tile.matrix
        registers = self._program.accumulator_sets[number]
        ctas, groups = matrix.shape[:2]
        flat = matrix.reshape(ctas, groups, -1)[:, :, accumulator_index(shape)]
        values = np.ascontiguousarray(flat.transpose(2, 0, 1, 3)).reshape(-1, ctas, groups * WARPGROUP)
        if shape.d != "s32":
            values = floats.canonical(values)
        if shape.d == "f16":
            halves = values.astype(np.float16).view(np.uint16)
            values = halves[::2] | halves[1::2].astype(np.uint32) << np.uint32(16)
        elif shape.d == "s32":
            values = values.astype(np.int32).view(np.uint32)
        kinds = self._program.kinds
        for register, value in zip(registers, values, strict=True):
            g.registers[register] = value if value.dtype.str[1:] == kinds[register] else value.view(kinds[register])

    def _gather(self, g: Group, shape: Shape) -> Array:
        """Make the matrix of accumulators that are in registers."""
        registers = self._program.accumulator_sets[shape.registers]
        size = (g.ctas.count, g.threads.count)
        stacked = np.empty((len(registers), *size), np.uint32)
        for n, register in enumerate(registers):
            stacked[n] = g.registers[register].view(np.uint32)
        if shape.d == "f32":
            values = stacked.view(np.float32)
        elif shape.d == "s32":
            values = stacked.view(np.int32).astype(np.int64)
        else:
            pairs = np.stack([stacked.astype(np.uint16), (stacked >> np.uint32(16)).astype(np.uint16)], axis=1)
            values = pairs.reshape(-1, *size).view(np.float16).astype(np.float32)
        groups = g.threads.count // WARPGROUP
        by_group = values.reshape(len(values), g.ctas.count, groups, WARPGROUP).transpose(1, 2, 0, 3)
        matrix = np.empty((g.ctas.count, groups, M * shape.n), values.dtype)
        matrix[:, :, accumulator_index(shape)] = by_group
        return matrix.reshape(g.ctas.count, groups, M, shape.n)

    def _fragments(self, g: Group, shape: Shape, registers: tuple[Array, ...]) -> Array:
        """Make the matrix of A from registers: (CTA, warpgroup, 64, K)."""
        size = (g.ctas.count, g.threads.count)
        words = np.stack([np.broadcast_to(r, size) for r in registers], axis=-1)
        bits = DTYPE_BITS[shape.a]
        elements = np.ascontiguousarray(words).view(f"u{bits // 8}")
        groups = g.threads.count // WARPGROUP
        by_group = elements.reshape(g.ctas.count, groups, WARPGROUP, -1).transpose(0, 1, 3, 2)
        matrix = np.empty((g.ctas.count, groups, M * shape.k), elements.dtype)
        matrix[:, :, _operand_index(shape)] = by_group
        return to_numbers(matrix, shape.a).reshape(g.ctas.count, groups, M, shape.k)

    # Computing.

    def _execute(self, issued: list[Issued], rows: Index, ctas: int, groups: int, g: Group) -> None:
        """Compute MMAs: those of one accumulator in order, as one product where they continue each other."""
        by_tile: dict[int, list[Issued]] = {}
        for one in issued:
            by_tile.setdefault(id(one.tile), []).append(one)
        for sequence in by_tile.values():
            start = 0
            while start < len(sequence):
                end = start + 1
                first = sequence[start]
                # f16 sums are rounded, and saturating ones clamped, by each instruction.
                fuses = first.shape.d != "f16" and not first.shape.saturate and not self._exact
                while (
                    fuses
                    and end < len(sequence)
                    and sequence[end].shape == first.shape
                    and sequence[end].accumulate.all()
                ):
                    end += 1
                self._product(sequence[start:end], rows, ctas, groups, g)
                start = end
            sequence[0].tile.in_flight -= len(sequence)
        count, stats = ctas * groups, self._activity.stats
        stats["wgmma"] += len(issued) * count
        stats["wgmma_flops"] += sum(one.shape.flops for one in issued) * count
        stats["wgmma_bytes"] += sum(one.shape.smem_bytes for one in issued) * count

    def _product(self, run: list[Issued], rows: Index, ctas: int, groups: int, g: Group) -> None:
        shape, tile = run[0].shape, run[0].tile
        if shape.from_registers:
            a = np.concatenate([one.a for one in run], axis=-1) if len(run) > 1 else run[0].a
        else:
            a = self._operand(
                [one.a for one in run], shape.a_major, M, shape, shape.a, rows, ctas, run[0].instruction, g
            )
        b = self._operand(
            [one.b for one in run], shape.b_major, shape.n, shape, shape.b, rows, ctas, run[0].instruction, g
        )
        if self._exact and shape.d != "s32":
            start = np.float32(0) if tile.matrix is None else tile.matrix
            start = np.broadcast_to(start, (ctas, groups, M, shape.n))
            start = np.where(run[0].accumulate[..., None, None], start, np.float32(0))
            kinds = shape.a, shape.b
            tile.matrix = tensor_core.multiply_accumulate(a * np.float32(shape.sign), b, start, kinds, shape.d)
            return
        if shape.d == "s32" and shape.k * len(run) * 255 * 255 >= _EXACT_F32:
            a, b = a.astype(np.float64), b.astype(np.float64)
        if b.shape[1] == 1:
            if a.shape[1] != groups:
                a = np.broadcast_to(a, (a.shape[0], groups, *a.shape[2:]))
            product = np.matmul(a.reshape(a.shape[0], groups * M, -1), b[:, 0].swapaxes(1, 2))
            product = product.reshape(-1, groups, M, shape.n)
        else:
            product = np.matmul(a, b.swapaxes(2, 3))
        if product.shape[:2] != (ctas, groups):
            product = np.broadcast_to(product, (ctas, groups, M, shape.n)).copy()
        if shape.sign < 0:
            product = -product
        self._accumulate(shape, tile, product, run[0].accumulate)

    def _accumulate(self, shape: Shape, tile: Tile, product: Array, accumulate: Array) -> None:
        if shape.d == "s32":
            product = product.astype(np.int64)
        if tile.matrix is not None and accumulate.any():
            if accumulate.all() and shape.d == "f32":
                tile.matrix += product
                return
            product = product + np.where(accumulate[..., None, None], tile.matrix, product.dtype.type(0))
        if shape.d == "s32":
            product = (
                np.clip(product, -(2**31), 2**31 - 1) if shape.saturate else product.astype(np.int32).astype(np.int64)
            )
        elif shape.d == "f16":
            product = product.astype(np.float16).astype(np.float32)
        tile.matrix = product

    def _operand(
        self,
        words: Sequence[Array],
        major: Major,
        extent: int,
        shape: Shape,
        kind: str,
        rows: Index,
        ctas: int,
        i: Instruction,
        g: Group,
    ) -> Array:
        """Gather operand tiles from shared memory: (CTA, 1 or warpgroup, extent, K of all MMAs)."""
        memory = self._memory
        units = memory.shared_view(np.dtype("c16"), memory.slot_bytes // _UNIT)[rows]
        by_cta = np.stack(np.broadcast_arrays(*words), axis=-1)
        if by_cta.shape[1] > 1 and (by_cta == by_cta[:, :1]).all():
            by_cta = by_cta[:, :1]
        if by_cta.shape[0] > 1 and (by_cta == by_cta[:1]).all():
            by_cta = by_cta[:1]
        tables = [self._table(tuple(map(tuple, row.tolist())), major, extent, shape.k, kind, i, g) for row in by_cta]
        if len(tables) == 1:
            gathered = np.take(units, tables[0], axis=1)
        else:
            gathered = np.stack([np.take(units[n], table, axis=0) for n, table in enumerate(tables)])
        if self._activity.observers:
            slots = np.arange(memory.shared.size // memory.slot_bytes)[rows]
            places = np.stack([table.reshape(-1) for table in tables]) * _UNIT + slots[:, None] * memory.slot_bytes
            memory.observe(g, i, "read", "shared", "async", places, _UNIT)
        bits = DTYPE_BITS[kind]
        values = to_numbers(np.ascontiguousarray(gathered).view(f"u{bits // 8}"), kind)
        return values if major == "K" else values.swapaxes(2, 3)

    def _table(
        self, words: tuple[tuple[int, ...], ...], major: Major, extent: int, k: int, kind: str, i: Instruction, g: Group
    ) -> Array:
        """Return the units of the tiles of a run of MMAs, side by side along K, for each warpgroup."""
        try:
            table = _run_units(words, major, extent, k, DTYPE_BITS[kind])
        except LayoutError as error:
            raise DescriptorError(str(error), i, g.describe()) from error
        limit = self._memory.used_bytes
        if int(table.max()) * _UNIT + _UNIT > limit:
            raise MemoryAccessError(
                f"the descriptor {words[0][0]:#018x} reaches shared address {int(table.max()) * _UNIT:#x}, "
                f"beyond the CTA's {limit} bytes",
                i,
                g.describe(),
            )
        return table


@cache
def _run_units(words: tuple[tuple[int, ...], ...], major: Major, extent: int, k: int, bits: int) -> Array:
    axis = 1 if major == "K" else 0
    return np.stack(
        [np.concatenate([tile_units(word, major, extent, k, bits) for word in run], axis=axis) for run in words]
    )


def _by_warpgroup(value: Array) -> Array:
    """Return a value by (CTA, warpgroup) of one by (CTA, thread)."""
    return value if value.shape[1] == 1 else value[:, ::WARPGROUP]


def to_numbers(bits: Array, kind: str) -> Array:
    """Return float32 values of elements given as bits."""
    if kind == "f16":
        return minifloat.f16_to_f32(bits)
    if kind == "bf16":
        return minifloat.bf16_to_f32(bits)
    if kind == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view(np.float32)
    if kind in ("e4m3", "e5m2"):
        return minifloat.table(kind)[bits]
    return (bits.view(np.int8) if kind == "s8" else bits).astype(np.float32)
