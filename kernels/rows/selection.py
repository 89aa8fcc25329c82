"""Selection of the k largest elements of rows, in their order (traced).

Elements are compared by keys, numbers of 32 bits. The k-th largest key is found bit by bit: with each, the elements of
a row that are no less are counted. Of elements that are equal to it those come first that are first in the row. The
selected elements wait in shared memory, where the place of each is the number of those before it.
"""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32, Int32, Uint32

from cutepy.device import reduce, rules
from cutepy.device.global_copies import make_row_vectors
from cutepy.device.held_rows import HeldRows, make_held_rows
from cutepy.device.overlap import follow_launch
from cutepy.device.primitives import select
from cutepy.kernels.rows.config import SelectionConfig
from cutepy.kernels.rows.launching import groups_of, launch_rows

BARRIERS = rules.named_barriers(rows=1)
SIGN, ALL = 0x80000000, 0xFFFFFFFF


def key_of(value, bits: int, largest: bool = True):
    """Return the key of a number: larger for larger ones, NaN the largest; the other way round if not `largest`.

    No key is 0. Zeros have one key. The low bits, which the number's type hasn't, are 0.
    """
    shift = 32 - bits
    pattern = select(value == Float32(0.0), Float32(0.0), value).bitcast(Uint32)
    key = pattern ^ select(pattern >= Uint32(SIGN), Uint32(ALL), Uint32(SIGN))
    key = key if largest else ~key
    nan = Uint32(ALL if largest else 1 << shift)
    return select(value == value, key, nan) & Uint32(ALL << shift & ALL)


def count(keys: cute.Tensor, holds):
    """Count the registers for which `holds(n)`."""
    found = Int32(0)
    for n in range(cute.size(keys)):
        found = found + select(holds(n), Int32(1), Int32(0))
    return Float32(found)


@cute.jit
def kth_largest(rows: HeldRows, keys: cute.Tensor, bits: cutlass.Constexpr, k: cutlass.Constexpr, turn):
    """Return the k-th largest key of a row, 0 if it has fewer, and the turn of the next reduction."""
    found = Uint32(0)
    for bit in cutlass.range(bits, unroll=1):
        candidate = found | (Uint32(SIGN) >> Uint32(bit))
        above = rows.reduce(count(keys, lambda n, least=candidate: keys[n] >= least), reduce.add, turn)
        found = select(above >= Float32(k), candidate, found)
        turn = 1 - turn
    return found, turn


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
        config, tiling = self.config, self.config.tiling
        kept = {"keys": (Uint32, tiling.rows * config.k), "columns": (Int32, tiling.rows * config.k)}
        rows = make_held_rows(tiling, BARRIERS["rows"], kept)
        columns = cute.size(x, mode=[1])
        pieces = cute.ceil_div(columns, tiling.columns)
        piece = cute.arch.block_idx()[0] % pieces
        row = cute.arch.block_idx()[0] // pieces * tiling.rows + rows.group
        part = rows.piece(piece)
        follow_launch(True)
        keys = self.keys(part, x, sources, row, columns)
        chosen, turn = kth_largest(rows, keys, config.bits, config.k, Int32(0))
        end = self.end_of_equals(rows, keys, chosen, turn)

        def is_chosen(n):
            return (keys[n] > chosen) | ((keys[n] == chosen) & (self.column(rows, n) < end))

        slot = rows.group * config.k + Int32(rows.sum_before(count(keys, is_chosen)))
        kept_keys, kept_columns = rows.slots["keys"], rows.slots["columns"]
        for n in cutlass.range_constexpr(cute.size(keys)):
            chooses, column = is_chosen(n), self.column(part, n)
            if chooses:
                kept_keys[slot] = keys[n]
                kept_columns[slot] = column
                slot = slot + 1
        cute.arch.sync_threads()
        self.store_in_order(rows, row, piece, x, sources, y, indices)

    def column(self, rows, n):
        """Return the column of a register."""
        elems = self.config.tiling.elems
        return rows.vector(n // elems) * elems + n % elems

    @cute.jit
    def keys(self, part: HeldRows, x: cute.Tensor, sources: cute.Tensor | None, row, columns):
        """Load a piece of a row as keys; 0 where there is no element."""
        config, elems = self.config, self.config.tiling.elems
        held = part.load(make_row_vectors(x, elems), row, streams=True)
        if cutlass.const_expr(sources is not None):
            of = part.fetch(make_row_vectors(sources, elems), row, streams=True)
        keys = cute.make_rmem_tensor(cute.size(held), Uint32)
        for n in cutlass.range_constexpr(cute.size(held)):
            exists = self.column(part, n) < columns
            if cutlass.const_expr(sources is not None):
                exists = exists & (of[n] >= 0)
            keys[n] = select(exists, key_of(held[n], config.bits, config.largest), Uint32(0))
        return keys

    @cute.jit
    def end_of_equals(self, rows: HeldRows, keys: cute.Tensor, chosen, turn):
        """Return the column of a piece before which as many keys are equal to the k-th largest as are selected."""
        tiling = self.config.tiling
        above = rows.reduce(count(keys, lambda n: keys[n] > chosen), reduce.add, turn)
        missing, end = Float32(self.config.k) - above, Int32(0)
        turn = 1 - turn
        bits = tiling.columns.bit_length()
        for bit in cutlass.range(bits, unroll=1):
            candidate = end | (Int32(1 << bits - 1) >> bit)
            equal = count(keys, lambda n, end=candidate: (keys[n] == chosen) & (self.column(rows, n) < end))
            equal = rows.reduce(equal, reduce.add, turn)
            end = select(equal <= missing, candidate, end)
            turn = 1 - turn
        return end

    @cute.jit
    def store_in_order(
        self,
        rows: HeldRows,
        row,
        piece,
        x: cute.Tensor,
        sources: cute.Tensor | None,
        y: cute.Tensor,
        indices: cute.Tensor,
    ):
        """Store the selected elements, each at the place that the number of those before it tells."""
        k, first = self.config.k, rows.group * self.config.k
        keys, columns = rows.slots["keys"], rows.slots["columns"]
        values = make_row_vectors(x, 1)
        for own in cutlass.range(rows.thread, k, self.config.tiling.threads):
            key, column, before = Uint32(keys[first + own]), columns[first + own], Int32(0)
            for other in cutlass.range(k, unroll=8):
                key_of_other, column_of_other = Uint32(keys[first + other]), columns[first + other]
                is_before = (key_of_other > key) | ((key_of_other == key) & (column_of_other < column))
                before = before + select(is_before, Int32(1), Int32(0))
            source = cute.make_rmem_tensor(1, Int32)
            source[0] = column
            if cutlass.const_expr(sources is not None):
                source.store(make_row_vectors(sources, 1).load(row, column).load())
            source[0] = select(key == Uint32(0), Int32(-1), source[0])
            place = piece * k + before
            make_row_vectors(y, 1).store(values.load(row, column), row, place)
            make_row_vectors(indices, 1).store(source, row, place)
