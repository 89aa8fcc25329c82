"""Selection of the k largest elements of rows, in their order (traced).

Elements are compared by their keys (`ordering`). The lanes of a warp that hold a narrow row sort its elements block by
block, and keep the k largest elements of each two blocks. For a wide row the CTA finds a threshold key, bit by bit: at
least k elements, and no more than fit in shared memory, are not below the threshold. These elements go to shared
memory, and some warps sort them.
"""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Int32, Uint16, Uint32, Uint64

from cutepy.device import rules
from cutepy.device.global_copies import make_row_vectors
from cutepy.device.held_rows import HeldRows, make_held_rows, registers_of
from cutepy.device.overlap import follow_launch
from cutepy.device.primitives import select
from cutepy.kernels.rows.config import SelectionConfig
from cutepy.kernels.rows.launching import groups_of, launch_rows
from cutepy.kernels.rows.ordering import (
    SIGN,
    has_one_pattern,
    keys_of,
    largest_of,
    largest_over_lanes,
    parts_of,
    sorted_over_threads,
    with_column,
)
from cutepy.layouts.sm90 import arch

BARRIERS = rules.named_barriers(rows=1, sorters=1)


def _column(config: SelectionConfig, rows: HeldRows, n: int):
    """Return the column of a register."""
    elems = config.tiling.elems
    return rows.vector(n // elems) * elems + n % elems


def _store(config: SelectionConfig, row, piece, own, joined, x, sources, y, indices) -> None:
    """Store an element of a piece, of which the key and the column are joined, and its index: -1 if it is none.

    `own` is its place among those of the piece. Zeros and NaNs are read again.
    """
    kind = x.element_type
    bits = Uint16 if kind.width == 16 else Uint32
    word, column = parts_of(joined, kind, config.largest)
    column = piece * config.tiling.columns + column
    exists = joined != type(joined)(0)
    word = word >> Uint32(32 - kind.width)
    wanted = exists & (has_one_pattern(word << Uint32(32 - kind.width), kind) ^ True)
    given = make_row_vectors(cute.recast_tensor(x, bits), 1)
    read = given.load(row, select(wanted, column, cute.size(x, mode=[1])))
    found = cute.make_rmem_tensor(1, bits)
    found[0] = select(wanted, Uint32(read[0]), word).to(bits)
    source = cute.make_rmem_tensor(1, Int32)
    source[0] = column
    if sources is not None:
        source.store(make_row_vectors(sources, 1).load(row, select(exists, column, Int32(0))).load())
    source[0] = select(exists, source[0], Int32(-1))
    place = piece * config.k + own
    make_row_vectors(cute.recast_tensor(y, bits), 1).store(found, row, place)
    make_row_vectors(indices, 1).store(source, row, place)


class TopKOfLanes:
    """Selection from narrow rows, of one configuration: a callable that the DSL compiles."""

    def __init__(self, config: SelectionConfig):
        self.config = config

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, indices: cute.Tensor, stream: CUstream):
        """Launch on x (rows, columns), and y, indices (rows, k)."""
        tiling = self.config.tiling
        name = f"lanes_{self.config.name}"
        launch_rows(self.kernel, name, tiling, groups_of(x, tiling), stream, x, y, indices)

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, indices: cute.Tensor):
        """Select the largest of the rows of a CTA."""
        config, tiling = self.config, self.config.tiling
        rows = make_held_rows(tiling, BARRIERS["rows"])
        columns = cute.size(x, mode=[1])
        row = cute.arch.block_idx()[0] * tiling.rows + rows.group
        follow_launch(True)
        held = rows.fetch(make_row_vectors(x, tiling.elems), row, streams=True)
        found = largest_over_lanes(largest_of(self.keys(rows, held, columns), config.room), tiling.threads)
        for first in cutlass.range_constexpr(0, config.k, tiling.threads):
            self.store(row, rows.thread, first, self.own(rows, found[first:]), x, y, indices)

    def keys(self, rows: HeldRows, held: cute.Tensor, columns) -> list:
        """Join the keys of a row with their columns; 0 where there is no element."""
        found = []
        for n, key in enumerate(keys_of(held, self.config.largest)):
            column = _column(self.config, rows, n)
            joined = with_column(key, column, held.element_type)
            found.append(joined if self.config.fills else select(column < columns, joined, type(joined)(0)))
        return found

    def own(self, rows: HeldRows, found: list):
        """Return that of the first of the largest which each lane of a row stores."""
        own = found[0]
        for lane, other in enumerate(found[1 : rows.tiling.threads], 1):
            own = select(rows.thread == lane, other, own)
        return own

    @cute.jit
    def store(self, row, lane, first: cutlass.Constexpr, joined, x: cute.Tensor, y: cute.Tensor, indices: cute.Tensor):
        """Store one of the largest."""
        if first + lane < self.config.k:
            _store(self.config, row, 0, first + lane, joined, x, None, y, indices)


class TopK:
    """Selection of one configuration: a callable that the DSL compiles."""

    def __init__(self, config: SelectionConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        x: cute.Tensor,
        sources: cute.Tensor | None,
        y: cute.Tensor,
        indices: cute.Tensor,
        stream: CUstream,
    ):
        """Launch on x (rows, columns), and y, indices (rows, pieces * k), which get the k largest of each piece.

        `sources` (rows, columns) has the indices of the elements, -1 of those that are none; if not given, indices are
        the columns. A piece without k elements gives some that are none.
        """
        tiling = self.config.tiling
        groups = groups_of(x, tiling) * cute.ceil_div(cute.size(x, mode=[1]), tiling.columns)
        launch_rows(self.kernel, self.config.name, tiling, groups, stream, x, sources, y, indices)

    @cute.kernel
    def kernel(self, x: cute.Tensor, sources: cute.Tensor | None, y: cute.Tensor, indices: cute.Tensor):
        """Select the largest of the rows of a CTA, or of a piece of one."""
        config, tiling, kind = self.config, self.config.tiling, x.element_type
        words = tiling.rows * config.room * max(1, kind.width // 16)
        # of 64 bits for types of 32
        rows = make_held_rows(tiling, BARRIERS["rows"], {"chosen": (Uint32, words), "exchanged": (Uint32, words)})
        columns = cute.size(x, mode=[1])
        pieces = cute.ceil_div(columns, tiling.columns)
        piece = cute.arch.block_idx()[0] % pieces
        row = cute.arch.block_idx()[0] // pieces * tiling.rows + rows.group
        part = rows.piece(piece)
        follow_launch(True)
        keys = self.keys(part, x, sources, row, columns)
        least, inside, turn = self.threshold(rows, keys, Int32(tiling.columns), Int32(0))
        end = Int32(tiling.columns)
        if cutlass.const_expr(kind.width > 16):
            end = self.end_of_equals(rows, keys, least, inside, turn)
        self.gather(rows, keys, least, end, kind)
        self.sort_and_store(rows, row, piece, x, sources, y, indices)

    @cute.jit
    def keys(self, part: HeldRows, x: cute.Tensor, sources: cute.Tensor | None, row, columns):
        """Load a piece of a row as keys of 32 bits, joined with columns if the type has 16; 0 where there is none."""
        config, elems, kind = self.config, self.config.tiling.elems, x.element_type
        held = part.fetch(make_row_vectors(x, elems), row, streams=True)
        if cutlass.const_expr(sources is not None):
            of = part.fetch(make_row_vectors(sources, elems), row, streams=True)
        keys, found = cute.make_rmem_tensor(cute.size(held), Uint32), keys_of(held, config.largest)
        for n in registers_of(held):
            column, key = _column(config, part, n), found[n]
            if cutlass.const_expr(kind.width == 16):
                key = with_column(key, column - part.first * elems, kind)
            exists = column < columns
            if cutlass.const_expr(sources is not None):
                exists = exists & (of[n] >= 0)
            keys[n] = key if cutlass.const_expr(config.fills) else select(exists, key, Uint32(0))
        return keys

    @cute.jit
    def threshold(self, rows: HeldRows, keys: cute.Tensor, inside, turn):
        """Find a key that k keys of a row are no less than, and no more than there is room for, unless they are equal.

        Returns
        -------
        least, inside, turn
            0 if there are fewer than k keys; how many there are, and the turn of the next reduction.
        """
        config, found = self.config, Uint32(0)
        if cutlass.const_expr(config.tiling.columns > config.room):
            own = Uint32(0)
            for n in registers_of(keys):
                own = select(keys[n] > own, keys[n], own)
            most = rows.reduce_integers(own, "umax", turn)
            turn = 1 - turn
            for bit in cutlass.range(32, unroll=1):
                candidate = found | (Uint32(SIGN) >> Uint32(bit))
                tries = (inside > config.room) & (candidate <= most)
                if cute.arch.vote_any_sync(tries):
                    upper = Int32(0)
                    for n in registers_of(keys):
                        upper = upper + select(keys[n] >= candidate, Int32(1), Int32(0))
                    upper = rows.reduce_integers(upper, "add", turn)
                    turn = 1 - turn
                    holds = tries & (upper >= config.k)
                    found = select(holds, candidate, found)
                    inside = select(holds, upper, inside)
        return found, inside, turn

    @cute.jit
    def end_of_equals(self, rows: HeldRows, keys: cute.Tensor, least, inside, turn):
        """Return the column of a piece before which as many keys are equal to the least as there is room for."""
        config, tiling, end = self.config, self.config.tiling, Int32(self.config.tiling.columns)
        if cutlass.const_expr(tiling.columns > config.room):
            tries = (inside > config.room) & (least > Uint32(0))
            if cute.arch.vote_any_sync(tries):
                above = Int32(0)
                for n in registers_of(keys):
                    above = above + select(keys[n] > least, Int32(1), Int32(0))
                missing = config.k - rows.reduce_integers(above, "add", turn)
                turn, before = 1 - turn, Int32(0)
                for bit in cutlass.range(tiling.columns.bit_length(), unroll=1):
                    candidate, equal = before | (Int32(1 << tiling.columns.bit_length() - 1) >> bit), Int32(0)
                    for n in registers_of(keys):
                        counts = (keys[n] == least) & (_column(config, rows, n) < candidate)
                        equal = equal + select(counts, Int32(1), Int32(0))
                    equal = rows.reduce_integers(equal, "add", turn)
                    before = select(equal <= missing, candidate, before)
                    turn = 1 - turn
                end = select(tries, before, end)
        return end

    @cute.jit
    def gather(self, rows: HeldRows, keys: cute.Tensor, least, end, kind: cutlass.Constexpr):
        """Gather the keys that are no less, joined with their columns, in shared memory; zeros behind them."""
        config, tiling = self.config, self.config.tiling
        chosen = self.slots(rows, "chosen", kind)
        zero = chosen.element_type(0)
        for place in cutlass.range(rows.thread, config.room, tiling.threads):
            chosen[place] = zero
        least, mine = select(least > Uint32(0), least, Uint32(1)), Int32(0)
        for n in registers_of(keys):
            mine = mine + select(self.chooses(rows, keys, n, least, end, kind), Int32(1), Int32(0))
        self.meet(tiling.threads)
        slot = Int32(rows.sum_before(cutlass.Float32(mine)))
        for n in registers_of(keys):
            chooses = self.chooses(rows, keys, n, least, end, kind)
            if chooses:
                if cutlass.const_expr(kind.width == 16):
                    chosen[slot] = keys[n]
                else:
                    chosen[slot] = with_column(keys[n], _column(config, rows, n), kind)
                slot = slot + 1
        self.meet(tiling.threads)

    def chooses(self, rows: HeldRows, keys: cute.Tensor, n: int, least, end, kind):
        """Tell whether a key is gathered."""
        if kind.width == 16:  # no keys are equal
            return keys[n] >= least
        return (keys[n] > least) | ((keys[n] == least) & (_column(self.config, rows, n) < end))

    @cute.jit
    def meet(self, threads: cutlass.Constexpr):
        """Wait for the threads of a row, whose warp others may share."""
        if cutlass.const_expr(threads > arch.WARP_THREADS):
            cute.arch.sync_threads()
        else:
            cute.arch.sync_warp()

    def slots(self, rows: HeldRows, name: str, kind) -> cute.Tensor:
        """Return a row's room in shared memory."""
        room, wide = self.config.room, Uint32 if kind.width == 16 else Uint64
        start = cute.recast_ptr(rows.slots[name].iterator, dtype=wide)
        return cute.make_tensor(start + rows.group * room, cute.make_layout(room))

    @cute.jit
    def sort_and_store(
        self,
        rows: HeldRows,
        row,
        piece,
        x: cute.Tensor,
        sources: cute.Tensor | None,
        y: cute.Tensor,
        indices: cute.Tensor,
    ):
        """Sort what was gathered, and store the largest."""
        if rows.thread < self.config.sorters:
            self.sort(rows, x.element_type)
            chosen = self.slots(rows, "exchanged" if self.config.exchanges % 2 == 0 else "chosen", x.element_type)
            for place in cutlass.range(rows.thread, self.config.k, self.config.sorters):
                joined = Uint32(chosen[place]) if x.element_type.width == 16 else Uint64(chosen[place])
                _store(self.config, row, piece, place, joined, x, sources, y, indices)

    def sort(self, rows: HeldRows, kind):
        """Sort what was gathered, the largest first."""
        config = self.config
        sorters, each = config.sorters, config.room // config.sorters
        wide = Uint32 if kind.width == 16 else Uint64
        regions = [self.slots(rows, name, kind) for name in ("exchanged", "chosen")]
        values = [wide(regions[1][rows.thread * each + n]) for n in range(each)]
        done = [0]

        def leave(values):
            """Leave values of each thread in shared memory, in an order that has no bank conflicts."""
            region = regions[done[0] % 2]
            for n, value in enumerate(values):
                region[n * sorters + rows.thread] = value
            done[0] += 1
            cute.arch.barrier(barrier_id=BARRIERS["sorters"], number_of_threads=sorters)
            return region

        def fetch(values, distance):
            if distance < arch.WARP_THREADS:
                return [cute.arch.shuffle_sync_bfly(value, offset=distance) for value in values]
            region = leave(values)
            return [wide(region[n * sorters + (rows.thread ^ distance)]) for n in range(each)]

        values = sorted_over_threads(values, rows.thread, sorters, fetch)
        region = regions[done[0] % 2]
        for n, value in enumerate(values):
            region[rows.thread * each + n] = value
        if sorters > arch.WARP_THREADS:
            cute.arch.barrier(barrier_id=BARRIERS["sorters"], number_of_threads=sorters)
        else:
            cute.arch.sync_warp()
